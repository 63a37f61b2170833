"""Several types of records in one topic, as Confluent's serializers write them: subjects, a union, Protobuf messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire import read_topic
from pykafka_wire.errors import OptionError, SchemaError
from tests.connector.source.test_typed_streams import TypedProcess, pinned
from tests.connector.source.typed_topics import ID, NOTE, record

pytestmark = pytest.mark.broker

ORDER, REFUND = record(ID, name="Order"), record(ID, NOTE, name="Refund")
OTHER = record(ID, name="Other")


@pytest.fixture
def name(topic: Any) -> str:
    return str(topic(1))


@pytest.fixture
def client(registry_url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry_url})


Read = Callable[..., Any]


@pytest.fixture
def read(kafka: Any, name: str, registry_url: str) -> Read:
    """The rows of the topic as Python values, and their columns' type."""

    def rows(**options: str) -> list[dict[str, Any]]:
        asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "valueFormat": "avro"}
        found = read_topic({**asked, "schema.registry.url": registry_url, **options}).read_all()
        return list(found.to_pylist())

    return rows


def write(outside: Any, name: str, values: list[bytes | None]) -> None:
    outside.produce(name, [outside.Record(value=value) for value in values])


def avro(client: SchemaRegistryClient, schema: Any, strategy: Any, **conf: Any) -> Callable[[str, Any], bytes]:
    serializer = AvroSerializer(client, schema, conf={"subject.name.strategy": strategy, **conf})
    return lambda topic, row: bytes(serializer(row, SerializationContext(topic, MessageField.VALUE)))


def test_types_of_subjects_with_their_names(name: str, client: Any, outside: Any, read: Read) -> None:
    order, refund, other = (avro(client, each, topic_record_subject_name_strategy) for each in (ORDER, REFUND, OTHER))
    rows = [order(name, {"id": 1}), refund(name, {"id": 2, "note": "n"}), None, other(name, {"id": 3})]
    write(outside, name, [*rows, order(name, {"id": 4}), b"\0\0\x7f\0\0x", b"?"])
    options = {"value.subject.name.strategy": "TopicRecordNameStrategy", "includeValueSchema": "true"}
    named = {**options, "valueTypes": "shop.Order,shop.Refund", "onValueError": "divert"}
    found = read(**named)
    assert [row["value"] for row in found] == [
        {"Order": {"id": 1}, "Refund": None},
        {"Order": None, "Refund": {"id": 2, "note": "n"}},
        None,
        None,
        {"Order": {"id": 4}, "Refund": None},
        None,
        None,
    ]
    assert [row["valueSchemaName"] for row in found] == [
        "shop.Order", "shop.Refund", None, "shop.Other", "shop.Order", None, None,
    ]  # fmt: skip
    ids = [None if row is None else str(int.from_bytes(row[1:5], "big")) for row in rows]
    assert [row["valueSchemaId"] for row in found] == [*ids, ids[0], str(0x7F0000), None]
    reasons = [row["valueError"] for row in found]
    assert reasons[:3] + reasons[4:5] == [None] * 4
    assert reasons[3] == "its type is none that valueTypes names"
    assert "no such schema" in reasons[5] and "do not begin with" in reasons[6]
    skipped = read(**named, onOtherValueType="skip")
    assert [row["offset"] for row in skipped] == [0, 1, 2, 4, 5, 6]
    nulls = read(**named, onOtherValueType="null")
    assert (nulls[3]["value"], nulls[3]["valueError"], len(nulls)) == (None, None, 7)
    with pytest.raises(
        (OSError, pa.ArrowException),
        match=r"offset 3 cannot be decoded as avro: its type is none that valueTypes names",
    ):
        read(**options, valueTypes="shop.Order,shop.Refund")
    every = read(**options, valueTypes="*", onValueError="null", columns="value.Other.id, value.Order, valueSchemaName")
    assert [row["value"] for row in every][2:5] == [
        None,
        {"Other": {"id": 3}, "Order": None},
        {"Other": None, "Order": {"id": 4}},
    ]
    assert every[1] == {"value": None, "valueSchemaName": "shop.Refund"}


def test_an_older_version_of_a_type_is_resolved_to_its_newest(name: str, client: Any, outside: Any, read: Read) -> None:
    unique = name.replace("-", "_")  # subjects of RecordNameStrategy are the registry's, for all topics
    older, newer = record(ID, name=f"R{unique}"), record(ID, NOTE, name=f"R{unique}")
    values = [
        avro(client, each, record_subject_name_strategy)(name, {"id": n, "note": "n"})
        for n, each in enumerate((older, newer))
    ]
    write(outside, name, values)
    options = {"value.subject.name.strategy": "RecordNameStrategy"}
    found = read(**options, valueTypes=f"shop.R{unique}", columns="value")
    assert [row["value"] for row in found] == [
        {f"R{unique}": {"id": n, "note": note}} for n, note in ((0, None), (1, "n"))
    ]
    with pytest.raises(OptionError, match=r"valueTypes=.* needs subjects that begin with the topic's name"):
        read(**options, valueTypes="*")
    with pytest.raises(SchemaError, match=r"has no subject shop\.Nothing"):
        read(**options, valueTypes="shop.Nothing")


