"""The driver's part of an exactly-once write: commit a micro-batch in one transaction, together with its marker.

A commit goes through these steps, in this order. A failure before COMMIT is sent leaves nothing visible; the outcome of a
COMMIT without an answer is unknown, and the next run of the micro-batch finds it by the marker.

============  =========================================================================================
step          what happens
============  =========================================================================================
COLLECT       the tasks' messages are checked: one of each task, of one query and of this micro-batch
INSPECT       the state of the transactional id is read, for warnings and for micro-batch 0
FENCE         InitProducerId fences an earlier driver and ends the transaction that it left open
READ_MARKER   the marker is read, require_stable, and decides: write, skip or refuse
END_BEFORE    what a run with transactions=tasks has decided is ended; what was aborted instead is written
CLEAN_UP      other transactions of such a run that are open are aborted, at a process's first commit that is not refused
WRITE         the records are produced
MARK          the marker is written, as an offset commit of the transaction
COMMIT        EndTxn makes records and marker visible at once
============  =========================================================================================

Spark's ``abort`` runs in a process of its own that does not know the producer epoch: a commit that fails ends its transaction
itself, before it raises.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum

from pyspark.sql.datasource import WriterCommitMessage

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once.broker_limits import warn_of_expiry
from pykafka_wire.sink.exactly_once.decided_before import (
    READ_IS_NEEDED,
    closed_in_partitions,
    commit_decided,
    is_left,
    replacements,
)
from pykafka_wire.sink.exactly_once.decision import Decision, decide
from pykafka_wire.sink.exactly_once.leftovers import clean_up
from pykafka_wire.sink.exactly_once.lost_marker import own_id_has_committed, tasks_have_committed
from pykafka_wire.sink.exactly_once.marker import FoundMarker, Marker
from pykafka_wire.sink.exactly_once.marker_offsets import commit_marker, read_marker
from pykafka_wire.sink.exactly_once.size_limit import too_large
from pykafka_wire.sink.exactly_once.task import EncodedTask
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.errors import BrokerError, UnsupportedVersionError, WireError
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction, last_known_state

_log = logging.getLogger(__name__)


class Step(Enum):
    """A step of a commit, as errors name it."""

    COLLECT = "collecting the tasks' messages"
    INSPECT = "inspecting the transactional id"
    FENCE = "fencing earlier producers"
    READ_MARKER = "reading the marker"
    END_BEFORE = "ending what an earlier run has decided"
    CLEAN_UP = "aborting what an earlier run has left open"
    WRITE = "writing the records"
    MARK = "writing the marker"
    COMMIT = "committing the transaction"


class MicroBatchCommit:
    """The commit of one micro-batch; :meth:`run` once.

    Attributes:
        step: the step that is under way, or the last one.
    """

    def __init__(self, cluster: Cluster, options: ExactlyOnceOptions, batch_id: int, *, max_bytes: int) -> None:
        self.step = Step.COLLECT
        self._cluster = cluster
        self._options = options
        self._batch_id = batch_id
        self._max_bytes = max_bytes
        self._transaction: Transaction | None = None
        #: Of the records written, by topic-partition.
        self._first_offsets: dict[TopicPartition, int] = {}

    def run(self, messages: Sequence[WriterCommitMessage | None]) -> Decision:
        """Take all steps; what was decided.

        Raises:
            ExactlyOnceError: the micro-batch was not written, or its outcome is unknown; the text says which, and why.
        """
        tasks, marker = self._collect(messages)
        try:
            self._inspect(marker)
            with self._fence() as transaction:
                found = self._read_marker()
                if isinstance(found, Marker) and is_left(found, marker.query_id, self._batch_id):
                    self._end_before(transaction, found, tasks)
                decision = self._decide(marker, found, id_has_committed=self._tasks_have_committed(found))
                self._clean_up(transaction)
                if decision is Decision.WRITE:
                    self._write(transaction, tasks)
                    self._mark(transaction, marker)
                    self._commit(transaction)
        except WireError as error:
            raise self._failure(error) from error
        self._log(decision, tasks, marker, found, transaction)
        return decision

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _collect(self, messages: Sequence[WriterCommitMessage | None]) -> tuple[list[EncodedTask], Marker]:
        """The messages in the order of their tasks, and the marker for them."""
        tasks = sorted((m for m in messages if isinstance(m, EncodedTask)), key=lambda task: task.task)
        queries = {task.query_id for task in tasks}
        numbers = [task.task for task in tasks]
        complete = len(tasks) == len(messages) and numbers == list(range(len(tasks)))
        if not complete or len(queries) != 1 or any(task.batch_id != self._batch_id for task in tasks):
            raise ExactlyOnceError(
                f"micro-batch {self._batch_id} was not written: the {len(messages)} messages to commit are of the tasks "
                f"{numbers}, of micro-batches {sorted({task.batch_id for task in tasks})} and of queries {sorted(queries)}; "
                "there must be one of each task."
            )
        n_bytes = sum(task.n_bytes for task in tasks)
        if n_bytes > self._max_bytes:
            raise too_large(self._batch_id, n_bytes, self._max_bytes)
        digest = sum(task.digest for task in tasks) & 0xFFFFFFFFFFFFFFFF
        return tasks, Marker(
            query_id=queries.pop(),
            batch_id=self._batch_id,
            n_records=sum(task.n_records for task in tasks),
            digest=f"{digest:016x}",
        )

    def _inspect(self, marker: Marker) -> None:
        """Warn of what a new process should know. Refuse micro-batch 0 if its marker is lost: the transactional id has
        committed, which this query does only together with a marker. FENCE would change the id's state, so this is first,
        except that a marker's list is ended before anything is refused.
        """
        self.step = Step.INSPECT
        transactional_id = self._options.transactional_id
        _warn_at_start(os.getpid(), self._cluster, transactional_id)
        if marker.batch_id == 0 and own_id_has_committed(self._cluster, transactional_id):
            found = self._read_marker()
            if not is_left(found, marker.query_id, self._batch_id):
                self._decide(marker, found, id_has_committed=True)

    def _fence(self) -> Transaction:
        self.step = Step.FENCE
        self._transaction = Transaction.begin(self._cluster, self._options.transactional_id)
        return self._transaction

    def _read_marker(self) -> FoundMarker:
        """What is committed in the marker's place. After FENCE nothing is pending on it: FENCE has waited for the end of the
        transaction before."""
        self.step = Step.READ_MARKER
        return read_marker(self._cluster, self._options.transactional_id, self._options.marker_topic)

    def _end_before(self, transaction: Transaction, found: Marker, tasks: Sequence[EncodedTask]) -> None:
        """End the list of a marker of ``transactions=tasks``; in a replay write the tasks whose transactions were aborted, which
        commits `transaction`."""
        self.step = Step.END_BEFORE
        strict = self._options.fail_on_missing_marker
        is_replay = found.batch_id == self._batch_id
        aborted = commit_decided(self._cluster, found, fail_on_unknown=strict)
        missing = replacements(found, aborted, tasks if is_replay else [], fail_on_missing=strict)
        if is_replay:
            self._write(transaction, missing)
            self._mark(transaction, replace(found, pending=()))
            self._commit(transaction)

    def _clean_up(self, transaction: Transaction) -> None:
        """Abort what tasks have left open, at a process's first commit. Only after a decision: where the marker is lost, what is
        open may be decided."""
        self.step = Step.CLEAN_UP
        for _ in _first_time(os.getpid(), self._cluster, self._options.transactional_id):
            clean_up(self._cluster, self._options, transaction.last_handle)

    def _tasks_have_committed(self, found: FoundMarker) -> bool:
        """Whether a run with ``transactions=tasks`` has committed micro-batch 0, and its marker is lost."""
        if found is not None or self._batch_id:
            return False
        return tasks_have_committed(self._cluster, self._options.transactional_id)

    def _decide(self, marker: Marker, found: FoundMarker, *, id_has_committed: bool) -> Decision:
        return decide(
            marker,
            found,
            fail_on_missing=self._options.fail_on_missing_marker,
            keep_on_mismatch=self._options.keep_on_marker_mismatch,
            id_has_committed=id_has_committed,
        )

    def _write(self, transaction: Transaction, tasks: Sequence[EncodedTask]) -> None:
        self.step = Step.WRITE
        batches: dict[TopicPartition, list[EncodedBatch]] = {}
        for task in tasks:
            for tp, encoded in task.batches.items():
                batches.setdefault(tp, []).extend(encoded)
        written = transaction.produce(batches)
        self._first_offsets = {tp: result.first_offset for tp, result in written.items()}

    def _mark(self, transaction: Transaction, marker: Marker) -> None:
        self.step = Step.MARK
        commit_marker(transaction, self._options, marker)

    def _commit(self, transaction: Transaction) -> None:
        self.step = Step.COMMIT
        self._check_open(transaction)
        transaction.commit()

    def _check_open(self, transaction: Transaction) -> None:
        """Fail where an administrator has aborted the transaction in a partition, while it can simply be written again."""
        try:
            closed = closed_in_partitions(self._cluster, {transaction.handle: self._first_offsets})
        except (UnsupportedVersionError, BrokerError) as error:
            if is_first(self._options.transactional_id, "partitions"):
                _log.info(
                    "Whether an administrator has aborted a transaction of this query in a partition cannot be checked: %s %s",
                    error,
                    READ_IS_NEEDED,
                )
            return
        if closed:
            raise ExactlyOnceError(
                f"micro-batch {self._batch_id} was not written: its transaction is no longer open in a partition of "
                f"{sorted({tp.topic for tp in self._first_offsets})}. It has timed out (kafka.transaction.timeout.ms), or an "
                "administrator has aborted it (kafka-transactions.sh abort). Start the query again."
            )

    # --- inside -------------------------------------------------------------------------------------------------------

    def _failure(self, error: WireError) -> ExactlyOnceError:
        if self._transaction is not None and self._transaction.in_doubt:
            outcome = f"may be in Kafka: the outcome of its commit is unknown ({self.step.value})"
            remedy = "On restart the marker decides: start the query again."
        else:
            outcome = f"was not written ({self.step.value})"
            remedy = "Then start the query again."
        return ExactlyOnceError(f"micro-batch {self._batch_id} {outcome}: {error.text} {remedy}")

    def _log(
        self,
        decision: Decision,
        tasks: Sequence[EncodedTask],
        marker: Marker,
        found: FoundMarker,
        transaction: Transaction,
    ) -> None:
        if decision is Decision.SKIP:
            _log.info("Micro-batch %d is in Kafka already: skipped", marker.batch_id)
        elif decision is Decision.KEEP:
            _log.warning(
                "Micro-batch %d is in Kafka already, and this run computed other rows: %s instead of %s. What is in Kafka is "
                "kept (onMarkerMismatch=skip)",
                marker.batch_id,
                marker,
                found,
            )
        else:
            _log.info(
                "Micro-batch %d: wrote %d records (%d bytes) of %d tasks as %r, %s",
                marker.batch_id,
                marker.n_records,
                sum(task.n_bytes for task in tasks),
                len(tasks),
                transaction.transactional_id,
                transaction.version.name,
            )


@functools.cache
def _warn_at_start(pid: int, cluster: Cluster, transactional_id: str) -> None:
    """When a process commits for the first time: log who uses the transactional id, and how long the marker lives."""
    state = last_known_state(cluster, transactional_id)
    if state is not None and state.is_open:
        _log.warning(
            "The transactional id %r has an open transaction, which is ended now: %s. After a crash it is the query's own; "
            "otherwise another producer uses the id",
            transactional_id,
            state,
        )
    warn_of_expiry(cluster, transactional_id)


@functools.cache
def _first_time(pid: int, cluster: Cluster, transactional_id: str) -> Iterator[None]:
    """One turn of a loop when a process commits for the first time, and none later."""
    return iter([None])
