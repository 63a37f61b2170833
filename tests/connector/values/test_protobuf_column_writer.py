"""Protobuf written in columns: the bytes of google.protobuf's deterministic serialization, and the rows that do not fit."""

from __future__ import annotations

import datetime
import os
import pickle
import random
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.errors import EncodeError, SchemaError
from pykafka_wire.values.protobuf.column_writer import column_writer
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.protobuf.types import arrow_type
from tests.connector.values import protobuf_samples as samples

#: `make conformance-values` tries 4,000 schemas, each with 60 messages and more.
N_SCHEMAS = int(os.environ.get("CONFORMANCE_VALUES", "200")) // 5
SEED = int(os.environ.get("CONFORMANCE_SEED", "0")) or random.SystemRandom().randrange(2**32)
HEAD = """import "google/protobuf/duration.proto"; import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
"""


def message_type(fields: str, syntax: str = "proto3", rest: str = "") -> Any:
    text = f'syntax = "{syntax}"; {HEAD} message M {{ {fields} }} {rest}'
    return link("file", {"file": text}).descriptor.message_types_by_name["M"]


def written(descriptor: Any, rows: list[Any], column_type: pa.DataType) -> list[Any]:
    column = pa.array(rows, column_type)
    found = pickle.loads(pickle.dumps(column_writer(descriptor, column_type))).write(column)
    found.validate(full=True)
    assert found.type == pa.binary()
    return list(found.to_pylist())


def test_random_messages_are_written_as_google_protobuf_does() -> None:
    print(f"CONFORMANCE_SEED={SEED}")
    n_messages = 0
    for number in range(N_SCHEMAS):
        rng = random.Random(SEED + number)
        text = samples.random_file(rng)
        descriptor = link("file", {"file": text}).descriptor.message_types_by_name["M0"]
        try:
            wanted = arrow_type(descriptor)
        except SchemaError:
            continue
        cls = GetMessageClass(descriptor)
        values: list[Any] = []
        for share in (0.2, 0.5, 0.9, 1.0):
            for _ in range(15):
                message = cls()
                samples.fill(rng, message, share)
                try:
                    values.append(samples.expected(cls, message.SerializePartialToString(), wanted))
                except samples.RejectedError:
                    values.append(None)
        rows = [samples.with_pairs(value, wanted) for value in values]
        try:
            column_writer(descriptor, wanted)
        except SchemaError as error:
            assert "is required" in str(error), error  # a message without fields, which has no column
            continue
        for value, content in zip(values, written(descriptor, rows, wanted), strict=True):
            where = f"seed {SEED + number}: {value} {content} {text}"
            assert (content is None) == (value is None), where
            if content is not None:
                assert samples.normal(samples.expected(cls, content, wanted)) == samples.normal(value), where
                theirs = cls.FromString(content).SerializeToString(deterministic=True)
                if "map<" in text:  # whose entries the library writes in an order of its own
                    assert sorted(content) == sorted(theirs), where
                else:
                    assert content == theirs, where
                n_messages += 1
    print(f"{n_messages} messages")
    assert n_messages > N_SCHEMAS * 10


def test_what_is_not_set_is_not_written() -> None:
    descriptor = message_type("int32 a = 1; optional int32 b = 2; string c = 3; optional string d = 4; double e = 5;")
    column_type = pa.struct(
        [("a", pa.int32()), ("b", pa.int32()), ("c", pa.string()), ("d", pa.string()), ("e", pa.float64())]
    )
    rows = [
        {"a": 0, "b": 0, "c": "", "d": "", "e": 0.0},
        {"a": None, "b": None, "c": None, "d": None, "e": None},
        {"a": 1, "b": None, "c": "x", "d": None, "e": -0.0},
        None,
    ]
    assert written(descriptor, rows, column_type) == [
        b"\x10\x00\x22\x00",
        b"",
        b"\x08\x01\x1a\x01x\x29\0\0\0\0\0\0\0\x80",
        None,
    ]


def test_the_entries_of_maps_are_in_the_order_of_their_keys() -> None:
    for kind, column_type, keys in (
        ("sint64", pa.int64(), [-5, -1, 0, 7, 2**40]),
        ("uint64", pa.decimal128(20, 0), [Decimal(0), Decimal(9), Decimal(2**64 - 1)]),
        ("string", pa.string(), ["", "A", "a", "aa", "b", "é"]),
        ("bool", pa.bool_(), [False, True]),
    ):
        descriptor = message_type(f"map<{kind}, int32> a = 1;")
        wanted = pa.struct([("a", pa.map_(column_type, pa.int32()))])
        one_by_one = [written(descriptor, [{"a": [(key, 1)]}], wanted)[0] for key in keys]
        pairs = [(key, 1) for key in keys]
        for _ in range(3):
            random.shuffle(pairs)
            rows: list[Any] = [{"a": pairs}, {"a": []}, {"a": pairs[:1]}, {"a": pairs}]
            found = written(descriptor, rows, wanted)
            assert found[0] == found[3] == b"".join(one_by_one) and found[1] == b""