def test_the_branches_of_a_union(name: str, client: Any, outside: Any, read: Read) -> None:
    references = []
    for each in (ORDER, REFUND):
        full = f"shop.{json.loads(each)['name']}"
        client.register_schema(f"{name}-{full}", Schema(each, "AVRO"))
        references.append(SchemaReference(full, f"{name}-{full}", 1))
    union = Schema(json.dumps(["null", "shop.Order", "shop.Refund", "string"]), "AVRO", references)
    client.register_schema(f"{name}-value", union)
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    from confluent_kafka.schema_registry import topic_subject_name_strategy

    write_one = avro(client, union, topic_subject_name_strategy, **conf)
    values = [("shop.Order", {"id": 1}), ("shop.Refund", {"id": 2, "note": None}), "text", ("shop.Order", {"id": 3})]
    written = [write_one(name, each) for each in values]
    frame = written[0][:5]
    write(outside, name, [*written, frame + b"\0", frame + b"\x09", frame, frame + b"\x80\x01", frame + b"\x02"])
    found = read(valueTypes="*", onValueError="divert", onOtherValueType="skip", columns="value, offset, valueError")
    assert [row["value"] for row in found] == [
        {"Order": {"id": 1}, "Refund": None},
        {"Order": None, "Refund": {"id": 2, "note": None}},
        {"Order": {"id": 3}, "Refund": None},
        *[None] * 5,
    ]
    assert [row["offset"] for row in found] == [0, 1, 3, 4, 5, 6, 7, 8]
    assert [row["valueError"] is None for row in found] == [True, True, True, True, False, False, False, False]
    assert found[6]["valueError"] == "its union has no branch 64"
    text = read(valueTypes="*", onValueError="divert", columns="value, valueError")[2]
    assert text == {"value": None, "valueError": "its type is none that valueTypes names"}


def test_messages_of_one_file(name: str, client: Any, outside: Any, read: Read) -> None:
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="shop", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for message in ("Order", "Refund", "Other"):
        file.message_type.add(name=message).field.add(
            name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    values = []
    for number, message in enumerate(("Order", "Refund", "Other", "Order")):
        cls = GetMessageClass(pool.FindMessageTypeByName(f"shop.{message}"))
        serializer = ProtobufSerializer(cls, client, {"use.deprecated.format": False})
        values.append(bytes(serializer(cls(id=number), SerializationContext(name, MessageField.VALUE))))
    write(outside, name, values)
    found = read(
        valueFormat="protobuf", valueTypes="Order, shop.Other", onOtherValueType="skip", includeValueSchema="true"
    )
    assert [(row["valueSchemaName"], row["value"]) for row in found] == [
        ("shop.Order", {"Order": {"id": 0}, "Other": None}),
        ("shop.Other", {"Order": None, "Other": {"id": 2}}),
        ("shop.Order", {"Order": {"id": 3}, "Other": None}),
    ]
    every = read(valueFormat="protobuf", valueTypes="*", columns="value")
    assert list(every[1]["value"]) == ["Order", "Refund", "Other"]
    with pytest.raises(OptionError, match=r"no message Nothing \(there are Order, Refund, Other\)"):
        read(valueFormat="protobuf", valueTypes="Nothing")


def test_a_stream_keeps_the_schema_of_each_type(
    kafka: Any, name: str, client: Any, outside: Any, registry_url: str
) -> None:
    order = avro(client, ORDER, topic_record_subject_name_strategy)
    write(outside, name, [order(name, {"id": 1})])
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "startingOffsets": "earliest",
        "valueFormat": "avro",
        "schema.registry.url": registry_url,
        "value.subject.name.strategy": "TopicRecordNameStrategy",
        "onOtherValueType": "skip",
    }
    one = TypedProcess({**options, "valueTypes": "*"})
    start = one.initial()
    end = one.latest(start)
    assert [each["message"] for each in pinned(end)["types"]] == ["shop.Order"]
    newer = avro(client, record(ID, NOTE, name="Order"), topic_record_subject_name_strategy)
    refund = avro(client, REFUND, topic_record_subject_name_strategy)
    write(outside, name, [newer(name, {"id": 2, "note": "n"}), refund(name, {"id": 3})])
    other = TypedProcess({**options, "valueTypes": "*"})
    assert other.type == "struct<Order:struct<id:bigint,note:string>,Refund:struct<id:bigint,note:string>>"
    assert other.values(start, end) == [{"Order": {"id": 1, "note": None}, "Refund": None}]
    later = other.latest(end)
    assert pinned(later) == pinned(end)
    assert other.values(end, later) == [{"Order": {"id": 2, "note": None}, "Refund": None}]
    newest = TypedProcess({**options, "valueTypes": "*", "readerSchema": "latest"})
    assert len(pinned(newest.latest(end))["types"]) == 2
    for each in (one, other, newest):
        each.reader.stop()
