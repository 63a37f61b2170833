"""One transaction over several topic-partitions and a group's offsets: all of it becomes visible, or nothing.

Owns InitProducerId with a transactional id, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn (KIP-98,
KIP-447, KIP-890). Produce requests are :mod:`~pykafka_wire.wire.produce.producer`'s, retries
:mod:`~pykafka_wire.wire.cluster.cluster`'s.

Each transaction begins with an InitProducerId of its own. That fences whoever used the transactional id before, aborts
or waits out what it left open, and bumps the epoch; so a request of an earlier transaction that arrives late can never
count for a later one, sequences begin at 0, and every request of one transaction can be repeated as it is.

There are two dialects, told apart by the cluster's finalized feature ``transaction.version`` and never mixed:

========  ==================  ========================  ==================  ============
dialect   Produce             partitions and group      TxnOffsetCommit     EndTxn
========  ==================  ========================  ==================  ============
TV1       at most 11          added by requests         at most 4           at most 4
TV2       12 and newer        added by the broker       5 and newer         5 and newer
========  ==================  ========================  ==================  ============
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, Final, TypeVar

from pykafka_wire.wire import forks
from pykafka_wire.wire.cluster import describe
from pykafka_wire.wire.cluster.cluster import COORDINATION, Cluster, CoordinatorKind, Deadline, partitions_by_topic
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    ProducerFencedError,
    UnsupportedVersionError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.groups.offsets import CommittedOffset, commit_in_portions
from pykafka_wire.wire.produce.inflight import ProducerIdentity, TransactionScope
from pykafka_wire.wire.produce.produce_errors import forked_transaction_error
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.produce.write_results import Delivered
from pykafka_wire.wire.protocol.message import Message, Request
from pykafka_wire.wire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykafka_wire.wire.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Message)

#: The last version of AddPartitionsToTxn that clients use; later ones are between brokers.
_ADD_PARTITIONS_CAP: Final = 3
#: Of several refused partitions, the one whose refusal is the reason.
_OPERATION_NOT_ATTEMPTED: Final = 55
#: A failed transaction is ended in this time, or left to the coordinator.
_ABORT_MS: Final = 10_000
#: What serves an error's text must not hold the error up for longer.
_DESCRIBE_MS: Final = 5_000


class Dialect(Enum):
    """The two transaction protocols; the value is the level of ``transaction.version`` it begins at."""

    TV1 = 1
    TV2 = 2

    @classmethod
    def of(cls, cluster: Cluster) -> Dialect:
        """The cluster's. Brokers from before the feature, and those that have not finalized it, speak TV1."""
        return cls.TV2 if cluster.finalized_feature("transaction.version") >= cls.TV2.value else cls.TV1

    @property
    def produce_cap(self) -> int | None:
        # From 12 on a broker adds the partition to the transaction. Every broker of a TV2 cluster has it, or the
        # feature could not have been finalized.
        return 11 if self is Dialect.TV1 else None

    def versions(self, request: type[Request[Any]]) -> tuple[int, int | None]:
        """The lowest and the highest version (None for any) of TxnOffsetCommit or EndTxn."""
        last_of_tv1 = {TxnOffsetCommitRequest: 4, EndTxnRequest: 4}[request]
        return (0, last_of_tv1) if self is Dialect.TV1 else (last_of_tv1 + 1, None)


