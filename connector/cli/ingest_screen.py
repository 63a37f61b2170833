"""What ``ingest`` shows while it runs: on a terminal a screen that is renewed in place, else a line for each thing that happens.

A terminal shows nothing of what Spark's and Java's processes print: that goes to a file, which a failed run names. Log lines of
this package stand above the screen.
"""

from __future__ import annotations

import logging
import os
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pykafka_wire.cli.lag_samples import duration, rate
from pykafka_wire.cli.output import console, counted, printable
from pykafka_wire.cli.working import SparkOutput, WithoutChatter, bar, outlook
from pykafka_wire.errors import ConnectorError
from pykafka_wire.wire.errors import WireError

if TYPE_CHECKING:  # loads Spark, which no other command needs
    from pykafka_wire.ingest.watch import IngestWatch, Watched, WatchedTable

#: From so many columns on there is room for topics and schemas.
_WIDE: Final = 120
#: Lines of the screen that are no tables: title, bar, blank, head, what there is no room for, and the cursor's.
_OTHER_LINES: Final = 7
_LOOK_EVERY_S: Final = 1.0
#: What is wrong comes first, then what lags most.
_ORDER: Final = (
    "stopped",
    "retrying",
    "landing",
    "committing",
    "queued",
    "behind",
    "waiting",
    "landed",
    "up to date",
)
_STYLES: Final = {
    "stopped": "red",
    "retrying": "yellow",
    "landing": "cyan",
    "committing": "cyan",
    "behind": "yellow",
    "up to date": "green",
}
_MIN_NAME: Final = 12
_REASON_LINES: Final = 3
#: Of a schema's UUID so much is shown; numbers are shorter.
_SCHEMA: Final = 8
#: Columns from which on the output is no terminal's.
_UNLIMITED: Final = 300


