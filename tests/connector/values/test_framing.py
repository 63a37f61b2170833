"""Frames of whole columns beside frames of single values, and rows that are put back in order. No registry, no Spark."""

from __future__ import annotations

import time
import uuid
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.errors import DecodeError, RegistryError, ValueFormatError
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.bulk.arrays import Flags
from pykafka_wire.values.bulk.reading import OneByOne, Payloads
from pykafka_wire.values.converter import Converter, Format, read_column
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.registry.framing import (
    Frames,
    Framing,
    SchemaId,
    decode_message_indexes,
    encode_frame,
    encode_message_indexes,
    foreign_frames,
    header_values,
    split_frames,
)
from pykafka_wire.values.utf8 import Utf8
from pykafka_wire.wire.arrow.arrays import binary_array

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")


def split(values: list[bytes | None], **given: Any) -> dict[int, tuple[SchemaId | None, bytes]]:
    """Each row's schema and payload; rows without one are absent, and have a reason unless they are null."""
    rows = pa.array([b"before", *values, b"behind"], pa.binary())[1:-1]  # a slice: its offsets do not begin with 0
    return found_in(split_frames(rows, "required", **given), values)


def found_in(frames: Frames, values: list[bytes | None]) -> dict[int, tuple[SchemaId | None, bytes]]:
    found = {row: (schema_id, frames.payloads[row]) for schema_id, index in frames.groups for row in index.tolist()}
    assert len(found) == sum(len(index) for _, index in frames.groups)
    for _, index in frames.groups:
        assert (np.diff(index) > 0).all()
    assert found.keys().isdisjoint(frames.reasons)
    assert found.keys() | frames.reasons.keys() == {row for row, value in enumerate(values) if value is not None}
    return found


@given(st.lists(st.tuples(st.integers(-5, 2**31 - 1), st.binary(max_size=12)), max_size=30))
def test_each_row_has_its_own_schema_and_payload(rows: list[tuple[int, bytes]]) -> None:
    found = split([encode_frame(number, payload) for number, payload in rows])
    assert found == {nth: (SchemaId(number), payload) for nth, (number, payload) in enumerate(rows)}


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 300), min_size=1, max_size=4), st.binary(max_size=8)),
        max_size=60,
    )
)
def test_each_row_has_its_own_message_indexes(rows: list[tuple[list[int], bytes]]) -> None:
    values = [encode_frame(7, encode_message_indexes(tuple(indexes)) + payload) for indexes, payload in rows]
    found = split(values, has_message_indexes=True)
    assert found == {nth: (SchemaId(7, tuple(indexes)), payload) for nth, (indexes, payload) in enumerate(rows)}


@given(
    st.lists(st.none() | st.binary(max_size=12) | st.binary(max_size=12).map(lambda each: bytes(5) + each), max_size=40)
)
def test_any_bytes_have_a_frame_or_a_reason(values: list[bytes | None]) -> None:
    for has_message_indexes in (False, True):
        for row, (schema_id, payload) in split(values, has_message_indexes=has_message_indexes).items():
            value = values[row]
            assert value is not None and schema_id is not None
            assert value[0] == 0 and value.endswith(payload)
            if has_message_indexes:
                assert (schema_id.message_indexes, payload) == decode_message_indexes(value[5:])


def test_a_header_goes_before_the_frame_in_the_value() -> None:
    guid = b"\1" + GUID.bytes
    values = [b"payload", encode_frame(3, b"x"), None, b"y", b"z", b"no frame"]
    headers = pa.array(
        [
            [{"key": "__value_schema_id", "value": b"\1" + bytes(16)}, {"key": "__value_schema_id", "value": guid}],
            [],
            [{"key": "__value_schema_id", "value": guid}],
            [{"key": "other", "value": b"1"}, {"key": "__value_schema_id", "value": guid + b"\4\2\4"}],
            [{"key": "__value_schema_id", "value": b"\1short"}],
            [{"key": "__key_schema_id", "value": guid}],
        ],
        HEADERS,
    )
    found_headers = header_values(pa.concat_arrays([headers, headers])[6:], "__value_schema_id")
    assert found_headers.to_pylist()[:2] == [guid, None]
    found = split(values, headers=found_headers)
    assert found == {0: (SchemaId(GUID), b"payload"), 1: (SchemaId(3), b"x"), 3: (SchemaId(GUID), b"y")}
    with_indexes = header_values(headers, "__value_schema_id").take(pa.array([3]))
    rows = pa.array([b"y"], pa.binary())
    frames = split_frames(rows, "required", has_message_indexes=True, headers=with_indexes)
    assert found_in(frames, [b"y"]) == {0: (SchemaId(GUID, (1, 2)), b"y")}


