"""The strategy *driver transaction*: the driver writes a micro-batch and its marker in one transaction.

Spark runs a task again, speculates, and repeats a whole micro-batch after a crash. So tasks send nothing: they encode their rows
for the driver, the only producer.

============  =========================================================================================
step          what happens
============  =========================================================================================
INSPECT       the state of the transactional id is read, for warnings and for micro-batch 0
FENCE         InitProducerId fences an earlier driver and ends the transaction that it left open
WRITE         the records are produced
MARK          the marker is written, as an offset commit of the transaction
COMMIT        the partitions show the transaction open; EndTxn makes records and marker visible at once
============  =========================================================================================

A failure before COMMIT is sent leaves nothing visible; the outcome of a COMMIT without a response is unknown, and the next run
of the micro-batch finds it by the marker. Spark's ``abort`` runs in a process of its own that does not know the producer epoch: a
commit that fails ends its transaction itself, before it raises.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.options.sink import ExactlyOnceOptions, SinkOptions
from pykafka_wire.sink.exactly_once.broker_limits import warn_of_expiry
from pykafka_wire.sink.exactly_once.commit import CommitOutcome, MicroBatchCommit, Progress, Step, judge
from pykafka_wire.sink.exactly_once.decision import marker_of
from pykafka_wire.sink.exactly_once.fencing import once_per_process
from pykafka_wire.sink.exactly_once.marker import Marker, commit_marker, read_markers
from pykafka_wire.sink.exactly_once.orphaned_transactions import clean_up, own_id_has_committed
from pykafka_wire.sink.exactly_once.recovery import READ_IS_NEEDED, closed_in_partitions, is_left
from pykafka_wire.sink.exactly_once.size_limit import default_max_bytes, missing_result_limit, too_large
from pykafka_wire.sink.exactly_once.tasks import EncodedTask, encode_task
from pykafka_wire.sink.task_writer import TaskWriter
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import last_known_state
from pykafka_wire.wire.errors import BrokerError, UnsupportedVersionError
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class DriverTransactionDelivery:
    """Each micro-batch in one transaction of the driver's. Built without any request to a broker."""

    def __init__(self, options: SinkOptions, exactly_once: ExactlyOnceOptions) -> None:
        # Spark builds a writer on the driver, also the one that it pickles for the tasks.
        self._max_bytes = exactly_once.max_bytes or default_max_bytes()
        _warn_of_result_limit(exactly_once.transactional_id)
        self._client = options.client
        self._exactly_once = exactly_once

    def before_tasks(self) -> None:
        """Do nothing: the driver fences earlier ones when it commits."""

    def write_task(self, rows: TaskWriter, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return encode_task(rows, batches, shared_cluster(self._client), self._max_bytes)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        cluster = shared_cluster(self._client)
        strategy = DriverTransaction(cluster, self._exactly_once, max_bytes=self._max_bytes)
        MicroBatchCommit(cluster, self._exactly_once, batch_id, strategy).run(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: no task has sent anything, and a failed commit has ended its transaction."""


def _warn_of_result_limit(transactional_id: str) -> None:
    """Warn, before any task of a query's first micro-batch, of a driver whose heap its tasks' results may exceed."""
    # Spark builds a writer for every micro-batch.
    if is_first(transactional_id, "result limit") and (setting := missing_result_limit()) is not None:
        _log.warning(
            "Encoded micro-batches pass through the driver. The results of many tasks may exceed its heap before the sink can "
            "count them. Set %s, so that Spark stops such a micro-batch",
            setting,
        )


class DriverTransaction:
    """Writes one micro-batch; a :class:`~pykafka_wire.sink.exactly_once.commit.CommitStrategy`."""

    message_type = EncodedTask

    def __init__(self, cluster: Cluster, options: ExactlyOnceOptions, *, max_bytes: int) -> None:
        self.progress = Progress()
        self._cluster = cluster
        self._options = options
        self._max_bytes = max_bytes
        self._transaction: Transaction

    def check(self, tasks: Sequence[EncodedTask], batch: Marker) -> None:
        n_bytes = sum(task.n_bytes for task in tasks)
        if n_bytes > self._max_bytes:
            raise too_large(batch.batch_id, n_bytes, self._max_bytes)

    @contextmanager
    def begin(self, tasks: Sequence[EncodedTask], batch: Marker) -> Iterator[None]:
        self._inspect(batch)
        self.progress.step = Step.FENCE
        self._transaction = Transaction.begin(self._cluster, self._options.transactional_id)
        try:
            with self._transaction:
                yield
        finally:
            if self._transaction.in_doubt and self.progress.outcome is CommitOutcome.NOT_WRITTEN:
                self.progress.outcome = CommitOutcome.IN_DOUBT

    def _inspect(self, batch: Marker) -> None:
        """Warn of what a new process should know. Refuse micro-batch 0 if its marker is lost: the transactional id has
        committed, which this query does only together with a marker. FENCE would change the id's state, so this is first,
        except that a marker's list is ended before anything is refused.
        """
        self.progress.step = Step.INSPECT
        transactional_id = self._options.transactional_id
        once_per_process(self._cluster, self._options, _warn_at_start)
        if batch.batch_id == 0 and own_id_has_committed(self._cluster, transactional_id):
            markers = read_markers(self._cluster, transactional_id, self._options.marker_topic)
            stored = marker_of(batch, markers, self._options.marker_topic)
            if not is_left(stored, batch, fail_on_missing=self._options.fail_on_missing_marker):
                judge(self._options, batch, stored, id_has_committed=True)

    def settle_earlier(self, stored: Marker, replacing: Sequence[EncodedTask], *, is_replay: bool) -> None:
        # The marker of the micro-batch before is replaced together with the next one's records.
        if is_replay:
            self.write(stored.settle(), replacing)

    def write(self, batch: Marker, tasks: Sequence[EncodedTask]) -> None:
        first_offsets = self._write(tasks)
        self._mark(batch)
        self.progress.step = Step.COMMIT
        self._check_open(batch, first_offsets)
        self._transaction.commit()

    def _write(self, tasks: Sequence[EncodedTask]) -> dict[TopicPartition, int]:
        """Return where the records begin."""
        self.progress.step = Step.WRITE
        batches: dict[TopicPartition, list[EncodedBatch]] = {}
        for task in tasks:
            for tp, encoded in task.batches.items():
                batches.setdefault(tp, []).extend(encoded)
        return {tp: written.first_offset for tp, written in self._transaction.produce(batches).items()}

    def _mark(self, batch: Marker) -> None:
        self.progress.step = Step.MARK
        commit_marker(self._transaction, self._options, batch)

    def _check_open(self, batch: Marker, first_offsets: dict[TopicPartition, int]) -> None:
        """Fail where an administrator has aborted the transaction in a partition, while it can simply be written again."""
        try:
            closed = closed_in_partitions(self._cluster, {self._transaction.handle: first_offsets})
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
                f"micro-batch {batch.batch_id} was not written: its transaction is no longer open in a partition of "
                f"{', '.join(sorted({tp.topic for tp in first_offsets}))}. It has timed out (kafka.transaction.timeout.ms), or an "
                "administrator has aborted it (kafka-transactions.sh abort). Start the query again."
            )

    def clean_up(self, unused: Sequence[EncodedTask]) -> None:
        """Abort what tasks have left open, at a process's first commit. Only after a decision: where the marker is lost, what is
        open may be decided."""
        once_per_process(self._cluster, self._options, clean_up, self._transaction.last_handle)


def _warn_at_start(cluster: Cluster, options: ExactlyOnceOptions) -> None:
    """Log who uses the transactional id, and how long the marker lives."""
    state = last_known_state(cluster, options.transactional_id)
    if state is not None and state.is_open:
        _log.warning(
            "The transactional id %r has an open transaction, which is ended now: %s. After a crash it is the query's own; "
            "otherwise another producer uses the id",
            options.transactional_id,
            state,
        )
    warn_of_expiry(cluster, options.transactional_id)