class Transaction:
    """A transaction that has begun: :meth:`produce`, :meth:`commit_offsets`, then :meth:`commit` or :meth:`abort`.

    As a ``with`` block it is aborted where it was not committed. Not thread-safe. It belongs to the process that began it: in a
    forked child every call raises ForkedProducerError, and :meth:`abort` does nothing.

    Attributes:
        transactional_id, dialect: whose it is, and in which protocol.
        identity: the producer id and epoch it is written under.
        in_doubt: whether it was asked to be committed, and no answer says what came of it.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, dialect: Dialect, identity: ProducerIdentity) -> None:
        self.transactional_id = transactional_id
        self.dialect = dialect
        self.identity = identity
        self._cluster = cluster
        scope = TransactionScope(transactional_id=transactional_id, identity=identity, produce_cap=dialect.produce_cap)
        self._producer = Producer(cluster, transaction=scope)
        self._begun_at = time.monotonic()
        self._fork_generation = forks.generation
        #: Whether the coordinator was asked for anything that it would have to end.
        self._touched = False
        #: Whether a request was made to a coordinator that had no answer: it may still arrive, even if another try had one.
        self._lost_track = False
        self._ended = False
        self.in_doubt = False

    @classmethod
    def begin(cls, cluster: Cluster, transactional_id: str, *, deadline: Deadline | None = None) -> Transaction:
        """A new transaction; whoever used the id before is fenced, and its open transaction over, when this returns.

        Raises:
            DeadlineExceededError: the transaction before does not come to its end; names it.
            BrokerError: the id may not be used, or ``transaction.timeout.ms`` is above the broker's maximum.
        """
        dialect = Dialect.of(cluster)
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=cluster.settings.transaction_timeout_ms
        )

        def codes(response: InitProducerIdResponse) -> Iterable[int]:
            return [response.error_code]

        try:
            response = cluster.coordinator_request(
                CoordinatorKind.TRANSACTION, transactional_id, lambda _: request, codes, deadline=deadline
            )
        except DeadlineExceededError as error:
            if isinstance(error.__cause__, BrokerError):  # the coordinator did answer: it can be asked what it is at
                found = known_of(cluster, transactional_id)
                error.remedy = f"The id's last transaction has not ended: {found}." if found else error.remedy
            raise
        if response.error_code:
            raise broker_error(
                response.error_code, api="InitProducerId", detail=f"(transactional id {transactional_id!r})"
            )
        identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        logger.debug("transactional id %r: %s, %s", transactional_id, identity, dialect.name)
        return cls(cluster, transactional_id, dialect, identity)

    def produce(
        self, batches: Mapping[TopicPartition, Iterable[EncodedBatch]], *, deadline: Deadline | None = None
    ) -> dict[TopicPartition, Delivered]:
        """Write encoded batches; what was written to each topic-partition, all of it acknowledged by ``acks=all``.

        Raises:
            ProducerFencedError: another producer has taken the id over, or the transaction has timed out.
            WireError: a batch was refused, or not acknowledged in time.
        """
        self._check_fork()
        if not batches:
            return {}
        try:
            if self.dialect is Dialect.TV1:
                self._add_partitions(list(batches), deadline)
            self._touched = True
            # In turn, so that a request carries a batch of each partition.
            for turn in itertools.zip_longest(*([(tp, batch) for batch in own] for tp, own in batches.items())):
                for tp, batch in filter(None, turn):
                    self._producer.append(tp.topic, tp.partition, [batch])
            return self._producer.flush(deadline)
        except WireError as error:
            raise self._explained(error) from error.__cause__

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, deadline: Deadline | None = None
    ) -> None:
        """Commit offsets to a group within the transaction: they count once it is committed.

        Raises:
            ProducerFencedError: as :meth:`produce`.
            BrokerError: an offset was refused.
        """
        self._check_fork()
        try:
            if self.dialect is Dialect.TV1:
                self._add_offsets(group, deadline)
            self._touched = True
            self._commit_offsets(group, offsets, deadline)
        except WireError as error:
            raise self._explained(error) from error.__cause__

    def commit(self, *, deadline: Deadline | None = None) -> None:
        """Make all of it visible. The decision is in the coordinator's log when this returns.

        Raises:
            ProducerFencedError: another producer has taken the id over, or the transaction has timed out.
            DeadlineExceededError: whether it was committed is not known. The next :meth:`begin` with the same id waits
                until it is decided, either way.
        """
        self._check_fork()
        self._ended = True
        if not self._touched:  # its coordinator knows of none, and would refuse
            return
        # From here on an abort of ours could contradict a commit that is on its way.
        self.in_doubt = True
        try:
            self._end(committed=True, deadline=deadline)
            self.in_doubt = False
        except WireError as error:
            if _found_aborted(error):
                self.in_doubt = False
            raise self._explained(error) from error.__cause__

    def abort(self) -> None:
        """Make none of it visible, where that can be said safely; else leave it to the coordinator. Never raises.

        The next :meth:`begin` with this id, or the coordinator after ``transaction.timeout.ms``, ends what is left open.
        """
        if self._ended or self._fork_generation != forks.generation:
            return
        self._ended = True
        deadline = Deadline.after_ms(_ABORT_MS)
        if not self._touched:
            return
        # In TV1 the abort leaves the epoch as it is: a request that arrived after it would begin a transaction that
        # nobody ends (KIP-890), or that the id's next one commits. An init bumps the epoch first.
        settled = self._producer.settle(deadline) and not self._lost_track
        if not settled and self.dialect is Dialect.TV1:
            logger.warning("transactional id %r: a lost request may still arrive; left open", self.transactional_id)
            return
        try:
            self._end(committed=False, deadline=deadline)
        except WireError as error:
            logger.warning("transactional id %r: could not be aborted: %s", self.transactional_id, error)

    def _check_fork(self) -> None:
        if self._fork_generation != forks.generation:
            raise forked_transaction_error(self.transactional_id)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _add_partitions(self, partitions: Sequence[TopicPartition], deadline: Deadline | None) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in partitions_by_topic(partitions).items()
            ],
        )

        def results(response: AddPartitionsToTxnResponse) -> Iterable[tuple[str, int, int]]:
            for topic in response.results_by_topic_v3_and_below:
                for partition in topic.results_by_partition:
                    yield topic.name, partition.partition_index, partition.partition_error_code

        self._touched = True
        response = self._ask(
            lambda _: request,
            lambda answer: (code for _, _, code in results(answer)),
            version_cap=_ADD_PARTITIONS_CAP,
            deadline=deadline,
        )
        refused = [result for result in results(response) if result[2]]
        for topic, partition, code in sorted(refused, key=lambda result: result[2] == _OPERATION_NOT_ATTEMPTED):
            raise broker_error(code, topic=topic, partition=partition, api="AddPartitionsToTxn")

    def _add_offsets(self, group: str, deadline: Deadline | None) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            group_id=group,
        )

        def codes(response: AddOffsetsToTxnResponse) -> Iterable[int]:
            return [response.error_code]

        self._touched = True
        response = self._ask(lambda _: request, codes, deadline=deadline)
        if response.error_code:
            raise broker_error(response.error_code, api="AddOffsetsToTxn", detail=f"(group {group!r})")

    def _commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], deadline: Deadline | None
    ) -> None:
        def codes(response: TxnOffsetCommitResponse) -> Iterable[int]:
            return (p.error_code for topic in response.topics for p in topic.partitions)

        def commit(portion: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, int]:
            request = TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=p,
                                committed_offset=portion[TopicPartition(topic, p)].offset,
                                committed_leader_epoch=portion[TopicPartition(topic, p)].leader_epoch,
                                committed_metadata=portion[TopicPartition(topic, p)].metadata,
                            )
                            for p in numbers
                        ],
                    )
                    for topic, numbers in partitions_by_topic(portion).items()
                ],
            )
            response = self._ask(
                self._in_dialect(request), codes, group=group, version_cap=self._cap(request), deadline=deadline
            )
            return {
                TopicPartition(topic.name, p.partition_index): p.error_code
                for topic in response.topics
                for p in topic.partitions
            }

        commit_in_portions(group, offsets, commit, api="TxnOffsetCommit")

    def _end(self, *, committed: bool, deadline: Deadline | None) -> None:
        """EndTxn, repeated with the same arguments until its answer is definite.

        A repetition finds the transaction ended as it asks for, and is told so: the next one has another epoch.
        """
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=committed,
        )

        def codes(response: EndTxnResponse) -> Iterable[int]:
            return [response.error_code]

        response = self._ask(self._in_dialect(request), codes, version_cap=self._cap(request), deadline=deadline)
        if response.error_code:
            raise broker_error(
                response.error_code, api="EndTxn", detail=f"(transactional id {self.transactional_id!r})"
            )

    def _ask(
        self,
        build: Callable[[int], Request[ResponseT]],
        codes: Callable[[ResponseT], Iterable[int]],
        *,
        group: str | None = None,
        version_cap: int | None = None,
        deadline: Deadline | None,
    ) -> ResponseT:
        """The answer of the transaction's coordinator, or of a group's."""
        kind, key = (CoordinatorKind.TRANSACTION, self.transactional_id)
        if group is not None:
            kind, key = CoordinatorKind.GROUP, group
        n_unanswered = 0

        def counted(node: int) -> Request[ResponseT]:
            nonlocal n_unanswered
            request = build(node)
            n_unanswered += 1
            return request

        def codes_of_answer(response: ResponseT) -> Iterable[int]:
            nonlocal n_unanswered
            n_unanswered -= 1
            return codes(response)

        try:
            return self._cluster.coordinator_request(
                kind, key, counted, codes_of_answer, deadline=deadline, version_cap=version_cap
            )
        finally:
            self._lost_track |= n_unanswered > 0

    def _cap(self, request: Request[Any]) -> int | None:
        return self.dialect.versions(type(request))[1]

    def _in_dialect(self, request: Request[ResponseT]) -> Callable[[int], Request[ResponseT]]:
        """Hands out `request` for coordinators that speak it in the transaction's dialect."""
        lowest = self.dialect.versions(type(request))[0]

        def build(node: int) -> Request[ResponseT]:
            if not self._cluster.supports(node, type(request), lowest, purpose=COORDINATION):
                raise UnsupportedVersionError(
                    f"broker {node} does not speak {type(request).name} v{lowest}, which {self.dialect.name} needs",
                    broker=node,
                    api=type(request).name,
                    remedy="All brokers must have the version that transaction.version was finalized for.",
                )
            return request

        return build

    def _explained(self, error: WireError) -> WireError:
        """`error`; of a fenced producer, with who has the id now."""
        if isinstance(error, ProducerFencedError) or _found_aborted(error):
            self._ended = True  # it is no longer ours to end
            open_ms = int((time.monotonic() - self._begun_at) * 1000)
            timeout_ms = self._cluster.settings.transaction_timeout_ms
            found = known_of(self._cluster, self.transactional_id)
            heir = (
                f"another producer has taken over the transactional id {self.transactional_id!r} from "
                + _named(self.identity)
                + (f" (now {found})" if found else "")
            )
            if open_ms >= timeout_ms:
                error.remedy = (
                    f"The transaction was open for {open_ms} ms, longer than transaction.timeout.ms ({timeout_ms}): its "
                    f"coordinator has aborted it, or {heir}. Write less in one transaction, or raise the timeout."
                )
            else:
                error.remedy = f"Only one producer may use an id, and {heir}."
        return error


def known_of(cluster: Cluster, transactional_id: str) -> describe.Transaction | None:
    """What is known of a transactional id, to be named in an error or a warning; None also where that cannot be asked."""
    try:
        return describe.describe_transaction(cluster, transactional_id, deadline=Deadline.after_ms(_DESCRIBE_MS))
    except WireError:
        return None


def _found_aborted(error: WireError) -> bool:
    """Whether a commit came after the abort of its own transaction: in TV2 one epoch later EndTxn is taken for a repetition,
    of which the coordinator knows that it asks for the opposite (KIP-890)."""
    return isinstance(error, BrokerError) and error.api == "EndTxn" and error.name == "INVALID_TXN_STATE"


def _named(identity: ProducerIdentity) -> str:
    return f"producer {identity.producer_id}, epoch {identity.producer_epoch}"
