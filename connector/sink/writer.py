"""Spark's writers of a batch and of a stream, and which delivery a stream's has.

At least once, each task sends its rows to the partitions' leaders. The producer is idempotent and waits for ``acks=all`` by
default, so its own retries never duplicate a record. Duplicates come only from Spark, when it runs a task or a micro-batch again.
A task fails if any of its records is not acknowledged. Exactly once has deliveries of its own, in
:mod:`~pykafka_wire.sink.exactly_once`. Before the tasks, the driver checks what would fail every one of them: brokers, topics and
the partitioner.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.columns.spark_schema import spark_schema
from pykafka_wire.concise_errors import with_concise_errors
from pykafka_wire.errors import OptionError
from pykafka_wire.options.parsing import log_warnings
from pykafka_wire.options.sink import SinkOptions, parse_sink_options
from pykafka_wire.sink.arrow_input import rows_to_arrow
from pykafka_wire.sink.encoding import Encoding
from pykafka_wire.sink.task_writer import TaskWriter, WrittenTask, send_task
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import UNKNOWN_TOPIC_GRACE_MS
from pykafka_wire.wire.errors import AuthenticationError, SettingsError, UnknownTopicError, WireError
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.produce.partitioner import Partitioner
from pykafka_wire.worker_pickling import SentToWorkers

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    _STREAM_GETS_ARROW = True
except ImportError:  # Spark 4.0 hands rows to a streaming writer
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter  # type: ignore[assignment]

    _STREAM_GETS_ARROW = False

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

#: The time for a micro-batch's check: for the first contact, and for the topics, a new one of which some brokers may not know yet.
_CONTACT_MS: Final = 3_000
_TOPICS_MS: Final = UNKNOWN_TOPIC_GRACE_MS + 3_000


def check_batch_write(options: SinkOptions) -> None:
    """Check what would fail every task of a batch write.

    Raises:
        WireError: no broker responds, or a topic does not exist.
        SettingsError: the partitioner cannot be imported.
    """
    Partitioner(options.client)
    cluster = shared_cluster(options.client)
    cluster.metadata.brokers()
    if topics := _named_topics(options):
        cluster.metadata.topics(topics)


def check_stream_write(options: SinkOptions) -> None:
    """Do as :func:`check_batch_write`, for a writer that Spark builds anew for every micro-batch. Only definite errors are raised.

    An outage is left to the tasks and their retries. This process cannot know whether the query has written before: Spark starts
    a new one after a minute without a micro-batch. In one that lives on, metadata that is fresh enough is not requested again.

    Raises:
        UnknownTopicError: a topic does not exist.
        AuthenticationError: each task would try the same credentials again, and accounts get locked.
        SettingsError: the partitioner cannot be imported.
    """
    Partitioner(options.client)
    cluster = shared_cluster(options.client)
    try:
        cluster.metadata.brokers(deadline=Deadline.after_ms(_CONTACT_MS))
        if topics := _named_topics(options):
            deadline = Deadline.after_ms(_TOPICS_MS)
            cluster.metadata.topics(topics, max_age_ms=options.client.metadata_max_age_ms, deadline=deadline)
    except (UnknownTopicError, AuthenticationError, SettingsError):
        raise
    except WireError as error:
        _log.debug("Brokers and topics could not be checked before the tasks: %s", error)


def check_brokers(options: SinkOptions) -> None:
    """Check that the brokers respond, after a new query's first micro-batch had no rows: none of its tasks has connected.

    Raises:
        WireError: no broker responds.
    """
    shared_cluster(options.client).metadata.brokers()


def _named_topics(options: SinkOptions) -> list[str]:
    """Return the topics that the options name: those of a column are known to the tasks only."""
    marker_topic = None if options.exactly_once is None else options.exactly_once.marker_topic
    named = (options.topic, options.dead_letter_topic, marker_topic)
    return list(dict.fromkeys(topic for topic in named if topic is not None))


@with_concise_errors
class KafkaBatchWriter(SentToWorkers, DataSourceArrowWriter):
    """Appends a DataFrame's rows to Kafka. Built without any I/O: Spark pickles it.

    Attributes:
        encoding: what writes typed columns; to be set where the options name any.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.encoding = Encoding()
        self._task_writer = TaskWriter(options, schema)
        self._topic = options.topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send one task's rows; returns when every record is acknowledged.

        Raises:
            WireError: a broker rejected a batch, or did not respond within ``kafka.delivery.timeout.ms``.
            WriteError: a row cannot be written.
        """
        return self._task_writer.run(self.encoding.encode(iterator, self._topic), send_task)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the totals: the records are in Kafka already."""
        _log_totals(messages, "Batch write")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the records of tasks that succeeded stay in Kafka (at least once)."""


class Delivery(Protocol):
    """How a stream's micro-batches get to Kafka. Spark pickles it with the writer, for every micro-batch."""

    def before_tasks(self) -> None:
        """Prepare on the driver, once before Spark sends the writer to a micro-batch's tasks."""

    def write_task(self, rows: TaskWriter, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's Arrow batches."""

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Complete a micro-batch whose tasks have all succeeded."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Undo what can be undone of a micro-batch that has failed."""


class AtLeastOnce:
    """The delivery whose tasks send for good."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def before_tasks(self) -> None: ...

    def write_task(self, rows: TaskWriter, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send_task(rows, batches)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Log the totals: the records are in Kafka already.

        Raises:
            WireError: no broker responds a new query, whose first micro-batch was empty; Spark would log it as done.
        """
        if batch_id == 0 and not any(isinstance(message, WrittenTask) and message.n_records for message in messages):
            check_brokers(self._options)
        _log_totals(messages, f"Micro-batch {batch_id}")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the records of tasks that succeeded stay in Kafka."""


@with_concise_errors
class KafkaStreamWriter(SentToWorkers, DataSourceStreamArrowWriter):
    """Appends each micro-batch's rows to Kafka. Built without any I/O: Spark pickles it for every micro-batch.

    Attributes:
        delivery: how.
        encoding: what writes typed columns; to be set where the options name any.
    """

    def __init__(self, options: SinkOptions, schema: StructType, delivery: Delivery) -> None:
        self.delivery = delivery
        self.encoding = Encoding()
        self._task_writer = TaskWriter(options, schema)
        self._topic = options.topic
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; returns when every record is acknowledged, or encoded for the driver.

        Raises:
            WireError: a broker rejected a batch, or did not respond within ``kafka.delivery.timeout.ms``.
            WriteError: a row cannot be written.
            ExactlyOnceError: the task has more than the micro-batch may have, or the micro-batch is unknown.
        """
        batches = (
            iterator if _STREAM_GETS_ARROW else rows_to_arrow(iterator, self._schema, self._task_writer.columns.names)
        )
        return self._task_writer.run(self.encoding.encode(iter(batches), self._topic), self.delivery.write_task)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Complete the micro-batch.

        Raises:
            ExactlyOnceError: it was not written, not all of it is visible, or its outcome is unknown; the text says which, and why.
            WireError: no broker responds a new query.
        """
        self.delivery.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Undo what can be undone."""
        self.delivery.abort(messages)


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


def batch_writer(given: Mapping[str, str], schema: StructType | pa.Schema, overwrite: bool) -> DataSourceWriter:
    """Return a writer of one DataFrame; brokers, topics and permissions are checked here, before any task.

    Raises:
        OptionError, SchemaError: what the user gave cannot be.
    """
    if overwrite:
        raise OptionError('a topic cannot be overwritten, only appended to: use .mode("append").')
    parsed = parse_sink_options(given)
    if parsed.exactly_once is not None:
        raise OptionError(
            "deliveryGuarantee=exactly-once is for streaming writes: a batch write has no batch id by which a second "
            "run could be recognized. Write a stream with trigger(availableNow=True), or leave it out."
        )
    log_warnings(parsed.warnings)
    schema = spark_schema(schema)
    writer = KafkaBatchWriter(parsed.for_tasks(), schema)
    writer.encoding = _encoding(parsed, schema)
    check_batch_write(parsed)
    return writer


def stream_writer(given: Mapping[str, str], schema: StructType) -> DataSourceStreamWriter:
    """Return a writer of a stream's micro-batches; brokers, topics and permissions are checked here, before any task.

    Raises:
        OptionError, SchemaError: what the user gave cannot be.
    """
    parsed = parse_sink_options(given)
    only_commits = _only_commits()
    if not only_commits:
        log_warnings(parsed.warnings, parsed.checkpoint)
    writer = KafkaStreamWriter(parsed.for_tasks(), schema, _delivery(parsed))
    if not only_commits:
        writer.encoding = _encoding(parsed, schema)
        check_stream_write(parsed)
        writer.delivery.before_tasks()
    return writer


def _delivery(parsed: SinkOptions) -> Delivery:
    if parsed.exactly_once is None:
        return AtLeastOnce(parsed.for_tasks())
    if parsed.exactly_once.through_tasks:
        from pykafka_wire.sink.exactly_once.task_transactions import TaskTransactionsDelivery

        return TaskTransactionsDelivery(parsed.for_tasks(), parsed.exactly_once)
    from pykafka_wire.sink.exactly_once.driver_transaction import DriverTransactionDelivery

    return DriverTransactionDelivery(parsed.for_tasks(), parsed.exactly_once)


def _encoding(options: SinkOptions, schema: StructType) -> Encoding:
    """Return what writes the typed columns of a DataFrame; asks the schema registry, if there is one."""
    if not options.typed.encoded:
        return Encoding()
    from pykafka_wire.sink.written_schema import look_up_encoding  # and with it, the formats' modules

    return look_up_encoding(options, schema)


def _only_commits() -> bool:
    """Return whether Spark builds stream writers in this process only to commit what others, built before them, have written."""
    runner = "python_streaming_sink_runner"
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return any(name.endswith(runner) for name in (*sys.modules, getattr(main, "name", "")))
