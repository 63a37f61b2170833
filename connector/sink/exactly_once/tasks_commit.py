"""The driver's part of an exactly-once write through the tasks: decide a micro-batch once, and commit its tasks' transactions.

A commit goes through these steps, in this order; docs/exactly-once.md has the states and the answer to a crash at each point.

===============  =====================================================================================
step             what happens
===============  =====================================================================================
COLLECT          the tasks' messages are checked: one of each task, of one claim and of this micro-batch
READ_MARKER      the marker is read, require_stable
END_BEFORE       what an earlier run has decided is ended; what was aborted instead is replaced
DECIDE           the marker is committed with the list of the tasks' transactions
END              each of them is committed
SETTLE           the marker is committed without the list
CLEAN_UP         transactions of attempts that do not count are aborted
===============  =====================================================================================

A failure before DECIDE leaves nothing visible: :func:`abandon`, the next run, or their time-out aborts the transactions.
After it the micro-batch will be visible: a replay ends what is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from pyspark.sql.datasource import WriterCommitMessage

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once.broker_limits import warn_of_timeout
from pykafka_wire.sink.exactly_once.claim import Claim
from pykafka_wire.sink.exactly_once.decided_before import (
    READ_IS_NEEDED,
    commit_decided,
    digest_text,
    is_left,
    is_ongoing,
    named,
    not_open,
    replacements,
)
from pykafka_wire.sink.exactly_once.decision import Decision, decide
from pykafka_wire.sink.exactly_once.leftovers import clean_up, decided_in, holds
from pykafka_wire.sink.exactly_once.lost_marker import tasks_have_committed
from pykafka_wire.sink.exactly_once.marker import DecidedTask, FoundMarker, Marker
from pykafka_wire.sink.exactly_once.marker_offsets import commit_marker, read_marker
from pykafka_wire.sink.exactly_once.open_task import OpenTask
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.errors import BrokerError, UnsupportedVersionError, WireError
from pykafka_wire.wire.transactions.bulk import abort_all, describe_all
from pykafka_wire.wire.transactions.coordinator import init_transaction
from pykafka_wire.wire.transactions.transaction import Transaction

_log = logging.getLogger(__name__)


class Step(Enum):
    """A step of a commit, as errors name it."""

    COLLECT = "collecting the tasks' messages"
    READ_MARKER = "reading the marker"
    END_BEFORE = "ending what an earlier run has decided"
    DECIDE = "deciding the micro-batch"
    END = "committing the tasks' transactions"
    SETTLE = "settling the marker"
    CLEAN_UP = "aborting attempts that do not count"


class TasksCommit:
    """The commit of one micro-batch; :meth:`run` once.

    Attributes:
        step: the step that is under way, or the last one.
    """

    def __init__(self, cluster: Cluster, options: ExactlyOnceOptions, batch_id: int) -> None:
        self.step = Step.COLLECT
        self._cluster = cluster
        self._options = options
        self._batch_id = batch_id
        #: Whether a decision on this micro-batch is in Kafka, this run's or an earlier one's.
        self._decided = False

    def run(self, messages: Sequence[WriterCommitMessage | None]) -> Decision:
        """Take all steps; what was decided.

        Raises:
            ExactlyOnceError: not all of the micro-batch is visible; the text says whether the next run will make it so, and why.
        """
        tasks, marker = self._collect(messages)
        self._marker_writer = MarkerWriter(self._cluster, self._options, tasks[0].claim)
        try:
            found = self._read_marker()
            replaced: list[OpenTask] = []
            if isinstance(found, Marker) and is_left(found, marker.query_id, self._batch_id):
                replaced = self._end_before(found, tasks)
            decision = self._judge(marker, found)
            if decision is Decision.WRITE:
                self._decide(marker, tasks[0].claim)
                if marker.pending:
                    self._end(marker)
                    self._settle(marker)
            unused = [] if decision is Decision.WRITE else [task for task in tasks if task not in replaced]
            self._clean_up(unused)
        except WireError as error:
            raise self._failure(error) from error
        self._log(decision, tasks, marker, found)
        return decision

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _collect(self, messages: Sequence[WriterCommitMessage | None]) -> tuple[list[OpenTask], Marker]:
        """The messages in the order of their tasks, and the marker for them, with the list of their transactions."""
        tasks = sorted((m for m in messages if isinstance(m, OpenTask)), key=lambda task: task.task)
        queries, claims = {task.query_id for task in tasks}, {task.claim for task in tasks}
        numbers = [task.task for task in tasks]
        complete = len(tasks) == len(messages) and numbers == list(range(len(tasks)))
        wrong_batch = any(task.batch_id != self._batch_id for task in tasks)
        if not complete or len(queries) != 1 or len(claims) != 1 or wrong_batch:
            raise ExactlyOnceError(
                f"micro-batch {self._batch_id} was not written: the {len(messages)} messages to commit are of the tasks "
                f"{numbers}, of micro-batches {sorted({task.batch_id for task in tasks})}, of queries {sorted(queries)} and of "
                f"{len(claims)} claims; there must be one of each task."
            )
        return tasks, Marker(
            query_id=queries.pop(),
            batch_id=self._batch_id,
            n_records=sum(task.n_records for task in tasks),
            digest=digest_text(sum(task.digest for task in tasks)),
            pending=_listed(tasks),
        )

    def _read_marker(self) -> FoundMarker:
        """What is committed in the marker's place. No earlier driver changes it any more, since this one's claim."""
        self.step = Step.READ_MARKER
        return read_marker(self._cluster, self._options.transactional_id, self._options.marker_topic)

    def _end_before(self, found: Marker, tasks: Sequence[OpenTask]) -> list[OpenTask]:
        """End the list of an earlier run's marker, and settle it; the tasks of this run that are written for aborted ones."""
        self.step = Step.END_BEFORE
        strict = self._options.fail_on_missing_marker
        is_replay = self._decided = found.batch_id == self._batch_id
        aborted = commit_decided(self._cluster, found, fail_on_unknown=strict)
        written = [task for task in tasks if task.transaction is not None] if is_replay else []
        chosen = replacements(found, aborted, written, fail_on_missing=strict)
        if chosen:
            replacing = replace(found, pending=_listed(chosen))
            self._marker_writer.write(replacing)
            self._end(replacing)
        self._settle(found)
        return chosen

    def _judge(self, marker: Marker, found: FoundMarker) -> Decision:
        has_committed = (
            found is None
            and self._batch_id == 0
            and tasks_have_committed(self._cluster, self._options.transactional_id)
        )
        return decide(
            marker,
            found,
            id_has_committed=has_committed,
            fail_on_missing=self._options.fail_on_missing_marker,
            keep_on_mismatch=self._options.keep_on_marker_mismatch,
        )

    def _decide(self, marker: Marker, claim: Claim) -> None:
        self.step = Step.DECIDE
        took_s = time.time() - claim.made_at
        self._check_open(marker, took_s)
        warn_of_timeout(self._cluster, self._batch_id, took_s)
        self._marker_writer.write(marker)
        self._decided = True

    def _check_open(self, marker: Marker, took_s: float) -> None:
        """Look whether a transaction has timed out, or was aborted in a partition, while the micro-batch can simply be written
        again."""
        try:
            gone = not_open(self._cluster, marker.pending)
        except (UnsupportedVersionError, BrokerError) as error:
            if is_first(self._options.transactional_id, "partitions"):
                _log.warning(
                    "Whether an administrator has aborted a transaction of this query in a partition cannot be checked: %s %s "
                    "Without it a micro-batch whose driver crashes between its decision and its end is refused at the next start",
                    error,
                    READ_IS_NEEDED,
                )
            gone = []
            if took_s * 1000 > self._cluster.settings.transaction_timeout_ms / 2:
                names = [task.transaction.transactional_id for task in marker.pending]
                described = describe_all(self._cluster, names)
                gone = [
                    task
                    for task in marker.pending
                    if (found := described.get(task.transaction.transactional_id)) is not None
                    and not is_ongoing(found, task.transaction)
                ]
        # After a later claim the decision is refused, with that as the reason.
        if gone and holds(self._cluster, self._marker_writer.handle):
            timeout_ms = self._cluster.settings.transaction_timeout_ms
            raise ExactlyOnceError(
                f"micro-batch {self._batch_id} was not written: {len(gone)} of its {len(marker.pending)} transactions are no "
                f"longer open, and nothing was decided: {named(gone)}. A transaction ends after kafka.transaction.timeout.ms "
                f"({timeout_ms}), counted from its task's first record, or an administrator has aborted it. After a time-out raise "
                "that setting, or make micro-batches smaller. Then start the query again."
            )

    def _end(self, marker: Marker) -> None:
        self.step = Step.END
        aborted = commit_decided(self._cluster, marker, fail_on_unchecked=False)
        if aborted:
            raise ExactlyOnceError(
                f"micro-batch {self._batch_id} is decided, and {len(aborted)} of its {len(marker.pending)} transactions were "
                f"aborted before they could be committed (kafka.transaction.timeout.ms, or an administrator): {named(aborted)}. "
                "Start the query again: its replay writes the same rows in their place."
            )

    def _settle(self, marker: Marker) -> None:
        self.step = Step.SETTLE
        self._marker_writer.write(replace(marker, pending=()))

    def _clean_up(self, unused: Sequence[OpenTask]) -> None:
        """Abort what does not count: this run's own transactions of a micro-batch that was there, and attempts that lost."""
        self.step = Step.CLEAN_UP
        try:
            abort_all(self._cluster, [task.transaction for task in unused if task.transaction is not None])
        except WireError as error:
            _log.warning("Transactions that do not count stay open until their time-out: %s", error)
        clean_up(self._cluster, self._options, self._marker_writer.handle)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _failure(self, error: WireError) -> ExactlyOnceError:
        again = "Then start the query again"
        if self._decided:
            outcome = f"is decided, and perhaps not all of it is visible yet ({self.step.value})"
            again += ": its replay makes it complete."
        elif self._marker_writer.in_doubt:
            outcome = f"may be decided: the outcome of its commit is unknown ({self.step.value})"
            again += ": the marker decides."
        else:
            outcome = f"was not written ({self.step.value})"
            again += "."
        return ExactlyOnceError(f"micro-batch {self._batch_id} {outcome}: {error.text} {again}")

    def _log(self, decision: Decision, tasks: Sequence[OpenTask], marker: Marker, found: FoundMarker) -> None:
        if decision is Decision.SKIP:
            _log.info("Micro-batch %d is in Kafka already: skipped", marker.batch_id)
        elif decision is Decision.KEEP:
            _log.warning(
                "Micro-batch %d is in Kafka already, and this run computed other rows: %s instead of %s. What is in Kafka is "
                "kept (onMarkerMismatch=skip)",
                marker.batch_id,
                replace(marker, pending=()),
                found,
            )
        else:
            _log.info(
                "Micro-batch %d: %d tasks wrote %d records (%d bytes) in %d transactions under %r",
                marker.batch_id,
                len(tasks),
                marker.n_records,
                sum(task.n_bytes for task in tasks),
                len(marker.pending),
                self._options.transactional_id,
            )


