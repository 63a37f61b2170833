"""Writes to real topics, read back by independent clients."""

from __future__ import annotations

import socket
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.sink.preflight import check_batch_write
from pykafka_wire.sink.task_writer import WrittenTask
from pykafka_wire.wire.errors import NoBrokerAvailableError, UnknownTopicError

pytestmark = [pytest.mark.broker, pytest.mark.spark]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
T0_MS = 1_700_000_000_000
#: Options of a write to brokers that are not there.
NOBODY = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}


def write(frame: Any, kafka: Any, **options: str) -> None:
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers} | options
    frame.write.format("pykafka-wire").mode("append").options(**asked).save()


def failure(action: Any) -> str:
    with pytest.raises(PySparkException) as raised:
        action()
    return str(raised.value)


def failure_without_a_job(spark: Any, action: Any) -> str:
    """The text of an error that no job of Spark preceded."""
    group = f"no-job-{uuid.uuid4()}"
    spark.sparkContext.setJobGroup(group, "must not start")
    try:
        text = failure(action)
        assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == []
    finally:
        spark.sparkContext._jsc.clearJobGroup()
    return text


def test_every_column_arrives(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    for_ever = {"retention.ms": "-1"}  # the records are old
    first, second = topic(2, for_ever), topic(1, for_ever)
    columns = (
        "topic string, partition int, key binary, value binary, timestamp timestamp, "
        "headers array<struct<key:string,value:binary>>, extra int"
    )
    rows = [
        (first, 1, b"k", b"v", T0_MS, [("a", b"1"), ("a", None), ("ü", b"")], 1),
        (first, 0, None, b"\x00\xff", T0_MS + 1, None, 2),
        (first, 1, b"", None, T0_MS + 2, [], 3),
        (second, 0, b"other", b"", T0_MS + 3, None, 4),
    ]
    frame = spark.createDataFrame(rows, columns.replace("timestamp timestamp", "ms bigint")).selectExpr(
        "extra", "headers", "value", "key", "partition", "topic", "timestamp_millis(ms) AS timestamp"
    )
    write(frame.coalesce(1), kafka)
    record = outside.Record
    assert outside.consume(first) == [
        record(partition=0, offset=0, key=None, value=b"\x00\xff", timestamp_ms=T0_MS + 1),
        record(
            partition=1,
            offset=0,
            key=b"k",
            value=b"v",
            timestamp_ms=T0_MS,
            headers=(("a", b"1"), ("a", None), ("ü", b"")),
        ),
        record(partition=1, offset=1, key=b"", value=None, timestamp_ms=T0_MS + 2),
    ]
    assert outside.consume(second) == [record(partition=0, offset=0, key=b"other", value=b"", timestamp_ms=T0_MS + 3)]


def test_strings_are_written_as_utf8_and_the_time_is_now(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    before = int(time.time() * 1000)
    write(spark.createDataFrame([("ü", "grün")], "key string, value string"), kafka, topic=name)
    (record,) = outside.consume(name)
    assert (record.key, record.value) == ("ü".encode(), "grün".encode())
    assert before <= record.timestamp_ms <= time.time() * 1000


def test_the_option_topic_beats_the_column(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    asked, named = topic(1), topic(1)
    write(spark.createDataFrame([(named, "v")], "topic string, value string"), kafka, topic=asked)
    assert len(outside.consume(asked)) == 1 and outside.consume(named) == []


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_by_both_clients(codec: str, spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    from kafka import KafkaConsumer, TopicPartition

    name = topic(1)
    frame = spark.range(0, 2000, 1, 2).selectExpr(
        "CAST(id AS STRING) AS key",
        "IF(id % 7 = 0, NULL, repeat(CAST(id AS STRING), 20)) AS value",
        "IF(id % 3 = 0, array(named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))), NULL) AS headers",
    )
    write(frame, kafka, topic=name, **{"kafka.compression.type": codec})
    expected = {
        b"%d" % i: (None if i % 7 == 0 else b"%d" % i * 20, (("h", b"%d" % i),) if i % 3 == 0 else ())
        for i in range(2000)
    }
    found = outside.consume(name)
    assert len(found) == 2000
    assert {r.key: (r.value, r.headers) for r in found} == expected

    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        check_crcs=True,
    )
    try:
        consumer.assign([TopicPartition(name, 0)])
        seen: dict[bytes, Any] = {}
        deadline = time.monotonic() + 30
        while len(seen) < 2000:
            assert time.monotonic() < deadline, len(seen)
            for messages in consumer.poll(timeout_ms=1000).values():
                seen |= {m.key: (m.value, tuple(m.headers)) for m in messages}
    finally:
        consumer.close()
    assert seen == expected


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_written_is_read_back_equal(codec: str, spark: Any, kafka: Any, topic: Any) -> None:
    name = topic(3)
    frame = spark.range(0, 500, 1, 2).selectExpr(
        "CAST(id % 50 AS STRING) AS key", "CAST(CONCAT('value ', id) AS BINARY) AS value"
    )
    write(frame, kafka, topic=name, **{"kafka.compression.type": codec})
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}
    found = spark.read.format("pykafka-wire").options(**asked).load()
    assert sorted((str(bytes(r.key), "ascii"), bytes(r.value)) for r in found.collect()) == sorted(
        (r.key, bytes(r.value)) for r in frame.collect()
    )


def test_keys_go_where_javas_producer_sends_them(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    from confluent_kafka import Producer
    from kafka.partitioner.default import murmur2

    ours, theirs, n_partitions = topic(7), topic(7), 7
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"\x00\xff\x80", "grün".encode(), *(b"key-%d" % i for i in range(300))]
    write(spark.createDataFrame([(key, b"v") for key in keys], "key binary, value binary"), kafka, topic=ours)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(theirs, key=key, value=b"v")
    assert producer.flush(30) == 0
    placed = {record.key: record.partition for record in outside.consume(ours)}
    assert placed == {key: (murmur2(key) & 0x7FFFFFFF) % n_partitions for key in keys}
    # librdkafka places an empty key at random: an empty key is no key to it.
    assert {k: p for k, p in placed.items() if k} == {r.key: r.partition for r in outside.consume(theirs) if r.key}


def test_rows_without_a_key_use_every_partition(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(4)
    frame = spark.range(1000).selectExpr("repeat(CAST(id AS STRING), 100) AS value")
    write(frame, kafka, topic=name, **{"kafka.batch.size": "16384"})
    found = outside.consume(name)
    assert len(found) == 1000
    assert {record.partition for record in found} == {0, 1, 2, 3}


def test_a_partition_column_beats_the_key_and_null_leaves_it_to_the_key(
    spark: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    name = topic(5)
    rows = [("same", p, str(p)) for p in range(5)] + [("same", None, "by key")]
    write(spark.createDataFrame(rows, "key string, partition int, value string"), kafka, topic=name)
    from kafka.partitioner.default import murmur2

    by_key = (murmur2(b"same") & 0x7FFFFFFF) % 5
    assert sorted((r.partition, r.value) for r in outside.consume(name)) == sorted(
        [(p, b"%d" % p) for p in range(5)] + [(by_key, b"by key")]
    )


def test_the_order_of_rows_within_a_partition_is_kept(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(2)
    frame = spark.range(0, 30_000, 1, 1).selectExpr("CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value")
    write(frame, kafka, topic=name)
    found = outside.consume(name)
    assert len(found) == 30_000
    for partition in (0, 1):
        numbers = [int(r.value) for r in found if r.partition == partition]
        assert numbers == sorted(numbers) and numbers


def test_an_empty_frame_writes_nothing(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    write(spark.createDataFrame([], "value string"), kafka, topic=name)
    assert outside.consume(name) == []


def test_batches_are_cut_by_what_their_topic_takes(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    small, default = topic(1, {"max.message.bytes": "10000"}), topic(1)
    frame = spark.range(0, 2000, 1, 1).selectExpr(
        f"IF(id % 2 = 0, '{small}', '{default}') AS topic", "repeat(CAST(id AS STRING), 20) AS value"
    )
    write(frame, kafka)
    for name, rest in ((small, 0), (default, 1)):
        assert [r.value for r in outside.consume(name)] == [b"%d" % i * 20 for i in range(rest, 2000, 2)]


def test_rows_are_dealt_out_in_turn_when_asked_for(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(4)
    frame = spark.range(0, 40, 1, 1).selectExpr("'same' AS key", "CAST(id AS STRING) AS value")
    write(frame, kafka, topic=name, **{"kafka.partitioner.class": "RoundRobinPartitioner"})
    found = outside.consume(name)
    assert [sum(r.partition == p for r in found) for p in range(4)] == [10] * 4


def test_a_partitioner_by_import_path_places_rows_unless_a_column_does(
    spark: Any, kafka: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    name, module = topic(4), f"placing_{uuid.uuid4().hex}"
    file = tmp_path / f"{module}.py"
    file.write_text(
        "import pyarrow.compute as pc\n"
        "def by_length(topic, keys, values, n_partitions):\n"
        "    return pc.binary_length(values)\n"
    )
    spark.sparkContext.addPyFile(str(file))
    rows = [("a", None), ("bb", None), ("ccc", None), ("dddd", 3)]
    frame = spark.createDataFrame(rows, "value string, partition int")
    write(frame, kafka, topic=name, **{"kafka.partitioner.class": f"{module}:by_length"})
    assert {r.value: r.partition for r in outside.consume(name)} == {b"a": 1, b"bb": 2, b"ccc": 3, b"dddd": 3}


# --- refused records


DIVERT = {"onRecordError": "divert"}


def test_records_that_a_broker_refuses_go_to_the_dead_letter_topic(
    spark: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    name, dead = topic(2, {"max.message.bytes": "2000"}), topic(1, {"max.message.bytes": "10000"})
    rows = [
        (i, f"k{i}", ("x" if i not in (7, 8) else "y" * (5_000 if i == 7 else 50_000)) + str(i), [("own", b"h")])
        for i in range(20)
    ]
    columns = "partition int, key string, value string, headers array<struct<key:string,value:binary>>"
    frame = spark.createDataFrame([(i % 2, *row) for i, *row in rows], columns).coalesce(1)
    write(frame, kafka, topic=name, deadLetterTopic=dead, **DIVERT)
    assert sorted(r.key for r in outside.consume(name)) == sorted(b"k%d" % i for i in range(20) if i not in (7, 8))
    whole, short = sorted(outside.consume(dead), key=lambda record: record.key)
    assert (whole.key, whole.value, whole.headers[0]) == (b"k7", b"y" * 5_000 + b"7", ("own", b"h"))
    assert (short.key, short.value, short.headers[0]) == (b"k8", None, ("own", b"h"))
    for record, partition in ((whole, b"1"), (short, b"0")):
        said = dict(record.headers)
        assert said["pykafka-wire.error"] == b"MESSAGE_TOO_LARGE"
        assert (said["pykafka-wire.topic"], said["pykafka-wire.partition"]) == (name.encode(), partition)
        assert b"max.message.bytes" in said["pykafka-wire.reason"]
    assert "pykafka-wire.value.bytes" not in dict(whole.headers)
    assert dict(short.headers)["pykafka-wire.value.bytes"] == b"50001"


def test_invalid_records_are_diverted_with_the_brokers_words(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    compacted, dead = topic(1, {"cleanup.policy": "compact"}), topic(1)
    late = topic(1, {"message.timestamp.before.max.ms": "3600000"})
    rows = [(compacted, "k", "kept", None), (compacted, None, "no key", None), (late, "k", "1970", 0)]
    frame = spark.createDataFrame(rows, "topic string, key string, value string, ms bigint").selectExpr(
        "topic", "key", "value", "timestamp_millis(ms) AS timestamp"
    )
    before_ms = int(time.time() * 1000)
    write(frame, kafka, deadLetterTopic=dead, **DIVERT)
    assert [r.value for r in outside.consume(compacted)] == [b"kept"] and outside.consume(late) == []
    found = {r.value: (r.timestamp_ms, dict(r.headers)) for r in outside.consume(dead)}
    assert found.keys() == {b"no key", b"1970"}
    assert found[b"no key"][1]["pykafka-wire.error"] == b"INVALID_RECORD"
    assert b"key" in found[b"no key"][1]["pykafka-wire.reason"]
    assert found[b"1970"][1]["pykafka-wire.error"] == b"INVALID_TIMESTAMP"
    assert found[b"1970"][1]["pykafka-wire.timestamp"] == b"0"
    assert found[b"1970"][0] >= before_ms


def test_a_dead_letter_that_is_refused_fails_the_write(spark: Any, kafka: Any, topic: Any) -> None:
    name, dead = topic(1, {"max.message.bytes": "2000"}), topic(1, {"cleanup.policy": "compact"})
    frame = spark.range(1).selectExpr("repeat('x', 5000) AS value")
    text = failure(lambda: write(frame, kafka, topic=name, deadLetterTopic=dead, **DIVERT))
    assert "[PYKAFKA_WIRE_WRITE] the dead-letter topic rejects a dead letter: INVALID_RECORD" in text


def test_a_row_of_the_dead_letter_topics_own_is_refused(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name, dead = topic(1), topic(1, {"max.message.bytes": "2000"})
    frame = spark.createDataFrame([(name, "sent"), (dead, "x" * 5000)], "topic string, value string").coalesce(1)
    text = failure(lambda: write(frame, kafka, deadLetterTopic=dead, **DIVERT))
    assert f"[PYKAFKA_WIRE_WRITE] a row names {dead} as its topic, which is the deadLetterTopic" in text
    assert outside.consume(dead) == []


# --- streams


def test_a_stream_from_topic_to_topic(spark: Any, queries: Any, kafka: Any, topic: Any, outside: Any) -> None:
    source, target = topic(2), topic(3)
    asked = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": target, "kafka.compression.type": "lz4"}

    def run() -> Any:
        query = (
            queries.stream(subscribe=source, maxOffsetsPerTrigger="100")
            .selectExpr("value AS key", "CONCAT('copy of ', CAST(value AS STRING)) AS value")
            .writeStream.format("pykafka-wire")
            .options(**asked)
            .option("checkpointLocation", str(queries.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return query

    sent = outside.fill(source, [120, 30])
    assert len([p for p in run().recentProgress if p["numInputRows"]]) == 2
    sent += outside.fill(source, [10, 0], first=1000)
    run()
    found = outside.consume(target)
    assert sorted((r.key, r.value) for r in found) == sorted((value, b"copy of " + value) for _, value in sent)


def test_complete_mode_writes_every_row_of_every_batch(
    spark: Any, queries: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    source, target = topic(1), topic(1)
    outside.fill(source, [5])
    counted = queries.stream(subscribe=source).groupBy("topic").count().selectExpr("CAST(count AS STRING) AS value")
    for expected in ([b"5"], [b"5", b"7"]):
        query = (
            counted.writeStream.format("pykafka-wire")
            .outputMode("complete")
            .options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": target})
            .option("checkpointLocation", str(queries.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert [r.value for r in outside.consume(target)] == expected
        outside.fill(source, [2])


# --- SQL


def test_insert_into_a_temporary_view(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name, view = topic(1), f"v_{uuid.uuid4().hex[:8]}"
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} (value STRING) USING `pykafka-wire` "
        f"OPTIONS (`kafka.bootstrap.servers` '{kafka.bootstrap_servers}', topic '{name}')"
    )
    spark.sql(f"INSERT INTO {view} VALUES ('from SQL')")
    spark.catalog.dropTempView(view)
    assert [r.value for r in outside.consume(name)] == [b"from SQL"]


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
    assert "no_such_module:f, which cannot be imported" in failure_without_a_job(
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
        .options(**{"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"})
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
