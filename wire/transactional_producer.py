"""Records written in transactions, with the offsets of what they were made from: each record read is processed exactly once.

    servers = {"bootstrap.servers": "broker:9092"}
    reading = {"group.id": "copy", "enable.auto.commit": "false", "isolation.level": "read_committed"}
    with Consumer(servers | reading) as consumer, TransactionalProducer(servers | {"transactional.id": "copy-1"}) as producer:
        consumer.subscribe(["orders"])
        while True:
            if polled := consumer.poll(1_000):
                with producer.transaction(consumer) as transaction:
                    for record in polled:
                        transaction.send("orders-copy", record.value, key=record.key)

Owns what a transaction means for the consumer: its positions are committed with the records, or it goes back to those before
(KIP-98, KIP-447). Records are collected in :mod:`~pykafka_wire.wire.produce.record_sender`; one transaction's life is
:mod:`~pykafka_wire.wire.transactions.transaction`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pykafka_wire.wire import forks
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.connection.counters import ClientTotals
from pykafka_wire.wire.consumer import Consumer
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError, ProducerFencedError, RecordsNotWrittenError, SettingsError
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, GroupMetadata
from pykafka_wire.wire.produce.record_sender import RecordSender
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction, TransactionState

logger = logging.getLogger(__name__)

#: Other members own the partitions now, or will soon.
_PLACE_LOST: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class TransactionalProducer:
    """Writes records in transactions, one at a time. Not thread-safe; a forked child cannot use it.

    Whoever used its ``transactional.id`` before is fenced by its first transaction. When another producer takes the id over, the
    next call raises ProducerFencedError, and this producer can no longer be used.
    """

    def __init__(self, settings: ClientSettings | Mapping[str, str]) -> None:
        """Open nothing yet. Settings by Kafka's names: ``transactional.id``, ``transaction.timeout.ms``, and the producer's.

        Raises:
            SettingsError: there is no ``transactional.id``.
        """
        self._settings = settings if isinstance(settings, ClientSettings) else ClientSettings.from_options(settings)
        if self._settings.transactional_id is None:
            raise SettingsError(
                "{setting} is missing.",
                setting="transactional.id",
                remedy="Name one that no other running producer uses, the same after each restart.",
            )
        self._transactional_id = self._settings.transactional_id
        self._cluster = Cluster(self._settings)
        self._fork_generation = forks.generation
        self._last: Transaction | None = None
        self._open: RecordTransaction | None = None
        self._fenced: ProducerFencedError | None = None

    def transaction(self, consumer: Consumer | None = None) -> RecordTransaction:
        """Return a transaction that has begun; leaving its ``with`` block commits it, or aborts it after an error.

        Args:
            consumer: its positions are committed with the transaction. If that is not committed, or does not begin, the consumer
                goes back, and :meth:`Consumer.poll <pykafka_wire.wire.consumer.Consumer.poll>` returns the same records again, to
                this consumer or another member of its group. Process those: a transaction of records from before is not committed.

        Raises:
            ProducerFencedError: another producer has taken the ``transactional.id`` over.
            SettingsError: the consumer commits by itself, or reads what is not committed.
            WireError: the coordinator refuses the id, or does not respond.
        """
        if consumer is not None:
            _check_settings(consumer.settings)
        try:
            self._last = self._begin()
        except BaseException:
            if consumer is not None:  # its positions are past records that no transaction has
                consumer.after_transaction(False)
            raise
        self._open = RecordTransaction(self._settings, self._last, consumer)
        return self._open

    def metrics(self) -> ClientTotals:
        """Return what this client has sent and received, repeated, and waited for, since it was made. Sends no request."""
        return self._cluster.counters.totals()

    def close(self) -> None:
        """Abort the transaction that is open, and close all connections."""
        self._abort_open()
        self._cluster.close()

    def __enter__(self) -> TransactionalProducer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.close()

    def _begin(self) -> Transaction:
        if self._fork_generation != forks.generation:
            raise forks.forked_transaction_error(self._transactional_id)
        if self._fenced is not None:
            raise self._fenced
        self._abort_open()
        try:
            return Transaction.begin(self._cluster, self._transactional_id, successor_of=self._predecessor())
        except ProducerFencedError as error:
            self._fenced = error
            raise

    def _abort_open(self) -> None:
        """Abort the transaction that was left without its end; its consumer goes back, or its records would be skipped."""
        if self._open is not None:
            self._open.abort()

    def _predecessor(self) -> ProducerIdentity | None:
        return self._last.last_handle.identity if self._last is not None and self._last.is_settled else None


class RecordTransaction(RecordSender):
    """Records that become visible all at once, or not at all. Made by :meth:`TransactionalProducer.transaction`."""

    def __init__(self, settings: ClientSettings, transaction: Transaction, consumer: Consumer | None) -> None:
        super().__init__(settings, transaction)
        self._transaction = transaction
        self._consumer = consumer
        self._is_over = False

    @property
    def committed(self) -> bool:
        """Return whether it was committed. After its ``with`` block this is false where the consumer had lost its place in
        the group meanwhile. That is no error: another member, or the next poll, reads the records again."""
        return self._transaction.state is TransactionState.COMMITTED

    def commit_offsets(
        self, group: GroupMetadata | str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> None:
        """Commit offsets to a group with the transaction: for offsets that are not a consumer's positions.

        Args:
            group: :meth:`Consumer.group_metadata <pykafka_wire.wire.consumer.Consumer.group_metadata>` of the member that has read
                the records; a name alone commits from outside of the group.

        Raises:
            WireError: an offset was rejected, or the member has lost its place in the group.
        """
        self._raise_failure()
        wanted = {
            tp: offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
            for tp, offset in offsets.items()
        }
        self._transaction.commit_offsets(group, wanted)

    def commit(self, timeout_ms: float | None = None) -> bool:
        """Write all records, commit the consumer's positions, and make all of it visible. False, and nothing of it is visible,
        where the consumer has lost its place in the group.

        Raises:
            ProducerFencedError: another producer uses the ``transactional.id`` now, or the transaction timed out.
            DeadlineExceededError: it is unknown whether it was committed. The next transaction waits until it is decided, and the
                consumer goes back no further than it must.
            WireError: a record or an offset was rejected; nothing of it is visible.
        """
        self._raise_failure()
        deadline = None if timeout_ms is None else Deadline.after_ms(timeout_ms)
        try:
            self._encode_all()
            self._transaction.flush(deadline)
            if self._may_commit_positions(deadline):
                self._transaction.commit(deadline=deadline)
        finally:
            self._end()
        return self.committed

    def abort(self) -> None:
        """Make nothing of it visible. The consumer goes back to where it was before."""
        if not self._is_over:
            self._end()

    def __enter__(self) -> RecordTransaction:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None and not self._is_over:
                self.commit()
        finally:
            self.abort()

    def _may_commit_positions(self, deadline: Deadline | None) -> bool:
        """Return whether the consumer still owns what it has read; its positions are then in the transaction."""
        consumer = self._consumer
        if consumer is None:
            return True
        try:
            if consumer.owns_polled:
                self._transaction.commit_offsets(consumer.group_metadata(), consumer.positions(), deadline=deadline)
                return True
            reason = "partitions were revoked since they were polled, or positions went back after another transaction"
        except BrokerError as error:
            if error.code not in _PLACE_LOST:
                raise
            reason = str(error)
        logger.warning(
            "group %s: a transaction is aborted, and its records will be read again: %s",
            consumer.settings.group_id,
            reason,
        )
        return False

    def _end(self) -> None:
        self._is_over = True
        self._drop_waiting()
        self._error = RecordsNotWrittenError("this transaction is over", remedy="Begin another one.")
        try:
            self._transaction.abort()  # unless it was committed
        finally:  # Ctrl-C may end the abort
            if self._consumer is not None:
                self._consumer.after_transaction(None if self._transaction.in_doubt else self.committed)

    def _raise_failure(self) -> None:
        if self._fork_generation != forks.generation:
            raise forks.forked_transaction_error(self._transaction.transactional_id)
        if self._error is not None:
            raise self._error


def _check_settings(settings: ClientSettings) -> None:
    """Raise SettingsError where the consumer's commits, or what it reads, would defeat its transactions."""
    if settings.group_id is None:
        raise SettingsError("{setting} is missing.", setting="group.id", remedy="Name the consumer group.")
    if settings.enable_auto_commit:
        raise SettingsError(
            "{setting} is true: the consumer would commit positions outside of transactions.",
            setting="enable.auto.commit",
            remedy="Set it to false.",
        )
    if settings.isolation_level != "read_committed":
        raise SettingsError(
            "{setting} is read_uncommitted: the consumer would read what is aborted, and would not wait for the offsets of a "
            "transaction that another member has yet to end (KIP-447).",
            setting="isolation.level",
            remedy="Set it to read_committed.",
        )
