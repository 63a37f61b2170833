"""Typed columns in Spark, batch and SQL: types, fields left out, values that cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.serialization import MessageField

from tests.connector.source.typed_topics import COUNTRY, ID, NOTE, PARTS, TypedTopic, record

pytestmark = [pytest.mark.broker, pytest.mark.spark]

Load = Callable[..., Any]


@pytest.fixture
def typed_topic(registry_url: str, topic: Any, outside: Any) -> TypedTopic:
    return TypedTopic(registry_url, topic(1), outside)


@pytest.fixture
def load(spark: Any, kafka: Any, registry_url: str, typed_topic: TypedTopic) -> Load:
    """Loads the topic, typed by options; ``schema`` is the user's."""

    def loaded(schema: str | None = None, **options: str) -> Any:
        asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": typed_topic.name} | options
        if "avro" in options.values() or "protobuf" in options.values():
            asked.setdefault("schema.registry.url", registry_url)
        reader = spark.read.format("pykafka-wire").options(**asked)
        return (reader.schema(schema) if schema else reader).load()

    return loaded


def test_avro_values_have_the_type_of_the_subjects_newest_schema(typed_topic: TypedTopic, load: Load) -> None:
    old, new = record(ID), record(ID, COUNTRY, PARTS, NOTE)
    typed_topic.write([typed_topic.encoded(old, {"id": 1})])
    row = {"id": 2, "country": "NO", "parts": [{"number": 7, "name": "wheel"}], "note": "n"}
    typed_topic.write([typed_topic.encoded(new, row), None])  # several ids in one response, and a tombstone
    found = load(valueFormat="avro", includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in found.schema][:3] == [
        ("key", "binary"),
        ("value", "struct<id:bigint,country:string,parts:array<struct<number:int,name:string>>,note:string>"),
        ("topic", "string"),
    ]
    assert found.schema.names[-1] == "headers"
    assert [row.value and row.value.asDict(True) for row in found.orderBy("offset").collect()] == [
        {"id": 1, "country": "?", "parts": [], "note": None},
        row,
        None,
    ]
    assert found.selectExpr("sum(value.id)", "max(get(value.parts, 0).name)").first() == (3, "wheel")


def test_a_view_in_sql_is_typed(spark: Any, kafka: Any, typed_topic: TypedTopic, registry_url: str) -> None:
    schema = record(ID, COUNTRY)
    typed_topic.write([typed_topic.encoded(schema, {"id": n, "country": "NO"}) for n in range(3)])
    spark.sql(
        f"""CREATE OR REPLACE TEMPORARY VIEW typed_view USING `pykafka-wire` OPTIONS (
            `kafka.bootstrap.servers` '{kafka.bootstrap_servers}', subscribe '{typed_topic.name}', valueFormat 'avro',
            columns 'value.country, value.id', `schema.registry.url` '{registry_url}')"""
    )
    try:
        found = spark.sql("SELECT value.country, sum(value.id) FROM typed_view GROUP BY value.country").collect()
    finally:
        spark.catalog.dropTempView("typed_view")
    assert [tuple(row) for row in found] == [("NO", 3)]


