"""Values under a schema registry: what Confluent's serializers write is read here, and the reverse, by way of a real registry."""

from __future__ import annotations

import datetime
import json
import pickle
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.functions import expr

from pykafka_wire.errors import OptionError, RegistryError, ValueFormatError
from pykafka_wire.local.cluster import free_ports
from pykafka_wire.values import OnError, Registry, Schema
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import Converter, Format
from pykafka_wire.values.json.format import JsonSchema
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.registry import confluent as registry_module
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import encode_frame
from pykafka_wire.values.registry.registered_schema import Reference
from pykafka_wire.values.registry.schemas import WriterSchema

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
            {"name": "raw", "type": "bytes"},
        ],
    }
)
ROW = {
    "id": 2**40,
    "ref": uuid.UUID(int=7),
    "price": Decimal("12.50"),
    "at": datetime.datetime(2026, 3, 1, 12, 30, 0, 5000, tzinfo=datetime.timezone.utc),
    "day": datetime.date(2026, 3, 1),
    "note": None,
    "tags": ["a", "ü"],
    "counts": {"x": 1},
    "state": "SENT",
    "raw": b"\x00\xff",
}
ORDER_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("ref", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("note", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("state", pa.string()),
        ("raw", pa.binary()),
    ]
)
ROW_IN_ARROW = {**ROW, "ref": str(ROW["ref"]), "counts": [("x", 1)]}
ID_TYPE = pa.struct([("id", pa.int64())])
ID_SCHEMA = json.dumps({"type": "record", "name": "Id", "fields": [{"name": "id", "type": "long"}]})


@pytest.fixture
def registry(registry_url: str) -> Registry:
    return Registry(registry_url)


@pytest.fixture
def confluent(registry_url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry_url})


@pytest.fixture
def subject() -> str:
    return f"s{uuid.uuid4().hex[:8]}-value"


def context(subject: str) -> SerializationContext:
    return SerializationContext(subject.removesuffix("-value"), MessageField.VALUE)


def decoded(
    value_format: Format, column_type: pa.DataType, values: list[bytes | None], on_error: OnError = "fail"
) -> list[Any]:
    converter = Converter(format=value_format, type=column_type, on_error=on_error)
    return list(pickle.loads(pickle.dumps(converter))(pa.array(values, pa.binary())).to_pylist())


def encoded(value_format: Format, column: Any, on_error: OnError = "fail") -> list[Any]:
    return list(
        pickle.loads(pickle.dumps(Converter(format=value_format, type=None, on_error=on_error)))(column).to_pylist()
    )


def avro_id(confluent: SchemaRegistryClient, subject: str, number: int) -> bytes:
    return bytes(AvroSerializer(confluent, ID_SCHEMA)({"id": number}, context(subject)))


# --- Avro --------------------------------------------------------------------------------------------------------------


def test_avro_that_confluents_serializer_wrote_is_read(
    registry: Registry, confluent: SchemaRegistryClient, subject: str
) -> None:
    value = AvroSerializer(confluent, ORDER)(ROW, context(subject))
    assert decoded(Avro(registry=registry), ORDER_TYPE, [value, None]) == [ROW_IN_ARROW, None]


def test_avro_written_here_is_read_by_confluents_deserializer(
    registry: Registry, confluent: SchemaRegistryClient, subject: str
) -> None:
    value_format = Avro(registry=registry, writer=WriterSchema.of(registry, "AVRO", subject, ORDER))
    value, tombstone = encoded(value_format, pa.array([ROW_IN_ARROW, None], ORDER_TYPE))
    assert AvroDeserializer(confluent)(value, context(subject)) == ROW
    assert tombstone is None
    # The other side finds the schema under the subject, and writes the same bytes.
    newest = AvroSerializer(confluent, conf={"auto.register.schemas": False, "use.latest.version": True})
    assert newest(ROW, context(subject)) == value
    assert value_format.writer is not None
    assert WriterSchema.of(registry, "AVRO", subject, None).schema_id == value_format.writer.schema_id


@pytest.mark.parametrize("bytes_schema", ['"bytes"', '{"type": "bytes"}'])
def test_bytes_at_the_top_have_no_length_in_both_directions(
    bytes_schema: str, registry: Registry, confluent: SchemaRegistryClient, subject: str
) -> None:
    values = [b"\0\xff", b"", b"\x02a", b"x" * 300, None]
    serializer = AvroSerializer(confluent, bytes_schema)
    written = [None if each is None else serializer(each, context(subject)) for each in values]
    assert decoded(Avro(registry=registry), pa.binary(), written) == values
    value_format = Avro(registry=registry, writer=WriterSchema.of(registry, "AVRO", subject, bytes_schema))
    ours = encoded(value_format, pa.array(values, pa.binary()))
    # Behind the frames: this registry tells apart the texts of a schema.
    assert [each and each[5:] for each in ours] == [each and each[5:] for each in written]
    deserializer = AvroDeserializer(confluent)
    whole = [
        (value, frame) for value, frame in zip(values, ours, strict=True) if value
    ]  # it refuses a frame without bytes
    assert [deserializer(frame, context(subject)) for _, frame in whole] == [value for value, _ in whole]


