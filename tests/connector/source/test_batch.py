"""Batch reads of real topics: columns, subscriptions, offsets, timestamps, and errors before any task runs."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException

pytestmark = [pytest.mark.broker, pytest.mark.spark]

#: 2023-11-14T22:13:20Z: record ``i`` of each partition is ``i`` seconds later.
T0_MS = 1_700_000_000_000
N_PARTITIONS = 3


@pytest.fixture(scope="module")
def orders(outside: Any) -> Iterator[tuple[str, list[Any]]]:
    """A topic with nulls, headers and timestamps in three partitions, and the records as they stand in it."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    outside.create(topic, N_PARTITIONS, **{"retention.ms": "-1"})  # the records are old
    record = outside.Record
    sent = [
        record(key=b"k0", value=b"v0", partition=0, timestamp_ms=T0_MS),
        record(key=None, value=b"v1", partition=0, timestamp_ms=T0_MS + 1000),
        record(key=b"", value=b"", partition=0, timestamp_ms=T0_MS + 2000),
        record(key=b"k3", value=None, partition=0, timestamp_ms=T0_MS + 3000),
        record(key=None, value=None, partition=0, timestamp_ms=T0_MS + 4000),
        record(
            key=b"k0",
            value="grün".encode(),
            partition=1,
            timestamp_ms=T0_MS,
            headers=(("a", b"1"), ("a", None), ("ü", b""), ("", b"\x00\xff")),
        ),
        record(key=b"\x00\xff", value=b"x" * 100_000, partition=1, timestamp_ms=T0_MS + 1000),
    ]
    outside.produce(topic, sent)
    yield topic, outside.consume(topic)
    outside.delete(topic)


def reader(spark: Any, kafka: Any, **options: str) -> Any:
    return spark.read.format("pykafka-wire").options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers} | options)


