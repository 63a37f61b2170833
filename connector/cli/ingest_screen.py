"""The output of a running ``ingest``: on a terminal a screen that is redrawn in place, otherwise a line for each event.

On a terminal, the output of Spark and Java and this package's log lines go to a file. The screen shows why a table is retrying or
stopped, and below the tables the newest other warning.
"""

from __future__ import annotations

import logging
import os
import re
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pykafka_wire.cli.lag_samples import duration, rate
from pykafka_wire.cli.output import console, counted, printable
from pykafka_wire.cli.spark_output import SparkOutput, WithoutChatter
from pykafka_wire.cli.working import bar, outlook
from pykafka_wire.ingest.settings.model import TABLE_STATE
from pykafka_wire.ingest_status import Activity, IngestStatus, RunningMicroBatch, TableState, TableStatus, ordered
from pykafka_wire.local.java import DOWNLOAD

#: The width from which on there is room for topics and schemas.
_WIDE: Final = 120
#: Lines of the screen that are not tables: title, bar, blank line, head, the count of tables that do not fit, and the cursor's
#: line.
_OTHER_LINES: Final = 7
#: The number of lines for the newest warning that is not already in a table's row, and of different warnings repeated at the end.
_NOTE_LINES: Final = 2
_NOTES: Final = 5
_KEPT_NOTES: Final = 100
_LOOK_EVERY_S: Final = 1.0
_STYLES: Final = {
    TableState.STOPPED: "red",
    TableState.RETRYING: "yellow",
    TableState.LANDING: "cyan",
    TableState.COMMITTING: "cyan",
    TableState.BEHIND: "yellow",
    TableState.UP_TO_DATE: "green",
}
_MIN_NAME: Final = 12
_REASON_LINES: Final = 3
#: The error code before a reason; omitted where only the beginning of a reason fits.
_CODE: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
#: At the end, up to this many reasons are printed in full; the log has the others.
_WHOLE_REASONS: Final = 3
#: The number of shown characters of a schema's UUID; numeric ids are shorter.
_SCHEMA: Final = 8
#: From this width on, the output is not a terminal.
_UNLIMITED: Final = 300


