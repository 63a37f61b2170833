"""Avro in columns beside fastavro, value by value: random schemas and values, damaged bytes, readers' schemas, hostile counts."""

from __future__ import annotations

import io
import json
import os
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.arrow_conversion import conversion_to
from pykafka_wire.values.avro.column_reader import AvroReadPlan, decode
from pykafka_wire.values.avro.resolution import resolve_schemas
from pykafka_wire.values.avro.row_reader import reader_of
from pykafka_wire.values.avro.schema import ParsedSchema, parse
from pykafka_wire.values.bulk.reading import Payloads
from tests.connector.values.avro_samples import Samples
from tests.connector.values.same_values import same

N_SCHEMAS = int(os.environ.get("AVRO_SCHEMAS", "150"))


def parsed(schema: Any) -> ParsedSchema:
    return parse(json.dumps(schema))


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def in_columns(written: Any, read: Any, column_type: pa.DataType, values: list[bytes]) -> tuple[Any, Any]:
    writer = parsed(written)
    reader = None if read is None else parsed(read)
    step = AvroReadPlan(reader or writer).type_reader(resolve_schemas(writer, reader), column_type)
    column, failed = decode(Payloads.of(pa.array(values, pa.binary())), step, column_type)
    assert column.type == column_type
    assert len(column) == len(values)
    column.validate()
    return column, failed


def one_by_one(written: Any, read: Any, column_type: pa.DataType) -> Callable[[bytes], Any]:
    """Reads a value as an array of one element, or None for a value that cannot be read."""
    writer = parsed(written)
    reader = None if read is None else parsed(read)
    read_one = reader_of(resolve_schemas(writer, reader), column_type, reader or writer)

    def array_of(value: bytes) -> Any:
        try:
            return pa.array([read_one(value)], column_type)
        except DecodeError:
            return None

    return array_of


def by_fastavro(written: Any, read: Any, column_type: pa.DataType) -> Callable[[bytes], Any]:
    """Reads a value with fastavro as an array of one element, or returns the exception."""
    schemas = (fastavro.parse_schema(written), None if read is None else fastavro.parse_schema(read))
    convert = conversion_to(column_type, "utf-8")

    def array_of(value: bytes) -> Any:
        stream = io.BytesIO(value)
        try:
            found = fastavro.schemaless_reader(stream, *schemas)
            if stream.tell() != len(value):
                raise DecodeError("bytes are left over")
            return pa.array([convert(found)], column_type)
        except Exception as error:  # whatever fastavro raises of such bytes
            return error

    return array_of


def stored(scalar: Any) -> Any:
    """A pa.Scalar as Python values; times as numbers, since Python has no year 10000."""
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return {name: stored(scalar[name]) for name in scalar}
    if isinstance(scalar, (pa.ListScalar, pa.MapScalar)):
        return [stored(each) for each in scalar.values]
    return scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()


def compare(written: Any, read: Any, column_type: pa.DataType, values: list[bytes], *, are_whole: bool = True) -> int:
    """How many values were read in columns. Both ways must read the same, and what fastavro reads where it reads the value.

    Of damaged values fastavro reads some that are rejected here: a boolean that is neither 0 nor 1, an int of 64 bits.
    """
    column, failed = in_columns(written, read, column_type, values)
    array_of, judge = one_by_one(written, read, column_type), by_fastavro(written, read, column_type)
    for nth, value in enumerate(values):
        alone, expected = array_of(value), judge(value)
        if not isinstance(expected, Exception) and (are_whole or alone is not None):
            assert alone is not None, (written, read, value, expected)
            assert same(alone.to_pylist(), expected.to_pylist()), (written, read, value)
        if not failed[nth]:
            assert alone is not None, (written, read, value)
            assert same(stored(column[nth]), stored(alone[0])), (written, read, value)
    return int((~failed).sum())


def test_random_schemas_are_read_as_fastavro_reads_them() -> None:
    for seed in range(N_SCHEMAS):
        samples = Samples(seed)
        schema, column_type = samples.record()
        values = [encoded(schema, samples.value(schema)) for _ in range(12)]
        array_of = one_by_one(schema, None, column_type)
        readable = [value for value in values if array_of(value) is not None]
        assert compare(schema, None, column_type, readable) == len(readable), schema
        assert compare(schema, None, column_type, values) == len(readable), schema


def test_damaged_values_are_left_or_read_as_fastavro_reads_them() -> None:
    n_read = 0
    for seed in range(N_SCHEMAS):
        samples = Samples(seed)
        schema, column_type = samples.record()
        values = [encoded(schema, samples.value(schema)) for _ in range(6)]
        for value in values[:]:
            values += damaged(samples, value)
        samples.random.shuffle(values)
        n_read += compare(schema, None, column_type, values, are_whole=False)
    assert n_read > 4 * N_SCHEMAS  # of the six of each that are whole; a random integer may be too large for its column


