"""Append record batches to partitions (KIP-467 record errors, KIP-951 leader hints, KIP-516 topic ids), and get the
producer ids and epochs that they are stamped with (KIP-98, KIP-360 epoch bumps)."""

from __future__ import annotations

import uuid
from typing import Final

from pykafka_wire.wire.protocol.fields import (
    Records,
    Struct,
    array,
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

#: The first version that names topics by id (KIP-516).
TOPIC_ID_VERSION: Final = 13


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable_since=8, default=None)


class PartitionProduceResponse(Struct):
    """`current_leader` is a hint that comes with NOT_LEADER_OR_FOLLOWER, its address in `node_endpoints` (KIP-951)."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8, ignorable=True)
    error_message: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = structure(LeaderIdAndEpoch, since=10, tag=0)


class TopicProduceResponse(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Message, versions=(3, 13), flexible=9):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)


class PartitionProduceData(Struct):
    index: int = int32()
    records: Records = record_batches(nullable_since=0)


class TopicProduceData(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request[ProduceResponse], api_key=0, versions=(3, 13), flexible=9):
    """Topics go by name up to version 12, by id from 13. In a transaction, version 12 and later let the broker add the
    partition to it (KIP-890): stay below unless the cluster has finalized transaction.version 2.
    """

    transactional_id: str | None = string(nullable_since=3, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)

    @property
    def expects_response(self) -> bool:
        return self.acks != 0


class InitProducerIdResponse(Message, versions=(0, 5), flexible=2):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


class InitProducerIdRequest(Request[InitProducerIdResponse], api_key=22, versions=(0, 5), flexible=2):
    """Kafka 4.3 declares version 6 too (two-phase commit, KIP-939), as unstable: brokers refuse it, it is not here."""

    transactional_id: str | None = string(nullable_since=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)
