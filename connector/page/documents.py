"""The documents of ``/api``: `docs/page.md`. Names and meanings are stable; new ones may be added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykafka_wire.page.sampling import STEP_S, Samples, recent, short
from pykafka_wire.page.snapshots import STATES, IngestSnapshot, PageSource, TableHistory, TableSnapshot, as_json

#: Raised when a name changes its meaning or goes.
API_VERSION: Final = 1
#: What of an ingest's snapshot another document has.
_ELSEWHERE: Final = ("tables", "bytes_written", "bytes_read")

Document = dict[str, Any]  # values of JSON


def ingest_document(snapshot: IngestSnapshot, samples: Samples) -> Document:
    """Return ``/api/ingest``: the whole."""
    document: Document = {"api": API_VERSION}
    document |= {name: value for name, value in as_json(snapshot).items() if name not in _ELSEWHERE}
    rows, rejects, written, read = (samples.rates(kind, "") for kind in ("rows", "rejects", "bytes", "bytes read"))
    ahead = _sum(rows, rejects)
    tables = snapshot.tables
    lags = [table.lag for table in tables if table.lag is not None]
    ages = [table.freshness_s for table in tables if table.freshness_s is not None]
    speed = recent(ahead)
    # Of the tables that are not stopped: the last one of them counts.
    moving = [table for table in tables if table.trouble is None and table.lag is not None]
    catch_ups = [_catch_up(table.lag or 0, recent(samples.rates("rows", table.topic))) for table in moving]
    document["totals"] = {
        "tables": len(tables),
        "states": {state: sum(table.state == state for table in tables) for state in STATES},
        "rows": sum(table.rows for table in tables),
        "rejects": sum(table.rejects for table in tables),
        "held_rejects": sum(table.held_rejects for table in tables),
        "tables_with_rejects": sum(table.held_rejects > 0 for table in tables),
        "commits": sum(table.commits for table in tables),
        "lag": sum(lags) if lags else None,
        "catch_up_s": max((catch_up for catch_up in catch_ups if catch_up is not None), default=None),
        "oldest_s": max(ages, default=None),
        "records_per_second": _short(speed),
        "bytes_per_second": _short(recent(written)),
        "kafka_bytes_per_second": _short(recent(read)),
    }
    document["plots"] = {
        "step_s": STEP_S,
        "records_per_second": ahead,
        "bytes_per_second": written,
        "kafka_bytes_per_second": read,
        "cpu": {name: samples.values("cpu", name) for name in snapshot.processes},
        "memory_bytes": {name: samples.values("memory", name) for name in snapshot.processes},
    }
    return document


def tables_document(snapshot: IngestSnapshot, samples: Samples) -> Document:
    """Return ``/api/tables``: every table, those in trouble first."""
    order = {state: number for number, state in enumerate(STATES)}
    tables = sorted(
        snapshot.tables, key=lambda table: (order[table.state], table.held_rejects == 0, -(table.lag or 0), table.topic)
    )
    return {
        "api": API_VERSION,
        "at": snapshot.at,
        "step_s": STEP_S,
        "tables": [_table(table, samples) for table in tables],
    }


def table_document(snapshot: IngestSnapshot, topic: str, source: PageSource, samples: Samples) -> Document | None:
    """Return ``/api/table?topic=…``: one table as it is now; None where the ingest has no such topic."""
    table = next((table for table in snapshot.tables if table.topic == topic), None)
    if table is None:
        return None
    return {
        "api": API_VERSION,
        "at": snapshot.at,
        "step_s": STEP_S,
        **_table(table, samples),
        "lags": samples.values("lag", topic),
        "queries": dict(source.queries(topic)),
        "partitions": [{**as_json(partition), "lag": partition.lag} for partition in source.partitions(topic)],
    }


def history_document(topic: str, history: TableHistory) -> Document:
    """Return ``/api/table/history?topic=…``: what one table's log holds."""
    return {"api": API_VERSION, "topic": topic, **as_json(history)}


def _table(table: TableSnapshot, samples: Samples) -> Document:
    rates = samples.rates("rows", table.topic)
    speed = recent(rates)
    document: Document = as_json(table)
    return document | {
        "rows_per_second": _short(speed),
        "catch_up_s": None if table.lag is None or table.trouble is not None else _catch_up(table.lag, speed),
        "rates": rates,
    }


def _catch_up(lag: int, speed: float | None) -> float | None:
    """Return seconds until a lag is landed at the present speed, None where nothing moves."""
    if lag == 0:
        return 0.0
    return _short(lag / speed) if speed else None


def _sum(one: list[float | None], other: list[float | None]) -> list[float | None]:
    return [None if a is None or b is None else short(a + b) for a, b in zip(one, other, strict=True)]


def _short(value: float | None) -> float | None:
    return None if value is None else short(value)


def error_document(text: str) -> Mapping[str, Any]:
    """Return what is answered in place of a document."""
    return {"api": API_VERSION, "error": text}
