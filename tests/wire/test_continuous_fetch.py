"""Reading without an end: positions, their leader epochs, and time that is not the read's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from pykafka_wire.wire.consumer import Consumer
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import LogTruncatedError
from pykafka_wire.wire.fetch.continuous_fetch import ContinuousFetch
from pykafka_wire.wire.fetch.fetched_records import FetchedRecords
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.protocol.messages.fetch import DivergingEpoch, FetchRequest, FetchResponse
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import FakeBroker
from tests.wire.fake_fetch import N_RECORDS, VALUES, asked_of, batch_at, client, response, two_brokers
from tests.wire.oracle import control_batch

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def brokers() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    with two_brokers() as both:
        yield both


def poll_until(read: ContinuousFetch, done: Callable[[FetchedRecords | None], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done(read.poll(Deadline.after_ms(200))):
        assert time.monotonic() < deadline


def log_of(*batches: memoryview, ends: list[int]) -> Callable[[FetchRequest, int], FetchResponse]:
    """Responds with the one batch that holds the offset that is asked for; `ends` are the batches' ends."""

    def reply(request: FetchRequest, version: int) -> FetchResponse:
        offset = asked_of(request).fetch_offset
        records = next((batch for batch, end in zip(batches, ends, strict=True) if offset < end), memoryview(b""))
        return response(request, high_watermark=ends[-1], last_stable_offset=ends[-1], records=records)

    return reply


