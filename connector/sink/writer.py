"""Spark's writers for at-least-once writes: each task sends its rows to the partitions' leaders.

The producer is idempotent and waits for ``acks=all`` by default, so its own retries never duplicate a record. Duplicates come
only from Spark, when it runs a task or a micro-batch again. A task fails if any of its records is not acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.sink.arrow_input import rows_to_arrow
from pykafka_wire.sink.encoding import Encoding
from pykafka_wire.sink.preflight import check_brokers
from pykafka_wire.sink.task_writer import TaskWriter, WrittenTask
from pykafka_wire.worker_pickling import SentToWorkers

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    _STREAM_GETS_ARROW = True
except ImportError:  # Spark 4.0 hands rows to a streaming writer
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter  # type: ignore[assignment]

    _STREAM_GETS_ARROW = False

_log = logging.getLogger(__name__)


class KafkaBatchWriter(SentToWorkers, DataSourceArrowWriter):
    """Appends a DataFrame's rows to Kafka. Built without any I/O: Spark pickles it.

    Attributes:
        encoding: what writes typed columns; to be set where the options name any.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.encoding = Encoding()
        self._task_writer = TaskWriter(options, schema)
        self._topic = options.topic

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        """Sends one task's rows; returns when every record is acknowledged.

        Raises:
            WireError: a broker rejected a batch, or did not answer within ``kafka.delivery.timeout.ms``.
            WriteError: a row cannot be written.
        """
        return self._task_writer.run(self.encoding.encoded(iterator, self._topic))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Logs the totals: the records are in Kafka already."""
        _log_totals(messages, "Batch write")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: the records of tasks that succeeded stay in Kafka (at least once)."""


class KafkaStreamWriter(SentToWorkers, DataSourceStreamArrowWriter):
    """Appends each micro-batch's rows to Kafka. Built without any I/O: Spark pickles it for every micro-batch.

    Attributes:
        encoding: what writes typed columns; to be set where the options name any.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.encoding = Encoding()
        self._task_writer = TaskWriter(options, schema)
        self._options = options
        self._schema = schema

    def before_tasks(self) -> None:
        """Called on the driver, once before Spark sends the writer to a micro-batch's tasks. Does nothing here."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:  # Any: pyarrow has no types
        """As :meth:`KafkaBatchWriter.write`."""
        batches = (
            iterator if _STREAM_GETS_ARROW else rows_to_arrow(iterator, self._schema, self._task_writer.columns.names)
        )
        return self._task_writer.run(self.encoding.encoded(iter(batches), self._options.topic))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Logs the totals: the records are in Kafka already.

        Raises:
            WireError: no broker answers a new query, whose first micro-batch was empty; Spark would log it as done.
        """
        if batchId == 0 and not any(isinstance(message, WrittenTask) and message.n_records for message in messages):
            check_brokers(self._options)
        _log_totals(messages, f"Micro-batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: the records of tasks that succeeded stay in Kafka (at least once)."""


def _log_totals(messages: list[WriterCommitMessage | None], what: str) -> None:
    written = [message for message in messages if isinstance(message, WrittenTask)]
    _log.info(
        "%s: wrote %d records (%d bytes) in %d tasks",
        what,
        sum(message.n_records for message in written),
        sum(message.n_bytes for message in written),
        len(written),
    )
    if n_dead_letters := sum(message.n_dead_letters for message in written):
        _log.warning("%s: %d records were rejected and went to the dead-letter topic", what, n_dead_letters)
