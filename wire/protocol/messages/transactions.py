"""Transactions of a producer: partitions, offsets, end (KIP-98, KIP-447, KIP-890 the second transaction protocol); and what
brokers report of them (KIP-664)."""

from __future__ import annotations

import uuid

from pykafka_wire.wire.protocol.fields import Struct, array, boolean, int16, int32, int64, string, uuid128
from pykafka_wire.wire.protocol.message import Message, Request


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


class AddPartitionsToTxnResponse(Message, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, until=3)


class AddPartitionsToTxnTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse], api_key=24, versions=(0, 5), flexible=3):
    """A client sends version 3 at most and fills the `v3_and_below` fields; later ones are between brokers."""

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


class AddOffsetsToTxnResponse(Message, versions=(0, 4), flexible=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()


class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse], api_key=25, versions=(0, 4), flexible=3):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string(until=5, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message, versions=(0, 6), flexible=3):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable_since=0)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string(until=5, ignorable=True)
    topic_id: uuid.UUID = uuid128(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse], api_key=28, versions=(0, 6), flexible=3):
    """Version 5 adds the group to the transaction by itself (KIP-890): only where transaction.version is 2 or later. Topics go by
    name up to version 5, by id from 6 (KIP-1319)."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class EndTxnResponse(Message, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1, ignorable=True)
    producer_epoch: int = int16(since=5, default=-1, ignorable=True)


class EndTxnRequest(Request[EndTxnResponse], api_key=26, versions=(0, 5), flexible=3):
    """Version 5 (KIP-890, only where transaction.version is 2 or later) returns the bumped producer id and epoch."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


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


class DescribeTransactionsResponseState(Struct):
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
    transaction_states: list[DescribeTransactionsResponseState] = array(DescribeTransactionsResponseState)


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