def test_as_many_schemas_as_rows_cost_little() -> None:
    """Damaged values may name any schema: these took 7 s and 20 s, when each schema's rows were searched for in all rows."""
    count = 100_000
    framed = pa.array([encode_frame(number, b"x") for number in reversed(range(count))], pa.binary())
    headers = pa.array([b"\1" + number.to_bytes(16, "big") for number in range(count)], pa.binary())
    for of_rows in (None, headers):
        begin = time.process_time()
        groups = split_frames(framed, "required", headers=of_rows).groups
        assert time.process_time() - begin < 3
        assert len(groups) == count
        assert sorted(row for _, index in groups for row in index.tolist()) == list(range(count))


def test_json_is_read_with_a_frame_and_without() -> None:
    rows = pa.array([b"1", encode_frame(7, b"2"), None, b"", b"\0", b" 3"], pa.binary())
    found = read_column(Json(), pa.int64(), rows)
    assert found.column.to_pylist() == [1, 2, None, None, None, 3]
    assert list(found.reasons) == [3, 4]


@dataclass(frozen=True)
class Sizes:
    """A format whose values are their payloads' sizes. Schema 2 is unknown, 3 cannot be asked for; payloads ``!`` are left."""

    framing: ClassVar[Framing] = "required"
    has_message_indexes: ClassVar[bool] = False

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> Sizes:
        assert schema_id is not None
        if schema_id.id == 2:
            raise DecodeError("unknown schema")
        if schema_id.id == 3:
            raise RegistryError("no response")
        return self

    def read_column(self, payloads: Payloads) -> tuple[Any, Flags]:
        left = np.array([payloads[row].startswith(b"!") for row in range(len(payloads))], dtype=np.bool_)
        return pa.array(
            [-1 if each else size for each, size in zip(left, payloads.ends - payloads.starts, strict=True)], pa.int64()
        ), left

    def read_one(self, payload: bytes) -> int:
        if payload == b"!bad":
            raise DecodeError("bad")
        if payload == b"!odd":
            return 2**70
        return len(payload)

    def encode(self, value: Any) -> bytes:
        raise NotImplementedError


def test_rows_of_several_schemas_and_rows_left_come_back_in_order() -> None:
    rows: list[bytes | None] = []
    expected: list[int | None] = []
    for nth in range(1_000):
        size = nth % 13
        value, result = {
            0: (None, None),
            1: (b"no frame", None),
            2: (encode_frame(2, b"x"), None),
            3: (encode_frame(1, b"!bad"), None),
            4: (encode_frame(1, b"!odd"), None),
            5: (encode_frame(4, b"!" * (size + 1)), size + 1),
        }.get(nth % 11, (encode_frame(1 if nth % 2 else 4, b"x" * size), size))
        rows.append(value)
        expected.append(result)
    found = read_column(Sizes(), pa.int64(), pa.array(rows, pa.binary()))
    assert found.column.to_pylist() == expected
    assert found.reasons.keys() == {row for row in range(1_000) if rows[row] is not None and expected[row] is None}
    assert set(found.reasons.values()) == {
        "unknown schema", "bad", "a value that int64 cannot hold",
        "its 8 bytes do not begin with Confluent's magic byte 0 and a schema id",
    }  # fmt: skip
    with pytest.raises(ValueFormatError, match="its 8 bytes do not begin"):
        Converter(format=Sizes(), type=pa.int64())(binary_array([b"no frame", encode_frame(1, b"!bad")]))


def test_a_few_rows_that_are_missing_or_left_come_back_in_order() -> None:
    """Whole runs of rows are copied: they are longer than 512 rows on average."""
    special: dict[int, tuple[bytes | None, int | None]] = {
        0: (None, None),
        1: (encode_frame(1, b"!bad"), None),
        2: (encode_frame(1, b"!!!"), 3),
        500: (encode_frame(4, b"12"), 2),
        501: (None, None),
        502: (encode_frame(4, b"!"), 1),
        9_999: (encode_frame(2, b""), None),
    }
    found = read_rows([special.get(nth, (encode_frame(1, b"x" * (nth % 13)), nth % 13)) for nth in range(10_000)])
    assert found.keys() == {1, 9_999}


@pytest.mark.parametrize("n_rows", [2, 10_000])
def test_rows_after_one_that_is_missing_at_the_beginning_are_read(n_rows: int) -> None:
    assert (
        read_rows([(None, None), *((encode_frame(1, b"x" * (nth % 13)), nth % 13) for nth in range(1, n_rows))]) == {}
    )


