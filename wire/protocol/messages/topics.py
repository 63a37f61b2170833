"""Topics made, deleted and given more partitions."""

from __future__ import annotations

import uuid

from pykafka_wire.wire.protocol.fields import Struct, array, boolean, int8, int16, int32, string, uuid128
from pykafka_wire.wire.protocol.message import Message, Request


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = string(nullable_since=5)
    read_only: bool = boolean()
    config_source: int = int8(default=-1, ignorable=True)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: uuid.UUID = uuid128(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, ignorable=True)
    topic_config_error_code: int = int16(since=5, ignorable=True, tag=0)
    num_partitions: int = int32(since=5, default=-1, ignorable=True)
    replication_factor: int = int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable_since=5, ignorable=True
    )


class CreateTopicsResponse(Message, versions=(2, 7), flexible=5):
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable_since=0)


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request[CreateTopicsResponse], api_key=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable_since=6)
    topic_id: uuid.UUID = uuid128(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)


class DeleteTopicsResponse(Message, versions=(1, 6), flexible=4):
    throttle_time_ms: int = int32(ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


class DeleteTopicState(Struct):
    name: str | None = string(nullable_since=6, default=None)
    topic_id: uuid.UUID = uuid128()


class DeleteTopicsRequest(Request[DeleteTopicsResponse], api_key=20, versions=(1, 6), flexible=4):
    """Topics by name up to version 5, by name or id from 6."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string, until=5, ignorable=True)
    timeout_ms: int = int32()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


class CreatePartitionsResponse(Message, versions=(0, 3), flexible=2):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable_since=0)


class CreatePartitionsRequest(Request[CreatePartitionsResponse], api_key=37, versions=(0, 3), flexible=2):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()
