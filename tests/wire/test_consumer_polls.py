"""A consumer's polls end in time though its group's coordinator does not respond."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykafka_wire.wire import ClientSettings, Consumer, ConsumerRecords, TopicPartition, WireError
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError
from pykafka_wire.wire.fetch.assignment import Assignment
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest
from pykafka_wire.wire.protocol.messages.group import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pykafka_wire.wire.records.decode import Columns
from tests.wire.fake_coordinator import GroupCoordinator, commit_response, end_early
from tests.wire.fake_fetch import N_RECORDS, asked_of, batch_at, response

T0 = TopicPartition("t", 0)
#: A generous bound for what takes some round trips, and one that is well below default.api.timeout.ms.
SOON_MS = 60_000
IN_TIME_S = 30


@pytest.fixture
def coordinator() -> Iterator[GroupCoordinator]:
    with GroupCoordinator() as broker:
        broker.speak({8: (2, 9), 9: (1, 9), 11: (2, 7), 12: (0, 4), 13: (0, 4), 14: (0, 5)})
        broker.on[FetchRequest] = lambda request, _: response(
            request, records=batch_at(0) if asked_of(request).fetch_offset < N_RECORDS else memoryview(b"")
        )
        broker.on[OffsetCommitRequest] = commit_response
        yield broker


@pytest.fixture
def consumer(coordinator: GroupCoordinator) -> Iterator[Consumer]:
    options = {
        "bootstrap.servers": coordinator.address,
        "group.id": "g",
        "auto.commit.interval.ms": "0",
        "heartbeat.interval.ms": "20",
        "default.api.timeout.ms": "120000",
        "request.timeout.ms": "110000",
    }
    consumer = Consumer(options)
    yield consumer
    end_early(consumer)


def poll(consumer: Consumer) -> ConsumerRecords:
    started = time.monotonic()
    polled = consumer.poll(100)
    assert time.monotonic() - started < IN_TIME_S
    return polled


def poll_until(consumer: Consumer, done: Callable[[], bool]) -> int:
    deadline, n_records = Deadline.after_ms(SOON_MS), 0
    while not done():
        assert not deadline.expired
        n_records += len(poll(consumer))
    return n_records


def committed(offset: int) -> Callable[..., OffsetFetchResponse]:
    partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset, metadata="", error_code=0)
    topic = OffsetFetchResponseTopics(name="t", partitions=[partition])
    return lambda *_: OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=0)])


def offsets_of(request: Any) -> list[int]:
    return [partition.committed_offset for topic in request.topics for partition in topic.partitions]


def test_records_are_read_while_an_automatic_commit_has_no_response(
    coordinator: GroupCoordinator, consumer: Consumer
) -> None:
    coordinator.on[OffsetCommitRequest] = lambda *_: None
    consumer.assign({T0: 0})
    poll_until(consumer, lambda: bool(coordinator.count(OffsetCommitRequest)))
    poll_until(consumer, lambda: consumer.position(T0) == N_RECORDS)
    consumer.seek(T0, 0)
    assert poll_until(consumer, lambda: consumer.position(T0) == N_RECORDS) == N_RECORDS
    assert coordinator.count(OffsetCommitRequest) == 1


def test_a_poll_ends_in_time_while_the_groups_offsets_are_looked_up(
    coordinator: GroupCoordinator, consumer: Consumer
) -> None:
    coordinator.on[OffsetFetchRequest] = lambda *_: None
    consumer.assign([T0])
    poll_until(consumer, lambda: bool(coordinator.count(OffsetFetchRequest)))
    assert not poll(consumer)
    consumer.seek(T0, 3)  # what the look-up may still find comes too late
    coordinator.on[OffsetFetchRequest] = committed(7)
    coordinator.drop()
    assert poll_until(consumer, lambda: consumer.position(T0) == N_RECORDS) <= N_RECORDS - 3
    assert not poll(consumer)
    assert consumer.position(T0) == N_RECORDS


def test_an_offset_that_was_sought_is_the_position_and_is_committed_at_once(
    coordinator: GroupCoordinator, consumer: Consumer
) -> None:
    coordinator.on[OffsetFetchRequest] = lambda *_: None
    consumer.assign([T0])
    poll_until(consumer, lambda: bool(coordinator.count(OffsetFetchRequest)))
    consumer.seek(T0, 3)
    assert consumer.position(T0) == 3
    coordinator.drop()  # a broker responds to one request of a connection after the other
    consumer.commit()
    (commit,) = [request for request in coordinator.requests if isinstance(request, OffsetCommitRequest)]
    assert offsets_of(commit) == [3]


def test_a_sought_offset_is_committed_after_a_commit_of_unknown_outcome(
    coordinator: GroupCoordinator, consumer: Consumer
) -> None:
    """The offset was the group's before; the commit that had no response may have replaced it."""
    consumer.assign({T0: 3})
    consumer.commit({T0: 5})
    coordinator.on[OffsetCommitRequest] = lambda *_: None
    with pytest.raises(WireError, match="did not respond"):
        consumer._commits.commit({T0: Position(9)}, Deadline.after_ms(200))
    n_before = coordinator.count(OffsetCommitRequest)
    coordinator.on[OffsetCommitRequest] = commit_response
    coordinator.drop()
    consumer.seek(T0, 5)
    poll_until(consumer, lambda: coordinator.count(OffsetCommitRequest) > n_before)
    sought = [request for request in coordinator.requests if isinstance(request, OffsetCommitRequest)][n_before]
    assert offsets_of(sought) == [5]