class IngestScreen:
    """A context in which the screen stands on standard output, and log lines of this package above it."""

    def __init__(self, title: str, *, is_quiet: bool) -> None:
        """Show nothing where ``is_quiet``: the command prints JSON."""
        self._title = title
        self._console = console()
        self.is_live = self._console.is_terminal and not is_quiet
        self._is_quiet = is_quiet
        self._phase, self._phase_since = "", time.monotonic()
        self._watch: IngestWatch | None = None
        self._seen: Watched | None = None
        self._stopped: dict[str, str] = {}
        self._ended = threading.Event()
        self._open = ExitStack()
        #: What Spark's processes have printed.
        self.spark: SparkOutput | None = None

    def __enter__(self) -> IngestScreen:
        if not (self.is_live and os.isatty(2)):
            self._open.enter_context(WithoutChatter())
        if self.is_live:
            if os.isatty(2):
                self._keep_out()
            self._open.enter_context(
                Live(console=self._console, get_renderable=self._drawn, refresh_per_second=4, transient=True)
            )
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ended.set()
        is_riddle = isinstance(error, Exception) and not isinstance(
            error, ConnectorError | WireError | click.ClickException
        )
        said = self.keep_output() if is_riddle else ""
        self._open.close()
        if error is not None:
            self.summary()
            if said:
                click.echo(said.strip(), err=True)

    def phase(self, text: str) -> None:
        """Show what is done from now on, until the next call; a terminal shows for how many seconds."""
        self._phase, self._phase_since = text, time.monotonic()
        if not self.is_live:
            self.line(text)

    def line(self, text: str) -> None:
        """Print a line of what happened, with the time where nothing else tells it."""
        if self.is_live:
            self._console.print(Text(printable(text)))
        elif not self._is_quiet:
            click.echo(f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ} {printable(text)}")

    def watch(self, watch: IngestWatch) -> None:
        """Look at the ingest each second from now on, in a thread: starting it may take long."""
        self._watch = watch
        if self.is_live:
            threading.Thread(target=self._look_again, daemon=True, name="pykafka-wire-screen").start()

    def look(self) -> Watched | None:
        """Return the ingest now; a table that was stopped since the last look is a line where there is no screen."""
        if self._watch is None:
            return None
        seen = self._seen = self._watch.look()
        for table in seen.tables:
            if table.reason and self._stopped.get(table.name) != table.reason and not self.is_live:
                self.line(f"{table.name} {table.state}: {table.reason}")
            self._stopped[table.name] = table.reason
        return seen

    def summary(self) -> None:
        """Print the table as it was at the end."""
        if self._seen is not None and not self._is_quiet:
            self._console.print(tables_drawn(self._seen, self._console, is_summary=True))

    def keep_output(self) -> str:
        """Return a sentence that says where what Spark's processes have printed is, which stays there; empty if it was
        printed here."""
        if self.spark is None:
            return ""
        self.spark.is_kept = True
        return f" What Spark has printed is in {self.spark.path}."

    def _look_again(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                self.look()
            except Exception:  # Spark ends, or the query is being started
                logging.getLogger(__name__).debug("The screen was not renewed", exc_info=True)

    def _keep_out(self) -> None:
        self.spark = self._open.enter_context(SparkOutput())
        handler = _Above(self._console)
        logger = logging.getLogger("pykafka_wire")
        logger.addHandler(handler)
        self._open.callback(logger.removeHandler, handler)

    def _drawn(self) -> RenderableType:
        seen = self._seen
        lines: list[RenderableType] = [Text(self._headline(seen), style="bold", no_wrap=True, overflow="ellipsis")]
        if seen is not None:
            if seen.number is not None:
                lines.append(_bar(seen))
            lines += ["", tables_drawn(seen, self._console)]
        return Group(*lines)

    def _headline(self, seen: Watched | None) -> str:
        phase = f"{self._phase} … {duration(time.monotonic() - self._phase_since)}"
        if seen is None or self._phase:
            return f"{self._title}  {phase}"
        states = Counter(table.state for table in seen.tables)
        trouble = "".join(f", {states[state]} {state}" for state in ("stopped", "retrying") if states[state])
        doing = "planning a micro-batch" if seen.is_planning else "waiting for new records"
        if seen.number is not None:
            doing = f"micro-batch {seen.number}, for {_elapsed(seen)}"
        return f"{self._title}  {counted(len(seen.tables), 'table')}{trouble}; {doing}"

    def running(self) -> None:
        """Show what the query does, which runs from now on."""
        self._phase = ""


class _Above(logging.Handler):
    """Prints warnings of this package above the screen; the error of a table stands in it."""

    def __init__(self, to: Console) -> None:
        super().__init__(logging.WARNING)
        self._to = to

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR:
            self._to.print(Text(printable(record.getMessage()), style="yellow"))


def _elapsed(seen: Watched) -> str:
    return duration(time.monotonic() - seen.begun_at)


def _bar(seen: Watched) -> Text:
    is_read = 0 < seen.n_planned <= seen.n_done
    return bar(
        seen.n_done,
        seen.n_planned,
        outlook(seen.n_done, seen.n_planned, seen.per_s) + (", committing" if is_read else ""),
    )


def tables_drawn(seen: Watched, to: Console, *, is_summary: bool = False) -> RenderableType:
    """Return a row for each table, trouble first, as many as there is room for; below one that is stopped its reason.

    Figures are never cut; names give way to them.
    """
    is_wide = to.width >= _WIDE
    heads = ["state", "fresh", "lag", "rows/s", "rows", "rejects", *(["schema"] if is_wide else [])]
    ordered = sorted(seen.tables, key=lambda table: (_ORDER.index(table.state), -(table.lag or 0), table.name))
    rows = [_cells(table, is_wide=is_wide, is_summary=is_summary) for table in ordered]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    names = ["table", "topic"] if is_wide else ["table"]
    room = to.width - sum(widths) - 2 * len(widths) - 2 * (len(names) - 1)
    longest = max((len(name) for table in ordered for name in (table.name, table.topic)), default=0)
    name_width = max(_MIN_NAME, min(longest, room // len(names)))
    head = "  ".join([*(name.ljust(name_width) for name in names), *_align(heads, widths)])
    lines = [Text(head, style="bold", no_wrap=True)]
    n_lines = max(3, to.height - _OTHER_LINES) if to.is_terminal and not is_summary else None
    for n_shown, (table, cells) in enumerate(zip(ordered, rows, strict=True)):
        reasons = _reason_lines(table, to.width, is_whole=n_lines is None)
        if n_lines is not None and len(lines) + len(reasons) > n_lines:
            rest = ordered[n_shown:]
            n_well = sum(table.state == "up to date" for table in rest)
            lines.append(
                Text(f"… {len(rest)} more" + (f", {n_well} of them up to date" if n_well else ""), style="dim")
            )
            break
        shown = (table.name, table.topic)[: len(names)]
        line = Text(no_wrap=True)
        for name in shown:
            line.append(_fit(printable(name), name_width) + "  ")
        state, *figures = _align(cells, widths)
        line.append(state, style=_STYLES.get(table.state, "")).append("  " + "  ".join(figures))
        lines += [line, *reasons]
    return Group(*lines)


def _cells(table: WatchedTable, *, is_wide: bool, is_summary: bool) -> list[str]:
    state = f"landing {table.share:.0%}" if table.state == "landing" and table.share is not None else table.state
    per_s = table.rows / table.status.seconds if is_summary and table.status.seconds else table.per_s
    figures = [
        "-" if table.fresh_s is None else duration(table.fresh_s),
        "-" if table.lag is None else f"{table.lag:,}",
    ]
    # A table that nothing is known of yet has no zeros.
    is_new = table.state in ("waiting", "queued") and not table.rows
    figures += ["-" if is_new else rate(per_s), "-" if is_new else f"{table.rows:,}", f"{table.rejects:,}"]
    if is_wide:
        figures.append("-" if table.status.schema_id is None else str(table.status.schema_id)[:_SCHEMA])
    return [state, *figures]


def _align(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return the state at the left, figures at the right."""
    first, *others = zip(cells, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]


def _fit(name: str, width: int) -> str:
    return name.ljust(width) if len(name) <= width else f"{name[: width - 1]}…"


def _reason_lines(table: WatchedTable, width: int, *, is_whole: bool) -> list[Text]:
    """Return why a table is stopped, or tried again: three lines of it while there is a screen, all of it at the end."""
    if not table.reason:
        return []
    again = "" if table.again_s is None or is_whole else f"again in {duration(table.again_s)}: "
    text = printable(again + table.reason)
    lines = textwrap.wrap(text, max(20, width - 2)) if width < _UNLIMITED else [text]
    if not is_whole and len(lines) > _REASON_LINES:
        lines = [*lines[: _REASON_LINES - 1], f"{lines[_REASON_LINES - 1][: width - 3]}…"]
    return [Text(f"  {line}", style=_STYLES.get(table.state, "yellow")) for line in lines]
