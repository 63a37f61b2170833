"""A value with one of Connect's schemas is read by its own declared type, whatever its text looks like."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.ingest import Table
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import FACTOR, examples

_MOMENT: Final = datetime(2023, 11, 14, 22, 13, 20)
_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
REJECT: Final = "a reject"
N_COLUMNS: Final = 100 if FACTOR else 40


@dataclass(frozen=True)
class Declared:
    """A declared type: its family, Connect's schema, a value as it is written, as its own column has it, and as text."""

    family: str
    type: str
    written: Any
    value: Any
    text: str | None
    name: str | None = None

    @property
    def schema(self) -> dict[str, Any]:
        parameters = {"parameters": {"scale": "2"}} if self.family == "decimal" else {}
        return {"type": self.type, "optional": True, **({"name": self.name} if self.name else {}), **parameters}


KINDS: Final = (
    Declared("short", "int8", 7, 7, "7"),
    Declared("short", "int16", 300, 300, "300"),
    Declared("whole", "int32", 19723, 19723, "19723"),
    Declared("long", "int64", 1704067200000, 1704067200000, "1704067200000"),
    Declared("float", "float", 1.5, 1.5, "1.5"),
    Declared("double", "double", 2.25, 2.25, "2.25"),
    Declared("boolean", "boolean", True, True, "true"),
    *(
        Declared("text", "string", text, text, text)
        for text in ("abcd", "5", "1.5", "2024-01-01", "2024-01-01T05:00:00Z", "true", "AJY=", "NaN", "{}", "19723")
    ),
    Declared("text", "string", "{}", "{}", "{}", "io.debezium.data.Json"),
    Declared("bytes", "bytes", "YWJjZA==", b"abcd", None),
    Declared("decimal", "bytes", "AJY=", Decimal("1.5"), "1.50", _CONNECT + "Decimal"),
    Declared("date", "int32", 20000, date(2024, 10, 4), "2024-10-04", _DEBEZIUM + "Date"),
    Declared("date", "int32", 20000, date(2024, 10, 4), "2024-10-04", _CONNECT + "Date"),
    Declared("local", "int64", 1_700_000_000_000, _MOMENT, "2023-11-14 22:13:20", _DEBEZIUM + "Timestamp"),
    Declared("local", "int64", 1_700_000_000_000_000, _MOMENT, "2023-11-14 22:13:20", _DEBEZIUM + "MicroTimestamp"),
    Declared("local", "int64", 1_700_000_000_000_000_000, _MOMENT, "2023-11-14 22:13:20", _DEBEZIUM + "NanoTimestamp"),
    Declared("instant", "int64", 1_700_000_000_000, _MOMENT, "2023-11-14 22:13:20Z", _CONNECT + "Timestamp"),
    Declared("instant", "string", "2023-11-14T22:13:20Z", _MOMENT, "2023-11-14T22:13:20Z", _DEBEZIUM + "ZonedTimestamp"),
    Declared("time", "int32", 45296000, 45296000000, None, _DEBEZIUM + "Time"),
    Declared("time", "int64", 45296000000, 45296000000, None, _DEBEZIUM + "MicroTime"),
)  # fmt: skip


def landed(column: Declared, value: Declared) -> Any:
    """Return a value in the column that another declared type has made, or :data:`REJECT`."""
    wholes = ("short", "whole", "long", "time")
    numbers = (*wholes, "float", "double", "decimal")
    takes = {
        "short": (*wholes, "double", "decimal"),
        "whole": (*wholes, "double", "decimal"),
        "long": numbers,
        "time": numbers,
        "float": ("short", "float", "double"),
        "double": ("short", "whole", "long", "float", "double"),
        "decimal": (*wholes, "decimal"),
        "date": ("date", "local"),
        "local": ("date", "local"),
    }.get(column.family, (column.family,))
    if column.family == "text":
        return REJECT if value.text is None else value.text
    if value.family not in takes:
        return REJECT
    if value.family == "date" and column.family == "local":
        return datetime.combine(value.value, datetime.min.time())
    return value.value


def is_same(wanted: Any, got: Any) -> bool:
    """Return whether a cell has the value: a date that became a timestamp is its midnight."""
    if type(wanted) is date and isinstance(got, datetime):
        return got == datetime.combine(wanted, datetime.min.time())
    return bool(wanted == (bytes(got) if isinstance(got, bytearray) else got))


def documents(fields: list[Declared]) -> list[dict[str, Any]]:
    """Documents of one schema, each with a value in one of the fields."""
    schema = {"type": "struct", "fields": [{**kind.schema, "field": f"c{n}"} for n, kind in enumerate(fields)]}
    names = [f"c{n}" for n in range(len(fields))]
    return [
        {"schema": schema, "payload": {**dict.fromkeys(names), f"c{n}": kind.written}} for n, kind in enumerate(fields)
    ]


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
@given(st.integers(0, 2**40))
@examples(1)
def test_a_value_lands_by_its_declared_type_in_the_column_of_another_one(shop: Shop, seed: int) -> None:
    """In two micro-batches the older schema has made the columns, in one the newer one."""
    make = random.Random(seed)
    pairs = [(make.choice(KINDS), make.choice(KINDS)) for _ in range(N_COLUMNS)]
    older, newer = [one for one, _ in pairs], [other for _, other in pairs]
    lot = uuid.uuid4().hex[:8]
    shop.folder = shop.folder / lot
    asked: dict[str, Any] = {
        "topics": rf"{shop.prefix}\.{lot}.*",
        "defaults": Table(topic=".*", format="json"),
        "registry": None,
    }
    for name in (f"{lot}_two", f"{lot}_one"):
        shop.create(name, partitions=1)
    send(shop, f"{lot}_two", documents(older))
    shop.run(**asked)
    send(shop, f"{lot}_two", documents(newer))
    send(shop, f"{lot}_one", [*documents(older), *documents(newer)])
    ingest = shop.run(**asked)
    assert [status.error for status in ingest.statuses.values()] == [None, None]
    wrong = []
    for name, columns, values, first in (
        ("two", older, older, 0),
        ("two", older, newer, N_COLUMNS),
        ("one", newer, older, 0),
        ("one", newer, newer, N_COLUMNS),
    ):
        rows = {row["_kafka_offset"]: row for row in shop.table(f"{lot}_{name}").collect()}
        for n, (column, value) in enumerate(zip(columns, values, strict=True)):
            wanted, row = landed(column, value), rows.get(first + n)
            got = REJECT if row is None else row[f"c{n}"]
            if not is_same(wanted, got):
                wrong.append((name, column, value, wanted, got))
    assert wrong == []


def send(shop: Shop, name: str, rows: list[dict[str, Any]]) -> None:
    shop.outside.produce(
        f"{shop.prefix}.{name}", [shop.outside.Record(value=encoded(row), partition=0) for row in rows]
    )


def encoded(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()
