"""Membership of a classic consumer group (KIP-345 static members, KIP-394 member ids)."""

from __future__ import annotations

from pykafka_wire.wire.protocol.fields import Struct, array, binary, boolean, int16, int32, string
from pykafka_wire.wire.protocol.message import Message, Request


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    metadata: bytes = binary()


class JoinGroupResponse(Message, versions=(0, 9), flexible=6):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable_since=7, default=None, ignorable=True)
    protocol_name: str | None = string(nullable_since=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class JoinGroupRequest(Request[JoinGroupResponse], api_key=11, versions=(0, 9), flexible=6):
    """From version 4 the first join is refused with MEMBER_ID_REQUIRED and the member id to join with (KIP-394)."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable_since=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)


class SyncGroupResponse(Message, versions=(0, 5), flexible=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    assignment: bytes = binary()


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Request[SyncGroupResponse], api_key=14, versions=(0, 5), flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class HeartbeatResponse(Message, versions=(0, 4), flexible=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()


class HeartbeatRequest(Request[HeartbeatResponse], api_key=12, versions=(0, 4), flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable_since=3)
    error_code: int = int16()


class LeaveGroupResponse(Message, versions=(0, 5), flexible=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable_since=3, default=None)
    reason: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)


class LeaveGroupRequest(Request[LeaveGroupResponse], api_key=13, versions=(0, 5), flexible=4):
    """One member up to version 2, many from 3."""

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)
