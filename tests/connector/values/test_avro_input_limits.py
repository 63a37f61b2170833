"""Which Avro schemas are not read, and how far a value may go under those that are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.errors import PoisonError
from pykafka_wire.values.avro.resolution import resolved
from pykafka_wire.values.avro.row_reader import reader_of
from pykafka_wire.values.avro.schema import parse


def reader(schema: Any) -> Callable[[bytes], Any]:
    """Reads one value as text."""
    found = parse(json.dumps(schema))
    return reader_of(resolved(found, None), pa.string(), found)


def record(name: str, *types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]}


def test_a_list_of_nulls_and_a_chain_of_records_have_an_end() -> None:
    nulls = reader({"type": "array", "items": "null"})
    nulls(b"\xd0\x0f\x00")  # 1,000
    for payload in (b"\xd2\x0f\x00", b"\xd0\x0f\x02\x00", b"\xd1\x0f\x00\x00", b"\xff" * 9 + b"\x01\x00"):
        with pytest.raises(PoisonError, match="more than 1000 items that take no bytes"):
            nulls(payload)
    chain = reader(record("Node", ["null", "Node"]))
    chain(b"\x02" * 149 + b"\0")
    with pytest.raises(PoisonError, match="nested more than 150 deep"):
        chain(b"\x02" * 150 + b"\0")
    for payload in (b"", b"\x02", b"\x04", b"\xff" * 20):
        with pytest.raises(PoisonError):
            chain(payload)


def test_a_record_that_doubles_with_each_level_is_rejected() -> None:
    schema: Any = record("R0", "null", "null")
    for level in range(1, 40):
        schema = record(f"R{level}", schema, f"R{level - 1}")
    with pytest.raises(PoisonError, match="too many values that take no bytes"):
        parse(json.dumps(schema))
    with pytest.raises(PoisonError, match="holds itself"):
        parse(json.dumps(record("Endless", "Endless")))
