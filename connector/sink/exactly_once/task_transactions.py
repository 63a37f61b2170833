"""The strategy *task transactions*: each task has written in a transaction of its own, and the driver decides and ends them.

docs/exactly-once.md has the states, and what happens after a crash at each point.

===============  =====================================================================================
step             what happens
===============  =====================================================================================
DECIDE           the partitions show the transactions open; the marker is committed with their list
END              each of them is committed
SETTLE           the marker is committed without the list
===============  =====================================================================================

A failure before DECIDE leaves nothing visible: :func:`abandon`, the next run, or their time-out aborts the transactions.
After it the micro-batch will be visible: a replay ends what is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.options.sink import ExactlyOnceOptions, SinkOptions
from pykafka_wire.sink.exactly_once.broker_limits import warn_of_timeout
from pykafka_wire.sink.exactly_once.commit import CommitOutcome, MicroBatchCommit, Progress, Step
from pykafka_wire.sink.exactly_once.fencing import FencingToken, fence_micro_batch
from pykafka_wire.sink.exactly_once.marker import DecidedTask, Marker, commit_marker, digest_text, read_markers
from pykafka_wire.sink.exactly_once.orphaned_transactions import clean_up, find_decided, is_latest
from pykafka_wire.sink.exactly_once.recovery import (
    READ_IS_NEEDED,
    commit_decided,
    find_not_open,
    is_ongoing,
    name_tasks,
)
from pykafka_wire.sink.exactly_once.tasks import OpenTask, write_open_task
from pykafka_wire.sink.task_writer import TaskWriter
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import BrokerError, UnsupportedVersionError, WireError
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.transactions.bulk import abort_all, describe_all
from pykafka_wire.wire.transactions.coordinator import init_transaction
from pykafka_wire.wire.transactions.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class TaskTransactionsDelivery:
    """Each task's rows in a transaction of its own. Built without any request to a broker."""

    def __init__(self, options: SinkOptions, exactly_once: ExactlyOnceOptions) -> None:
        self._client = options.client
        self._exactly_once = exactly_once
        #: The driver's, which it gets before Spark sends this to the tasks.
        self._token: FencingToken | None = None

    def before_tasks(self) -> None:
        self._token = fence_micro_batch(shared_cluster(self._client), self._exactly_once)

    def write_task(self, rows: TaskWriter, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._token is None:
            raise ExactlyOnceError("the driver has no fencing token for its tasks: planned twice?")
        cluster = shared_cluster(self._client)
        return write_open_task(rows, batches, cluster, self._exactly_once.transactional_id, self._token)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        cluster = shared_cluster(self._client)
        strategy = TaskTransactions(cluster, self._exactly_once)
        MicroBatchCommit(cluster, self._exactly_once, batch_id, strategy).run(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the tasks' transactions, unless the micro-batch is decided. Attempts that failed have aborted their own."""
        abandon(shared_cluster(self._client), self._exactly_once, messages)


class TaskTransactions:
    """Decides and ends one micro-batch; a :class:`~pykafka_wire.sink.exactly_once.commit.CommitStrategy`."""

    message_type = OpenTask

    def __init__(self, cluster: Cluster, options: ExactlyOnceOptions) -> None:
        self.progress = Progress()
        self._cluster = cluster
        self._options = options
        self._marker_writer: MarkerWriter

    def check(self, tasks: Sequence[OpenTask], batch: Marker) -> None:
        tokens = {task.token for task in tasks}
        if len(tokens) != 1:
            raise ExactlyOnceError(
                f"micro-batch {batch.batch_id} was not written: the messages to commit have {len(tokens)} fencing tokens of the "
                "driver; there must be one of each task, of one run."
            )

    @contextmanager
    def begin(self, tasks: Sequence[OpenTask], batch: Marker) -> Iterator[None]:
        # The driver has fenced earlier ones before the tasks started.
        self._marker_writer = MarkerWriter(self._cluster, self._options, tasks[0].token)
        try:
            yield
        finally:
            if self._marker_writer.in_doubt and self.progress.outcome is CommitOutcome.NOT_WRITTEN:
                self.progress.outcome = CommitOutcome.IN_DOUBT

    def settle_earlier(self, stored: Marker, replacing: Sequence[OpenTask], *, is_replay: bool) -> None:
        if replacing:
            decided = replace(stored.settle(), pending=list_decided(replacing))
            # With what is committed: where a part of a list is deleted, its rows are all rows without those of the others.
            self._marker_writer.write(replace(decided, pending=decided.pending + stored.pending))
            self._end(decided)
        self._settle(stored)

    def write(self, batch: Marker, tasks: Sequence[OpenTask]) -> None:
        decided = replace(batch, pending=list_decided(tasks))
        self._decide(decided, tasks[0].token)
        if decided.pending:
            self._end(decided)
            self._settle(decided)

    def _decide(self, marker: Marker, token: FencingToken) -> None:
        self.progress.step = Step.DECIDE
        took_s = time.time() - token.made_at
        self._check_open(marker, took_s)
        warn_of_timeout(self._cluster, marker.batch_id, took_s)
        self._marker_writer.write(marker)
        self.progress.outcome = CommitOutcome.DECIDED

    def _check_open(self, marker: Marker, took_s: float) -> None:
        """Look whether a transaction has timed out, or was aborted in a partition, while the micro-batch can simply be written
        again."""
        try:
            gone = find_not_open(self._cluster, marker.pending)
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
                    if (transaction := described.get(task.transaction.transactional_id)) is not None
                    and not is_ongoing(transaction, task.transaction)
                ]
        # If another driver has taken over, the decision is refused, with that as the reason.
        if gone and is_latest(self._cluster, self._marker_writer.handle):
            timeout_ms = self._cluster.settings.transaction_timeout_ms
            raise ExactlyOnceError(
                f"micro-batch {marker.batch_id} was not written: {len(gone)} of its {len(marker.pending)} transactions are no "
                f"longer open, and nothing was decided: {name_tasks(gone)}. A transaction ends after kafka.transaction.timeout.ms "
                f"({timeout_ms}), counted from its task's first record, or an administrator has aborted it. After a time-out raise "
                "that setting, or make micro-batches smaller. Then start the query again."
            )

    def _end(self, marker: Marker) -> None:
        self.progress.step = Step.END
        aborted = commit_decided(self._cluster, marker, fail_on_unchecked=False)
        if aborted:
            raise ExactlyOnceError(
                f"micro-batch {marker.batch_id} is decided, and {len(aborted)} of its {len(marker.pending)} transactions were "
                "aborted before they could be committed (kafka.transaction.timeout.ms, or an administrator): "
                f"{name_tasks(aborted)}. Start the query again: its replay writes the same rows in their place."
            )

    def _settle(self, marker: Marker) -> None:
        self.progress.step = Step.SETTLE
        self._marker_writer.write(marker.settle())

    def clean_up(self, unused: Sequence[OpenTask]) -> None:
        """Abort what does not count: this run's own transactions of a micro-batch that was there, and attempts that lost."""
        try:
            abort_all(self._cluster, [task.transaction for task in unused if task.transaction is not None])
        except WireError as error:
            _log.warning("Transactions that do not count stay open until their time-out: %s", error)
        clean_up(self._cluster, self._options, self._marker_writer.handle)


class MarkerWriter:
    """Commits markers under the driver's fencing token, each in a transaction of its own; fails if another driver has taken over.

    Attributes:
        handle: of the last transaction, as the coordinator has it; of the token before there is one.
        in_doubt: whether its commit was requested, and the outcome is unknown.
    """

    def __init__(self, cluster: Cluster, options: ExactlyOnceOptions, token: FencingToken) -> None:
        self.handle = token.handle
        self._has_written = False
        self.in_doubt = False
        self._cluster = cluster
        self._options = options

    def write(self, marker: Marker) -> None:
        """Commit a marker.

        Raises:
            ProducerFencedError: another driver has taken over the id.
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
        # Ends the driver's own transaction, also one whose commit is in doubt, or fails if another driver has taken over.
        init_transaction(cluster, options.transactional_id, successor_of=tasks[0].token.handle.identity)
        decided = find_decided(read_markers(cluster, options.transactional_id, options.marker_topic).values())
        if decided is not None:
            abort_all(cluster, [handle for handle in handles if handle.identity not in decided])
    except WireError as error:
        _log.warning(
            "%d transactions of tasks stay open until the next run, or their time-out: %s", len(handles), error
        )


def list_decided(tasks: Sequence[OpenTask]) -> tuple[DecidedTask, ...]:
    """Return the tasks' transactions, as a marker lists them."""
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
