"""Bounded reads on real brokers: ends, gaps, limits, failures, and no wait that nobody asked for."""

from __future__ import annotations

import threading
import time
import tracemalloc
import uuid
from dataclasses import replace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.connection import state_machine
from pykafka_wire.wire.errors import (
    LogEndError,
    OffsetOutOfRangeError,
    ProtocolError,
    TopicRecreatedError,
    UnknownTopicError,
    WireError,
)
from pykafka_wire.wire.fetch.range_read import FetchCounters, fetch_ranges
from pykafka_wire.wire.topic_partitions import OffsetRange, topic_id_text
from tests.broker_features import lacking
from tests.wire.range_reads import KEY_AND_VALUE, cluster_of, expected, numbered, produce, read, rows_of, whole

pytestmark = pytest.mark.broker


def test_every_record_of_many_partitions_comes_once_and_in_order(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=8)
    produce(kafka, name, numbered(40_000, 8, size=50))
    counters = FetchCounters()
    rows = read(cluster, whole(cluster, name), counters=counters)
    assert rows == {p: expected(5_000, size=50) for p in range(8)}
    assert counters.n_records == 40_000
    assert counters.n_bytes > 40_000 * 50
    assert counters.n_retries == 0


def test_a_range_begins_and_ends_inside_of_batches(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    produce(kafka, name, numbered(10_000, 1))
    range_ = OffsetRange(topic=name, partition=0, start_offset=1_234, end_offset=5_678)
    assert read(cluster, [range_]) == {0: expected(5_678)[1_234:]}


def test_positions_tell_how_far_each_range_has_come(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=3)
    produce(kafka, name, numbered(30_000, 3, size=100), **{"batch.size": 10_000})
    ranges = whole(cluster, name)
    positions: dict[int, int] = {}
    seen: dict[int, int] = {}
    for chunk in fetch_ranges(cluster, ranges, columns=KEY_AND_VALUE, max_bytes=100_000):
        assert chunk.ranges is ranges
        for index, offset in zip(chunk.records.slice_index.tolist(), chunk.records.offset.tolist(), strict=True):
            seen[index] = offset
        positions.update(chunk.positions)
        assert all(positions[index] > offset for index, offset in seen.items())
    assert positions == {0: 10_000, 1: 10_000, 2: 10_000}


def test_no_response_is_in_memory_while_the_caller_has_its_records(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    values = [(0, bytes(390 + i % 20)) for i in range(7_500)]  # small, and of several sizes: Arrow copies those
    produce(kafka, name, values)
    held = []
    tracemalloc.start()
    try:
        for chunk in fetch_ranges(cluster, whole(cluster, name), columns=KEY_AND_VALUE, max_bytes=1_000_000):
            held.append(tracemalloc.get_traced_memory()[0])  # without what Arrow has copied
            del chunk
    finally:
        tracemalloc.stop()
    assert len(held) > 2 and max(held) < 500_000


def test_with_little_room_in_a_response_every_partition_still_gets_its_turn(
    kafka: Any, topic: Any, cluster: Cluster
) -> None:
    name = topic(partitions=6)
    produce(kafka, name, numbered(12_000, 6, size=500), **{"batch.size": 20_000})
    order: list[int] = []
    chunks = []
    for chunk in fetch_ranges(
        cluster, whole(cluster, name), columns=KEY_AND_VALUE, max_bytes=50_000, max_partition_bytes=40_000
    ):
        chunks.append(chunk)
        order += sorted(chunk.positions)
    assert rows_of(chunks) == {p: expected(2_000, size=500) for p in range(6)}
    assert set(order[:12]) == set(range(6))


def test_two_ranges_of_one_partition_are_read_side_by_side(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    produce(kafka, name, numbered(1_000, 1))
    first = OffsetRange(topic=name, partition=0, start_offset=0, end_offset=400)
    second = OffsetRange(topic=name, partition=0, start_offset=400, end_offset=1_000)
    assert read(cluster, [second, first]) == {0: expected(1_000)[400:], 1: expected(400)}


def test_a_read_to_the_end_of_the_log_does_not_wait_there(kafka: Any, topic: Any, cluster: Cluster) -> None:
    """The JVM connector leaves a long poll at the end in flight, half a second per topic-partition."""
    name = topic(partitions=4)
    produce(kafka, name, numbered(400, 4))
    ranges = whole(cluster, name)
    read(cluster, ranges)  # connects
    took = []
    for _ in range(5):
        counters = FetchCounters()
        started = time.monotonic()
        rows = read(cluster, ranges, counters=counters)
        took.append(time.monotonic() - started)
        assert sum(map(len, rows.values())) == 400
        assert counters.n_responses == 1
    assert min(took) < 0.2


def test_a_record_larger_than_every_limit_is_read(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=2)
    large = b"x" * 900_000
    produce(kafka, name, [(0, b"small"), (1, b"small"), (0, large), (1, large), (0, b"after"), (1, b"after")])
    rows = read(cluster, whole(cluster, name), max_bytes=1_000, max_partition_bytes=1_000)
    assert rows == {p: [(0, b"small"), (1, large), (2, b"after")] for p in range(2)}


def test_a_batch_larger_than_a_frame_may_be_is_refused_with_its_place(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers send the first batch whole, however large (KIP-74); the cap is lowered, or it would take 128 MiB."""
    name = topic(partitions=1)
    produce(kafka, name, [(0, b"small"), (0, b"x" * 900_000)])
    monkeypatch.setattr(state_machine, "MAX_FRAME_BYTES", 500_000)
    with cluster_of(kafka) as cluster:
        (range_,) = whole(cluster, name)
        with pytest.raises(ProtocolError) as caught:
            read(cluster, [replace(range_, start_offset=1)])
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.api) == (name, 0, 1, "Fetch")
    assert "fetch.max.bytes" in error.remedy


def test_a_start_below_the_log_start_names_the_range_and_the_bounds(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    produce(kafka, name, numbered(100, 1))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([confluent_kafka.TopicPartition(name, 0, 40)]).values():
        future.result(20)
    range_ = OffsetRange(topic=name, partition=0, start_offset=10, end_offset=100)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        read(cluster, [range_])
    error = caught.value
    assert (error.topic, error.partition, error.offset) == (name, 0, 10)
    assert (error.log_start_offset, error.log_end_offset) == (40, 100)
    assert f"{name}-0 [10, 100)" in str(error)


def test_an_end_above_the_high_watermark_fails_after_a_bounded_wait(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    produce(kafka, name, numbered(10, 1))
    range_ = OffsetRange(topic=name, partition=0, start_offset=0, end_offset=12)
    chunks = fetch_ranges(cluster, [range_], columns=KEY_AND_VALUE, end_wait_ms=700)
    assert next(chunks).records.n_records == 10
    started = time.monotonic()
    with pytest.raises(LogEndError) as caught:
        next(chunks)
    assert 0.5 < time.monotonic() - started < 5
    assert caught.value.log_end_offset == 10
    assert (caught.value.position, caught.value.end_offset, caught.value.high_watermark) == (10, 12, 10)


def test_an_end_above_the_high_watermark_is_reached_when_it_comes_in_time(
    kafka: Any, topic: Any, cluster: Cluster
) -> None:
    name = topic(partitions=1)
    produce(kafka, name, numbered(10, 1))
    range_ = OffsetRange(topic=name, partition=0, start_offset=0, end_offset=11)
    chunks = fetch_ranges(cluster, [range_], columns=KEY_AND_VALUE, end_wait_ms=20_000)
    assert next(chunks).records.n_records == 10
    late = threading.Timer(0.5, produce, (kafka, name, [(0, b"late")]))
    late.start()
    assert rows_of(chunks) == {0: [(10, b"late")]}
    late.join()


def test_an_end_above_the_last_stable_offset_names_the_open_transaction(
    kafka: Any, topic: Any, cluster: Cluster
) -> None:
    name = topic(partitions=1)
    own_id = uuid.uuid4().hex
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": own_id})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(20)
    range_ = OffsetRange(topic=name, partition=0, start_offset=0, end_offset=1)
    named = "a transaction has been open"
    if not lacking(["transactions that are described"]):
        named = rf"transactional id '{own_id}', producer \d+, epoch \d+, open in {name}-0 from offset 0 on"
    with pytest.raises(LogEndError, match=named):
        read(cluster, [range_], isolation_level="read_committed", end_wait_ms=300)
    producer.commit_transaction(20)
    assert read(cluster, [range_], isolation_level="read_committed") == {0: [(0, b"open")]}


@pytest.mark.needs("topic ids")
def test_a_recreated_topic_is_known_by_its_id(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    produce(kafka, name, numbered(10, 1))
    (range_,) = whole(cluster, name)
    assert read(cluster, [range_]) == {0: expected(10)}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name])[name].result(20)
    recreate(admin, name)
    produce(kafka, name, numbered(10, 1))
    # One that did not know the old topic, and one that did: where Fetch goes by name, it learns of the new one when its
    # metadata are old.
    readers = [cluster_of(kafka)] if lacking(["topic ids in Fetch"]) else [cluster_of(kafka), cluster]
    for reader in readers:
        with pytest.raises(TopicRecreatedError) as caught:
            read(reader, [range_])
        assert caught.value.expected_id == topic_id_text(range_.topic_id)
    cluster.metadata.invalidate(name)
    assert read(cluster, whole(cluster, name)) == {0: expected(10)}


def recreate(admin: AdminClient, name: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            admin.create_topics([confluent_kafka.admin.NewTopic(name, 1, 1)])[name].result(20)
            return
        except confluent_kafka.KafkaException:  # the old one is still on its way out
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_topic_that_never_was_fails_within_seconds(cluster: Cluster) -> None:
    range_ = OffsetRange(topic=f"never-{uuid.uuid4().hex}", partition=0, start_offset=0, end_offset=1)
    started = time.monotonic()
    with pytest.raises(UnknownTopicError):
        read(cluster, [range_])
    assert time.monotonic() - started < 12


def test_a_read_given_up_in_the_middle_leaves_the_cluster_usable(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=2)
    produce(kafka, name, numbered(20_000, 2, size=100))
    ranges = whole(cluster, name)
    for _ in range(3):
        chunks = fetch_ranges(cluster, ranges, columns=KEY_AND_VALUE, max_bytes=100_000)
        next(chunks)
        chunks.close()  # type: ignore[attr-defined]
    assert read(cluster, ranges) == {p: expected(10_000, size=100) for p in range(2)}


def test_the_caller_may_take_longer_than_the_deadline_between_chunks(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    produce(kafka, name, numbered(5_000, 1, size=100))
    rows = 0
    for chunk in fetch_ranges(
        cluster, whole(cluster, name), columns=KEY_AND_VALUE, max_bytes=400_000, deadline_ms=1_500
    ):
        rows += chunk.records.n_records
        time.sleep(2)
    assert rows == 5_000


def test_compacted_gaps_are_stepped_over_and_the_read_ends_on_position(two_brokers: Any) -> None:
    brokers = two_brokers
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "300",
        "max.compaction.lag.ms": "100",
    }
    admin.create_topics([confluent_kafka.admin.NewTopic("compacted", 1, 1, config=config)])["compacted"].result(20)
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap_servers, "linger.ms": 0})
    cluster = cluster_of(brokers)
    deadline = time.monotonic() + 60
    n_written = 0
    while True:
        # Each flush makes a batch; a segment is rolled by the first batch after its time.
        for i in range(20):
            producer.produce("compacted", f"{n_written}", key=f"k{i % 3}", partition=0)
            n_written += 1
        producer.flush(20)
        time.sleep(0.4)
        ranges = whole(cluster, "compacted")
        rows = read(cluster, ranges)[0]
        if len(rows) < n_written:
            break
        assert time.monotonic() < deadline, "nothing was compacted"
    assert [value for _, value in rows] == [str(offset).encode() for offset, _ in rows]
    assert rows[-1][0] == n_written - 1
    # Each single offset as a range of its own, most of them in gaps: every one ends, with its record or without.
    kept = {offset for offset, _ in rows}
    singles = [
        OffsetRange(topic="compacted", partition=0, start_offset=offset, end_offset=offset + 1)
        for offset in range(n_written - 20)
    ]
    started = time.monotonic()
    found = read(cluster, singles)
    assert set(found) <= kept
    assert time.monotonic() - started < 20
    cluster.close()


def test_a_refusal_without_hope_is_raised_at_once(kafka: Any, topic: Any, cluster: Cluster) -> None:
    """A partition that does not exist, of a topic that does."""
    name = topic(partitions=1)
    range_ = OffsetRange(topic=name, partition=9, start_offset=0, end_offset=1)
    started = time.monotonic()
    with pytest.raises(WireError) as caught:
        read(cluster, [range_])
    assert isinstance(caught.value, UnknownTopicError)
    assert caught.value.partition == 9
    assert time.monotonic() - started < 12