def test_positions_cross_responses_of_control_batches_alone(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, _ = brokers
    marker = memoryview(control_batch(N_RECORDS, 1, commit=True))
    leader.on[FetchRequest] = log_of(batch_at(0), marker, ends=[N_RECORDS, N_RECORDS + 1])
    with client(leader) as cluster:
        read = ContinuousFetch(cluster, {ZERO: Position(0)}, VALUES)
        fetched = read.poll(Deadline.after_ms(30_000))
        assert fetched is not None and fetched.records.n_records == N_RECORDS
        poll_until(read, lambda _: read.positions()[ZERO].offset == N_RECORDS + 1)
        poll_until(read, lambda _: read.ended() == [ZERO])


def test_a_position_holds_the_leader_epoch_of_the_last_batch_that_was_handed_out(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    leader, _ = brokers
    both = memoryview(bytes(batch_at(0, leader_epoch=3)) + bytes(batch_at(N_RECORDS, leader_epoch=5)))
    leader.on[FetchRequest] = log_of(both, ends=[2 * N_RECORDS])
    with client(leader) as cluster:
        read = ContinuousFetch(cluster, {ZERO: Position(0)}, VALUES)
        assert read.positions() == {ZERO: Position(0, -1)}
        poll_until(read, lambda fetched: fetched is not None)
        assert read.positions() == {ZERO: Position(2 * N_RECORDS, 5)}


def test_the_first_fetch_validates_a_position_by_its_leader_epoch(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, _ = brokers
    diverging = DivergingEpoch(epoch=2, end_offset=4)
    leader.on[FetchRequest] = lambda request, _: response(request, diverging_epoch=diverging)
    with client(leader) as cluster, pytest.raises(LogTruncatedError) as caught:
        ContinuousFetch(cluster, {ZERO: Position(N_RECORDS, 3)}, VALUES).poll(Deadline.after_ms(30_000))
    (request,) = (request for request in leader.requests if isinstance(request, FetchRequest))
    assert asked_of(request).last_fetched_epoch == 3
    assert (caught.value.diverging_epoch, caught.value.diverging_offset) == (2, 4)


def test_a_consumer_reads_on_where_a_truncated_log_diverges(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, _ = brokers
    truncated: list[bool] = []

    def reply(request: FetchRequest, version: int) -> FetchResponse:
        asked = asked_of(request)
        if asked.fetch_offset < N_RECORDS and not truncated:
            return response(request, records=batch_at(0, leader_epoch=3))
        if not truncated:  # a new leader, whose log ends early
            leader.topics = {"t": {0: (1, 4), 1: (2, 0)}}
            truncated.append(True)
            return response(request, error_code=74)  # FENCED_LEADER_EPOCH
        if asked.fetch_offset == N_RECORDS:
            return response(request, diverging_epoch=DivergingEpoch(epoch=2, end_offset=4))
        return response(request, records=batch_at(4, leader_epoch=4), high_watermark=14, last_stable_offset=14)

    leader.on[FetchRequest] = reply
    with Consumer({"bootstrap.servers": leader.address}, columns=VALUES) as consumer:
        consumer.assign({ZERO: 0})
        assert len(consumer.poll(30_000)) == N_RECORDS
        deadline = time.monotonic() + 30
        while consumer.position(ZERO) != 14:
            consumer.poll(500)
            assert time.monotonic() < deadline


def test_epochs_that_end_at_or_above_the_position_truncate_nothing(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    """A position may have the epoch of a leader that wrote nothing: Java's consumer commits those (KIP-320)."""
    leader, _ = brokers
    serve = log_of(batch_at(0), batch_at(N_RECORDS), ends=[N_RECORDS, 2 * N_RECORDS])

    def reply(request: FetchRequest, version: int) -> FetchResponse:
        if asked_of(request).last_fetched_epoch == 5:
            return response(request, diverging_epoch=DivergingEpoch(epoch=4, end_offset=2 * N_RECORDS))
        return serve(request, version)

    leader.on[FetchRequest] = reply
    with client(leader) as cluster:
        read = ContinuousFetch(cluster, {ZERO: Position(N_RECORDS, 5)}, VALUES)
        fetched = read.poll(Deadline.after_ms(30_000))
        assert fetched is not None and fetched.records.offset.tolist() == list(range(N_RECORDS, 2 * N_RECORDS))
    assert [asked_of(each).last_fetched_epoch for each in leader.requests if isinstance(each, FetchRequest)][:2] == [
        5,
        -1,
    ]


def leads_to_follower(*batches: memoryview, ends: list[int]) -> Callable[[FetchRequest, int], FetchResponse]:
    """The log of a leader that names broker 2 to whoever tells a rack, with its high watermark, as Kafka's do."""
    serve = log_of(*batches, ends=ends)

    def reply(request: FetchRequest, version: int) -> FetchResponse:
        if not request.rack_id:
            return serve(request, version)
        end = {"high_watermark": ends[-1], "last_stable_offset": ends[-1]}
        return response(request, preferred_read_replica=2, **end)

    return reply


def test_a_partition_ends_where_its_leaders_log_does_and_not_that_of_a_follower_that_trails(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    leader, follower = brokers
    leader.on[FetchRequest] = leads_to_follower(batch_at(0), batch_at(N_RECORDS), ends=[N_RECORDS, 2 * N_RECORDS])
    follower.on[FetchRequest] = log_of(batch_at(0), ends=[N_RECORDS])
    started = time.monotonic()
    with client(leader, client_rack="r2") as cluster:
        read = ContinuousFetch(cluster, {ZERO: Position(0)}, VALUES)
        n_records = 0
        while not (ended := read.ended()):
            fetched = read.poll(Deadline.after_ms(200))
            n_records += 0 if fetched is None else fetched.records.n_records
            assert time.monotonic() < started + 30
    assert (ended, n_records) == ([ZERO], 2 * N_RECORDS)
    assert 1.0 < time.monotonic() - started < 10  # FOLLOWER_WAIT_S
    assert leader.count(FetchRequest) < 40


def test_a_follower_that_keeps_up_goes_on_serving_at_the_end_of_the_log(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    leader, follower = brokers
    leader.on[FetchRequest] = leads_to_follower(batch_at(0), ends=[N_RECORDS])
    serve = log_of(batch_at(0), ends=[N_RECORDS])

    def wait_and_serve(request: FetchRequest, version: int) -> FetchResponse:
        time.sleep(request.max_wait_ms / 1000)
        return serve(request, version)

    follower.on[FetchRequest] = wait_and_serve
    with client(leader, client_rack="r2", fetch_max_wait_ms="100") as cluster:
        read = ContinuousFetch(cluster, {ZERO: Position(0)}, VALUES)
        poll_until(read, lambda fetched: fetched is not None)
        poll_until(read, lambda _: read.ended() == [ZERO])
        until = Deadline.after_ms(3_000)
        while not until.expired:
            assert read.poll(until) is None
        assert read.ended() == []
    assert leader.count(FetchRequest) <= 6
    assert follower.count(FetchRequest) > 15
    assert all(request.rack_id for request in leader.requests if isinstance(request, FetchRequest))


def test_a_follower_that_was_at_the_end_has_its_second_for_a_new_record(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    leader, follower = brokers
    leader.on[FetchRequest] = leads_to_follower(batch_at(0), ends=[N_RECORDS])
    trailing = log_of(batch_at(0), ends=[N_RECORDS])
    full = log_of(batch_at(0), batch_at(N_RECORDS), ends=[N_RECORDS, 2 * N_RECORDS])
    full_from = float("inf")

    def wait_and_serve(request: FetchRequest, version: int) -> FetchResponse:
        time.sleep(request.max_wait_ms / 1000)
        return (full if time.monotonic() >= full_from else trailing)(request, version)

    def grow(request: FetchRequest, version: int) -> FetchResponse:
        """The leader has one more batch by the time that it is asked again, the follower 200 ms later."""
        nonlocal full_from
        full_from = min(full_from, time.monotonic() + 0.2)
        ends = [N_RECORDS, 2 * N_RECORDS]
        return leads_to_follower(batch_at(0), batch_at(N_RECORDS), ends=ends)(request, version)

    follower.on[FetchRequest] = wait_and_serve
    with client(leader, client_rack="r2", fetch_max_wait_ms="100") as cluster:
        read = ContinuousFetch(cluster, {ZERO: Position(0)}, VALUES)
        poll_until(read, lambda _: read.ended() == [ZERO])
        leader.on[FetchRequest] = grow
        poll_until(read, lambda fetched: fetched is not None)
        poll_until(read, lambda _: read.ended() == [ZERO])
    assert all(request.rack_id for request in leader.requests if isinstance(request, FetchRequest))


def test_time_between_polls_is_not_the_reads(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    """A consumer that works on its records for longer than default.api.timeout.ms finds its read as it left it."""
    leader, _ = brokers
    leader.on[FetchRequest] = lambda request, _: (
        response(request, error_code=6) if leader.count(FetchRequest) < 3 else response(request, records=batch_at(0))
    )
    with client(leader, default_api_timeout_ms="1500", request_timeout_ms="1000") as cluster:
        read = ContinuousFetch(cluster, {ZERO: Position(0)}, VALUES)
        time.sleep(1.6)
        while not leader.count(FetchRequest):
            assert read.poll(Deadline.after_ms(1)) is None
        assert read.poll(Deadline.after_ms(50)) is None
        time.sleep(1.6)
        poll_until(read, lambda fetched: fetched is not None)
