"""What a command that takes long shows meanwhile: what it does, for how many seconds, and how far it is.

On standard error and only where that is a terminal, so that what a command prints can be piped. Nothing of it stays.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykafka_wire.cli.lag_samples import duration, rate

if TYPE_CHECKING:
    from rich.text import Text

_BAR_CELLS: Final = 24


def bar(done: int, total: int, rest: str) -> Text:
    """``━━━━──── 1,234 of 5,000 records…``, as one line of a terminal."""
    from rich.text import Text

    n_full = round(_BAR_CELLS * min(1.0, done / total)) if total else 0
    text = Text("━" * n_full, style="cyan").append("─" * (_BAR_CELLS - n_full), style="dim").append(f" {rest}")
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def outlook(done: int, total: int, per_s: float) -> str:
    """``1,234 of 5,000 records, 120/s, 31s left``."""
    text = f"{done:,} of {total:,} records"
    return text + (f", {rate(per_s)}/s, {duration((total - done) / per_s)} left" if per_s >= 1 and done < total else "")


class SparkOutput:
    """A context in which standard error is a file: Spark's processes have it from this one, and print much that is no error."""

    def __init__(self) -> None:
        number, name = tempfile.mkstemp(prefix="pykafka-wire-spark-", suffix=".log")
        self.path = Path(name)
        self.is_kept = False
        self._file = number
        #: The terminal, for those who still print there.
        self.terminal = os.dup(2)

    def __enter__(self) -> SparkOutput:
        sys.stderr.flush()
        os.dup2(self._file, 2)
        os.close(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self.terminal, 2)
        os.close(self.terminal)
        if not self.is_kept:
            self.path.unlink(missing_ok=True)


class Working:
    """What is shown now; without a terminal it shows nothing."""

    def __init__(self) -> None:
        self._text, self._since = "", time.monotonic()
        self._done: Callable[[], int] | None = None
        self._total = 0

    def show(self, text: str, *, done: Callable[[], int] | None = None, total: int = 0) -> None:
        """From now on.

        Args:
            done, total: how many records of how many.
        """
        self._text, self._since, self._done, self._total = text, time.monotonic(), done, total

    def drawn(self) -> Text:
        """The line of this moment."""
        from rich.text import Text

        seconds = time.monotonic() - self._since
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
    """Show what is done within, on a terminal.

    Args:
        with_spark: Spark is started within: what its processes print does not reach the terminal.
    """
    shown = Working()
    shown.show(text)
    with ExitStack() as running:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            output = running.enter_context(SparkOutput()) if with_spark else None
            terminal = sys.stderr if output is None else running.enter_context(os.fdopen(os.dup(output.terminal), "w"))
            to = Console(file=terminal, highlight=False)
            running.enter_context(
                Live(console=to, get_renderable=shown.drawn, refresh_per_second=4, transient=True, redirect_stdout=True,
                     redirect_stderr=False)
            )  # fmt: skip
        yield shown
