"""A consumer in a group of the consumer protocol (KIP-848) whose coordinator responds as real ones hardly do.

Joins, hand-overs and what real brokers can be made to respond are in test_consumer_protocol.py.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from pykafka_wire.wire import Consumer, SubscriptionPattern, TopicPartition
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    AuthenticationError,
    BrokerError,
    NoBrokerAvailableError,
    SettingsError,
    UnsupportedVersionError,
)
from pykafka_wire.wire.protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from tests.wire.fake_broker import CLOSE
from tests.wire.fake_coordinator import (
    SASL,
    TOPIC_ID,
    ConsumerGroupCoordinator,
    commit_response,
    end_early,
    takes_passwords,
)
from tests.wire.fake_fetch import response

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
#: A generous bound for what takes some round trips.
SOON_MS = 60_000


@pytest.fixture
def coordinator() -> Iterator[ConsumerGroupCoordinator]:
    with ConsumerGroupCoordinator() as broker:
        broker.on[FetchRequest] = lambda request, _: response(request, records=memoryview(b""))
        broker.on[OffsetFetchRequest] = lambda request, _: committed(request)
        broker.on[OffsetCommitRequest] = commit_response
        yield broker


def committed(request: OffsetFetchRequest, code: int = 0, offset: int = 5) -> OffsetFetchResponse:
    (group,) = request.groups
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=p, committed_offset=offset, metadata="", error_code=0)
                for p in topic.partition_indexes
            ],
        )
        for topic in group.topics or ()
    ]
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=[] if code else topics, error_code=code)]
    )


class Member:
    """A consumer of group "g", and what it was assigned and revoked."""

    def __init__(self, coordinator: ConsumerGroupCoordinator, **more: str) -> None:
        options = {
            "bootstrap.servers": coordinator.address,
            "group.id": "g",
            "group.protocol": "consumer",
            "enable.auto.commit": "false",
            "default.api.timeout.ms": "5000",
            "retry.backoff.ms": "5",
            "reconnect.backoff.ms": "5",
        }
        self.consumer = Consumer(options | {name.replace("_", "."): value for name, value in more.items()})
        self.events: list[tuple[str, tuple[TopicPartition, ...]]] = []

    def subscribe(self, topics: Any = ("t",)) -> None:
        self.consumer.subscribe(
            topics,
            on_assigned=lambda partitions: self.events.append(("assigned", partitions)),
            on_revoked=lambda partitions: self.events.append(("revoked", partitions)),
        )

    def poll_until(self, done: Callable[[], bool]) -> None:
        deadline = Deadline.after_ms(SOON_MS)
        while not done():
            assert not deadline.expired, self.events
            self.consumer.poll(20)

    def own(self, *partitions: TopicPartition) -> None:
        self.poll_until(lambda: self.consumer.assignment == partitions)


@pytest.fixture
def new_member(coordinator: ConsumerGroupCoordinator) -> Iterator[Callable[..., Member]]:
    """`new_member(**settings)`: a member that has not subscribed, closed in the end."""
    made: list[Member] = []

    def make(**more: str) -> Member:
        made.append(Member(coordinator, **more))
        return made[-1]

    yield make
    for each in made:
        end_early(each.consumer)


@pytest.fixture
def member(new_member: Callable[..., Member]) -> Member:
    made = new_member()
    made.subscribe()
    return made


def owned(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return [partition for topic in request.topic_partitions for partition in topic.partitions]


def test_partitions_are_handed_over_one_by_one_and_each_step_is_acknowledged(
    coordinator: ConsumerGroupCoordinator, member: Member
) -> None:
    coordinator.assigned = [0, 1]
    member.own(T0, T1)
    member.poll_until(lambda: owned(coordinator.heartbeats[-1]) is None)
    coordinator.assigned = [1]
    member.own(T1)
    member.poll_until(lambda: owned(coordinator.heartbeats[-1]) is None)
    coordinator.assigned = [0, 1]
    member.own(T0, T1)
    member.poll_until(lambda: [each for each in map(owned, coordinator.heartbeats) if each is not None][-1] == [0, 1])
    said = [each for each in map(owned, coordinator.heartbeats) if each is not None]
    assert said == [[], [0, 1], [1], [0, 1]]
    assert member.events == [("assigned", (T0, T1)), ("revoked", (T0,)), ("assigned", (T0,))]


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_loads_or_moves_is_asked_again(
    coordinator: ConsumerGroupCoordinator, member: Member, code: int
) -> None:
    coordinator.errors = [code, code]
    member.own(T0)
    # A heartbeat that is sent again has all fields: the one before may have been processed.
    assert all(each.rebalance_timeout_ms >= 0 for each in coordinator.heartbeats[:3])


@pytest.mark.parametrize("code", [25, 69, 110])
def test_a_member_that_lost_its_place_gives_up_everything_without_a_commit_and_joins_again(
    coordinator: ConsumerGroupCoordinator, code: int, new_member: Callable[..., Member]
) -> None:
    member = new_member(enable_auto_commit="true", auto_commit_interval_ms="3600000")
    member.subscribe()
    member.own(T0)
    member.poll_until(lambda: member.consumer.position(T0) == 5)
    member.consumer.seek(T0, 9)
    coordinator.errors = [code]
    member.poll_until(lambda: len(member.events) == 3)
    assert member.events == [("assigned", (T0,)), ("revoked", (T0,)), ("assigned", (T0,))]
    assert coordinator.count(OffsetCommitRequest) == 0
    joins = [each for each in coordinator.heartbeats if each.member_epoch == 0]
    assert [owned(join) for join in joins] == [[], []]
    assert len({join.member_id for join in joins}) == 1


@pytest.mark.parametrize("code", [-1, 24, 30, 35, 42, 81, 82, 111, 112, 128])
def test_a_group_that_refuses_the_member_fails_each_poll(
    coordinator: ConsumerGroupCoordinator, member: Member, code: int
) -> None:
    member.own(T0)
    coordinator.errors = [code]
    for _ in range(2):
        with pytest.raises(BrokerError, match="as the test wants it") as raised:
            member.poll_until(lambda: False)
        assert raised.value.code == code
    with pytest.raises(BrokerError):
        member.consumer.commit()
    n_heartbeats = len(coordinator.heartbeats)
    member.consumer.close()
    assert len(coordinator.heartbeats) == n_heartbeats  # it has no place to leave


def test_a_callback_that_fails_fails_one_poll_and_the_partitions_are_revoked_all_the_same(
    coordinator: ConsumerGroupCoordinator,
) -> None:
    """As that of a member which lost its place, and commits in it."""
    member = Member(coordinator)
    member.consumer.subscribe(["t"], on_revoked=lambda _: member.consumer.commit())
    member.own(T0)
    coordinator.errors = [25]
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        member.poll_until(lambda: False)
    assert member.consumer.assignment == ()
    member.own(T0)
    end_early(member.consumer)


def test_a_revocation_that_was_called_off_leaves_no_later_one_without_its_commit(
    coordinator: ConsumerGroupCoordinator,
) -> None:
    member = Member(coordinator, enable_auto_commit="true", auto_commit_interval_ms="3600000")
    member.subscribe()
    coordinator.assigned = [0, 1]
    member.own(T0, T1)
    member.poll_until(lambda: member.consumer.position(T1) == 5)
    member.consumer.seek(T1, 7)
    coordinator.on[OffsetCommitRequest] = lambda *_: None
    coordinator.assigned = [0]
    member.poll_until(lambda: coordinator.count(OffsetCommitRequest) == 1)
    coordinator.assigned = [0, 1]
    n_fetches = coordinator.count(FetchRequest)
    member.poll_until(lambda: coordinator.count(FetchRequest) > n_fetches + 1)
    member.consumer.seek(T1, 9)
    coordinator.on[OffsetCommitRequest] = commit_response
    coordinator.drop()
    coordinator.assigned = [0]
    member.own(T0)
    assert member.events == [("assigned", (T0, T1)), ("revoked", (T1,))]
    last = [request for request in coordinator.requests if isinstance(request, OffsetCommitRequest)][-1]
    assert [p.committed_offset for topic in last.topics for p in topic.partitions] == [9]
    end_early(member.consumer)


def test_a_forbidden_topic_fails_one_poll_and_the_member_stays(
    coordinator: ConsumerGroupCoordinator, member: Member
) -> None:
    member.own(T0)
    coordinator.errors = [29]
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        member.poll_until(lambda: False)
    n_heartbeats = len(coordinator.heartbeats)
    member.poll_until(lambda: len(coordinator.heartbeats) > n_heartbeats + 1)
    assert member.consumer.assignment == (T0,)


def test_credentials_that_are_refused_for_a_while_fail_a_poll_and_the_member_comes_back(
    coordinator: ConsumerGroupCoordinator, new_member: Callable[..., Member], caplog: Any
) -> None:
    takes_passwords(coordinator)
    member = new_member(**SASL)
    member.subscribe()
    member.own(T0)
    takes_passwords(coordinator, refuses=True)
    coordinator.drop()
    with pytest.raises(AuthenticationError):
        member.poll_until(lambda: False)
    deadline = Deadline.after_ms(SOON_MS)
    while "group g: trying again" not in caplog.text:
        assert not deadline.expired
        time.sleep(0.01)
    takes_passwords(coordinator)
    n_heartbeats = len(coordinator.heartbeats)
    with suppress(AuthenticationError):  # the member's own, where the first one was of a read
        member.poll_until(lambda: len(coordinator.heartbeats) > n_heartbeats)
    member.poll_until(lambda: len(coordinator.heartbeats) > n_heartbeats + 1)
    assert member.events == [("assigned", (T0,))]


def test_a_topic_that_is_forbidden_at_first_is_taken_up_once_it_is_allowed(
    coordinator: ConsumerGroupCoordinator, member: Member
) -> None:
    coordinator.errors = [29]
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        member.poll_until(lambda: False)
    member.own(T0)


def test_heartbeats_go_on_though_metadata_have_no_response(
    coordinator: ConsumerGroupCoordinator, new_member: Callable[..., Member]
) -> None:
    member = new_member(metadata_max_age_ms="20", default_api_timeout_ms="300")
    member.subscribe(re.compile("t"))
    member.own(T0)
    coordinator.on[MetadataRequest] = lambda *_: None
    n_asked, n_heartbeats = coordinator.count(MetadataRequest), len(coordinator.heartbeats)
    deadline = Deadline.after_ms(SOON_MS)
    while coordinator.count(MetadataRequest) < n_asked + 2 or len(coordinator.heartbeats) < n_heartbeats + 3:
        assert not deadline.expired
        time.sleep(0.01)


def test_a_lost_connection_costs_nothing_but_a_full_heartbeat(
    coordinator: ConsumerGroupCoordinator, member: Member
) -> None:
    member.own(T0)
    member.poll_until(lambda: owned(coordinator.heartbeats[-1]) is None)
    coordinator.on[ConsumerGroupHeartbeatRequest] = lambda *_: CLOSE
    n_heartbeats = len(coordinator.heartbeats)
    member.poll_until(lambda: len(coordinator.heartbeats) > n_heartbeats + 1)
    coordinator.on[ConsumerGroupHeartbeatRequest] = coordinator.heartbeat
    member.poll_until(lambda: owned(coordinator.heartbeats[-1]) is None)
    assert owned(coordinator.heartbeats[n_heartbeats + 1]) == [0]
    assert member.events == [("assigned", (T0,))]


def test_brokers_without_the_protocol_are_named_with_the_remedy(
    coordinator: ConsumerGroupCoordinator, new_member: Callable[..., Member]
) -> None:
    for topics, lacks, remedy in (
        (["t"], {}, r"consumer group protocol \(KIP-848\).*Kafka 4\.0.*group\.protocol=classic"),
        (SubscriptionPattern("t.*"), {68: (0, 0)}, r"SubscriptionPattern.*Kafka 4\.0.*re\.compile"),
    ):
        coordinator.speak({8: (2, 9), 9: (1, 9)} | lacks)
        member = new_member()
        member.subscribe(topics)
        for _ in range(2):
            with pytest.raises(UnsupportedVersionError, match=remedy):
                member.poll_until(lambda: False)
        member.consumer.close()


def test_a_cluster_that_never_responded_is_reported_and_looked_for_all_the_same(
    coordinator: ConsumerGroupCoordinator, new_member: Callable[..., Member]
) -> None:
    versions = coordinator.on[ApiVersionsRequest]
    coordinator.on[ApiVersionsRequest] = lambda *_: CLOSE
    member = new_member(default_api_timeout_ms="500")
    member.subscribe()
    with pytest.raises(NoBrokerAvailableError):
        member.poll_until(lambda: False)
    coordinator.on[ApiVersionsRequest] = versions

    def is_assigned() -> bool:
        try:
            member.consumer.poll(50)
        except NoBrokerAvailableError:
            pass
        return member.consumer.assignment == (T0,)

    deadline = Deadline.after_ms(SOON_MS)
    while not is_assigned():
        assert not deadline.expired


def test_a_stale_epoch_is_renewed_by_a_heartbeat_and_the_commit_sent_again(
    coordinator: ConsumerGroupCoordinator, member: Member
) -> None:
    def commit(request: OffsetCommitRequest, _: int) -> OffsetCommitResponse:
        if request.generation_id_or_member_epoch == 1:
            coordinator.epoch = 2
            return commit_response(request, code=113)
        return commit_response(request)

    member.own(T0)
    member.poll_until(lambda: member.consumer.position(T0) == 5)
    coordinator.on[OffsetCommitRequest] = commit
    member.consumer.commit({T0: 7})
    epochs = [
        each.generation_id_or_member_epoch for each in coordinator.requests if isinstance(each, OffsetCommitRequest)
    ]
    assert epochs == [1, 2]
    coordinator.on[OffsetCommitRequest] = lambda request, _: commit_response(request, code=113)
    with pytest.raises(BrokerError, match="STALE_MEMBER_EPOCH"):
        member.consumer.commit({T0: 8})


def test_committed_offsets_are_fetched_under_the_members_epoch(
    coordinator: ConsumerGroupCoordinator, member: Member
) -> None:
    def fetch(request: OffsetFetchRequest, _: int) -> OffsetFetchResponse:
        if request.groups[0].member_epoch == 1:
            coordinator.epoch = 2
            return committed(request, code=113)
        return committed(request)

    coordinator.on[OffsetFetchRequest] = fetch
    member.own(T0)
    member.poll_until(lambda: member.consumer.position(T0) == 5)
    asked = [each.groups[0] for each in coordinator.requests if isinstance(each, OffsetFetchRequest)]
    assert [each.member_epoch for each in asked] == [1, 2]
    assert {each.member_id for each in asked} == {coordinator.heartbeats[0].member_id}


def test_a_topic_whose_name_is_not_known_yet_is_taken_up_later(
    coordinator: ConsumerGroupCoordinator, member: Member
) -> None:
    coordinator.topic_ids.clear()
    member.poll_until(lambda: len(coordinator.heartbeats) > 3)
    assert member.consumer.assignment == ()
    coordinator.topic_ids["t"] = TOPIC_ID
    member.own(T0)


def test_a_pattern_is_matched_again_whenever_metadata_are_due(
    coordinator: ConsumerGroupCoordinator, new_member: Callable[..., Member]
) -> None:
    member = new_member(metadata_max_age_ms="20")
    member.subscribe(re.compile("t|u.*"))
    member.own(T0)
    assert coordinator.heartbeats[0].subscribed_topic_names == ["t"]
    coordinator.topics["u1"] = {0: (1, 0)}
    coordinator.topics["vu"] = {0: (1, 0)}
    member.poll_until(lambda: any(each.subscribed_topic_names == ["t", "u1"] for each in list(coordinator.heartbeats)))


@pytest.mark.parametrize(
    ("instance_id", "leave", "epochs"), [("", True, [-1]), ("", False, []), ("i", True, [-1]), ("i", False, [-2])]
)
def test_closing_leaves_for_good_or_for_a_while(
    coordinator: ConsumerGroupCoordinator,
    instance_id: str,
    leave: bool,
    epochs: list[int],
    new_member: Callable[..., Member],
) -> None:
    member = new_member(group_instance_id=instance_id)
    member.subscribe()
    member.own(T0)
    member.consumer.close(leave=leave)
    assert [each.member_epoch for each in coordinator.heartbeats if each.member_epoch < 0] == epochs
    assert not [thread for thread in threading.enumerate() if thread.name == "pykafka-wire member of g"]


def test_closing_ends_the_thread_though_a_response_is_still_to_come(
    coordinator: ConsumerGroupCoordinator, new_member: Callable[..., Member]
) -> None:
    coordinator.on[ConsumerGroupHeartbeatRequest] = lambda request, _: (
        ConsumerGroupHeartbeatResponse(error_code=0) if request.member_epoch < 0 else None
    )
    member = new_member()
    member.subscribe()
    member.poll_until(lambda: bool(coordinator.heartbeats))
    member.consumer.close()
    assert coordinator.heartbeats[-1].member_epoch == -1
    assert not [thread for thread in threading.enumerate() if thread.name == "pykafka-wire member of g"]


def test_what_the_classic_protocol_cannot_do_is_an_error(
    coordinator: ConsumerGroupCoordinator, new_member: Callable[..., Member]
) -> None:
    member = new_member(group_protocol="classic")
    with pytest.raises(SettingsError, match=r"group\.protocol=consumer"):
        member.subscribe(SubscriptionPattern("t.*"))
    for protocol, name, value in (
        ("classic", "group.remote.assignor", "uniform"),
        ("consumer", "session.timeout.ms", "9000"),
        ("consumer", "heartbeat.interval.ms", "900"),
        ("consumer", "partition.assignment.strategy", "range"),
    ):
        with pytest.raises(SettingsError, match=f"{name} has no effect with group.protocol={protocol}"):
            Consumer({"bootstrap.servers": "h:1", "group.protocol": protocol, name: value})
