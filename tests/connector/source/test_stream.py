"""Streaming reads of real topics: every record once over restarts, trigger limits, what comes and goes in between."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest
from pyspark.errors import PySparkException

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def expected(sent: list[tuple[int, bytes]]) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value), sorted, of records sent to an empty topic in this order."""
    counts: dict[int, int] = {}
    found = []
    for partition, value in sent:
        offset = counts.get(partition, 0)
        found.append((partition, offset, value))
        counts[partition] = offset + 1
    return sorted(found)


def sizes(query: Any) -> list[int]:
    """Rows of each micro-batch that read any."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"] > 0]


def failure(queries: Any, **options: str) -> str:
    with pytest.raises(PySparkException) as raised:
        queries.run(**options)
    return str(raised.value)


def lag_shown(kafka: Any, group: str) -> dict[tuple[str, int], str]:
    """The lag of each topic-partition, as kafka-consumer-groups shows it."""
    main_class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    lines = kafka.tool(main_class, "--describe", "--group", group).splitlines()
    rows = [line.split() for line in lines if line.startswith(group)]
    return {(name, int(partition)): lag for _, name, partition, _, _, lag, *_ in rows}


def test_a_backlog_into_delta_then_more_and_the_group_has_no_lag(
    queries: Any, kafka: Any, topic: Any, outside: Any
) -> None:
    name, group = topic(3), f"g-{uuid.uuid4().hex[:8]}"
    options = {"subscribe": name, "kafka.group.id": group}
    sent = outside.fill(name, [100, 10, 0])
    queries.run("delta", **options)
    assert queries.rows("delta") == expected(sent)
    # The last batch of an AvailableNow run is committed too.
    assert outside.committed(group) == {(name, 0): 100, (name, 1): 10, (name, 2): 0}
    assert lag_shown(kafka, group) == {(name, 0): "0", (name, 1): "0", (name, 2): "0"}

    sent += outside.fill(name, [5, 0, 7], first=1000)
    second = queries.run("delta", **options)
    assert sizes(second) == [12]
    assert queries.rows("delta") == expected(sent)
    assert outside.committed(group) == {(name, 0): 105, (name, 1): 10, (name, 2): 7}

    idle = queries.run("delta", **options)
    assert sizes(idle) == []


def test_a_query_into_memory_has_the_sources_columns(queries: Any, spark: Any, topic: Any, outside: Any) -> None:
    name, table = topic(1), f"m_{uuid.uuid4().hex[:8]}"
    record = outside.Record
    outside.produce(name, [record(key=b"k", value=b"v", headers=(("h", b"x"),)), record(value=None)])
    frame = queries.stream(subscribe=name, includeHeaders="true")
    assert frame.isStreaming
    assert [f.dataType.simpleString() for f in frame.schema.fields] == [
        *("binary", "binary", "string", "int", "bigint", "timestamp", "int"),
        "array<struct<key:string,value:binary>>",
    ]
    query = frame.writeStream.format("memory").queryName(table).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    rows = spark.table(table).orderBy("offset").collect()
    assert [(r.key, r.value, r.topic, r.offset) for r in rows] == [
        (bytearray(b"k"), bytearray(b"v"), name, 0),
        (None, None, name, 1),
    ]
    assert [r.headers and [(h.key, bytes(h.value)) for h in r.headers] for r in rows] == [[("h", b"x")], None]


def test_a_subset_of_the_columns(queries: Any, spark: Any, kafka: Any, topic: Any, outside: Any) -> None:
    name, table = topic(1), f"m_{uuid.uuid4().hex[:8]}"
    outside.fill(name, [3])
    frame = (
        spark.readStream.format("pykafka-wire")
        .options(
            **{"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "startingOffsets": "earliest"}
        )
        .schema("offset bigint, value binary")
        .load()
    )
    query = frame.writeStream.format("memory").queryName(table).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted((r.offset, bytes(r.value)) for r in spark.table(table).collect()) == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_max_offsets_per_trigger_is_shared_out_by_lag(queries: Any, topic: Any, outside: Any) -> None:
    name = topic(3)
    sent = outside.fill(name, [100, 10, 1])
    query = queries.run(subscribe=name, maxOffsetsPerTrigger="40")
    assert sizes(query)[0] == 40  # 36, 3, and 1 instead of 0.36
    assert all(size <= 40 + 3 for size in sizes(query))
    assert queries.rows() == expected(sent)


def test_available_now_does_not_chase_a_producer(queries: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    sent = outside.fill(name, [50])
    frame = queries.stream(subscribe=name, maxOffsetsPerTrigger="25")

    def sink(batch: Any, batch_id: int) -> None:
        outside.fill(name, [10], first=1000)
        seen.append((batch_id, batch.count()))

    seen: list[tuple[int, int]] = []
    query = frame.writeStream.foreachBatch(sink).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert seen == [(0, 25), (1, 25)]
    assert len(sent) == 50


def test_an_idle_query_commits_its_last_batch_and_reports_its_lag(
    queries: Any, kafka: Any, topic: Any, outside: Any, until: Any
) -> None:
    name, group = topic(2), f"g-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [3, 4])
    query = (
        queries.stream(subscribe=name, **{"kafka.group.id": group})
        .writeStream.format("noop")
        .option("checkpointLocation", str(queries.checkpoint))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        until(lambda: outside.committed(group) == {(name, 0): 3, (name, 1): 4}, what="the commit of batch 0")
        outside.fill(name, [2, 0])
        until(lambda: outside.committed(group) == {(name, 0): 5, (name, 1): 4}, what="the commit of batch 1")
        assert lag_shown(kafka, group) == {(name, 0): "0", (name, 1): "0"}
        assert query.exception() is None
        source = until(lambda: query.lastProgress, what="progress")["sources"][0]
        latest = source["latestOffset"]
        latest = json.loads(latest) if isinstance(latest, str) else latest
        assert latest["totalOffsetsBehindLatest"] == latest["maxOffsetsBehindLatest"] == 0
        assert latest["offsets"] == {name: {"0": 5, "1": 4}}
        assert latest["commitFailures"] == 0 and latest["commitSuccesses"] >= 1
    finally:
        query.stop()


def test_a_query_without_a_group_keeps_one_of_its_own_over_restarts(queries: Any, topic: Any, outside: Any) -> None:
    name, prefix = topic(1), f"p{uuid.uuid4().hex[:8]}"
    for n in (1, 2):
        outside.fill(name, [1])
        queries.run(subscribe=name, groupIdPrefix=prefix)
        (group,) = [g for g in outside.groups() if g.startswith(prefix)]
        assert outside.committed(group) == {(name, 0): n}
        assert queries.logged_offsets()["group"] == group


def test_commits_can_be_turned_off(queries: Any, topic: Any, outside: Any) -> None:
    name, group = topic(1), f"g-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [1])
    queries.run(subscribe=name, commitOffsets="false", **{"kafka.group.id": group})
    assert outside.committed(group) == {}


def test_a_query_that_ends_leaves_its_group(queries: Any, topic: Any, outside: Any) -> None:
    name, group = topic(1), f"g-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [2])
    queries.run(subscribe=name, groupMembership="static", **{"kafka.group.id": group})
    assert outside.committed(group) == {(name, 0): 2}
    deadline = time.monotonic() + 30  # less than the session timeout, after which a place is lost anyway
    while outside.admin.describe_consumer_groups([group], request_timeout=30)[group].result(30).state.name != "EMPTY":
        assert time.monotonic() < deadline, "the query's member did not leave"
        time.sleep(0.1)


def test_the_checkpoint_holds_topic_ids_and_leader_epochs(queries: Any, topic: Any, outside: Any) -> None:
    name = topic(2)
    outside.fill(name, [1, 1])
    queries.run(subscribe=name)
    found = queries.logged_offsets()
    assert found["version"] == 1
    assert found["offsets"] == {name: {"0": 1, "1": 1}}
    assert found["starts"] == {name: {"0": 0, "1": 0}}
    assert set(found["epochs"][name]) == {"0", "1"}
    assert len(found["topic_ids"][name]) == 22
    outside.fill(name, [1, 0])
    queries.run(subscribe=name)
    assert "starts" not in queries.logged_offsets()


@pytest.mark.parametrize("start", ["latest", "timestamp"])
def test_batch_0_is_replayed_over_the_same_range(
    start: str, queries: Any, topic: Any, outside: Any, until: Any
) -> None:
    """The sink fails after batch 0's offsets are logged and before they are committed, while records go on arriving."""
    name = topic(2)
    outside.fill(name, [20, 20])
    starting = {"startingOffsets": "latest"} if start == "latest" else {"startingTimestamp": "-1s"}
    if start == "timestamp":
        time.sleep(1.1)  # the clock is what is tested: the records above must be older than the start
        starting["startingOffsetsByTimestampStrategy"] = "latest"
    frame = queries.stream(subscribe=name, **starting)
    seen: dict[int, list[list[tuple[int, int]]]] = {}

    def sink(batch: Any, batch_id: int) -> None:
        rows = sorted((row.partition, row.offset) for row in batch.collect())
        seen.setdefault(batch_id, []).append(rows)
        if batch_id == 0 and len(seen[0]) == 1:
            raise RuntimeError("planned failure")

    def begin(**trigger: Any) -> Any:
        stream = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(queries.checkpoint))
        return stream.trigger(**trigger).start()

    query = begin(processingTime="100 milliseconds")

    def failed() -> bool:
        outside.fill(name, [1, 2])
        return query.exception() is not None

    until(failed, what="batch 0")
    (first,) = seen[0]  # may be empty: Spark runs batch 0 even over nothing
    starts = json.loads((queries.checkpoint / "offsets" / "0").read_text().splitlines()[-1])["starts"][name]
    outside.fill(name, [30, 30])
    again = begin(availableNow=True)
    assert again.awaitTermination(120)
    assert seen[0] == [first, first]
    assert min(starts.values()) >= 20
    delivered = sorted(place for batches in seen.values() for place in batches[-1])
    last = {record.partition: record.offset for record in outside.consume(name)}
    assert delivered == [(p, offset) for p in (0, 1) for offset in range(starts[str(p)], last[p] + 1)]


