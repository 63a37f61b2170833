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
from pykafka_wire.values.avro.removed_fields import ALL_FIELDS, NO_FIELDS, WantedFields, with_removed_fields
from pykafka_wire.values.avro.schema import ParsedSchema, Schema, kind_of, parse
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


def wanted(*paths: str) -> WantedFields:
    inner: dict[str, list[str]] = {}
    for name, _, rest in (path.partition(".") for path in paths):
        inner.setdefault(name, []).extend([rest] if rest else [])
    return WantedFields({name: wanted(*rest) for name, rest in inner.items()})


def field_paths(schema: ParsedSchema) -> set[tuple[str, ...]]:
    """Return the paths of all fields, of a recursive record once."""
    paths: set[tuple[str, ...]] = set()

    def add(place: Schema, path: tuple[str, ...], around: tuple[str, ...]) -> None:
        definition = schema.definition(place)
        kind = kind_of(definition)
        if kind == "record" and definition["name"] not in around:
            for field in definition["fields"]:
                paths.add((*path, field["name"]))
                add(field["type"], (*path, field["name"]), (*around, definition["name"]))
        elif kind in ("array", "map"):
            add(definition["items" if kind == "array" else "values"], path, around)
        elif kind == "union":
            for branch in definition:
                add(branch, path, around)

    add(schema.root, (), ())
    return paths


def merged(*kept: str) -> str:
    older = [parse(json.dumps(each)) for each in (OLDER, OLDEST)]
    return with_removed_fields(parse(json.dumps(NEWEST)), older, wanted(*kept))


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
    text = with_removed_fields(parse(json.dumps(of("RED", "GREEN"))), (), NO_FIELDS)
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
    text = with_removed_fields(parse(json.dumps(newest)), [parse(json.dumps(older))], ALL_FIELDS)
    assert field_paths(parse(text)) == {("id",), ("next",), ("new",)}


def test_a_row_within_debeziums_envelope_keeps_its_columns() -> None:
    def envelope(**columns: Any) -> dict[str, Any]:
        row = record("Value", **columns)
        return record("Envelope", before=["null", row], after=["null", "Value"], op="string") | {"namespace": "a-b.t"}

    older, newest = (parse(json.dumps(each)) for each in (envelope(id="int", gone="string"), envelope(id="int")))
    text = with_removed_fields(newest, [older], wanted("before.gone", "after.gone"))
    assert ("after", "gone") in field_paths(parse(text))
    column_type = Avro(reader_schema=text).column_type()
    assert [field.name for field in column_type.field("after").type] == ["id", "gone"]


def read(schemas: list[dict[str, Any]], rows: list[dict[str, Any]], *kept: str) -> list[Any]:
    """Return a value of each version as it is read with the kept fields; the newest version is the last."""
    newest, *older = (parse(json.dumps(schema)) for schema in reversed(schemas))
    text = with_removed_fields(newest, older, wanted(*kept))
    ids = {f"/schemas/ids/{n}": {"schema": json.dumps(schema)} for n, schema in enumerate(schemas, 1)}
    with scripted_registry(ids) as url:
        value_format = Avro(registry=Registry(url), reader_schema=text)
        written = [encode_frame(n, value(*each)) for n, each in enumerate(zip(schemas, rows, strict=True), 1)]
        found = read_column(value_format, value_format.column_type(), pa.array(written))
    assert dict(found.reasons) == {}
    rows_read: list[Any] = found.column.to_pylist()
    return rows_read


def test_an_alias_of_the_newest_version_renames_no_type_at_a_place_that_it_has_removed() -> None:
    """The newest version calls a type Person that was called Address, and has removed a field of the type Address."""
    older = record("Order", home=record("Address", street="string", zip="string"), color=["null", COLOR])
    person = record("Person", road="string") | {"aliases": ["Address", "Color"]}
    person["fields"][0] |= {"aliases": ["street"], "default": ""}
    newest = record("Order", person=person)
    newest["fields"][0]["default"] = {"road": "here"}
    rows = [{"home": {"street": "a", "zip": "1"}, "color": "BLUE"}, {"person": {"road": "b"}}]
    assert read([older, newest], rows, "home.street", "home.zip", "color") == [
        {"person": {"road": "here"}, "home": {"street": "a", "zip": "1"}, "color": "BLUE"},
        {"person": {"road": "b"}, "home": None, "color": None},
    ]


