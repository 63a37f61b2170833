"""What reads leave for those after them: whose it is, when it is used, and how much it may be; then over fake brokers."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.fetch.batch_cache import BatchCache
from pykafka_wire.wire.fetch.fetched_records import FetchCounters
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.protocol.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from pykafka_wire.wire.topic_partitions import OffsetRange
from tests.wire.fake_broker import FakeBroker
from tests.wire.fake_fetch import VALUES, asked_of, batch_at, client, response
from tests.wire.range_reads import cluster_of, numbered, produce, read, whole
from tests.wire.test_batch_scan import batch_head

TOPIC_ID = uuid.UUID(int=7)


def planned(start: int, end: int, *, epoch: int = 4, partition: int = 0, topic_id: uuid.UUID = TOPIC_ID) -> OffsetRange:
    return OffsetRange(
        topic="t", partition=partition, start_offset=start, end_offset=end, leader_epoch=epoch, topic_id=topic_id
    )


def batches(first: int, n: int, n_bytes: int = 100) -> memoryview:
    """`n` batches of ten offsets each."""
    return memoryview(b"".join(batch_head(first + 10 * i, 9, n_bytes=n_bytes) for i in range(n)))


def kept(n: int = 5, *, n_bytes: int = 100, max_bytes: int = 1 << 20) -> BatchCache:
    """After a read up to offset 25, which has received the batches from offset 20 on."""
    cache = BatchCache(max_bytes)
    cache.keep(planned(0, 25), (1, 4), read_committed=False, records=batches(20, n, n_bytes))
    return cache


def test_a_range_begins_with_what_the_one_before_has_left() -> None:
    cache = kept()
    first = cache.take(planned(25, 40), read_committed=False)
    assert first is not None
    assert (bytes(first.records[: first.scan.n_bytes]), first.scan.next_offset) == (bytes(batches(20, 2)), 40)
    assert first.is_next
    second = cache.take(planned(40, 63), read_committed=False)
    assert second is not None
    assert (bytes(second.records[: second.scan.n_bytes]), second.scan.next_offset) == (bytes(batches(40, 3)), 70)
    # The batch that the end is in, for the next one again; then all is used up.
    third = cache.take(planned(63, 500), read_committed=False)
    assert third is not None
    assert (bytes(third.records[: third.scan.n_bytes]), third.scan.next_offset) == (bytes(batches(60, 1)), 70)
    assert cache.take(planned(69, 70), read_committed=False) is None


def test_a_range_further_on_is_found_in_the_middle_and_is_not_the_next_one() -> None:
    found = kept().take(planned(47, 60), read_committed=False)
    assert found is not None
    assert bytes(found.records[: found.scan.n_bytes]) == bytes(batches(40, 2))
    assert not found.is_next


@pytest.mark.parametrize(
    "other",
    [
        planned(0, 40), planned(24, 40), planned(70, 80), planned(25, 40, epoch=5), planned(25, 40, epoch=-1),
        planned(25, 40, partition=1), planned(25, 40, topic_id=uuid.UUID(int=8)), planned(25, 40, topic_id=uuid.UUID(int=0)),
    ],
    ids=["replayed", "earlier", "later", "new epoch", "no epoch", "partition", "recreated", "no id"],
)  # fmt: skip
def test_other_ranges_find_nothing(other: OffsetRange) -> None:
    assert kept().take(other, read_committed=False) is None


def test_what_was_read_at_one_isolation_level_is_not_for_another() -> None:
    assert kept().take(planned(25, 40), read_committed=True) is None


def test_a_range_that_was_read_is_read_from_its_broker_the_next_time() -> None:
    cache = kept()
    assert cache.take(planned(25, 40), read_committed=False) is not None
    assert cache.take(planned(25, 40), read_committed=False) is None


def test_what_was_not_used_for_longest_makes_room() -> None:
    cache = BatchCache(max_bytes=1_000)
    for partition in (0, 1):
        cache.keep(planned(0, 25, partition=partition), (1, 4), read_committed=False, records=batches(20, 4))
    assert cache.take(planned(25, 30, partition=0), read_committed=False) is not None
    cache.keep(planned(0, 25, partition=2), (1, 4), read_committed=False, records=batches(20, 4))
    assert cache.take(planned(25, 30, partition=1), read_committed=False) is None
    assert cache.take(planned(30, 40, partition=0), read_committed=False) is not None
    assert cache.take(planned(25, 30, partition=2), read_committed=False) is not None


def test_of_one_partition_a_megabyte_is_kept_and_a_batch_that_is_too_large_is_not() -> None:
    many = kept(40, n_bytes=100_000, max_bytes=8 << 20)
    assert many.take(planned(119, 120), read_committed=False) is not None
    assert many.take(planned(120, 121), read_committed=False) is None
    large = kept(2, n_bytes=3_000_000, max_bytes=8 << 20)
    assert large.take(planned(29, 30), read_committed=False) is not None
    assert large.take(planned(30, 31), read_committed=False) is None
    assert kept(1, n_bytes=9_000_000, max_bytes=8 << 20).take(planned(25, 30), read_committed=False) is None


def test_a_batch_that_ends_with_its_range_is_not_kept_nor_one_that_is_cut_short_nor_nonsense() -> None:
    cache = BatchCache()
    for records in (batches(20, 1)[:0], batches(20, 1)[:99], memoryview(bytes(100)), memoryview(batch_head(10, 9))):
        cache.keep(planned(0, 25), (1, 4), read_committed=False, records=records)
        assert cache.take(planned(25, 40), read_committed=False) is None


# --- reads over fake brokers ------------------------------------------------------------------------------------------

N = 10


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A log of six batches of ten records, of which each response has three; led under epoch 4."""
    with FakeBroker(1) as broker:
        broker.peers = {1: broker}
        broker.topics = {"t": {0: (1, 4)}}
        broker.topic_ids = {"t": TOPIC_ID}
        broker.speak({1: (4, 13)})
        broker.on[FetchRequest] = lambda request, _: log_response(request)
        yield broker


