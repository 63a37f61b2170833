"""What a command that takes long shows meanwhile: what it does, for how many seconds, and how far it is.

On standard error and only where that is a terminal, so that what a command prints can be piped. Nothing of it stays.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pykafka_wire.cli.lag_samples import duration, rate

if TYPE_CHECKING:
    from rich.text import Text

_BAR_CELLS: Final = 24
#: How lines begin that Java prints at each start.
_CHATTER: Final = (b"WARNING: Using incubator modules", b"WARNING: A restricted method", b"WARNING: sun.misc.Unsafe")
#: The file in the traceback of a worker that ends.
_WORKER: Final = b"pyspark/daemon.py"
_END: Final = b"\0\n"
_LAST_LINES_S: Final = 2.0


def bar(done: int, total: int, rest: str) -> Text:
    """Return ``━━━━──── 1,234 of 5,000 records…``, as one line of a terminal."""
    from rich.text import Text

    n_full = round(_BAR_CELLS * min(1.0, done / total)) if total else 0
    text = Text("━" * n_full, style="cyan").append("─" * (_BAR_CELLS - n_full), style="dim").append(f" {rest}")
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def outlook(done: int, total: int, per_s: float) -> str:
    """Return ``1,234 of 5,000 records, 120/s, 31s left``."""
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


class WithoutChatter:
    """A context in which standard error has no lines that are no news: Java's about its own modules, and the tracebacks by which
    Spark's Python workers end when nobody reads their results any more. All other lines pass."""

    def __init__(self) -> None:
        self._passed = threading.Event()
        self._error = os.dup(2)
        self._received, self._sent = os.pipe()

    def __enter__(self) -> WithoutChatter:
        sys.stderr.flush()
        os.dup2(self._sent, 2)
        threading.Thread(target=self._pass, daemon=True, name="pykafka-wire-stderr").start()
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.write(self._sent, _END)
        os.close(self._sent)
        os.dup2(self._error, 2)
        if self._passed.wait(_LAST_LINES_S):
            os.close(self._error)

    def _pass(self) -> None:
        traceback: list[bytes] = []
        # Spark's processes hold the other end for as long as they live.
        with open(self._received, "rb") as lines:
            for line in lines:
                if line == _END:
                    os.write(self._error, b"".join(traceback))
                    self._passed.set()
                    return
                if traceback or line.startswith(b"Traceback "):
                    traceback.append(line)
                    is_last = len(traceback) > 1 and not line.startswith(b" ")
                    if is_last and not any(_WORKER in line for line in traceback):
                        os.write(self._error, b"".join(traceback))
                    traceback = [] if is_last else traceback
                elif not line.startswith(_CHATTER):
                    os.write(self._error, line)


class Steps(NamedTuple):
    """How far something is whose records nobody has counted before: Spark's tasks."""

    n_records: int
    n_done: int
    n_all: int


class Working:
    """What is shown now; without a terminal it shows nothing."""

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
        """Show this from now on.

        Args:
            done, total: how many records of how many.
            steps: in place of both, where the total is unknown.
        """
        self._text, self._since, self._done, self._total, self._steps = text, time.monotonic(), done, total, steps

    def drawn(self) -> Text:
        """Return the line of this moment."""
        from rich.text import Text

        seconds = time.monotonic() - self._since
        if self._steps is not None:
            n_records, n_done, n_all = self._steps()
            # A narrow terminal cuts the end: the bar shows the tasks, too.
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
    """Show what is done within, on a terminal.

    Args:
        with_spark: Spark is started within: what its processes print does not reach the terminal, and elsewhere nothing that is
            no news.
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
        elif with_spark:
            running.enter_context(WithoutChatter())
        yield shown
