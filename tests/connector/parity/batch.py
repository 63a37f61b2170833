"""Batch reads, the same through both connectors."""

from __future__ import annotations

import json
import uuid

from tests.connector.parity.rig import Both, Scenario

#: 2023-11-14T22:13:20Z; record ``i`` of a partition is ``i`` seconds later.
T0_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}


def _timed(both: Both, counts: tuple[int, ...] = (5, 3)) -> str:
    name = both.topic(len(counts), KEPT)
    record = both.outside.Record
    both.outside.produce(
        name,
        [
            record(value=b"%d-%d" % (p, i), partition=p, timestamp_ms=T0_MS + 1000 * i)
            for p, count in enumerate(counts)
            for i in range(count)
        ],
    )
    return name  # type: ignore[no-any-return]


def _offsets(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(p): offset for p, offset in enumerate(offsets)}})


def every_column(both: Both) -> None:
    name = both.topic(3, KEPT)
    record = both.outside.Record
    headers = (("a", b"1"), ("a", None), ("ü", b""), ("", b"\x00\xff"))
    both.outside.produce(
        name,
        [
            record(key=b"k", value=b"v", timestamp_ms=T0_MS),
            record(key=None, value=b"", timestamp_ms=T0_MS + 1),
            record(key=b"", value=None, timestamp_ms=T0_MS + 2, headers=headers),
            record(key=None, value=None, partition=1, timestamp_ms=T0_MS + 3, headers=(("only", b"one"),)),
            record(key=b"\x00\xff", value=b"x" * 100_000, partition=1, timestamp_ms=T0_MS + 4),
        ],
    )
    both.batch("plain", subscribe=name)
    both.batch("with headers", subscribe=name, includeHeaders="true")


def codecs(both: Both) -> None:
    name = both.topic(1)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        both.outside.produce(
            name, [both.outside.Record(value=b"%d" % i * 100, key=b"k") for i in range(50)], codec=codec
        )
    both.batch("read", subscribe=name)


def append_time(both: Both) -> None:
    name = both.topic(1, {"message.timestamp.type": "LogAppendTime"})
    both.outside.fill(name, [3])
    both.batch("read", subscribe=name)


def subscriptions(both: Both) -> None:
    prefix = f"sub-{uuid.uuid4().hex[:8]}"
    first, second = both.topic(2, name=f"{prefix}-a"), both.topic(2, name=f"{prefix}-b")
    both.outside.fill(first, [2, 1])
    both.outside.fill(second, [1, 2], first=50)
    both.batch("two topics", subscribe=f" {first} ,{second}")
    both.batch("a pattern", subscribePattern=f"{prefix}-.*")
    both.batch("a pattern anchored at its end", subscribePattern=f"^{prefix}-b$")
    both.batch("assigned", assign=json.dumps({first: [1], second: [0, 1]}))


def pattern_without_a_match(both: Both) -> None:
    both.batch("read", subscribePattern=f"^nothing-{uuid.uuid4().hex}$")


def pattern_within_a_name(both: Both) -> None:
    middle = uuid.uuid4().hex[:8]
    name = both.topic(1, name=f"x-{middle}-y")
    both.outside.fill(name, [1])
    both.batch("read", subscribePattern=middle)


def offsets(both: Both) -> None:
    name = both.topic(3)
    both.outside.fill(name, [6, 4, 0])
    both.batch("defaults", subscribe=name)
    both.batch("words", subscribe=name, startingOffsets="EARLIEST", endingOffsets="Latest")
    starts, ends = _offsets(name, 2, -2, 0), _offsets(name, 5, -1, 0)
    both.batch("by partition", subscribe=name, startingOffsets=starts, endingOffsets=ends)
    both.batch("nothing between", subscribe=name, startingOffsets=ends.replace("-1", "4"), endingOffsets=ends)


def timestamps(both: Both) -> None:
    name = _timed(both)
    one, three = str(T0_MS + 1000), str(T0_MS + 3000)
    both.batch("from", subscribe=name, startingTimestamp=one)
    both.batch("to", subscribe=name, endingTimestamp=three)
    both.batch("between", subscribe=name, startingTimestamp=one, endingTimestamp=three)
    starts, ends = _offsets(name, T0_MS + 2000, T0_MS), _offsets(name, T0_MS + 4000, T0_MS + 1000)
    both.batch("by partition", subscribe=name, startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends)
    both.batch("to an offset", subscribe=name, startingOffsetsByTimestamp=starts, endingOffsets=_offsets(name, 4, 1))
    both.batch("from an offset", subscribe=name, startingOffsets=_offsets(name, 1, 0), endingOffsetsByTimestamp=ends)


def precedence(both: Both) -> None:
    name = _timed(both)
    offsets, times = _offsets(name, 4, 2), _offsets(name, T0_MS + 2000, T0_MS + 1000)
    weaker = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times}
    both.batch("start: two", subscribe=name, **weaker)
    both.batch("start: three", subscribe=name, startingTimestamp=str(T0_MS), **weaker)
    weaker = {"endingOffsets": offsets, "endingOffsetsByTimestamp": times}
    both.batch("end: two", subscribe=name, **weaker)
    both.batch("end: three", subscribe=name, endingTimestamp=str(T0_MS + 1000), **weaker)


