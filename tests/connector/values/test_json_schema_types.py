"""The type of a JSON Schema's values: each kind, what several kinds have in common, references, schemas without an end."""

from __future__ import annotations

import datetime
import itertools
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.errors import DecodeError, SchemaError
from pykafka_wire.values.connect_types import CONNECT_TYPES
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.ddl import arrow_type as of_ddl
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.json.schema_types import arrow_type, type_and_encodings
from pykafka_wire.values.registry.registered_schema import Schema

ANY: dict[str, Any] = {}
INTEGER, TEXT, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}


def of(schema: Any) -> Any:
    return arrow_type(None, Schema(kind="JSON", text=json.dumps(schema)))


def of_field(schema: Any, **more: Any) -> Any:
    return of({"type": "object", "properties": {"f": schema}, **more}).field("f").type


def decimal(**parameters: str) -> Any:
    """As Kafka Connect's JSON Schema converter writes it under ``decimal.format=NUMERIC``."""
    name = "org.apache.kafka.connect.data.Decimal"
    return {"type": "number", "title": name, "connect.type": "bytes", "connect.parameters": parameters}


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        (INTEGER, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        (TEXT, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp_ltz"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": "string", "connect.type": "bytes"}, "binary"),
        ({"type": "integer", "connect.type": "int16"}, "smallint"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        (decimal(scale="2"), "decimal(38, 2)"),
        (decimal(scale="2", **{"connect.decimal.precision": "9"}), "decimal(9, 2)"),
        ({"oneOf": [NULL, decimal(scale="0")]}, "decimal(38, 0)"),
        (decimal(scale="-2"), "string"),
        (decimal(scale="2", **{"connect.decimal.precision": "50"}), "string"),
        (decimal(), "string"),
        ({"type": ["integer", "null"]}, "bigint"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"oneOf": [NULL, INTEGER]}, "bigint"),
        ({"anyOf": [INTEGER, {"type": "number"}, NULL]}, "double"),
        ({"anyOf": [INTEGER, TEXT]}, "string"),
        ({"anyOf": [INTEGER, ANY]}, "string"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2]}, "bigint"),
        ({"const": True}, "boolean"),
        (NULL, "string"),
        (ANY, "string"),
        (True, "string"),
        ({"type": "array", "items": INTEGER}, "array<bigint>"),
        ({"type": "array", "prefixItems": [INTEGER, {"type": "number"}]}, "array<double>"),
        ({"type": "array", "prefixItems": [INTEGER], "items": {"type": "number"}}, "array<double>"),
        ({"type": "array", "items": [INTEGER], "additionalItems": TEXT}, "array<string>"),
        ({"type": "array", "prefixItems": [INTEGER], "items": False}, "array<bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"type": "object", "additionalProperties": INTEGER}, "map<string, bigint>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "properties": {"a": INTEGER}, "additionalProperties": TEXT}, "struct<a: bigint>"),
        ({"properties": {"a": INTEGER}}, "struct<a: bigint>"),
        (
            {
                "oneOf": [
                    {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}},
                    {"type": "object", "properties": {"b": {"type": "number"}, "c": TEXT}},
                ]
            },
            "struct<a: bigint, b: double, c: string>",
        ),
        (
            {"allOf": [{"properties": {"a": INTEGER}}, {"properties": {"b": TEXT}}], "properties": {"c": TEXT}},
            "struct<c: string, a: bigint, b: string>",
        ),
        (
            {"properties": {"a": INTEGER, "b": TEXT}, "allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"b": ANY}}]},
            "struct<a: bigint, b: string>",
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": {"maximum": 9}, "n": {"minProperties": 1}, "l": {"type": "array", "maxItems": 2}}},
                    {"properties": {"a": {"type": "number"}, "n": {"properties": {"x": {"minimum": 1}, "y": ANY}}}},
                    {"properties": {"a": INTEGER, "n": {"properties": {"x": INTEGER}}, "l": {"type": "array", "items": INTEGER}}},
                ]
            },
            "struct<a: bigint, n: struct<x: bigint, y: string>, l: array<bigint>>",
        ),
        (
            {"properties": {"a": INTEGER}, "oneOf": [{"properties": {"a": {"maximum": 1}}}, {"properties": {"a": {"minimum": 5}}}]},
            "struct<a: bigint>",
        ),
        ({"oneOf": [{"properties": {"a": ANY}}, {"properties": {"a": INTEGER}}]}, "struct<a: string>"),
        ({"allOf": [INTEGER, {"type": ["integer", "string"]}]}, "bigint"),
        (
            {"properties": {"a": INTEGER, "b": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "struct<a: bigint, b: string>",
        ),
    ],
)  # fmt: skip
def test_a_schema_has_the_type_that_holds_all_of_its_values(schema: Any, ddl: str) -> None:
    assert of_field(schema) == of_ddl(ddl)


def test_references_lead_to_definitions_and_anchors() -> None:
    parts = {"$defs": {"part": {"properties": {"number": INTEGER}}}, "definitions": {"name": {"$id": "#name", **TEXT}}}
    assert of_field({"$ref": "#/$defs/part"}, **parts) == of_ddl("struct<number: bigint>")
    assert of_field({"$ref": "#name"}, **parts) == of_ddl("string")