def test_partitions_added_between_runs_are_read_from_their_beginning(queries: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    sent = outside.fill(name, [3])
    queries.run(subscribe=name, startingOffsets="earliest")
    outside.grow(name, 3)
    sent += outside.fill(name, [1, 2, 0], first=100)
    queries.run(subscribe=name, startingOffsets="earliest")
    assert queries.rows() == expected(sent)


def test_a_topic_that_starts_to_match_the_pattern_is_read_from_its_beginning(
    queries: Any, outside: Any, topic: Any
) -> None:
    prefix = f"pat-{uuid.uuid4().hex[:8]}"
    first, second = topic(1, name=f"{prefix}-1"), None
    outside.fill(first, [2])
    queries.run(subscribePattern=prefix)
    second = topic(1, name=f"{prefix}-2")
    outside.fill(second, [3])
    queries.run(subscribePattern=prefix)
    table = queries.spark.read.parquet(str(queries.table))
    assert sorted((r.topic, r.offset) for r in table.collect()) == [
        *((first, o) for o in range(2)),
        *((second, o) for o in range(3)),
    ]


def test_a_recreated_topic_is_data_loss_and_can_be_gone_on_with(queries: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.fill(name, [5])
    queries.run(subscribe=name)
    outside.delete(name)
    outside.create(name, 1)
    outside.fill(name, [7], first=100)  # as long as the old one and longer: offsets alone would not show it
    text = failure(queries, subscribe=name)
    assert "[PYKAFKA_WIRE_DATA_LOSS] TOPIC_RECREATED: the topic was deleted and created again" in text
    assert f"{name}-0 [5, …)" in text and "failOnDataLoss to false" in text

    query = queries.run(subscribe=name, failOnDataLoss="false")
    assert sizes(query) == [7]
    assert [row for row in queries.rows() if len(row[2]) == 3] == [(0, o, b"%d" % (100 + o)) for o in range(7)]


def test_records_that_aged_out_before_they_were_read(queries: Any, topic: Any, outside: Any) -> None:
    name = topic(2)
    outside.fill(name, [2, 2])
    queries.run(subscribe=name)
    outside.fill(name, [10, 10], first=100)
    outside.age_out(name, 0, 6)
    text = failure(queries, subscribe=name)
    assert "[PYKAFKA_WIRE_DATA_LOSS] START_OFFSET_OUT_OF_RANGE" in text and f"{name}-0 [2, 6)" in text
    queries.run(subscribe=name, failOnDataLoss="false")
    assert [(p, o) for p, o, _ in queries.rows()] == [
        *((0, o) for o in [0, 1, *range(6, 12)]),
        *((1, o) for o in range(12)),
    ]


def test_a_deleted_topic(queries: Any, topic: Any, outside: Any) -> None:
    kept, gone = topic(1), f"gone-{uuid.uuid4().hex[:8]}"
    outside.create(gone, 1)
    outside.fill(kept, [1])
    outside.fill(gone, [2])
    pattern = f"^({kept}|{gone})$"
    queries.run(subscribePattern=pattern)
    outside.delete(gone)
    outside.fill(kept, [3], first=10)
    text = failure(queries, subscribePattern=pattern)
    assert "[PYKAFKA_WIRE_DATA_LOSS] PARTITIONS_DELETED" in text and f"{gone}-0 [2, …)" in text
    query = queries.run(subscribePattern=pattern, failOnDataLoss="false")
    assert sizes(query) == [3]


def test_min_partitions_splits_a_micro_batch(queries: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.fill(name, [100])
    seen: list[int] = []
    frame = queries.stream(subscribe=name, minPartitions="4")
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: seen.append(batch.rdd.getNumPartitions()))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert seen == [4]


# --- errors


def refused(queries: Any, servers: str | None = None, **options: str) -> str:
    """The text of the error of a stream that ran no job of Spark."""
    with pytest.raises(PySparkException) as raised:
        query = queries.stream(**options).writeStream.format("noop").trigger(availableNow=True).start()
        jobs = queries.spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))
        try:
            query.awaitTermination(120)
        finally:
            query.stop()
        assert list(jobs) == []
    return str(raised.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kafka.bootstrap.servers": "", "subscribe": "t"}, "kafka.bootstrap.servers is missing"),
        ({}, "no topic is named: use exactly one of subscribe, subscribePattern and assign"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign are given: use exactly one"),
        ({"subscribe": "a", "startingOffsets": "{"}, "startingOffsets is malformed"),
        (
            {"subscribe": "a", "endingOffsets": "latest"},
            "endingOffsets applies to batch reads only, since a stream has no end",
        ),
        ({"subscribe": "a", "maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger?"),
    ],
)
def test_bad_options_fail_when_the_query_starts(queries: Any, options: dict[str, str], text: str) -> None:
    found = refused(queries, **options)
    assert "[PYKAFKA_WIRE_OPTION]" in found and text in found


def test_an_unknown_topic_fails_within_seconds(queries: Any) -> None:
    started = time.monotonic()
    text = refused(queries, subscribe="no-such-topic-here")
    assert time.monotonic() - started < 20
    assert "no-such-topic-here" in text and "UNKNOWN_TOPIC_OR_PARTITION" in text


def test_a_checkpoint_of_a_newer_version_is_refused(queries: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.fill(name, [1])
    queries.run(subscribe=name)
    log = queries.checkpoint / "offsets" / "0"
    log.write_text(log.read_text().replace('"version": 1', '"version": 2').replace('{"version":1,', '{"version":2,'))
    (queries.checkpoint / "offsets" / ".0.crc").unlink()
    assert "[PYKAFKA_WIRE_OFFSETS] the checkpoint has offsets of version 2" in failure(queries, subscribe=name)
