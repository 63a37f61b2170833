"""What a task does in an exactly-once write: encode its rows for the driver, or write them in a transaction that it leaves open.

With *driver transaction* a task sends nothing to Kafka, so an attempt that does not count leaves nothing behind. With *task
transactions* an attempt that fails aborts its transaction; one that is killed leaves it to the driver
(:mod:`~pykafka_wire.sink.exactly_once.orphaned_transactions`). Either way the task's commit message has the digest of its rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.batch_builder import BatchDestination
from pykafka_wire.sink.columns import RecordColumns
from pykafka_wire.sink.exactly_once.digest import digest_of
from pykafka_wire.sink.exactly_once.fencing import FencingToken
from pykafka_wire.sink.exactly_once.marker import WrittenRange
from pykafka_wire.sink.exactly_once.size_limit import too_large
from pykafka_wire.sink.exactly_once.task_ids import next_task_id
from pykafka_wire.sink.task_writer import TaskWriter, WrittenTask
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.produce.batch_limits import BatchLimits
from pykafka_wire.wire.produce.write_results import WriteResult
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.coordinator import TransactionHandle
from pykafka_wire.wire.transactions.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

#: Spark's properties of a task: a streaming writer's ``write`` does not get them.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class TaskOfMicroBatch(NamedTuple):
    """The running task; ``task`` is its index in its stage."""

    query_id: str
    batch_id: int
    task: int


@dataclass(frozen=True, kw_only=True)
class TaskMessage(WriterCommitMessage):
    """A task's commit message.

    Attributes:
        task: the task's index in its stage.
        digest: of the task's rows; those of all tasks add up to the micro-batch's.
    """

    query_id: str
    batch_id: int
    task: int
    n_records: int
    n_bytes: int
    digest: int


@dataclass(frozen=True, kw_only=True)
class EncodedTask(TaskMessage):
    """A task's encoded record batches, with blank producer fields."""

    batches: dict[TopicPartition, list[EncodedBatch]]


@dataclass(frozen=True, kw_only=True)
class OpenTask(TaskMessage):
    """Where a task has written what.

    Attributes:
        token: the driver's, as it was when the micro-batch was planned.
        transaction: it is open; None if the task has no rows.
    """

    token: FencingToken
    transaction: TransactionHandle | None
    ranges: tuple[WrittenRange, ...]


def running_task() -> TaskOfMicroBatch:
    """Return the task that this process runs.

    Raises:
        ExactlyOnceError: Spark has not set the properties.
    """
    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_ID) if context else None
    batch_id = context.getLocalProperty(_BATCH_ID) if context else None
    if context is None or query_id is None or batch_id is None:
        raise ExactlyOnceError(
            f"the micro-batch is unknown: Spark has not set the task's properties {_QUERY_ID} and {_BATCH_ID}."
        )
    return TaskOfMicroBatch(query_id, int(batch_id), context.partitionId())


def encode_task(rows: TaskWriter, batches: Iterator[pa.RecordBatch], cluster: Cluster, max_bytes: int) -> EncodedTask:
    """Encode one task's Arrow batches.

    Raises:
        ExactlyOnceError: the task alone has more bytes than the micro-batch may have.
    """
    running = running_task()
    collected = CollectedBatches(cluster, running.batch_id, max_bytes)
    written, digest = _append(rows, collected, batches)
    return EncodedTask(
        **running._asdict(),
        n_records=written.n_records,
        n_bytes=written.n_bytes,
        digest=digest,
        batches=collected.batches,
    )


def write_open_task(
    rows: TaskWriter, batches: Iterator[pa.RecordBatch], cluster: Cluster, transactional_id: str, token: FencingToken
) -> OpenTask:
    """Write one task's Arrow batches in a transaction that is left open; all of its records are acknowledged.

    Raises:
        ExactlyOnceError: the micro-batch is unknown.
        WireError: a record was not written.
    """
    running = running_task()
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return OpenTask(**running._asdict(), n_records=0, n_bytes=0, digest=0, token=token, transaction=None, ranges=())
    with _begin(cluster, transactional_id, running) as transaction:
        written, digest = _append(rows, transaction, itertools.chain([first], batches))
        ranges = ranges_of(transaction.flush())
        handle = transaction.leave_open()
    return OpenTask(
        **running._asdict(),
        n_records=written.n_records,
        n_bytes=written.n_bytes,
        digest=digest,
        token=token,
        transaction=handle,
        ranges=ranges,
    )


def _append(
    rows: TaskWriter, destination: BatchDestination, batches: Iterator[pa.RecordBatch]
) -> tuple[WrittenTask, int]:
    """Append all rows to a destination; the digest of the rows."""
    digest = 0

    def add_digest(records: RecordColumns) -> None:
        nonlocal digest
        digest += digest_of(records)

    return rows.append_all(destination, batches, add_digest), digest


def _begin(cluster: Cluster, transactional_id: str, running: TaskOfMicroBatch) -> Transaction:
    try:
        return Transaction.begin(cluster, next_task_id(transactional_id, running.query_id, running.batch_id))
    except BrokerError as error:
        if error.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            error.remedy = (
                "With transactions=tasks the principal needs Write and Describe on all transactional ids that begin with "
                f"{transactional_id!r}: kafka-acls.sh --add --allow-principal User:YOU --operation Write --operation "
                f"Describe --transactional-id {transactional_id} --resource-pattern-type prefixed."
            )
        raise


def ranges_of(results: Mapping[TopicPartition, WriteResult]) -> tuple[WrittenRange, ...]:
    """Return where a task's records are, by what its producer has written."""
    return tuple(
        WrittenRange(tp.topic, tp.partition, written.first_offset, written.last_offset)
        for tp, written in results.items()
    )


class CollectedBatches:
    """The destination of a task's batches, in place of a producer: it keeps them, up to a limit."""

    def __init__(self, cluster: Cluster, batch_id: int, max_bytes: int) -> None:
        self.batches: dict[TopicPartition, list[EncodedBatch]] = {}
        self._cluster = cluster
        self._batch_id = batch_id
        self._max_bytes = max_bytes
        self._n_bytes = 0

    def partitions_for(self, topic: str) -> int:
        max_age_ms = self._cluster.settings.metadata_max_age_ms
        return len(self._cluster.metadata.topics([topic], max_age_ms=max_age_ms)[topic].partitions)

    def max_batch_bytes(self, topic: str) -> int | None:
        return _batch_limits(self._cluster).limit(topic)

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            self.batches.setdefault(TopicPartition(topic, partition), []).append(batch)
            self._n_bytes += len(batch.data)
        if self._n_bytes > self._max_bytes:
            raise too_large(self._batch_id, self._n_bytes, self._max_bytes)


@functools.lru_cache(maxsize=1)  # a worker's tasks share it, as they share the cluster
def _batch_limits(cluster: Cluster) -> BatchLimits:
    return BatchLimits(cluster, cluster.settings)