def test_an_alias_of_a_field_holds_at_each_place_of_its_type() -> None:
    """The type Address has a removed field at one of two places."""

    def order(home: dict[str, Any], work: Any) -> dict[str, Any]:
        return record("Order", home=home, work=work)

    address = record("Address", road="string")
    address["fields"][0] |= {"aliases": ["street"]}
    older = order(record("Address", street="string", zip="string"), record("Other", street="string", zip="string"))
    newest = order(address, "Address")
    rows = [
        {"home": {"street": "a", "zip": "1"}, "work": {"street": "b", "zip": "2"}},
        {"home": {"road": "c"}, "work": {"road": "d"}},
    ]
    older["fields"][1]["type"]["fields"][0]["name"] = "road"
    rows[0]["work"] = {"road": "b", "zip": "2"}
    assert read([older, newest], rows, "home.zip", "work") == [
        {"home": {"road": "a", "zip": "1"}, "work": {"road": "b"}},
        {"home": {"road": "c", "zip": None}, "work": {"road": "d"}},
    ]


def test_a_removed_record_keeps_fields_that_it_had_lost_before() -> None:
    oldest = record("Order", id="int", home=record("Address", street="string", zip="string"))
    older = record("Order", id="int", home=record("Address", street="string"))
    newest = record("Order", id="int")
    rows = [{"id": 1, "home": {"street": "a", "zip": "1"}}, {"id": 2, "home": {"street": "b"}}, {"id": 3}]
    assert read([oldest, older, newest], rows, "home.street", "home.zip") == [
        {"id": 1, "home": {"street": "a", "zip": "1"}},
        {"id": 2, "home": {"street": "b", "zip": None}},
        {"id": 3, "home": None},
    ]
    # The column is no struct, as that of one of Connect's types may be: the whole record is read.
    assert read([older, newest], rows[1:], "home")[0] == {"id": 2, "home": {"street": "b"}}


def test_types_that_are_equal_are_written_once() -> None:
    """Also the two rows of an envelope, whose fields are many."""
    row = record("Value", **{f"c{n}": "int" for n in range(100)}, old="int")
    newer = record("Value", **{f"c{n}": "int" for n in range(100)})
    older, newest = (record("Envelope", before=["null", each], after=["null", "Value"]) for each in (row, newer))
    parsed = [parse(json.dumps(each)) for each in (newest, older)]
    text = with_removed_fields(parsed[0], parsed[1:], wanted("before.old", "after.old"))
    assert (text.count('"c7"'), text.count('"old"')) == (1, 1)
    assert with_removed_fields(parsed[0], parsed[1:], NO_FIELDS).count('"c7"') == 1
    tree = record("Node", old="int", left=["null", "Node"], right=["null", "Node"])
    trees = [parse(json.dumps(each)) for each in (tree, tree | {"fields": tree["fields"][1:]})]
    assert with_removed_fields(trees[1], trees[:1], ALL_FIELDS).count('"old"') == 1


def test_types_keep_their_properties() -> None:
    """Kafka Connect's names, too."""
    time = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
    money = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2, "connect.name": "Money"}
    kept = {"at": time, "times": {"type": "array", "items": time, "connect.name": "Times"}, "money": ["null", money]}
    older, newest = record("Order", **kept, gone=time), record("Order", **kept)
    text = with_removed_fields(parse(json.dumps(newest)), [parse(json.dumps(older))], wanted("gone"))
    fields = {field["name"]: field["type"] for field in json.loads(text)["fields"]}
    assert fields == {**kept, "gone": ["null", time]}
