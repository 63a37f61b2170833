"""Groups and their members, as the coordinator sees them (KIP-518 states, KIP-848 types)."""

from __future__ import annotations

from pykafka_wire.wire.protocol.fields import NO_OPERATIONS, Struct, array, binary, boolean, int16, int32, string
from pykafka_wire.wire.protocol.message import Message, Request


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


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


class ListGroupsResponse(Message, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


class ListGroupsRequest(Request[ListGroupsResponse], api_key=16, versions=(0, 5), flexible=3):
    states_filter: list[str] = array(string, since=4)
    types_filter: list[str] = array(string, since=5)