def log_response(request: FetchRequest, **fields: object) -> FetchResponse:
    first = asked_of(request).fetch_offset // N
    records = b"".join(bytes(batch_at(N * i, leader_epoch=4)) for i in range(first, min(first + 3, 6)))
    ends = {"high_watermark": 6 * N, "last_stable_offset": 6 * N}
    return response(request, TOPIC_ID, **{**ends, "records": memoryview(bytearray(records)), **fields})


def values(cluster: Cluster, range_: OffsetRange, cache: BatchCache | None, **options: Any) -> list[bytes]:
    chunks = fetch_ranges(cluster, [range_], columns=VALUES, cache=cache, **options)
    return [value for chunk in chunks for value in chunk.records.value.to_pylist()]


def fetches(broker: FakeBroker) -> list[int]:
    return [asked_of(request).fetch_offset for request in broker.requests if isinstance(request, FetchRequest)]


def test_ranges_one_after_the_other_are_fetched_once(broker: FakeBroker) -> None:
    cache, counters = BatchCache(), FetchCounters()
    with client(broker) as cluster:
        found = [
            value for at in range(0, 60, 6) for value in values(cluster, planned(at, at + 6), cache, counters=counters)
        ]
    assert found == [b"%d" % i for i in range(60)]
    assert fetches(broker) == [0, 30]
    assert (
        abs(counters.n_bytes - sum(len(batch_at(at)) for at in range(0, 60, 10))) < 20
    )  # each offset's share once, rounded down


def test_a_range_that_is_replayed_is_fetched_again_and_reads_the_same(broker: FakeBroker) -> None:
    cache = BatchCache()
    with client(broker) as cluster:
        values(cluster, planned(0, 6), cache)
        first, again = (values(cluster, planned(6, 17), cache) for _ in range(2))
    assert first == again == [b"%d" % i for i in range(6, 17)]
    assert fetches(broker) == [0, 6]


def test_a_damaged_batch_that_was_kept_is_fetched_once_more(broker: FakeBroker) -> None:
    def reply(request: FetchRequest, version: int) -> FetchResponse:
        response = log_response(request)
        if len(fetches(broker)) == 1:
            records = response.responses[0].partitions[0].records
            assert records is not None
            records[len(batch_at(0)) + 70] ^= 1  # in the second batch, beyond the first range
        return response

    broker.on[FetchRequest] = reply
    cache = BatchCache()
    with client(broker) as cluster:
        assert values(cluster, planned(0, 10), cache) == [b"%d" % i for i in range(10)]
        assert values(cluster, planned(10, 20), cache) == [b"%d" % i for i in range(10, 20)]
    assert fetches(broker) == [0, 10]


