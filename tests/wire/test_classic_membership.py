"""A consumer with cooperative-sticky alone, whose coordinator rebalances, is slow, or forgets it at a bad moment.

Hand-overs on real brokers are in test_consumer.py and test_mixed_incremental_group.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from pykafka_wire.wire import Consumer, TopicPartition
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import AuthenticationError, BrokerError, WireError
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.groups.classic.strategies import COOPERATIVE_STICKY, decode_subscriber, encode_assignment
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest
from pykafka_wire.wire.protocol.messages.group import (
    ConsumerProtocolSubscription,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
    encode_versioned,
)
from pykafka_wire.wire.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tests.wire.fake_broker import CLOSE
from tests.wire.fake_coordinator import SASL, GroupCoordinator, end_early, takes_passwords
from tests.wire.fake_fetch import response
from tests.wire.test_kip848_membership import commit_response, committed

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID = 22, 27, 25
#: A generous bound for what takes some round trips.
SOON_MS = 60_000


class Cooperative(GroupCoordinator):
    """Assigns what the test says to its one member, which another one leads.

    Attributes:
        assigned: the partitions of the next SyncGroup's response.
        codes: the error codes of the next JoinGroups, before they succeed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"t": {0: (1, 0), 1: (1, 0)}}
        self.assigned = [T0, T1]
        self.codes: list[int] = []
        self.generation = 0
        self.speak({8: (2, 9), 9: (1, 9), 11: (2, 7), 12: (0, 4), 13: (0, 4), 14: (0, 5)})
        self.on[JoinGroupRequest] = lambda *_: self.join()
        self.on[SyncGroupRequest] = lambda *_: SyncGroupResponse(assignment=encode_assignment(self.assigned))
        self.on[FetchRequest] = lambda request, _: response(request, records=memoryview(b""))
        self.on[OffsetFetchRequest] = lambda request, _: committed(request)
        self.on[OffsetCommitRequest] = lambda request, _: commit_response(request)

    def join(self) -> JoinGroupResponse:
        if self.codes:
            return JoinGroupResponse(error_code=self.codes.pop(0), protocol_name="", leader="", member_id="me")
        self.generation += 1
        self.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=0)
        return JoinGroupResponse(
            generation_id=self.generation, protocol_name=COOPERATIVE_STICKY, leader="other", member_id="me", members=[]
        )

    def rebalance(self) -> None:
        self.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS)

    @property
    def claims(self) -> list[tuple[tuple[TopicPartition, ...], int]]:
        """What each JoinGroup claimed: the partitions, and their generation."""
        joins = [request for request in self.requests if isinstance(request, JoinGroupRequest)]
        subscribers = [
            decode_subscriber(JoinGroupResponseMember(member_id="me", metadata=join.protocols[0].metadata))
            for join in joins
        ]
        return [(subscriber.owned, subscriber.generation) for subscriber in subscribers]


class Member:
    """A consumer, and what it was assigned and revoked."""

    def __init__(
        self, coordinator: Cooperative, strategies: str = COOPERATIVE_STICKY, more: Mapping[str, str] | None = None
    ) -> None:
        self.events: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": coordinator.address,
                "group.id": "g",
                "partition.assignment.strategy": strategies,
                "heartbeat.interval.ms": "20",
                "auto.commit.interval.ms": "3600000",
                "default.api.timeout.ms": "60000",
                **(more or {}),
            }
        )
        self.consumer.subscribe(
            ["t"],
            on_assigned=lambda partitions: self.events.append(("assigned", partitions)),
            on_revoked=lambda partitions: self.events.append(("revoked", partitions)),
        )

    def poll_until(self, done: Callable[[], bool]) -> None:
        deadline = Deadline.after_ms(SOON_MS)
        while not done():
            assert not deadline.expired, self.events
            self.consumer.poll(20)


@pytest.fixture
def coordinator() -> Iterator[Cooperative]:
    with Cooperative() as broker:
        yield broker


@pytest.fixture
def member(coordinator: Cooperative) -> Iterator[Member]:
    made = Member(coordinator)
    made.poll_until(lambda: made.consumer.assignment == (T0, T1) and made.consumer.position(T1) == 5)
    yield made
    end_early(made.consumer)