def test_a_schema_that_holds_itself_is_text_from_there_on() -> None:
    tree = {"properties": {"id": INTEGER, "children": {"type": "array", "items": {"$ref": "#"}}}}
    assert of(tree) == of_ddl("id bigint, children array<string>")


def test_a_reference_to_nothing_is_named() -> None:
    with pytest.raises(DecodeError, match="refers to '#/nothing'"):
        of_field({"$ref": "#/nothing"})
    with pytest.raises(DecodeError, match=r"refers to 'http://example\.com/order\.json', which the registry"):
        of_field({"$ref": "http://example.com/order.json"})


def test_schemas_that_double_at_each_level_come_to_an_end() -> None:
    levels = {f"l{n}": {"oneOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    with pytest.raises(SchemaError, match="more than 10000 parts"):
        of_field({"$ref": "#/$defs/l0"}, **{"$defs": {**levels, "l40": INTEGER}})


def test_what_is_no_schema_is_no_type() -> None:
    with pytest.raises(DecodeError):
        arrow_type(None, Schema(kind="JSON", text="{"))
    assert of({"type": 5, "properties": [1], "allOf": 3}) == of_ddl("string")


def test_titles_of_connects_converter_are_types_where_that_is_asked_for() -> None:
    """As Confluent's ``JsonSchemaData`` writes Debezium's schemas."""

    def of(title: str, kind: str, connect_type: str, **more: Any) -> dict[str, Any]:
        own = {"type": kind, "title": title, "connect.type": connect_type, **more}
        return {"connect.index": 0, "oneOf": [{"type": "null"}, own]}

    row = {
        "born": of("io.debezium.time.Date", "integer", "int32"),
        "seen": of("io.debezium.time.MicroTimestamp", "integer", "int64"),
        "made": of("org.apache.kafka.connect.data.Timestamp", "integer", "int64"),
        "at": of("io.debezium.time.ZonedTimestamp", "string", "string"),
        "price": of(
            "org.apache.kafka.connect.data.Decimal", "string", "bytes", **{"connect.parameters": {"scale": "2"}}
        ),
    }
    text = json.dumps({"type": "object", "properties": {"after": {"type": "object", "properties": row}}})
    column_type, encodings = type_and_encodings(None, Schema(kind="JSON", text=text), True)
    document = b'{"after":{"born":20000,"seen":5000000,"made":126230400000,"at":"2020-01-02T03:04:05Z","price":"1234"}}'
    utc = datetime.timezone.utc
    for n_rows in (1, 100):
        found = read_column(Json(encodings=encodings), column_type, pa.array([document] * n_rows))
        assert found.column[0].as_py() == {
            "after": {
                "born": datetime.date(2024, 10, 4),
                "seen": datetime.datetime(1970, 1, 1, 0, 0, 5),
                "made": datetime.datetime(1974, 1, 1, tzinfo=utc),
                "at": datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=utc),
                "price": Decimal("-26588.24"),
            }
        }
    plain, unknown = type_and_encodings(None, Schema(kind="JSON", text=text), False)
    assert str(plain.field("after").type) == (
        "struct<born: int32, seen: int64, made: int64, at: string, price: binary>"
    )
    assert unknown.time_units == ()


TIMESTAMPS = [name for name, known in CONNECT_TYPES.items() if known.unit is not None and known.kind == "timestamp"]
NUMBER = 86_400_000_000


def place(title: str | None) -> dict[str, Any]:
    return {**INTEGER, "connect.type": "int64"} | ({} if title is None else {"title": title})


def in_alternatives(one: Any, other: Any) -> Any:
    return {"oneOf": [{"properties": {"f": {"oneOf": [NULL, one]}}}, {"properties": {"f": other}}]}


def in_parts(one: Any, other: Any) -> Any:
    return {"properties": {"f": one}, "allOf": [{"properties": {"f": other}}]}


def in_items(one: Any, other: Any) -> Any:
    return {"properties": {"f": {"type": "array", "prefixItems": [one, other]}}}


@pytest.mark.parametrize("schema_of", [in_alternatives, in_parts, in_items])
def test_a_number_is_a_time_only_where_all_parts_of_a_schema_count_it_alike(schema_of: Any) -> None:
    """A place has one type and one unit, and several parts of a schema may be about it."""

    def read(schema: Any, value: str) -> Any:
        text = json.dumps({"type": "object", **schema})
        column_type, encodings = type_and_encodings(None, Schema(kind="JSON", text=text), True)
        found = read_column(Json(encodings=encodings), column_type, pa.array([b'{"f":%s}' % value.encode()]))
        assert not found.reasons
        return found.column[0].as_py()["f"]

    value = f"[{NUMBER}]" if schema_of is in_items else str(NUMBER)
    alone = {title: read({"properties": {"f": place(title)}}, str(NUMBER)) for title in TIMESTAMPS}
    for one, other in itertools.product([*alone, None], repeat=2):
        found = read(schema_of(place(one), place(other)), value)
        found = found[0] if schema_of is in_items else found
        if not isinstance(found, datetime.datetime):
            assert str(found) == str(NUMBER)
        else:
            known = {alone[title] for title in (one, other) if title is not None}
            assert {time.replace(tzinfo=None) for time in known} == {found.replace(tzinfo=None)}
