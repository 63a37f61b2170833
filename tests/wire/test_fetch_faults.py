"""Followers that are of no use, and leaders that say nothing: what no real broker can be made to do when it is wanted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from pykafka_wire.wire import error_codes
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError, LogEndError, WireError
from pykafka_wire.wire.fetch.continuous_fetch import ContinuousFetch
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from pykafka_wire.wire.protocol.messages.list_offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition
from tests.wire.cutting_proxy import CuttingProxy
from tests.wire.fake_broker import CLOSE, Close, FakeBroker, Handler, Mangled, Reply
from tests.wire.fake_fetch import N_RECORDS, VALUES, asked_of, batch_at, client, range_of, response, two_brokers


@pytest.fixture
def brokers() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    with two_brokers() as both:
        yield both


def naming_leader(request: FetchRequest, version: int) -> FetchResponse:
    """A leader that names broker 2 to whoever tells a rack, and serves all others."""
    if request.rack_id:
        return response(request, preferred_read_replica=2)
    return response(request, records=batch_at(0))


@pytest.mark.parametrize(("size", "most_mib"), [(1_000, 8), (100, 4)])
def test_a_partition_of_large_records_may_fill_a_response(
    brokers: tuple[FakeBroker, FakeBroker], size: int, most_mib: int
) -> None:
    asked: list[int] = []

    def endless(request: FetchRequest, version: int) -> FetchResponse:
        asked.append(asked_of(request).partition_max_bytes)
        records = batch_at(asked_of(request).fetch_offset, size=size)
        return response(request, records=records, high_watermark=10**9, last_stable_offset=10**9)

    brokers[0].on[FetchRequest] = endless
    with client(brokers[0]) as cluster:
        reading = fetch_ranges(cluster, [range_of(0, 10**9)], columns=VALUES)
        while len(asked) < 8:
            next(reading)
    assert max(asked) == most_mib << 20


@pytest.mark.parametrize("code", [6, 9, 78], ids=["NOT_LEADER", "REPLICA_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE"])
def test_a_follower_that_refuses_is_not_asked_again_and_the_leader_serves(
    brokers: tuple[FakeBroker, FakeBroker], code: int
) -> None:
    leader, follower = brokers
    leader.on[FetchRequest] = naming_leader
    follower.on[FetchRequest] = lambda request, _: response(request, error_code=code)
    with client(leader, client_rack="r2") as cluster:
        (chunk,) = fetch_ranges(cluster, [range_of(0)], columns=VALUES, deadline_ms=10_000)
    assert chunk.records.n_records == N_RECORDS
    assert leader.count(FetchRequest) == 2
    assert follower.count(FetchRequest) == 1


def test_a_follower_that_hangs_ends_no_range_and_the_leader_serves(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    """Its high watermark does not rise: the leader's word counts, not the follower's, whether the end is there."""
    leader, follower = brokers
    leader.on[FetchRequest] = naming_leader
    follower.on[FetchRequest] = lambda request, _: response(request, high_watermark=0, last_stable_offset=0)
    with client(leader, client_rack="r2") as cluster:
        (chunk,) = fetch_ranges(cluster, [range_of(0)], columns=VALUES, end_wait_ms=500)
    assert chunk.records.n_records == N_RECORDS
    assert leader.count(FetchRequest) == 2
    assert follower.count(FetchRequest) > 1


def test_a_read_that_makes_no_progress_says_why(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    brokers[0].on[FetchRequest] = lambda request, _: response(request, error_code=9)
    with client(brokers[0]) as cluster, pytest.raises(DeadlineExceededError) as raised:
        list(fetch_ranges(cluster, [range_of(0)], columns=VALUES, deadline_ms=300))
    assert "REPLICA_NOT_AVAILABLE" in raised.value.remedy


def test_a_network_that_is_too_slow_for_a_response_gets_smaller_ones(
    brokers: tuple[FakeBroker, FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    n_batches = 50
    batches = [batch_at(nth * N_RECORDS, size=1_000) for nth in range(n_batches)]

    def log(request: FetchRequest, version: int) -> FetchResponse:
        first = asked_of(request).fetch_offset // N_RECORDS
        fitting = max(1, asked_of(request).partition_max_bytes // len(batches[0]))
        records = memoryview(b"".join(batches[first : first + fitting]))
        return response(request, records=records, high_watermark=n_batches * N_RECORDS)

    brokers[0].on[FetchRequest] = log
    host, _, port = brokers[0].address.partition(":")
    whole = range_of(0, n_batches * N_RECORDS)
    with CuttingProxy(host, int(port)) as proxy:
        proxy.stand_between(monkeypatch)
        proxy.bytes_a_second = 500_000
        # A quarter of a MiB, as much as is asked for at first, takes longer.
        with client(brokers[0], request_timeout_ms="200") as cluster:
            chunks = list(fetch_ranges(cluster, [whole], columns=VALUES, deadline_ms=5_000))
    assert sum(chunk.records.n_records for chunk in chunks) == n_batches * N_RECORDS


_racks_given: list[str] = []


def give_rack(setting: str) -> str:
    _racks_given.append(setting)
    return "r2"


def test_a_read_asks_once_for_its_rack(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    told: list[str] = []

    def one_at_a_time(request: FetchRequest, version: int) -> FetchResponse:
        told.append(request.rack_id)
        return response(request, records=batch_at(asked_of(request).fetch_offset))

    brokers[0].on[FetchRequest] = one_at_a_time
    _racks_given.clear()
    with client(brokers[0], client_rack=f"provider:{__name__}:give_rack") as cluster:
        list(fetch_ranges(cluster, [range_of(0, 3 * N_RECORDS)], columns=VALUES))
    assert told == ["r2"] * 3
    assert _racks_given == ["client.rack"]


def test_the_wait_for_a_ranges_end_begins_with_the_leaders_word(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, follower = brokers
    follower.on[FetchRequest] = lambda request, _: response(request, high_watermark=0, last_stable_offset=0)
    first_word: list[float] = []

    def trailing_leader(request: FetchRequest, version: int) -> FetchResponse:
        if request.rack_id:
            return response(request, preferred_read_replica=2)
        first_word.append(time.monotonic())
        return response(request, high_watermark=0, last_stable_offset=0)

    leader.on[FetchRequest] = trailing_leader
    with client(leader, client_rack="r2") as cluster, pytest.raises(LogEndError) as caught:
        list(fetch_ranges(cluster, [range_of(0)], columns=VALUES, end_wait_ms=700))
    assert time.monotonic() - first_word[0] > 0.7
    assert caught.value.broker == 1


@pytest.mark.parametrize("log_end_offset", [N_RECORDS - 1, N_RECORDS])
def test_an_end_above_the_high_watermark_tells_whether_the_leaders_log_holds_it(
    brokers: tuple[FakeBroker, FakeBroker], log_end_offset: int
) -> None:
    """Where replicas trail, or too few are in sync (KIP-966), records exist that are not readable yet."""
    leader, _ = brokers
    leader.topics = {"t": {0: (1, 3)}}
    leader.speak({23: (2, 4)})
    leader.on[FetchRequest] = lambda request, _: response(request, high_watermark=0, last_stable_offset=0)
    leader.on[OffsetForLeaderEpochRequest] = lambda request, _: epoch_end(request, log_end_offset)
    with client(leader) as cluster, pytest.raises(LogEndError) as caught:
        list(fetch_ranges(cluster, [range_of(0)], columns=VALUES, end_wait_ms=300))
    assert caught.value.log_end_offset == log_end_offset
    assert ("min.insync.replicas" in str(caught.value)) is (log_end_offset >= N_RECORDS)


def epoch_end(request: OffsetForLeaderEpochRequest, end_offset: int) -> OffsetForLeaderEpochResponse:
    asked = request.topics[0].partitions[0]
    found = EpochEndOffset(partition=asked.partition, leader_epoch=asked.leader_epoch, end_offset=end_offset)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[found])])


def test_a_retry_that_is_due_does_not_wait_for_another_brokers_response(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    """By default a response may take 30 s, and a pause 0.1 s."""
    first, slow = brokers
    retried = threading.Event()
    waited: list[bool] = []

    def refuses_once(request: FetchRequest, version: int) -> FetchResponse:
        if first.count(FetchRequest) == 1:
            return response(request, error_code=6)
        retried.set()
        return response(request, records=batch_at(0))

    def after_the_retry(request: FetchRequest, version: int) -> FetchResponse:
        waited.append(retried.wait(10))
        return response(request, records=batch_at(0))

    first.on[FetchRequest], slow.on[FetchRequest] = refuses_once, after_the_retry
    with client(first) as cluster:
        chunks = list(fetch_ranges(cluster, [range_of(0), range_of(1)], columns=VALUES))
    assert waited == [True]
    assert sum(chunk.records.n_records for chunk in chunks) == 2 * N_RECORDS


def all_left_out(request: FetchRequest, version: int) -> FetchResponse:
    return FetchResponse(responses=[])


def first_batch_cut_short(request: FetchRequest, version: int) -> FetchResponse:
    return response(request, records=batch_at(0)[:40])


def nothing_at_once(request: FetchRequest, version: int) -> FetchResponse:
    return response(request, high_watermark=0, last_stable_offset=0)


@pytest.mark.parametrize("bounded", [True, False], ids=["RangeRead", "ContinuousFetch"])
@pytest.mark.parametrize("reply", [all_left_out, first_batch_cut_short, nothing_at_once])
def test_a_broker_that_gives_nothing_is_not_asked_without_pause(
    brokers: tuple[FakeBroker, FakeBroker], bounded: bool, reply: Handler
) -> None:
    leader, _ = brokers
    leader.on[FetchRequest] = reply
    with client(leader) as cluster:
        if bounded:
            with pytest.raises(WireError):
                list(fetch_ranges(cluster, [range_of(0)], columns=VALUES, deadline_ms=500))
        else:
            read, until = (
                ContinuousFetch(cluster, {TopicPartition("t", 0): Position(0)}, VALUES),
                Deadline.after_ms(500),
            )
            while not until.expired:
                read.poll(until)
    assert leader.count(FetchRequest) <= 110  # pauses of 5 ms, in 0.5 s


def test_a_follower_is_asked_where_metadata_are_never_fresh(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, follower = brokers
    leader.on[FetchRequest] = naming_leader
    follower.on[FetchRequest] = lambda request, _: response(request, records=batch_at(0))
    with client(leader, client_rack="r2", metadata_max_age_ms="0") as cluster:
        (chunk,) = fetch_ranges(cluster, [range_of(0)], columns=VALUES, deadline_ms=10_000)
    assert chunk.records.n_records == N_RECORDS
    assert leader.count(FetchRequest) == 1


def test_a_throttled_broker_delays_no_other_one(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    throttled, other = brokers
    end_offset = 5 * N_RECORDS
    finished_at: dict[int, float] = {}

    def batches_of(broker: FakeBroker, throttle_time_ms: int) -> Handler:
        def reply(request: FetchRequest, version: int) -> FetchResponse:
            offset = asked_of(request).fetch_offset
            if offset == end_offset - N_RECORDS:
                finished_at[broker.node_id] = time.monotonic()
            end = {"high_watermark": end_offset, "last_stable_offset": end_offset}
            found = response(request, records=batch_at(offset), **end)
            return FetchResponse(responses=found.responses, throttle_time_ms=throttle_time_ms)

        return reply

    throttled.on[FetchRequest], other.on[FetchRequest] = batches_of(throttled, 600), batches_of(other, 0)
    with client(throttled) as cluster:
        ranges = [range_of(0, end_offset), range_of(1, end_offset)]
        chunks = list(fetch_ranges(cluster, ranges, columns=VALUES, deadline_ms=20_000))
    assert sum(chunk.records.n_records for chunk in chunks) == 2 * end_offset
    assert finished_at[1] - finished_at[2] > 1.0


def test_a_broker_that_stops_in_the_middle_of_a_response_delays_no_other_one(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    stopped, other = brokers
    end_offset = 5 * N_RECORDS
    served: list[int] = []

    def half_at_first(request: FetchRequest, version: int) -> Reply:
        served.append(stopped.node_id)
        whole = response(request, records=batch_at(0))
        return whole if stopped.count(FetchRequest) > 1 else Mangled(whole, lambda frame: frame[: len(frame) // 2])

    def serve(request: FetchRequest, version: int) -> FetchResponse:
        served.append(other.node_id)
        time.sleep(0.05)  # half of the response has arrived
        end = {"high_watermark": end_offset, "last_stable_offset": end_offset}
        return response(request, records=batch_at(asked_of(request).fetch_offset), **end)

    stopped.on[FetchRequest], other.on[FetchRequest] = half_at_first, serve
    with client(stopped, request_timeout_ms="5000") as cluster:
        chunks = list(fetch_ranges(cluster, [range_of(0), range_of(1, end_offset)], columns=VALUES))
    assert sum(chunk.records.n_records for chunk in chunks) == N_RECORDS + end_offset
    assert served[-1] == stopped.node_id  # asked again when its time was over, and all others were served


def test_a_broker_that_does_not_finish_a_handshake_delays_no_other_one(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    """As a stopped process does not, whose port takes connections all the same."""
    stopped, other = brokers
    end_offset = 5 * N_RECORDS
    served_at: list[float] = []

    def serve(request: FetchRequest, version: int) -> FetchResponse:
        served_at.append(time.monotonic())
        end = {"high_watermark": end_offset, "last_stable_offset": end_offset}
        return response(request, records=batch_at(asked_of(request).fetch_offset), **end)

    stopped.on[FetchRequest] = lambda request, _: response(request, records=batch_at(0))
    other.on[FetchRequest] = serve
    options = {"socket_connection_setup_timeout_ms": "3000"}
    with client(other, **options) as cluster:
        cluster.metadata.topics(["t"])
        stopped.silent = True
        chunks = fetch_ranges(cluster, [range_of(0), range_of(1, end_offset)], columns=VALUES)
        began = time.monotonic()
        n_records = 0
        for chunk in chunks:
            n_records += chunk.records.n_records
            stopped.silent = n_records < end_offset
    assert n_records == N_RECORDS + end_offset
    assert len(served_at) == 5
    assert served_at[-1] - began < 2.5  # less than one time limit of a connection


def test_a_new_leader_has_the_whole_wait_to_come_level(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    first, second = brokers
    nothing = {"high_watermark": 0, "last_stable_offset": 0}
    moved_at: list[float] = []

    def trailing(request: FetchRequest, version: int) -> FetchResponse:
        if not moved_at and first.count(FetchRequest) > 3:
            moved_at.append(time.monotonic())
            for broker in brokers:
                broker.topics = {"t": {0: (2, 1), 1: (2, 0)}}
            return response(request, error_code=6)  # NOT_LEADER_OR_FOLLOWER
        time.sleep(0.3)
        return response(request, **nothing)

    def level_in_time(request: FetchRequest, version: int) -> FetchResponse:
        time.sleep(0.3)
        late = time.monotonic() - moved_at[0] > 0.8
        return response(request, records=batch_at(0)) if late else response(request, **nothing)

    first.on[FetchRequest], second.on[FetchRequest] = trailing, level_in_time
    with client(first) as cluster:
        (chunk,) = fetch_ranges(cluster, [range_of(0)], columns=VALUES, end_wait_ms=1_500)
    assert chunk.records.n_records == N_RECORDS


def test_an_unknown_topics_grace_begins_when_it_is_first_said_to_be_unknown(
    brokers: tuple[FakeBroker, FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was away for longer than the grace says it once when it is back, before it knows its topics."""
    leader, _ = brokers
    row = error_codes.error_info(3)
    monkeypatch.setitem(error_codes.ERRORS, 3, row._replace(grace_ms=500))
    began = time.monotonic()

    def back_late(request: FetchRequest, version: int) -> FetchResponse | Close:
        if time.monotonic() - began < 1:
            return CLOSE
        told.append(0 if told else 3)
        return response(request, error_code=3) if told == [3] else response(request, records=batch_at(0))

    told: list[int] = []
    leader.on[FetchRequest] = back_late
    with client(leader) as cluster:
        (chunk,) = fetch_ranges(cluster, [range_of(0)], columns=VALUES)
    assert chunk.records.n_records == N_RECORDS
    assert told == [3, 0]


