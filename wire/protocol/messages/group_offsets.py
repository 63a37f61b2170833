"""Offsets that a consumer group has committed (KIP-447 stable reads, KIP-709 batches)."""

from __future__ import annotations

import uuid

from pykafka_wire.wire.protocol.fields import Struct, array, boolean, int16, int32, int64, string, uuid128
from pykafka_wire.wire.protocol.message import Message, Request


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, versions=(2, 10), flexible=8):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable_since=0)


class OffsetCommitRequestTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request[OffsetCommitResponse], api_key=8, versions=(2, 10), flexible=8):
    """A commit from outside of the group has generation -1 and no member id; it is refused while the group has members.

    Topics go by name up to version 9, by id from 10.
    """

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1, ignorable=True)
    member_id: str = string(ignorable=True)
    group_instance_id: str | None = string(since=7, nullable_since=7, default=None)
    retention_time_ms: int = int64(until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32(until=7)
    committed_offset: int = int64(until=7)
    committed_leader_epoch: int = int32(since=5, until=7, default=-1, ignorable=True)
    metadata: str | None = string(until=7, nullable_since=0)
    error_code: int = int16(until=7)


class OffsetFetchResponseTopic(Struct):
    name: str = string(until=7)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, ignorable=True)
    metadata: str | None = string(nullable_since=8)
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Message, versions=(1, 10), flexible=6):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)


class OffsetFetchRequestTopic(Struct):
    name: str = string(until=7)
    partition_indexes: list[int] = array(int32, until=7)


class OffsetFetchRequestTopics(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=10, ignorable=True)
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string()
    member_id: str | None = string(since=9, nullable_since=9, default=None, ignorable=True)
    member_epoch: int = int32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable_since=8)


class OffsetFetchRequest(Request[OffsetFetchResponse], api_key=9, versions=(1, 10), flexible=6):
    """One group up to version 7, many from 8. Null `topics` asks for all (version 2). Topics go by id from version 10."""

    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)