@pytest.mark.parametrize(("offset", "expected"), [(2, 4), (N_RECORDS, N_RECORDS)])
def test_after_a_transaction_of_unknown_outcome_reading_continues_where_it_was_sought_or_committed(
    coordinator: GroupCoordinator, consumer: Consumer, offset: int, expected: int
) -> None:
    """The group's offset is that of the transaction, or the one before; what was sought since counts more than that one."""
    coordinator.on[OffsetFetchRequest] = committed(2)
    consumer.assign([T0])
    assert consumer.position(T0) == 2
    consumer.seek(T0, 4)
    poll_until(consumer, lambda: consumer.position(T0) == N_RECORDS)
    coordinator.on[OffsetFetchRequest] = committed(offset)
    consumer.after_transaction(None)
    assert consumer.position(T0) == expected
    consumer.after_transaction(None)
    consumer.seek(T0, 1)
    assert consumer.position(T0) == 1


def test_a_position_is_waited_for_though_starts_of_others_are_being_looked_up() -> None:
    asked, responded = threading.Event(), threading.Event()

    def committed_positions(*_: Any) -> dict[TopicPartition, Position]:
        asked.set()
        assert responded.wait(IN_TIME_S)
        return {T0: Position(7)}

    settings = ClientSettings.from_options({"bootstrap.servers": "127.0.0.1:1"})
    with Cluster(settings) as cluster:
        read = Assignment(cluster, Columns(), committed_positions)
        read.add({T0: None})
        with pytest.raises(DeadlineExceededError):
            read.position(T0, Deadline.after_ms(0))
        assert asked.wait(IN_TIME_S)
        other = TopicPartition("t", 1)
        read.add({other: 5})
        responded.set()
        assert (read.position(other, Deadline.after_ms(SOON_MS)), read.positions[T0].offset) == (5, 7)


def test_a_partition_that_is_sought_while_another_one_is_looked_up_is_read_on(coordinator: GroupCoordinator) -> None:
    """Neither has a topic's id that is known any more."""
    other, responded = TopicPartition("t", 1), threading.Event()
    coordinator.topics["t"][1] = (1, 0)

    def committed_positions(*_: Any) -> dict[TopicPartition, Position]:
        assert responded.wait(IN_TIME_S)
        return {T0: Position(0)}

    with Cluster(ClientSettings.from_options({"bootstrap.servers": coordinator.address})) as cluster:
        read = Assignment(cluster, Columns(), committed_positions)

        def read_all() -> None:
            deadline = Deadline.after_ms(SOON_MS)
            while [read.positions.get(tp, Position(0)).offset for tp in (T0, other)] != [N_RECORDS, N_RECORDS]:
                assert not deadline.expired
                read.poll(Deadline.after_ms(100))

        read.add({T0: 0, other: 0})
        read_all()
        read.seek(T0, None)
        read.poll(Deadline.after_ms(100))
        read.seek(other, 0)
        read.poll(Deadline.after_ms(100))
        responded.set()
        read_all()


