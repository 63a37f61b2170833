"""Describes permissions, transactions and groups as brokers report them. Nothing here changes anything.

In particular nothing here sends InitProducerId, which would fence the producer that uses a transactional id. Routing and
retries are :mod:`~pykafka_wire.wire.cluster.client`'s. KIP-430 (authorized operations), KIP-664 (hung transactions), KIP-518
(states in lists of groups), KIP-848 (the consumer protocol, with a description of its own).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from typing import Final

from pykafka_wire.wire.cluster.client import ANY, Cluster, CoordinatorKind
from pykafka_wire.wire.cluster.metadata_cache import TopicMetadata, topic_of
from pykafka_wire.wire.connection.connection import ResponseFuture
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import (
    BrokerError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.protocol.fields import NO_OPERATIONS
from pykafka_wire.wire.protocol.messages.consumer_group import ConsumerGroupDescribeRequest, ConsumerGroupMember
from pykafka_wire.wire.protocol.messages.group import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
)
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykafka_wire.wire.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseState,
    ListTransactionsRequest,
    TopicRequest,
)
from pykafka_wire.wire.topic_partitions import TopicPartition, partitions_by_topic

#: States of a transaction that has not ended.
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
#: A look-up that only improves an error's text must not delay the error for longer.
_LOOK_UP_MS: Final = 5_000
#: A text names at most so many of a transaction's topic-partitions.
_MAX_NAMED: Final = 10


class Operation(IntEnum):
    """What an ACL allows, by Kafka's numbers (AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12

    @property
    def label(self) -> str:
        """Return the name as Kafka's tools call it: ``DescribeConfigs``."""
        return "".join(part.capitalize() for part in self.name.split("_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction:
    """A transactional id as its coordinator sees it; ``started_ms`` is since the epoch, -1 where none is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: Sequence[TopicPartition]

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    def __str__(self) -> str:
        text = f"producer {self.producer_id}, epoch {self.producer_epoch}, state {self.state}"
        if self.started_ms >= 0:
            begun = datetime.fromtimestamp(self.started_ms / 1000, timezone.utc)
            text += f", begun {begun.isoformat(timespec='milliseconds')}"
        if self.partitions:
            more = len(self.partitions) - _MAX_NAMED
            named = ", ".join(str(tp) for tp in self.partitions[:_MAX_NAMED])
            text += f", on {named}" + (f" and {more} more" if more > 0 else "")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenProducer:
    """A producer whose transaction is open in a topic-partition, from ``start_offset`` on."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int


def topics_by_broker(
    cluster: Cluster, node_ids: Iterable[int], topics: Iterable[str], *, broker_ms: float
) -> dict[int, dict[str, TopicMetadata | BrokerError]]:
    """Return what each of these brokers knows of topics, by node id; brokers that do not respond are left out.

    Brokers learn of a topic one after the other, so that one of them may lag behind. What a client remembers of the cluster is
    not changed by this. Leader epochs are left out.

    Args:
        broker_ms: how long each of the brokers may take.

    Raises:
        TransportError: none of the brokers responds.
    """
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in dict.fromkeys(topics)], allow_auto_topic_creation=False
    )
    by_node: dict[int, dict[str, TopicMetadata | BrokerError]] = {}
    failure: TransportError | None = None
    for node_id in node_ids:
        try:
            response = cluster.request(
                node_id, request, deadline=Deadline.after_ms(broker_ms), error_codes=lambda response: ()
            )
        except TransportError as error:
            failure = error
            continue
        by_node[node_id] = {
            entry.name or "": broker_error(entry.error_code, topic=entry.name, broker=node_id, api="Metadata")
            if entry.error_code and not entry.partitions
            else topic_of(entry, 0)
            for entry in response.topics
        }
    if not by_node and failure is not None:
        raise failure
    return by_node


