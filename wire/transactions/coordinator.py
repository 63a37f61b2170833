"""The requests to the coordinators of a transaction: begin it, add to it, commit offsets in it, end it.

Owns InitProducerId with a transactional id, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn (KIP-98, KIP-447,
KIP-890). Each can be repeated as it is; :mod:`~pykafka_wire.wire.cluster.client` does so. When they are made is decided
in :mod:`~pykafka_wire.wire.transactions.transaction`.

A :class:`TransactionHandle` is all that these requests need. It can be pickled: a transaction may be begun by one process and
ended by another one.

Kafka's transaction protocol has two versions. A cluster's version is its finalized feature ``transaction.version`` (KIP-890,
KIP-584). One transaction keeps to one version:

=======  ===========  ===========================================  =================  ==========================================
version  Produce      topic-partitions and groups are added        TxnOffsetCommit    EndTxn
=======  ===========  ===========================================  =================  ==========================================
TV1      at most 11   by AddPartitionsToTxn and AddOffsetsToTxn    at most 4          at most 4; the epoch stays as it is
TV2      12 or newer  by the broker                                5 or newer         5 or newer; the epoch grows by one
=======  ===========  ===========================================  =================  ==========================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import UnsupportedVersionError, broker_error
from pykafka_wire.wire.groups.committed_offsets import (
    CommittedOffset,
    CommittedTopics,
    GroupMetadata,
    commit_in_portions,
)
from pykafka_wire.wire.protocol.message import ByVersion, Message, Request
from pykafka_wire.wire.protocol.messages.produce import InitProducerIdRequest
from pykafka_wire.wire.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.topic_partitions import TopicPartition, partitions_by_topic

_FEATURE: Final = "transaction.version"
#: Later versions of AddPartitionsToTxn, which TV2 does not need, are between brokers.
_LAST_OF_TV1: Final[dict[type[Request[Any]], int]] = {
    AddPartitionsToTxnRequest: 3,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
}


class TransactionVersion(Enum):
    """A version of the protocol; its value is the level of ``transaction.version`` that it begins at."""

    TV1 = 1
    TV2 = 2

    @classmethod
    def of(cls, cluster: Cluster) -> TransactionVersion:
        """Return the cluster's. Brokers from before the feature, and clusters that have not finalized it, have TV1."""
        return cls.TV2 if cluster.finalized_feature(_FEATURE) >= cls.TV2.value else cls.TV1

    @property
    def produce_cap(self) -> int | None:
        """Return the highest version of Produce, None for any."""
        # From 12 on a broker adds the partition to the transaction. Every broker of a TV2 cluster has it, or the
        # feature could not have been finalized.
        return 11 if self is TransactionVersion.TV1 else None

    @property
    def adds_by_request(self) -> bool:
        """Return whether the client adds topic-partitions and groups to the transaction before it writes to them."""
        return self is TransactionVersion.TV1

    @property
    def end_changes_epoch(self) -> bool:
        """Return whether the end of a transaction fences requests that arrive after it."""
        return self is TransactionVersion.TV2

    def request_cap(self, request: type[Request[Any]]) -> int | None:  # Any: whatever its response is
        """Return the highest version of a request, None for any."""
        return _LAST_OF_TV1.get(request) if self is TransactionVersion.TV1 else None

    def require(self, request: type[Request[Any]], version: int) -> None:
        """Raise UnsupportedVersionError where the version that a broker speaks is too old for this one."""
        lowest = 0 if self is TransactionVersion.TV1 else _LAST_OF_TV1.get(request, -1) + 1
        if version < lowest:
            raise UnsupportedVersionError(
                f"the broker does not support {request.name} v{lowest}, which {self.name} needs",
                api=request.name,
                remedy="All brokers must have the version that transaction.version was finalized for.",
            )


logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Message)

#: The last version of TxnOffsetCommit whose topics go by name.
_LAST_COMMIT_BY_NAME: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionHandle:
    """What identifies an open transaction. Whoever has it may add to the transaction, and end it."""

    transactional_id: str
    identity: ProducerIdentity
    version: TransactionVersion

    def end_request(self, *, committed: bool) -> EndTxnRequest:
        """Return the request that commits or aborts it."""
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=committed,
        )


def init_transaction(
    cluster: Cluster,
    transactional_id: str,
    *,
    successor_of: ProducerIdentity | None = None,
    deadline: Deadline | None = None,
) -> TransactionHandle:
    """Return a handle under a new epoch. Whoever used the id before is fenced, and its open transaction is over, when this
    returns.

    Args:
        successor_of: fence this one only, and fail if another producer has taken the id over since (KIP-360).

    Raises:
        ProducerFencedError: `successor_of` is not the last one that used the id.
        DeadlineExceededError: the transaction before has not ended.
        BrokerError: the id may not be used, or ``transaction.timeout.ms`` is above the broker's maximum.
    """
    version = TransactionVersion.of(cluster)
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=cluster.settings.transaction_timeout_ms,
        producer_id=-1 if successor_of is None else successor_of.producer_id,
        producer_epoch=-1 if successor_of is None else successor_of.producer_epoch,
    )
    responses = cluster.by_coordinator(CoordinatorKind.TRANSACTION, {transactional_id: request}, deadline=deadline)
    response = responses[transactional_id]
    if response.error_code:
        raise broker_error(response.error_code, api="InitProducerId", detail=f"(transactional id {transactional_id!r})")
    identity = ProducerIdentity(response.producer_id, response.producer_epoch)
    logger.debug("transactional id %r: %s, %s", transactional_id, identity, version.name)
    return TransactionHandle(transactional_id=transactional_id, identity=identity, version=version)