def look_up_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "pykafka-wire start offsets"}


def test_look_ups_of_an_earlier_assignment_do_not_outlive_close(
    coordinator: GroupCoordinator, consumer: Consumer
) -> None:
    """They went on for default.api.timeout.ms, and opened connections of a client that was closed."""
    coordinator.on[OffsetFetchRequest] = lambda *_: None
    consumer.assign([T0])
    poll_until(consumer, lambda: bool(coordinator.count(OffsetFetchRequest)))
    look_ups = look_up_threads()
    consumer.assign([])
    consumer.assign([T0])
    poll(consumer)
    look_ups |= look_up_threads()
    assert len(look_ups) == 2
    consumer.close()
    for thread in look_ups:
        thread.join(IN_TIME_S)
        assert not thread.is_alive()


def test_partitions_are_given_up_once_positions_are_committed_and_polls_end_in_time_meanwhile(
    coordinator: GroupCoordinator, consumer: Consumer
) -> None:
    revoked: list[Any] = []
    coordinator.on[OffsetFetchRequest] = committed(0)
    coordinator.on[OffsetCommitRequest] = lambda *_: None
    consumer.subscribe(["t"], on_revoked=revoked.append)
    assert poll_until(consumer, lambda: T0 in consumer.assignment and consumer.position(T0) == N_RECORDS) == N_RECORDS
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=27)
    n_heartbeats = coordinator.count(HeartbeatRequest)
    poll_until(consumer, lambda: coordinator.count(HeartbeatRequest) > n_heartbeats + 3)
    assert not poll(consumer)
    assert (revoked, coordinator.count(JoinGroupRequest)) == ([], 1)
    coordinator.on[OffsetCommitRequest] = commit_response
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=0)
    coordinator.drop()  # so that the commit is sent again
    poll_until(consumer, lambda: coordinator.count(JoinGroupRequest) == 2)
    assert revoked == [(T0,)]
    commits = [request for request in coordinator.requests if isinstance(request, OffsetCommitRequest)]
    assert offsets_of(commits[-1]) == [N_RECORDS]


def test_a_closed_consumer_rejects_polls_and_commits(consumer: Consumer) -> None:
    consumer.assign({T0: 0})
    consumer.close()
    for call in (consumer.poll, consumer.commit):
        with pytest.raises(ValueError, match="this consumer is closed"):
            call()
    consumer.close()


def test_a_paused_partition_is_not_fetched_until_it_is_resumed(
    coordinator: GroupCoordinator, consumer: Consumer
) -> None:
    coordinator.topics["t"][1] = (1, 0)
    consumer.assign({T0: 0, TopicPartition("t", 1): 0})
    consumer.pause([T0])
    with pytest.raises(KeyError):
        consumer.pause([TopicPartition("t", 2)])
    assert consumer.paused == (T0,)
    poll_until(consumer, lambda: consumer.position(TopicPartition("t", 1)) == N_RECORDS)
    assert consumer.position(T0) == 0
    consumer.pause([TopicPartition("t", 1)])
    assert not poll(consumer)
    consumer.resume([T0])
    assert poll_until(consumer, lambda: consumer.position(T0) == N_RECORDS) == N_RECORDS
    assert consumer.paused == (TopicPartition("t", 1),)


def test_an_end_is_reported_once_though_reading_restarts_for_another_partition(
    coordinator: GroupCoordinator, consumer: Consumer
) -> None:
    other = TopicPartition("t", 1)
    coordinator.topics["t"][1] = (1, 0)
    ended: list[TopicPartition] = []

    def ends(n_ends: int) -> list[TopicPartition]:
        deadline = Deadline.after_ms(SOON_MS)
        while len(ended) < n_ends:
            assert not deadline.expired
            ended.extend(poll(consumer).ended)
        return sorted(ended)

    consumer.assign({T0: 0, other: 0})
    assert ends(2) == [T0, other]
    consumer.pause([other])
    ended.extend(poll(consumer).ended)
    consumer.resume([other])
    ended.extend(poll(consumer).ended)
    assert ends(2) == [T0, other]
    consumer.seek(other, N_RECORDS)
    assert ends(3) == [T0, other, other]
