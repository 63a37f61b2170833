"""Fields that a subject's newest version no longer has, and that older producers still write."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.avro.removed_fields import field_paths, with_removed_fields
from pykafka_wire.values.avro.schema import parse
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.framing import encode_frame
from tests.connector.values.scripted_registry import scripted_registry


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


def value(schema: Any, row: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return out.getvalue()


ADDRESS = record("Address", city="string", zip="int")
COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
OLDEST = record("Order", id="long", color=COLOR, gone="string", first="int")
OLDER = record(
    "Order",
    id="long",
    gone="long",
    address=["null", ADDRESS],
    lines={"type": "array", "items": record("Line", sku="string", n="int")},
)
NEWEST = record(
    "Order",
    id="long",
    address=["null", record("Address", city="string")],
    lines={"type": "array", "items": record("Line", sku="string")},
)
for each in (OLDEST, OLDER, NEWEST):
    each["namespace"] = "shop"


def merged(*kept: str) -> str:
    paths = {tuple(each.split(".")) for each in kept}
    older = [parse(json.dumps(each)) for each in (OLDER, OLDEST)]
    return with_removed_fields(parse(json.dumps(NEWEST)), older, paths.__contains__)


def test_values_of_every_version_are_read_with_the_fields_that_are_kept() -> None:
    text = merged("gone", "color", "address.zip", "lines.n")
    rows = {
        1: (OLDEST, {"id": 1, "color": "BLUE", "gone": "x", "first": 2}),
        2: (OLDER, {"id": 2, "gone": 5, "address": {"city": "a", "zip": 7}, "lines": [{"sku": "s", "n": 3}]}),
        3: (NEWEST, {"id": 3, "address": {"city": "b"}, "lines": [{"sku": "t"}]}),
    }
    with scripted_registry(
        {f"/schemas/ids/{n}": {"schema": json.dumps(schema)} for n, (schema, _) in rows.items()}
    ) as url:
        value_format = Avro(registry=Registry(url), reader_schema=text)
        written = [encode_frame(number, value(schema, row)) for number, (schema, row) in rows.items()]
        found = read_column(value_format, value_format.column_type(), pa.array(written))
    # The oldest version's text is no number: the type is that of the newest version that has the field.
    assert list(found.reasons) == [0]
    assert found.column.to_pylist()[1:] == [
        {
            "id": 2,
            "gone": 5,
            "color": None,
            "address": {"city": "a", "zip": 7},
            "lines": [{"sku": "s", "n": 3}],
        },
        {
            "id": 3,
            "gone": None,
            "color": None,
            "address": {"city": "b", "zip": None},
            "lines": [{"sku": "t", "n": None}],
        },
    ]


@pytest.mark.parametrize("default", [{}, {"default": "RED"}])
def test_a_symbol_that_an_enum_has_lost_is_read_as_it_was_written(default: dict[str, str]) -> None:
    def of(*symbols: str) -> dict[str, Any]:
        color = {"type": "enum", "name": "Color", "symbols": symbols, **default}
        return record("Order", color=color, colors={"type": "array", "items": "Color"}, other=["null", "Color"])

    row = {"color": "BLUE", "colors": ["RED", "BLUE"], "other": "BLUE"}
    text = with_removed_fields(parse(json.dumps(of("RED", "GREEN"))), (), lambda _: False)
    with scripted_registry({"/schemas/ids/1": {"schema": json.dumps(of("RED", "BLUE"))}}) as url:
        value_format = Avro(registry=Registry(url), reader_schema=text)
        written = [encode_frame(1, value(of("RED", "BLUE"), row))] * 200
        found = read_column(value_format, value_format.column_type(), pa.array(written))
    assert (list(found.reasons), found.column.to_pylist()) == ([], [row] * 200)


def test_two_references_may_define_one_type_with_other_documentation() -> None:
    """As Java compares them; a type that differs otherwise is refused."""
    inner = {**ADDRESS, "doc": "an address", "aliases": ["Place"]}
    inner["fields"] = [{**field, "doc": "a field"} for field in inner["fields"]]
    one, other = record("One", at=ADDRESS), record("Other", at={**inner}, again="Address")
    whole = json.dumps(record("Whole", one="One", other="Other"))
    assert parse(whole, [json.dumps(one), json.dumps(other)]).root["name"] == "Whole"
    for change in ({"city": "bytes", "zip": "int"}, {"city": "string"}, {"zip": "int", "city": "string"}):
        odd = json.dumps(record("Other", at=record("Address", **change)))
        with pytest.raises(DecodeError, match="Address is defined twice"):
            parse(whole, [json.dumps(one), odd])


def test_without_fields_to_keep_the_schema_is_the_newest() -> None:
    assert Avro(reader_schema=merged()).column_type() == Avro(reader_schema=json.dumps(NEWEST)).column_type()
    assert field_paths(parse(merged("gone"))) - field_paths(parse(json.dumps(NEWEST))) == {("gone",)}


def test_a_field_that_was_renamed_is_not_kept_and_a_recursive_record_ends() -> None:
    older = record("Node", id="long", old="int", next=["null", "Node"])
    newest = record("Node", id="long", next=["null", "Node"])
    newest["fields"].append({"name": "new", "type": "int", "aliases": ["old"], "default": 0})
    text = with_removed_fields(parse(json.dumps(newest)), [parse(json.dumps(older))], lambda path: True)
    assert field_paths(parse(text)) == {("id",), ("next",), ("new",)}


def test_a_row_within_debeziums_envelope_keeps_its_columns() -> None:
    def envelope(**columns: Any) -> dict[str, Any]:
        row = record("Value", **columns)
        return record("Envelope", before=["null", row], after=["null", "Value"], op="string") | {"namespace": "a-b.t"}

    older, newest = (parse(json.dumps(each)) for each in (envelope(id="int", gone="string"), envelope(id="int")))
    text = with_removed_fields(newest, [older], lambda path: path[0] in ("before", "after") and path[1:] == ("gone",))
    assert ("after", "gone") in field_paths(parse(text))
    column_type = Avro(reader_schema=text).column_type()
    assert [field.name for field in column_type.field("after").type] == ["id", "gone"]
