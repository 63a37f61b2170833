"""Finding hung transactions (KIP-664)."""

from __future__ import annotations

from pykafka_wire.wire.protocol.fields import Struct, array, int16, int32, int64, string
from pykafka_wire.wire.protocol.message import Message, Request


class ProducerState(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)


class TopicRequest(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class DescribeProducersRequest(Request[DescribeProducersResponse], api_key=61, versions=(0, 0), flexible=0):
    topics: list[TopicRequest] = array(TopicRequest)


class TopicData(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class TransactionState(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Message, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)


class DescribeTransactionsRequest(Request[DescribeTransactionsResponse], api_key=65, versions=(0, 0), flexible=0):
    transactional_ids: list[str] = array(string)


class ListTransactionsResponseTransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, versions=(0, 2), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[ListTransactionsResponseTransactionState] = array(ListTransactionsResponseTransactionState)


class ListTransactionsRequest(Request[ListTransactionsResponse], api_key=66, versions=(0, 2), flexible=0):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, nullable_since=2, default=None)
