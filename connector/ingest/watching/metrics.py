"""The status of an ingest's tables, in the form of :mod:`pykafka_wire.metrics.definitions`."""

from __future__ import annotations

from collections.abc import Iterable

from pykafka_wire.ingest_status import TableState, TableStatus
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


def values(metric: str, query: str, statuses: Iterable[TableStatus]) -> dict[tuple[str, ...], float]:
    """Return one metric of every table, by its labels; empty for a metric that does not belong to tables."""
    values_by_labels: dict[tuple[str, ...], float] = {}
    for status in statuses:
        value = {
            TABLE_ROWS: status.rows,
            TABLE_REJECTS: status.rejects,
            TABLE_COMMITS: status.commits,
            TABLE_LAG: status.lag,
            TABLE_SCHEMA: status.schema_id if isinstance(status.schema_id, int) else None,  # a UUID is not a number
            TABLE_STOPPED: int(status.state is TableState.STOPPED),
            TABLE_RETRYING: int(status.state is TableState.RETRYING),
            TABLE_HELD_REJECTS: status.held_rejects,
            TABLE_NEWEST: None if status.newest_ms is None else status.newest_ms / 1000,
        }.get(metric)
        if value is not None:
            labels = (query, status.topic, status.name)
            code = status.trouble.code if value and status.trouble is not None else ""
            values_by_labels[(*labels, code) if metric in (TABLE_STOPPED, TABLE_RETRYING) else labels] = float(value)
    return values_by_labels
