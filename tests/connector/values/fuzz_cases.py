"""What the tests of damaged values read: schemas with whole values of each format, and values that are made to do damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.bulk.reading import OneByOne
from pykafka_wire.values.converter import Converter, Format
from pykafka_wire.values.json.format import Json, JsonSchema
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.framing import SchemaId, encode_frame
from pykafka_wire.values.registry.schemas import WriterSchema
from tests.connector.values.scripted_registry import scripted_registry

UTC_MICROS = pa.timestamp("us", tz="UTC")
TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(18, 2)),
        ("weight", pa.float64()),
        ("at", UTC_MICROS),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("raw", pa.binary()),
        ("inner", pa.struct([("a", pa.int32()), ("day", pa.date32())])),
        ("rest", pa.string()),
    ]
)
#: As columns of JSON have it.
NO_MAP = pa.struct([each for each in TYPE if each.name != "counts"])
#: And as they are read by a layout; bytes are left out, of which one that is wrong has all of its group read otherwise.
FLAT = pa.struct([each for each in TYPE if not pa.types.is_nested(each.type) and each.name != "raw"])
NULLS = pa.struct([("id", pa.int64()), ("nulls", pa.list_(pa.string()))])
TREE = pa.struct([("id", pa.int64()), ("next", pa.string())])
#: What is written as these: a column of text cannot be written as null, or as a record.
WRITTEN_NULLS = pa.struct([("id", pa.int64()), ("nulls", pa.list_(pa.null()))])
WRITTEN_TREE = pa.struct([("id", pa.int64())])


def record(name: str, *fields: tuple[str, Any]) -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}
    )


AVRO = record(
    "Order",
    ("id", "long"),
    ("name", "string"),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}),
    ("weight", "double"),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("tags", {"type": "array", "items": "string"}),
    ("counts", {"type": "map", "values": "int"}),
    ("raw", "bytes"),
    (
        "inner",
        {
            "type": "record",
            "name": "Inner",
            "fields": [
                {"name": "a", "type": "int"},
                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            ],
        },
    ),
    ("rest", ["null", "string", {"type": "array", "items": ["null", "Inner"]}]),
)
AVRO_NULLS = record("Nulls", ("id", "long"), ("nulls", {"type": "array", "items": "null"}))
AVRO_TREE = record("Tree", ("id", "long"), ("next", ["null", "Tree", {"type": "map", "values": "Tree"}]))
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {
            "node": {"type": ["object", "string", "null"], "additionalProperties": {"$ref": "#/definitions/node"}}
        },
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": "number", "multipleOf": 0.01},
            "tags": {"type": "array", "uniqueItems": True},
            "rest": {"$ref": "#/definitions/node"},
        },
        "required": ["id"],
    }
)
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
message Order {
  int64 id = 1; string name = 2; string price = 3; double weight = 4; google.protobuf.Timestamp at = 5;
  repeated string tags = 6; map<string, int32> counts = 7; bytes raw = 8;
  message Inner { int32 a = 1; string day = 2; } Inner inner = 9;
  google.protobuf.Value rest = 10; Order more = 11; google.protobuf.Any any = 12; enum E { ZERO = 0; } E e = 13;
}
"""


