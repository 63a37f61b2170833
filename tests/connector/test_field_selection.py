"""The option ``columns``: what it selects, and what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.columns.selected_columns import column_names
from pykafka_wire.columns.spark_schema import arrow_schema, spark_type
from pykafka_wire.errors import OptionError, SchemaError
from pykafka_wire.field_selection import check_whole, parse_columns, select_type, selected_paths
from pykafka_wire.values.ddl import arrow_type

ITEM = pa.struct([("sku", pa.string()), pa.field("count", pa.int32(), nullable=False)])
ORDER = pa.struct(
    [("id", pa.int64()), ("items", pa.list_(pa.field("element", ITEM))), ("tags", pa.map_(pa.string(), ITEM)), ("a.b", pa.int8())]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("", {}),
        ("value", {"value": {}}),
        (" offset ,value.id,  partition ", {"offset": {}, "value": {"id": {}}, "partition": {}}),
        ("value.items.sku, offset, value.id", {"value": {"items": {"sku": {}}, "id": {}}, "offset": {}}),
        ("value.`a.b`, value.`x, y`.z", {"value": {"a.b": {}, "x, y": {"z": {}}}}),
        ("value.two words", {"value": {"two words": {}}}),
    ],
)
def test_a_text_names_columns_and_fields(text: str, selection: object) -> None:
    found = parse_columns(text)
    assert found == selection
    assert list(found) == list(selection)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "text", [",", "value,", ",value", "value..id", "value.", ".id", "value.`id", "value.`a`b", "a`b`"]
)
def test_a_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="name columns and their fields, separated by commas"):
        parse_columns(text)


@pytest.mark.parametrize(
    "text", ["value, value", "value, value.id", "value.id, value", "value.a.b, value.a", "value.a, value.a.b"]
)
def test_what_is_selected_twice_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"selects value\S* twice"):
        parse_columns(text)


def test_columns_come_in_the_order_of_the_selection() -> None:
    assert column_names({}, False, ["valueError"]) == (
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "valueError"
    )  # fmt: skip
    assert column_names({}, True)[-1] == "headers"
    chosen = parse_columns("headers, valueError, value.id")
    assert column_names(chosen, False, ["valueError"]) == ("headers", "valueError", "value")
    with pytest.raises(SchemaError, match="selects valueError, which the source has only with onValueError=divert"):
        column_names(chosen, False, ["keyError"])
    with pytest.raises(SchemaError, match=r"selects valeu, which is no column of the source\. Did you mean value\?"):
        column_names({"valeu": {}}, False)
    with pytest.raises(SchemaError, match="selects xyz, which is no column of the source: use key, value, topic"):
        column_names({"xyz": {}}, False)


def test_a_type_keeps_the_selected_fields_alone() -> None:
    selected = select_type(ORDER, parse_columns("value.items.count, value.`a.b`")["value"], "value")
    count = pa.field("count", pa.int32(), nullable=False)
    assert selected == pa.struct([("items", pa.list_(pa.field("element", pa.struct([count])))), ("a.b", pa.int8())])
    assert select_type(ORDER, {}, "value") is ORDER


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("value.ids", r"selects value\.ids, which is no field of value\. Did you mean id\?"),
        ("value.items.skus", r"value\.items\.skus, which is no field of value\.items\. Did you mean sku\?"),
        ("value.xyz", r"no field of value: use id, items, tags, a\.b"),
        ("value.id.x", r"value\.id is int64, which has no fields to select: select value\.id whole\."),
        ("value.tags.sku", r"value\.tags is a map, of which no part can be selected: select value\.tags whole\."),
    ],
)
def test_a_field_that_is_not_there_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        select_type(ORDER, parse_columns(text)["value"], "value")


@pytest.mark.parametrize(
    ("columns", "ddl"),
    [
        ("offset, value", "value struct<id: bigint>, offset bigint"),
        ("value", "value struct<id: bigint>, offset bigint"),
        ("value.id", "value struct<country: string>"),
        ("value.id", "value struct<id: bigint, country: string>"),
        ("value.items.sku", "value struct<items: array<struct<count: int>>>"),
        ("value.id", "value string"),
    ],
)
def test_another_selection_by_a_schema_is_refused(columns: str, ddl: str) -> None:
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "valueFormat": "json", "columns": columns}
    given = spark_type(arrow_type(ddl))
    assert isinstance(given, StructType)
    for schema in (given, arrow_schema(given)):
        with pytest.raises(OptionError, match=f"columns selects {columns}, but .*: leave one of them out"):
            PykafkaWireDataSource(options).reader(schema)


def test_the_same_selection_by_a_schema_is_taken() -> None:
    columns = "value.items.sku, value.`a.b`, offset"
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "valueFormat": "json", "columns": columns}
    given = spark_type(arrow_type("value struct<items: array<struct<sku: string>>, `a.b`: tinyint>, offset bigint"))
    assert isinstance(given, StructType)
    assert PykafkaWireDataSource(options).reader(given)
    assert selected_paths(parse_columns(columns)) == columns.split(", ")


def test_bytes_have_no_fields() -> None:
    check_whole({}, "value", "binary")
    with pytest.raises(
        SchemaError, match=r"value is binary.* select value whole, or set valueFormat to read it decoded\."
    ):
        check_whole({"id": {}}, "value", "binary")
    with pytest.raises(
        SchemaError, match=r"headers is array<string>, which has no fields to select: select headers whole\."
    ):
        check_whole({"key": {}}, "headers", "array<string>")
