"""The member's state machine, response by response; nothing here opens a socket or knows a clock."""

from __future__ import annotations

import pytest

from pykafka_wire.wire.errors import BrokerError, ProtocolError
from pykafka_wire.wire.groups.classic.state_machine import MemberState, MemberStateMachine
from pykafka_wire.wire.groups.classic.strategies import decode_assignment, encode_assignment
from pykafka_wire.wire.protocol.messages.group import (
    ConsumerProtocolSubscription,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    decode_versioned,
    encode_versioned,
)
from pykafka_wire.wire.topic_partitions import TopicPartition

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED, FENCED = 22, 25, 27, 79, 82
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 1)


def join_response(member_id: str, *, leader: str = "", generation: int = 1, **more: object) -> JoinGroupResponse:
    members = [JoinGroupResponseMember(member_id=each, metadata=subscription("t")) for each in ("a", "b")]
    return JoinGroupResponse(
        generation_id=generation,
        protocol_name="range",
        leader=leader or member_id,
        member_id=member_id,
        members=members if (leader or member_id) == member_id else [],
        **more,
    )  # type: ignore[arg-type]


def stable(instance_id: str | None = None) -> MemberStateMachine:
    member = MemberStateMachine("g", ["t"], instance_id=instance_id)
    member.handle_join(join_response("a", leader="b"))
    member.handle_sync(SyncGroupResponse(assignment=encode_assignment([T1, T0])))
    assert member.state is MemberState.STABLE
    return member


def test_a_first_join_is_repeated_with_the_member_id_that_it_is_given() -> None:
    member = MemberStateMachine(
        "g", ["t"], strategies=("range", "roundrobin"), session_timeout_ms=7, rebalance_timeout_ms=9
    )
    first = member.next_request()
    assert isinstance(first, JoinGroupRequest)
    assert (first.member_id, first.session_timeout_ms, first.rebalance_timeout_ms) == ("", 7, 9)
    assert [protocol.name for protocol in first.protocols] == ["range", "roundrobin"]
    assert decode_versioned(ConsumerProtocolSubscription, first.protocols[0].metadata).topics == ["t"]
    member.handle_join(JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id="a"))
    assert member.state is MemberState.UNJOINED
    second = member.next_request()
    assert isinstance(second, JoinGroupRequest)
    assert second.member_id == "a"


def test_the_leader_shares_out_and_syncs_everybodys_share() -> None:
    member = MemberStateMachine("g", ["t"])
    member.handle_join(join_response("a"))
    assert (member.state, member.is_leader, member.group_topics) == (MemberState.ASSIGNING, True, {"t"})
    assert not member.is_only_member
    assert member.next_request() is None
    member.assign({"t": 3, "not asked for": 5})
    request = member.next_request()
    assert isinstance(request, SyncGroupRequest)
    shares = {each.member_id: decode_assignment(each.assignment) for each in request.assignments}
    assert shares == {"a": (T0, T1), "b": (TopicPartition("t", 2),)}
    assert (request.generation_id, request.member_id, request.protocol_name) == (1, "a", "range")
    assert member.assigned_counts == {"t": 3}
    member.handle_sync(SyncGroupResponse(assignment=request.assignments[0].assignment))
    assert (member.state, member.assignment) == (MemberState.STABLE, (T0, T1))


def test_a_follower_syncs_nothing_and_receives_its_share() -> None:
    member = MemberStateMachine("g", ["t"])
    member.handle_join(join_response("a", leader="b"))
    assert (member.state, member.is_leader) == (MemberState.SYNCING, False)
    request = member.next_request()
    assert isinstance(request, SyncGroupRequest)
    assert request.assignments == []
    member.handle_sync(SyncGroupResponse(assignment=encode_assignment([T1, T0])))
    assert member.assignment == (T0, T1)
    assert member.next_request() is None


def test_a_member_that_gets_nothing_is_stable_all_the_same() -> None:
    member = MemberStateMachine("g", ["t"])
    member.handle_join(join_response("a", leader="b"))
    member.handle_sync(SyncGroupResponse(assignment=b""))
    assert (member.state, member.assignment) == (MemberState.STABLE, ())


def test_a_static_leader_that_came_back_assigns_nothing() -> None:
    """KIP-814."""
    member = MemberStateMachine("g", ["t"], instance_id="i")
    member.handle_join(join_response("a", skip_assignment=True))
    assert (member.state, member.is_leader) == (MemberState.SYNCING, True)
    request = member.next_request()
    assert isinstance(request, SyncGroupRequest)
    assert request.assignments == []


