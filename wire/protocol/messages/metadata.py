"""Brokers, topics, the leaders of their partitions (KIP-516 topic ids), and the
coordinators of groups and transactional ids (KIP-699 batches)."""

from __future__ import annotations

import uuid

from pykafka_wire.wire.protocol.fields import NO_OPERATIONS, Struct, array, boolean, int8, int16, int32, string, uuid128
from pykafka_wire.wire.protocol.message import Message, Request


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable_since=1, default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """`leader_epoch` can be trusted from version 9 (KAFKA-9212)."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable_since=12)
    topic_id: uuid.UUID = uuid128(since=10, ignorable=True)
    is_internal: bool = boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=NO_OPERATIONS)


class MetadataResponse(Message, versions=(0, 13), flexible=9):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable_since=2, default=None, ignorable=True)
    controller_id: int = int32(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=NO_OPERATIONS)
    error_code: int = int16(since=13, ignorable=True)


class MetadataRequestTopic(Struct):
    topic_id: uuid.UUID = uuid128(since=10, ignorable=True)
    name: str | None = string(nullable_since=10)


class MetadataRequest(Request[MetadataResponse], api_key=3, versions=(0, 13), flexible=9):
    """`topics` null asks for all topics, empty for none; version 0 says all by empty.

    `allow_auto_topic_creation` is on unless it is turned off. Topics can be asked for by id from version 12.
    """

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=4, ignorable=True)


class FindCoordinatorResponse(Message, versions=(0, 6), flexible=3):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable_since=1, ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)


class FindCoordinatorRequest(Request[FindCoordinatorResponse], api_key=10, versions=(0, 6), flexible=3):
    """`key` up to version 3, `coordinator_keys` from 4. `key_type` is 0 for groups, 1 for transactional ids."""

    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(string, since=4)
