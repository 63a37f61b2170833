"""Typed topics over a real registry, in Spark: what Confluent's serializers write, evolution, TLS, and a registry that fails."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.cli.app import application
from pykafka_wire.values.registry import glue
from tests.connector.values.glue_stub import URL as GLUE
from tests.connector.values.glue_stub import GlueStub, glue_stub, use_glue
from tests.connector.values.registry_front import RegistryFront, Response, registry_front
from tests.connector.values.test_registry_requests import Certificates

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]


def order_schema(*more: dict[str, Any], doc: str = "") -> str:
    fields = [{"name": "id", "type": "long"}, {"name": "country", "type": "string"}, *more]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "doc": doc, "fields": fields})


NOTE = {"name": "note", "type": ["null", "string"], "default": None}
PIECES = {"name": "pieces", "type": "int", "default": 1}


def order_message() -> Any:
    """The class of a message, from a descriptor as protoc makes it."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate({"id": "TYPE_INT64", "country": "TYPE_STRING"}.items(), 1):
        field = descriptor_pb2.FieldDescriptorProto
        message.field.add(name=name, number=number, type=getattr(field, kind), label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


class Topic:
    """A topic of orders, written by Confluent's serializers."""

    def __init__(self, registry_url: str, name: str, outside: Any) -> None:
        self.name, self.outside = name, outside
        self.client = SchemaRegistryClient({"url": registry_url})

    def write(self, serializers: list[Any], documents: list[Any]) -> set[int]:
        """Writes them with the serializers in turn, over both partitions; returns the ids of the schemas."""
        context = SerializationContext(self.name, MessageField.VALUE)
        values = [serializers[nth % len(serializers)](document, context) for nth, document in enumerate(documents)]
        records = [self.outside.Record(value=value, partition=nth // 3 % 2) for nth, value in enumerate(values)]
        self.outside.produce(self.name, records)
        return {int.from_bytes(value[1:5], "big") for value in values}

    def avro(self, *schemas: str) -> list[AvroSerializer]:
        return [AvroSerializer(self.client, schema) for schema in schemas]


@pytest.fixture
def orders(registry_url: str, topic: Any, outside: Any) -> Topic:
    return Topic(registry_url, topic(2), outside)


@pytest.fixture
def front(registry_url: str) -> Iterator[RegistryFront]:
    with registry_front(registry_url) as found:
        yield found


def read(spark: Any, kafka: Any, orders: Topic, url: str, **options: str) -> Any:
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": orders.name, "schema.registry.url": url}
    return spark.read.format("pykafka-wire").options(**(asked | options)).load()


def documents(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": number, "country": f"c{number % 3}", "note": f"n{number}", "pieces": number}
        for number in range(first, first + count)
    ]


def test_avro_of_several_schemas_in_one_response_over_tls_with_few_look_ups(
    spark: Any, kafka: Any, orders: Topic, registry_url: str, tmp_path: Path
) -> None:
    oldest, older, newest = order_schema(), order_schema(NOTE), order_schema(NOTE, PIECES)
    numbers = orders.write(orders.avro(oldest, older, newest), documents(300))
    assert len(numbers) == 3
    certificates = Certificates(tmp_path)
    tls = {
        "schema.registry.ssl.truststore.location": str(certificates.ca),
        "schema.registry.ssl.keystore.location": str(certificates.pem),
    }
    with registry_front(registry_url, tls=certificates.server()) as front:
        rows = (
            read(spark, kafka, orders, front.url, valueFormat="avro", minPartitions="8", **tls)
            .orderBy("value.id")
            .collect()
        )
        for number in numbers:  # once in the driver and in each task at most: Spark may start a worker for each
            assert 1 <= front.n_asked(f"/schemas/ids/{number}") <= 9
    assert [row.value.asDict() for row in rows] == [
        {
            "id": number,
            "country": f"c{number % 3}",
            "note": f"n{number}" if number % 3 else None,
            "pieces": number if number % 3 == 2 else 1,
        }
        for number in range(300)
    ]
    assert [row.partition for row in rows] == [number // 3 % 2 for number in range(300)]


def test_json_has_the_type_of_its_schema_in_the_registry(
    spark: Any, kafka: Any, orders: Topic, registry_url: str
) -> None:
    part = {"title": "Part", "type": "object", "properties": {"sku": {"type": "string"}}}
    orders.client.register_schema("part", Schema(json.dumps(part), "JSON"))
    properties = {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "parts": {"type": "array", "items": {"$ref": "part.json"}},
    }
    schema = json.dumps({"type": "object", "title": "Order", "properties": properties})
    references = [SchemaReference("part.json", "part", 1)]
    serializer = JSONSerializer(Schema(schema, "JSON", references), orders.client, conf={"validate": False})
    orders.write([serializer], [{"id": n, "at": "2026-01-01T00:00:00Z", "parts": [{"sku": f"s{n}"}]} for n in range(6)])
    rows = read(spark, kafka, orders, registry_url, valueFormat="json").select("value.*")
    assert rows.schema.simpleString() == "struct<id:bigint,at:timestamp,parts:array<struct<sku:string>>>"
    found = rows.selectExpr("id", "parts[0].sku", "at = TIMESTAMP'2026-01-01 00:00:00Z'")
    assert sorted(map(tuple, found.collect())) == [(n, f"s{n}", True) for n in range(6)]
    own = read(spark, kafka, orders, registry_url, valueFormat="json", valueSchema="id BIGINT, at STRING")
    assert own.filter("value.id = 5").first().value.at == "2026-01-01T00:00:00Z"


def test_protobuf_of_confluents_serializer(spark: Any, kafka: Any, orders: Topic, registry_url: str) -> None:
    message = order_message()
    serializer = ProtobufSerializer(message, orders.client, {"use.deprecated.format": False})
    orders.write([serializer], [message(id=number, country=f"c{number % 3}") for number in range(6)])
    rows = read(spark, kafka, orders, registry_url, valueFormat="protobuf").select("value.*")
    assert rows.schema.simpleString() == "struct<id:bigint,country:string>"
    assert sorted(map(tuple, rows.collect())) == [(number, f"c{number % 3}") for number in range(6)]


def tail(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines that ``pykafka-wire tail`` prints."""
    with pytest.raises(SystemExit) as end:
        application(["tail", *arguments, "--from", "earliest"])
    printed = capsys.readouterr()
    assert not end.value.code, printed.err
    return printed.out.splitlines()


@pytest.fixture
def aws(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, GlueStub]]:
    """A session and AWS Glue's registry, whose endpoint and credentials Spark's own Python processes have in their environment."""
    glue._client.cache_clear()  # a client keeps its endpoint
    with glue_stub() as stub:
        use_glue(stub, monkeypatch)
        for name in (
            "AWS_ENDPOINT_URL_GLUE",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_EC2_METADATA_DISABLED",
        ):
            monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
        session = spark.newSession()
        session.dataSource.register(PykafkaWireDataSource)  # which takes the environment along
        yield session, stub
    glue._client.cache_clear()


def test_a_topic_by_aws_glues_registry_is_written_and_read(
    aws: tuple[Any, GlueStub], kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    session, stub = aws
    name = topic(2)
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "schema.registry.url": GLUE, "valueFormat": "avro"}
    register = {"topic": name, "schema.registry.auto.register": "true"}
    for first, fields in ((0, "'country', 'NO'"), (100, "'country', 'NO', 'amount', 1.5D")):
        rows = session.range(first, first + 100).selectExpr(
            f"named_struct('id', id, {fields}) AS value", "int(id % 2) AS partition"
        )
        rows.write.format("pykafka-wire").options(**asked, **register).mode("append").save()
    older, newest = (each["id"] for each in stub.schemas[name])
    framed = Counter(record.value[:18] for record in outside.consume(name))
    assert framed == {b"\3\0" + uuid.UUID(version).bytes: 100 for version in (older, newest)}
    stub.versions_asked.clear()
    stream = (
        session.readStream.format("pykafka-wire")
        .options(**asked, subscribe=name, startingOffsets="earliest", includeValueSchema="true")
        .load()
        .select("value.*", "valueSchemaId")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    assert stream.awaitTermination(120)
    found = session.read.parquet(str(tmp_path / "rows")).selectExpr(
        "count(DISTINCT id)", "min(country)", "sum(amount)", "count_if(amount IS NULL)", "collect_set(valueSchemaId)"
    )
    *figures, versions = found.first()
    assert figures == [200, "NO", 150.0, 100] and set(versions) == {older, newest}
    assert older in stub.versions_asked, "by tasks: the driver needs the newest one only"


def test_tail_decodes_by_the_registry(
    kafka: Any, orders: Topic, front: RegistryFront, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.write(orders.avro(order_schema(), order_schema(NOTE)), documents(2))
    orders.outside.produce(
        orders.name, [orders.outside.Record(value=b"damaged", key=b"k", partition=1), orders.outside.Record(value=None)]
    )
    at = ["-b", kafka.bootstrap_servers, orders.name]
    found = [
        json.loads(line) for line in tail(capsys, *at, "--value-format", "avro", "--registry", front.url, "--json")
    ]
    assert [each["value"] for each in found[:2]] == [
        {"id": 0, "country": "c0"},
        {"id": 1, "country": "c1", "note": "n1"},
    ]
    assert found[2]["value"] is None and "valueError" not in found[2]
    assert (found[3]["key"], found[3]["value"]) == ("k", "damaged")
    assert "do not begin with Confluent's magic byte" in found[3]["valueError"]
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={kafka.bootstrap_servers}\nschema.registry.url={front.url}\n")
    credentials = ["-X", "schema.registry.basic.auth.user.info=me:secret"]
    (line, *_) = tail(capsys, "--config", str(file), *credentials, orders.name, "--value-format", "avro")
    assert line.endswith('{"id":0,"country":"c0"}')
    assert front.headers[-1]["authorization"] == "Basic bWU6c2VjcmV0"


def test_tail_decodes_protobuf_and_json(
    kafka: Any, orders: Topic, topic: Any, outside: Any, registry_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = order_message()
    serializer = ProtobufSerializer(message, orders.client, {"use.deprecated.format": False})
    orders.write([serializer], [message(id=7, country="c")])
    at = ["-b", kafka.bootstrap_servers]
    (line,) = tail(capsys, *at, orders.name, "--value-format", "protobuf", "--registry", registry_url)
    assert line.endswith('{"id":7,"country":"c"}')
    assert tail(capsys, *at, orders.name, "--registry", registry_url) == [line]  # the registry knows the format
    other = Topic(registry_url, topic(1), outside)
    other.outside.produce(
        other.name, [outside.Record(value=value) for value in (b'\x00\x00\x00\x00\x01{"a": [1]}', b'{"b": null}', b"{")]
    )
    values = [json.loads(line) for line in tail(capsys, *at, other.name, "--value-format", "json", "--json")]
    assert [each["value"] for each in values] == [{"a": [1]}, {"b": None}, "{"]
    assert "it is not JSON" in values[2]["valueError"]


def test_a_query_continues_after_an_outage_and_loses_nothing(
    spark: Any, queries: Any, orders: Topic, front: RegistryFront
) -> None:
    """Under ``divert``, the policy that would hide the most: an outage diverts nothing, in a worker or in the driver."""

    def run() -> None:
        stream = queries.stream(
            subscribe=orders.name, valueFormat="avro", onValueError="divert", **{"schema.registry.url": front.url}
        )
        query = (
            stream.select("value.id", "value.country", "valueError")
            .writeStream.option("checkpointLocation", str(queries.checkpoint))
            .trigger(availableNow=True)
            .start(str(queries.table))
        )
        assert query.awaitTermination(300)

    def written() -> list[Any]:
        return sorted(map(tuple, spark.read.parquet(str(queries.table)).collect()))

    def expected(count: int) -> list[Any]:
        return [(number, f"c{number % 3}", None) for number in range(count)]

    orders.write(orders.avro(order_schema()), documents(20))
    run()
    assert written() == expected(20)
    # The micro-batch in which the registry is needed again holds the old schema's values, too.
    newer = [order_schema(NOTE), order_schema(NOTE, PIECES)]
    needed = orders.write(orders.avro(order_schema(), *newer), documents(30, first=20))
    paths = [f"/schemas/ids/{number}" for number in needed]
    refused = Response(status=403, content=b'{"error_code": 403, "message": "User is denied"}')
    for responses in (dict.fromkeys(paths, refused), {"": Response(status=None)}):
        front.responses = responses
        with pytest.raises(Exception, match="PYKAFKA_WIRE_REGISTRY"):
            run()
        assert written() == expected(20)
    front.responses = {}
    run()
    assert written() == expected(50)
