"""The progress display of a slow command: its activity, the elapsed seconds, and the progress.

The display is on standard error, and only on a terminal, so that the output of a command can be piped. It disappears at the end.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from pykafka_wire.cli.lag_samples import duration, rate
from pykafka_wire.cli.spark_output import SparkOutput, WithoutChatter

if TYPE_CHECKING:
    from rich.text import Text

_BAR_CELLS: Final = 24


def bar(done: int, total: int, rest: str) -> Text:
    """Return a progress bar such as ``━━━━──── 1,234 of 5,000 records…``, as one terminal line."""
    from rich.text import Text

    n_full = round(_BAR_CELLS * min(1.0, done / total)) if total else 0
    text = Text("━" * n_full, style="cyan").append("─" * (_BAR_CELLS - n_full), style="dim").append(f" {rest}")
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def outlook(done: int, total: int, per_s: float) -> str:
    """Return ``1,234 of 5,000 records, 120/s, 31s left``."""
    text = f"{done:,} of {total:,} records"
    return text + (f", {rate(per_s)}/s, {duration((total - done) / per_s)} left" if per_s >= 1 and done < total else "")


class Steps(NamedTuple):
    """Progress in Spark tasks, for work with an unknown number of records."""

    n_records: int
    n_done: int
    n_all: int


class Working:
    """The current progress display. It shows nothing without a terminal."""

    def __init__(self) -> None:
        self._text, self._since = "", time.monotonic()
        self._done: Callable[[], int] | None = None
        self._total = 0
        self._steps: Callable[[], Steps] | None = None

    def show(
        self,
        text: str,
        *,
        done: Callable[[], int] | None = None,
        total: int = 0,
        steps: Callable[[], Steps] | None = None,
    ) -> None:
        """Show this activity from now on.

        Args:
            done, total: the number of records done, and the total.
            steps: the progress in tasks, if the total is unknown.
        """
        self._text, self._since, self._done, self._total, self._steps = text, time.monotonic(), done, total, steps

    def drawn(self) -> Text:
        """Return the current line."""
        from rich.text import Text

        seconds = time.monotonic() - self._since
        if self._steps is not None:
            n_records, n_done, n_all = self._steps()
            # A narrow terminal cuts the end of the line, but the bar also shows the tasks.
            spent = f"{n_records:,} records, {duration(seconds)}, {n_done} of {n_all} tasks"
            return bar(n_done, n_all, f"{self._text}: {spent}" if n_all else f"{self._text} … {duration(seconds)}")
        if self._done is None or not self._total:
            so_far = "" if self._done is None else f"{self._done():,} records, "
            return Text(
                f"{self._text} … {so_far}{duration(seconds)}" if self._text else "", no_wrap=True, overflow="ellipsis"
            )
        n_done = min(self._done(), self._total)
        return bar(
            n_done, self._total, f"{self._text}: {outlook(n_done, self._total, n_done / seconds if seconds else 0.0)}"
        )


@contextmanager
def working(text: str, *, with_spark: bool = False) -> Iterator[Working]:
    """Show a progress display inside the ``with`` block, on a terminal.

    Args:
        with_spark: whether Spark starts inside. If so, the output of Spark's processes does not reach the terminal; without a
            terminal, only lines without information are dropped.
    """
    shown = Working()
    shown.show(text)
    with ExitStack() as running:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            output = running.enter_context(_named_if_kept()) if with_spark else None
            terminal = sys.stderr if output is None else running.enter_context(os.fdopen(os.dup(output.terminal), "w"))
            to = Console(file=terminal, highlight=False)
            running.enter_context(
                Live(console=to, get_renderable=shown.drawn, refresh_per_second=4, transient=True, redirect_stdout=True,
                     redirect_stderr=output is None)
            )  # fmt: skip
        elif with_spark:
            running.enter_context(WithoutChatter())
        yield shown


@contextmanager
def _named_if_kept() -> Iterator[SparkOutput]:
    """Yield a file for Spark's output. If the file explains an error, its path is printed on the terminal."""
    command = click.get_current_context(silent=True)
    output = SparkOutput(command.info_name if command is not None and command.info_name else "pykafka-wire")
    try:
        with output:
            yield output
    finally:
        if output.is_kept:
            click.echo(f"Output of Spark: {output.path}", err=True)
