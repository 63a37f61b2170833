"""Which Avro schemas are not read, and how far a value may go under those that are."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pykafka_wire.errors import DecodeError
from pykafka_wire.values import Registry
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.avro.resolution import resolve_schemas
from pykafka_wire.values.avro.row_reader import reader_of
from pykafka_wire.values.avro.schema import parse
from pykafka_wire.values.avro.types import arrow_type
from pykafka_wire.values.bulk.reading import item_bytes
from pykafka_wire.values.converter import Decoded, read_column
from pykafka_wire.values.registry.framing import encode_frame
from tests.connector.values.scripted_registry import scripted_registry


def reader(schema: Any, column_type: pa.DataType | None = None) -> Callable[[bytes], Any]:
    """Reads one value, as text by default."""
    found = parse(json.dumps(schema))
    return reader_of(resolve_schemas(found, None), column_type or pa.string(), found)


def record(name: str, *types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]}


def test_a_list_of_nulls_and_a_chain_of_records_have_an_end() -> None:
    nulls = reader({"type": "array", "items": "null"})
    nulls(b"\xd0\x0f\x00")  # 1,000
    for payload in (b"\xd2\x0f\x00", b"\xd0\x0f\x02\x00", b"\xd1\x0f\x00\x00", b"\xff" * 9 + b"\x01\x00"):
        with pytest.raises(DecodeError, match="more than 1000 items that take no bytes"):
            nulls(payload)
    chain = reader(record("Node", ["null", "Node"]))
    chain(b"\x02" * 149 + b"\0")
    with pytest.raises(DecodeError, match="nested more than 150 deep"):
        chain(b"\x02" * 150 + b"\0")
    for payload in (b"", b"\x02", b"\x04", b"\xff" * 20):
        with pytest.raises(DecodeError):
            chain(payload)


def test_a_record_that_doubles_with_each_level_is_rejected() -> None:
    schema: Any = record("R0", "null", "null")
    for level in range(1, 40):
        schema = record(f"R{level}", schema, f"R{level - 1}")
    with pytest.raises(DecodeError, match="too many values that take no bytes"):
        parse(json.dumps(schema))
    with pytest.raises(DecodeError, match="contains itself"):
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
        with pytest.raises(DecodeError, match="hold too much for its size: more than 64 MiB and 64 bytes of memory"):
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


def growth_mib(action: Callable[[], Any]) -> tuple[int, Any]:
    """What the process grew by at most, and what came of the action."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory_kib("VmRSS")
    found = action()
    return (memory_kib("VmHWM") - before) >> 10, found


def memory_kib(field: str) -> int:
    text = Path("/proc/self/status").read_text("ascii")
    return int(text.partition(f"{field}:")[2].split()[0])


def decoded(column_type: pa.DataType, payloads: list[bytes], written: Any, read: Any = None) -> Decoded:
    """A column of values of one schema, read by another one or by itself."""
    with scripted_registry({"/schemas/ids/1": {"schema": json.dumps(written)}}) as url:
        value_format = Avro(registry=Registry(url), reader_schema=None if read is None else json.dumps(read))
        return read_column(value_format, column_type, pa.array([encode_frame(1, each) for each in payloads]))


def test_fields_that_no_reader_wants_count_as_parts_of_the_schema() -> None:
    fields = [{"type": "array", "items": "Wide"}] * 4_000
    written = record("R", "long", record("Wide", *["long"] * 500), *fields)  # 120 kB
    payload = b"\2" + b"\2" * 500 + b"\0" * 4_000
    grown, found = growth_mib(lambda: decoded(pa.struct([("f0", pa.int64())]), [payload], written, record("R", "long")))
    assert found.column.to_pylist() == [{"f0": 1}]
    assert grown < 60  # 400 where each of these fields had parts of its own
    with pytest.raises(DecodeError, match="more than 10000 parts"):
        resolve_schemas(
            parse(json.dumps(record("R", "long", *["int"] * 10_000))), parse(json.dumps(record("R", "long")))
        )