def test_what_the_next_assignment_lacks_is_given_up_in_a_second_rebalance(
    coordinator: Cooperative, member: Member
) -> None:
    member.consumer.seek(T1, 9)
    coordinator.assigned = [T1]
    coordinator.rebalance()
    member.poll_until(lambda: len(coordinator.claims) == 3)
    assert coordinator.claims == [((), -1), ((T0, T1), 1), ((T1,), 2)]
    member.poll_until(lambda: member.consumer.assignment == (T1,))
    assert member.events == [("assigned", (T0, T1)), ("revoked", (T0,))]
    assert member.consumer.position(T1) == 9  # it was never given up
    (commit,) = [request for request in coordinator.requests if isinstance(request, OffsetCommitRequest)]
    assert commit.generation_id_or_member_epoch == 2


def test_reading_continues_while_the_group_waits_for_others(coordinator: Cooperative, member: Member) -> None:
    coordinator.on[JoinGroupRequest] = lambda *_: None
    coordinator.rebalance()
    member.poll_until(lambda: len(coordinator.claims) == 2)
    n_fetches = coordinator.count(FetchRequest)
    member.poll_until(lambda: coordinator.count(FetchRequest) > n_fetches + 1)
    assert member.consumer.assignment == (T0, T1)
    assert member.events == [("assigned", (T0, T1))]


@pytest.mark.parametrize("when", ["by a heartbeat", "while it joins"])
def test_a_member_that_lost_its_place_gives_up_everything_without_a_commit_before_it_takes_anything(
    coordinator: Cooperative, member: Member, when: str
) -> None:
    member.consumer.seek(T0, 9)
    member.poll_until(lambda: member.consumer.position(T0) == 9)
    if when == "while it joins":
        coordinator.codes = [UNKNOWN_MEMBER_ID]
        coordinator.rebalance()
    else:
        coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=UNKNOWN_MEMBER_ID)
    member.poll_until(lambda: len(member.events) == 3)
    assert member.events == [("assigned", (T0, T1)), ("revoked", (T0, T1)), ("assigned", (T0, T1))]
    assert coordinator.claims[-1] == ((), -1)
    assert coordinator.count(OffsetCommitRequest) == 0
    member.poll_until(lambda: member.consumer.position(T0) == 5)  # the committed offset, others may have moved it


def test_a_member_that_was_lost_and_joined_again_between_two_polls_commits_nothing_of_what_it_owned(
    coordinator: Cooperative, member: Member
) -> None:
    """The new generation is valid, but others may have owned the partitions meanwhile, and processed the same records."""
    polled = threading.Event()

    def join() -> JoinGroupResponse:
        assert polled.wait(SOON_MS / 1000)
        return coordinator.join()

    coordinator.codes = [UNKNOWN_MEMBER_ID]
    coordinator.on[JoinGroupRequest] = lambda *_: join()
    coordinator.rebalance()
    member.poll_until(lambda: len(coordinator.claims) == 2)
    polled.set()
    deadline = Deadline.after_ms(SOON_MS)
    while not any(isinstance(each, HeartbeatRequest) and each.generation_id == 2 for each in coordinator.requests):
        assert not deadline.expired
        time.sleep(0.01)
    for call in (member.consumer.commit, member.consumer.group_metadata):
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            call()
    assert coordinator.count(OffsetCommitRequest) == 0
    member.poll_until(lambda: len(member.events) == 3 and member.consumer.position(T0) == 5)
    member.consumer.commit()
    (commit,) = [request for request in coordinator.requests if isinstance(request, OffsetCommitRequest)]
    assert commit.generation_id_or_member_epoch == 2


def test_a_rebalance_that_changes_nothing_calls_no_callback(coordinator: Cooperative, member: Member) -> None:
    coordinator.rebalance()
    member.poll_until(lambda: coordinator.generation == 2)
    fetched: Any = coordinator.count(FetchRequest)
    member.poll_until(lambda: coordinator.count(FetchRequest) > fetched + 1)
    assert coordinator.claims == [((), -1), ((T0, T1), 1)]
    assert member.events == [("assigned", (T0, T1))]