def no_record_as_late(both: Both) -> None:
    name, late = _timed(both), str(T0_MS + 3500)  # partition 1 has nothing as late
    both.batch("a start", subscribe=name, startingTimestamp=late)
    both.batch("a start, latest", subscribe=name, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    both.batch("an end", subscribe=name, endingTimestamp=late)


def aged_out(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [10])
    both.outside.age_out(name, 0, 4)
    both.batch("earliest", subscribe=name)
    both.batch("an offset that is gone", subscribe=name, startingOffsets=_offsets(name, 2))
    both.batch("and no failure", subscribe=name, startingOffsets=_offsets(name, 2), failOnDataLoss="false")


def backwards(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [5])
    both.batch("offsets", subscribe=name, startingOffsets=_offsets(name, 3), endingOffsets=_offsets(name, 2))


def beyond_the_end(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [5])
    both.batch(
        "an offset", subscribe=name, startingOffsets=_offsets(name, 9), **{"kafkaConsumer.pollTimeoutMs": "2000"}
    )


def transactions(both: Both) -> None:
    from confluent_kafka import Producer

    name = both.topic(1)
    producer = Producer({"bootstrap.servers": both.outside.servers, "transactional.id": f"tx-{uuid.uuid4().hex}"})
    producer.init_transactions(30)
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(name, value=value)
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    both.batch("read_uncommitted", subscribe=name)
    both.batch("read_committed", subscribe=name, **{"kafka.isolation.level": "read_committed"})
    both.stream("a stream", subscribe=name, startingOffsets="earliest", **{"kafka.isolation.level": "read_committed"})


def late_binding(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [3])
    both.batch("a frame", subscribe=name)
    both.outside.fill(name, [2], first=10)
    both.batch("a frame", again=True, subscribe=name)


def splitting(both: Both) -> None:
    name = both.topic(2)
    both.outside.fill(name, [90, 10])
    both.batch("minPartitions", tasks=True, subscribe=name, minPartitions="10")
    both.batch("both", tasks=True, subscribe=name, maxRecordsPerPartition="60", minPartitions="5")


def max_records_alone(both: Both) -> None:
    name = both.topic(2)
    both.outside.fill(name, [90, 10])
    both.batch("read", tasks=True, subscribe=name, maxRecordsPerPartition="30")
    both.stream("a stream", subscribe=name, startingOffsets="earliest", maxRecordsPerPartition="30")


def packing(both: Both) -> None:
    name = both.topic(4)
    both.outside.fill(name, [5, 5, 5, 5])
    both.batch("read", tasks=True, subscribe=name)


def assigned_but_not_there(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [2])
    both.batch("read", assign=json.dumps({name: [0, 7]}))


def relative_times(both: Both) -> None:
    name = both.topic(1)
    both.outside.fill(name, [2])
    both.batch("relative", subscribe=name, startingTimestamp="-10m")
    both.batch("ISO-8601", subscribe=name, startingTimestamp="2024-01-01T00:00:00Z")


def nanoseconds(both: Both) -> None:
    name = both.topic(1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    both.outside.produce(name, [both.outside.Record(value=b"v", timestamp_ms=1712345678123456789)])
    both.batch("read", subscribe=name)


BATCH = (
    Scenario(name="batch: every column, nulls and headers included", run=every_column),
    Scenario(name="batch: every codec", run=codecs, long=True),
    Scenario(name="batch: log append time", run=append_time),
    Scenario(name="batch: subscribe, subscribePattern, assign", run=subscriptions),
    Scenario(name="batch: a pattern that matches a part of a topic's name", run=pattern_within_a_name, long=True),
    Scenario(name="batch: a pattern without a match", run=pattern_without_a_match, long=True),
    Scenario(name="batch: offsets as words and by partition", run=offsets),
    Scenario(name="batch: timestamps at either end, for all and by partition", run=timestamps),
    Scenario(name="batch: which of several options for one end applies", run=precedence, long=True),
    Scenario(name="batch: no record at or after a timestamp", run=no_record_as_late, long=True),
    Scenario(name="batch: a start that aged out", run=aged_out),
    Scenario(name="batch: a start after the end", run=backwards, long=True),
    Scenario(name="batch: a start beyond the log's end", run=beyond_the_end, long=True),
    Scenario(name="batch and stream: aborted transactions", run=transactions),
    Scenario(
        name="batch: a DataFrame that is run again after more records arrived",
        run=late_binding,
        differs={"rows": "Spark plans a Python source once a `load()`, so pykafka-wire reads the same offsets "
                         "again; the JVM connector also reads the new records"},
    ),
    Scenario(name="batch: minPartitions and maxRecordsPerPartition", run=splitting),
    Scenario(
        name="batch: maxRecordsPerPartition without minPartitions",
        run=max_records_alone, long=True,
        differs={"tasks": "the JVM connector ignores it in a batch read; pykafka-wire applies it"},
    ),
    Scenario(
        name="batch: tasks of small topic-partitions",
        run=packing,
        differs={"tasks": "pykafka-wire packs small topic-partitions into one task, because each task costs 30 ms; "
                          "`minPartitions` splits them again"},
    ),
    Scenario(
        name="batch: assign names a partition that the topic does not have",
        run=assigned_but_not_there, long=True,
        differs={
            "refused": "the JVM connector ignores it silently; pykafka-wire rejects it, and names the partitions that exist",
        },
    ),
    Scenario(
        name="batch: timestamps relative to now and as ISO-8601",
        run=relative_times,
        differs={"refused": "the JVM connector accepts milliseconds only"},
    ),
    Scenario(
        name="batch: a record whose timestamp Spark cannot hold",
        run=nanoseconds,
        differs={"refused": "the JVM connector fails; pykafka-wire warns and reads the timestamp 9999-12-31"},
    ),
)  # fmt: skip