def test_slices_and_nulls_at_any_place_are_written_as_they_are() -> None:
    descriptor = message_type("repeated int32 a = 1; M b = 2; map<int32, string> c = 3;")
    column_type = pa.struct(
        [
            ("a", pa.list_(pa.int32())),
            ("b", pa.struct([("a", pa.list_(pa.int32()))])),
            ("c", pa.map_(pa.int32(), pa.string())),
        ]
    )
    rows: list[Any] = [
        {"a": [1, 2], "b": None, "c": None},
        None,
        {"a": None, "b": {"a": [3]}, "c": [(2, "y"), (1, "x")]},
        {"a": [], "b": {"a": None}, "c": []},
        {"a": [4], "b": {"a": [5, 6]}, "c": [(7, "z")]},
    ]
    writer = column_writer(descriptor, column_type)
    column = pa.array(rows, column_type)
    whole = writer.write(column).to_pylist()
    assert whole[2] == b"\x12\x03\x0a\x01\x03\x1a\x05\x08\x01\x12\x01x\x1a\x05\x08\x02\x12\x01y"
    assert whole[1] is None and whole[3] == b"\x12\x00"
    for first in range(6):
        for last in range(first, 6):
            assert writer.write(column.slice(first, last - first)).to_pylist() == whole[first:last]


@pytest.mark.parametrize(
    ("fields", "column_type", "value", "reason"),
    [
        ("int32 x = 1;", pa.int64(), 2**31, "x: a number that is not between -2147483648 and 2147483647"),
        ("uint32 x = 1;", pa.int64(), -1, "x: a number that is not between 0 and 4294967295"),
        (
            "uint64 x = 1;",
            pa.decimal128(20, 0),
            Decimal(2**64),
            "x: a number that is not between 0 and 18446744073709551615",
        ),
        ("int64 x = 1;", pa.decimal128(10, 2), Decimal("1.50"), "x: a number that is not between"),
        ("E x = 1;", pa.string(), "THREE", "x: text that is no name of the enum"),
        ("E x = 1;", pa.string(), "99999999999", "x: text that is no name of the enum"),
        ("E x = 1;", pa.string(), "--1", "x: text that is no name of the enum"),
        (
            "repeated int32 x = 1;",
            pa.list_(pa.int32()),
            [1, None],
            r"x\[\]: null, which a repeated field does not have",
        ),
        ("repeated N x = 1;", pa.list_(pa.struct([("y", pa.int64())])), [None], r"x\[\]: null, which a repeated field"),
        ("repeated N x = 1;", pa.list_(pa.struct([("y", pa.int64())])), [{"y": 2**40}], r"x\[\]\.y: a number"),
        (
            "map<string, N> x = 1;",
            pa.map_(pa.string(), pa.struct([("y", pa.int64())])),
            [("b", {"y": 2**40})],
            r"x\{\}\.y",
        ),
        (
            "map<string, int32> x = 1;",
            pa.map_(pa.string(), pa.int32()),
            [("a", None)],
            r"x\{\}: null, which a map's value",
        ),
        ("N x = 1;", pa.struct([("y", pa.int64())]), {"y": -(2**40)}, r"x\.y: a number"),
        ("google.protobuf.Timestamp x = 1;", pa.timestamp("s"), 253_402_300_800, "x: a time outside the range"),
        (
            "google.protobuf.Struct x = 1;",
            pa.string(),
            "[1]",
            "x: text that is not the JSON of a google.protobuf.Struct",
        ),
        ("google.protobuf.Int32Value x = 1;", pa.int64(), 2**31, "x: a number that is not between"),
        ("oneof one { int32 a = 1; int32 x = 2; }", pa.int32(), 1, "one: several members of one oneof are set"),
    ],
)
def test_a_row_that_does_not_fit_is_named_with_its_field(
    fields: str, column_type: Any, value: Any, reason: str
) -> None:
    descriptor = message_type(fields, rest="message N { int32 y = 1; } enum E { ZERO = 0; ONE = 1; }")
    whole = pa.struct([("a", pa.int32()), ("x", column_type)]) if "oneof" in fields else pa.struct([("x", column_type)])
    bad = {"a": 1, "x": value} if "oneof" in fields else {"x": value}
    column = pa.array([{"x": None}, None, bad, {"x": None}, bad], whole)
    with pytest.raises(EncodeError) as raised:
        column_writer(descriptor, whole).write(column)
    assert list(raised.value.reasons) == [2, 4]
    for each in raised.value.reasons.values():
        assert re.match(reason, each), each


