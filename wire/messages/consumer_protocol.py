"""What consumers put into JoinGroup and SyncGroup: subscriptions and assignments."""

from __future__ import annotations

from pykafka_wire.wire.schema import Message, Struct, array, binary, int32, string


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
