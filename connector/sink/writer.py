"""Writing at least once: a task encodes its rows as record batches and sends them to each partition's leader.

The producer is idempotent and waits for ``acks=all`` by default: its own retries never duplicate. Duplicates come only
from Spark, when it runs a task or a micro-batch again. A task whose records were not all acknowledged fails.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.errors import WriteError
from pykafka_wire.options import SinkOptions
from pykafka_wire.sink.rows import Rows, SinkColumns
from pykafka_wire.wire.batches import EncodedBatch
from pykafka_wire.wire.cluster import shared_cluster
from pykafka_wire.wire.encode import encode_batches
from pykafka_wire.wire.partitioner import partitions_of
from pykafka_wire.wire.producer import shared_producer

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    _STREAM_GETS_ARROW = True
except ImportError:  # Spark 4.0 hands rows to a streaming writer
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter  # type: ignore[assignment]

    _STREAM_GETS_ARROW = False

_log = logging.getLogger(__name__)

#: Uncompressed bytes of one record batch: below the brokers' default message.max.bytes (1 MiB and 12 bytes) with room
#: for the batch's header, and large enough that per-batch costs vanish.
_MAX_BATCH_BYTES: Final = 960 * 1024
#: Rows without key go to one partition for about so many bytes, then to the next: many small batches would cost more.
_STICKY_BYTES: Final = 64 * 1024
#: Rows per Arrow batch where Spark hands over rows (4.0, streaming).
_ROWS_PER_BATCH: Final = 10_000


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """What one task wrote."""

    n_records: int
    n_bytes: int


class Destination(Protocol):
    """Where encoded batches go: a producer, or what keeps them for the driver."""

    def partitions_for(self, topic: str) -> int: ...

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None: ...


class Writing:
    """What batch and streaming writes share. Built without any I/O: Spark pickles it, twice a batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._columns = SinkColumns.of(schema, options.topic)
        self._options = options
        self._schema = schema

    def write_batches(self, batches: Iterator[Any]) -> WriterCommitMessage:
        """One task's Arrow batches to their leaders."""
        with shared_producer(self._options.client) as producer:
            written = self.append_all(producer, batches)
            producer.flush()
        return written

    def append_all(self, destination: Destination, batches: Iterator[Any]) -> TaskWritten:
        """Encodes and hands over all rows, each to its topic-partition."""
        router = _Router(destination, self._options)
        n_records = n_bytes = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            for topic, partition, rows in router.route(self._columns.rows(batch)):
                encoded = encode_batches(
                    key=rows.key,
                    value=rows.value,
                    headers=rows.headers,
                    timestamp=rows.timestamp_ms,
                    codec=self._options.codec,
                    level=self._options.client.compression_level,
                    max_batch_bytes=min(_MAX_BATCH_BYTES, self._options.client.max_request_size),
                )
                destination.append(topic, partition, encoded)
                n_records += rows.n_rows
                n_bytes += sum(len(b.data) for b in encoded)
        return TaskWritten(n_records, n_bytes)

    @staticmethod
    def log_commit(messages: list[WriterCommitMessage | None], what: str) -> None:
        written = [message for message in messages if isinstance(message, TaskWritten)]
        _log.info(
            "%s: wrote %d records (%d bytes) in %d tasks",
            what,
            sum(message.n_records for message in written),
            sum(message.n_bytes for message in written),
            len(written),
        )


class KafkaBatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame's rows to Kafka."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._writing = Writing(options, schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        """One task's rows to their leaders; returns when every record is acknowledged.

        Raises:
            WireError: a broker refused a batch, or did not answer in ``kafka.delivery.timeout.ms``.
            WriteError: a row cannot be written.
        """
        return self._writing.write_batches(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: the records are there."""
        self._writing.log_commit(messages, "Batch write")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Records of tasks that succeeded stay: at least once."""


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch's rows to Kafka."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._writing = Writing(options, schema)
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        """As :meth:`KafkaBatchWriter.write`."""
        batches = iterator if _STREAM_GETS_ARROW else _arrow_batches(iterator, self._schema)
        return self._writing.write_batches(batches)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: the records are there."""
        self._writing.log_commit(messages, f"Micro-batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Records of tasks that succeeded stay: at least once."""


class _Router:
    """Decides each row's topic-partition: the ``partition`` column, else the key's hash, else partitions in turn."""

    def __init__(self, destination: Destination, options: SinkOptions) -> None:
        self._destination = destination
        self._topic = options.topic
        self._next_sticky: dict[str, int] = {}

    def route(self, rows: Rows) -> Iterator[tuple[str, int, Rows]]:
        """``(topic, partition, rows)`` for each topic-partition; rows keep their order within it."""
        if rows.topic is None:
            assert self._topic is not None
            yield from self._route_topic(self._topic, rows)
            return
        dictionary = rows.topic.dictionary_encode()
        names = dictionary.dictionary.to_pylist()
        if len(names) == 1:
            yield from self._route_topic(names[0], rows)
            return
        for index, indices in _groups(dictionary.indices.to_numpy(zero_copy_only=False)):
            yield from self._route_topic(names[index], rows.take(indices))

    def _route_topic(self, topic: str, rows: Rows) -> Iterator[tuple[str, int, Rows]]:
        for partition, indices in _groups(self._partitions(topic, rows)):
            whole = len(indices) == rows.n_rows
            yield topic, partition, rows if whole else rows.take(indices)

    def _partitions(self, topic: str, rows: Rows) -> npt.NDArray[np.int32]:
        n_partitions = self._destination.partitions_for(topic)
        partitions = (
            np.full(rows.n_rows, -1, dtype=np.int32) if rows.key is None else partitions_of(rows.key, n_partitions)
        )
        keyless = np.flatnonzero(partitions < 0)
        if len(keyless):
            partitions[keyless] = self._sticky(topic, rows, keyless, n_partitions)
        if rows.partition is not None:
            asked = pc.fill_null(rows.partition, -1).to_numpy(zero_copy_only=False)
            given = rows.partition.is_valid().to_numpy(zero_copy_only=False)
            wrong = given & ((asked < 0) | (asked >= n_partitions))
            if wrong.any():
                raise WriteError(
                    f"a row names partition {asked[wrong][0]} of topic {topic}, which has {n_partitions} partitions "
                    f"(0 to {n_partitions - 1}): correct the column partition, or leave it null to hash the key."
                )
            partitions[given] = asked[given]
        return partitions

    def _sticky(
        self, topic: str, rows: Rows, keyless: npt.NDArray[np.int64], n_partitions: int
    ) -> npt.NDArray[np.int32]:
        bytes_per_row = max(1, rows.value.nbytes // max(1, rows.n_rows))
        rows_each = max(1, min(_STICKY_BYTES // bytes_per_row, -(-len(keyless) // n_partitions)))
        first = self._next_sticky.setdefault(topic, random.randrange(n_partitions))
        chunks = np.arange(len(keyless), dtype=np.int64) // rows_each
        self._next_sticky[topic] = int((first + chunks[-1] + 1) % n_partitions)
        partitions: npt.NDArray[np.int32] = ((first + chunks) % n_partitions).astype(np.int32)
        return partitions


def _groups(labels: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """``(label, indices)`` for each label, indices ascending."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for indices in np.split(order, cuts):
        yield int(labels[indices[0]]), indices


def _arrow_batches(rows: Iterator[Any], schema: StructType) -> Iterator[Any]:
    from itertools import islice

    from pykafka_wire.schema import arrow_schema

    arrow = arrow_schema(schema)
    while chunk := list(islice(rows, _ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in chunk], schema=arrow)


def check_topic_exists(options: SinkOptions) -> None:
    """Raise UnknownTopicError, or the reason why no broker answers, before any task runs."""
    if options.topic is not None:
        shared_cluster(options.client).topics([options.topic])