def test_required_fields_must_be_given() -> None:
    descriptor = message_type("required int32 a = 1; optional int32 b = 2;", "proto2")
    with pytest.raises(SchemaError, match="field a is required in the message M"):
        column_writer(descriptor, pa.struct([("b", pa.int32())]))
    column_type = pa.struct([("a", pa.int32())])
    with pytest.raises(EncodeError) as raised:
        column_writer(descriptor, column_type).write(pa.array([{"a": 0}, {"a": None}], column_type))
    assert raised.value.reasons == {1: "a: null, and the field is required"}
    assert written(descriptor, [{"a": 0}], column_type) == [b"\x08\x00"]


@pytest.mark.parametrize(
    ("fields", "column_type", "text"),
    [
        ("int32 a = 1;", pa.string(), "the column is STRING and the schema's type is the message M"),
        (
            "int32 a = 1;",
            pa.struct([("b", pa.int32())]),
            "field b is not in the message M, whose fields are a: drop it",
        ),
        ("int32 a = 1;", pa.struct([("a", pa.string())]), "field a is STRING and the schema's type is int32: cast"),
        ("float a = 1;", pa.struct([("a", pa.float64())]), "field a is DOUBLE and the schema's type is float: cast"),
        ("repeated int32 a = 1;", pa.struct([("a", pa.int32())]), "field a is INT and the schema's type is repeated"),
        (
            "map<string, int32> a = 1;",
            pa.struct([("a", pa.string())]),
            "field a is STRING and the schema's type is a map",
        ),
        (
            "N a = 1;",
            pa.struct([("a", pa.struct([("x", pa.binary())]))]),
            "field a.x is BINARY and the schema's type is string",
        ),
    ],
)
def test_a_type_that_does_not_fit_is_refused_before_any_row(fields: str, column_type: Any, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        column_writer(message_type(fields, rest="message N { string x = 1; }"), column_type)


def test_other_types_are_written_where_nothing_is_lost() -> None:
    descriptor = message_type(
        "int32 a = 1; double b = 2; E c = 3; google.protobuf.Timestamp d = 4; google.protobuf.Duration e = 5; "
        "google.protobuf.StringValue f = 6; google.protobuf.Value g = 7; uint64 H = 8; string i = 9;",
        rest="enum E { ZERO = 0; ONE = 1; }",
    )
    column_type = pa.struct(
        [
            ("a", pa.decimal128(5, 2)),
            ("b", pa.int32()),
            ("c", pa.int64()),
            ("d", pa.timestamp("ns")),
            ("e", pa.duration("ms")),
            ("f", pa.string()),
            ("g", pa.string()),
            ("h", pa.int64()),
            ("i", pa.large_string()),
        ]
    )
    at = datetime.datetime(1969, 12, 31, 23, 59, 59, 500_000)
    row = {"a": Decimal("-7.00"), "b": 3, "c": 1, "d": at, "e": datetime.timedelta(milliseconds=-1500)}
    (content,) = written(descriptor, [{**row, "f": "", "g": '{"k": [null, 1]}', "h": 5, "i": "ü"}], column_type)
    message = GetMessageClass(descriptor).FromString(content)
    assert (message.a, message.b, message.c, message.H, message.i) == (-7, 3.0, 1, 5, "ü")
    assert (message.d.ToJsonString(), message.e.ToJsonString()) == ("1969-12-31T23:59:59.500Z", "-1.500s")
    assert message.HasField("f") and message.g.struct_value["k"][1] == 1
    assert content == message.SerializeToString(deterministic=True)


def test_a_string_of_spark_that_is_not_utf8_does_not_fit() -> None:
    column = pa.array([{"x": b"ok"}, {"x": b"\xff"}], pa.struct([("x", pa.binary())]))
    texts = pa.StructArray.from_arrays([column.field(0).view(pa.string())], names=["x"])
    with pytest.raises(EncodeError) as raised:
        column_writer(message_type("string x = 1;"), texts.type).write(texts)
    assert raised.value.reasons == {1: "x: text that is not UTF-8"}