def test_nothing_is_kept_of_a_response_with_aborted_transactions(broker: FakeBroker) -> None:
    aborted = [AbortedTransaction(producer_id=99, first_offset=0)]
    broker.on[FetchRequest] = lambda request, _: log_response(request, aborted_transactions=aborted)
    cache = BatchCache()
    with client(broker) as cluster:
        for at in (0, 6):
            values(cluster, planned(at, at + 6), cache, isolation_level="read_committed")
            values(cluster, planned(at, at + 6), cache, isolation_level="read_uncommitted")
    assert fetches(broker) == [0, 0, 6], "uncommitted reads have no use for the list"


@pytest.mark.parametrize(("epoch_now", "last_fetched_epoch"), [(4, -1), (5, 4)])
def test_what_follows_kept_batches_is_checked_for_a_truncation_only_if_another_leads(
    broker: FakeBroker, epoch_now: int, last_fetched_epoch: int
) -> None:
    """A log whose epochs were lost (an upgrade, a restored log) would response the check by OFFSET_OUT_OF_RANGE."""
    cache = BatchCache()
    with client(broker) as cluster:
        values(cluster, planned(0, 6), cache)
    broker.topics = {"t": {0: (1, epoch_now)}}
    with client(broker) as cluster:
        assert values(cluster, planned(6, 60), cache) == [b"%d" % i for i in range(6, 60)]
    (_, second) = (asked_of(request) for request in broker.requests if isinstance(request, FetchRequest))
    assert (second.fetch_offset, second.last_fetched_epoch) == (30, last_fetched_epoch)


def test_a_range_of_which_compaction_has_left_nothing_is_not_asked_for(broker: FakeBroker) -> None:
    records = b"".join(bytes(batch_at(at, leader_epoch=4)) for at in (0, 50))
    broker.on[FetchRequest] = lambda request, _: log_response(request, records=memoryview(bytearray(records)))
    cache = BatchCache()
    with client(broker) as cluster:
        assert values(cluster, planned(0, 10), cache) == [b"%d" % i for i in range(10)]
        assert values(cluster, planned(10, 50), cache) == []
    assert fetches(broker) == [0]


def test_a_range_that_was_planned_under_a_newer_epoch_is_fetched(broker: FakeBroker) -> None:
    cache = BatchCache()
    with client(broker) as cluster:
        values(cluster, planned(0, 6), cache)
        values(cluster, planned(6, 12, epoch=5), cache)
    assert fetches(broker) == [0, 6]


# --- and over a real one ----------------------------------------------------------------------------------------------


@pytest.mark.broker
@pytest.mark.parametrize("per_read", [500, 2_500, 25_000])
def test_small_ranges_receive_little_more_than_the_log_has(kafka: Any, topic: Any, per_read: int) -> None:
    name, n_records = topic(partitions=2), 100_000
    produce(kafka, name, numbered(n_records, 2, size=92), **{"batch.size": 16_384, "linger.ms": 50})
    with contextlib.closing(cluster_of(kafka)) as cluster:
        logs = [replace(r, leader_epoch=cluster.metadata.leader(r.topic_partition)[1]) for r in whole(cluster, name)]
        counters = FetchCounters()
        rows = read(cluster, logs, counters=counters)
        before, cache = cluster.counters.totals().bytes_received, BatchCache()
        found: dict[int, list[tuple[int, bytes]]] = {0: [], 1: []}
        for at in range(0, n_records // 2, per_read):
            ranges = [replace(r, start_offset=at, end_offset=at + per_read) for r in logs]
            for index, some in read(cluster, ranges, cache=cache).items():
                found[index] += some
        received = cluster.counters.totals().bytes_received - before
        assert found == rows
        assert received < 1.15 * counters.n_bytes
        # Without what is kept, as in another process: two batches more of each range at most.
        before, cache = cluster.counters.totals().bytes_received, BatchCache(max_bytes=0)
        for at in range(0, n_records // 2, per_read):
            read(cluster, [replace(r, start_offset=at, end_offset=at + per_read) for r in logs], cache=cache)
        received = cluster.counters.totals().bytes_received - before
        assert received < 1.05 * counters.n_bytes + n_records / per_read * 3 * 16_384
