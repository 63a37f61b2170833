"""Who has a transaction open: by transactional id, and by topic-partition (KIP-664).

Owns DescribeTransactions, DescribeProducers and ListTransactions; all three need brokers of Kafka 3.0 or newer. It ends no
transaction. An open one holds up every read_committed reader of its topic-partitions, so errors name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from pykafka_wire.wire.cluster import Cluster, CoordinatorKind, Deadline, partitions_by_topic
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ProducerState,
    TopicRequest,
)
from pykafka_wire.wire.topics import TopicPartition

#: Of a transaction's topic-partitions, so many are named.
_MOST_NAMED: Final = 10
#: What serves an error's text must not hold the error up.
_DESCRIBE_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """A transactional id as its coordinator knows it.

    Attributes:
        state: Kafka's word for it, such as ``Ongoing``, ``PrepareCommit`` or ``Empty``.
        started_ms: when the open transaction began, ms since the epoch; -1 where none is open.
        partitions: the topic-partitions in it; a group's offsets are a partition of ``__consumer_offsets``.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        return self.state not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")

    def __str__(self) -> str:
        text = f"producer {self.producer_id}, epoch {self.producer_epoch}, state {self.state}"
        if self.started_ms >= 0:
            text += f", begun {_utc(self.started_ms)}"
        if self.partitions:
            named = ", ".join(str(tp) for tp in self.partitions[:_MOST_NAMED])
            more = len(self.partitions) - _MOST_NAMED
            text += f", on {named}" + (f" and {more} more" if more > 0 else "")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open on a topic-partition.

    Attributes:
        transactional_id: None where no coordinator knows the producer any more: a hung transaction, which only an
            administrator can end (``kafka-transactions.sh abort``).
        start_offset: its first offset; read_committed readers stop there.
        last_written_ms: when it was last written to, ms since the epoch.
    """

    topic_partition: TopicPartition
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_written_ms: int

    def __str__(self) -> str:
        whose = (
            "hung, of no known transactional id" if self.transactional_id is None else f"of {self.transactional_id!r}"
        )
        return (
            f"{self.topic_partition} from offset {self.start_offset} on: {whose}, producer {self.producer_id}, epoch "
            f"{self.producer_epoch}, last written {_utc(self.last_written_ms)}"
        )


def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionState | None:
    """What the coordinator of a transactional id knows of it; None where it knows nothing, or cannot be asked.

    It serves errors and warnings: it never raises.
    """

    def codes(response: DescribeTransactionsResponse) -> Iterable[int]:
        return (state.error_code for state in response.transaction_states)

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    try:
        response = cluster.coordinator_request(
            CoordinatorKind.TRANSACTION,
            transactional_id,
            lambda _: request,
            codes,
            deadline=Deadline.after_ms(_DESCRIBE_MS),
        )
    except WireError:
        return None
    for state in response.transaction_states:
        if not state.error_code:
            return TransactionState(
                transactional_id=transactional_id,
                state=state.transaction_state,
                producer_id=state.producer_id,
                producer_epoch=state.producer_epoch,
                timeout_ms=state.transaction_timeout_ms,
                started_ms=state.transaction_start_time_ms,
                partitions=tuple(TopicPartition(topic.topic, p) for topic in state.topics for p in topic.partitions),
            )
    return None


def open_transactions(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, deadline: Deadline | None = None
) -> list[OpenTransaction]:
    """The transactions that are open on these topic-partitions, by partition and offset.

    Raises:
        BrokerError: a topic may not be described.
        UnsupportedVersionError: the brokers are older than Kafka 3.0.
    """

    def build(of_leader: Sequence[TopicPartition]) -> DescribeProducersRequest:
        topics = partitions_by_topic(of_leader).items()
        return DescribeProducersRequest(
            topics=[TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in topics]
        )

    def results(response: DescribeProducersResponse) -> Iterable[tuple[TopicPartition, int, list[ProducerState]]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield TopicPartition(topic.name, p.partition_index), p.error_code, p.active_producers

    found = cluster.by_leader(partitions, build, results, deadline=deadline)
    writing = [
        (tp, producer)
        for tp, producers in found.items()
        for producer in producers
        if producer.current_txn_start_offset >= 0
    ]
    owners = _transactional_ids(cluster, {producer.producer_id for _, producer in writing}, deadline)
    opened = [
        OpenTransaction(
            topic_partition=tp,
            transactional_id=owners.get(producer.producer_id),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            start_offset=producer.current_txn_start_offset,
            last_written_ms=producer.last_timestamp,
        )
        for tp, producer in writing
    ]
    return sorted(opened, key=lambda each: (each.topic_partition, each.start_offset))


def _transactional_ids(cluster: Cluster, producer_ids: set[int], deadline: Deadline | None) -> dict[int, str]:
    """Transactional ids by producer id. Each broker knows those that it coordinates."""
    if not producer_ids:
        return {}
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=sorted(producer_ids))
    owners = {}
    for node in cluster.brokers():
        for state in cluster.request(node, request, deadline=deadline).transaction_states:
            owners[state.producer_id] = state.transactional_id
    return owners


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