def test_a_broker_that_says_nothing_is_given_up_while_another_one_is_busy(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    silent, busy = brokers
    asked_again = threading.Event()
    end_offset = 10**9
    give_up_at = time.monotonic() + 20
    was_hidden: list[bool] = []

    def silent_at_first(request: FetchRequest, version: int) -> FetchResponse | None:
        if silent.count(FetchRequest) == 1:
            return None
        asked_again.set()
        return response(request, records=batch_at(0))

    def never_at_a_loss(request: FetchRequest, version: int) -> FetchResponse:
        offset = asked_of(request).fetch_offset
        if asked_again.is_set() or time.monotonic() > give_up_at:
            was_hidden.append(not asked_again.is_set())
            offset = end_offset - 1
        return response(request, high_watermark=end_offset, last_stable_offset=end_offset, records=batch_at(offset, 1))

    silent.on[FetchRequest] = silent_at_first
    busy.on[FetchRequest] = never_at_a_loss
    with client(busy, request_timeout_ms="400") as cluster:
        chunks = fetch_ranges(cluster, [range_of(0), range_of(1, end_offset)], columns=VALUES)
        indexes = {int(index) for chunk in chunks for index in chunk.records.slice_index}
    assert was_hidden == [False]
    assert indexes == {0, 1}


def test_partitions_without_a_leader_delay_no_other_and_are_looked_up_together(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    leader, _ = brokers
    headless = range(1, 41)
    for broker in brokers:
        broker.topics["t"] = {0: (1, 0), **dict.fromkeys(headless, (-1, 0))}

    def serve(request: FetchRequest, version: int) -> FetchResponse:
        asked = [partition.partition for partition in request.topics[0].partitions]
        responses = [
            PartitionData(partition_index=partition, high_watermark=10, last_stable_offset=10, records=batch_at(0))
            for partition in asked
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=responses)])

    leader.on[FetchRequest] = serve
    with client(leader) as cluster:
        chunks = fetch_ranges(cluster, [range_of(partition) for partition in (0, *headless)], columns=VALUES)
        n_records = next(chunks).records.n_records
        for broker in brokers:
            broker.topics["t"].update(dict.fromkeys(headless, (1, 1)))
        assert n_records + sum(chunk.records.n_records for chunk in chunks) == N_RECORDS * (1 + len(headless))
    assert sum(broker.count(MetadataRequest) for broker in brokers) < len(headless)


