"""The Spark type of a Protobuf message is that of ``from_protobuf``, but for a few documented differences."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.pandas.types import from_arrow_type

from pykafka_wire.errors import SchemaError
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.protobuf.message_reader import message_reader
from pykafka_wire.values.protobuf.types import arrow_type

HEAD = """syntax = "proto3";
import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto"; import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Color { RED = 0; GREEN = 1; } message Point { int32 x = 1; optional double y = 2; } message Nothing {}
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
"""


def descriptor(text: str, message: str = "M") -> Any:
    return link("file", {"file": text}).descriptor.message_types_by_name[message]


@pytest.mark.parametrize(
    ("field", "spark"),
    [
        ("int32 a = 1;", "int"),
        ("sint32 a = 1;", "int"),
        ("sfixed32 a = 1;", "int"),
        ("int64 a = 1;", "bigint"),
        ("sint64 a = 1;", "bigint"),
        ("sfixed64 a = 1;", "bigint"),
        ("uint32 a = 1;", "bigint"),  # from_protobuf: int, which makes large numbers negative
        ("fixed32 a = 1;", "bigint"),
        ("uint64 a = 1;", "decimal(20,0)"),  # from_protobuf: bigint, as above
        ("fixed64 a = 1;", "decimal(20,0)"),
        ("float a = 1;", "float"),
        ("double a = 1;", "double"),
        ("bool a = 1;", "boolean"),
        ("string a = 1;", "string"),
        ("bytes a = 1;", "binary"),
        ("Color a = 1;", "string"),
        ("repeated Color a = 1;", "array<string>"),
        ("map<int32, bytes> a = 1;", "map<int,binary>"),
        ("map<string, Point> a = 1;", "map<string,struct<x:int,y:double>>"),
        ("Point a = 1;", "struct<x:int,y:double>"),
        ("repeated Point a = 1;", "array<struct<x:int,y:double>>"),
        ("google.protobuf.Timestamp a = 1;", "timestamp"),
        ("google.protobuf.Duration a = 1;", "interval day to second"),
        ("repeated google.protobuf.Timestamp a = 1;", "array<timestamp>"),
        ("google.protobuf.Any a = 1;", "struct<type_url:string,value:binary>"),
        ("google.protobuf.FieldMask a = 1;", "struct<paths:array<string>>"),
        ("google.protobuf.Int32Value a = 1;", "struct<value:int>"),
        ("google.protobuf.StringValue a = 1;", "struct<value:string>"),
        ("google.protobuf.NullValue a = 1;", "string"),
        ("google.protobuf.Struct a = 1;", "string"),  # from_protobuf rejects it as recursive
        ("google.protobuf.Value a = 1;", "string"),
        ("google.protobuf.ListValue a = 1;", "string"),
        ("Timestamp a = 1;", "struct<seconds:bigint,nanos:int>"),  # from_protobuf: timestamp, by the name alone
        ("oneof one { int32 left = 1; Point a = 2; }", "struct<x:int,y:double>"),
    ],
)
def test_the_spark_type_of_a_field(field: str, spark: str) -> None:
    found = arrow_type(descriptor(f"{HEAD} message M {{ {field} }}"))
    assert from_arrow_type(found.field("a").type).simpleString() == spark
    assert all(each.nullable for each in found)


@pytest.mark.parametrize(
    ("file", "message", "spark"),
    [
        ("confluent/type/decimal.proto", "confluent.type.Decimal", "struct<value:binary,precision:bigint,scale:int>"),
        ("google/type/money.proto", "google.type.Money", "struct<currency_code:string,units:bigint,nanos:int>"),
        ("google/type/date.proto", "google.type.Date", "struct<year:int,month:int,day:int>"),
        ("google/type/timeofday.proto", "google.type.TimeOfDay", "struct<hours:int,minutes:int,seconds:int,nanos:int>"),
        ("google/type/latlng.proto", "google.type.LatLng", "struct<latitude:double,longitude:double>"),
        ("google/type/decimal.proto", "google.type.Decimal", "struct<value:string>"),
        ("google/type/dayofweek.proto", "google.type.DayOfWeek", "string"),
    ],
)
def test_a_message_of_googles_or_confluents_common_types_is_its_fields(file: str, message: str, spark: str) -> None:
    found = arrow_type(descriptor(f'syntax = "proto3"; import "{file}"; message M {{ {message} a = 1; }}'))
    assert from_arrow_type(found.field("a").type).simpleString() == spark


def test_messages_without_fields_have_no_column_as_in_spark() -> None:
    text = f"{HEAD} message M {{ int32 a = 1; Nothing b = 2; repeated google.protobuf.Empty c = 3; Deep d = 4; }} "
    found = arrow_type(descriptor(text + "message Deep { map<int32, Nothing> e = 1; }"))
    assert found == pa.struct([("a", pa.int32())])
    with pytest.raises(SchemaError, match="Nothing has no fields"):
        arrow_type(descriptor(HEAD + "message M { int32 a = 1; }", "Nothing"))


def test_groups_and_required_fields_are_as_others() -> None:
    text = (
        'syntax = "proto2"; message M { required int32 id = 1; repeated group Line = 2 { optional string text = 3; } }'
    )
    assert arrow_type(descriptor(text)) == pa.struct(
        [("id", pa.int32()), ("line", pa.list_(pa.struct([("text", pa.string())])))]
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("message M { int32 a = 1; M next = 2; }", "next"),
        ("message M { N one = 1; } message N { repeated O two = 1; } message O { N three = 1; }", "one.two.three"),
        ("message M { map<string, M> children = 1; }", "children"),
    ],
)
def test_a_recursive_message_is_rejected_with_the_way_out(text: str, path: str) -> None:
    with pytest.raises(SchemaError, match=rf"contains itself in the field {path},.*\.schema\("):
        arrow_type(descriptor(f'syntax = "proto3"; {text}'))


def test_a_schema_cannot_make_millions_of_columns() -> None:
    levels = [f"message M{n} {{ " + " ".join(f"M{n + 1} f{i} = {i};" for i in range(1, 11)) + " }" for n in range(1, 9)]
    text = 'syntax = "proto3"; message M { M1 a = 1; } message M9 { int32 a = 1; } ' + " ".join(levels)
    with pytest.raises(SchemaError, match="message M has more than 10000 fields"):
        arrow_type(descriptor(text))


def test_every_field_can_be_read_as_its_type() -> None:
    text = f"""{HEAD} message M {{ uint32 u32 = 1; fixed64 x64 = 2; google.protobuf.Timestamp at = 3;
      google.protobuf.Duration took = 4; google.protobuf.Any any = 5; google.protobuf.FieldMask mask = 6;
      google.protobuf.Int64Value wrapped = 7; google.protobuf.Struct free = 8; map<uint64, Color> colors = 9; }}"""
    message_type = descriptor(text)
    message = GetMessageClass(message_type)()
    message.u32, message.x64 = 2**32 - 1, 2**64 - 1
    message.at.FromJsonString("1969-12-31T23:59:59.9999995Z")
    message.took.FromJsonString("-1.500s")
    message.any.type_url, message.any.value = "x/y", b"z"
    message.mask.paths.append("a.b")
    message.wrapped.value = -5
    message.free["k"] = [1.0, None]
    message.colors[2**64 - 1] = 1
    wanted = arrow_type(message_type)
    value = message_reader(message_type, wanted).read_one(message.SerializeToString())
    found = pa.array([value], wanted)
    found.validate(full=True)
    (row,) = found.to_pylist()
    assert (row["u32"], row["x64"]) == (2**32 - 1, 2**64 - 1)
    assert row["at"].isoformat() == "1969-12-31T23:59:59.999999+00:00"
    assert row["took"].total_seconds() == -1.5
    assert (row["any"], row["mask"], row["wrapped"]) == (
        {"type_url": "x/y", "value": b"z"},
        {"paths": ["a.b"]},
        {"value": -5},
    )
    assert (row["free"], row["colors"]) == ('{"k":[1.0,null]}', [(2**64 - 1, "GREEN")])


def test_a_duration_is_the_number_of_its_microseconds_where_a_table_cannot_store_it() -> None:
    found = descriptor(
        HEAD + "message M { google.protobuf.Duration took = 1; repeated google.protobuf.Duration all = 2; }"
    )
    column_type = arrow_type(found, times_are_numbers=True)
    assert column_type == pa.struct([("took", pa.int64()), ("all", pa.list_(pa.field("element", pa.int64())))])
    message = GetMessageClass(found)()
    message.took.FromMicroseconds(-1_500_001)
    message.all.add().seconds = 3
    reader = message_reader(found, column_type)
    value = message.SerializeToString()
    assert pa.array([reader.read_one(value)], column_type).to_pylist() == [{"took": -1_500_001, "all": [3_000_000]}]
    column, left = reader.read_column(Payloads.of(pa.array([value] * 100, pa.binary())))
    assert not left.any()
    assert column.to_pylist() == [{"took": -1_500_001, "all": [3_000_000]}] * 100