def topic_operations(
    cluster: Cluster, topics: Iterable[str], *, deadline: Deadline | None = None
) -> dict[str, frozenset[Operation] | int | None]:
    """Return what we may do with each topic: the operations, None where brokers are too old to report them, or an error code."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    response = cluster.request(ANY, request, deadline=deadline, error_codes=lambda response: ())
    return {
        topic.name or "": topic.error_code or operations_of(topic.topic_authorized_operations)
        for topic in response.topics
    }


def describe_transaction(
    cluster: Cluster, transactional_id: str, *, deadline: Deadline | None = None
) -> DescribedTransaction | None:
    """Return the state of a transactional id; None where it was never used, or its coordinator has removed it.

    Raises:
        BrokerError: it may not be described.
        UnsupportedVersionError: the brokers are older than Kafka 3.0.
    """
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    responses = cluster.by_coordinator(CoordinatorKind.TRANSACTION, {transactional_id: request}, deadline=deadline)
    state = only_state(responses[transactional_id])
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if state.error_code:
        raise broker_error(state.error_code, api="DescribeTransactions", detail=f"({transactional_id!r})")
    return described_transaction(transactional_id, state)


def last_known_state(cluster: Cluster, transactional_id: str) -> DescribedTransaction | None:
    """Return the state of a transactional id, for an error or a warning; None also where it is not available."""
    try:
        return describe_transaction(cluster, transactional_id, deadline=Deadline.after_ms(_LOOK_UP_MS))
    except WireError:
        return None


def only_state(response: DescribeTransactionsResponse) -> DescribeTransactionsResponseState:
    """Return the state of the one transactional id that was asked for. Raises ProtocolError where it is missing, or not alone."""
    if len(response.transaction_states) != 1:
        raise ProtocolError(
            f"the response describes {len(response.transaction_states)} transactional ids, where one was asked for",
            api="DescribeTransactions",
        )
    return response.transaction_states[0]


def described_transaction(transactional_id: str, state: DescribeTransactionsResponseState) -> DescribedTransaction:
    """Return what a coordinator's response says of a transactional id."""
    return DescribedTransaction(
        transactional_id=transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=state.transaction_start_time_ms,
        partitions=[TopicPartition(data.topic, p) for data in state.topics for p in data.partitions],
    )


def list_transactions(
    cluster: Cluster, producer_ids: Sequence[int] = (), *, deadline: Deadline | None = None
) -> list[DescribedTransaction]:
    """Return every transactional id that we may see, of all coordinators, by name; with ``producer_ids`` only theirs.

    Raises:
        UnsupportedVersionError: the brokers are older than Kafka 3.0.
    """
    names: set[str] = set()
    for node in cluster.metadata.brokers():
        request = ListTransactionsRequest(producer_id_filters=list(producer_ids))
        response = cluster.request(node, request, deadline=deadline)
        if response.error_code:
            raise broker_error(response.error_code, broker=node, api="ListTransactions")
        names.update(state.transactional_id for state in response.transaction_states)
    described = (describe_transaction(cluster, name, deadline=deadline) for name in sorted(names))
    return [transaction for transaction in described if transaction is not None]


def open_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, deadline: Deadline | None = None
) -> list[OpenProducer]:
    """Return producers with an open transaction in these topic-partitions, as their leaders know them."""

    def build(asked: Sequence[TopicPartition]) -> DescribeProducersRequest:
        by_topic: Mapping[str, list[int]] = partitions_by_topic(asked)
        return DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()]
        )

    def results(response: DescribeProducersResponse) -> Iterator[tuple[TopicPartition, int, list[OpenProducer]]]:
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                producers = [
                    OpenProducer(
                        topic_partition=tp,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        start_offset=producer.current_txn_start_offset,
                        last_timestamp_ms=producer.last_timestamp,
                    )
                    for producer in p.active_producers
                    if producer.current_txn_start_offset >= 0
                ]
                yield tp, p.error_code, producers

    by_partition = cluster.by_leader(partitions, build, results, deadline=deadline)
    return [producer for tp in sorted(by_partition) for producer in by_partition[tp]]


def open_transactions(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, deadline: Deadline | None = None
) -> list[str]:
    """Return the transactions that hold ``read_committed`` readers up in these topic-partitions, each named in a text.

    As much as brokers report: no transactional ids before Kafka 3.0 or without the right to see them, nothing before 2.8.
    """
    try:
        producers = open_producers(cluster, partitions, deadline=deadline)
    except WireError:
        return []
    names: dict[int, str] = {}
    try:
        if producers:
            producer_ids = sorted({producer.producer_id for producer in producers})
            for transaction in list_transactions(cluster, producer_ids, deadline=deadline):
                names[transaction.producer_id] = f"transactional id {transaction.transactional_id!r}, "
    except WireError:
        pass  # the producers' own ids are known
    return [
        f"{names.get(producer.producer_id, '')}producer {producer.producer_id}, epoch {producer.producer_epoch}, open in "
        f"{producer.topic_partition} from offset {producer.start_offset} on"
        for producer in producers
    ]