def test_a_stream_keeps_its_schema_in_its_checkpoint(
    typed_topic: TypedTopic, queries: Any, registry_url: str, spark: Any
) -> None:
    def run(**options: str) -> list[Any]:
        asked = {"subscribe": typed_topic.name, "valueFormat": "avro", "schema.registry.url": registry_url} | options
        query = (
            queries.stream(**asked)
            .selectExpr("offset", "to_json(value) AS value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(queries.checkpoint))
            .trigger(availableNow=True)
            .start(str(queries.table))
        )
        assert query.awaitTermination(120), "the query did not end"
        return [row.value for row in spark.read.parquet(str(queries.table)).orderBy("offset").collect()]

    older = typed_topic.encoded(record(ID), {"id": 1})
    typed_topic.write([older])
    assert run() == ['{"id":1}']
    number = int.from_bytes(older[1:5], "big")
    schema = {"value": {"format": "avro", "id": number, "subject": f"{typed_topic.name}-value"}}
    assert queries.logged_offsets()["reader_schemas"] == schema
    newer = typed_topic.encoded(record(ID, NOTE), {"id": 2, "note": "n"})
    typed_topic.write([newer])
    assert run() == ['{"id":1}', '{"id":2}']
    assert queries.logged_offsets()["reader_schemas"] == schema
    typed_topic.write([newer])
    assert run(readerSchema="latest") == ['{"id":1}', '{"id":2}', '{"id":2,"note":"n"}']
    assert queries.logged_offsets()["reader_schemas"]["value"]["id"] == int.from_bytes(newer[1:5], "big")


def test_only_the_fields_of_the_given_schema_are_decoded(typed_topic: TypedTopic, load: Load) -> None:
    typed_topic.write(
        [
            typed_topic.encoded(
                record(ID, COUNTRY, PARTS), {"id": 1, "country": "NO", "parts": [{"number": 7, "name": "w"}]}
            )
        ]
    )
    found = load("value struct<parts: array<struct<name: string>>, id: bigint>, offset bigint", valueFormat="avro")
    assert [tuple(row) for row in found.collect()] == [(([("w",)], 1), 0)]
    by_name = load(valueFormat="avro", columns="value.parts.name, value.id, offset")
    assert by_name.schema == found.schema
    assert [tuple(row) for row in by_name.collect()] == [(([("w",)], 1), 0)]
    # Nothing of the registry is needed where the value is not read.
    offsets = load("offset bigint", valueFormat="avro", **{"schema.registry.url": "http://127.0.0.1:1"})
    assert [row.offset for row in offsets.collect()] == [0]
    offsets = load(valueFormat="avro", columns="offset", **{"schema.registry.url": "http://127.0.0.1:1"})
    assert [row.offset for row in offsets.collect()] == [0]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            "value struct<contry: string>",
            r"has no value\.contry \(did you mean country\?\); value is struct<id:bigint,",
        ),
        (
            "value struct<id: int>",
            r"value\.id is bigint, not int in the schema of subject .*-value, id \d+: name fields",
        ),
        (
            "value struct<parts: array<struct<size: int>>>",
            r"has no value\.parts\.element\.size; value\.parts\.element is",
        ),
        ("value binary", r"value is struct<id:bigint,.*, not binary"),
        ("value struct<id: bigint not null>", "column 'value' cannot be NOT NULL"),
        (
            "value struct<id: bigint>, valueError string",
            "without onValueError=divert: set that, or leave valueError out",
        ),
    ],
)
def test_what_the_schema_does_not_have_is_refused(schema: str, text: str, typed_topic: TypedTopic, load: Load) -> None:
    typed_topic.register(record(ID, COUNTRY, PARTS))
    with pytest.raises(Exception, match=rf"PYKAFKA_WIRE_SCHEMA\].*{text}"):
        load(schema, valueFormat="avro").collect()


def test_values_that_cannot_be_decoded_fail_or_are_null_or_diverted(typed_topic: TypedTopic, load: Load) -> None:
    good = typed_topic.encoded(record(ID), {"id": 1})
    typed_topic.write([good, b"{}", good + b"x", None, good])
    place = (
        rf"the value of the record at {typed_topic.name}-0 offset 1 cannot be decoded as avro: its 2 bytes do not begin"
    )
    with pytest.raises(Exception, match=rf"PYKAFKA_WIRE_VALUE\] {place}.*set onValueError to null, or to divert"):
        load(valueFormat="avro").collect()
    rows = load(valueFormat="avro", onValueError="null").orderBy("offset").collect()
    assert [row.value and row.value.id for row in rows] == [1, None, None, None, 1]
    diverted = load(valueFormat="avro", onValueError="divert")
    assert diverted.schema.names[-1] == "valueError"
    rows = diverted.orderBy("offset").collect()
    assert [row.value and row.value.id for row in rows] == [1, None, None, None, 1]
    reasons = [row.valueError for row in rows]
    assert reasons[:1] + reasons[3:] == [None, None, None]
    assert reasons[1] == "its 2 bytes do not begin with Confluent's magic byte 0 and a schema id"
    assert reasons[2] == "1 bytes are left over after what its schema describes"
    only_reasons = load("offset bigint, valueError string", valueFormat="avro", onValueError="divert")
    assert only_reasons.where("valueError IS NOT NULL").count() == 2


def test_a_registry_that_is_down_fails_the_task_and_diverts_nothing(typed_topic: TypedTopic, load: Load) -> None:
    typed_topic.write([typed_topic.encoded(record(ID), {"id": 1})])
    with pytest.raises(Exception, match=r"PYKAFKA_WIRE_REGISTRY\] the schema registry does not respond"):
        load(
            valueFormat="avro", valueSchema=record(ID), onValueError="divert",
            **{"schema.registry.url": "http://127.0.0.1:1"},
        ).collect()  # fmt: skip


