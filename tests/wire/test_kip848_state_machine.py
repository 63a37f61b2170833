"""The rules of a member of the consumer protocol (KIP-848), without a broker."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pykafka_wire.wire.error_codes import ERRORS, Action
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.groups.kip848.state_machine import (
    ConsumerMemberState,
    ConsumerMemberStateMachine,
    TopicIdPartition,
)
from pykafka_wire.wire.groups.membership import TopicSubscription
from pykafka_wire.wire.protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
    TopicPartitions,
)

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
MEMBER, FENCED, LEFT = ConsumerMemberState.MEMBER, ConsumerMemberState.FENCED, ConsumerMemberState.LEFT


def member(subscription: TopicSubscription | None = None, **more: Any) -> ConsumerMemberStateMachine:
    return ConsumerMemberStateMachine("g", subscription or TopicSubscription(names=("a", "b")), member_id="me", **more)


def response(epoch: int = 1, assigned: dict[uuid.UUID, list[int]] | None = None, **more: Any) -> Any:
    topics = [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in (assigned or {}).items()]
    return ConsumerGroupHeartbeatResponse(
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=None if assigned is None else MemberAssignment(topic_partitions=topics),
        **more,
    )


def beat(machine: ConsumerMemberStateMachine, response: Any) -> ConsumerGroupHeartbeatRequest:
    request = machine.heartbeat_request()
    machine.handle_heartbeat(request, response)
    return request


def said(request: ConsumerGroupHeartbeatRequest) -> dict[str, Any]:
    """What a heartbeat says beside who sends it."""
    return {
        name: value
        for name, value in (
            ("rack", request.rack_id),
            ("timeout", request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else None),
            ("topics", request.subscribed_topic_names),
            ("regex", request.subscribed_topic_regex),
            ("assignor", request.server_assignor),
            ("owned", None if request.topic_partitions is None else owned(request)),
        )
        if value is not None
    }


def owned(request: ConsumerGroupHeartbeatRequest) -> dict[uuid.UUID, list[int]]:
    return {topic.topic_id: topic.partitions for topic in request.topic_partitions or ()}


def test_a_join_says_everything_and_a_heartbeat_only_what_is_new() -> None:
    machine = member(instance_id="i", rack_id="r", assignor="range", rebalance_timeout_ms=7)
    joining = beat(machine, response(1, {A: [0, 1]}))
    assert (joining.member_id, joining.member_epoch, joining.instance_id) == ("me", 0, "i")
    assert said(joining) == {"rack": "r", "timeout": 7, "topics": ["a", "b"], "assignor": "range", "owned": {}}
    assert (machine.state, machine.identity.generation, machine.heartbeat_interval_ms) == (MEMBER, 1, 5_000)
    assert machine.target == {TopicIdPartition(A, 0), TopicIdPartition(A, 1)}
    assert not machine.has_news
    assert said(beat(machine, response(1))) == {}
    machine.own([TopicIdPartition(A, 1), TopicIdPartition(A, 0)])
    assert machine.has_news
    assert said(beat(machine, response(2))) == {"owned": {A: [0, 1]}}
    assert not machine.has_news
    assert beat(machine, response(2)).member_epoch == 2
    machine.topics = ("a",)
    assert machine.has_news
    assert said(beat(machine, response(2))) == {"topics": ["a"]}


def test_a_revocation_is_acknowledged_before_the_rest_is_assigned() -> None:
    machine = member()
    beat(machine, response(1, {A: [0, 1]}))
    machine.own([TopicIdPartition(A, 0), TopicIdPartition(A, 1)])
    beat(machine, response(1, {A: [0]}))  # partition 1 is to be given up, and B-0 is another member's still
    assert machine.target == {TopicIdPartition(A, 0)}
    assert machine.owned == {TopicIdPartition(A, 0), TopicIdPartition(A, 1)}
    assert not machine.has_news  # until the caller has given it up
    machine.own([TopicIdPartition(A, 0)])
    assert said(beat(machine, response(2, {A: [0], B: [0]}))) == {"owned": {A: [0]}}
    assert machine.target == {TopicIdPartition(A, 0), TopicIdPartition(B, 0)}


def test_after_a_failure_the_next_heartbeat_says_everything_again() -> None:
    machine = member()
    beat(machine, response(1, {A: [0]}))
    machine.own([TopicIdPartition(A, 0)])
    beat(machine, response(1))
    machine.heartbeat_request()
    machine.repeat_all()
    repeated = machine.heartbeat_request()
    assert repeated.member_epoch == 1
    assert said(repeated) == {"timeout": 300_000, "topics": ["a", "b"], "owned": {A: [0]}}


def test_a_response_without_an_assignment_changes_none() -> None:
    machine = member()
    beat(machine, response(1, {}))
    assert machine.target == frozenset()
    beat(machine, response(2, {A: [0]}))
    beat(machine, response(3))
    assert machine.target == {TopicIdPartition(A, 0)}


@pytest.mark.parametrize("code", [25, 69, 110])
def test_a_fenced_member_gives_up_what_it_owned_and_joins_from_epoch_0(code: int) -> None:
    machine = member()
    beat(machine, response(5, {A: [0]}))
    machine.own([TopicIdPartition(A, 0)])
    before = machine.identity
    beat(machine, ConsumerGroupHeartbeatResponse(error_code=code))
    assert (machine.state, machine.lost_error_code, machine.target) == (FENCED, code, None)
    assert machine.identity.generation == -1
    assert machine.identity.times_lost == before.times_lost + 1
    machine.rejoin()
    again = beat(machine, response(9, {A: [0]}))
    assert (again.member_id, again.member_epoch) == ("me", 0)
    assert said(again) == {"timeout": 300_000, "topics": ["a", "b"], "owned": {}}
    assert (machine.state, machine.lost_error_code) == (MEMBER, 0)


#: Retried by the sender, so that a member never sees them.
RETRIED = {
    code
    for code, info in ERRORS.items()
    if info.action in (Action.RETRY, Action.REFRESH_METADATA, Action.FIND_COORDINATOR)
}


@pytest.mark.parametrize("code", sorted(ERRORS.keys() - RETRIED - {0, 25, 29, 69, 110}))
def test_any_other_error_ends_the_membership_with_its_reason(code: int) -> None:
    machine = member(instance_id="i")
    beat(machine, response(5, {A: [0]}))
    with pytest.raises(
        BrokerError, match=r"ConsumerGroupHeartbeat.*the reason \(group 'g'\)|the reason \(group 'g'\)"
    ) as caught:
        beat(machine, ConsumerGroupHeartbeatResponse(error_code=code, error_message="the reason"))
    assert caught.value.code == code
    assert (machine.state, machine.identity.generation) == (LEFT, -1)
    beat(machine, response(6, {A: [1]}))
    assert machine.state is LEFT


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (35, "group.protocol=classic"),
        (69, "classic protocol"),
        (82, "of its own"),
        (111, "has left"),
        (112, "uniform"),
        (128, "RE2"),
    ],
)
def test_errors_that_end_the_membership_name_the_remedy(code: int, remedy: str) -> None:
    machine = member()
    with pytest.raises(BrokerError) as caught:
        beat(machine, ConsumerGroupHeartbeatResponse(error_code=code))
    assert remedy in caught.value.shown_remedy


def test_a_forbidden_topic_is_reported_and_the_member_stays() -> None:
    machine = member()
    beat(machine, response(5, {A: [0]}))
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        beat(machine, ConsumerGroupHeartbeatResponse(error_code=29))
    assert (machine.state, machine.identity.generation) == (MEMBER, 5)
    assert "topics" in said(beat(machine, response(5)))


def test_a_pattern_of_the_coordinators_goes_out_in_place_of_names() -> None:
    machine = member(TopicSubscription(server_pattern="a.*"))
    assert said(beat(machine, response(1, {}))) == {"timeout": 300_000, "regex": "a.*", "owned": {}}
    assert not machine.has_news
    assert said(beat(machine, response(1))) == {}


def test_a_static_member_may_leave_for_a_while() -> None:
    static, dynamic = member(instance_id="i"), member()
    assert static.leave_request(for_a_while=True).member_epoch == -2
    assert static.leave_request().member_epoch == -1
    assert static.leave_request().instance_id == "i"
    assert dynamic.leave_request(for_a_while=True).member_epoch == -1
    for code in (0, 25, 69, 110):
        static.handle_leave(ConsumerGroupHeartbeatResponse(error_code=code))
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        static.handle_leave(ConsumerGroupHeartbeatResponse(error_code=30))


@pytest.mark.parametrize("interval_ms", [0, -1, -(2**31)])
def test_an_interval_that_is_no_time_leaves_the_default(interval_ms: int) -> None:
    machine = member()
    beat(machine, ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=1, heartbeat_interval_ms=interval_ms))
    assert machine.heartbeat_interval_ms == 0