@pytest.mark.parametrize("strategies", ["cooperative-sticky", "range,cooperative-sticky"])
def test_a_place_lost_before_anything_was_owned_takes_no_commit_away(coordinator: Cooperative, strategies: str) -> None:
    """As after a restart of the coordinator, or where the member id has expired."""
    coordinator.codes = [UNKNOWN_MEMBER_ID]
    member = Member(coordinator, strategies)
    member.poll_until(lambda: member.consumer.assignment == (T0, T1) and member.consumer.position(T0) == 5)
    member.consumer.seek(T0, 9)
    member.poll_until(lambda: member.consumer.position(T0) == 9)
    coordinator.assigned = [T1]
    coordinator.rebalance()
    member.poll_until(lambda: member.consumer.assignment == (T1,))
    assert coordinator.count(OffsetCommitRequest) == 1
    end_early(member.consumer)


@pytest.mark.parametrize("strategies", [COOPERATIVE_STICKY, f"range,{COOPERATIVE_STICKY}"])
def test_credentials_that_are_refused_for_a_while_fail_a_poll_and_the_member_comes_back(
    coordinator: Cooperative, strategies: str, caplog: Any
) -> None:
    takes_passwords(coordinator)
    member = Member(coordinator, strategies, SASL)
    member.poll_until(lambda: member.consumer.assignment == (T0, T1))
    takes_passwords(coordinator, refuses=True)
    coordinator.drop()
    with pytest.raises(AuthenticationError):
        member.poll_until(lambda: False)
    deadline = Deadline.after_ms(SOON_MS)
    while "group g: trying again" not in caplog.text:
        assert not deadline.expired
        time.sleep(0.01)
    codes = [UNKNOWN_MEMBER_ID]  # its session has expired meanwhile
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=codes.pop() if codes else 0)
    takes_passwords(coordinator)
    with suppress(AuthenticationError):  # the member's own, where the first one was of a read
        member.poll_until(lambda: len(member.events) == 3)
    member.poll_until(lambda: len(member.events) == 3)
    assert member.events == [("assigned", (T0, T1)), ("revoked", (T0, T1)), ("assigned", (T0, T1))]
    end_early(member.consumer)


def test_a_commit_that_a_rebalance_overtakes_is_sent_again_under_the_new_generation(
    coordinator: Cooperative, member: Member
) -> None:
    """The coordinator has the next generation as soon as all members have joined, before they know. What is kept over the
    rebalance, or is given up after it, is this member's until then."""
    refused = threading.Event()

    def join() -> JoinGroupResponse:
        response = coordinator.join()
        assert refused.wait(SOON_MS / 1000)
        return response

    def commit(request: OffsetCommitRequest) -> Any:
        is_stale = request.generation_id_or_member_epoch < coordinator.generation
        if is_stale:
            refused.set()
        return commit_response(request, code=ILLEGAL_GENERATION if is_stale else 0)

    coordinator.on[JoinGroupRequest] = lambda *_: join()
    coordinator.on[OffsetCommitRequest] = lambda request, _: commit(request)
    coordinator.rebalance()
    member.poll_until(lambda: coordinator.generation == 2)
    member.consumer.commit({T0: 9})
    commits = [request for request in coordinator.requests if isinstance(request, OffsetCommitRequest)]
    assert [each.generation_id_or_member_epoch for each in commits] == [1, 2]


def test_a_commit_from_before_a_loss_is_not_sent_again_under_the_new_generation(
    coordinator: Cooperative, member: Member
) -> None:
    """The member is back, under the same member id, but others may have owned the partitions meanwhile."""
    may_respond = threading.Event()

    def commit(request: OffsetCommitRequest) -> Any:
        assert may_respond.wait(SOON_MS / 1000)
        is_stale = request.generation_id_or_member_epoch < coordinator.generation
        return commit_response(request, code=ILLEGAL_GENERATION if is_stale else 0)

    coordinator.on[OffsetCommitRequest] = lambda request, _: commit(request)
    member.consumer._commits.begin_auto_commit({T0: Position(9)})
    member.poll_until(lambda: coordinator.count(OffsetCommitRequest) == 1)
    coordinator.on[HeartbeatRequest] = lambda *_: HeartbeatResponse(error_code=ILLEGAL_GENERATION)
    member.poll_until(lambda: len(member.events) == 3)
    assert coordinator.generation == 2
    may_respond.set()
    assert member.consumer._commits._end_auto_commit(Deadline.after_ms(SOON_MS))
    commits = [request for request in coordinator.requests if isinstance(request, OffsetCommitRequest)]
    assert [each.generation_id_or_member_epoch for each in commits] == [1]


