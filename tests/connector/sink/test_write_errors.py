"""Writes that fail, and whether they fail before any task runs."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest
from pyspark.sql.types import StructType

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.sink.task_writer import WrittenTask
from pykafka_wire.sink.writer import check_batch_write
from pykafka_wire.wire.errors import NoBrokerAvailableError, UnknownTopicError
from tests.connector.sink.batch_writes import DIVERT, NOBODY, failure, failure_without_a_job, write

# --- errors


def test_a_partition_that_the_topic_does_not_have(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(3)
    for wrong in (3, -1):
        frame = spark.createDataFrame([(wrong, "v")], "partition int, value string")
        text = failure(lambda frame=frame: write(frame, kafka, topic=name))
        assert (
            f"[PYKAFKA_WIRE_WRITE] a row names partition {wrong} of topic {name}, which has 3 partitions (0 to 2)"
            in text
        )
    assert outside.consume(name) == []


def test_a_null_topic(spark: Any, kafka: Any) -> None:
    frame = spark.createDataFrame([(None, "v")], "topic string, value string")
    assert "[PYKAFKA_WIRE_WRITE] a row has a null topic" in failure(lambda: write(frame, kafka))


def test_a_topic_in_a_row_that_does_not_exist(spark: Any, kafka: Any) -> None:
    frame = spark.createDataFrame([("no-such-topic-here", "v")], "topic string, value string")
    text = failure(lambda: write(frame, kafka))
    assert "no-such-topic-here" in text and "UNKNOWN_TOPIC_OR_PARTITION" in text


def test_an_unknown_dead_letter_topic_or_partitioner_fails_before_any_task(spark: Any, kafka: Any, topic: Any) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    name = topic(1)
    options = {"topic": name, "deadLetterTopic": "no-such-topic-here", **DIVERT}
    assert "no-such-topic-here" in failure_without_a_job(spark, lambda: write(frame, kafka, **options))
    options = {"topic": name, "kafka.partitioner.class": "no_such_module:f"}
    assert "'no_such_module:f', which cannot be imported" in failure_without_a_job(
        spark, lambda: write(frame, kafka, **options)
    )


def test_an_unknown_topic_fails_before_any_task(spark: Any, kafka: Any) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    text = failure_without_a_job(spark, lambda: write(frame, kafka, topic="no-such-topic-here"))
    assert "no-such-topic-here" in text and "UNKNOWN_TOPIC_OR_PARTITION" in text


def test_a_stream_to_an_unknown_topic_fails_before_any_task(queries: Any, kafka: Any, topic: Any, outside: Any) -> None:
    source = topic(1)
    outside.fill(source, [1])
    query = (
        queries.stream(subscribe=source)
        .select("value")
        .writeStream.format("pykafka-wire")
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "no-such-topic-here"})
        .option("checkpointLocation", str(queries.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    text = failure(lambda: query.awaitTermination(120))
    assert "no-such-topic-here" in text and "UNKNOWN_TOPIC_OR_PARTITION" in text
    assert "Failed to initialize Python data source writer" in text  # no task has run


def test_a_stream_to_brokers_that_are_not_there_fails_before_its_first_batch(queries: Any, topic: Any) -> None:
    """Its first micro-batch is empty: no task would connect, and Spark would log it as done."""
    query = (
        queries.stream(subscribe=topic(1))
        .select("value")
        .writeStream.format("pykafka-wire")
        .options(**NOBODY, topic="orders")
        .option("checkpointLocation", str(queries.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    text = failure(lambda: query.awaitTermination(120))
    assert "[PYKAFKA_WIRE_NO_BROKER_AVAILABLE]" in text and "127.0.0.1:1" in text
    assert queries.committed_offsets() == {}


def test_a_topic_column_does_not_keep_a_write_from_checking_its_brokers() -> None:
    with pytest.raises(NoBrokerAvailableError):
        check_batch_write(parse_sink_options(NOBODY))


@pytest.mark.parametrize("to", [{}, {"topic": "orders"}], ids=["column", "option"])
def test_an_outage_does_not_end_a_stream_before_its_tasks_have_retried(to: dict[str, str]) -> None:
    """Spark plans a micro-batch in a new process after a minute without one: that the brokers are unknown there means nothing."""
    schema = StructType().add("value", "string").add("topic", "string")
    writer = PykafkaWireDataSource(NOBODY | to).streamWriter(schema, False)
    with pytest.raises(NoBrokerAvailableError):
        writer.commit([WrittenTask(n_records=0, n_bytes=0)], 0)  # a new query's, and empty: no task has connected
    writer.commit([WrittenTask(n_records=0, n_bytes=0)], 7)
    writer.commit([WrittenTask(n_records=0, n_bytes=0), WrittenTask(n_records=1, n_bytes=9)], 0)


def test_what_is_in_kafka_is_committed_though_nothing_can_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are there. A commit that fails makes Spark write them again."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.python_streaming_sink_runner", sys)  # commits run under it
    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.setblocking(False)
        options = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.getsockname()[1]}", "topic": "orders"}
        options["kafka.default.api.timeout.ms"] = "500"
        writer = PykafkaWireDataSource(options).streamWriter(StructType().add("value", "string"), False)
        writer.commit([WrittenTask(n_records=1, n_bytes=9)], 0)
        with pytest.raises(BlockingIOError):
            broker.accept()  # nobody has asked it anything


def test_a_marker_topic_that_does_not_exist_fails_before_any_task(kafka: Any, topic: Any) -> None:
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic(1), "markerTopic": "no-such-marker"}
    asked |= {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": "t"}
    with pytest.raises(UnknownTopicError, match="no-such-marker"):
        PykafkaWireDataSource(asked).streamWriter(StructType().add("value", "string"), False)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("CAST(id AS STRING) AS text", {"topic": "t"}, "[PYKAFKA_WIRE_SCHEMA] the rows have no column 'value'"),
        (["'v' AS value", "'k' AS kye"], {"topic": "t"}, "[PYKAFKA_WIRE_SCHEMA] column 'kye' would not be written"),
        (
            ["'v' AS value", "'w' AS value"],
            {"topic": "t"},
            "[PYKAFKA_WIRE_SCHEMA] the rows have more than one column 'value'",
        ),
        ("CAST(id AS STRING) AS value", {}, "[PYKAFKA_WIRE_SCHEMA] no topic to write to"),
        ("id AS value", {"topic": "t"}, "[PYKAFKA_WIRE_SCHEMA] column 'value' is bigint"),
        ("CAST(id AS STRING) AS value", {"topics": "t"}, "unknown option 'topics': did you mean topic?"),
        (
            "CAST(id AS STRING) AS value",
            {"topic": "t", "kafka.compression.type": "brotli"},
            "compression.type",
        ),
    ],
)
def test_what_cannot_be_written_fails_before_any_task(
    spark: Any, kafka: Any, columns: str | list[str], options: dict[str, str], text: str
) -> None:
    frame = spark.range(3).selectExpr(columns)
    assert text in failure_without_a_job(spark, lambda: write(frame, kafka, **options))


def test_no_bootstrap_servers(spark: Any) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    text = failure_without_a_job(
        spark, lambda: frame.write.format("pykafka-wire").mode("append").option("topic", "t").save()
    )
    assert "kafka.bootstrap.servers is missing" in text


def test_a_topic_cannot_be_overwritten(spark: Any, kafka: Any, topic: Any) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic(1)}
    text = failure(lambda: frame.write.format("pykafka-wire").mode("overwrite").options(**asked).save())
    assert '.mode("append")' in text


def test_a_record_too_large_names_its_place_and_fails_the_write(
    spark: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    name = topic(1, {"max.message.bytes": "20000"})
    frame = spark.range(1).selectExpr("repeat('x', 50000) AS value")
    text = failure(lambda: write(frame, kafka, topic=name))
    assert f"{name}-0" in text and "MESSAGE_TOO_LARGE" in text
    assert "1 records (row 0) has 500" in text and "more than max.message.bytes allows" in text
    assert outside.consume(name) == []