def places(frame: Any) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of every row, sorted."""
    return sorted(
        (row.topic, row.partition, row.offset) for row in frame.select("topic", "partition", "offset").collect()
    )


def refused(spark: Any, kafka: Any, **options: str) -> str:
    """The text of the error of a batch read, which no job of Spark preceded."""
    return failure_without_a_job(spark, lambda: reader(spark, kafka, **options).load().collect())


def failure_without_a_job(spark: Any, action: Any) -> str:
    group = f"no-job-{uuid.uuid4()}"
    spark.sparkContext.setJobGroup(group, "must not start")
    try:
        with pytest.raises(PySparkException) as raised:
            action()
        assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == []
    finally:
        spark.sparkContext._jsc.clearJobGroup()
    return str(raised.value)


# --- columns


def test_columns_and_types_are_those_of_sparks_own_connector(spark: Any, kafka: Any, orders: Any) -> None:
    plain = reader(spark, kafka, subscribe=orders[0]).load()
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in plain.schema.fields] == [
        ("key", "binary", True),
        ("value", "binary", True),
        ("topic", "string", True),
        ("partition", "int", True),
        ("offset", "bigint", True),
        ("timestamp", "timestamp", True),
        ("timestampType", "int", True),
    ]
    with_headers = reader(spark, kafka, subscribe=orders[0], includeHeaders="true").load()
    assert with_headers.schema.fields[:-1] == plain.schema.fields
    headers = with_headers.schema.fields[-1]
    assert (headers.name, headers.dataType.simpleString()) == ("headers", "array<struct<key:string,value:binary>>")


def test_every_record_comes_with_all_its_parts(spark: Any, kafka: Any, orders: Any) -> None:
    topic, sent = orders
    rows = (
        reader(spark, kafka, subscribe=topic, includeHeaders="true")
        .load()
        .selectExpr("*", "unix_millis(timestamp) AS ms")
        .orderBy("partition", "offset")
        .collect()
    )
    assert len(rows) == len(sent) == 7
    for row, record in zip(rows, sent, strict=True):
        assert row.topic == topic
        assert (row.partition, row.offset) == (record.partition, record.offset)
        assert (None if row.key is None else bytes(row.key)) == record.key
        assert (None if row.value is None else bytes(row.value)) == record.value
        assert (row.ms, row.timestampType) == (record.timestamp_ms, 0)
        if record.headers:
            found = tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers)
            assert found == record.headers
        else:
            assert row.headers is None  # as the JVM connector has it


def test_records_of_every_codec_and_of_both_clients(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    from kafka import KafkaProducer

    name, codecs = topic(1), ["none", "gzip", "snappy", "lz4", "zstd"]
    record = outside.Record
    expected = []
    for codec in codecs:
        batch = [
            record(key=None if i % 5 == 0 else b"k%d" % i, value=b"%d" % i * 50, headers=(("c", codec.encode()),))
            for i in range(200)
        ]
        outside.produce(name, batch, codec=codec)
        expected += [(r.key, r.value, codec) for r in batch]
        producer = KafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, compression_type=None if codec == "none" else codec, linger_ms=50
        )
        try:
            for r in batch:
                producer.send(name, key=r.key, value=r.value, headers=list(r.headers))
            producer.flush(30)
        finally:
            producer.close()
        expected += [(r.key, r.value, codec) for r in batch]
    rows = reader(spark, kafka, subscribe=name, includeHeaders="true").load().orderBy("offset").collect()
    found = [
        (r.key if r.key is None else bytes(r.key), bytes(r.value), bytes(r.headers[0].value).decode()) for r in rows
    ]
    assert found == expected


@pytest.mark.parametrize(
    "columns",
    [
        "value binary, offset bigint",
        "headers array<struct<key:string,value:binary>>",
        "topic string",
        "timestamp timestamp, key binary",
    ],
)
def test_a_subset_of_the_columns_in_any_order(spark: Any, kafka: Any, orders: Any, columns: str) -> None:
    names = [part.split()[0] for part in columns.split(", ")]
    subset = reader(spark, kafka, subscribe=orders[0], includeHeaders="true").schema(columns).load()
    whole = reader(spark, kafka, subscribe=orders[0], includeHeaders="true").load().select(*names)
    assert subset.columns == names
    assert sorted(map(repr, subset.collect())) == sorted(map(repr, whole.collect()))


def test_counting_reads_no_column(spark: Any, kafka: Any, orders: Any) -> None:
    assert reader(spark, kafka, subscribe=orders[0]).load().count() == 7


# --- subscriptions


def test_three_ways_to_subscribe(spark: Any, kafka: Any, outside: Any) -> None:
    prefix = f"sub-{uuid.uuid4().hex[:8]}"
    first, second = f"{prefix}-one", f"{prefix}-two"
    outside.create(first, 2)
    outside.create(second, 1)
    outside.fill(first, [2, 1])
    outside.fill(second, [1])
    of_first = [(first, 0, 0), (first, 0, 1), (first, 1, 0)]
    everything = [*of_first, (second, 0, 0)]
    assert places(reader(spark, kafka, subscribe=f"{first}, {second}").load()) == everything
    assert places(reader(spark, kafka, subscribePattern=f"{prefix}-(one|two)").load()) == everything
    # A search, not a full match.
    assert places(reader(spark, kafka, subscribePattern=prefix[2:] + "-o").load()) == of_first
    assigned = json.dumps({first: [1], second: [0]})
    assert places(reader(spark, kafka, assign=assigned).load()) == [(first, 1, 0), (second, 0, 0)]
    outside.delete(first)
    outside.delete(second)


def test_a_pattern_without_a_match_reads_nothing(spark: Any, kafka: Any) -> None:
    assert reader(spark, kafka, subscribePattern="no-such-topic-anywhere").load().count() == 0


def test_internal_topics_never_match(spark: Any, kafka: Any, outside: Any, orders: Any) -> None:
    outside.consume(orders[0])
    assert not [t for t, _, _ in places(reader(spark, kafka, subscribePattern="__consumer_offsets").load())]


def test_an_empty_topic(spark: Any, kafka: Any, topic: Any) -> None:
    assert reader(spark, kafka, subscribe=topic(2)).load().collect() == []


# --- offsets and timestamps


def test_offsets_of_each_partition(spark: Any, kafka: Any, orders: Any) -> None:
    name = orders[0]
    frame = reader(
        spark,
        kafka,
        subscribe=name,
        startingOffsets=json.dumps({name: {"0": 1, "1": -2, "2": 0}}),
        endingOffsets=json.dumps({name: {"0": 3, "1": -1, "2": -1}}),
    ).load()
    assert places(frame) == [(name, 0, 1), (name, 0, 2), (name, 1, 0), (name, 1, 1)]


def test_a_range_that_is_empty(spark: Any, kafka: Any, orders: Any) -> None:
    name = orders[0]
    offsets = json.dumps({name: {"0": 2, "1": 1, "2": 0}})
    assert reader(spark, kafka, subscribe=name, startingOffsets=offsets, endingOffsets=offsets).load().count() == 0


def test_a_start_after_the_end_is_refused(spark: Any, kafka: Any, orders: Any) -> None:
    name = orders[0]
    offsets = {"startingOffsets": json.dumps({name: {"0": 3}}), "endingOffsets": json.dumps({name: {"0": 2}})}
    text = refused(spark, kafka, assign=json.dumps({name: [0]}), **offsets)
    assert f"[PYKAFKA_WIRE_OFFSETS] the read starts after its end: {name}-0 starts at 3 and ends at 2" in text
    text = refused(spark, kafka, assign=json.dumps({name: [0]}), startingOffsets=json.dumps({name: {"0": 9}}))
    assert f"{name}-0 starts at 9 and ends at 5" in text
    times = {"startingTimestamp": str(T0_MS + 2000), "endingTimestamp": str(T0_MS + 1000)}
    assert f"{name}-0 starts at 2 and ends at 1" in refused(spark, kafka, assign=json.dumps({name: [0]}), **times)


def test_a_loaded_frame_keeps_the_offsets_of_its_first_run(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    """Spark asks a Python source for its partitions once for each load()."""
    name = topic(1)
    outside.fill(name, [3])
    frame = reader(spark, kafka, subscribe=name).load()
    first = [(name, 0, o) for o in range(3)]
    assert places(frame) == first
    outside.fill(name, [2])
    assert places(frame.union(frame)) == sorted(first * 2)
    assert places(reader(spark, kafka, subscribe=name).load()) == [(name, 0, o) for o in range(5)]


def test_timestamps_bound_a_read(spark: Any, kafka: Any, orders: Any) -> None:
    name = orders[0]
    frame = reader(
        spark,
        kafka,
        assign=json.dumps({name: [0, 1]}),
        startingTimestamp=str(T0_MS + 1000),
        endingTimestamp=str(T0_MS + 3000),
    ).load()
    # Partition 1 has nothing as late as the end: read to its end.
    assert places(frame) == [(name, 0, 1), (name, 0, 2), (name, 1, 1)]


def test_timestamps_of_each_partition(spark: Any, kafka: Any, orders: Any) -> None:
    name = orders[0]
    frame = reader(
        spark,
        kafka,
        assign=json.dumps({name: [0, 1]}),
        startingOffsetsByTimestamp=json.dumps({name: {"0": T0_MS + 3500, "1": "2023-11-14T22:13:21Z"}}),
    ).load()
    assert places(frame) == [(name, 0, 4), (name, 1, 1)]


def test_no_record_as_late_as_the_start(spark: Any, kafka: Any, orders: Any) -> None:
    late = {"subscribe": orders[0], "startingTimestamp": "2200-01-01T00:00:00Z"}
    text = refused(spark, kafka, **late)
    assert "[PYKAFKA_WIRE_OFFSETS] startingOffsets: there is no record at or after the timestamp in" in text
    assert f"{orders[0]}-0 at 2200-01-01T00:00:00+00:00" in text
    assert "set startingOffsetsByTimestampStrategy to latest" in text
    assert reader(spark, kafka, **late, startingOffsetsByTimestampStrategy="latest").load().count() == 0


def test_a_start_from_the_groups_offsets(spark: Any, kafka: Any, orders: Any, outside: Any) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    name, group = orders[0], f"group-{uuid.uuid4().hex[:8]}"
    commits = [TopicPartition(name, 0, 4), TopicPartition(name, 1, 1)]
    outside.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, commits)])[group].result(30)
    asked = {"startingOffsets": "group", "kafka.group.id": group}
    frame = reader(spark, kafka, assign=json.dumps({name: [0, 1]}), **asked).load()
    assert places(frame) == [(name, 0, 4), (name, 1, 1)]
    text = refused(spark, kafka, subscribe=name, **asked)
    assert f"group {group} has committed no offset for {name}-2" in text
    frame = reader(spark, kafka, subscribe=name, **asked, startingOffsetsByGroupStrategy="earliest").load()
    assert places(frame) == [(name, 0, 4), (name, 1, 1)]


# --- input partitions


def test_small_topic_partitions_share_a_task_and_min_partitions_splits(
    spark: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    name = topic(8)
    outside.fill(name, [25] * 8)
    few = reader(spark, kafka, subscribe=name).load()
    assert few.rdd.getNumPartitions() == 1
    many = reader(spark, kafka, subscribe=name, minPartitions="16").load()
    assert many.rdd.getNumPartitions() >= 16
    capped = reader(spark, kafka, subscribe=name, maxRecordsPerPartition="10").load()
    sizes = capped.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert max(sizes) <= 10 and sum(sizes) == 200
    assert places(few) == places(many) == places(capped) == sorted((name, p, o) for p in range(8) for o in range(25))


# --- transactions and compaction


def test_read_committed_leaves_out_what_was_aborted(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    from confluent_kafka import Producer

    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"tx-{uuid.uuid4().hex}"})
    producer.init_transactions(30)
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(name, value=value)
        assert producer.flush(30) == 0  # an abort drops what was not sent
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(name, value=b"open")
    producer.flush(30)

    def values(**options: str) -> list[bytes]:
        frame = reader(spark, kafka, subscribe=name, **options).load().orderBy("offset")
        return [bytes(row.value) for row in frame.collect()]

    try:
        assert values() == [b"a", b"b", b"c", b"open"]
        assert values(**{"kafka.isolation.level": "read_committed"}) == [b"a", b"c"]
    finally:
        producer.abort_transaction(30)
    assert values(**{"kafka.isolation.level": "read_committed"}) == [b"a", b"c"]


def test_offsets_that_aged_out(spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.fill(name, [10])
    outside.age_out(name, 0, 4)
    assert places(reader(spark, kafka, subscribe=name).load()) == [(name, 0, o) for o in range(4, 10)]
    from_two = {"subscribe": name, "startingOffsets": json.dumps({name: {"0": 2}})}
    text = refused(spark, kafka, **from_two)
    assert "[PYKAFKA_WIRE_DATA_LOSS] START_OFFSET_OUT_OF_RANGE" in text
    assert f"{name}-0 [2, 4)" in text and "failOnDataLoss" in text
    assert places(reader(spark, kafka, **from_two, failOnDataLoss="false").load()) == [
        (name, 0, o) for o in range(4, 10)
    ]


# --- bad input fails before any task runs


def test_no_bootstrap_servers(spark: Any) -> None:
    text = failure_without_a_job(
        spark, lambda: spark.read.format("pykafka-wire").option("subscribe", "t").load().collect()
    )
    assert "[PYKAFKA_WIRE_OPTION] kafka.bootstrap.servers is missing" in text


def test_no_broker_that_responds_fails_within_seconds_and_names_each_address(spark: Any) -> None:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))  # bound, not listening: refuses connections
        servers = [f"127.0.0.1:{s.getsockname()[1]}" for s in (one, other)]
        frame = spark.read.format("pykafka-wire").options(
            **{"kafka.bootstrap.servers": ",".join(servers), "subscribe": "t"}
        )
        started = time.monotonic()
        text = failure_without_a_job(spark, lambda: frame.load().collect())
        assert time.monotonic() - started < 30
    assert all(server in text for server in servers)
    assert "refused" in text.lower()


def test_no_subscription(spark: Any, kafka: Any) -> None:
    assert "no topic is named: use exactly one of subscribe, subscribePattern and assign" in refused(spark, kafka)


def test_two_subscriptions(spark: Any, kafka: Any) -> None:
    text = refused(spark, kafka, subscribe="a", subscribePattern="b")
    assert "[PYKAFKA_WIRE_OPTION] subscribe and subscribePattern are given: use exactly one" in text


def test_an_unknown_topic_fails_within_seconds(spark: Any, kafka: Any) -> None:
    started = time.monotonic()
    text = refused(spark, kafka, subscribe="no-such-topic-here")
    assert time.monotonic() - started < 20
    assert "no-such-topic-here" in text and "UNKNOWN_TOPIC_OR_PARTITION" in text


def test_an_unknown_partition(spark: Any, kafka: Any, orders: Any) -> None:
    text = refused(spark, kafka, assign=json.dumps({orders[0]: [0, 7]}))
    assert f"assign names partition 7 of topic {orders[0]}, which has 3 partitions (0 to 2)" in text


def test_malformed_offsets(spark: Any, kafka: Any, orders: Any) -> None:
    text = refused(spark, kafka, subscribe=orders[0], startingOffsets='{"t":{"0":}}')
    assert "[PYKAFKA_WIRE_OPTION] startingOffsets is malformed" in text


def test_offsets_that_do_not_name_every_partition(spark: Any, kafka: Any, orders: Any) -> None:
    name = orders[0]
    text = refused(spark, kafka, subscribe=name, startingOffsets=json.dumps({name: {"0": 1, "1": 0, "9": 0}}))
    assert "startingOffsets must name exactly the subscribed topic-partitions" in text
    assert f"leaves out {name}-2" in text and f"names {name}-9, which are not subscribed" in text


def test_an_option_with_an_unknown_name(spark: Any, kafka: Any, orders: Any) -> None:
    text = refused(spark, kafka, subscribe=orders[0], startingOffset="earliest")
    # Spark hands over the names in lower case.
    assert "[PYKAFKA_WIRE_OPTION] unknown option 'startingoffset': did you mean startingOffsets?" in text


def test_a_column_that_is_not_there(spark: Any, kafka: Any, orders: Any) -> None:
    frame = reader(spark, kafka, subscribe=orders[0]).schema("value string")
    text = failure_without_a_job(spark, lambda: frame.load().collect())
    assert "[PYKAFKA_WIRE_SCHEMA] column 'value' is binary, not string" in text


# --- SQL


def test_a_temporary_view_in_sql(spark: Any, kafka: Any, orders: Any) -> None:
    view = f"v_{uuid.uuid4().hex[:8]}"
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING `pykafka-wire` "
        f"OPTIONS (`kafka.bootstrap.servers` '{kafka.bootstrap_servers}', subscribe '{orders[0]}')"
    )
    rows = spark.sql(f"SELECT partition, count(*) AS n FROM {view} GROUP BY partition ORDER BY partition").collect()
    assert [(row.partition, row.n) for row in rows] == [(0, 5), (1, 2)]
    spark.catalog.dropTempView(view)