class IngestScreen:
    """A context that shows the screen on standard output."""

    def __init__(self, title: str, *, is_quiet: bool, log: Path | None = None) -> None:
        """Prepare the screen.

        Args:
            is_quiet: whether to show nothing, since the command prints JSON.
            log: the file for the output of Spark's processes and for warnings, also without a terminal.

        Raises:
            OSError: ``log`` cannot be written.
        """
        self._title = title
        self._console = console()
        self.is_live = self._console.is_terminal and not is_quiet
        self._is_quiet = is_quiet
        self._phase, self._phase_since = "", time.monotonic()
        self._status: Callable[[], IngestStatus] | None = None
        self._seen: IngestStatus | None = None
        self._troubles: dict[str, str] = {}
        self._are_brokers_silent = False
        self._ended = threading.Event()
        self._open = ExitStack()
        #: The file with the output of Spark's processes and this package's log.
        self.spark: SparkOutput | None = None
        if log is not None or (self.is_live and os.isatty(2)):
            self.spark = SparkOutput(f"ingest {title}", log)
        self._warnings: _Warnings | None = None

    def __enter__(self) -> IngestScreen:
        self._open.enter_context(WithoutChatter() if self.spark is None else self.spark)
        self._warnings = _Warnings(has_states=self._is_quiet or self.is_live or self.spark is not None)
        logger = logging.getLogger("pykafka_wire")
        logger.addHandler(self._warnings)
        self._open.callback(logger.removeHandler, self._warnings)
        if self.is_live:
            self._open.enter_context(
                Live(
                    console=self._console,
                    get_renderable=self._drawn,
                    refresh_per_second=4,
                    transient=True,
                    redirect_stderr=self.spark is None,
                )
            )
        if self.spark is not None:
            self.line(f"log: {self.spark.path}")
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ended.set()
        if self.spark is not None and self._warnings is not None:
            self.spark.is_kept |= self._warnings.n_written > 0
        self._open.__exit__(None if error is None else type(error), error, None)
        if error is not None:
            self.summary()

    def phase(self, text: str) -> None:
        """Show what the command is doing, until the next call. A terminal also shows how many seconds it has taken so far."""
        self._begin_phase(text)
        if not self.is_live:
            self.line(text)

    def line(self, text: str) -> None:
        """Print a line about an event, with the time unless there is a screen."""
        if self.is_live:
            self._console.print(Text(printable(text)))
        elif not self._is_quiet:
            click.echo(f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ} {printable(text)}")

    def watch(self, status: Callable[[], IngestStatus]) -> None:
        """Read the status each second from now on, in a thread, since starting the ingest may take long.

        Args:
            status: returns the ingest's current status.
        """
        self._status = status
        if self.is_live:
            threading.Thread(target=self._look_again, daemon=True, name="pykafka-wire-screen").start()

    def look(self) -> IngestStatus | None:
        """Return the ingest's current status."""
        if self._status is None:
            return None
        self._seen = self._status()
        return self._seen

    def tell_troubles(self) -> None:
        """Print a line for each table that has failed, or that has recovered, since the last call; and for the brokers."""
        seen = self.look()
        silent_s = None if seen is None else seen.brokers_silent_s
        if (silent_s is not None) != self._are_brokers_silent:
            self._are_brokers_silent = silent_s is not None
            silence = "" if silent_s is None else f"the brokers have not responded for {duration(silent_s)}"
            self.line(silence or "the brokers respond again")
        for table in () if seen is None else seen.tables:
            trouble, state = table.trouble, table.state.value
            text = "" if trouble is None else f"{state} {trouble.code}"
            if text != self._troubles.get(table.key, ""):
                is_well = f"{table.name} is landing again"
                self.line(is_well if trouble is None else f"{table.name} {state}: {trouble.reason}")
            self._troubles[table.key] = text

    def summary(self) -> None:
        """Print the tables at the end, those in trouble last; with a screen also the warnings and the path of the log."""
        if self._seen is not None and not self._is_quiet:
            self._console.print(tables_drawn(self._seen, self._console, is_summary=True))
        if self.spark is None or self._warnings is None:
            return
        for note in list(self._warnings.notes)[-_NOTES:]:
            self._console.print(Text(note, style="yellow"))
        if self.spark.is_kept:
            click.echo(f"Log, with all warnings and reasons: {self.spark.path}")

    def end(self, text: str) -> None:
        """Print the last sentence; on a terminal, wrap it between words."""
        if self._console.is_terminal:
            self._console.print(Text(text))
        else:
            click.echo(text)

    def keep_output(self) -> None:
        """Keep the file with the output of Spark's processes."""
        if self.spark is not None:
            self.spark.is_kept = True

    def _look_again(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                self.look()
            except Exception:  # Spark is stopping, or the query is starting
                logging.getLogger(__name__).debug("The screen was not renewed", exc_info=True)

    def _drawn(self) -> RenderableType:
        seen = self._seen
        lines: list[RenderableType] = [Text(self._headline(seen), style="bold", no_wrap=True, overflow="ellipsis")]
        notes = self._note_lines()
        if seen is not None and seen.tables:
            if seen.running is not None and seen.running.n_planned:
                lines.append(_bar(seen, seen.running))
            lines += ["", tables_drawn(seen, self._console, n_reserved=len(notes))]
        return Group(*lines, *notes)

    def _note_lines(self) -> list[Text]:
        """Return the running download, or the newest warning that is not already in a table's row."""
        notes = [] if self._warnings is None or self.spark is None else list(self._warnings.notes)
        if self._warnings is not None and self.spark is not None and (download := self._warnings.download):
            return [Text(line) for line in _wrapped(download, self._console.width, _NOTE_LINES)]
        if not notes:
            return []
        others = f" (and {len(notes) - 1} more in {self.spark.path})" if len(notes) > 1 and self.spark else ""
        return [Text(line, style="yellow") for line in _wrapped(notes[-1], self._console.width, _NOTE_LINES, others)]

    def _headline(self, seen: IngestStatus | None) -> str:
        if seen is None or self._phase:
            return f"{self._title}  {self._phase} … {duration(time.monotonic() - self._phase_since)}"
        return headline(self._title, seen)

    def running(self) -> None:
        """Show the activity of the query, which is running from now on."""
        self._begin_phase("")

    def _begin_phase(self, text: str) -> None:
        self._phase, self._phase_since = text, time.monotonic()
        if self._warnings is not None:
            self._warnings.download = None  # the phase that needed the download has ended


class _Warnings(logging.Handler):
    """Writes this package's warnings with their time to standard error, which is a file while a screen is shown.

    Attributes:
        notes: the newest warnings that are not already in a table's row, each text once, newest last.
        n_written: the number of lines written, without those about downloads.
        download: what the start is downloading; None if it downloads nothing.
    """

    def __init__(self, *, has_states: bool) -> None:
        """Omit warnings about states of tables unless ``has_states``: lines on standard output already report them."""
        super().__init__(logging.WARNING)
        formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)
        self._has_states = has_states
        self.notes: dict[str, None] = {}
        self.n_written = 0
        self.download: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        is_state, is_download = hasattr(record, TABLE_STATE), hasattr(record, DOWNLOAD)
        if is_download:
            self.download = printable(record.getMessage())
        elif not is_state:
            note = printable(record.getMessage())
            self.notes.pop(note, None)
            self.notes[note] = None
            if len(self.notes) > _KEPT_NOTES:
                del self.notes[next(iter(self.notes))]
        if self._has_states or not is_state:
            self.n_written += not is_download
            click.echo(self.format(record), err=True)


