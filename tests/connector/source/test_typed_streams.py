"""The reader's schemas of a stream, as Spark calls the source, without a session: pinned in offsets, replayed, and newer ones.

Each ``TypedProcess`` is one start of a query: Spark asks a data source for its schema, pickles it, and makes readers of the copy.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.errors import OffsetsError, OptionError, RegistryError, SchemaError
from tests.connector.source.typed_topics import COUNTRY, ID, NOTE, TypedTopic, record
from tests.connector.values.scripted_registry import scripted_registry

pytestmark = pytest.mark.broker

OLD, NEW = record(ID), record(ID, NOTE)


class TypedProcess:
    """One start of a query: ``load()`` and the process of its reader."""

    def __init__(self, options: dict[str, str], schema: StructType | None = None) -> None:
        source = PykafkaWireDataSource(options)
        self.schema: Any = schema or source.schema()
        source = pickle.loads(pickle.dumps(source))
        self.reader = source.streamReader(self.schema)
        self._tasks = source.streamReader(self.schema)

    @property
    def type(self) -> str:
        return str(self.schema["value"].dataType.simpleString())

    def initial(self) -> str:
        return json.dumps(self.reader.initialOffset())

    def latest(self, start: str) -> str:
        return json.dumps(self.reader.latestOffset(json.loads(start), ReadAllAvailable()))

    def values(self, start: str, end: str) -> list[Any]:
        """The values of a micro-batch, planned here and read by another reader, as on an executor."""
        tasks = pickle.loads(pickle.dumps(self._tasks))
        partitions = self.reader.partitions(json.loads(start), json.loads(end))
        batches = [batch for one in partitions for batch in tasks.read(pickle.loads(pickle.dumps(one)))]
        rows = sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["offset"])
        return [row["value"] for row in rows]


Start = Callable[..., TypedProcess]


@pytest.fixture
def typed_topic(registry_url: str, topic: Any, outside: Any) -> TypedTopic:
    return TypedTopic(registry_url, topic(1), outside)


@pytest.fixture
def start_query(kafka: Any, registry_url: str, typed_topic: TypedTopic) -> Iterator[Start]:
    """Starts the query anew, with these options beside those of a query over Avro values."""
    started: list[TypedProcess] = []

    def start(schema: StructType | None = None, **options: str) -> TypedProcess:
        asked = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": typed_topic.name,
            "startingOffsets": "earliest",
            "schema.registry.url": registry_url,
            "valueFormat": "avro",
        }
        started.append(TypedProcess(asked | options, schema))
        return started[-1]

    yield start
    for one in started:
        one.reader.stop()


def pinned(offset: str) -> Any:
    return json.loads(offset).get("reader_schemas", {}).get("value")


def test_every_micro_batch_has_the_schema_that_the_query_started_with(
    typed_topic: TypedTopic, start_query: Start
) -> None:
    number = typed_topic.register(OLD)
    one = start_query()
    start = one.initial()
    end = one.latest(start)  # over nothing
    assert pinned(end) == {"format": "avro", "id": number, "subject": f"{typed_topic.name}-value"}
    assert one.latest(end) == end
    typed_topic.write([typed_topic.encoded(OLD, {"id": 1})])
    later = one.latest(end)
    assert (one.values(end, later), pinned(later)) == ([{"id": 1}], pinned(end))
    # A writer that is newer than the query: its values are resolved to the query's schema.
    typed_topic.write([typed_topic.encoded(NEW, {"id": 2, "note": "n"})])
    last = one.latest(later)
    assert (one.values(later, last), pinned(last)) == ([{"id": 2}], pinned(end))


def test_a_restart_continues_with_the_checkpoint_s_schema_and_names_what_is_null(
    typed_topic: TypedTopic, start_query: Start, caplog: pytest.LogCaptureFixture
) -> None:
    typed_topic.write([typed_topic.encoded(OLD, {"id": 1})])
    one = start_query()
    start = one.initial()
    end = one.latest(start)
    typed_topic.write([typed_topic.encoded(NEW, {"id": 2, "note": "n"})])
    other = start_query()
    assert other.type == "struct<id:bigint,note:string>"
    with caplog.at_level(logging.WARNING, "pykafka_wire"):
        assert other.values(start, end) == [{"id": 1, "note": None}]  # the replay
        later = other.latest(end)
        assert other.values(end, later) == [{"id": 2, "note": None}]
    assert pinned(later) == pinned(end)
    (warning,) = [each.getMessage() for each in caplog.records]
    assert (
        "which has no value.note: null in this query. To read later micro-batches with the schema of subject" in warning
    )
    assert "set readerSchema to latest" in warning


def test_the_newest_schema_is_taken_from_the_next_micro_batch_on(
    typed_topic: TypedTopic, start_query: Start, caplog: pytest.LogCaptureFixture
) -> None:
    typed_topic.write([typed_topic.encoded(OLD, {"id": 1})])
    one = start_query()
    start = one.initial()
    end = one.latest(start)
    written = typed_topic.encoded(NEW, {"id": 2, "note": "n"})
    typed_topic.write([written])
    other = start_query(readerSchema="latest")
    with caplog.at_level(logging.WARNING, "pykafka_wire"):
        assert other.values(start, end) == [{"id": 1, "note": None}]  # planned with the older one
        assert pinned(end) != pinned(other.latest(end))
    later = other.latest(end)
    assert pinned(later)["id"] == int.from_bytes(written[1:5], "big")
    assert other.values(end, later) == [{"id": 2, "note": "n"}]
    assert any("value.note string is new" in each.getMessage() for each in caplog.records)
    assert other.latest(later) == later  # a newer schema alone is no progress


def test_types_that_contradict_the_checkpoint_are_refused_with_both(
    typed_topic: TypedTopic, start_query: Start
) -> None:
    typed_topic.register(OLD)
    one = start_query()
    end = one.latest(one.initial())
    typed_topic.write([typed_topic.encoded(record({"name": "id", "type": "string"}), {"id": "x"})])
    other = start_query()
    with pytest.raises(
        SchemaError, match=r"contradicts it: value\.id is bigint, not string\. Set readerSchema to latest"
    ):
        other.latest(end)
    newer = start_query(readerSchema="latest")
    later = newer.latest(end)
    assert newer.values(end, later) == [{"id": "x"}]


def test_a_query_from_before_typed_columns_takes_the_newest(typed_topic: TypedTopic, start_query: Start) -> None:
    typed_topic.write([typed_topic.encoded(OLD, {"id": 1})])
    one = start_query()
    start = one.initial()
    end = one.latest(start)
    found = json.loads(end)
    del found["reader_schemas"]
    old = json.dumps(found)
    other = start_query()
    assert other.values(start, old) == [{"id": 1}]
    assert other.latest(old) == old
    typed_topic.write([typed_topic.encoded(OLD, {"id": 2})])
    assert pinned(other.latest(old)) == pinned(end)


def test_the_users_schema_is_read_with_the_checkpoint_s(typed_topic: TypedTopic, start_query: Start) -> None:
    from pyspark.sql.types import LongType, StringType

    typed_topic.write([typed_topic.encoded(record(ID, COUNTRY), {"id": 1, "country": "NO"})])
    wanted = StructType().add("offset", LongType())
    only_id = StructType(list(wanted.fields)).add("value", StructType().add("id", LongType()))
    one = start_query(only_id)
    start = one.initial()
    end = one.latest(start)
    assert one.values(start, end) == [{"id": 1}]
    typed_topic.write([typed_topic.encoded(record(ID, COUNTRY, NOTE), {"id": 2, "country": "NO", "note": "n"})])
    with_note = StructType(list(wanted.fields)).add(
        "value", StructType().add("note", StringType()).add("country", StringType())
    )
    other = start_query(with_note)
    assert other.values(end, other.latest(end)) == [{"note": None, "country": "NO"}]
    unknown = start_query(StructType(list(wanted.fields)).add("value", StructType().add("nonsense", StringType())))
    with pytest.raises(SchemaError, match=r"has no value\.nonsense"):
        unknown.latest(end)


def test_a_text_is_pinned_and_a_changed_one_is_taken(typed_topic: TypedTopic, start_query: Start) -> None:
    typed_topic.write([typed_topic.encoded(OLD, {"id": 1})])
    one = start_query(valueSchema=OLD)
    start = one.initial()
    end = one.latest(start)
    assert pinned(end) == {"format": "avro", "schema": OLD}
    typed_topic.write([typed_topic.encoded(NEW, {"id": 2, "note": "n"})])
    other = start_query(valueSchema=NEW)
    assert other.values(start, end) == [{"id": 1, "note": None}]
    later = other.latest(end)
    assert (pinned(later)["schema"], other.values(end, later)) == (NEW, [{"id": 2, "note": "n"}])


def test_json_of_a_registry_keeps_its_type_over_restarts(
    typed_topic: TypedTopic, start_query: Start, caplog: Any
) -> None:
    def register(**properties: str) -> int:
        schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}
        return typed_topic.register(json.dumps(schema), "JSON")

    first = register(id="integer")
    typed_topic.write([b'{"id": 1}', b'{"id": 2, "note": "n"}'])
    one = start_query(valueFormat="json")
    end = one.latest(one.initial())
    assert pinned(end) == {"format": "json", "id": first, "subject": f"{typed_topic.name}-value"}
    assert (one.type, one.values(one.initial(), end)) == ("struct<id:bigint>", [{"id": 1}, {"id": 2}])
    register(id="integer", note="string")
    with caplog.at_level(logging.WARNING):
        wider = start_query(valueFormat="json")
        assert wider.values(one.initial(), end) == [{"id": 1, "note": None}, {"id": 2, "note": "n"}]
        assert wider.latest(end) == end  # which still has the first schema
    assert "has no value.note: read where documents have it" in caplog.text
    third = register(id="string")
    with pytest.raises(SchemaError, match=r"value\.id is bigint, not string\. .*readerSchema=latest"):
        start_query(valueFormat="json").values(one.initial(), end)
    own = start_query(valueFormat="json", valueSchema="id STRING")
    assert own.values(one.initial(), end) == [{"id": "1"}, {"id": "2"}]
    typed_topic.write([b'{"id": "3"}'])
    newest = start_query(valueFormat="json", readerSchema="latest")
    later = newest.latest(end)
    assert (pinned(later)["id"], newest.values(end, later)) == (third, [{"id": "3"}])


def test_an_idle_query_and_a_running_one_do_not_ask_the_registry(kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    responses: dict[str, Any] = {}
    with scripted_registry(responses) as url:
        responses[f"/subjects/{name}-value/versions/latest"] = {"id": 5, "schema": OLD}
        responses["/schemas/ids/5"] = {"schema": OLD}
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "valueFormat": "avro"}
        one = TypedProcess(options | {"schema.registry.url": url, "startingOffsets": "earliest"})
        end = one.latest(one.initial())
        responses.clear()
        assert one.latest(end) == end
        outside.produce(name, [outside.Record(value=b"\0\0\0\0\x05\x02")])
        later = one.latest(end)
        assert one.values(end, later) == [{"id": 1}]
        one.reader.stop()


def test_a_checkpoint_s_schema_that_is_gone_is_named(kafka: Any, topic: Any) -> None:
    name = topic(1)
    responses: dict[str, Any] = {f"/subjects/{name}-value/versions/latest": {"id": 5, "schema": OLD}}
    responses["/schemas/ids/5"] = {"schema": OLD}
    with scripted_registry(responses) as url:
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "valueFormat": "avro"}
        one = TypedProcess(options | {"schema.registry.url": url})
        end = json.loads(one.latest(one.initial()))
        end["reader_schemas"]["value"]["id"] = 4
        with pytest.raises(SchemaError, match=r"does not have the schema of id 4 \(subject .*readerSchema to latest"):
            one.reader.partitions(end | {"initial": True}, end)
        end["reader_schemas"]["value"] = {"format": "avro"}
        with pytest.raises(OffsetsError, match="the reader's schemas in the checkpoint are damaged"):
            one.reader.partitions(end | {"initial": True}, end)
        one.reader.stop()
    with pytest.raises(RegistryError):
        TypedProcess(options | {"schema.registry.url": "http://127.0.0.1:1"})


def test_before_42_a_replay_has_its_schema_too(
    typed_topic: TypedTopic, start_query: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykafka_wire.source.stream_reader.HAS_ADMISSION_CONTROL", False)
    typed_topic.write([typed_topic.encoded(OLD, {"id": 1})])
    one = start_query()
    end = json.dumps(one.reader.latestOffset())
    start = one.initial()
    assert one.values(start, end) == [{"id": 1}]
    typed_topic.write([typed_topic.encoded(NEW, {"id": 2, "note": "n"})])
    other = start_query()
    assert other.reader.partitions(json.loads(end), json.loads(end)) == []
    assert other.values(other.initial(), end) == [{"id": 1, "note": None}]
    later = json.dumps(other.reader.latestOffset())
    assert (pinned(later), other.values(end, later)) == (pinned(end), [{"id": 2, "note": None}])


def test_selected_fields_go_on_from_a_checkpoint_with_a_newer_schema(
    start_query: Start, typed_topic: TypedTopic
) -> None:
    typed_topic.write([typed_topic.encoded(OLD, {"id": 1})])
    first = start_query(columns="value.id, offset")
    assert first.schema.simpleString() == "struct<value:struct<id:bigint>,offset:bigint>"
    zero = first.initial()
    one = first.latest(zero)
    assert first.values(zero, one) == [{"id": 1}]
    typed_topic.write([typed_topic.encoded(NEW, {"id": 2, "note": "n"})])
    second = start_query(
        columns="offset, value.note, value.id"
    )  # another selection, of a field that the pinned schema lacks
    two = second.latest(one)
    assert second.values(one, two) == [{"note": None, "id": 2}]
    third = start_query(columns="value.note, offset", readerSchema="latest")
    typed_topic.write([typed_topic.encoded(NEW, {"id": 3, "note": "m"})])
    assert third.values(two, third.latest(two)) == [{"note": "m"}]
    with pytest.raises(
        OptionError, match=r"columns selects offset, but \.schema\(…\), .* is struct<value:.*>: leave one of them out"
    ):
        start_query(third.schema, columns="offset")