def read_rows(rows: list[tuple[bytes | None, int | None]]) -> dict[int, str]:
    """Reads (value, its size), and returns the reasons."""
    found = read_column(Sizes(), pa.int64(), pa.array([value for value, _ in rows], pa.binary()))
    found.column.validate(full=True)
    assert found.column.to_pylist() == [size for _, size in rows]
    return found.reasons


@pytest.mark.parametrize("on_error", ["fail", "null", "divert"])
def test_a_registry_that_does_not_respond_is_no_reason_of_a_row(on_error: Any) -> None:
    with pytest.raises(RegistryError):
        Converter(format=Sizes(), type=pa.int64(), on_error=on_error)(binary_array([encode_frame(3, b"")]))


@pytest.mark.parametrize("rows", [[], [None, None]])
def test_columns_without_values(rows: list[None]) -> None:
    column = Converter(format=Sizes(), type=pa.int64())(pa.array(rows, pa.binary()))
    assert (column.type, column.to_pylist()) == (pa.int64(), rows)


@pytest.mark.parametrize(
    ("value_format", "column_type", "expected"),
    [
        (Avro(reader_schema='"long"'), pa.int64(), None),
        (Avro(reader_schema='{"type": "record", "name": "empty", "fields": []}'), pa.struct([]), {}),
        (Json(), pa.struct([("id", pa.int64())]), None),
        (Utf8(), pa.string(), ""),
    ],
)
def test_columns_of_empty_values_alone(value_format: Format, column_type: pa.DataType, expected: Any) -> None:
    found = read_column(value_format, column_type, pa.array([b"", None, b""], pa.binary()))
    assert found.column.to_pylist() == [expected, None, expected]
    assert list(found.reasons) == ([0, 2] if expected is None else [])


class _Items(list[int]):
    """A list that weak references can follow."""


def test_values_read_one_by_one_become_columns_before_python_holds_all_of_them() -> None:
    read: list[weakref.ref[_Items]] = []
    most = 0

    @dataclass(frozen=True)
    class Counted:
        framing: ClassVar[Framing] = "none"
        has_message_indexes: ClassVar[bool] = False

        def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> OneByOne:
            return OneByOne(column_type, self.read_one)

        def read_one(self, payload: bytes) -> Any:
            nonlocal most
            if not payload:
                raise DecodeError("empty")
            found = _Items([payload[0]])
            read.append(weakref.ref(found))
            most = max(most, sum(each() is not None for each in read))
            return found

    rows = [b"" if row % 7 == 3 else bytes([row]) * 20_000 for row in range(100)]
    found = read_column(Counted(), pa.list_(pa.int64()), pa.array(rows, pa.binary()))
    assert found.column.to_pylist() == [[row[0]] if row else None for row in rows]
    assert list(found.reasons) == [row for row in range(100) if not rows[row]]
    assert most < 20


def test_values_whose_schemas_other_registries_name_in_headers_are_errors_that_say_so() -> None:
    azure = ("content-type", b"avro/binary+0123456789abcdef0123456789abcdef")
    of_rows = [
        [("apicurio.value.globalId", bytes(8)), ("x", b"")],
        [("apicurio.key.globalId", bytes(8))],
        [azure],
        [("content-type", b"application/json")],
        None,
        [("apicurio.value.contentId", bytes(8)), azure],
    ]
    headers = pa.array([each and [{"key": key, "value": value} for key, value in each] for each in of_rows], HEADERS)
    reasons = foreign_frames(headers, "value")
    assert reasons.keys() == {0, 2, 5}
    assert "apicurio.value.globalId of Apicurio's serializers" in reasons[0]
    assert "0123456789abcdef0123456789abcdef of Azure Schema Registry" in reasons[2]
    assert foreign_frames(headers, "key").keys() == {1}
    # They are not read, though they begin as a frame does; others are. A null stays null.
    rows = pa.array([b"\0\0\0\0\1a", b"\0\0\0\0\1b", None, b"\0\0\0\0\1d", b"", b"\0\0\0\0\1f"])
    found = read_column(Known(), pa.binary(), rows, foreign=reasons)
    assert found.column.to_pylist() == [None, b"b", None, b"d", None, None]
    assert {row: reason for row, reason in found.reasons.items() if row in reasons} == {0: reasons[0], 5: reasons[5]}


@dataclass(frozen=True)
class Known:
    """A format whose frames are required, and whose payloads are read as they are."""

    framing: ClassVar[Framing] = "required"
    has_message_indexes: ClassVar[bool] = False

    def reader(self, schema_id: SchemaId | None, column_type: Any) -> Any:
        return OneByOne(column_type, lambda payload: payload)