def test_keys_and_values_are_both_typed(typed_topic: TypedTopic, load: Load) -> None:
    key = typed_topic.encoded('"long"', 5, MessageField.KEY)
    typed_topic.write([b'{"id": 1, "at": "2026-03-01T10:00:00"}', b"[]"], key=key)
    found = load(
        keyFormat="avro", valueFormat="json", valueSchema="id BIGINT, at TIMESTAMP_NTZ", onValueError="divert", onKeyError="divert",
    ).orderBy("offset")  # fmt: skip
    assert found.schema.names[-2:] == ["keyError", "valueError"]
    assert found.schema["value"].dataType.simpleString() == "struct<id:bigint,at:timestamp_ntz>"
    one, other = found.collect()
    assert (one.key, one.value.id, one.value.at.isoformat()) == (5, 1, "2026-03-01T10:00:00")
    assert (one.keyError, one.valueError) == (None, None)
    assert (other.key, other.value, other.keyError) == (5, None, None)
    assert "an array" in other.valueError or "struct" in other.valueError


def test_text_that_is_not_utf_8_is_an_error_of_its_row(typed_topic: TypedTopic, load: Load) -> None:
    typed_topic.write(["ä".encode(), b"\xff", None, b""])
    with pytest.raises(Exception, match=r"offset 1 cannot be decoded as string: its byte 0 is not UTF-8\. To read on"):
        load(valueFormat="string").collect()
    rows = load(valueFormat="string", onValueError="divert").orderBy("offset").collect()
    assert [row.value for row in rows] == ["ä", None, None, ""]
    assert [row.valueError for row in rows] == [None, "its byte 0 is not UTF-8", None, None]


def test_protobuf_values_are_read_by_the_newest_schema(typed_topic: TypedTopic, load: Load) -> None:
    text = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string country = 2; } message Bill { int64 id = 1; }'
    number = typed_topic.register(text, "PROTOBUF")
    frame = b"\0" + number.to_bytes(4, "big")
    typed_topic.write([frame + b"\0" + b"\x08\x07\x12\x02NO", frame + b"\x02\x02" + b"\x08\x05"])
    rows = load(valueFormat="protobuf", onValueError="divert").orderBy("offset").collect()
    assert [row.value and row.value.asDict() for row in rows] == [{"id": 7, "country": "NO"}, None]
    assert rows[1].valueError == "it is a message shop.Bill, and shop.Order is read"
    rows = load(valueFormat="protobuf", valueMessage="shop.Bill", onValueError="null").orderBy("offset").collect()
    assert [row.value and row.value.asDict() for row in rows] == [None, {"id": 5}]


def test_plain_values_are_read_without_a_registry(typed_topic: TypedTopic, load: Load) -> None:
    typed_topic.write([b"\x0e\x04NO"])
    found = load(valueFormat="avro", valueSchema=record(ID, COUNTRY), **{"schema.registry.url": ""})
    assert [row.value.asDict() for row in found.collect()] == [{"id": 7, "country": "NO"}]


def test_topics_whose_schemas_differ_are_refused(
    typed_topic: TypedTopic, load: Load, topic: Any, registry_url: str, outside: Any
) -> None:
    other = TypedTopic(registry_url, topic(1), outside)
    typed_topic.register(record(ID))
    other.register(record(ID, COUNTRY))
    names = f"{typed_topic.name},{other.name}"
    with pytest.raises(
        Exception, match=r"the topics' newest schemas differ: .*name one subject for all with valueSubject"
    ):
        load(valueFormat="avro", subscribe=names)
    found = load(valueFormat="avro", subscribe=names, valueSubject=f"{other.name}-value")
    assert found.schema["value"].dataType.simpleString() == "struct<id:bigint,country:string>"
    with pytest.raises(
        Exception,
        match=r"has no subject .*-key with the schema of the key of topic .* Name the subject with keySubject",
    ):
        load(keyFormat="avro")
    with pytest.raises(Exception, match=r"is AVRO, and valueFormat is protobuf: set valueFormat to avro"):
        load(valueFormat="protobuf")
    found = load("offset bigint, value struct<id: bigint>", valueFormat="avro", subscribe=names, valueSchema=record(ID))
    assert found.count() == 0


