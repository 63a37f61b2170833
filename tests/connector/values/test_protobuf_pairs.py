"""Protobuf values that are read by another version of their schema: what only some schemas have.

The law, with generated schemas, is in tests/connector/ingest/laws/test_protobuf_pairs.py.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.protobuf.message_reader import message_reader
from pykafka_wire.values.protobuf.resolution import merged_message
from pykafka_wire.values.protobuf.types import arrow_type

PROTO3, PROTO2 = 'syntax = "proto3"; ', 'syntax = "proto2"; '
ANY = 'import "google/protobuf/any.proto"; '


def message_of(text: str, name: str = "M") -> Any:
    return link("file", {"file": text}).descriptor.message_types_by_name[name]


def read(written: str, other: str, content: bytes | dict[str, Any], wanted: pa.DataType | None = None) -> Any:
    """Return the value of a message, the same in columns and one by one. A dict has the fields that are set."""
    writer, reader = message_of(written), message_of(other)
    if isinstance(content, dict):
        content = GetMessageClass(writer)(**content).SerializeToString()
    wanted = wanted or arrow_type(reader)
    merged = merged_message(writer, reader, wanted)
    assert merged is not None, "the schemas read all values alike"
    by_message = message_reader(merged.descriptor, wanted, merged.rules)
    one = pa.array([by_message.read_one(content)], wanted).to_pylist()[0]
    column, left = by_message.read_column(Payloads.of(pa.array([content], pa.binary())))
    assert left[0] or column.to_pylist()[0] == one
    return one


@pytest.mark.parametrize(
    ("written", "other", "given", "value"),
    [
        ("optional int64 n = 1;", "int64 n = 1;", {}, None),
        ("optional int64 n = 1;", "int64 n = 1;", {"n": 0}, 0),
        ("int64 n = 1;", "optional int64 n = 1;", {}, 0),
        ("optional string n = 1;", "string n = 1;", {}, None),
        ("oneof o { int64 n = 1; string t = 2; }", "int64 n = 1; string t = 2;", {"t": "x"}, None),
        ("int64 n = 1; string t = 2;", "oneof o { int64 n = 1; string t = 2; }", {"n": 5, "t": "x"}, 5),
    ],
)
def test_null_is_what_the_writer_s_schema_says(written: str, other: str, given: dict[str, Any], value: Any) -> None:
    assert read(f"{PROTO3} message M {{ {written} }}", f"{PROTO3} message M {{ {other} }}", given)["n"] == value


@pytest.mark.parametrize("kind", ["int64", "string", "bytes", "double", "bool", "E"])
def test_a_default_of_the_reader_is_no_value_of_proto3(kind: str) -> None:
    default = {"string": '"x"', "bytes": '"x"', "bool": "true", "E": "B"}.get(kind, "7")
    writer = f"{PROTO3} enum E {{ A = 0; B = 1; }} message M {{ {kind} n = 1; }}"
    reader = f"{PROTO2} enum E {{ B = 1; A = 0; }} message M {{ optional {kind} n = 1 [default = {default}]; }}"
    zero = {"string": "", "bytes": b"", "E": "A"}.get(kind, 0)
    assert read(writer, reader, {}) == {"n": zero}
    shown = {"bytes": "", "int64": "0"}.get(kind, zero)
    assert json.loads(read(writer, reader, {}, pa.string())) == {"n": shown}


def test_symbols_are_the_writer_s_at_each_place() -> None:
    fields = "E e = 1; repeated E es = 2; map<string, E> me = 3; Inner inner = 4;"
    text = f"{PROTO3} enum E {{ A = 0; %s }} message Inner {{ E e = 1; }} message M {{ {fields} }}"
    given = {"e": 1, "es": [0, 1], "me": {"k": 1}, "inner": {"e": 1}}
    expected = {"e": "B", "es": ["A", "B"], "me": [("k", "B")], "inner": {"e": "B"}}
    for later in ("C = 1;", "reserved 1;", "C = 1; B = 2;"):
        assert read(text % "B = 1;", text % later, given) == expected


def test_one_type_of_the_reader_may_have_been_several_types() -> None:
    writer = (
        f"{PROTO3} enum E {{ A = 0; B = 1; }} enum F {{ X = 0; Y = 1; }} message One {{ E e = 1; }} message Two {{ F e = 1; }} "
        "message M { One one = 1; Two two = 2; }"
    )
    reader = (
        f"{PROTO3} enum G {{ P = 0; Q = 1; }} message Both {{ G e = 1; }} message M {{ Both one = 1; Both two = 2; }}"
    )
    assert read(writer, reader, {"one": {"e": 1}, "two": {"e": 1}}) == {"one": {"e": "B"}, "two": {"e": "Y"}}


def test_an_enum_without_a_zero_is_read_by_an_enum_that_has_one() -> None:
    writer = f"{PROTO2} enum E {{ B = 5; A = 7; }} message M {{ optional E e = 1; repeated E es = 2; }}"
    reader = f"{PROTO3} enum E {{ NONE = 0; A = 5; }} message M {{ E e = 1; repeated E es = 2; }}"
    assert read(writer, reader, {}) == {"e": None, "es": []}
    assert read(writer, reader, {"e": 5, "es": [7, 5]}) == {"e": "B", "es": ["A", "B"]}


@pytest.mark.parametrize("other", ["string t = 3;", "Inner t = 3;", "E t = 3;"])
def test_a_member_of_a_oneof_that_is_not_read_clears_the_others(other: str) -> None:
    head = f"{PROTO3} enum E {{ A = 0; }} message Inner {{ int64 n = 1; }} message M {{ int64 id = 1;"
    content = b"\x10\x05\x18\x00" if other.startswith("E") else b"\x10\x05\x1a\x00"
    schemas = f"{head} oneof o {{ int64 n = 2; {other} }} }}", f"{head} int64 n = 2; }}"
    assert read(*schemas, content) == {"id": 0, "n": None}
    assert json.loads(read(*schemas, content, pa.string())) == {"id": "0"}


def test_groups_required_fields_and_extensions_are_those_of_the_writer() -> None:
    group = "optional group G = 2 { optional E e = 1; }"
    text = (
        f"{PROTO2} enum E {{ A = 0; %s }} message M {{ %s int64 id = 1; {group} extensions 100 to 200; }} "
        "extend M { optional E more = 100; }"
    )
    content = b"\x13\x08\x01\x14\xa0\x06\x01"  # without the field id
    writer, reader = text % ("B = 1;", "optional"), text % ("C = 1;", "required")
    assert read(writer, reader, content) == {"id": None, "g": {"e": "B"}}
    with_extension = pa.struct([("id", pa.int64()), ("[more]", pa.string())])
    assert read(writer, reader, content, with_extension) == {"id": None, "[more]": "B"}
    with pytest.raises(DecodeError, match="required fields are missing: id"):
        read(reader, writer, content)


def test_messages_that_contain_themselves_and_contents_of_any_are_read_as_json() -> None:
    text = (
        f"{PROTO3} {ANY} package shop; enum E {{ A = 0; %s }} "
        "message M { M next = 1; %s E e = 2; google.protobuf.Any any = 3; }"
    )
    writer, reader = text % ("B = 1;", "optional"), text % ("C = 1;", "")
    inner = GetMessageClass(message_of(writer))(e=1).SerializeToString()
    given = {"next": {"e": 1}, "any": {"type_url": "x/shop.M", "value": inner}}
    document = json.loads(read(writer, reader, given, pa.string()))
    assert document == {"next": {"e": "B"}, "any": {"@type": "x/shop.M", "e": "B"}}


def test_fields_that_the_writer_lacks_are_as_the_reader_s_schema_says() -> None:
    head = f"{PROTO3} enum E {{ A = 0; %s }} message M {{ E e = 1; %s }} message New {{ M inner = 1; int64 n = 2; }}"
    fields = "int64 a = 2; optional int64 b = 3; repeated E c = 4; New d = 5; map<string, New> f = 6; E g = 7;"
    wanted = arrow_type(message_of(head % ("C = 1;", "int64 a = 2; optional int64 b = 3; repeated E c = 4; E g = 7;")))
    news = pa.struct([("n", pa.int64())])
    wanted = pa.struct([*wanted, ("d", news), ("f", pa.map_(pa.string(), news))])
    reader = head % ("C = 1;", fields)
    empty = {"e": "A", "a": 0, "b": None, "c": [], "g": "A", "d": None, "f": []}
    assert read(head % ("B = 1;", ""), reader, {}, wanted) == empty
    # A producer may write fields that the schema lacks, which it names in the value.
    unknown = GetMessageClass(message_of(reader))(e=1, a=5, g=1, d={"n": 7}, f={"k": {"n": 8}}).SerializeToString()
    found = {**empty, "e": "B", "a": 5, "g": "C", "d": {"n": 7}, "f": [("k", {"n": 8})]}
    assert read(head % ("B = 1;", ""), reader, unknown, wanted) == found


def test_schemas_that_read_values_alike_need_no_merged_message() -> None:
    one = message_of(f"{PROTO3} enum E {{ A = 0; }} message M {{ E e = 1; optional int32 n = 2; string gone = 3; }}")
    other = message_of(f"{PROTO3} enum F {{ A = 0; }} message M {{ F f = 1; optional int64 m = 2; string new = 4; }}")
    assert merged_message(one, other, arrow_type(other)) is None
