"""Spark's writer for ``transactions=tasks``: tasks write to the partitions' leaders, and the driver decides.

Spark plans the write of each micro-batch in one process on the driver (:mod:`~pykafka_wire.sink.exactly_once.claim`), runs the
tasks (:mod:`~pykafka_wire.sink.exactly_once.open_task`), and commits in another process
(:mod:`~pykafka_wire.sink.exactly_once.tasks_commit`). The protocol is in docs/exactly-once.md.
"""

from __future__ import annotations

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.options.sink import ExactlyOnceOptions, SinkOptions
from pykafka_wire.sink.exactly_once.claim import claim_micro_batch
from pykafka_wire.sink.exactly_once.open_task import OpenTransactionTaskWriter
from pykafka_wire.sink.exactly_once.tasks_commit import TasksCommit, abandon
from pykafka_wire.sink.writer import KafkaStreamWriter
from pykafka_wire.wire.process_clients import shared_cluster


class TasksStreamWriter(KafkaStreamWriter):
    """Writes each task's rows in a transaction of its own. Built without any request to a broker."""

    def __init__(self, options: SinkOptions, exactly_once: ExactlyOnceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._task_writer: OpenTransactionTaskWriter = OpenTransactionTaskWriter(
            options, schema, exactly_once.transactional_id
        )
        self._exactly_once = exactly_once

    def before_tasks(self) -> None:
        """Claim the transactional id for the micro-batch whose tasks get this writer.

        Raises:
            ExactlyOnceError: the marker is lost, or the id cannot be claimed.
        """
        self._task_writer.claim = claim_micro_batch(shared_cluster(self._options.client), self._exactly_once)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Makes the micro-batch visible, unless it is already.

        Raises:
            ExactlyOnceError: not all of it is visible; the text says what the next run does about it, and why.
        """
        TasksCommit(shared_cluster(self._options.client), self._exactly_once, batchId).run(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Aborts the tasks' transactions, unless the micro-batch is decided. Attempts that failed have aborted their own."""
        abandon(shared_cluster(self._options.client), self._exactly_once, messages)
