"""Columns written as JSON: what is written reads back as the same column, whatever part of it, and whatever it holds."""

from __future__ import annotations

import json
import math
import os
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.errors import EncodeError, SchemaError
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.json.column_writer import DocumentWriter
from pykafka_wire.values.json.format import Json
from tests.connector.values.json_samples import JsonSamples

N_TYPES = int(os.environ.get("JSON_TYPES", "40"))


def test_random_columns_read_back_as_they_were() -> None:
    for seed in range(N_TYPES):
        samples = JsonSamples(seed, maps=True)
        column_type = samples.struct()
        documents = [samples.document(column_type) if nth % 9 else None for nth in range(50)]
        read = read_column(Json(), column_type, pa.array(documents, pa.binary()))
        assert read.reasons == {}
        column = read.column
        written = DocumentWriter(column_type).write(column)
        written.validate(full=True)
        assert written.null_count == column.null_count
        again = read_column(Json(), column_type, written)
        assert again.reasons == {}
        assert str(again.column.to_pylist()) == str(column.to_pylist()), column_type
        part = column.slice(7, 30)
        assert DocumentWriter(column_type).write(part).equals(written.slice(7, 30)), column_type


#: Keys of each type that JSON's column writer takes, the least and the greatest among them.
KEYS = {
    pa.string(): ["", "a", "1", "\u00fc"], pa.binary(): [b"", b"\xff"], pa.bool_(): [True, False], pa.int8(): [-128, 127],
    pa.int64(): [-(2**63), 2**63 - 1], pa.float32(): [0.0, 1.5, -2.0**-149, 2.0**127, math.inf], pa.date32(): [-1, 0, 20_000],
    pa.float64(): [0.0, 0.1, 5e-324, -1.7976931348623157e308, -math.inf], pa.timestamp("us", tz="UTC"): [-1, 0, 2**50],
    pa.timestamp("us"): [-1, 0, 2**50], pa.decimal128(38, 18): [Decimal("1.50"), Decimal("-0.000000000000000001")],
}  # fmt: skip


@pytest.mark.parametrize("key_type", KEYS, ids=str)
def test_keys_of_maps_read_back_as_they_were(key_type: pa.DataType) -> None:
    keys = KEYS[key_type]
    column = pa.array(
        [[(key, nth) for nth, key in enumerate(keys)], *([(key, 1)] for key in keys)], pa.map_(key_type, pa.int32())
    )
    read = read_column(Json(), column.type, DocumentWriter(column.type).write(column))
    assert read.reasons == {}
    assert read.column.equals(column)


def _large(column_type: pa.DataType) -> pa.DataType:
    """The type as Spark sends it under spark.sql.execution.arrow.useLargeVarTypes."""
    if pa.types.is_struct(column_type):
        return pa.struct([(field.name, _large(field.type)) for field in column_type])
    if pa.types.is_map(column_type):
        return pa.map_(_large(column_type.key_type), _large(column_type.item_type))
    if pa.types.is_list(column_type):
        return pa.list_(_large(column_type.value_type))
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(column_type, column_type)


def test_large_strings_and_binaries_are_written_as_the_small_ones_that_the_writer_was_made_for() -> None:
    n_large = 0
    for seed in range(N_TYPES):
        samples = JsonSamples(seed, maps=True)
        column_type = samples.struct()
        documents = [samples.document(column_type) if nth % 9 else None for nth in range(50)]
        column = read_column(Json(), column_type, pa.array(documents, pa.binary())).column
        large = pa.array(column.to_pylist(), _large(column_type))
        n_large += large.type != column_type
        writer = DocumentWriter(column_type)
        assert writer.write(large).equals(writer.write(column)), column_type
        part = large.slice(7, 30)
        assert writer.write(part).equals(writer.write(column.slice(7, 30))), column_type
        assert DocumentWriter(large.type).write(large).equals(writer.write(column)), column_type
    assert n_large > N_TYPES // 2


def test_a_column_of_a_type_that_is_not_known_is_never_written_without_quotes() -> None:
    with pytest.raises(TypeError, match="string_view"):
        DocumentWriter(pa.string()).write(pa.array(['"'], pa.string_view()))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None]), [b"1", None]),
        (pa.array([[1], None, [], [None]]), [b"[1]", None, b"[]", b"[null]"]),
        (pa.array([{"a": None}, {"a": 1}, None]), [b"{}", b'{"a":1}', None]),
        (pa.array([{"a": None, "b": "x"}, {"a": 1, "b": None}]), [b'{"b":"x"}', b'{"a":1}']),
        (pa.array([{}, None], pa.struct([])), [b"{}", None]),
        (pa.array([[("k", None)], []], pa.map_(pa.string(), pa.int32())), [b'{"k":null}', b"{}"]),
        (pa.array([[(True, 1)]], pa.map_(pa.bool_(), pa.int32())), [b'{"true":1}']),
        (
            pa.array(
                [[(float("nan"), 1), (float("-inf"), 2)], [(1.5, 3), (float("inf"), 4)]],
                pa.map_(pa.float64(), pa.int32()),
            ),
            [b'{"NaN":1,"-Infinity":2}', b'{"1.5":3,"Infinity":4}'],
        ),
        (pa.array(['"\\\b\f\n\r\t\x00\x1f\x7f/é']), ['"\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001F\x7f/é"'.encode()]),
        (pa.array([1.0, -0.5, 1e300, None]), [b"1.0", b"-0.5", b"1e+300", None]),
        (pa.array([float("nan"), float("inf"), float("-inf")]), [b'"NaN"', b'"Infinity"', b'"-Infinity"']),
        (pa.array([b"", b"a", b"ab", b"abc", None]), [b'""', b'"YQ=="', b'"YWI="', b'"YWJj"', None]),
        (pa.array([None, None], pa.null()), [None, None]),
    ],
)
def test_the_text_is_that_of_to_json(column: pa.Array, expected: list[bytes | None]) -> None:
    assert DocumentWriter(column.type).write(column).to_pylist() == expected


def test_all_control_characters_are_escaped() -> None:
    texts = ["".join(map(chr, range(128))), "".join(map(chr, range(127, 0x500)))]
    assert [json.loads(each) for each in DocumentWriter(pa.string()).write(pa.array(texts)).to_pylist()] == texts


def test_a_string_that_is_not_utf8_is_named_by_its_row() -> None:
    edges = np.array([0, 1, 2, 3], dtype=np.int32)
    column = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(edges), pa.py_buffer(b"a\xffb")])
    with pytest.raises(EncodeError) as refused:
        DocumentWriter(pa.string()).write(column)
    assert refused.value.reasons == {1: "a string that is not UTF-8"}


def test_a_type_that_json_does_not_have_is_refused_with_the_field() -> None:
    column_type = pa.struct([("a", pa.list_(pa.struct([("b", pa.duration("us"))]))), ("c", pa.time64("us"))])
    with pytest.raises(SchemaError, match=r"a\[\]\.b is duration\[us\]; c is TIME"):
        DocumentWriter(column_type)
    with pytest.raises(SchemaError, match="keys of STRUCT"):
        DocumentWriter(pa.map_(pa.struct([("a", pa.int32())]), pa.int32()))
