"""The JSON documents of ``/api``: `docs/page.md`. Existing names keep their meaning; new names may be added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykafka_wire.ingest_status import TableStatus
from pykafka_wire.page.sampling import STEP_S, Samples, recent, short
from pykafka_wire.page.snapshots import IngestSnapshot, PageSource, TableHistory, as_json

#: Increased when a name is removed or changes its meaning.
API_VERSION: Final = 1
#: The fields of a snapshot that a document shows unchanged.
_SHOWN: Final = (
    "name", "state", "started_at", "error", "topics", "into", "checkpoint", "registry", "brokers", "versions", "settings",
    "processes",
)  # fmt: skip

Document = dict[str, Any]  # JSON values


def ingest_document(snapshot: IngestSnapshot, samples: Samples) -> Document:
    """Return ``/api/ingest``: the whole ingest."""
    status = snapshot.status
    records, written, read = (samples.rates(kind, "") for kind in ("records", "bytes", "bytes read"))
    running = status.running
    document: Document = {"api": API_VERSION, "at": status.moment.at, "activity": status.activity.value}
    document |= {name: as_json(getattr(snapshot, name)) for name in _SHOWN}
    document["micro_batches"] = [as_json(batch) for batch in status.micro_batches]
    document["running"] = running and {
        "number": running.number,
        "started_at": status.moment.epoch(running.begun_at),
        "planned": running.n_planned,
        "done": running.n_done,
    }
    document["brokers_silent_s"] = status.brokers_silent_s
    document["totals"] = {
        **{name: short(value) if isinstance(value, float) else value for name, value in status.totals().items()},
        "bytes_per_second": _short(recent(written)),
        "kafka_bytes_per_second": _short(recent(read)),
    }
    document["plots"] = {
        "step_s": STEP_S,
        "records_per_second": records,
        "bytes_per_second": written,
        "kafka_bytes_per_second": read,
        "cpu": {name: samples.values("cpu", name) for name in snapshot.processes},
        "memory_bytes": {name: samples.values("memory", name) for name in snapshot.processes},
    }
    return document


def tables_document(snapshot: IngestSnapshot, samples: Samples) -> Document:
    """Return ``/api/tables``: every table, tables in trouble first."""
    return {
        "api": API_VERSION,
        "at": snapshot.status.moment.at,
        "step_s": STEP_S,
        "tables": [_table(snapshot, table, samples) for table in snapshot.tables],
    }


def table_document(snapshot: IngestSnapshot, topic: str, source: PageSource, samples: Samples) -> Document | None:
    """Return ``/api/table?topic=…``: the current state of one table; None if the ingest has no such topic."""
    table = next((table for table in snapshot.tables if table.key == topic), None)
    if table is None:
        return None
    return {
        "api": API_VERSION,
        "at": snapshot.status.moment.at,
        "step_s": STEP_S,
        **_table(snapshot, table, samples),
        "lags": samples.values("lag", topic),
        "queries": dict(source.queries(topic)),
        "partitions": [as_json(partition) for partition in table.partitions],
    }


def history_document(topic: str, history: TableHistory) -> Document:
    """Return ``/api/table/history?topic=…``: the contents of one table's log."""
    return {"api": API_VERSION, "topic": topic, **as_json(history)}


def _table(snapshot: IngestSnapshot, table: TableStatus, samples: Samples) -> Document:
    size = snapshot.sizes.get(table.key)
    return table.document() | {
        "rows_per_second": short(table.rows_per_second),
        "catch_up_s": _short(table.catch_up_s),
        "rates": samples.rates("records", table.key),
        "files": None if size is None else size.files,
        "bytes": None if size is None else size.bytes,
    }


def _short(value: float | None) -> float | None:
    return None if value is None else short(value)


def error_document(text: str) -> Mapping[str, Any]:
    """Return the document of an error."""
    return {"api": API_VERSION, "error": text}