PROTO_DEEP = """
syntax = "proto2";
import "google/protobuf/timestamp.proto";
message Order {
  required int64 id = 1; repeated sint64 numbers = 2 [packed = true]; optional string name = 3;
  message Leaf { optional int32 a = 1; optional string name = 2; repeated float sizes = 3; optional Order order = 4; }
  optional Leaf one = 4; repeated Leaf many = 5; map<string, Leaf> by_name = 6;
  oneof choice { int32 left = 7; string right = 8; } enum Color { RED = 0; GREEN = 1; } optional Color color = 9;
  optional google.protobuf.Timestamp at = 10; optional group Old = 11 { optional int32 b = 1; } repeated string unwanted = 12;
}
"""
_LEAF = pa.struct([("a", pa.int32()), ("name", pa.string()), ("sizes", pa.list_(pa.float32()))])
DEEP = pa.struct(
    [
        ("id", pa.int64()),
        ("numbers", pa.list_(pa.int64())),
        ("name", pa.string()),
        ("one", _LEAF),
        ("many", pa.list_(_LEAF)),
        ("by_name", pa.map_(pa.string(), _LEAF)),
        ("left", pa.int32()),
        ("right", pa.string()),
        ("color", pa.string()),
        ("at", UTC_MICROS),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A decoder, and whole values of it by their row's number; ``bombs`` are values made to do damage."""

    name: str
    value_format: Format
    type: pa.DataType
    whole: Callable[[list[int]], list[bytes]]
    bombs: tuple[bytes, ...]


def varint(number: int) -> bytes:
    """Avro's: zigzag, for numbers from 0."""
    number *= 2
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"näme {number}",
        "price": None,
        "weight": number / 3,
        "at": 1_772_000_000_000_000 + number * 1000,
        "tags": ["a", "b"],
        "counts": [("x", number % 100)],
        "raw": bytes([number % 256]),
        "inner": {"a": 1, "day": 20_000},
        "rest": "text",
    }


def encoder(value_format: Format, column_type: pa.DataType, changed: Callable[[int], dict[str, Any]]) -> Any:
    def whole(numbers: list[int]) -> list[bytes]:
        rows = pa.array([{**row(number), **changed(number)} for number in numbers], column_type)
        return list(Converter(format=value_format, type=None)(rows).to_pylist())

    return whole


@contextmanager
def fuzz_cases() -> Iterator[list[Case]]:
    """A case for each format and way of reading it, with a registry that has their schemas."""
    responses: dict[str, Any] = {}
    texts = {
        1: ("AVRO", AVRO),
        2: ("AVRO", AVRO_NULLS),
        3: ("AVRO", AVRO_TREE),
        4: ("JSON", JSON_SCHEMA),
        5: ("PROTOBUF", PROTO),
        6: ("PROTOBUF", PROTO_DEEP),
    }
    for number, (kind, text) in texts.items():
        responses[f"/schemas/ids/{number}"] = {"schemaType": kind, "schema": text}
    with scripted_registry(responses) as url:
        registry = Registry(url)

        def writer(number: int) -> WriterSchema:
            kind, text = texts[number]
            return WriterSchema(schema_id=number, schema=Schema(kind=kind, text=text))

        def price(number: int) -> dict[str, Any]:
            return {"price": Decimal(number) / 100}

        def levels(number: int) -> dict[str, Any]:
            leaf = {"a": number, "name": "ü", "sizes": [1.5, 2.5]}
            return {
                "numbers": [number, -1, 0],
                "name": f"name {number}",
                "one": leaf,
                "many": [leaf, {**leaf, "name": None}],
                "by_name": [("x", leaf)],
                "left": None,
                "right": "right" if number % 2 else None,
                "color": "GREEN",
                "at": row(number)["at"],
            }

        def empty(number: int) -> dict[str, Any]:
            return {"nulls": [None, None], "next": None}

        proto_type = pa.struct([pa.field("price", pa.string()) if each.name == "price" else each for each in TYPE])
        inner = pa.struct([("a", pa.int32())])
        proto_type = pa.struct([pa.field("inner", inner) if each.name == "inner" else each for each in proto_type])
        proto, deep = (Protobuf(registry=registry, writer=writer(number)) for number in (5, 6))
        avro, nulls, tree = (Avro(registry=registry, writer=writer(number)) for number in (1, 2, 3))
        json_schema = JsonSchema(registry=registry, writer=writer(4))
        json_bombs = (
            b"[" * 500_000,
            b'{"rest":' * 100_000 + b"1" + b"}" * 100_000,
            b'{"id":1,"rest":' + b"[" * 700 + b"]" * 700 + b"}",
            b'{"id":1,"rest":' + b"[" * 450 + b"]" * 450 + b"}",
            b'{"id":' + b"9" * 1_000_000 + b"}",
            b'{"id":1e999999999,"price":1e-999999999,"weight":1e999999999999}',
            b'{"id":1e99999999999999999999999}',
            b'{"price":' + b"9" * 4_200 + b'.5,"weight":' + b"9" * 4_000 + b"}",
            b'{"rest":"\\ud800"}',
            b'{"\\ud800":{"\\ud800":5},"rest":{"\\ud800":1}}',
            b'{"counts":{"\\udfff":1}}',
            b'{"raw":"\xc3\xbc","at":"9999-12-31T23:59:59-14:00"}',
            b'{"tags":["' + b"x" * 1_000_000 + b'"]}',
            b"\xef\xbb\xbf" + b'{"id":1}',
            b"\xff\xfe{\0}\0",
            b"null",
            b"NaN",
            b'{"id":NaN,"price":Infinity,"weight":-Infinity}',
            b"",
        )
        avro_bombs = (
            b"",
            varint(1) * 5,
            varint(1) + varint(2**62),
            varint(1) + varint(0) + varint(128) + b"\x7f" * 128,
            varint(1) + varint(0) + varint(100_000) + b"\x7f" * 100_000,
            b"\xff" * 40,
        )
        null_bombs = tuple(varint(1) + varint(count) + varint(0) for count in (1_000, 1_001, 10**6, 2**31, 2**62))
        depths = (10, 140, 160, 1_000, 5_000, 500_000)
        tree_bombs = (
            *((varint(1) + b"\x02") * depth + varint(1) + b"\0" for depth in depths),
            (varint(1) + b"\x04\x02\x00") * 100_000,
        )
        proto_bombs = (
            b"\0" + b"\x5a\x7f" * 50_000,
            b"\0" + nested(60),
            b"\0" + nested(99),
            b"\0" + nested(5_000),
            b"\0" + b"\x62\x02\x0a\x00" * 50_000,
            b"\0" + b"\x4a\x00" * 200_000,
            b"\0\x2a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x7f" * 20,
            b"\x01\x01",
            b"",
        )
        deep_bombs = (
            b"\0\x08\x01" + b"\x2a\x00" * 150_000,
            b"\0\x08\x01" + b"\x2a\x00" * 1_000,
            b"\0\x08\x01" + b"\x32\x00" * 50_000,
            b"\0\x08\x01" + b"\x10\x01" * 100_000,
            b"\0\x08\x01\x12\x80\x80\x10" + b"\x01" * (1 << 18),
            b"\0\x08\x01\x12\x80\x80\x10" + b"\x80" * (1 << 18),
            b"\0\x08\x01" + b"\x62\x01\xff",
            b"\0\x08\x01" + b"\x5b\x08\x01\x5c",
            b"\0\x08\x01" + b"\x5b" * 5_000,
            b"\0\x08\x01" + b"\xfa\xff\xff\xff\x0f\xff\xff\xff\xff\x0f",
        )
        yield [
            Case(
                name="JSON, row by row",
                value_format=Json(),
                type=TYPE,
                whole=encoder(Json(), TYPE, price),
                bombs=json_bombs,
            ),
            Case(
                name="JSON",
                value_format=Json(),
                type=NO_MAP,
                whole=encoder(Json(), NO_MAP, price),
                bombs=(
                    *json_bombs,
                    b'{"id":-1}null{"id":-1}',
                    b'{"id":-1}\n\nnull\t{"id":-1}',
                    b'{"id":-1}\0{"id":-1}',
                    b'{"id":-1,"tags":[{}',
                    b'{"id":-1,"name":"}\n{"}',
                    b'{"id":-1,"more":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
                    b'{"id":-1,"inner":{"a":1}' + b" " * 1_000_000 + b"}",
                    b'{"id":-1,"tags":[' + b"null," * 200_000 + b"null]}",
                    b'{"at":"' + b"9" * 100_000 + b'"}',
                ),
            ),
            Case(
                name="JSON, flat objects",
                value_format=Json(),
                type=FLAT,
                whole=encoder(Json(), FLAT, price),
                bombs=tuple(each for each in json_bombs if b"9999" not in each),  # of a year that Python does not have
            ),
            Case(
                name="JSON Schema",
                value_format=json_schema,
                type=TYPE,
                whole=encoder(json_schema, TYPE, price),
                bombs=tuple(encode_frame(4, each) for each in json_bombs),
            ),
            Case(
                name="Avro",
                value_format=avro,
                type=TYPE,
                whole=encoder(avro, TYPE, price),
                bombs=tuple(encode_frame(1, each) for each in avro_bombs),
            ),
            Case(
                name="Avro, row by row",
                value_format=RowByRow(avro),
                type=TYPE,
                whole=encoder(avro, TYPE, price),
                bombs=tuple(encode_frame(1, each) for each in avro_bombs),
            ),
            Case(
                name="Avro, nulls",
                value_format=nulls,
                type=NULLS,
                whole=encoder(nulls, WRITTEN_NULLS, empty),
                bombs=tuple(encode_frame(2, each) for each in null_bombs),
            ),
            Case(
                name="Avro, nulls, row by row",
                value_format=RowByRow(nulls),
                type=NULLS,
                whole=encoder(nulls, WRITTEN_NULLS, empty),
                bombs=tuple(encode_frame(2, each) for each in null_bombs),
            ),
            Case(
                name="Avro, recursive",
                value_format=tree,
                type=TREE,
                whole=encoder(tree, WRITTEN_TREE, empty),
                bombs=tuple(encode_frame(3, each) for each in tree_bombs),
            ),
            Case(
                name="Protobuf",
                value_format=proto,
                type=proto_type,
                whole=encoder(proto, proto_type, lambda number: {"price": "1.50", "inner": {"a": 1}}),
                bombs=tuple(encode_frame(5, each) for each in proto_bombs),
            ),
            Case(
                name="Protobuf, in columns",
                value_format=deep,
                type=DEEP,
                whole=encoder(deep, DEEP, levels),
                bombs=tuple(encode_frame(6, each) for each in (*proto_bombs, *deep_bombs)),
            ),
            Case(
                name="Protobuf, row by row",
                value_format=RowByRow(deep),
                type=DEEP,
                whole=encoder(deep, DEEP, levels),
                bombs=tuple(encode_frame(6, each) for each in (*proto_bombs, *deep_bombs)),
            ),
        ]


class RowByRow:
    """A format that leaves all rows to be read one by one."""

    def __init__(self, value_format: Format) -> None:
        self._format = value_format
        self.framing, self.has_message_indexes = value_format.framing, value_format.has_message_indexes

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> OneByOne:
        return OneByOne(column_type, self._format.reader(schema_id, column_type).read_one)


def nested(depth: int) -> bytes:
    """An order in an order, and so on, as Protobuf."""
    found = b"\x08\x01"
    for _ in range(depth):
        size, length = len(found), bytearray()
        while size > 0x7F:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        found = b"\x5a" + bytes([*length, size]) + found
    return found