def test_a_pattern_s_topics_give_the_schema(typed_topic: TypedTopic, spark: Any, kafka: Any, registry_url: str) -> None:
    typed_topic.register(record(ID))
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "schema.registry.url": registry_url}
    reader = spark.read.format("pykafka-wire").options(**options, valueFormat="avro")
    found = reader.option("subscribePattern", f"^{typed_topic.name}$").load()
    assert found.schema["value"].dataType.simpleString() == "struct<id:bigint>"
    with pytest.raises(Exception, match=r"there is no topic whose subject could give the schema of the value"):
        reader.option("subscribePattern", "^no such topic$").load()


def test_json_is_a_variant_as_parse_json_makes_it(spark: Any, kafka: Any, typed_topic: TypedTopic, load: Load) -> None:
    documents = ['{"id": 1, "a": {"b": [1.50, "x", null]}}', "7", '"text"', '{"z": 123456789012, "id": 1e30}', "[]"]
    typed_topic.write([each.encode() for each in documents] + [None, b"{"])
    rows = load(valueFormat="json", valueSchema="VARIANT", onValueError="divert")
    assert rows.schema["value"].dataType.simpleString() == "variant"
    bytes_of = load(valueFormat="string").selectExpr("offset", "try_parse_json(value) AS parsed")
    both = rows.join(bytes_of, "offset").selectExpr(
        "to_json(value)", "to_json(parsed)", "schema_of_variant(value)", "schema_of_variant(parsed)", "valueError"
    )
    found = both.orderBy("offset").collect()
    assert [(row[0], row[2]) for row in found] == [(row[1], row[3]) for row in found]
    assert [row[0] is None for row in found] == [False] * 5 + [True] * 2
    assert [row.valueError is None for row in found] == [True] * 6 + [False]
    assert rows.selectExpr("sum(try_variant_get(value, '$.a.b[0]', 'decimal(5,2)'))").first()[0] == 1.5
    mixed = load(valueFormat="json", valueSchema="id BIGINT, a VARIANT", onValueError="null")
    assert mixed.selectExpr("to_json(value.a)").first()[0] == '{"b":[1.5,"x",null]}'
    with pytest.raises(Exception, match=r"PYKAFKA_WIRE_SCHEMA\].*column value is, or holds, a VARIANT.*to_json"):
        rows.select("value").write.format("pykafka-wire").mode("append").options(
            **{"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": typed_topic.name, "valueFormat": "json"}
        ).save()


def test_avro_of_connect_has_the_types_that_its_names_say_where_that_is_asked_for(
    typed_topic: TypedTopic, load: Load
) -> None:
    def of(name: str, kind: str) -> dict[str, Any]:
        return {"type": kind, "connect.version": 1, "connect.name": f"io.debezium.{name}"}

    money = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    fields = {
        "born": of("time.Date", "int"),
        "seen": of("time.MicroTimestamp", "long"),
        "at": of("time.ZonedTimestamp", "string"),
        "clock": of("time.MicroTime", "long"),
        "doc": of("data.Json", "string"),
        "m": money,
        "u": ["string", "long"],
    }
    schema = record(*({"name": name, "type": kind} for name, kind in fields.items()))
    row = {
        "born": 20000,
        "seen": 5_000_000,
        "at": "2020-01-02T03:04:05Z",
        "clock": 1,
        "doc": "{}",
        "m": Decimal("12.34"),
        "u": 5,
    }
    typed_topic.write([typed_topic.encoded(schema, row)])
    plain = load(valueFormat="avro", columns="value").select("value.*").schema.simpleString()
    assert plain == (
        "struct<born:int,seen:bigint,at:string,clock:bigint,doc:string,m:decimal(38,2),u:struct<member_string:string,member_long:bigint>>"
    )
    asked = {
        "connectTypes": "variant",
        "timesAsNumbers": "true",
        "largeDecimals": "string",
        "avroUnionFields": "number",
    }
    found = load(valueFormat="avro", columns="value", **asked).select("value.*")
    assert found.schema.simpleString() == (
        "struct<born:date,seen:timestamp_ntz,at:timestamp,clock:bigint,doc:variant,m:string,u:struct<member0:string,member1:bigint>>"
    )
    assert found.selectExpr("CAST(struct(born, seen, at, clock, to_json(doc), m, u.member1) AS STRING)").first()[0] == (
        "{2024-10-04, 1970-01-01 00:00:05, 2020-01-02 03:04:05, 1, {}, 12.34, 5}"
    )
