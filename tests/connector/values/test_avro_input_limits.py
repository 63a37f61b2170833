"""Which Avro schemas are not read, and how far a value may go under those that are."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pykafka_wire.errors import PoisonError
from pykafka_wire.values.avro.input_limits import item_bytes
from pykafka_wire.values.avro.resolution import resolved
from pykafka_wire.values.avro.row_reader import reader_of
from pykafka_wire.values.avro.schema import parse


def reader(schema: Any, column_type: pa.DataType | None = None) -> Callable[[bytes], Any]:
    """Reads one value, as text by default."""
    found = parse(json.dumps(schema))
    return reader_of(resolved(found, None), column_type or pa.string(), found)


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
    with pytest.raises(PoisonError, match="contains itself"):
        parse(json.dumps(record("Endless", "Endless")))


WIDE = record("Wide", *["long"] * 300)
WIDE_TYPE = pa.struct([(f"f{n}", pa.int64()) for n in range(300)])
SPARSE = {"type": "array", "items": ["null", WIDE]}
SPARSE_TYPE = pa.list_(WIDE_TYPE)


def block(n_items: int) -> bytes:
    """The number of items before a block."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, "long", n_items)
    return stream.getvalue()


def sparse(n_items: int, every: int) -> bytes:
    """An array of nulls, in which every so many items are records of 300 numbers."""
    items = (b"\2" + b"\2" * 300 if nth % every == 0 else b"\0" for nth in range(n_items))
    return block(n_items) + b"".join(items) + b"\0"


def test_nulls_that_would_be_far_larger_in_a_column_are_rejected() -> None:
    n = 40_000  # 96 MB in Arrow
    inner = block(n // 64) + b"\0" * (n // 64) + b"\0"
    for schema, column_type, payload in (
        (SPARSE, SPARSE_TYPE, block(n) + b"\0" * n + b"\0"),
        ({"type": "map", "values": ["null", WIDE]}, pa.map_(pa.string(), WIDE_TYPE), block(n) + b"\2k\0" * n + b"\0"),
        ({"type": "array", "items": SPARSE}, pa.list_(SPARSE_TYPE), block(64) + inner * 64 + b"\0"),
    ):
        read_one = reader(schema, column_type)
        with pytest.raises(PoisonError, match="hold too much for its size: more than 64 MiB and 64 bytes of memory"):
            read_one(payload)


def test_sparse_arrays_of_wide_records_are_read() -> None:
    for n_items, every in ((25_000, 1_000), (60_000, 10)):  # 60 MB in Arrow, and 144 MB
        found = reader(SPARSE, SPARSE_TYPE)(sparse(n_items, every))
        assert (len(found), found[0], found[1]) == (n_items, dict.fromkeys(WIDE_TYPE.names, 1), None)


def test_what_items_take_in_arrow() -> None:
    numbers = pa.struct([("a", pa.int64()), ("b", pa.bool_()), ("c", pa.decimal128(9, 2)), ("d", pa.null())])
    assert [item_bytes(each) for each in (numbers, pa.string(), pa.list_(numbers), pa.map_(pa.string(), numbers))] == [
        8 + 1 + 16, 4, 4, 4,
    ]  # fmt: skip
