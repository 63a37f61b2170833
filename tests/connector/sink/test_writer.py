"""Writes to real topics, read back by independent clients."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.connector.sink.batch_writes import DIVERT, failure, write

pytestmark = [pytest.mark.broker, pytest.mark.spark]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
T0_MS = 1_700_000_000_000


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
