"""Figures of an ingest's tables while it runs: for the terminal, and as the metrics of :mod:`pykafka_wire.metrics.definitions`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from pykafka_wire.ingest.landing.micro_batch import MicroBatch
from pykafka_wire.ingest.landing.table_status import Stage, TableStatus
from pykafka_wire.metrics.definitions import (
    TABLE_COMMITS,
    TABLE_HELD_REJECTS,
    TABLE_LAG,
    TABLE_NEWEST,
    TABLE_REJECTS,
    TABLE_RETRYING,
    TABLE_ROWS,
    TABLE_SCHEMA,
    TABLE_STOPPED,
)

#: Over so many seconds a rate is taken.
_RATE_S: Final = 30.0
#: Topic, partition, offset: the ends of logs.
LogEnds = Mapping[str, Mapping[int, int]]


class Rates:
    """Rows a second of each topic, over the last half minute."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def of(self, status: TableStatus) -> float:
        now = time.monotonic()
        seen = self._seen.setdefault(status.key, [])
        seen.append((now, status.rows))
        while len(seen) > 2 and seen[0][0] < now - _RATE_S:
            seen.pop(0)
        elapsed = seen[-1][0] - seen[0][0]
        return (seen[-1][1] - seen[0][1]) / elapsed if elapsed > 0 else 0.0


def log_ends(progress: Any) -> LogEnds:  # Any: a StreamingQueryProgress, or its JSON; None before the first one
    """Return the ends of all logs, as a query's progress has them; none after one that Spark repeats without planning it."""
    sources = progress["sources"] if progress else []
    ends = json.loads(sources[0]["latestOffset"] or "null") if sources else None
    if ends is None:  # Spark writes the text null, too
        return {}
    return {topic: {int(p): int(o) for p, o in offsets.items()} for topic, offsets in ends.get("offsets", {}).items()}


def lag_of(status: TableStatus, ends: LogEnds) -> int | None:
    """Return records that the topic has beyond the table's position; None while either is unknown."""
    if status.position is None or status.topic not in ends:
        return None
    return sum(max(0, end - status.position.get(p, 0)) for p, end in ends[status.topic].items())


def lag_in(batch: MicroBatch | None, status: TableStatus, ends: LogEnds) -> int | None:
    """Return :func:`lag_of` while a micro-batch is landed, which knows newer ends than the progress of the one before."""
    lag = lag_of(status, ends)
    if batch is None or status.key not in batch.parts:
        return lag
    return max(lag or 0, batch.n_planned(status.key) - batch.n_landed(status.key, status.position))


def values(metric: str, query: str, statuses: Mapping[str, TableStatus], ends: LogEnds) -> dict[tuple[str, ...], float]:
    """Return one metric of every table, by its labels; nothing for a metric that is no table's."""
    values_by_labels: dict[tuple[str, ...], float] = {}
    for status in statuses.values():
        value = {
            TABLE_ROWS: status.rows,
            TABLE_REJECTS: status.rejects,
            TABLE_COMMITS: status.commits,
            TABLE_LAG: lag_of(status, ends),
            TABLE_SCHEMA: status.schema_id if isinstance(status.schema_id, int) else None,  # a UUID is no number
            TABLE_STOPPED: int(status.state.stage is Stage.STOPPED),
            TABLE_RETRYING: int(status.state.stage is Stage.RETRYING),
            TABLE_HELD_REJECTS: status.held_rejects,
            TABLE_NEWEST: None if status.newest_ms is None else status.newest_ms / 1000,
        }.get(metric)
        if value is not None:
            labels = (query, status.topic, status.name)
            code = status.state.code if value else ""
            values_by_labels[(*labels, code) if metric in (TABLE_STOPPED, TABLE_RETRYING) else labels] = float(value)
    return values_by_labels
