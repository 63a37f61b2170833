"""Read record batches of partitions (KIP-227 sessions, KIP-320 leader epochs, KIP-392 racks, KIP-951 leader hints)."""

from __future__ import annotations

import uuid
from typing import Final

from pykafka_wire.wire.protocol.fields import (
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    record_batches,
    string,
    structure,
    uuid128,
)
from pykafka_wire.wire.protocol.message import Message, Request
from pykafka_wire.wire.protocol.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from pykafka_wire.wire.protocol.primitives import MAX_INT64
from pykafka_wire.wire.single_varint import MAX_INT32

#: The first version that names topics by id (KIP-516).
TOPIC_ID_VERSION: Final = 13


class DivergingEpoch(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    """`aborted_transactions` is null unless the isolation level is read_committed.

    `last_stable_offset` is the end of what read_committed may see. `diverging_epoch` says where the log was truncated
    (KIP-320), `current_leader` hints at the new leader (KIP-951), `preferred_read_replica` at a nearer one (KIP-392).
    """

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    diverging_epoch: DivergingEpoch = structure(DivergingEpoch, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = structure(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = structure(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable_since=4, ignorable=True)
    preferred_read_replica: int = int32(since=11, default=-1)
    records: memoryview | None = record_batches(nullable_since=0)


class FetchableTopicResponse(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class FetchResponse(Message, versions=(4, 18), flexible=12):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: uuid.UUID = uuid128(since=17, ignorable=True, tag=0)
    high_watermark: int = int64(since=18, default=MAX_INT64, ignorable=True, tag=1)


class FetchTopic(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=13, ignorable=True)
    partitions: list[int] = array(int32)


class FetchRequest(Request[FetchResponse], api_key=1, versions=(4, 18), flexible=12):
    """Topics go by name up to version 12, by id from 13.

    Session id 0 with epoch -1 asks for no session (KIP-227). Versions 17 and 18 add what only replicas send.
    """

    cluster_id: str | None = string(since=12, nullable_since=12, default=None, ignorable=True, tag=0)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState = structure(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=MAX_INT32, ignorable=True)
    isolation_level: int = int8(ignorable=True)
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)
