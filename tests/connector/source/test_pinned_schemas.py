"""Which reader's schemas a query's micro-batches have, over changes of its options; without brokers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.columns.spark_schema import spark_type
from pykafka_wire.errors import OptionError, SchemaError
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.pinned_schemas import PinnedSchemas
from pykafka_wire.values.ddl import arrow_type
from tests.connector.parsed_options import ORDERS
from tests.connector.source.typed_topics import COUNTRY, ID, NOTE, record
from tests.connector.values.scripted_registry import scripted_registry

ONLY_ID = {"value": "struct<id: bigint>"}
AVRO = {"valueFormat": "avro"}
SUBJECT = "orders-value"


class Subjects:
    """A registry of which each subject has one schema."""

    def __init__(self, url: str, responses: dict[str, Any]) -> None:
        self.url = url
        self._responses = responses

    def put(self, subject: str, number: int, schema: str) -> None:
        self._responses[f"/subjects/{subject}/versions/latest"] = {"id": number, "schema": schema}
        self._responses[f"/schemas/ids/{number}"] = {"schema": schema}

    def versions(self, subject: str, *schemas: str) -> None:
        """Let the subject have these versions, the deleted ones among them."""
        path = f"/subjects/{subject}/versions"
        self._responses[f"{path}?deleted=true"] = list(range(1, len(schemas) + 1))
        self._responses |= {f"{path}/{nth}": {"schema": schema} for nth, schema in enumerate(schemas, 1)}


@pytest.fixture
def registry() -> Iterator[Subjects]:
    responses: dict[str, Any] = {}
    with scripted_registry(responses) as url:
        yield Subjects(url, responses)


def query(columns: dict[str, str], options: dict[str, str], registry: Subjects | None = None) -> PinnedSchemas:
    """A query whose columns have these types, in Spark DDL, given by ``.schema(…)``."""
    schema = StructType()
    for name, ddl in columns.items():
        schema.add(name, spark_type(arrow_type(ddl)))
    address = {"schema.registry.url": registry.url} if registry is not None else {}
    return PinnedSchemas(parse_source_options(ORDERS | address | options, "stream"), schema, None)


def test_a_part_of_a_recursive_schema_is_read(registry: Subjects) -> None:
    registry.put(SUBJECT, 1, record(ID, {"name": "next", "type": ["null", "shop.Order"], "default": None}))
    pinned = query({"value": "struct<id: bigint, next: struct<id: bigint>>"}, AVRO, registry)
    found = pinned.for_next({})
    assert found == {"value": {"format": "avro", "id": 1, "subject": SUBJECT}}
    assert pinned.for_planned(found) == found
    reasons = query({"valueError": "string"}, AVRO | {"onValueError": "divert"}, registry)
    with pytest.raises(SchemaError, match="no Spark type holds a recursive schema"):  # here, not in a task
        reasons.for_next({})


@pytest.mark.parametrize(
    ("ddl", "options", "text"),
    [
        ("binary", {"valueFormat": "string"}, "value is string, not binary in the format string"),
        ("struct<ident: bigint>", {"valueFormat": "json", "valueSchema": "id BIGINT"}, r"has no value\.ident"),
    ],
)
def test_a_type_of_text_or_json_is_checked_before_any_task(ddl: str, options: dict[str, str], text: str) -> None:
    for ask in ("for_next", "for_planned"):
        with pytest.raises(SchemaError, match=text):
            getattr(query({"value": ddl}, options), ask)({})


def test_an_id_in_the_options_decides_whatever_the_newest_version_is(registry: Subjects) -> None:
    registry.put(SUBJECT, 1, record(ID))
    registry.put(SUBJECT, 2, record(COUNTRY))
    first, second = (AVRO | {"valueReaderSchemaId": number} for number in ("1", "2"))
    found = query(ONLY_ID, first, registry).for_next({})
    assert found == {"value": {"format": "avro", "id": 1}}
    country = query({"value": "struct<country: string>"}, second, registry)
    later = country.for_next(found)
    assert later == {"value": {"format": "avro", "id": 2}}
    assert query(ONLY_ID, first, registry).for_planned(later) == later  # a planned micro-batch keeps its schema
    with pytest.raises(SchemaError, match="the schema of id 1 is AVRO, and the format is protobuf"):
        PykafkaWireDataSource(
            ORDERS | {"schema.registry.url": registry.url, "valueFormat": "protobuf", "valueReaderSchemaId": "1"}
        ).schema()


@given(own=st.sets(st.integers(0, 3)), stored=st.integers(0, 3), newest=st.integers(0, 3))
def test_an_id_of_a_checkpoint_means_a_schema_of_its_subject(own: set[int], stored: int, newest: int) -> None:
    """A registry that was built anew gives the id to the schema of another subject."""
    schemas = [record(ID), record(ID, NOTE), record(ID, COUNTRY), record(ID, NOTE, COUNTRY)]
    logged = {"value": {"format": "avro", "id": 1, "subject": SUBJECT}}
    responses: dict[str, Any] = {}
    with scripted_registry(responses) as url:
        registry = Subjects(url, responses)
        registry.put("others-value", 1, schemas[stored])
        registry.put(SUBJECT, 2, schemas[newest])
        registry.versions(SUBJECT, *(schemas[nth] for nth in sorted(own | {newest})))
        pinned = query(ONLY_ID, AVRO, registry)
        for ask in (pinned.for_next, pinned.for_planned):
            if stored in own | {newest}:
                assert ask(logged) == logged
            else:
                with pytest.raises(SchemaError, match="no version of the subject has"):
                    ask(logged)
        latest = query(ONLY_ID, AVRO | {"readerSchema": "latest"}, registry)
        assert latest.for_next(logged) == {"value": logged["value"] | {"id": 2}}


def test_json_takes_its_type_from_the_dataframe() -> None:
    json = {"valueFormat": "json", "onValueError": "divert"}
    assert query({"value": "struct<id: bigint>", "valueError": "string"}, json).for_next({}) == {}
    missing = r"valueFormat=json needs the type of the value: .*\"valueSchema\".* or as a struct in \.schema\(\"value "
    with pytest.raises(OptionError, match=missing):
        PykafkaWireDataSource(ORDERS | json).schema()
    with pytest.raises(OptionError, match=missing):
        query({"valueError": "string"}, json).for_next({})


def test_a_key_that_is_typed_later_leaves_the_value_s_schema(registry: Subjects) -> None:
    registry.put(SUBJECT, 1, record(ID))
    before = query(ONLY_ID, AVRO, registry).for_next({})
    registry.put(SUBJECT, 2, record(COUNTRY))  # which has no id
    registry.put("orders-key", 3, '"long"')
    other = query({"key": "bigint", **ONLY_ID}, AVRO | {"keyFormat": "avro"}, registry)
    key = {"key": {"format": "avro", "id": 3, "subject": "orders-key"}}
    assert other.for_planned(before) == key | before
    assert other.for_next(before) == key | before


def test_a_column_that_is_left_out_for_a_while_keeps_its_schema(registry: Subjects) -> None:
    registry.put(SUBJECT, 1, record(ID))
    before = query(ONLY_ID, AVRO, registry).for_next({})
    registry.put(SUBJECT, 2, record(ID, NOTE))
    without = query({"offset": "bigint"}, AVRO | {"schema.registry.url": "http://127.0.0.1:1"})
    assert without.for_planned(before) == {}
    assert without.for_next(before) == before
    as_json = query(ONLY_ID, {"valueFormat": "json"})
    assert (as_json.for_planned(before), as_json.for_next(before)) == ({}, before)
    assert query(ONLY_ID, AVRO, registry).for_next(before) == before


def test_a_planned_micro_batch_is_read_as_it_was_planned(registry: Subjects) -> None:
    registry.put(SUBJECT, 1, record(ID))
    before = query(ONLY_ID, AVRO, registry).for_next({})
    registry.put("other", 2, record({"name": "id", "type": "string"}))
    changed = query({"value": "struct<id: string>"}, AVRO | {"valueSubject": "other"}, registry)
    with pytest.raises(
        SchemaError, match=r"planned with the schema of subject orders-value, id 1.* with \.schema\(…\) until"
    ):
        changed.for_planned(before)
    assert changed.for_next(before) == {"value": {"format": "avro", "id": 2, "subject": "other"}}


def test_what_the_log_says_of_a_schema_that_the_options_changed(
    registry: Subjects, caplog: pytest.LogCaptureFixture
) -> None:
    registry.put(SUBJECT, 1, record(ID))
    by_id = query(ONLY_ID, AVRO, registry).for_next({})
    by_text = query(ONLY_ID, AVRO | {"valueSchema": record(ID)}).for_next({})
    with caplog.at_level(logging.WARNING, "pykafka_wire"):
        query(ONLY_ID, AVRO | {"valueSchema": record(ID, NOTE)}).for_next(by_text)
        query(ONLY_ID, AVRO | {"valueSchema": record(ID)}).for_next(by_id)  # and no registry
    one, other = (each.getMessage() for each in caplog.records)
    assert "in place of the text that valueSchema had before: value.note string is new" in one
    assert "id 1: their types cannot be compared: the checkpoint names the schema of id 1, and there is no" in other
