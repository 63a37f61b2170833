"""Schemas that a user or a session setting changes: what is read under them, and what is refused with the way out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import TimestampType

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture
def timestamps_without_zone(spark: Any) -> Iterator[None]:
    """A session in which the type name TIMESTAMP means TIMESTAMP_NTZ."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    yield
    spark.conf.unset("spark.sql.timestampType")


def test_a_session_whose_timestamps_have_no_time_zone_reads_the_same(
    spark: Any, kafka: Any, topic: Any, outside: Any, queries: Any, timestamps_without_zone: None
) -> None:
    name, now_ms = topic(1), time.time_ns() // 1_000_000
    outside.produce(name, [outside.Record(value=b"a", timestamp_ms=now_ms)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}
    frame = spark.read.format("pykafka-wire").options(**options).load()
    assert frame.schema["timestamp"].dataType == TimestampType()
    (row,) = frame.selectExpr("unix_millis(timestamp) AS ms", "value").collect()
    assert (row.ms, bytes(row.value)) == (now_ms, b"a")
    queries.run(subscribe=name)
    assert queries.rows() == [(0, 0, b"a")]
    explicit = spark.read.format("pykafka-wire").options(**options).schema("timestamp timestamp_ltz, offset bigint")
    assert [row.offset for row in explicit.load().collect()] == [0]
    with pytest.raises(Exception, match=r"PYKAFKA_WIRE_SCHEMA.*spark\.sql\.timestampType.*timestamp TIMESTAMP_LTZ"):
        spark.read.format("pykafka-wire").options(**options).schema("timestamp timestamp").load().collect()


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("value binary not null", "value"),
        ("offset bigint, key binary not null", "key"),
        ("headers array<struct<key:string,value:binary>> not null", "headers"),
        ("headers array<struct<key:string,value:binary not null>>", "headers"),
    ],
)
def test_a_column_that_may_be_null_is_refused_as_not_null(
    schema: str, column: str, spark: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    name = topic(1)
    outside.produce(name, [outside.Record(value=None, headers=(("h", None),))])
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}
    with pytest.raises(Exception, match=rf"PYKAFKA_WIRE_SCHEMA.*'{column}'.*NOT NULL.*IS NOT NULL"):
        spark.read.format("pykafka-wire").options(**options).schema(schema).load().collect()


def test_a_column_that_is_never_null_may_be_not_null(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.produce(name, [outside.Record(value=None)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}
    never_null = "topic string not null, partition int not null, offset bigint not null, timestampType int not null"
    frame = spark.read.format("pykafka-wire").options(**options).schema(f"{never_null}, value binary").load()
    assert [(row.topic, row.partition, row.offset, row.value) for row in frame.collect()] == [(name, 0, 0, None)]


def test_log_append_time_has_a_timestamp_type_of_its_own(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    outside.fill(name, [2])
    rows = (
        spark.read.format("pykafka-wire")
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name})
        .load()
        .selectExpr("unix_millis(timestamp) AS ms", "timestampType")
        .collect()
    )
    assert [row.timestampType for row in rows] == [1, 1]
    assert all(before - 1000 <= row.ms <= time.time() * 1000 + 1000 for row in rows)


def test_a_timestamp_that_spark_cannot_hold_is_the_last_day_of_python(
    spark: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    """SPARK-56243: a producer that sends nanoseconds. One such record does not make the topic unreadable."""
    name = topic(1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    sent = [1000, 1712345678123456789, 1712345678123456, 2**63 - 1]
    outside.produce(name, [outside.Record(value=b"%d" % n, timestamp_ms=at) for n, at in enumerate(sent)])
    read = (
        spark.read.format("pykafka-wire")
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name})
        .load()
    )
    rows = read.selectExpr("offset", "value", "unix_millis(timestamp) AS ms").orderBy("offset").collect()
    last_day = 253_402_214_400_000  # 9999-12-31
    assert [(row.ms, bytes(row.value)) for row in rows] == [
        (last_day if at > (2**63 - 1) // 1000 else at, b"%d" % number) for number, at in enumerate(sent)
    ]
    # Python has this day: rows can be collected, which those of later years cannot.
    collected = read.where("offset <> 2").select("timestamp").collect()
    assert [row.timestamp.year for row in collected][1:] == [9999, 9999]


@pytest.mark.parametrize(
    "trigger", [{}, {"processingTime": "1 second"}, {"availableNow": True}, {"once": True}], ids=str
)
def test_a_stream_from_brokers_that_are_not_there_fails_before_its_first_batch(
    trigger: dict[str, Any], spark: Any, tmp_path: Path
) -> None:
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}
    frame = spark.readStream.format("pykafka-wire").options(**nobody)
    writer = (
        frame.option("subscribe", "t").load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    )
    query = (writer.trigger(**trigger) if trigger else writer).start()
    with pytest.raises(Exception, match=r"PYKAFKA_WIRE_NO_BROKER_AVAILABLE.*127\.0\.0\.1:1"):
        query.awaitTermination(120)
    assert not [file for log in ("offsets", "commits") for file in (tmp_path / log).glob("[0-9]*")]