SYMBOLS = {"type": "enum", "name": "E", "symbols": ["A" * 1_000, "B"]}


@pytest.mark.parametrize("around", ["{}", '{{"type":"record","name":"R","fields":[{{"name":"e","type":{}}}]}}'])
def test_an_array_of_long_symbols_is_limited_by_what_they_take(around: str) -> None:
    written = {"type": "array", "items": json.loads(around.format(json.dumps(SYMBOLS)))}
    column_type = pa.list_(pa.string() if around == "{}" else pa.struct([("e", pa.string())]))
    n = 2_500_000  # 2.5 GB as text, which no Arrow array holds

    def read() -> Decoded:
        return decoded(column_type, [block(3) + b"\0\2\0\0", block(n) + b"\0" * n + b"\0"], written)

    grown, found = growth_mib(read)
    assert list(found.reasons) == [1] and "hold too much for its size" in found.reasons[1]
    assert len(found.column[0]) == 3
    assert grown < 300


def test_text_of_nested_values_is_limited_by_the_names_that_it_repeats() -> None:
    names = [{"name": f"{'n' * 200}{nth}", "type": "boolean"} for nth in range(4)]
    written = {"type": "array", "items": {"type": "record", "name": "R", "fields": names}}
    n = 500_000  # 400 MB of names

    grown, found = growth_mib(lambda: decoded(pa.string(), [block(n) + bytes(4 * n) + b"\0"], written))
    assert "hold too much for its size" in found.reasons[0]
    assert grown < 500


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("string", "x" * 5_000),
        ("bytes", "x" * 5_000),
        ({"type": "fixed", "name": "F", "size": 2**31 - 1}, ""),
        ({"type": "array", "items": "int"}, [1] * 2_000),
        (record("S", *["string"] * 1_100), {f"f{nth}": "four" for nth in range(1_100)}),
    ],
)
def test_a_default_that_makes_a_large_value_of_nothing_is_refused(kind: Any, default: Any) -> None:
    read = record("R", "long")
    read["fields"].append({"name": "more", "type": kind, "default": default})
    column_type = arrow_type(parse(json.dumps(read)))
    grown, found = growth_mib(lambda: decoded(column_type, [b"\2"] * 50_000, record("R", "long"), read))
    assert len(found.reasons) == 50_000
    assert "the reader's defaults" in found.reasons[0]
    assert grown < 100
    # One that is not wanted costs nothing.
    narrow = decoded(pa.struct([("f0", pa.int64())]), [b"\2"], record("R", "long"), read)
    assert narrow.column.to_pylist() == [{"f0": 1}]


def test_defaults_within_defaults_do_not_double_with_each_level() -> None:
    kind: Any = record("R0", "int")
    kind["fields"][0]["default"] = 1
    for level in range(1, 40):
        inner = [
            {"name": name, "type": [each, "null"], "default": {}}
            for name, each in (("a", kind), ("b", f"R{level - 1}"))
        ]
        kind = {"type": "record", "name": f"R{level}", "fields": inner}
    read = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, "default": {}}]}
    found = decoded(pa.struct([("x", pa.string())]), [b"\2"], record("R", "long"), read)
    assert "the reader's defaults hold more than 10000 values" in found.reasons[0]


def test_records_nested_as_deep_as_a_schema_goes_are_read_or_rejected() -> None:
    for depth in (90, 120, 140, 160, 240):
        schema: Any = "long"
        column_type = pa.int64()
        for level in range(depth):
            schema, column_type = record(f"R{level}", schema), pa.struct([("f0", column_type)])
        found = decoded(column_type, [b"\2"] * 3, schema)
        assert (found.reasons == {}) == (depth <= 150), (depth, found.reasons)
        assert set(found.reasons.values()) <= {found.reasons.get(0, "")}
