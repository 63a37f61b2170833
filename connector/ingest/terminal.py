"""The state of an ingest's tables for a person: a table on the terminal that is drawn anew each second."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from pykafka_wire.ingest.landing import TableStatus

#: Over so many seconds a rate is taken.
_RATE_S: Final = 30.0


class Rates:
    """Rows a second of each topic, over the last half minute."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def of(self, status: TableStatus) -> float:
        now = time.monotonic()
        seen = self._seen.setdefault(status.topic, [])
        seen.append((now, status.rows))
        while len(seen) > 2 and seen[0][0] < now - _RATE_S:
            seen.pop(0)
        elapsed = seen[-1][0] - seen[0][0]
        return (seen[-1][1] - seen[0][1]) / elapsed if elapsed > 0 else 0.0


def latest_offsets(progress: Any) -> dict[str, dict[int, int]]:
    """The ends of all logs in a query's progress, ``{topic: {partition: offset}}``."""
    found = json.loads(progress["sources"][0]["latestOffset"] or "{}") if progress else {}
    return {topic: {int(p): int(o) for p, o in each.items()} for topic, each in found.get("offsets", {}).items()}


def lag_of(status: TableStatus, latest: Mapping[str, Mapping[int, int]]) -> int | None:
    """Records that the topic has beyond the table's position; None while either is unknown."""
    if status.position is None or status.topic not in latest:
        return None
    return sum(max(0, end - status.position.get(p, 0)) for p, end in latest[status.topic].items())


def drawn(statuses: Mapping[str, TableStatus], latest: Mapping[str, Mapping[int, int]], rates: Rates) -> Table:
    """A row for each topic. Figures are never cut; names give way to them."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("topic", overflow="ellipsis", no_wrap=True, ratio=3)
    table.add_column("table", overflow="ellipsis", no_wrap=True, ratio=2)
    for name in ("rows", "rows/s", "lag", "rejects", "schema"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    table.add_column("error", overflow="fold", ratio=3)
    for topic in sorted(statuses):
        status = statuses[topic]
        lag = lag_of(status, latest)
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