class MarkerWriter:
    """Commits markers under the driver's claim, each in a transaction of its own; fails after a later claim.

    Attributes:
        handle: of the last transaction, as the coordinator has it; of the claim before there is one.
        in_doubt: whether its commit was requested, and the outcome is unknown.
    """

    def __init__(self, cluster: Cluster, options: ExactlyOnceOptions, claim: Claim) -> None:
        self.handle = claim.handle
        self._has_written = False
        self.in_doubt = False
        self._cluster = cluster
        self._options = options

    def write(self, marker: Marker) -> None:
        """Commit a marker.

        Raises:
            ProducerFencedError: another driver has claimed the id.
            WireError: it was not committed, or it is unknown.
        """
        if self._has_written:
            # Only the epoch that the coordinator has now: after its broker has failed it does not remember the one before.
            name, before = self.handle.transactional_id, self.handle.identity
            self.handle = init_transaction(self._cluster, name, successor_of=before)
            self._has_written = False
        with Transaction(self._cluster, self.handle) as transaction:
            try:
                commit_marker(transaction, self._options, marker)
                transaction.commit()
            finally:
                self.in_doubt = transaction.in_doubt
                self.handle = transaction.last_handle
        self._has_written = True


def abandon(cluster: Cluster, options: ExactlyOnceOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort the transactions of a micro-batch that failed, unless it is decided. Never raises a broker's error: the next run, or
    the time-out, ends what stays open.
    """
    tasks = [message for message in messages if isinstance(message, OpenTask)]
    handles = [task.transaction for task in tasks if task.transaction is not None]
    if not handles:
        return
    try:
        # Ends the claim's own transaction, also one whose commit is in doubt, or fails after a later claim.
        init_transaction(cluster, options.transactional_id, successor_of=tasks[0].claim.handle.identity)
        found = read_marker(cluster, options.transactional_id, options.marker_topic)
        decided = decided_in(found)
        if decided is not None:
            abort_all(cluster, [handle for handle in handles if handle.identity not in decided])
    except WireError as error:
        _log.warning(
            "%d transactions of tasks stay open until the next run, or their time-out: %s", len(handles), error
        )


def _listed(tasks: Sequence[OpenTask]) -> tuple[DecidedTask, ...]:
    return tuple(
        DecidedTask(
            task=task.task,
            transaction=task.transaction,
            n_records=task.n_records,
            digest=digest_text(task.digest),
            ranges=task.ranges,
        )
        for task in tasks
        if task.transaction is not None
    )
