"""Writing at least once: a task encodes its rows as record batches and sends them to each partition's leader.

The producer is idempotent and waits for ``acks=all`` by default: its own retries never duplicate. Duplicates come only
from Spark, when it runs a task or a micro-batch again. A task whose records were not all acknowledged fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timezone
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.sink.dead_letters import DeadLetters
from pykafka_wire.sink.record_batches import Destination, RecordBatches
from pykafka_wire.sink.rows import SinkColumns
from pykafka_wire.spark_workers import SentToWorkers
from pykafka_wire.wire.cluster.cluster import Deadline
from pykafka_wire.wire.error_codes import UNKNOWN_TOPIC_GRACE_MS
from pykafka_wire.wire.errors import AuthenticationError, SettingsError, UnknownTopicError, WireError
from pykafka_wire.wire.process_clients import shared_cluster, shared_producer
from pykafka_wire.wire.produce.partitioner import Partitioner

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    _STREAM_GETS_ARROW = True
except ImportError:  # Spark 4.0 hands rows to a streaming writer
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter  # type: ignore[assignment]

    _STREAM_GETS_ARROW = False

_log = logging.getLogger(__name__)

#: How long a micro-batch waits to learn that its topics exist, beyond the time for which brokers may be late to know them.
_CHECK_MS: Final = UNKNOWN_TOPIC_GRACE_MS + 3_000
#: Rows per Arrow batch where Spark hands over rows (4.0, streaming).
_ROWS_PER_BATCH: Final = 10_000
#: Rows are encoded so many bytes at a time: for a few hundred at once, calls of NumPy cost more than the records.
_JOINED_BYTES: Final = 4 << 20
#: Rows wait no longer than this for others; a batch that comes later sends them on.
_JOINED_S: Final = 0.2


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """What one task wrote, and how many records went to the dead-letter topic instead."""

    n_records: int
    n_bytes: int
    n_diverted: int = 0


class Writing:
    """What batch and streaming writes share. Built without any I/O: Spark pickles it, twice a batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.columns = SinkColumns.of(schema, options.topic)
        self._options = options
        self._schema = schema

    def write_batches(self, batches: Iterator[Any]) -> WriterCommitMessage:
        """One task's Arrow batches to their leaders."""
        with shared_producer(self._options.client) as producer:
            topic = self._options.dead_letter_topic
            if topic is None:
                written = self.append_all(producer, batches)
                producer.flush()
                return written
            with_dead_letters = DeadLetters(producer, self._options, topic)
            written = self.append_all(with_dead_letters, batches)
            n_diverted = with_dead_letters.flush()
            return TaskWritten(written.n_records - n_diverted, written.n_bytes, n_diverted)

    def append_all(self, destination: Destination, batches: Iterator[Any]) -> TaskWritten:
        """Encodes and hands over all rows, each to its topic-partition."""
        maker = RecordBatches(destination, self._options)
        n_records = n_bytes = 0
        for batch in joined(batch.select(self.columns.names) for batch in batches):
            for placed in maker.of(self.columns.rows(batch)):
                n_records += sum(each.n_records for each in placed.batches)
                n_bytes += sum(len(each.data) for each in placed.batches)
                destination.append(*placed)
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
        if n_diverted := sum(message.n_diverted for message in written):
            _log.warning("%s: %d records were refused and went to the dead-letter topic", what, n_diverted)


class KafkaBatchWriter(SentToWorkers, DataSourceArrowWriter):
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


class KafkaStreamWriter(SentToWorkers, DataSourceStreamArrowWriter):
    """Appends each micro-batch's rows to Kafka."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._writing = Writing(options, schema)
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        """As :meth:`KafkaBatchWriter.write`."""
        batches = iterator if _STREAM_GETS_ARROW else arrow_batches(iterator, self._schema, self._writing.columns.names)
        return self._writing.write_batches(batches)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: the records are there."""
        self._writing.log_commit(messages, f"Micro-batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Records of tasks that succeeded stay: at least once."""


def joined(batches: Iterable[Any]) -> Iterator[Any]:
    """The same rows in larger Arrow batches, none of them empty: Spark's hold 10,000, of which a topic-partition gets few.

    What waits goes on when a batch comes that is large by itself, or that comes late: slow rows are not held back.
    """
    waiting: list[Any] = []
    n_bytes, since = 0, 0.0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        large = batch.nbytes >= _JOINED_BYTES
        if waiting and (large or time.monotonic() - since > _JOINED_S):
            yield from _join(waiting)
            waiting, n_bytes = [], 0
        if not waiting:
            since = time.monotonic()
        waiting.append(batch)
        n_bytes += batch.nbytes
        if n_bytes >= _JOINED_BYTES:
            yield from _join(waiting)
            waiting, n_bytes = [], 0
    yield from _join(waiting)


def _join(batches: list[Any]) -> list[Any]:
    """One batch of them all, a copy; a single one as it is."""
    if len(batches) < 2:
        return batches
    found: list[Any] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


def arrow_batches(rows: Iterator[Any], schema: StructType, names: Sequence[str]) -> Iterator[Any]:
    """The columns ``names`` of what Spark 4.0 hands over row by row, timestamps as naive datetimes in this process's zone."""
    from itertools import islice

    from pykafka_wire.schema import arrow_schema

    arrow = arrow_schema(StructType([schema[name] for name in names]))

    def values(row: Any) -> dict[str, Any]:
        found = {name: row[name] for name in names}
        if found.get("headers") is not None:
            found["headers"] = [header.asDict() for header in found["headers"]]
        if found.get("timestamp") is not None:
            found["timestamp"] = found["timestamp"].astimezone(timezone.utc)
        return found

    while chunk := list(islice(rows, _ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist([values(row) for row in chunk], schema=arrow)


def check_write(options: SinkOptions) -> None:
    """Raise what would fail every task, before any runs: a topic that does not exist, a partitioner that cannot be
    imported, no broker that answers."""
    Partitioner(options.client)
    cluster = shared_cluster(options.client)
    cluster.brokers()
    if named := _named_topics(options):
        cluster.topics(named)


def check_stream_write(options: SinkOptions) -> None:
    """As :func:`check_write`, for a writer that Spark builds anew for every micro-batch.

    Spark reuses the processes, so metadata that is fresh enough is not requested again. A cluster that has never answered
    this process fails the query, even where the micro-batch has no rows and its tasks would never connect. Once it has
    answered, an outage is left to the tasks and their retries: only definite errors are raised here.
    """
    Partitioner(options.client)
    cluster = shared_cluster(options.client)
    cluster.brokers()
    if named := _named_topics(options):
        deadline = Deadline.after_ms(_CHECK_MS)
        try:
            cluster.topics(named, max_age_ms=options.client.metadata_max_age_ms, deadline=deadline)
        except (UnknownTopicError, AuthenticationError, SettingsError):
            raise  # each task would try the same credentials again, and accounts get locked
        except WireError as error:
            _log.debug("The topics %s could not be checked before the tasks: %s", named, error)


def _named_topics(options: SinkOptions) -> list[str]:
    marker_topic = None if options.exactly_once is None else options.exactly_once.marker_topic
    named = (options.topic, options.dead_letter_topic, marker_topic)
    return list(dict.fromkeys(topic for topic in named if topic is not None))
