"""Consumer groups whose assignment the broker computes (KIP-848)."""

from __future__ import annotations

import uuid

from pykafka_wire.wire.protocol.fields import (
    NO_OPERATIONS,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    structure,
    uuid128,
)
from pykafka_wire.wire.protocol.message import Message, Request


class TopicPartitions(Struct):
    topic_id: uuid.UUID = uuid128()
    partitions: list[int] = array(int32)


class MemberAssignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, versions=(0, 1), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: MemberAssignment | None = structure(MemberAssignment, nullable_since=0, null=True)


class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse], api_key=68, versions=(0, 1), flexible=0):
    """`member_epoch` 0 joins, -1 leaves, -2 leaves for a while as a static member. Null says unchanged."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable_since=0, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable_since=1, default=None)
    server_assignor: str | None = string(nullable_since=0, default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable_since=0, default=None)


class DescribedTopicPartitions(Struct):
    topic_id: uuid.UUID = uuid128()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


class ConsumerGroupMember(Struct):
    member_id: str = string()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable_since=0, default=None)
    assignment: DescribedAssignment = structure(DescribedAssignment)
    target_assignment: DescribedAssignment = structure(DescribedAssignment)
    member_type: int = int8(since=1, default=-1, ignorable=True)


class DescribedConsumerGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ConsumerGroupMember] = array(ConsumerGroupMember)
    authorized_operations: int = int32(default=NO_OPERATIONS)


class ConsumerGroupDescribeResponse(Message, versions=(0, 1), flexible=0):
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)


class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse], api_key=69, versions=(0, 1), flexible=0):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()
