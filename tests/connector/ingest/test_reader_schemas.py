"""By which schema values are read for a table that is there: fields that were removed, and types by Connect's names."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.records import reader_schemas
from pykafka_wire.ingest.records.key_schemas import key_schemas
from pykafka_wire.ingest.records.reader_schemas import schema_text
from pykafka_wire.ingest.tables.definition import connect_types
from pykafka_wire.values.avro.schema import WRITTEN_SYMBOLS, parse
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.registered_schema import Reference, Schema
from tests.connector.ingest.conftest import Shop, avro_schema
from tests.connector.ingest.laws.generated import examples
from tests.connector.ingest.test_table_states import running, until
from tests.connector.values.scripted_registry import scripted_registry
from tests.connector.values.test_removed_fields import field_paths


def envelope(*columns: str) -> str:
    fields = [{"name": name, "type": "int"} for name in columns]
    row = {"type": "record", "name": "Value", "fields": fields}
    found = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ]
    return json.dumps({"type": "record", "name": "Envelope", "namespace": "my-server.t", "fields": found})


def avro_record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": fields[field]} for field in fields]}


def read_fields(
    older: str, newest: str, columns: str | None, mode: str = "append", removed_fields: str = "landed"
) -> set[tuple[str, ...]]:
    table = Table(topic="t", mode=mode, removed_fields=removed_fields)
    versions = {"/subjects/s/versions": [1, 2]}
    texts = {f"/subjects/s/versions/{n}": {"schema": text} for n, text in enumerate((older, newest), 1)}
    with scripted_registry(versions | texts) as url:
        held = None if columns is None else StructType([StructField(name, StringType()) for name in columns.split()])
        text = schema_text(Registry(url), "s", Schema(kind="AVRO", text=newest), table.reading, held)
    assert text is not None
    return field_paths(parse(text))


def test_a_field_that_was_removed_is_read_as_long_as_the_table_has_its_column() -> None:
    older, newest = avro_schema("id int", "gone string", "other string"), avro_schema("id int")
    assert read_fields(older, newest, "id GONE") == {("id",), ("gone",)}
    assert read_fields(older, newest, "id") == {("id",)}
    assert read_fields(older, newest, None) == {("id",)}
    assert ("after", "b") in read_fields(envelope("a", "b", "c"), envelope("a"), "a b", "cdc")
    assert ("after", "c") not in read_fields(envelope("a", "b", "c"), envelope("a"), "a b", "cdc")


def test_all_removed_fields_are_read_from_the_first_start_on_where_the_settings_ask_for_it() -> None:
    older, newest = avro_schema("id int", "gone string"), avro_schema("id int")
    assert read_fields(older, newest, None, removed_fields="all") == {("id",), ("gone",)}
    assert read_fields(older, newest, "id", removed_fields="all") == {("id",), ("gone",)}
    assert ("after", "b") in read_fields(envelope("a", "b"), envelope("a"), None, "cdc", "all")


@given(
    versions=st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=2, max_size=4),
    held=st.sets(st.sampled_from("abcd")),
    depth=st.integers(0, 2),
    unreadable=st.sampled_from([None, None, 1, 2]),
)
@examples(60)
def test_where_a_schema_has_its_parts_changes_no_field_that_is_read(
    versions: Sequence[set[str]], held: set[str], depth: int, unreadable: int | None
) -> None:
    """A nested record is in the text of the schema, or in the schema of a reference, or of a reference's reference.

    An older version may be unreadable, or may just have been deleted.
    """
    columns = StructType([StructField(name, StringType()) for name in sorted(held)])
    for _ in range(max(depth, 1)):
        columns = StructType([StructField("x", columns)])
    responses: dict[str, Any] = {"/subjects/s/versions": [*range(1, len(versions) + 1)]}
    for version, names in enumerate(versions, 1):
        record = avro_record("Inner", dict.fromkeys(sorted(names), "string"))
        references: list[dict[str, Any]] = []
        place: Any = record
        for place in ("Inner", "Middle")[:depth]:
            responses[f"/subjects/{place}/versions/{version}"] = {
                "schema": json.dumps(record), "references": references,
            }  # fmt: skip
            references = [{"name": place, "subject": place, "version": version}]
            record = avro_record("Middle", {"x": place})
        row = avro_record("Row", {"x": place})
        responses[f"/subjects/s/versions/{version}"] = {"schema": json.dumps(row), "references": references}
    newest = responses[f"/subjects/s/versions/{len(versions)}"]
    if unreadable is not None and unreadable < len(versions):
        place = f"/subjects/s/versions/{unreadable}"
        responses[place] = {"schema": '{"type": "record"}'} if depth else responses.pop(place) and None
        versions = [*versions[: unreadable - 1], *versions[unreadable:]]
    schema = Schema(
        kind="AVRO", text=newest["schema"], references=tuple(Reference(**each) for each in newest["references"])
    )
    with scripted_registry(responses) as url:
        text = schema_text(Registry(url), "s", schema, Table(topic="t").reading, columns)
    read = versions[-1] if text is None else {path[-1] for path in field_paths(parse(text))} - {"x"}
    assert read == versions[-1] | set[str]().union(*versions) & held


@given(
    versions=st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=2, max_size=5),
    unreadable=st.sampled_from([None, 1, 2, 3]),
    is_deleted=st.booleans(),
)
@examples(60)
def test_one_version_of_a_key_that_cannot_be_read_hides_no_other(
    versions: Sequence[set[str]], unreadable: int | None, is_deleted: bool
) -> None:
    responses: dict[str, Any] = {"/subjects/s/versions": [*range(1, len(versions) + 1)]}
    for version, fields in enumerate(versions, 1):
        text = json.dumps(avro_record("Key", dict.fromkeys(sorted(fields), "int")))
        responses[f"/subjects/s/versions/{version}"] = {"schema": text}
    if unreadable is not None and unreadable < len(versions):
        place = f"/subjects/s/versions/{unreadable}"
        responses |= {place: {"schema": '{"type": "record"}'}}
        if is_deleted:
            del responses[place]
        versions = [*versions[: unreadable - 1], *versions[unreadable:]]
    with scripted_registry(responses) as url:
        found = key_schemas(Registry(url), "s")
    distinct = {tuple(sorted(fields)) for fields in versions}
    assert (found is None) is (len(distinct) == 1)
    if found is not None:
        assert (found.newest, {*found.texts}) == (tuple(sorted(versions[-1])), distinct)


def test_a_version_that_becomes_readable_is_read_within_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And versions that all can be read are compared once, however long the ingest runs."""
    texts = [json.dumps(avro_record("Row", dict.fromkeys(names, "int"))) for names in (("id", "gone"), ("id", "new"))]
    minute, compared = 1, 0
    real = reader_schemas.with_removed_fields

    def with_removed_fields(*given: Any) -> str:
        nonlocal compared
        compared += 1
        return real(*given)

    monkeypatch.setattr("pykafka_wire.values.registry.cache.this_minute", lambda: minute)
    monkeypatch.setattr(reader_schemas, "with_removed_fields", with_removed_fields)
    responses: dict[str, Any] = {"/subjects/s/versions": [1, 2], "/subjects/s/versions/2": {"schema": texts[1]}}
    columns = StructType([StructField(name, StringType()) for name in ("id", "gone")])
    with scripted_registry(responses) as url:

        def fields() -> set[tuple[str, ...]]:
            text = schema_text(
                Registry(url), "s", Schema(kind="AVRO", text=texts[1]), Table(topic="t").reading, columns
            )
            assert text is not None
            return field_paths(parse(text))

        assert fields() == {("id",), ("new",)}
        responses["/subjects/s/versions/1"] = {"schema": texts[0]}
        assert fields() == {("id",), ("new",)}
        minute = 2
        assert fields() == {("id",), ("new",), ("gone",)}
        minute = 3
        assert fields() == {("id",), ("new",), ("gone",)}
    assert compared == 1


