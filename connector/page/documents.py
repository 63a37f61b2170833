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
    found: Document = {"api": API_VERSION}
    found |= {name: value for name, value in as_json(snapshot).items() if name not in _ELSEWHERE}
    rows, rejects, written, read = (samples.rates(kind, "") for kind in ("rows", "rejects", "bytes", "bytes read"))
    ahead = _sum(rows, rejects)
    tables = snapshot.tables
    lags = [each.lag for each in tables if each.lag is not None]
    ages = [each.freshness_s for each in tables if each.freshness_s is not None]
    speed = recent(ahead)
    # Of the tables that are not stopped: the last one of them counts.
    moving = [each for each in tables if each.trouble is None and each.lag is not None]
    catch_ups = [_catch_up(each.lag or 0, recent(samples.rates("rows", each.topic))) for each in moving]
    found["totals"] = {
        "tables": len(tables),
        "states": {state: sum(each.state == state for each in tables) for state in STATES},
        "rows": sum(each.rows for each in tables),
        "rejects": sum(each.rejects for each in tables),
        "held_rejects": sum(each.held_rejects for each in tables),
        "tables_with_rejects": sum(each.held_rejects > 0 for each in tables),
        "commits": sum(each.commits for each in tables),
        "lag": sum(lags) if lags else None,
        "catch_up_s": max((each for each in catch_ups if each is not None), default=None),
        "oldest_s": max(ages, default=None),
        "records_per_second": _short(speed),
        "bytes_per_second": _short(recent(written)),
        "kafka_bytes_per_second": _short(recent(read)),
    }
    found["plots"] = {
        "step_s": STEP_S,
        "records_per_second": ahead,
        "bytes_per_second": written,
        "kafka_bytes_per_second": read,
        "cpu": {name: samples.values("cpu", name) for name in snapshot.processes},
        "memory_bytes": {name: samples.values("memory", name) for name in snapshot.processes},
    }
    return found


def tables_document(snapshot: IngestSnapshot, samples: Samples) -> Document:
    """Return ``/api/tables``: every table, those in trouble first."""
    order = {state: number for number, state in enumerate(STATES)}
    tables = sorted(
        snapshot.tables, key=lambda each: (order[each.state], each.held_rejects == 0, -(each.lag or 0), each.topic)
    )
    return {
        "api": API_VERSION,
        "at": snapshot.at,
        "step_s": STEP_S,
        "tables": [_table(each, samples) for each in tables],
    }


def table_document(snapshot: IngestSnapshot, topic: str, source: PageSource, samples: Samples) -> Document | None:
    """Return ``/api/table?topic=…``: one table as it is now; None where the ingest has no such topic."""
    table = next((each for each in snapshot.tables if each.topic == topic), None)
    if table is None:
        return None
    return {
        "api": API_VERSION,
        "at": snapshot.at,
        "step_s": STEP_S,
        **_table(table, samples),
        "lags": samples.values("lag", topic),
        "queries": dict(source.queries(topic)),
        "partitions": [{**as_json(each), "lag": each.lag} for each in source.partitions(topic)],
    }


def history_document(topic: str, history: TableHistory) -> Document:
    """Return ``/api/table/history?topic=…``: what one table's log holds."""
    return {"api": API_VERSION, "topic": topic, **as_json(history)}


def _table(table: TableSnapshot, samples: Samples) -> Document:
    rates = samples.rates("rows", table.topic)
    speed = recent(rates)
    found: Document = as_json(table)
    return found | {
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