class ReturnedLeader(Cooperative):
    """Skips the assignment of a static leader that has come back (KIP-814)."""

    #: DescribeGroups of a coordinator that refuses it.
    refused = DescribeGroupsResponse(
        groups=[DescribedGroup(error_code=30, group_id="g", group_state="", protocol_type="", protocol_data="")]
    )
    described = DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                error_code=0,
                group_id="g",
                group_state="Stable",
                protocol_type="consumer",
                protocol_data=COOPERATIVE_STICKY,
                members=[
                    DescribedGroupMember(
                        member_id="me",
                        client_id="",
                        client_host="",
                        member_metadata=b"",
                        member_assignment=encode_assignment([T0]),
                    )
                ],
            )
        ]
    )

    def __init__(self) -> None:
        super().__init__()
        self.assigned = [T0]
        self.speak({8: (2, 9), 9: (1, 9), 11: (2, 9), 12: (0, 4), 13: (0, 4), 14: (0, 5), 15: (0, 5)})

    def join(self) -> JoinGroupResponse:
        subscription = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 1)
        return JoinGroupResponse(
            generation_id=1,
            protocol_name=COOPERATIVE_STICKY,
            leader="me",
            member_id="me",
            skip_assignment=True,
            members=[JoinGroupResponseMember(member_id="me", metadata=subscription)],
        )

    def poll_until(self, done: Callable[[Consumer], bool]) -> None:
        """Let a static member poll until then."""
        settings = {
            "bootstrap.servers": self.address,
            "group.id": "g",
            "group.instance.id": "one",
            "partition.assignment.strategy": COOPERATIVE_STICKY,
            "heartbeat.interval.ms": "50",
            "metadata.max.age.ms": "300",
            "default.api.timeout.ms": "100",
            "retry.backoff.ms": "150",
        }
        with Consumer(settings) as consumer:
            consumer.subscribe(["t"])
            deadline = time.monotonic() + SOON_MS / 1000 / 6
            while not done(consumer):
                assert time.monotonic() < deadline
                with suppress(WireError):
                    consumer.poll(20)


def test_a_static_leader_that_comes_back_asks_again_what_is_assigned() -> None:
    """KIP-814: the topic has grown while it was away, and the first questions get no response, no group, and an error."""
    with ReturnedLeader() as coordinator:
        # More often than one call tries; then no group, and an error.
        responses = iter([CLOSE, CLOSE, DescribeGroupsResponse(groups=[]), coordinator.refused])
        coordinator.on[DescribeGroupsRequest] = lambda *_: next(responses, coordinator.described)
        coordinator.poll_until(lambda _: coordinator.count(JoinGroupRequest) == 2)


def test_a_static_leader_that_may_not_ask_what_is_assigned_sees_topics_that_grow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """KIP-814: since it has come back. It asks again at ``metadata.max.age.ms``, not with each heartbeat, and warns once."""
    with ReturnedLeader() as coordinator:
        coordinator.on[DescribeGroupsRequest] = lambda *_: coordinator.refused

        def has_seen_growth(_: Consumer) -> bool:
            if coordinator.count(DescribeGroupsRequest) == 3:
                coordinator.topics["t"][2] = (1, 0)
            return coordinator.count(JoinGroupRequest) == 2

        coordinator.poll_until(has_seen_growth)
        assert coordinator.count(HeartbeatRequest) > coordinator.count(DescribeGroupsRequest)
    assert caplog.text.count("what it has assigned is unknown") == 1
