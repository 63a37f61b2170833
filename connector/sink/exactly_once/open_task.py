"""A task's part of an exactly-once write through the tasks: write in a transaction of its own, and leave it open.

The driver decides (:mod:`~pykafka_wire.sink.exactly_once.tasks_commit`). An attempt that fails aborts its transaction; one that is
killed leaves it to the driver of the next micro-batch (:mod:`~pykafka_wire.sink.exactly_once.leftovers`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.sink.columns import RecordColumns
from pykafka_wire.sink.exactly_once.claim import Claim
from pykafka_wire.sink.exactly_once.digest import digest_of
from pykafka_wire.sink.exactly_once.marker import WrittenRange
from pykafka_wire.sink.exactly_once.task_context import TaskOfMicroBatch, running_task
from pykafka_wire.sink.exactly_once.task_ids import next_task_id
from pykafka_wire.sink.task_writer import TaskWriter
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.produce.write_results import WriteResult
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.coordinator import TransactionHandle
from pykafka_wire.wire.transactions.transaction import Transaction

_NOT_ALLOWED: Final = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


@dataclass(frozen=True)
class OpenTask(WriterCommitMessage):
    """A task's commit message: where it has written what.

    Attributes:
        task: the task's index in its stage.
        claim: the driver's, as it was when the micro-batch was planned.
        transaction: it is open; None if the task has no rows.
        digest: of the task's rows; those of all tasks add up to the micro-batch's.
    """

    query_id: str
    batch_id: int
    task: int
    claim: Claim
    transaction: TransactionHandle | None
    n_records: int
    n_bytes: int
    digest: int
    ranges: tuple[WrittenRange, ...]


class OpenTransactionTaskWriter(TaskWriter):
    """Writes a task's rows in a transaction that it leaves open.

    Attributes:
        claim: the driver's, which it makes before Spark sends this to the tasks.
    """

    def __init__(self, options: SinkOptions, schema: StructType, transactional_id: str) -> None:
        super().__init__(options, schema)
        self.claim: Claim | None = None
        self._transactional_id = transactional_id

    def write(self, batches: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        """The commit message of one task's Arrow batches, all of whose records are acknowledged.

        Raises:
            ExactlyOnceError: the micro-batch is unknown.
            WireError: a record was not written.
        """
        running = running_task()
        if self.claim is None:
            raise ExactlyOnceError("the driver has not claimed the transactional id before its tasks: planned twice?")
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return OpenTask(*running, self.claim, None, n_records=0, n_bytes=0, digest=0, ranges=())
        return self._write(running, self.claim, itertools.chain([first], batches))

    def _write(self, running: TaskOfMicroBatch, claim: Claim, batches: Iterator[Any]) -> OpenTask:
        digest = 0

        def add_digest(records: RecordColumns) -> None:
            nonlocal digest
            digest += digest_of(records)

        with self._begin(running) as transaction:
            written = self.append_all(transaction, batches, add_digest)
            ranges = ranges_of(transaction.flush())
            handle = transaction.leave_open()
        return OpenTask(
            *running,
            claim,
            handle,
            n_records=written.n_records,
            n_bytes=written.n_bytes,
            digest=digest,
            ranges=ranges,
        )

    def _begin(self, running: TaskOfMicroBatch) -> Transaction:
        cluster = shared_cluster(self._options.client)
        try:
            return Transaction.begin(cluster, next_task_id(self._transactional_id, running.query_id, running.batch_id))
        except BrokerError as error:
            if error.name == _NOT_ALLOWED:
                error.remedy = (
                    "With transactions=tasks the principal needs Write and Describe on all transactional ids that begin with "
                    f"{self._transactional_id!r}: kafka-acls.sh --add --allow-principal User:YOU --operation Write --operation "
                    f"Describe --transactional-id {self._transactional_id} --resource-pattern-type prefixed."
                )
            raise


def ranges_of(results: Mapping[TopicPartition, WriteResult]) -> tuple[WrittenRange, ...]:
    """Where a task's records are, by what its producer has written."""
    return tuple(
        WrittenRange(tp.topic, tp.partition, written.first_offset, written.last_offset)
        for tp, written in results.items()
    )
