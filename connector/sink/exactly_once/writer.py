"""Writing exactly once: tasks encode, and the driver writes each micro-batch in one transaction with a marker of it.

Spark runs a task again, speculates, or repeats a whole micro-batch after a crash. So executors send nothing: a task's commit
message carries its encoded record batches. ``commit`` on the driver is the only producer. It fences whoever held the
transactional id before (InitProducerId), reads the marker, and writes records and marker in one transaction, or nothing where
the marker says that the micro-batch is there already (:mod:`~pykafka_wire.sink.exactly_once.marker`).

Spark's ``abort`` runs in a process of its own that knows no epoch: a ``commit`` that fails ends its transaction itself.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.sink import ExactlyOnceOptions, SinkOptions
from pykafka_wire.sink.exactly_once.marker import Marker
from pykafka_wire.sink.exactly_once.size_limit import default_max_bytes, unguarded
from pykafka_wire.sink.rows import Rows
from pykafka_wire.sink.writer import KafkaStreamWriter, TaskWritten, Writing
from pykafka_wire.wire.cluster.admin import describe_broker_configs
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.groups.offsets import fetch_offsets
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.produce.batch_limits import BatchLimits
from pykafka_wire.wire.records.arrays import binary_array, binary_scalar
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.topics import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction, known_of

_log = logging.getLogger(__name__)

#: Set by Spark for the tasks of a micro-batch; a stream's write() is given neither.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RETENTION: Final = "offsets.retention.minutes"
#: Kafka's default of it: an idle query's marker is worth a word up to there.
_DEFAULT_RETENTION_MINUTES: Final = 7 * 24 * 60


@dataclass(frozen=True)
class EncodedTask(WriterCommitMessage):
    """What one task encoded; its batches' producer fields are blank.

    Attributes:
        digest: sum over the rows, so that those of several tasks add up to the micro-batch's.
    """

    query_id: str
    batch_id: int
    task: int
    batches: dict[TopicPartition, list[EncodedBatch]]
    n_records: int
    n_bytes: int
    digest: int


class ExactlyOnceStreamWriter(KafkaStreamWriter):
    """Writes each micro-batch's rows in a transaction of its own. Built without any broker being asked."""

    def __init__(self, options: SinkOptions, exactly_once: ExactlyOnceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # Spark builds a writer on the driver, also the one that it pickles for the tasks.
        self._max_bytes = exactly_once.max_bytes or default_max_bytes()
        _say_unguarded(os.getpid())
        self._writing = _Encoding(options, schema, self._max_bytes)
        self._client = options.client
        self._exactly_once = exactly_once

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Writes the micro-batch, unless it is there already.

        Raises:
            ExactlyOnceError: it was not written, or nobody can tell by now; says which, and why.
        """
        cluster = shared_cluster(self._client)
        commit_batch(cluster, self._exactly_once, batchId, messages, max_bytes=self._max_bytes)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was sent, or commit has ended its transaction."""


class _Encoding(Writing):
    """Rows to encoded batches, kept."""

    def __init__(self, options: SinkOptions, schema: StructType, max_bytes: int) -> None:
        super().__init__(options, schema)
        self._max_bytes = max_bytes

    def write_batches(self, batches: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context else None
        batch_id = context.getLocalProperty(_BATCH_ID) if context else None
        if context is None or query_id is None or batch_id is None:
            raise ExactlyOnceError(f"Spark does not say which micro-batch this is ({_QUERY_ID}, {_BATCH_ID}).")
        collected = _Collected(shared_cluster(self._options.client), int(batch_id), self._max_bytes)
        digest = 0

        def digested() -> Iterator[Any]:
            nonlocal digest
            for batch in batches:
                if batch.num_rows:
                    digest += digest_of(self.columns.rows(batch))
                yield batch

        written: TaskWritten = self.append_all(collected, digested())
        return EncodedTask(
            query_id=query_id,
            batch_id=int(batch_id),
            task=context.partitionId(),
            batches=collected.batches,
            n_records=written.n_records,
            n_bytes=written.n_bytes,
            digest=digest,
        )


class _Collected:
    """Stands where a producer stands in a write at least once, and keeps what it is given."""

    def __init__(self, cluster: Cluster, batch_id: int, max_bytes: int) -> None:
        self.batches: dict[TopicPartition, list[EncodedBatch]] = {}
        self._cluster = cluster
        self._batch_id = batch_id
        self._max_bytes = max_bytes
        self._n_bytes = 0

    def partitions_for(self, topic: str) -> int:
        max_age_ms = self._cluster.settings.metadata_max_age_ms
        return len(self._cluster.topics([topic], max_age_ms=max_age_ms)[topic].partitions)

    def max_batch_bytes(self, topic: str) -> int | None:
        return _batch_limits(self._cluster).limit(topic)

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            self.batches.setdefault(TopicPartition(topic, partition), []).append(batch)
            self._n_bytes += len(batch.data)
        if self._n_bytes > self._max_bytes:
            raise _too_large(self._batch_id, self._n_bytes, self._max_bytes)


@functools.cache
def _batch_limits(cluster: Cluster) -> BatchLimits:
    return BatchLimits(cluster, cluster.settings)


def digest_of(rows: Rows) -> int:
    """A number for what ``rows`` hold, the sum of one for each: their order and their split into batches do not matter.

    Record timestamps are left out, for a null one is the time of writing. So are partitions that this client chose.
    """
    partition = None if rows.partition is None else rows.partition.cast(pa.string())
    headers = None if rows.headers is None else binary_array([repr(each).encode() for each in rows.headers.to_pylist()])
    columns = [rows.key, rows.value, rows.topic, partition, headers]
    present = [array.cast(pa.binary()) for array in columns if array is not None]
    joined = pc.binary_join_element_wise(
        *present, binary_scalar(b"\0"), null_handling="replace", null_replacement=b"\0null"
    )
    return sum(map(crc32c, joined.to_pylist()))


def commit_batch(
    cluster: Cluster,
    options: ExactlyOnceOptions,
    batch_id: int,
    messages: Sequence[WriterCommitMessage | None],
    *,
    max_bytes: int,
) -> bool:
    """Writes a micro-batch from its tasks' messages in one transaction; False where it is in Kafka already.

    Raises:
        ExactlyOnceError: it was not written, or nobody can tell by now.
    """
    tasks, marker = _checked(messages, batch_id)
    n_bytes = sum(task.n_bytes for task in tasks)
    if n_bytes > max_bytes:
        raise _too_large(batch_id, n_bytes, max_bytes)
    batches: dict[TopicPartition, list[EncodedBatch]] = {}
    for task in tasks:
        for tp, encoded in task.batches.items():
            batches.setdefault(tp, []).extend(encoded)
    transactional_id = options.transactional_id
    place = TopicPartition(options.marker_topic, 0)
    group = marker_group(transactional_id)
    transaction: Transaction | None = None
    try:
        _say_at_start(os.getpid(), cluster, transactional_id)
        with Transaction.begin(cluster, transactional_id) as transaction:
            # Nothing is pending on the marker any more: begin() has seen the transaction before to its end.
            found = fetch_offsets(cluster, group, [place], require_stable=True).get(place)
            if marker.is_written(Marker.from_committed(found), fail_on_missing=options.fail_on_missing_marker):
                _log.info("Micro-batch %d is in Kafka already: skipped", batch_id)
                return False
            transaction.produce(batches)
            transaction.commit_offsets(group, {place: marker.to_committed()})
            transaction.commit()
    except WireError as error:
        outcome = (
            "may or may not be in Kafka, its marker will tell"
            if transaction is not None and transaction.in_doubt
            else "was not written"
        )
        raise ExactlyOnceError(f"micro-batch {batch_id} {outcome}: {error.text} Then start the query again.") from error
    _log.info(
        "Micro-batch %d: wrote %d records (%d bytes) of %d tasks as %r, %s",
        batch_id,
        marker.n_records,
        n_bytes,
        len(tasks),
        transactional_id,
        transaction.dialect.name,
    )
    return True


def marker_group(transactional_id: str) -> str:
    """The consumer group that holds the marker; a prefix ACL for the transactional id covers it."""
    return f"{transactional_id}.marker"


def _checked(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> tuple[list[EncodedTask], Marker]:
    """The messages by task, and the marker that they make: one of each task, of one query, and of this micro-batch."""
    tasks = sorted((m for m in messages if isinstance(m, EncodedTask)), key=lambda task: task.task)
    queries = {task.query_id for task in tasks}
    numbers = [task.task for task in tasks]
    whole = len(tasks) == len(messages) and numbers == list(range(len(tasks)))
    if not whole or len(queries) != 1 or any(task.batch_id != batch_id for task in tasks):
        raise ExactlyOnceError(
            f"micro-batch {batch_id} was not written: the {len(messages)} messages to commit are of the tasks {numbers}, "
            f"of micro-batches {sorted({task.batch_id for task in tasks})} and of queries {sorted(queries)}; there must be "
            "one of each task."
        )
    digest = sum(task.digest for task in tasks) & 0xFFFFFFFFFFFFFFFF
    return tasks, Marker(
        query_id=queries.pop(),
        batch_id=batch_id,
        n_records=sum(task.n_records for task in tasks),
        digest=f"{digest:016x}",
    )


def _too_large(batch_id: int, n_bytes: int, max_bytes: int) -> ExactlyOnceError:
    return ExactlyOnceError(
        f"micro-batch {batch_id} was not written: it has {n_bytes} bytes or more, and the driver, through which all of it "
        f"passes, may take {max_bytes}. Set maxOffsetsPerTrigger on the source so that micro-batches are smaller, or raise "
        "maxTransactionBytes, on a driver with at least eight times as much of spark.driver.memory."
    )


@functools.cache
def _say_unguarded(pid: int) -> None:
    """Warn, before any task of a process's first micro-batch, of a driver that may die of what its tasks send."""
    if (setting := unguarded()) is not None:
        _log.warning(
            "Encoded micro-batches pass through the driver, whose heap they may outgrow before the sink can count them. "
            "Set %s, so that Spark stops such a micro-batch",
            setting,
        )


@functools.cache
def _say_at_start(pid: int, cluster: Cluster, transactional_id: str) -> None:
    """What is worth a warning when a process first commits: who uses the id, and how long the marker lives."""
    found = known_of(cluster, transactional_id)
    if found is not None and found.is_open:
        _log.warning(
            "The transactional id %r has a transaction open, which is ended now: %s. After a crash it is the query's own; "
            "else another producer uses the id.",
            transactional_id,
            found,
        )
    try:
        minutes = int(describe_broker_configs(cluster, next(iter(cluster.brokers())), [_RETENTION])[_RETENTION] or 0)
    except (WireError, KeyError):
        _log.info("The brokers do not say %s: a query idle for longer loses its marker, and fails", _RETENTION)
        return
    level = logging.WARNING if 0 < minutes <= _DEFAULT_RETENTION_MINUTES else logging.INFO
    _log.log(
        level,
        "The marker of %r outlives %.1f days (%s=%d): a query idle for longer fails at its next micro-batch. Raise the "
        "brokers' setting if it may be",
        transactional_id,
        minutes / (24 * 60),
        _RETENTION,
        minutes,
    )