class TransactionRequests:
    """The requests about one transaction.

    Attributes:
        has_lost_responses: whether a request was sent and has no response. It may still arrive, even if a later try has one.
    """

    def __init__(self, cluster: Cluster, handle: TransactionHandle) -> None:
        self.has_lost_responses = False
        self._cluster = cluster
        self._handle = handle

    def add_partitions(self, partitions: Sequence[TopicPartition], deadline: Deadline | None = None) -> None:
        """Add topic-partitions that are written to next, where the version asks for it.

        Raises:
            BrokerError: one was rejected.
        """
        if not self._handle.version.adds_by_request:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._handle.transactional_id,
            v3_and_below_producer_id=self._handle.identity.producer_id,
            v3_and_below_producer_epoch=self._handle.identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in partitions_by_topic(partitions).items()
            ],
        )

        def results(response: AddPartitionsToTxnResponse) -> Iterable[tuple[str, int, int]]:
            for topic in response.results_by_topic_v3_and_below:
                for partition in topic.results_by_partition:
                    yield topic.name, partition.partition_index, partition.partition_error_code

        response = self._request(request, deadline=deadline)
        rejected = [result for result in results(response) if result[2]]
        # OPERATION_NOT_ATTEMPTED only says that another partition was rejected.
        for topic, partition, code in sorted(
            rejected, key=lambda result: result[2] == ErrorCode.OPERATION_NOT_ATTEMPTED
        ):
            raise broker_error(code, topic=topic, partition=partition, api="AddPartitionsToTxn")

    def commit_offsets(
        self,
        metadata: GroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset],
        deadline: Deadline | None = None,
    ) -> None:
        """Commit offsets to a group within the transaction, in portions that the group's coordinator can write.

        Raises:
            BrokerError: an offset was rejected, or the member has lost its place in the group (KIP-447).
        """
        group, member = metadata.group, metadata.member
        if self._handle.version.adds_by_request:
            self._add_offsets(group, deadline)

        topics = CommittedTopics(offsets, metadata.topic_ids)

        def commit(portion: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, int]:
            request = TxnOffsetCommitRequest(
                transactional_id=self._handle.transactional_id,
                group_id=group,
                producer_id=self._handle.identity.producer_id,
                producer_epoch=self._handle.identity.producer_epoch,
                generation_id_or_member_epoch=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                topics=topics.of_request(portion, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition),
            )
            cap = None if topics.are_ids_known else _LAST_COMMIT_BY_NAME
            return topics.results(
                self._request(request, version_cap=cap, error_codes=topics.codes, group=group, deadline=deadline)
            )

        commit_in_portions(group, offsets, commit, api="TxnOffsetCommit")

    def end(self, *, committed: bool, deadline: Deadline | None = None) -> ProducerIdentity:
        """Commit or abort, repeated with the same arguments until the response is definite; the identity that the transactional id
        has from now on.

        A repetition finds the transaction ended as it asks for, and the coordinator responds that it succeeded: the next
        transaction has another epoch.

        Raises:
            ProducerFencedError: another producer uses the id, or the transaction timed out.
            BrokerError: INVALID_TXN_STATE, the transaction has ended the other way.
            DeadlineExceededError: the outcome is unknown.
        """
        request = self._handle.end_request(committed=committed)
        response = self._request(request, deadline=deadline)
        if response.error_code:
            raise broker_error(
                response.error_code, api="EndTxn", detail=f"(transactional id {self._handle.transactional_id!r})"
            )
        if response.producer_id < 0:  # before KIP-890 the end of a transaction does not change it
            return self._handle.identity
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    def _add_offsets(self, group: str, deadline: Deadline | None) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._handle.transactional_id,
            producer_id=self._handle.identity.producer_id,
            producer_epoch=self._handle.identity.producer_epoch,
            group_id=group,
        )
        response = self._request(request, deadline=deadline)
        if response.error_code:
            raise broker_error(response.error_code, api="AddOffsetsToTxn", detail=f"(group {group!r})")

    def _request(
        self,
        request: Request[ResponseT],
        *,
        error_codes: Callable[[ResponseT], Iterable[int]] | None = None,
        group: str | None = None,
        version_cap: int | None = None,
        deadline: Deadline | None,
    ) -> ResponseT:
        """Return the response of the transaction's coordinator, or of a group's."""
        kind, key = CoordinatorKind.TRANSACTION, self._handle.transactional_id
        if group is not None:
            kind, key = CoordinatorKind.GROUP, group
        version = self._handle.version
        n_without_response = 0

        def counted(number: int) -> Request[ResponseT]:
            nonlocal n_without_response
            version.require(type(request), number)
            n_without_response += 1
            return request

        def codes_of_response(response: ResponseT) -> Iterable[int]:
            nonlocal n_without_response
            n_without_response -= 1
            return response.error_codes() if error_codes is None else error_codes(response)

        caps = [cap for cap in (version_cap, version.request_cap(type(request))) if cap is not None]
        try:
            return self._cluster.by_coordinator(
                kind,
                {key: ByVersion(type(request), counted)},
                error_codes=codes_of_response,
                deadline=deadline,
                version_cap=min(caps, default=None),
            )[key]
        finally:
            self.has_lost_responses |= n_without_response > 0
