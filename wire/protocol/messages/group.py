"""Classic consumer groups: membership (KIP-345 static members, KIP-394 member ids), what their coordinators know of them (KIP-518
states, KIP-848 types), and what consumers put into JoinGroup and SyncGroup: subscriptions and assignments, the protocol type
"consumer". These are preceded by their version: :func:`encode_versioned` and :func:`decode_versioned`.
"""

from __future__ import annotations

import contextlib
import struct
from typing import TypeVar

from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.protocol.fields import NO_OPERATIONS, Struct, array, binary, boolean, int16, int32, string
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


class LeaveGroupRequestMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable_since=3, default=None)
    reason: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)


class LeaveGroupRequest(Request[LeaveGroupResponse], api_key=13, versions=(0, 5), flexible=4):
    """One member up to version 2, many from 3."""

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[LeaveGroupRequestMember] = array(LeaveGroupRequestMember, since=3)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable_since=4, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(since=6, nullable_since=6, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=NO_OPERATIONS)


class DescribeGroupsResponse(Message, versions=(0, 6), flexible=5):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)


class DescribeGroupsRequest(Request[DescribeGroupsResponse], api_key=15, versions=(0, 6), flexible=5):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


class ListGroupsResponseGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


class ListGroupsResponse(Message, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListGroupsResponseGroup] = array(ListGroupsResponseGroup)


class ListGroupsRequest(Request[ListGroupsResponse], api_key=16, versions=(0, 5), flexible=3):
    states_filter: list[str] = array(string, since=4)
    types_filter: list[str] = array(string, since=5)


class OwnedTopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable_since=0, default=None)
    owned_partitions: list[OwnedTopicPartitions] = array(OwnedTopicPartitions, since=1, ignorable=True)
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)


class AssignedTopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    assigned_partitions: list[AssignedTopicPartitions] = array(AssignedTopicPartitions)
    user_data: bytes | None = binary(nullable_since=0, default=None)


MessageT = TypeVar("MessageT", ConsumerProtocolSubscription, ConsumerProtocolAssignment)

_VERSION = struct.Struct(">h")


def encode_versioned(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    """Return the version and the message in it, as JoinGroup's and SyncGroup's bytes hold them."""
    return b"".join((_VERSION.pack(version), *message.encode(version)))


def decode_versioned(cls: type[MessageT], data: bytes | memoryview) -> MessageT:
    """Return the message in bytes that start with its version, as other clients write them. Versions only ever append fields
    (KIP-429): one newer than ours is read as our newest, one that lacks its fields as an older one (Sarama before 1.38 writes
    version 1 without owned partitions), and what follows the last field is left.

    Raises ProtocolError for malformed bytes.
    """
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{cls.__name__} of {len(data)} bytes has no version", api=cls.__name__)
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"{cls.__name__} has version {version}", api=cls.__name__)
    oldest, newest = cls.versions
    for readable in range(min(version, newest), oldest, -1):
        with contextlib.suppress(ProtocolError):
            return cls.read(data, readable, _VERSION.size)[0]
    return cls.read(data, oldest, _VERSION.size)[0]
