"""One transaction over several topic-partitions and a group's offsets: all of it becomes visible, or nothing.

Owns a transaction's life from its begin to its end: what may be asked in which state, when an abort is safe, and what an error
means for it. The requests are :mod:`~pykafka_wire.wire.transactions.coordinator`'s, Produce is
:mod:`~pykafka_wire.wire.produce.producer`'s.

Each transaction begins with an InitProducerId of its own. That fences whoever used the transactional id before, aborts its open
transaction or waits for its end, and bumps the epoch. So a late request of an earlier transaction never counts for a later
one, sequences begin at 0, and every request of one transaction can be repeated as it is.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from pykafka_wire.wire import forks
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import last_known_state
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    ProducerFencedError,
    TransactionStateError,
    TransportError,
    WireError,
)
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, GroupMetadata
from pykafka_wire.wire.produce.producer import Producer, TransactionScope
from pykafka_wire.wire.produce.write_results import WriteResult
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.coordinator import (
    TransactionHandle,
    TransactionRequests,
    TransactionVersion,
    init_transaction,
)

logger = logging.getLogger(__name__)

#: A failed transaction is ended in this time, or left to the coordinator.
_ABORT_MS: Final = 10_000


class TransactionState(Enum):
    """Where a transaction stands. What may follow is :data:`_MOVES`; records and offsets are added while it is BEGUN or OPEN."""

    #: Its coordinator knows of nothing that would have to be ended.
    BEGUN = "begun"
    OPEN = "open"
    #: A part of it was refused, or may be missing: it can only be aborted.
    FAILED = "failed"
    #: A commit was requested, and its outcome is unknown.
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"
    #: Another process, the next transaction of its id, or its time-out ends it.
    LEFT_OPEN = "left open"
    #: Another producer has taken its id over, or its time-out has ended it.
    FENCED = "fenced"
    #: The same, after a commit was requested, which may have come first.
    FENCED_COMMITTING = "fenced while committing"


_State = TransactionState
_WRITABLE: Final = frozenset({_State.BEGUN, _State.OPEN})
_ABORTABLE: Final = _WRITABLE | {_State.FAILED}
#: Known to have ended, or never known to its coordinator.
_SETTLED: Final = frozenset({_State.BEGUN, _State.COMMITTED, _State.ABORTED, _State.FENCED, _State.FENCED_COMMITTING})
_IN_DOUBT: Final = frozenset({_State.COMMITTING, _State.FENCED_COMMITTING})
#: The states that may follow each state; an end without anything to end moves from BEGUN.
_MOVES: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _State.BEGUN: frozenset({_State.OPEN, _State.COMMITTED, _State.ABORTED}),
    _State.OPEN: frozenset({_State.OPEN, _State.FAILED, _State.COMMITTING, _State.LEFT_OPEN, _State.FENCED}),
    _State.FAILED: frozenset({_State.LEFT_OPEN, _State.FENCED}),
    _State.COMMITTING: frozenset({_State.COMMITTED, _State.ABORTED, _State.FENCED_COMMITTING}),
    _State.LEFT_OPEN: frozenset({_State.ABORTED, _State.FENCED}),
    _State.COMMITTED: frozenset(),
    _State.ABORTED: frozenset(),
    _State.FENCED: frozenset(),
    _State.FENCED_COMMITTING: frozenset(),
}


class Transaction:
    """A transaction that has begun: :meth:`produce`, :meth:`commit_offsets`, then :meth:`commit` or :meth:`abort`.

    As a ``with`` block it is aborted where it was not committed. Not thread-safe. It belongs to the process that began it: in a
    forked child every call raises ForkedProducerError, and :meth:`abort` does nothing. To end it from another process, hand over
    :attr:`handle`. A call that its state forbids raises TransactionStateError.

    Attributes:
        handle: its transactional id, producer id, epoch and version.
        last_handle: the same, with the producer id and epoch that the coordinator has last returned: in TV2 the end of a
            transaction changes them.
        state: where it stands.
    """

    def __init__(self, cluster: Cluster, handle: TransactionHandle) -> None:
        self.handle = handle
        self.last_handle = handle
        self.state = TransactionState.BEGUN
        self._cluster = cluster
        self._requests = TransactionRequests(cluster, handle)
        self._producer = Producer(
            cluster,
            transaction=TransactionScope(
                transactional_id=handle.transactional_id,
                identity=handle.identity,
                produce_cap=handle.version.produce_cap,
            ),
        )
        self._partitions: set[TopicPartition] = set()
        self._begun_at = time.monotonic()
        self._fork_generation = forks.generation

    @classmethod
    def begin(
        cls,
        cluster: Cluster,
        transactional_id: str,
        *,
        successor_of: ProducerIdentity | None = None,
        deadline: Deadline | None = None,
    ) -> Transaction:
        """Return a new transaction; whoever used the id before is fenced, and its open transaction is over, when this returns.

        Args:
            successor_of: the transaction before, which has ended; fail if another producer has taken the id over since (KIP-360).

        Raises:
            ProducerFencedError: another producer has taken the id over.
            DeadlineExceededError: the transaction before has not ended; names it.
            BrokerError: the id may not be used, or ``transaction.timeout.ms`` is above the broker's maximum.
        """
        try:
            handle = init_transaction(cluster, transactional_id, successor_of=successor_of, deadline=deadline)
            return cls(cluster, handle)
        except DeadlineExceededError as error:
            if isinstance(error.__cause__, BrokerError):  # the coordinator responds, so it can describe the transaction
                state = last_known_state(cluster, transactional_id)
                error.remedy = f"The id's last transaction has not ended: {state}." if state else error.remedy
            raise

    @property
    def transactional_id(self) -> str:
        return self.handle.transactional_id

    @property
    def is_settled(self) -> bool:
        """Return whether it is known to have ended, or never reached its coordinator. Only then may another one be begun as its
        successor: to begin one while this is open fences this, and with it what names itself its successor."""
        return self.state in _SETTLED

    @property
    def in_doubt(self) -> bool:
        """Return whether a commit was requested and its outcome is unknown."""
        return self.state in _IN_DOUBT

    @property
    def identity(self) -> ProducerIdentity:
        """Return the producer id and epoch that it is written under."""
        return self.handle.identity

    @property
    def version(self) -> TransactionVersion:
        """Return the version of the transaction protocol."""
        return self.handle.version

    def produce(
        self, batches: Mapping[TopicPartition, Iterable[EncodedBatch]], *, deadline: Deadline | None = None
    ) -> dict[TopicPartition, WriteResult]:
        """Write encoded batches; what was written to each topic-partition, all of it acknowledged by ``acks=all``.

        Raises:
            ProducerFencedError: another producer uses the id now, or the transaction timed out.
            WireError: a batch was rejected, or not acknowledged in time.
        """
        self._require_writable("produce")
        self._add_partitions(batches, deadline)
        # Round robin, so that a request carries a batch of each partition.
        queues = [[(tp, batch) for batch in encoded] for tp, encoded in batches.items()]
        for batch_of_each in itertools.zip_longest(*queues):
            for tp, batch in filter(None, batch_of_each):
                self.append(tp.topic, tp.partition, [batch])
        return self.flush(deadline)

    def partitions_for(self, topic: str) -> int:
        """Return what :meth:`Producer.partitions_for` does."""
        return self._producer.partitions_for(topic)

    def max_batch_bytes(self, topic: str) -> int | None:
        """Return what :meth:`Producer.max_batch_bytes` does."""
        return self._producer.max_batch_bytes(topic)

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Queue batches for a topic-partition, in this order, and send what fills requests; :meth:`flush` ends it.

        Raises:
            ProducerFencedError, WireError: as :meth:`produce`.
        """
        self._require_writable("append")
        self._add_partitions([TopicPartition(topic, partition)], None)
        with self._explaining():
            self._producer.append(topic, partition, batches)

    def flush(self, deadline: Deadline | None = None) -> dict[TopicPartition, WriteResult]:
        """Send all that is queued; what was written since the last flush, all of it acknowledged.

        Raises:
            ProducerFencedError, WireError: as :meth:`produce`.
        """
        self._require_writable("flush")
        with self._explaining():
            return self._producer.flush(deadline)

    def _add_partitions(self, partitions: Iterable[TopicPartition], deadline: Deadline | None) -> None:
        added = [tp for tp in partitions if tp not in self._partitions]
        if added:
            with self._adding():
                self._requests.add_partitions(added, deadline)
            self._partitions.update(added)

    @contextlib.contextmanager
    def _adding(self) -> Iterator[None]:
        """Guard an addition to the transaction at its coordinator. What fails may have been added, or not."""
        self._move(TransactionState.OPEN)
        with self._explaining():
            try:
                yield
            except BaseException:
                self._move(TransactionState.FAILED)
                raise

    def commit_offsets(
        self,
        group: str | GroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        deadline: Deadline | None = None,
    ) -> None:
        """Commit offsets to a group within the transaction: they count once it is committed.

        Args:
            group: with the member that has read the records; a name alone commits from outside of the group.

        Raises:
            ProducerFencedError: as :meth:`produce`.
            BrokerError: an offset was rejected. After ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID and
                STALE_MEMBER_EPOCH another member owns the partitions (KIP-447): abort the transaction.
        """
        metadata = GroupMetadata(group=group) if isinstance(group, str) else group
        self._require_writable("commit_offsets")
        if offsets:  # without any the coordinator would not get to know of the transaction, and reject its end
            with self._adding():
                self._requests.commit_offsets(metadata, offsets, deadline)

    def commit(self, *, deadline: Deadline | None = None) -> None:
        """Make all of it visible. The decision is in the coordinator's log when this returns.

        Raises:
            ProducerFencedError: another producer uses the id now, or the transaction timed out.
            DeadlineExceededError: it is unknown whether it was committed. The next :meth:`begin` with the same id waits
                until it is decided, either way.
        """
        self._require_complete("commit")
        if self.state is TransactionState.BEGUN:  # its coordinator knows of none, and would reject this
            self._move(TransactionState.COMMITTED)
            return
        # From here on an abort of ours could contradict a commit that is on its way.
        self._move(TransactionState.COMMITTING)
        with self._explaining():
            identity = self._requests.end(committed=True, deadline=deadline)
        self.last_handle = replace(self.handle, identity=identity)
        self._move(TransactionState.COMMITTED)

    def leave_open(self) -> TransactionHandle | None:
        """Return the handle by which another process is to end it, and this one no longer; None if there is nothing to end.

        All must have been acknowledged (:meth:`flush`).

        Raises:
            TransportError: in TV1, where a response of the coordinator was lost. The request may still arrive, after the commit,
                and begin a transaction of the same epoch: its time-out would look as if this one had been aborted.
        """
        self._require_complete("leave_open")
        if self._requests.has_lost_responses and not self.version.end_changes_epoch:
            raise TransportError(
                f"a response to a request about the transaction of {self.transactional_id!r} was lost. The request was repeated, "
                "but its first copy may still arrive after the transaction has ended, and then it is unknown how it has ended.",
                api="AddPartitionsToTxn",
                remedy="Write it again in a new transaction, as Spark does when it repeats the task. Brokers with "
                "transaction.version=2 (Kafka 4.0) do not need this.",
            )
        if self.state is TransactionState.BEGUN:
            self._move(TransactionState.ABORTED)
            return None
        self._move(TransactionState.LEFT_OPEN)
        return self.handle

    def abort(self) -> None:
        """Make none of it visible, where an abort is safe; else leave it to the coordinator. Never raises.

        The next :meth:`begin` with this id, or the coordinator after ``transaction.timeout.ms``, ends what is left open.
        """
        if self.state not in _ABORTABLE or self._fork_generation != forks.generation:
            return
        if self.state is TransactionState.BEGUN:
            self._move(TransactionState.ABORTED)
            return
        deadline = Deadline.after_ms(_ABORT_MS)
        self._move(TransactionState.LEFT_OPEN)
        # In TV1 the abort leaves the epoch as it is: a request that arrived after it would begin a transaction that
        # nobody ends (KIP-890), or that the id's next one commits. An init bumps the epoch first.
        have_responses = self._producer.all_responded(deadline) and not self._requests.has_lost_responses
        if not (have_responses or self.version.end_changes_epoch):
            logger.warning(
                "transactional id %r: not aborted, for a request without a response may still arrive. The next transaction of "
                "the id, or its timeout, ends this one",
                self.transactional_id,
            )
            return
        try:
            identity = self._requests.end(committed=False, deadline=deadline)
            self.last_handle = replace(self.handle, identity=identity)
            self._move(TransactionState.ABORTED)
        except WireError as error:
            if isinstance(error, ProducerFencedError):
                self._move(TransactionState.FENCED)
            logger.warning("transactional id %r: could not be aborted: %s", self.transactional_id, error)

    def _move(self, state: TransactionState) -> None:
        assert state in _MOVES[self.state], f"{self.state.value} -> {state.value}"
        self.state = state

    def _require_writable(self, call: str) -> None:
        """Raise ForkedProducerError in a forked child, and TransactionStateError where the state forbids a call."""
        if self._fork_generation != forks.generation:
            raise forks.forked_transaction_error(self.transactional_id)
        if self.state not in _WRITABLE:
            raise TransactionStateError(
                f"{call}() was called on the transaction of {self.transactional_id!r}, which is {self.state.value}",
                remedy="Abort it, and begin another one." if self.state in _ABORTABLE else "Begin another one.",
            )

    def _require_complete(self, call: str) -> None:
        """Do as :meth:`_require_writable`; records without an acknowledgement forbid the call, too: they might be missing."""
        self._require_writable(call)
        if not self._producer.clean:
            raise TransactionStateError(
                f"{call}() was called on the transaction of {self.transactional_id!r}, not all of whose records are acknowledged",
                remedy="Call flush() before, and abort the transaction where that fails.",
            )

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.abort()

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Let the error of a fenced producer say who uses the id now."""
        try:
            yield
        except WireError as error:
            if isinstance(error, ProducerFencedError) or _was_aborted(error):
                self._explain(error)
            raise

    def _explain(self, error: WireError) -> None:
        # It is no longer ours to end.
        if self.state is not TransactionState.COMMITTING:
            self._move(TransactionState.FENCED)
        elif isinstance(error, ProducerFencedError):
            self._move(TransactionState.FENCED_COMMITTING)
        else:
            self._move(TransactionState.ABORTED)
        open_ms = int((time.monotonic() - self._begun_at) * 1000)
        timeout_ms = self._cluster.settings.transaction_timeout_ms
        state = last_known_state(self._cluster, self.transactional_id)
        taken_over = (
            f"another producer has taken over the transactional id {self.transactional_id!r} from producer "
            f"{self.identity.producer_id}, epoch {self.identity.producer_epoch}" + (f" (now {state})" if state else "")
        )
        error.remedy = f"Only one producer may use an id, and {taken_over}."
        if open_ms >= timeout_ms:
            error.remedy = (
                f"The transaction was open for {open_ms} ms, longer than {{transaction.timeout.ms}} ({timeout_ms}): its "
                f"coordinator has aborted it, or {taken_over}. Write less in one transaction, or raise the timeout."
            )


def _was_aborted(error: WireError) -> bool:
    """Return whether a commit came after the abort of its own transaction. In TV2 an EndTxn with the epoch before the current
    one is taken for a repetition, and the coordinator knows that it contradicts the first one (KIP-890).
    """
    return isinstance(error, BrokerError) and error.api == "EndTxn" and error.code == ErrorCode.INVALID_TXN_STATE