def test_avro_references_are_followed(registry: Registry, confluent: SchemaRegistryClient, subject: str) -> None:
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    confluent.register_schema(f"{subject}-money", ConfluentSchema(json.dumps(money), "AVRO"))
    bill = {"type": "record", "name": "shop.Bill", "fields": [{"name": "sum", "type": "shop.Money"}]}
    reference = Reference(name="shop.Money", subject=f"{subject}-money", version=1)
    schema = Schema(kind="AVRO", text=json.dumps(bill), references=(reference,))
    value_format = Avro(registry=registry, writer=WriterSchema.of(registry, "AVRO", subject, schema))
    column_type = pa.struct([("sum", pa.struct([("cents", pa.int64())]))])
    rows = [{"sum": {"cents": 5}}]
    values = encoded(value_format, pa.array(rows, column_type))
    assert AvroDeserializer(confluent)(values[0], context(subject)) == rows[0]
    assert decoded(Avro(registry=registry), column_type, values) == rows


def test_a_reader_schema_brings_old_and_new_records_into_one_shape(
    registry: Registry, confluent: SchemaRegistryClient, subject: str
) -> None:
    reader = {
        "type": "record",
        "name": "Id",
        "fields": [
            {"name": "number", "aliases": ["id"], "type": "long"},
            {"name": "pieces", "type": "int", "default": 1},
        ],
    }
    old = avro_id(confluent, subject, 4)
    new = AvroSerializer(confluent, json.dumps(reader))({"number": 5, "pieces": 9}, context(subject))
    value_format = Avro(registry=registry, reader_schema=json.dumps(reader))
    column_type = pa.struct([("number", pa.int64()), ("pieces", pa.int32())])
    assert decoded(value_format, column_type, [old, new]) == [{"number": 4, "pieces": 1}, {"number": 5, "pieces": 9}]
    # Without one, fields that a record's schema does not have are null.
    assert decoded(Avro(registry=registry), column_type, [old]) == [{"number": None, "pieces": None}]


# --- JSON Schema and Protobuf ------------------------------------------------------------------------------------------

DRAFT = "http://json-schema.org/draft-07/schema#"
ORDER_JSON = json.dumps(
    {
        "$schema": DRAFT,
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 1}, "at": {"type": "string"}, "note": {"type": "string"}},
        "required": ["id"],
    }
)
ORDER_JSON_TYPE = pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("note", pa.string())])


def test_json_schema_goes_both_ways(registry: Registry, confluent: SchemaRegistryClient, subject: str) -> None:
    theirs = JSONSerializer(ORDER_JSON, confluent)({"id": 3, "at": "2026-03-01T12:30:00.005Z"}, context(subject))
    value_format = JsonSchema(registry=registry)
    row = {"id": 3, "at": ROW["at"], "note": None}
    assert decoded(value_format, ORDER_JSON_TYPE, [theirs]) == [row]
    writing = JsonSchema(registry=registry, writer=WriterSchema.of(registry, "JSON", subject, None))
    (ours,) = encoded(writing, pa.array([row], ORDER_JSON_TYPE))
    read = JSONDeserializer(ORDER_JSON, schema_registry_client=confluent)(ours, context(subject))
    assert read == {"id": 3, "at": "2026-03-01T12:30:00.005000Z"}
    # The error names the broken rule of the schema by its place, without the value.
    (refused,) = encoded(writing, pa.array([{"id": 0}], ORDER_JSON_TYPE), "divert")
    assert refused == {"value": None, "error": "the schema's rule properties/id/minimum is broken at $.id"}