def operations_of(bits: int) -> frozenset[Operation] | None:
    """Return what a broker allows, None where it is too old to report it."""
    if bits == NO_OPERATIONS:
        return None
    return frozenset(operation for operation in Operation if bits >> operation & 1)


#: From version 6 a group that does not exist is an error, and says nothing of permissions.
_LAST_DESCRIBE_WITH_DEAD: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group as its coordinator sees it; ``operations`` is None where brokers are too old to report them."""

    state: str
    members: Sequence[str]
    operations: frozenset[Operation] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in the list of its coordinator.

    Attributes:
        protocol_type: ``consumer`` for groups of consumers, empty for one that only has committed offsets.
        state: empty where brokers are older than Kafka 2.6.
        kind: ``Consumer`` for the protocol of KIP-848, ``Classic``, ``Share``, …; empty before Kafka 3.8.
        coordinator: the node id of the broker that has listed it.
    """

    name: str
    protocol_type: str
    state: str
    kind: str
    coordinator: int


def list_groups(cluster: Cluster, *, deadline: Deadline | None = None) -> list[ListedGroup]:
    """Return every group that we may see, of all coordinators, by name.

    Raises:
        BrokerError: a broker refuses the list.
        TransportError: a broker of the cluster does not respond: its groups would be missing.
    """
    retry = cluster.retry(deadline)

    def ask() -> list[ListedGroup]:
        # Those of now: other brokers take over the groups of one that leaves the cluster, and give some to a new one.
        nodes = cluster.metadata.brokers(refresh=True, deadline=retry.deadline)
        pending = {node: cluster.send(node, ListGroupsRequest(), deadline=retry.deadline) for node in nodes}
        return _merge_listed_groups(cluster, pending, retry.deadline)

    return retry.run(ask, "ListGroups of all brokers")


def _merge_listed_groups(
    cluster: Cluster, pending: Mapping[int, ResponseFuture[ListGroupsResponse]], deadline: Deadline
) -> list[ListedGroup]:
    listed: dict[str, ListedGroup] = {}
    for node, future in pending.items():
        response = future.result(deadline.at_most_ms(cluster.settings.request_timeout_ms), deadline)
        if response.error_code:
            raise broker_error(response.error_code, broker=node, api="ListGroups", version=future.version)
        for group in response.groups:
            listed[group.group_id] = ListedGroup(
                name=group.group_id,
                protocol_type=group.protocol_type,
                state=group.group_state,
                kind=group.group_type.capitalize(),  # brokers send small letters; this is how Kafka's tools print it
                coordinator=node,
            )
    return [listed[name] for name in sorted(listed)]


def describe_group(cluster: Cluster, group: str) -> Group:
    """Return a group's state, its members (client id and host) and what we may do with it. One that does not exist is Dead.

    Raises:
        BrokerError: it may not be described.
    """
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    responses = cluster.by_coordinator(CoordinatorKind.GROUP, {group: request}, version_cap=_LAST_DESCRIBE_WITH_DEAD)
    described = responses[group].groups[0]
    if described.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        raise broker_error(described.error_code, api="DescribeGroups", detail=f"(group {group!r})")
    # Brokers that are not Apache's; Apache's only from version 6 on.
    missing = described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    described_group = Group(
        state="Dead" if missing else described.group_state,
        members=_members(described.members),
        operations=None if missing else operations_of(described.authorized_operations),
    )
    # DescribeGroups takes a group of the protocol of KIP-848 for one that does not exist.
    return (
        (_describe_consumer_group(cluster, group) or described_group)
        if described_group.state == "Dead"
        else described_group
    )


def _describe_consumer_group(cluster: Cluster, group: str) -> Group | None:
    """Return a group of the consumer protocol of KIP-848; None for any other, and where brokers do not know the protocol."""
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    try:
        responses = cluster.by_coordinator(CoordinatorKind.GROUP, {group: request})
    except UnsupportedVersionError:
        return None
    described = responses[group].groups[0]
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    if described.error_code:
        raise broker_error(described.error_code, api="ConsumerGroupDescribe", detail=f"(group {group!r})")
    return Group(
        state=described.group_state,
        members=_members(described.members),
        operations=operations_of(described.authorized_operations),
    )


def _members(members: Iterable[DescribedGroupMember | ConsumerGroupMember]) -> list[str]:
    return [f"{member.client_id} at {member.client_host.lstrip('/')}" for member in members]
