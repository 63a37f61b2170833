"""The state of an ingest's tables for a person: a table on the terminal that is drawn anew each second."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from pykafka_wire.ingest.figures import LogEnds, Rates, lag_of
from pykafka_wire.ingest.landing import TableStatus


def drawn(statuses: Mapping[str, TableStatus], ends: LogEnds, rates: Rates) -> Table:
    """A row for each topic. Figures are never cut; names give way to them."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("topic", overflow="ellipsis", no_wrap=True, ratio=3)
    table.add_column("table", overflow="ellipsis", no_wrap=True, ratio=2)
    for name in ("rows", "rows/s", "lag", "rejects", "schema"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    table.add_column("error", overflow="fold", ratio=3)
    for topic in sorted(statuses):
        status = statuses[topic]
        lag = lag_of(status, ends)
        table.add_row(
            topic,
            status.name,
            str(status.rows),
            f"{rates.of(status):.0f}",
            "-" if lag is None else str(lag),
            Text(str(status.rejects), style="yellow" if status.rejects else ""),
            "-" if status.schema_id is None else str(status.schema_id),
            Text(status.error or "", style="red"),
        )
    return table
