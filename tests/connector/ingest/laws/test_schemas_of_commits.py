"""A range is read with the schema that its commit names, whatever the newest schema is, and whatever both refer to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructType

from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest import Table
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.settings.model import Destination, Settings
from tests.connector.ingest.laws.generated import examples
from tests.connector.values.scripted_registry import scripted_registry

#: The type of a field in Avro, in Protobuf and in Spark.
KINDS = {"long": ("int64", "bigint"), "string": ("string", "string"), "double": ("double", "double")}
FIELDS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(sorted(KINDS)), min_size=1)


def _avro(fields: dict[str, str], depth: int) -> tuple[str, list[Any]]:
    """Return a schema, and the schemas that it refers to, the innermost first."""
    row: list[Any] = [{"name": name, "type": kind} for name, kind in sorted(fields.items())]
    inner = []
    for level in range(depth):
        within: list[Any] = [{"name": "x", "type": f"P{level - 1}" if level else "long"}]
        inner.append(json.dumps({"type": "record", "name": f"P{level}", "fields": within}))
    if depth:
        row.append({"name": "p", "type": f"P{depth - 1}"})
    return json.dumps({"type": "record", "name": "Row", "fields": row}), inner


def _protobuf(fields: dict[str, str], depth: int) -> tuple[str, list[Any]]:
    lines = [f"{KINDS[kind][0]} {name} = {ord(name)};" for name, kind in sorted(fields.items())]
    inner = []
    for level in range(depth):
        begin = f'import "P{level - 1}";' if level else ""
        kind = f"P{level - 1}" if level else "int64"
        inner.append(f'syntax = "proto3"; {begin} message P{level} {{ {kind} x = 1; }}')
    begin = f'import "P{depth - 1}";' if depth else ""
    place = f"P{depth - 1} p = 1;" if depth else ""
    return f'syntax = "proto3"; {begin} message Row {{ {" ".join(lines)} {place} }}', inner


@given(
    kind=st.sampled_from(["AVRO", "PROTOBUF"]),
    versions=st.lists(st.tuples(FIELDS, st.integers(0, 2)), min_size=2, max_size=4),
    types=st.sampled_from([(), ("*",), ("Row",)]),
    data=st.data(),
)
@examples(80)
def test_a_range_is_read_with_the_schema_of_its_commit(
    kind: str, versions: list[tuple[dict[str, str], int]], types: tuple[str, ...], data: st.DataObject
) -> None:
    numbers = [*range(1, len(versions) + 1)]
    responses: dict[str, Any] = {
        "/subjects/t-value/versions": numbers,
        "/subjects/t-value/versions?deleted=true": numbers,
    }
    for version, (fields, depth) in enumerate(versions, 1):
        text, inner = _avro(fields, depth) if kind == "AVRO" else _protobuf(fields, depth)
        references: list[Any] = []
        for level, part in enumerate(inner):
            responses[f"/subjects/P{level}/versions/1"] = {
                "schemaType": kind, "schema": part, "references": references,
            }  # fmt: skip
            references = [{"name": f"P{level}", "subject": f"P{level}", "version": 1}]
        document = {"schemaType": kind, "schema": text, "references": references, "id": version, "version": version}
        responses[f"/schemas/ids/{version}"] = responses[f"/subjects/t-value/versions/{version}"] = document
    responses["/subjects/t-value/versions/latest"] = document
    number = data.draw(st.integers(1, len(versions)))
    with scripted_registry(responses) as url:
        settings = Settings(checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics="t", into="/l", registry=url)
        reader = TableReaders(settings).of(Destination(topic="t", name="t", table=Table(topic="t", types=types)))
        schema = reader.schemas.value_schema(number)
        topic_range = TopicRange(topic="t", topic_id="", start={0: 0}, end={0: 1})
        session: Any = None  # no plan of such a table asks Spark
        options = reader.plan(session, topic_range, schema, None).options
        columns: Any = PykafkaWireDataSource(options).schema()
    value = columns["value"].dataType["Row"].dataType if types else columns["value"].dataType
    fields, depth = versions[number - 1]
    expected = {name: KINDS[kind][1] for name, kind in fields.items()}
    assert {field.name: field.dataType.simpleString() for field in value if field.name != "p"} == expected
    assert ("p" in value.names) == (depth > 0)


@given(versions=st.lists(FIELDS, min_size=1, max_size=3), stored=FIELDS)
@examples(40)
def test_an_id_of_a_commit_means_a_schema_of_its_subject(
    versions: list[dict[str, str]], stored: dict[str, str]
) -> None:
    """A registry that was built anew gives the id to the schema of another subject."""
    texts = [_avro(fields, 0)[0] for fields in versions]
    foreign = _avro(stored, 0)[0]
    responses: dict[str, Any] = {"/subjects/t-value/versions?deleted=true": [*range(1, len(texts) + 1)]}
    responses |= {f"/subjects/t-value/versions/{number}": {"schema": text} for number, text in enumerate(texts, 1)}
    responses["/schemas/ids/7"] = {"schema": foreign}
    with scripted_registry(responses) as url:
        settings = Settings(checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics="t", into="/l", registry=url)
        schemas = TableReaders(settings).of(Destination(topic="t", name="t", table=Table(topic="t"))).schemas
        if foreign in texts:
            assert schemas.value_schema(7).schema_id == 7
        else:
            with pytest.raises(IngestError, match="no version of the subject has"):
                schemas.value_schema(7)


class _Table:
    """A table with columns of these names."""

    def __init__(self, names: set[str]) -> None:
        self.schema = StructType()
        for name in sorted(names):
            self.schema.add(name, LongType())

    def topic_columns(self) -> list[Any]:
        return [*self.schema.fields]

    def properties(self) -> dict[str, str]:
        return {}


@given(
    kind=st.sampled_from(["AVRO", "PROTOBUF"]),
    older=st.tuples(FIELDS, st.integers(0, 1)),
    newer=st.tuples(FIELDS, st.integers(0, 1)),
    held=st.sets(st.sampled_from("abc")),
)
@examples(80)
def test_a_value_with_a_field_that_an_older_schema_would_drop_is_refused(
    kind: str, older: tuple[dict[str, str], int], newer: tuple[dict[str, str], int], held: set[str]
) -> None:
    """A table that diverts reads with its previous schema, and with fields of other versions of Avro that are its columns."""
    responses: dict[str, Any] = {
        "/subjects/t-value/versions": [1, 2],
        "/subjects/t-value/versions?deleted=true": [1, 2],
    }
    for version, (fields, depth) in enumerate((older, newer), 1):
        text, inner = _avro(fields, depth) if kind == "AVRO" else _protobuf(fields, depth)
        if inner:
            responses["/subjects/P0/versions/1"] = {"schemaType": kind, "schema": inner[0]}
        references = [{"name": "P0", "subject": "P0", "version": 1}] if inner else []
        document = {"schemaType": kind, "schema": text, "references": references, "id": version, "version": version}
        responses[f"/schemas/ids/{version}"] = responses[f"/subjects/t-value/versions/{version}"] = document
    responses["/subjects/t-value/versions/latest"] = responses["/subjects/t-value"] = document
    with scripted_registry(responses) as url:
        settings = Settings(checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics="t", into="/l", registry=url)
        reader = TableReaders(settings).of(Destination(topic="t", name="t", table=Table(topic="t")))
        refused = reader.older_schema(1, _Table(held)).refused
    before, after = ({*fields, *(["p"] if depth else [])} for fields, depth in (older, newer))
    lost = after - before - (held if kind == "AVRO" else set())
    assert refused == ({"2"} if lost else set())