def test_json_schema_references_are_followed_and_nothing_else_is_fetched(
    registry: Registry, confluent: SchemaRegistryClient, subject: str
) -> None:
    confluent.register_schema(
        f"{subject}-pieces", ConfluentSchema(f'{{"$schema":"{DRAFT}","type":"integer","minimum":1}}', "JSON")
    )
    (port,) = free_ports(1)
    main = {"$schema": DRAFT, "type": "object", "properties": {"pieces": {"$ref": "pieces.json"}}}
    main["properties"]["far"] = {"$ref": f"http://127.0.0.1:{port}/far.json"}  # type: ignore[index]
    reference = SchemaReference("pieces.json", f"{subject}-pieces", 1)
    schema_id = confluent.register_schema(subject, ConfluentSchema(json.dumps(main), "JSON", [reference]))
    values = [b"\0" + schema_id.to_bytes(4, "big") + each for each in (b'{"pieces":2}', b'{"pieces":0}', b'{"far":1}')]
    good, low, far = decoded(JsonSchema(registry=registry), pa.struct([("pieces", pa.int32())]), values, "divert")
    assert good == {"value": {"pieces": 2}, "error": None}
    assert "minimum" in low["error"]
    assert far["value"] is None and "far.json" in far["error"]


ORDER_PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string name = 1; }
message Order {
  int64 id = 1;
  google.protobuf.Timestamp at = 2;
  repeated string tags = 3;
  map<string, int32> counts = 4;
  bytes raw = 5;
  enum State { NEW = 0; SENT = 1; }
  State state = 6;
  double weight = 7;
  optional string note = 8;
  message Line { int32 pieces = 1; }
  Line line = 9;
}
"""
ORDER_PROTO_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("raw", pa.binary()),
        ("state", pa.string()),
        ("weight", pa.float64()),
        ("note", pa.string()),
        ("line", pa.struct([("pieces", pa.int32())])),
    ]
)


def test_protobuf_goes_both_ways(registry: Registry, confluent: SchemaRegistryClient, subject: str) -> None:
    from google.protobuf.message_factory import GetMessageClass

    value_format = Protobuf(
        registry=registry, writer=WriterSchema.of(registry, "PROTOBUF", subject, ORDER_PROTO), message="Order"
    )
    row: dict[str, Any] = {name: ROW[name] for name in ("id", "at", "tags", "raw", "state", "note")}
    row |= {"counts": [("x", 1)], "weight": 0.5, "line": {"pieces": 2}}
    (of_text,) = encoded(value_format, pa.array([row], ORDER_PROTO_TYPE))
    assert decoded(Protobuf(registry=registry), ORDER_PROTO_TYPE, [of_text]) == [row]
    # What was never set: proto3's defaults, and null for what has presence.
    (empty,) = decoded(Protobuf(registry=registry), ORDER_PROTO_TYPE, [of_text[:7]])
    assert empty["id"] == 0 and empty["state"] == "NEW" and empty["note"] is None and empty["at"] is None

    # Confluent's client registers a descriptor, which this registry keeps as it is, and reads no other form from it.
    cls = GetMessageClass(link("order", {"order": ORDER_PROTO}).message((1,)))
    settings = {"use.deprecated.format": False}
    message = cls.FromString(of_text[7:])
    theirs = ProtobufSerializer(cls, confluent, settings)(message, context(f"{subject}-theirs"))
    assert theirs[5:] == of_text[5:] and theirs[:5] != of_text[:5]
    assert decoded(Protobuf(registry=registry), ORDER_PROTO_TYPE, [theirs]) == [row]
    writer = WriterSchema.of(registry, "PROTOBUF", f"{subject}-theirs-value", None)
    (ours,) = encoded(Protobuf(registry=registry, writer=writer, message="Order"), pa.array([row], ORDER_PROTO_TYPE))
    assert ProtobufDeserializer(cls, settings, confluent)(ours, context(f"{subject}-theirs")) == message


def test_a_message_after_a_map_has_the_index_that_confluents_serializers_give_it(
    registry: Registry, confluent: SchemaRegistryClient, subject: str
) -> None:
    """In a text, Confluent counts the messages as written; in a descriptor, as its Python client registers it, all of them."""
    from google.protobuf.message_factory import GetMessageClass

    line_type, row = ORDER_PROTO_TYPE.field("line").type, {"pieces": 3}
    of_text = WriterSchema.of(registry, "PROTOBUF", subject, ORDER_PROTO)
    (ours,) = encoded(
        Protobuf(registry=registry, writer=of_text, message="shop.Order.Line"), pa.array([row], line_type)
    )
    assert ours[5:] == b"\x04\x02\x00\x08\x03"  # two indexes: 1, 0
    assert decoded(Protobuf(registry=registry), line_type, [ours]) == [row]

    line = GetMessageClass(link("order", {"order": ORDER_PROTO}).message((1, 0)))
    settings = {"use.deprecated.format": False}
    theirs = ProtobufSerializer(line, confluent, settings)(line(pieces=3), context(f"{subject}-theirs"))
    assert theirs[5:] == b"\x04\x02\x02\x08\x03"  # 1, 1: the map's entries are the first
    assert decoded(Protobuf(registry=registry), line_type, [theirs]) == [row]
    of_descriptor = WriterSchema.of(registry, "PROTOBUF", f"{subject}-theirs-value", None)
    (ours,) = encoded(
        Protobuf(registry=registry, writer=of_descriptor, message="Order.Line"), pa.array([row], line_type)
    )
    assert ours == theirs
    assert ProtobufDeserializer(line, settings, confluent)(ours, context(f"{subject}-theirs")) == line(pieces=3)


def test_a_message_that_the_schema_lacks_is_an_error_with_those_it_has(registry: Registry, subject: str) -> None:
    writer = WriterSchema.of(registry, "PROTOBUF", subject, ORDER_PROTO)
    with pytest.raises(OptionError, match=r"no message Bill \(there are Other, Order\)"):
        Protobuf(registry=registry, writer=writer, message="Bill").message_indexes()


# --- Broken values, and a registry that fails ----------------------------------------------------------------------------------


def test_each_broken_value_is_reported_row_by_row(
    registry: Registry, confluent: SchemaRegistryClient, subject: str
) -> None:
    good = avro_id(confluent, subject, 7)
    of_json = JSONSerializer(ORDER_JSON, confluent)({"id": 3}, context(f"{subject}-json"))
    values = [good, b"plain text", b"", good[:-1], good + b"x", b"\0\x7f\xff\xff\xff.", of_json, None]
    rows = decoded(Avro(registry=registry), ID_TYPE, values, "divert")
    assert [row["value"] for row in rows] == [{"id": 7}, *[None] * 7]
    reasons = [row["error"] for row in rows]
    assert reasons[0] is None and reasons[-1] is None
    for reason, expected in zip(
        reasons[1:-1],
        [
            "do not begin",
            "do not begin",
            "shorter than its schema says",
            "1 bytes are left over",
            "no such schema",
            "is JSON and not",
        ],
        strict=True,
    ):
        assert expected in reason
    assert decoded(Avro(registry=registry), ID_TYPE, values, "null") == [{"id": 7}, *[None] * 7]
    with pytest.raises(ValueFormatError, match=r"PYKAFKA_WIRE_VALUE.*Avro.*do not begin.*divert"):
        decoded(Avro(registry=registry), ID_TYPE, values)


def test_a_field_of_another_type_is_an_error_with_its_name(
    registry: Registry, confluent: SchemaRegistryClient, subject: str
) -> None:
    column_type = pa.struct([("id", pa.int8())])
    (row,) = decoded(Avro(registry=registry), column_type, [avro_id(confluent, subject, 300)], "divert")
    assert row == {"value": None, "error": "id: an integer that 8 bits cannot hold"}


def test_a_registry_that_is_gone_fails_the_query_under_every_policy(subject: str) -> None:
    (port,) = free_ports(1)
    registry = Registry(f"http://127.0.0.1:{port}", basic_auth="user:secret-word", timeout_s=5)
    for on_error in ("fail", "null", "divert"):
        with pytest.raises(RegistryError, match=rf"PYKAFKA_WIRE_REGISTRY.*127.0.0.1:{port}") as raised:
            decoded(Avro(registry=registry), ID_TYPE, [b"\0\0\0\0\x01\x02"], on_error)
        assert "secret-word" not in str(raised.value)


def test_the_next_address_is_asked_where_one_does_not_respond(
    registry_url: str, confluent: SchemaRegistryClient, subject: str
) -> None:
    (port,) = free_ports(1)
    registry = Registry(f"http://127.0.0.1:{port},{registry_url}/")
    assert decoded(Avro(registry=registry), ID_TYPE, [avro_id(confluent, subject, 1)]) == [{"id": 1}]


def test_what_is_no_registry_is_reported_as_that(registry_url: str) -> None:
    elsewhere = Registry(registry_url.partition("/apis/")[0])
    with pytest.raises(RegistryError, match="is it a schema registry"):
        decoded(Avro(registry=elsewhere), ID_TYPE, [b"\0\0\0\0\x01\x02"], "null")


def test_a_registry_that_knows_no_guids_is_reported_as_that(registry: Registry) -> None:
    with pytest.raises(RegistryError, match="does not know schemas by GUID"):
        RegistryClient(registry).by_id(uuid.UUID("89791762-2336-4186-9674-299b90a802e2"))


def test_a_subject_without_a_schema_or_of_another_kind_is_refused_before_any_task(
    registry: Registry, subject: str
) -> None:
    with pytest.raises(OptionError, match=f"subject {subject}"):
        WriterSchema.of(registry, "AVRO", subject, None)
    WriterSchema.of(registry, "AVRO", subject, ID_SCHEMA)
    with pytest.raises(OptionError, match="is AVRO, not JSON"):
        WriterSchema.of(registry, "JSON", subject, None)


def test_a_schema_is_asked_for_once_in_a_process_whether_it_is_there_or_not(
    registry_url: str, confluent: SchemaRegistryClient, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = registry_module.request

    def counted(registry: Registry, method: str, path: str, *more: Any) -> Any:
        asked.append(path)
        return ask(registry, method, path, *more)

    monkeypatch.setattr(registry_module, "request", counted)
    value = avro_id(confluent, subject, 1)
    registry = Registry(registry_url, timeout_s=9.0)  # none that another test has asked
    assert decoded(Avro(registry=registry), ID_TYPE, [value] * 3) == [{"id": 1}] * 3
    assert decoded(Avro(registry=registry), ID_TYPE, [value]) == [{"id": 1}]
    assert len(asked) == 1
    monkeypatch.setattr("pykafka_wire.values.registry.cache._FAILURES_KEPT_S", 3600)
    unknown = encode_frame(1_999_999_999, b"")
    assert decoded(Avro(registry=registry), ID_TYPE, [unknown] * 50, on_error="null") == [None] * 50
    assert len(asked) == 2


def test_secrets_are_not_shown_and_travel_only_by_reference(registry_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pykafka_wire.values.registry.rest import authorization

    assert "s3cret" not in repr(Avro(registry=Registry(registry_url, basic_auth="me:s3cret")))
    assert "s3cret" not in repr(Registry(registry_url, bearer_token="s3cret"))
    monkeypatch.setenv("REGISTRY_USER_INFO", "me:s3cret")
    registry = Registry(registry_url, basic_auth="env:REGISTRY_USER_INFO")
    assert b"s3cret" not in pickle.dumps(registry)
    assert authorization(registry) == {"authorization": "Basic bWU6czNjcmV0"}
    monkeypatch.delenv("REGISTRY_USER_INFO")
    with pytest.raises(RegistryError, match="REGISTRY_USER_INFO, which is not set"):
        RegistryClient(registry).register("any", Schema(kind="AVRO", text=ID_SCHEMA))


# --- In Spark ------------------------------------------------------------------------------------------------------------


def test_a_topic_of_avro_in_spark(
    registry: Registry, confluent: SchemaRegistryClient, spark: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    """The way back is tests/connector/test_examples_in_session.py's."""
    from pykafka_wire.functions import decode_avro

    source = topic()
    subject = f"{source}-value"
    values = [AvroSerializer(confluent, ORDER)(ROW, context(subject)), b"poison", avro_id(confluent, f"{subject}-2", 8)]
    outside.produce(source, [outside.Record(value=value) for value in values])
    fields = (
        "id BIGINT, ref STRING, price DECIMAL(9,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>, counts MAP<STRING, INT>"
    )
    order = decode_avro(registry, fields, on_error="divert")
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source}
    read = spark.read.format("pykafka-wire").options(**asked).load()
    spark.udf.register("order_id", decode_avro(registry, "id BIGINT", on_error="null"))
    rows = (
        read.select("offset", order("value").alias("order"), expr("order_id(value).id AS id"))
        .orderBy("offset")
        .collect()
    )
    full = rows[0].order.value
    assert (full.id, full.ref, full.price, full.day) == (2**40, str(ROW["ref"]), ROW["price"], ROW["day"])
    assert full.at.astimezone(datetime.timezone.utc) == ROW["at"]
    assert (full.tags, full.counts) == (ROW["tags"], ROW["counts"])
    assert rows[1].order.value is None and "do not begin" in rows[1].order.error
    assert rows[2].order.value.id == 8 and rows[2].order.value.ref is None
    assert [row.id for row in rows] == [2**40, None, 8]
    with pytest.raises(Exception, match="PYKAFKA_WIRE_VALUE"):
        read.select(decode_avro(registry, "id BIGINT")("value")).collect()


def test_the_reader_agrees_with_fastavro_on_what_it_wrote_itself(registry: Registry, subject: str) -> None:
    import io

    value_format = Avro(registry=registry, writer=WriterSchema.of(registry, "AVRO", subject, ORDER))
    (value,) = encoded(value_format, pa.array([ROW_IN_ARROW], ORDER_TYPE))
    assert fastavro.schemaless_reader(io.BytesIO(value[5:]), json.loads(ORDER), None) == ROW
