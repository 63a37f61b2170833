"""A task's part of an exactly-once write: encode the rows and return them to the driver; nothing is sent to Kafka.

Spark may run a task twice, speculatively or after a failure. An attempt that does not count leaves nothing behind.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.sink.columns import RecordColumns
from pykafka_wire.sink.exactly_once.digest import digest_of
from pykafka_wire.sink.exactly_once.size_limit import too_large
from pykafka_wire.sink.exactly_once.task_context import running_task
from pykafka_wire.sink.task_writer import TaskWriter
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.produce.batch_limits import BatchLimits
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.topic_partitions import TopicPartition


@dataclass(frozen=True)
class EncodedTask(WriterCommitMessage):
    """A task's commit message: its encoded record batches, with blank producer fields.

    Attributes:
        task: the task's index in its stage.
        digest: of the task's rows; those of all tasks add up to the micro-batch's.
    """

    query_id: str
    batch_id: int
    task: int
    batches: dict[TopicPartition, list[EncodedBatch]]
    n_records: int
    n_bytes: int
    digest: int


class EncodingTaskWriter(TaskWriter):
    """Encodes a task's rows and keeps the batches."""

    def __init__(self, options: SinkOptions, schema: StructType, max_bytes: int) -> None:
        super().__init__(options, schema)
        self._max_bytes = max_bytes

    def write(self, batches: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        """The commit message of one task's Arrow batches.

        Raises:
            ExactlyOnceError: the task alone has more than the micro-batch may have.
        """
        running = running_task()
        collected = CollectedBatches(shared_cluster(self._options.client), running.batch_id, self._max_bytes)
        digest = 0

        def add_digest(records: RecordColumns) -> None:
            nonlocal digest
            digest += digest_of(records)

        written = self.append_all(collected, batches, add_digest)
        return EncodedTask(
            query_id=running.query_id,
            batch_id=running.batch_id,
            task=running.task,
            batches=collected.batches,
            n_records=written.n_records,
            n_bytes=written.n_bytes,
            digest=digest,
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


@functools.cache
def _batch_limits(cluster: Cluster) -> BatchLimits:
    return BatchLimits(cluster, cluster.settings)
