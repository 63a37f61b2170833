"""The driver's part of an exactly-once write: commit a micro-batch, unless it is in Kafka already.

Owns the order of a commit, which is the same for both strategies, and what is reported of it. A strategy is a way to make a
micro-batch and its marker visible: one *driver transaction* (:mod:`~pykafka_wire.sink.exactly_once.driver_transaction`), or *task
transactions* that the driver ends (:mod:`~pykafka_wire.sink.exactly_once.task_transactions`).

=============  ====================================================================================================
step           what happens
=============  ====================================================================================================
COLLECT        the tasks' messages are checked: one of each task, of one query and of this micro-batch
begin          the strategy makes sure that no earlier driver can commit anything any more
READ_MARKER    the marker is read, require_stable
END_EARLIER    what an earlier run has decided is ended; what was aborted instead is replaced by tasks of this run
judge          the marker decides: write, skip or refuse (:mod:`~pykafka_wire.sink.exactly_once.decision`)
write          the strategy writes the records' transactions and the marker
CLEAN_UP       transactions that do not count are aborted
=============  ====================================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.names import PREFIX
from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once.decision import Decision, decide, marker_of
from pykafka_wire.sink.exactly_once.marker import FoundMarker, Marker, digest_text, read_markers
from pykafka_wire.sink.exactly_once.orphaned_transactions import tasks_have_committed
from pykafka_wire.sink.exactly_once.recovery import commit_decided, incomplete_error, is_left, replacements
from pykafka_wire.sink.exactly_once.tasks import TaskMessage
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import WireError

_log = logging.getLogger(__name__)


class Step(Enum):
    """A step of a commit, as errors name it."""

    COLLECT = "collecting the tasks' messages"
    INSPECT = "inspecting the transactional id"
    FENCE = "fencing earlier producers"
    READ_MARKER = "reading the marker"
    END_EARLIER = "ending what an earlier run has decided"
    WRITE = "writing the records"
    MARK = "writing the marker"
    COMMIT = "committing the transaction"
    DECIDE = "deciding the micro-batch"
    END = "committing the tasks' transactions"
    SETTLE = "settling the marker"
    CLEAN_UP = "aborting transactions that do not count"


class CommitOutcome(Enum):
    """What is known of a micro-batch whose commit has failed."""

    NOT_WRITTEN = "not written"
    IN_DOUBT = "in doubt"
    #: Its marker is in Kafka, this run's or an earlier one's, and some of its transactions may still be open.
    DECIDED = "decided"


#: What an error says of a micro-batch, and what to do.
_TEXTS: Final = {
    CommitOutcome.NOT_WRITTEN: ("was not written", "Then start the query again."),
    CommitOutcome.IN_DOUBT: (
        "may be in Kafka: the outcome of its commit is unknown",
        "On restart the marker decides: start the query again.",
    ),
    CommitOutcome.DECIDED: (
        "is decided, and perhaps not all of it is visible yet",
        "Then start the query again: its replay makes it complete.",
    ),
}


@dataclass
class Progress:
    """How far a commit is."""

    step: Step = Step.COLLECT
    outcome: CommitOutcome = CommitOutcome.NOT_WRITTEN


TaskT = TypeVar("TaskT", bound=TaskMessage)


class CommitStrategy(Protocol[TaskT]):
    """A way to make a micro-batch and its marker visible; serves one commit.

    Attributes:
        message_type: of its tasks.
        progress: it sets the steps that it takes, and the outcome.
    """

    message_type: type[TaskT]
    progress: Progress

    def check(self, tasks: Sequence[TaskT], batch: Marker) -> None:
        """Raise ExactlyOnceError where the messages cannot be committed together."""

    def begin(self, tasks: Sequence[TaskT], batch: Marker) -> AbstractContextManager[None]:
        """Keep earlier drivers from committing anything from here on."""

    def settle_earlier(self, stored: Marker, replacing: Sequence[TaskT], *, is_replay: bool) -> None:
        """Settle an earlier run after all transactions of a marker's list have ended: write tasks in place of those that were
        aborted, and the marker without a list. `stored` lists the committed ones."""

    def write(self, batch: Marker, tasks: Sequence[TaskT]) -> None:
        """Write a micro-batch, with its marker."""

    def clean_up(self, unused: Sequence[TaskT]) -> None:
        """Abort the transactions of messages that do not count, and what nobody else will end."""


class MicroBatchCommit(Generic[TaskT]):
    """The commit of one micro-batch; :meth:`run` once."""

    def __init__(
        self, cluster: Cluster, options: ExactlyOnceOptions, batch_id: int, strategy: CommitStrategy[TaskT]
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._batch_id = batch_id
        self._strategy = strategy
        self._progress = strategy.progress

    def run(self, messages: Sequence[WriterCommitMessage | None]) -> Decision:
        """Take all steps; what was decided.

        Raises:
            ExactlyOnceError: not all of the micro-batch is visible, or that is unknown; the text says which, and what to do.
        """
        tasks, batch = self.collect(messages)
        try:
            with self._strategy.begin(tasks, batch):
                self._progress.step = Step.READ_MARKER
                markers = read_markers(self._cluster, self._options.transactional_id, self._options.marker_topic)
                stored = marker_of(batch, markers, self._options.marker_topic)
                replacing: Sequence[TaskT] = []
                strict = self._options.fail_on_missing_marker
                if isinstance(stored, Marker) and is_left(stored, batch, fail_on_missing=strict):
                    replacing = self._end_earlier(stored, batch, tasks)
                decision = judge(self._options, batch, stored, id_has_committed=self._tasks_have_committed(stored))
                if decision is Decision.WRITE:
                    self._strategy.write(batch, tasks)
                self._progress.step = Step.CLEAN_UP
                used = tasks if decision is Decision.WRITE else replacing
                self._strategy.clean_up([task for task in tasks if task not in used])
        except WireError as error:
            raise self._failure(error) from error
        self._log(decision, tasks, batch, stored)
        return decision

    def collect(self, messages: Sequence[WriterCommitMessage | None]) -> tuple[list[TaskT], Marker]:
        """Return the messages in the order of their tasks, and the marker for them.

        Raises:
            ExactlyOnceError: they are not those of this micro-batch's tasks, one of each.
        """
        wanted = self._strategy.message_type
        tasks: list[TaskT] = [message for message in messages if isinstance(message, wanted)]
        tasks.sort(key=lambda task: task.task)
        queries = {task.query_id for task in tasks}
        numbers = [task.task for task in tasks]
        complete = len(tasks) == len(messages) and numbers == list(range(len(tasks)))
        if not complete or len(queries) != 1 or any(task.batch_id != self._batch_id for task in tasks):
            raise ExactlyOnceError(
                f"micro-batch {self._batch_id} was not written: the {len(messages)} messages to commit are of the tasks "
                f"{numbers}, of micro-batches {sorted({task.batch_id for task in tasks})} and of queries {sorted(queries)}; "
                "there must be one of each task."
            )
        batch = Marker(
            query_id=queries.pop(),
            batch_id=self._batch_id,
            n_records=sum(task.n_records for task in tasks),
            digest=digest_text(sum(task.digest for task in tasks)),
        )
        self._strategy.check(tasks, batch)
        return tasks, batch

    def _end_earlier(self, stored: Marker, batch: Marker, tasks: Sequence[TaskT]) -> Sequence[TaskT]:
        """End the list of an earlier run's marker, and settle it; the tasks of this run that are written for aborted ones."""
        self._progress.step = Step.END_EARLIER
        strict = self._options.fail_on_missing_marker
        is_replay = (stored.query_id, stored.batch_id) == (batch.query_id, batch.batch_id)
        if is_replay:
            self._progress.outcome = CommitOutcome.DECIDED
        else:
            _log.warning(
                "The marker is of micro-batch %d of query %s, and lists %d decided transactions: they are committed before "
                "micro-batch %d of query %s is written",
                stored.batch_id,
                stored.query_id,
                len(stored.pending),
                batch.batch_id,
                batch.query_id,
            )
        aborted = commit_decided(self._cluster, stored, fail_on_unknown=strict)
        keep = self._options.keep_on_marker_mismatch
        if stored.missing_parts:
            error = incomplete_error(stored, is_replay=is_replay)
            if strict and not keep:
                raise error
            _log.error("%s: %s", "onMarkerMismatch=skip" if keep else "failOnMissingMarker=false", error)
        with_rows = [task for task in tasks if task.n_records] if is_replay else []
        replacing = replacements(stored, aborted, with_rows, fail_on_missing=strict, write_unlisted=not keep)
        committed = tuple(task for task in stored.pending if task not in aborted)
        self._strategy.settle_earlier(replace(stored, pending=committed), replacing, is_replay=is_replay)
        return replacing

    def _tasks_have_committed(self, stored: FoundMarker) -> bool:
        """Return whether a run with task transactions has committed micro-batch 0, and its marker is lost."""
        if stored is not None or self._batch_id:
            return False
        return tasks_have_committed(self._cluster, self._options.transactional_id)

    def _failure(self, error: WireError) -> ExactlyOnceError:
        outcome, remedy = _TEXTS[self._progress.outcome]
        step = self._progress.step.value
        return ExactlyOnceError(
            f"micro-batch {self._batch_id} {outcome} ({step}): {error.with_prefix(PREFIX).text} {remedy}"
        )

    def _log(self, decision: Decision, tasks: Sequence[TaskT], batch: Marker, stored: FoundMarker) -> None:
        if decision is Decision.SKIP:
            _log.info("Micro-batch %d is in Kafka already: skipped", batch.batch_id)
        elif decision is Decision.KEEP:
            _log.warning(
                "Micro-batch %d is in Kafka already, and this run computed other rows: %s instead of %s. What is in Kafka is "
                "kept (onMarkerMismatch=skip)",
                batch.batch_id,
                batch,
                stored,
            )
        else:
            _log.info(
                "Micro-batch %d: wrote %d records (%d bytes) of %d tasks under %r",
                batch.batch_id,
                batch.n_records,
                sum(task.n_bytes for task in tasks),
                len(tasks),
                self._options.transactional_id,
            )


def judge(options: ExactlyOnceOptions, batch: Marker, stored: FoundMarker, *, id_has_committed: bool) -> Decision:
    """Return the decision on a micro-batch, as the options have it.

    Raises:
        ExactlyOnceError: it must not be written.
    """
    return decide(
        batch,
        stored,
        fail_on_missing=options.fail_on_missing_marker,
        keep_on_mismatch=options.keep_on_marker_mismatch,
        id_has_committed=id_has_committed,
    )
