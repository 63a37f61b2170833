"""Which Avro schemas have their values walked before fastavro reads them, and how far a value may go."""

from __future__ import annotations

from typing import Any

import fastavro
import pytest

from pykafka_wire.errors import PoisonError
from pykafka_wire.values.avro.input_limits import Bounds


def bounds(schema: Any) -> Bounds:
    named: dict[str, Any] = {}
    return Bounds(fastavro.parse_schema(schema, named_schemas=named), named)


def record(name: str, *types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]}


@pytest.mark.parametrize(
    "schema",
    [
        "long",
        record("R", "null", "string", {"type": "map", "values": "null"}, {"type": "array", "items": ["null", "int"]}),
        record("R", record("Address", "string"), "Address", {"type": "array", "items": "Address"}),
    ],
)
def test_most_schemas_need_no_walk(schema: Any) -> None:
    assert bounds(schema).check is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        {"type": "array", "items": record("Empty")},
        record("R", ["null", {"type": "array", "items": record("Nulls", "null", "null")}]),
        record("Node", ["null", "Node"]),
        record("A", {"type": "array", "items": record("B", ["null", "A"])}),
    ],
)
def test_schemas_that_allow_large_values_in_few_bytes_are_walked(schema: Any) -> None:
    assert bounds(schema).check is not None


def test_a_list_of_nulls_and_a_chain_of_records_have_an_end() -> None:
    nulls = bounds({"type": "array", "items": "null"}).check
    assert nulls is not None
    nulls(b"\xd0\x0f\x00")  # 1,000
    for payload in (b"\xd2\x0f\x00", b"\xd0\x0f\x02\x00", b"\xd1\x0f\x00\x00", b"\xff" * 9 + b"\x01\x00"):
        with pytest.raises(PoisonError, match="more than 1000 items that take no bytes"):
            nulls(payload)
    chain = bounds(record("Node", ["null", "Node"])).check
    assert chain is not None
    chain(b"\x02" * 149 + b"\0")
    with pytest.raises(PoisonError, match="nested more than 150 deep"):
        chain(b"\x02" * 150 + b"\0")
    for payload in (b"", b"\x02", b"\x04", b"\xff" * 20):
        with pytest.raises(PoisonError):
            chain(payload)


def test_a_record_that_doubles_with_each_level_is_refused() -> None:
    schema: Any = record("R0", "null", "null")
    for level in range(1, 40):
        schema = record(f"R{level}", schema, f"R{level - 1}")
    with pytest.raises(PoisonError, match="too many values that take no bytes"):
        bounds(schema)
    with pytest.raises(PoisonError, match="holds itself"):
        bounds(record("Endless", "Endless"))