def test_a_schema_with_an_enum_reads_symbols_as_they_were_written() -> None:
    text = json.dumps({"type": "enum", "name": "Kind", "symbols": ["A"], "default": "A"})
    read = schema_text(
        Registry("http://localhost:1"), "s", Schema(kind="AVRO", text=text), Table(topic="t").reading, None
    )
    assert read is not None
    assert parse(read).root == {**json.loads(text), WRITTEN_SYMBOLS: True}


@pytest.mark.parametrize(
    ("table", "made_with", "is_new", "expected"),
    [
        (Table(topic="t", mode="cdc"), None, True, "true"),
        (Table(topic="t", mode="cdc"), None, False, "false"),  # made before there were such types
        (Table(topic="t", mode="cdc"), "true", False, "true"),
        (Table(topic="t"), None, True, "false"),
        (Table(topic="t", connect_types="variant"), None, False, "variant"),
        (Table(topic="t", mode="cdc", connect_types="false"), None, True, "false"),
    ],
)
def test_a_table_keeps_the_kind_of_types_that_it_was_made_with(
    table: Table, made_with: str | None, is_new: bool, expected: str
) -> None:
    assert connect_types(table.reading, made_with, is_new=is_new) == expected


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_what_delta_cannot_store_lands_as_numbers_and_older_producers_lose_no_field(shop: Shop) -> None:
    def of(name: str, kind: str) -> dict[str, Any]:
        return {"type": kind, "connect.name": f"io.debezium.time.{name}"}

    types = {"id": "int", "clock": {"type": "long", "logicalType": "time-micros"}, "at": of("MicroTimestamp", "long")}
    money = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}

    def schema(**fields: Any) -> str:
        optional = {name: {"default": None} for name, kind in fields.items() if isinstance(kind, list)}
        listed = [{"name": name, "type": kind, **optional.get(name, {})} for name, kind in fields.items()]
        return json.dumps({"type": "record", "name": "Order", "namespace": "my_shop.public", "fields": listed})

    # The newest schema has the type Address at another place, and without zip.
    place = avro_record("Address", {"street": "string", "zip": "string"})
    home = avro_record("Address", {"street": "string"})
    orders = shop.create("orders")
    asked = {"defaults": Table(topic=".*", connect_types="true")}
    row = {"id": 1, "clock": datetime.time(0, 0, 1), "at": 5_000_000, "m": Decimal("12.34"), "gone": "old"}
    row |= {"place": {"street": "a", "zip": "1"}}
    older = schema(**types, m=money, gone="string", place=place)
    shop.send_avro("orders", older, [row])
    assert shop.run(**asked).statuses[orders].error is None
    newest = schema(**types, m=money, home=["null", home])
    shop.send_avro("orders", newest, [{name: row[name] for name in (*types, "m")} | {"home": {"street": "b"}}])
    shop.send_avro("orders", older, [row | {"gone": "still written"}])
    status = shop.run(**asked).statuses[orders]
    assert (status.error, status.rejects) == (None, 0)
    moment = datetime.datetime(1970, 1, 1, 0, 0, 5)
    landed = shop.table("orders").orderBy("_kafka_partition", "_kafka_offset")
    assert landed.select("home.*").columns == ["street"]
    columns = ("clock", "at", "m", "gone", "place.street", "place.zip", "home.street")
    assert [tuple(each) for each in landed.selectExpr(*columns).collect()] == [
        (1_000_000, moment, Decimal("12.34"), "old", "a", "1", None),
        (1_000_000, moment, Decimal("12.34"), None, None, None, "b"),
        (1_000_000, moment, Decimal("12.34"), "still written", "a", "1", None),
    ]


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_namespaces_with_hyphens_and_references_that_are_deleted_land_while_the_ingest_runs(shop: Shop) -> None:
    """Schemas that the tests' registry does not let in, and others do."""
    topics = {name: shop.create(name) for name in ("hyphen", "part")}

    def record(name: str, *fields: tuple[str, Any]) -> str:
        optional = {field: {"default": None} for field, kind in fields if isinstance(kind, list)}
        listed = [{"name": field, "type": kind, **optional.get(field, {})} for field, kind in fields]
        return json.dumps({"type": "record", "name": name, "namespace": "my-server.inventory-1", "fields": listed})

    first, second = record("Value", ("id", "int")), record("Value", ("id", "int"), ("n", ["null", "int"]))
    outer = record("Outer", ("id", "int"), ("inner", "my-server.inventory-1.Inner"))
    reference = [{"name": "my-server.inventory-1.Inner", "subject": "inner", "version": 1}]
    inner = {"schema": record("Inner", ("x", "int"))}
    whole = {"id": 3, "version": 1, "schema": outer, "references": reference}
    of_hyphen = f"/subjects/{topics['hyphen']}-value/versions"
    responses: dict[str, Any] = {
        "/schemas/ids/1": {"schema": first}, "/schemas/ids/2": {"schema": second}, "/schemas/ids/3": whole,
        f"{of_hyphen}/latest": {"id": 1, "version": 1, "schema": first}, of_hyphen: [1],
        f"/subjects/{topics['part']}-value/versions/latest": whole, f"/subjects/{topics['part']}-value/versions": [1],
        "/subjects/inner/versions/1": inner,
    }  # fmt: skip

    def send(name: str, *values: bytes) -> None:
        shop.send(name, [b"\0\0\0\0" + value for value in values])

    def landed(**n_rows: int) -> bool:
        statuses = ingest.statuses
        return all(topics[name] in statuses and statuses[topics[name]].rows == n for name, n in n_rows.items())

    with scripted_registry(responses) as url:
        send("hyphen", b"\x01\x02")
        send("part", b"\x03\x02\x04")
        with running(shop, registry=url) as (ingest, _):
            until(lambda: landed(hyphen=1, part=1), lambda: ingest.statuses)
            responses[f"{of_hyphen}/latest"] = {"id": 2, "version": 2, "schema": second}
            responses[of_hyphen] = [1, 2]
            responses[f"{of_hyphen}/1"], responses[f"{of_hyphen}/2"] = {"schema": first}, {"schema": second}
            responses["/subjects/inner/versions/1?deleted=true"] = responses.pop("/subjects/inner/versions/1")
            send("hyphen", b"\x02\x04\x02\x06", b"\x01\x06")
            send("part", b"\x03\x04\x06")
            until(lambda: landed(hyphen=3, part=2), lambda: ingest.statuses)
    with scripted_registry(responses) as url:  # no process knows this one's schemas
        send("part", b"\x03\x06\x08")
        status = shop.run(registry=url).statuses[topics["part"]]
        assert (status.error, status.rejects) == (None, 0)
    assert shop.rows("part", "id", "inner.x") == [(1, 2), (2, 3), (3, 4)]
    assert [tuple(row) for row in shop.table("hyphen").select("id", "n").orderBy("id").collect()] == [
        (1, None), (2, 3), (3, None),
    ]  # fmt: skip