def damaged(samples: Samples, value: bytes) -> list[bytes]:
    flipped = bytearray(value)
    for _ in range(min(len(flipped), 2)):
        flipped[samples.random.randrange(len(flipped))] ^= 1 << samples.random.randrange(8)
    return [bytes(flipped), value[: samples.random.randrange(len(value) + 1)], value + b"x"]


def test_random_readers_schemas_are_resolved_as_fastavro_resolves_them() -> None:
    n_read, n_all = 0, 0
    for seed in range(N_SCHEMAS):
        samples = Samples(seed)
        schema, _ = samples.record()
        read, column_type = samples.reader_of(schema)
        values = [encoded(schema, samples.value(schema)) for _ in range(6)]
        n_read += compare(schema, read, column_type, values)
        n_all += len(values)
    assert n_read > n_all / 2  # the rest is resolved by fastavro, value by value


def test_a_fixed_type_of_another_size_in_the_readers_schema_is_not_read_in_columns() -> None:
    written, read = (
        {"type": "fixed", "name": "D", "size": size, "logicalType": "decimal", "precision": 5, "scale": 1}
        for size in (4, 5)
    )
    _, failed = in_columns(written, read, pa.decimal128(5, 1), [b"\0\0\0\7"])
    assert failed.tolist() == [True]


RECORD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "country", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
RECORD_TYPE = pa.struct([("id", pa.int64()), ("country", pa.string()), ("note", pa.string())])


def test_only_the_wanted_fields_are_read() -> None:
    value = encoded(RECORD, {"id": 7, "country": "DE", "note": "x"})
    wanted = pa.struct([("note", pa.string()), ("absent", pa.int32())])
    column, failed = in_columns(RECORD, None, wanted, [value])
    assert (column.to_pylist(), failed.tolist()) == ([{"note": "x", "absent": None}], [False])


def test_values_with_null_in_a_field_that_is_not_null_are_left() -> None:
    optional = ["null", "long"]
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": optional},
            {"name": "list", "type": {"type": "array", "items": optional}},
            {"name": "map", "type": {"type": "map", "values": optional}},
        ],
    }
    good = {"id": 1, "list": [2, 3], "map": {"a": 4}}
    changes: tuple[dict[str, Any], ...] = ({}, {"id": None}, {"list": [1, None]}, {"map": {"a": 1, "b": None}}, {})
    values = [encoded(schema, {**good, **change}) for change in changes]
    required = pa.field("item", pa.int64(), nullable=False)
    wanted = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("list", pa.list_(required)),
            pa.field("map", pa.map_(pa.string(), required)),
        ]
    )
    column, failed = in_columns(schema, None, wanted, values)
    assert failed.tolist() == [False, True, True, True, False]
    assert column[4].as_py() == {"id": 1, "list": [2, 3], "map": [("a", 4)]}
    absent = pa.struct([pa.field("absent", pa.int64(), nullable=False)])
    assert in_columns(schema, None, absent, values)[1].all()


def test_a_recursive_schema_is_left_to_be_read_one_by_one() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "id", "type": "long"}, {"name": "children", "type": {"type": "array", "items": "Tree"}}],
    }
    leaf, parent = {"id": 2, "children": []}, {"id": 1, "children": [{"id": 2, "children": []}]}
    values = [encoded(tree, each) for each in (leaf, parent)]
    column, failed = in_columns(tree, None, pa.struct([("id", pa.int64())]), values)
    # A value without children never comes to where the schema repeats itself.
    assert failed.tolist() == [False, True]
    assert column[0].as_py() == {"id": 2}


