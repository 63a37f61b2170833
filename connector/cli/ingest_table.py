"""What ``ingest`` shows while it runs: a row for each topic, below what Spark's processes print."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pykafka_wire.cli.output import console, printable

if TYPE_CHECKING:  # loads Spark, which no other command needs
    from pykafka_wire.ingest.figures import LogEnds, Rates
    from pykafka_wire.ingest.landing import TableStatus

_FIGURES: Final = ("rows", "rows/s", "lag", "rejects")


class IngestTable:
    """A context in which the table stands on standard output: renewed in place on a terminal, else printed once, at the end."""

    def __init__(self, begin: str) -> None:
        """``begin`` stands there until the first :meth:`show`."""
        from pykafka_wire.ingest.figures import Rates

        self._rates = Rates()
        self._console = console()
        self._live = Live(Text(begin), console=self._console, auto_refresh=False)
        self._open = ExitStack()

    def __enter__(self) -> IngestTable:
        if self._console.is_terminal and os.isatty(2):
            self._print_above()
        self._open.enter_context(self._live)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        if not self._console.is_terminal:
            self._console.line()

    def show(self, statuses: Iterable[TableStatus], ends: LogEnds) -> None:
        self._live.update(_drawn(statuses, ends, self._rates), refresh=self._console.is_terminal)

    def _print_above(self) -> None:
        """What Spark's processes write to standard error is printed above the table, and not into it."""
        terminal, (received, sent) = os.dup(2), os.pipe()
        os.dup2(sent, 2)
        os.close(sent)
        self._open.callback(os.close, terminal)
        self._open.callback(os.dup2, terminal, 2)

        def forward() -> None:
            with open(received, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    self._console.print(line.rstrip(), markup=False, highlight=False)

        threading.Thread(
            target=forward, daemon=True
        ).start()  # daemon: Spark holds the other end for as long as it lives


def _drawn(statuses: Iterable[TableStatus], ends: LogEnds, rates: Rates) -> RenderableType:
    """A row for each topic. Figures are never cut; names give way to them. Errors stand below, each with its whole text."""
    from pykafka_wire.ingest.figures import lag_of

    table = Table(box=None, padding=(0, 2, 0, 0), caption_justify="left", caption_style="red")
    table.add_column("topic", overflow="fold", ratio=3)
    table.add_column("table", overflow="fold", ratio=3)
    for name in _FIGURES:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(
        "schema", justify="right", overflow="fold", ratio=1, min_width=6
    )  # a UUID is wider than a terminal has room
    errors = []
    for status in sorted(statuses, key=lambda each: each.topic):
        lag = lag_of(status, ends)
        table.add_row(
            Text(status.topic, style="red" if status.error else ""),
            status.name,
            str(status.rows),
            f"{rates.of(status):.0f}",
            "-" if lag is None else str(lag),
            Text(str(status.rejects), style="yellow" if status.rejects else ""),
            "-" if status.schema_id is None else str(status.schema_id),
        )
        if status.error:
            errors.append(f"{status.name}: {printable(status.error)}")
    table.caption = Text("\n".join(errors)) if errors else None
    return table