def test_a_leader_hint_that_is_not_newer_is_followed_by_a_pause(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, _ = brokers
    refused_until = time.monotonic() + 1

    def not_the_leader(request: FetchRequest, version: int) -> FetchResponse:
        if time.monotonic() < refused_until:
            return response(request, error_code=6, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=0))
        return response(request, records=batch_at(0))

    leader.on[FetchRequest] = not_the_leader
    with client(leader) as cluster:
        (chunk,) = fetch_ranges(cluster, [range_of(0)], columns=VALUES)
    assert chunk.records.n_records == N_RECORDS
    assert leader.count(FetchRequest) < 20


@pytest.mark.parametrize("times_out", [False, True])
def test_a_broker_that_serves_one_remote_partition_of_each_request_is_asked_for_all_of_them_in_turn(
    times_out: bool,
) -> None:
    """As brokers without KAFKA-14915 do with ranges in tiered storage; a read of the remote store may also end in nothing."""
    n_partitions, n_batches = 6, 4
    end = n_batches * N_RECORDS
    served: list[int] = []
    waits = {0} if times_out else set()

    def one_partition(request: FetchRequest, version: int) -> FetchResponse:
        asked = request.topics[0].partitions
        first = asked[0].partition
        given = -1 if first in waits else first
        waits.discard(first)
        if given >= 0:
            served.append(given)
        parts = [
            PartitionData(
                partition_index=each.partition,
                high_watermark=end,
                last_stable_offset=end,
                records=batch_at(each.fetch_offset) if each.partition == given else memoryview(b""),
            )
            for each in asked
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])

    with FakeBroker(1) as broker:
        broker.topics = {"t": dict.fromkeys(range(n_partitions), (1, 0))}
        broker.on[FetchRequest] = one_partition
        ranges = [range_of(partition, end) for partition in range(n_partitions)]
        with client(broker) as cluster:
            n_read = sum(chunk.records.n_records for chunk in fetch_ranges(cluster, ranges, columns=VALUES))
        n_requests = broker.count(FetchRequest)
    assert n_read == n_partitions * end
    assert n_requests == n_partitions * n_batches + times_out  # none was in vain
    for n in range(1, len(served) + 1):
        counts = [served[:n].count(partition) for partition in range(n_partitions)]
        assert max(counts) - min(counts) <= 1 + times_out, served


def test_empty_ranges_need_no_broker() -> None:
    nowhere = Cluster(ClientSettings.from_options({"bootstrap.servers": "127.0.0.1:1"}))
    range_ = OffsetRange(topic="any", partition=0, start_offset=7, end_offset=7)
    assert list(fetch_ranges(nowhere, [range_], columns=VALUES)) == []
    assert list(fetch_ranges(nowhere, [], columns=VALUES)) == []
