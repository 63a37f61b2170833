"""The .proto file of a column's type: its message holds the column, and google.protobuf reads it back."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.errors import SchemaError
from pykafka_wire.values.protobuf.column_writer import column_writer
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.protobuf.types import arrow_type, derived_schema

UTC = datetime.timezone.utc
ITEM = pa.struct([("price", pa.float64()), ("Inner", pa.struct([("n", pa.int32())]))])
ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("flag", pa.bool_()),
        ("small", pa.int16()),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("order_item", ITEM),
        ("items", pa.list_(ITEM)),
        ("Items", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("by_id", pa.map_(pa.int64(), ITEM)),
    ]
)


def test_a_message_of_a_column_holds_it() -> None:
    descriptor = next(iter(link("file", {"file": derived_schema(ORDER)}).descriptor.message_types_by_name.values()))
    assert descriptor.name == "TopLevelRecord"
    item = {"price": 1.5, "Inner": {"n": 7}}
    row: dict[str, Any] = {
        "id": 0,
        "flag": False,
        "small": 3,
        "raw": b"x",
        "at": datetime.datetime(2026, 1, 1, tzinfo=UTC),
        "order_item": item,
        "items": [item, {"price": None, "Inner": None}],
        "Items": ["a"],
        "counts": [("a", 1)],
        "by_id": [(5, item)],
    }
    column = pa.array([row, {**dict.fromkeys(row), "items": [], "Items": [], "counts": [], "by_id": []}], ORDER)
    first, second = column_writer(descriptor, ORDER).write(column).to_pylist()
    assert second == b""
    message = GetMessageClass(descriptor).FromString(first)
    assert MessageToDict(message, preserving_proto_field_name=True) == {
        "id": "0",
        "flag": False,
        "small": 3,
        "raw": "eA==",
        "at": "2026-01-01T00:00:00Z",
        "order_item": item,
        "items": [item, {}],
        "Items": ["a"],
        "counts": {"a": 1},
        "by_id": {"5": item},
    }


def test_the_type_of_a_derived_message_is_the_columns() -> None:
    column = pa.struct([("id", pa.int64()), ("name", pa.string()), ("inner", pa.struct([("x", pa.float32())]))])
    descriptor = link("file", {"file": derived_schema(column)}).descriptor.message_types_by_name["TopLevelRecord"]
    assert arrow_type(descriptor) == column


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.int64(), "the column is BIGINT, and a Protobuf message is a struct"),
        (pa.struct([("price", pa.decimal128(9, 2))]), r"field price is DECIMAL\(9,2\), which Protobuf does not have"),
        (pa.struct([("a", pa.list_(pa.list_(pa.int32())))]), r"field a\[\] is ARRAY<INT>"),
        (pa.struct([("a", pa.map_(pa.float64(), pa.int32()))]), "field a is MAP<DOUBLE, INT>"),
        (pa.struct([("a", pa.struct([("b-c", pa.int32())]))]), r"field a\.b-c cannot have this name in Protobuf"),
    ],
)
def test_what_protobuf_does_not_have_is_named(column: pa.DataType, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        derived_schema(column)
