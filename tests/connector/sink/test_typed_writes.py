"""Structs and other types written under a format, by way of a real registry; read back by Confluent's deserializers."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from pyspark.errors.exceptions.captured import StreamingQueryException

from tests.connector.sink.batch_writes import failure, failure_without_a_job, write

pytestmark = [pytest.mark.broker, pytest.mark.spark]

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "country", "type": ["null", "string"], "default": None},
            {"name": "pieces", "type": {"type": "array", "items": "int"}},
        ],
    }
)
ORDERS = "named_struct('id', id, 'country', IF(id % 2 = 0, 'DE', NULL), 'pieces', array(int(id), 1)) AS value"


@pytest.fixture
def confluent(registry_url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry_url})


def order(number: int) -> dict[str, Any]:
    return {"id": number, "country": "DE" if number % 2 == 0 else None, "pieces": [number, 1]}


def avro_of(confluent: SchemaRegistryClient, outside: Any, topic: str, **how: str) -> list[Any]:
    """The values of a topic, in any order."""
    read = AvroDeserializer(confluent)
    return [read(record.value, None) for record in outside.consume(topic, **how)]


def by_id(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: value["id"])


def avro(registry_url: str, topic: str, **more: str) -> dict[str, str]:
    return {"topic": topic, "valueFormat": "avro", "schema.registry.url": registry_url} | more


def test_a_struct_is_written_with_the_subjects_newest_schema_and_null_is_a_tombstone(
    spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str, confluent: SchemaRegistryClient
) -> None:
    name = topic(2)
    schema_id = confluent.register_schema(f"{name}-value", Schema(ORDER, "AVRO"))
    confluent.register_schema(f"{name}-key", Schema('"string"', "AVRO"))
    frame = spark.range(100).selectExpr("concat('k', id) AS key", ORDERS.replace("AS value", "AS order"))
    frame = frame.selectExpr("key", "IF(order.id = 7, NULL, order) AS value")
    write(frame, kafka, **avro(registry_url, name, keyFormat="avro"))
    records = outside.consume(name)
    values = [record for record in records if record.value is not None]
    assert all(record.value.startswith(b"\0" + schema_id.to_bytes(4, "big")) for record in values)
    read = AvroDeserializer(confluent)
    assert by_id([read(record.value, None) for record in values]) == [order(n) for n in range(100) if n != 7]
    assert sorted(read(record.key, None) for record in records) == sorted(f"k{n}" for n in range(100))
    assert [read(record.key, None) for record in records if record.value is None] == ["k7"]


def test_a_column_that_does_not_fit_is_refused_before_any_task(
    spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str, confluent: SchemaRegistryClient
) -> None:
    name = topic()
    confluent.register_schema(f"{name}-value", Schema(ORDER, "AVRO"))
    frame = spark.range(3).selectExpr("struct(CAST(id AS STRING) AS id, 'DE' AS contry) AS value")
    text = failure_without_a_job(spark, lambda: write(frame, kafka, **avro(registry_url, name)))
    assert "[PYKAFKA_WIRE_SCHEMA]" in text
    assert "field id is STRING and the schema's type is long: cast the column, or change the schema" in text
    assert "field contry is not in the schema, whose record shop.Order has id, country, pieces" in text
    assert "field pieces (array) is missing in the column" in text
    assert f"the newest schema of subject {name}-value" in text and "schema.registry.auto.register=true" in text


def test_rows_that_do_not_fit_are_named_and_nothing_of_their_batch_is_sent(
    spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str, confluent: SchemaRegistryClient
) -> None:
    name = topic()
    confluent.register_schema(f"{name}-value", Schema(ORDER, "AVRO"))
    frame = spark.range(0, 50, 1, 1).selectExpr(
        "concat('order-', id) AS key",
        "struct(IF(id IN (17, 20), NULL, id) AS id, array(int(id)) AS pieces, 'secret' AS country) AS value",
    )
    text = failure(lambda: write(frame, kafka, **avro(registry_url, name)))
    assert (
        "[PYKAFKA_WIRE_WRITE] row 17 of Spark partition 0 (counted from 0), with the key 'order-17', "
        f"for topic {name}, does not fit the schema of its value: "
        "id: null, which the schema does not allow; 1 more of 50 rows do not fit, either."
    ) in text
    assert "secret" not in text
    assert outside.consume(name) == []


def test_a_schema_is_derived_and_registered_where_that_is_allowed(
    spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str, confluent: SchemaRegistryClient
) -> None:
    name = topic()
    subject = f"{name}-value"
    frame = spark.range(3).selectExpr("struct(id, CAST(NULL AS STRING) AS note) AS value")
    text = failure_without_a_job(spark, lambda: write(frame, kafka, **avro(registry_url, name)))
    assert f"subject {subject}" in text and "set schema.registry.auto.register=true" in text
    assert '"name": "topLevelRecord", "fields": [{"name": "id", "type": ' in text
    allowed = avro(registry_url, name) | {"auto.register.schemas": "true"}
    write(frame, kafka, **allowed)
    assert by_id(avro_of(confluent, outside, name)) == [{"id": n, "note": None} for n in range(3)]
    # A field more is a new version, which the registry compares with the one before.
    confluent.set_compatibility(subject, "BACKWARD")
    write(frame.selectExpr("struct(value.id AS id, value.note AS note, 'x' AS more) AS value"), kafka, **allowed)
    assert len(confluent.get_versions(subject)) == 2
    assert {"id": 2, "note": None, "more": "x"} in avro_of(confluent, outside, name)
    text = failure_without_a_job(spark, lambda: write(frame.selectExpr("struct('x' AS id) AS value"), kafka, **allowed))
    assert "field id is STRING and the schema's type is long" in text and "changes nothing else" in text
    refused = json.dumps({"type": "record", "name": "topLevelRecord", "fields": [{"name": "new", "type": "int"}]})
    frame_of_it = spark.range(1).selectExpr("struct(1 AS new) AS value")
    text = failure_without_a_job(spark, lambda: write(frame_of_it, kafka, **allowed, valueSchema=refused))
    assert f"could not be registered under {subject}" in text and "409" in text and refused in text
    # What has a subset of the newest schema's nullable fields is written with that one.
    write(frame.selectExpr("struct(100 + value.id AS id) AS value"), kafka, **allowed)
    assert len(confluent.get_versions(subject)) == 2
    assert {"id": 100, "note": None, "more": None} in avro_of(confluent, outside, name)


def test_a_given_schema_must_be_the_subjects_or_be_registered(
    spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str, confluent: SchemaRegistryClient
) -> None:
    name = topic()
    frame = spark.range(3).selectExpr(ORDERS)
    given = avro(registry_url, name, valueSchema=ORDER) | {"value.subject.name.strategy": "TopicRecordNameStrategy"}
    text = failure_without_a_job(spark, lambda: write(frame, kafka, **given))
    assert f"[PYKAFKA_WIRE_OPTION] subject {name}-shop.Order does not have the schema of valueSchema" in text
    write(frame, kafka, **given, **{"schema.registry.auto.register": "true"})
    assert confluent.get_subjects() and len(confluent.get_versions(f"{name}-shop.Order")) == 1
    write(frame, kafka, **given)
    assert len(confluent.get_versions(f"{name}-shop.Order")) == 1
    assert by_id(avro_of(confluent, outside, name)) == [order(n) for n in (0, 0, 1, 1, 2, 2)]


def test_topics_of_a_column_need_a_subject(
    spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str, confluent: SchemaRegistryClient
) -> None:
    one, other = topic(), topic()
    subject = f"orders-{uuid.uuid4().hex[:8]}"
    confluent.register_schema(subject, Schema(ORDER, "AVRO"))
    frame = spark.range(4).selectExpr(f"IF(id < 2, '{one}', '{other}') AS topic", ORDERS)
    options = {"valueFormat": "avro", "schema.registry.url": registry_url}
    text = failure_without_a_job(spark, lambda: write(frame, kafka, **options))
    assert "the topic comes from a column" in text and "valueSubject" in text
    write(frame, kafka, **options, valueSubject=subject)
    assert by_id(avro_of(confluent, outside, one)) == [order(0), order(1)]
    assert by_id(avro_of(confluent, outside, other)) == [order(2), order(3)]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stream_writes_structs_under_both_guarantees(
    guarantee: str,
    queries: Any,
    topic: Any,
    outside: Any,
    registry_url: str,
    confluent: SchemaRegistryClient,
) -> None:
    source, target = topic(2), topic(2)
    confluent.register_schema(f"{target}-value", Schema(ORDER, "AVRO"))
    outside.fill(source, [30, 20])
    options = avro(registry_url, target) | {"kafka.bootstrap.servers": queries.servers, "deliveryGuarantee": guarantee}
    if guarantee == "exactly-once":
        options["kafka.transactional.id"] = f"typed-{uuid.uuid4().hex[:8]}"

    def run(value: str = ORDERS) -> None:
        rows = queries.stream(subscribe=source, maxOffsetsPerTrigger="20")
        rows = rows.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id").selectExpr(value)
        writer = rows.writeStream.format("pykafka-wire").options(**options)
        writer = writer.option("checkpointLocation", str(queries.checkpoint)).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(240)

    run()
    how = {"isolation_level": "read_committed"}
    assert by_id(avro_of(confluent, outside, target, **how)) == [order(n) for n in range(50)]
    outside.fill(source, [5], first=50)
    with pytest.raises(StreamingQueryException, match="id: null, which the schema does not allow"):
        run(ORDERS.replace("'id', id", "'id', IF(id = 52, NULL, id)"))
    assert len(avro_of(confluent, outside, target, **how)) == 50
    run()
    assert by_id(avro_of(confluent, outside, target, **how)) == [order(n) for n in range(55)]


def test_without_a_registry_values_are_plain(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    import io

    import fastavro

    name = topic()
    write(spark.range(3).selectExpr(ORDERS), kafka, topic=name, valueFormat="avro", valueSchema=ORDER)
    parsed = fastavro.parse_schema(json.loads(ORDER))
    found = [fastavro.schemaless_reader(io.BytesIO(record.value), parsed) for record in outside.consume(name)]
    assert by_id(found) == [order(n) for n in range(3)]


def test_protobuf_is_registered_written_and_read_back(
    spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str, confluent: SchemaRegistryClient
) -> None:
    name = topic()
    options = {"valueFormat": "protobuf", "schema.registry.url": registry_url}
    frame = spark.range(20).selectExpr(ORDERS).selectExpr("IF(value.id = 7, NULL, value) AS value")
    write(frame, kafka, topic=name, **options, **{"schema.registry.auto.register": "true"})
    registered = confluent.get_latest_version(f"{name}-value")
    frames = {record.value[:6] for record in outside.consume(name) if record.value is not None}
    assert frames == {b"\0" + registered.schema_id.to_bytes(4, "big") + b"\0"}
    read = spark.read.format("pykafka-wire").options(**options, subscribe=name)
    rows = read.option("kafka.bootstrap.servers", kafka.bootstrap_servers).load().select("value").collect()
    values = [row.value.asDict() for row in rows if row.value is not None]
    assert by_id(values) == [order(n) for n in range(20) if n != 7]
    assert len(rows) == 20


def test_json_is_the_columns_own(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic()
    frame = spark.range(3).selectExpr("id AS key", ORDERS)
    write(frame, kafka, topic=name, valueFormat="json", keyFormat="json")
    records = sorted(outside.consume(name), key=lambda record: record.key)
    assert [record.key for record in records] == [b"0", b"1", b"2"]
    # A null field is left out, as by to_json.
    expected = [{name: value for name, value in order(n).items() if value is not None} for n in range(3)]
    assert [json.loads(record.value) for record in records] == expected


def test_a_struct_without_a_format_names_the_option(spark: Any, kafka: Any, topic: Any) -> None:
    text = failure_without_a_job(spark, lambda: write(spark.range(1).selectExpr(ORDERS), kafka, topic=topic()))
    assert "cast it before the write, or set valueFormat (json, avro or protobuf)" in text
    frame = spark.range(1).selectExpr("'x' AS value")
    text = failure_without_a_job(spark, lambda: write(frame, kafka, topic=topic(), keyFormat="json"))
    assert "keyFormat is json, and the rows have no column 'key'" in text


def test_a_registry_that_does_not_respond_fails_a_write_before_its_tasks(spark: Any, kafka: Any, topic: Any) -> None:
    frame = spark.range(1).selectExpr(ORDERS)
    text = failure_without_a_job(spark, lambda: write(frame, kafka, **avro("http://127.0.0.1:1", topic())))
    assert "[PYKAFKA_WIRE_REGISTRY]" in text and "127.0.0.1:1" in text