def headline(title: str, seen: IngestStatus) -> str:
    """Return a line with the ingest's activity, and the number of tables in trouble."""
    trouble = "".join(f", {n} {state.value}" for state, n in seen.states.items() if n and state.is_trouble)
    doing, running = seen.activity.value, seen.running
    if not seen.tables and seen.activity is Activity.WAITING:
        doing = "no topic matches the pattern of topics: waiting for one"
    elif seen.activity is Activity.LANDING and running is not None:
        doing = f"micro-batch {running.number}"
    if seen.brokers_silent_s is not None:
        doing = f"brokers have not responded for {duration(seen.brokers_silent_s)}"
    elif running is not None:
        doing += f", for {duration(seen.moment.now - running.begun_at)}"
    return f"{title}  {counted(len(seen.tables), 'table')}{trouble}; {doing}"


def _bar(seen: IngestStatus, running: RunningMicroBatch) -> Text:
    n_done, n_planned = running.n_done, running.n_planned
    is_read = 0 < n_planned <= n_done
    return bar(
        n_done, n_planned, outlook(n_done, n_planned, seen.rows_per_second) + (", committing" if is_read else "")
    )


def tables_drawn(seen: IngestStatus, to: Console, *, is_summary: bool = False, n_reserved: int = 0) -> RenderableType:
    """Return a row for each table that fits on the screen, with the reason below each table in trouble.

    Tables in trouble are at the top; in a summary, whose end stays visible, they are at the bottom. Figures are never cut: if
    there is little room, names and then reasons are shortened.

    Args:
        n_reserved: the number of screen lines used for other things.
    """
    is_wide = to.width >= _WIDE
    heads = ["state", "fresh", "lag", "rows/s", "rows", "rejects", *(["schema"] if is_wide else [])]
    tables = ordered(seen.tables)
    if is_summary:
        tables.reverse()
    rows = [_cells(table, is_wide=is_wide, is_summary=is_summary) for table in tables]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    names = ["table", "topic"] if is_wide else ["table"]
    room = to.width - sum(widths) - 2 * len(widths) - 2 * (len(names) - 1)
    longest = max((len(name) for table in tables for name in (table.name, table.topic)), default=0)
    name_width = max(_MIN_NAME, min(longest, room // len(names)))
    head = "  ".join([*(name.ljust(name_width) for name in names), *_align(heads, widths)])
    lines = [Text(head, style="bold", no_wrap=True)]
    n_lines = max(3, to.height - _OTHER_LINES - n_reserved) if to.is_terminal and not is_summary else None
    troubled = [table for table in tables if table.trouble is not None or table.lost_readers]
    n_of_reason = _lines_of_reasons(seen, troubled, to.width, n_lines)
    for n_shown, (table, cells) in enumerate(zip(tables, rows, strict=True)):
        reasons = _reason_lines(seen, table, to.width, n_of_reason, is_summary=is_summary)
        if n_lines is not None and len(lines) + len(reasons) > n_lines:
            lines.append(Text(_rest(tables[n_shown:]), style="dim", no_wrap=True, overflow="ellipsis"))
            break
        shown = (table.name, table.topic)[: len(names)]
        line = Text(no_wrap=True)
        for name in shown:
            line.append(_fit(printable(name), name_width) + "  ")
        state, *figures = _align(cells, widths)
        line.append(state, style=_STYLES.get(table.state, "")).append("  " + "  ".join(figures))
        lines += [line, *reasons]
    return Group(*lines)


def _rest(tables: Sequence[TableStatus]) -> str:
    """Return ``… 40 more: 3 stopped, 37 up to date``, tables in trouble first."""
    states = Counter(table.state for table in tables)
    return f"… {len(tables)} more: " + ", ".join(f"{states[s]} {s.value}" for s in TableState if states[s])


def _lines_of_reasons(
    seen: IngestStatus, troubled: Sequence[TableStatus], width: int, n_lines: int | None
) -> int | None:
    """Return the maximum number of lines for a reason, which falls with the number of tables in trouble; None for no limit."""
    if n_lines is None:
        return None if len(troubled) <= _WHOLE_REASONS or width >= _UNLIMITED else _REASON_LINES
    for n in range(_REASON_LINES, 1, -1):
        reasons = (_reason_lines(seen, table, width, n, is_summary=False) for table in troubled)
        # Each row takes one line, and so does the head.
        if sum(1 + len(lines) for lines in reasons) < n_lines:
            return n
    return 1


def _cells(table: TableStatus, *, is_wide: bool, is_summary: bool) -> list[str]:
    state = table.state.value
    if table.state is TableState.LANDING and table.share is not None:
        state = f"{state} {table.share:.0%}"
    per_s = table.rows / table.seconds if is_summary and table.seconds else table.rows_per_second
    figures = [
        "-" if table.freshness_s is None else duration(table.freshness_s),
        "-" if table.lag is None else f"{table.lag:,}",
    ]
    # If nothing is known about a table yet, show dashes and not zeros.
    is_new = table.position is None and not table.rows
    per_s_text = "-" if is_new and not per_s else rate(per_s)
    figures += [per_s_text, "-" if is_new else f"{table.rows:,}", f"{table.held_rejects:,}"]
    if is_wide:
        figures.append("-" if table.schema_id is None else str(table.schema_id)[:_SCHEMA])
    return [state, *figures]


def _align(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return the cells padded to their widths: the state to the left, figures to the right."""
    first, *others = zip(cells, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]


def _fit(name: str, width: int) -> str:
    return name.ljust(width) if len(name) <= width else f"{name[: width - 1]}…"


def _reason_lines(
    seen: IngestStatus, table: TableStatus, width: int, most: int | None, *, is_summary: bool
) -> list[Text]:
    """Return why a table is stopped or retrying, or which readers its next rows exclude, in at most ``most`` lines."""
    trouble = table.trouble
    if trouble is None:
        text = "" if is_summary or not table.lost_readers else f"with the next rows: {' '.join(table.lost_readers)}"
        return (
            [Text(f"  {line}", style="yellow") for line in _wrapped(printable(text), width - 2, most)] if text else []
        )
    again = "" if is_summary else f"again in {duration(trouble.seconds_left(seen.moment))}: "
    reason = _CODE.sub("", trouble.reason) if most == 1 else trouble.reason
    style = _STYLES.get(table.state, "yellow")
    return [Text(f"  {line}", style=style) for line in _wrapped(printable(again + reason), width - 2, most)]


def _wrapped(text: str, width: int, most: int | None, end: str = "") -> list[str]:
    """Return a text in at most ``most`` lines; ``end`` is appended to the last one."""
    if width >= _UNLIMITED - 2:
        return [text + end]
    width = max(20, width)
    lines = textwrap.wrap(text + end, width)
    if most is None or len(lines) <= most:
        return lines
    lines = textwrap.wrap(text, width)
    last = " ".join(lines[most - 1 :])[: max(0, width - len(end) - 1)]
    return [*lines[: most - 1], f"{last.rstrip()}…{end}"]
