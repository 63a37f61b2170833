"""Exactly-once delivery of a stream's micro-batches, by either strategy, for Spark's writer.

Spark runs a task again, speculates, and repeats a whole micro-batch after a crash. So with *driver transaction* tasks send nothing,
and the driver is the only producer; with *task transactions* tasks write to the partitions' leaders, and the driver decides. Spark
plans the write of each micro-batch in one process on the driver, runs the tasks, and commits in another process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.options.sink import ExactlyOnceOptions, SinkOptions
from pykafka_wire.sink.exactly_once.commit import MicroBatchCommit
from pykafka_wire.sink.exactly_once.driver_transaction import DriverTransaction
from pykafka_wire.sink.exactly_once.fencing import FencingToken, fence_micro_batch
from pykafka_wire.sink.exactly_once.size_limit import default_max_bytes, missing_result_limit
from pykafka_wire.sink.exactly_once.task_transactions import TaskTransactions, abandon
from pykafka_wire.sink.exactly_once.tasks import encode_task, write_open_task
from pykafka_wire.sink.task_writer import TaskWriter
from pykafka_wire.wire.process_clients import shared_cluster

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
        """Does nothing: the driver fences earlier ones when it commits."""

    def write_task(self, rows: TaskWriter, batches: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        return encode_task(rows, batches, shared_cluster(self._client), self._max_bytes)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        cluster = shared_cluster(self._client)
        strategy = DriverTransaction(cluster, self._exactly_once, max_bytes=self._max_bytes)
        MicroBatchCommit(cluster, self._exactly_once, batch_id, strategy).run(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: no task has sent anything, and a failed commit has ended its transaction."""


class TaskTransactionsDelivery:
    """Each task's rows in a transaction of its own. Built without any request to a broker."""

    def __init__(self, options: SinkOptions, exactly_once: ExactlyOnceOptions) -> None:
        self._client = options.client
        self._exactly_once = exactly_once
        #: The driver's, which it gets before Spark sends this to the tasks.
        self._token: FencingToken | None = None

    def before_tasks(self) -> None:
        self._token = fence_micro_batch(shared_cluster(self._client), self._exactly_once)

    def write_task(self, rows: TaskWriter, batches: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        if self._token is None:
            raise ExactlyOnceError("the driver has no fencing token for its tasks: planned twice?")
        cluster = shared_cluster(self._client)
        return write_open_task(rows, batches, cluster, self._exactly_once.transactional_id, self._token)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        cluster = shared_cluster(self._client)
        strategy = TaskTransactions(cluster, self._exactly_once)
        MicroBatchCommit(cluster, self._exactly_once, batch_id, strategy).run(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Aborts the tasks' transactions, unless the micro-batch is decided. Attempts that failed have aborted their own."""
        abandon(shared_cluster(self._client), self._exactly_once, messages)


def _warn_of_result_limit(transactional_id: str) -> None:
    """Warn, before any task of a query's first micro-batch, of a driver whose heap its tasks' results may exceed."""
    # Spark builds a writer for every micro-batch.
    if is_first(transactional_id, "result limit") and (setting := missing_result_limit()) is not None:
        _log.warning(
            "Encoded micro-batches pass through the driver. The results of many tasks may exceed its heap before the sink can "
            "count them. Set %s, so that Spark stops such a micro-batch",
            setting,
        )