def test_a_rebalance_keeps_member_id_and_generation_for_a_last_commit() -> None:
    member = stable()
    owned = member.assignment
    for code in (REBALANCING, REBALANCING, 0):
        member.handle_heartbeat(HeartbeatResponse(error_code=code))
        assert (member.state, member.assignment, member.lost) == (MemberState.REBALANCING, owned, False)
        assert (member.identity.member_id, member.identity.generation) == ("a", 1)
    assert isinstance(member.next_request(), JoinGroupRequest)
    member.handle_join(join_response("a", leader="b"))
    assert (member.state, member.assignment) == (MemberState.SYNCING, ())


@pytest.mark.parametrize("rebalancing", [False, True])
@pytest.mark.parametrize(("code", "member_id"), [(UNKNOWN_MEMBER, ""), (69, ""), (ILLEGAL_GENERATION, "a")])
def test_a_member_that_lost_its_place_joins_again(code: int, member_id: str, rebalancing: bool) -> None:
    member = stable()
    if rebalancing:
        member.handle_heartbeat(HeartbeatResponse(error_code=REBALANCING))
    member.handle_heartbeat(HeartbeatResponse(error_code=code))
    assert (member.state, member.lost) == (MemberState.UNJOINED, True)
    assert (member.identity.member_id, member.identity.generation) == (member_id, -1)
    request = member.next_request()
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == member_id
    member.handle_join(join_response("c", leader="b"))
    member.handle_sync(SyncGroupResponse(assignment=encode_assignment([T0])))
    assert (member.state, member.lost) == (MemberState.STABLE, False)


@pytest.mark.parametrize("code", [REBALANCING, UNKNOWN_MEMBER, ILLEGAL_GENERATION])
def test_a_rebalance_during_join_or_sync_starts_over(code: int) -> None:
    member = MemberStateMachine("g", ["t"])
    member.handle_join(JoinGroupResponse(error_code=code))
    assert isinstance(member.next_request(), JoinGroupRequest)
    member.handle_join(join_response("a", leader="b"))
    member.handle_sync(SyncGroupResponse(error_code=code))
    assert isinstance(member.next_request(), JoinGroupRequest)


def test_a_fenced_member_is_out_and_the_error_names_its_instance_id() -> None:
    member = stable("me")
    with pytest.raises(BrokerError, match=r"FENCED_INSTANCE_ID.*'me' is in use"):
        member.handle_heartbeat(HeartbeatResponse(error_code=FENCED))
    assert (member.state, member.lost, member.assignment) == (MemberState.LEFT, True, ())
    member.rejoin()
    assert member.next_request() is None


def test_a_group_of_another_kind_refuses_for_good() -> None:
    member = MemberStateMachine("g", ["t"])
    with pytest.raises(BrokerError, match=r"INCONSISTENT_GROUP_PROTOCOL.*'g'"):
        member.handle_join(JoinGroupResponse(error_code=23))
    assert member.state is MemberState.LEFT


def test_a_strategy_that_was_not_offered_breaks_the_protocol() -> None:
    member = MemberStateMachine("g", ["t"], strategies=("roundrobin",))
    with pytest.raises(ProtocolError, match="'range'"):
        member.handle_join(join_response("a"))


def test_a_static_member_says_its_instance_id_in_every_request() -> None:
    member = MemberStateMachine("g", ["t"], instance_id="i")
    join = member.next_request()
    member.handle_join(join_response("a", leader="b"))
    sync = member.next_request()
    assert isinstance(join, JoinGroupRequest) and isinstance(sync, SyncGroupRequest)
    assert join.group_instance_id == sync.group_instance_id == member.heartbeat_request().group_instance_id == "i"
    assert [(each.member_id, each.group_instance_id) for each in member.leave_request(batched=True).members] == [
        ("a", "i")
    ]


def test_leaving_goes_by_member_id_in_the_form_that_the_coordinator_knows() -> None:
    member = stable()
    old = member.leave_request(batched=False)
    assert (old.member_id, old.members) == ("a", [])
    new = member.leave_request(batched=True)
    assert [each.member_id for each in new.members] == ["a"]
    assert (member.state, member.next_request()) == (MemberState.LEFT, None)
    member.handle_join(join_response("a"))  # the response to a join that was on its way
    assert member.state is MemberState.LEFT
    member.handle_leave(LeaveGroupResponse(members=[MemberResponse(member_id="a", error_code=UNKNOWN_MEMBER)]))
    member.handle_leave(LeaveGroupResponse(members=[MemberResponse(member_id="a", error_code=FENCED)]))
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        member.handle_leave(LeaveGroupResponse(error_code=30))