def test_a_schema_that_repeats_itself_without_end_makes_no_endless_plan() -> None:
    schema: Any = {"type": "record", "name": "L0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, 9):
        types = [["null", schema], *[["null", f"L{level - 1}"]] * 7]
        fields = [{"name": f"f{nth}", "type": each} for nth, each in enumerate(types)]
        schema = {"type": "record", "name": f"L{level}", "fields": fields}
    wanted = pa.struct([("f0", pa.struct([]))])  # of 8 to the power of 8 fields
    values = [b"\0" * 8, b"\2" * 100]
    assert in_columns(schema, None, wanted, values)[1].all()
    assert one_by_one(schema, None, wanted)(values[0]).to_pylist() == [{"f0": None}]


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "Nothing", "fields": []}])
@pytest.mark.parametrize("count", [4_000, 1 << 20, 1 << 40, (1 << 63) - 1])
def test_arrays_of_what_takes_no_bytes_are_left_and_take_no_memory(items: Any, count: int) -> None:
    schema = {"type": "array", "items": items}
    column_type = pa.list_(pa.null() if items == "null" else pa.struct([]))
    value = encoded("long", count) + b"\0"
    tracemalloc.start()
    _, failed = in_columns(schema, None, column_type, [value] * 1_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert failed.all()
    assert peak < 1 << 20


def test_long_arrays_of_few_values_are_left_to_be_read_one_by_one() -> None:
    schema = {"type": "array", "items": "string"}
    values = [encoded(schema, ["x"] * 5_000), encoded(schema, ["y"])]
    column, failed = in_columns(schema, None, pa.list_(pa.string()), values)
    assert failed.tolist() == [True, False]
    assert column[1].as_py() == ["y"]


NUMBERS = [{"name": f"f{nth}", "type": "long"} for nth in range(300)]
SPARSE = {"type": "array", "items": ["null", {"type": "record", "name": "Wide", "fields": NUMBERS}]}
SPARSE_TYPE = pa.list_(pa.struct([(each["name"], pa.int64()) for each in NUMBERS]))


def test_deep_maps_that_differ_from_value_to_value_are_left_to_be_read_one_by_one() -> None:
    """Each map is gone past once for each level above: with few values in a round that takes minutes."""
    rng = random.Random(1)
    depth = 30

    def value(below: int) -> Any:
        if not below:
            return 1
        keys = ["a", "b", "c"][: rng.choice((1, 1, 2, 2, 3))]
        deep = rng.choice(keys)
        return {
            key: value(below - 1) if key == deep or rng.random() < 0.12 else {}
            for key in keys
            if below > 1 or key == deep
        }

    written: Any = "long"
    column_type = pa.int64()
    for _ in range(depth):
        written, column_type = {"type": "map", "values": written}, pa.map_(pa.string(), column_type)
    values = [encoded(written, value(depth)) for _ in range(60)]
    began = time.process_time()
    _, left = in_columns(written, written, column_type, values)
    assert left.any()
    assert time.process_time() - began < 20


def test_arrays_far_larger_than_their_bytes_are_left_to_be_read_one_by_one() -> None:
    row = dict.fromkeys(SPARSE_TYPE.value_type.names, -7)
    nulls, some = encoded(SPARSE, [None] * 1_000), encoded(SPARSE, [row, None] * 20)
    column, failed = in_columns(SPARSE, None, SPARSE_TYPE, [some] * 80)
    assert not failed.any()
    column, failed = in_columns(SPARSE, None, SPARSE_TYPE, [nulls, some, b"\0"] * 100)
    assert failed.tolist() == [True, False, False] * 100  # 240 MB from 0.7 MB
    assert column[-3:].to_pylist()[1:] == [[row, None] * 20, []]
    inner = {"type": "array", "items": SPARSE}
    column, failed = in_columns(inner, None, pa.list_(SPARSE_TYPE), [encoded(inner, [[None] * 1_000, [row]])] * 100)
    assert failed.all()
    few = encoded(SPARSE, [None] * 20)
    column, failed = in_columns(SPARSE, None, SPARSE_TYPE, [few] * 1_000)  # 48 MB
    assert not failed.any() and column[999].as_py() == [None] * 20


def test_blocks_with_their_size_and_several_blocks_are_one_array() -> None:
    items = b"\2\4\6"
    value = encoded("long", -3) + encoded("long", len(items)) + items + encoded("long", 1) + b"\10" + b"\0"
    column, failed = in_columns({"type": "array", "items": "long"}, None, pa.list_(pa.int64()), [value, b"\0", value])
    assert (column.to_pylist(), failed.any()) == ([[1, 2, 3, 4], [], [1, 2, 3, 4]], False)


def test_numbers_of_every_length_at_the_end_of_the_buffer() -> None:
    numbers = [0, -1, *(sign * (1 << bits) for bits in range(63) for sign in (1, -1)), -(1 << 63), (1 << 63) - 1]
    for n in range(1, len(numbers) + 1, 7):
        values = [encoded("long", number) for number in numbers[:n]]
        column, failed = in_columns("long", None, pa.int64(), values)
        assert not failed.any()
        assert column.to_pylist() == numbers[:n]
    _, failed = in_columns("long", None, pa.int64(), [b"\xff" * 10 + b"\1", b"\xff" * 9, b"\2"])
    assert failed.tolist() == [True, True, False]


def test_a_value_that_is_left_takes_nothing_from_its_neighbours() -> None:
    good = [encoded(RECORD, {"id": nth, "country": "ü" * nth, "note": None}) for nth in range(50)]
    values = [each for value in good for each in (value, value[:-1], b"\x02\xfe\xff\xff\xff\x0f")]
    column, failed = in_columns(RECORD, None, RECORD_TYPE, values)
    assert failed.tolist() == [False, True, True] * 50
    kept = column.take(pa.array(np.flatnonzero(~failed))).to_pylist()
    assert [row["id"] for row in kept] == list(range(50))
    assert json.loads(json.dumps(kept))[49]["country"] == "ü" * 49


def test_many_long_arrays_are_read_in_groups_of_few_bytes() -> None:
    array = {"type": "array", "items": "int"}
    payload = encoded(array, [1] * 500)
    tracemalloc.start()
    try:
        column, failed = in_columns(array, None, pa.list_(pa.int32()), [payload] * 12_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not failed.any()
    assert len(column.flatten()) == 500 * 12_000
    assert peak < 250 << 20  # of 6 MB, read in one group: 400 MB
