"""A task's part of a write: Arrow batches become record batches, which go to a producer, or to another destination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.sink.arrow_input import coalesce_batches
from pykafka_wire.sink.batch_builder import BatchBuilder, BatchDestination
from pykafka_wire.sink.columns import RecordColumns, SinkColumns
from pykafka_wire.sink.dead_letter_queue import DeadLetterProducer
from pykafka_wire.task_metrics import TaskFigures
from pykafka_wire.wire.process_clients import shared_cluster, shared_producer

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class WrittenTask(WriterCommitMessage):
    """A task's commit message: what it wrote.

    Attributes:
        n_records: without those that went to the dead-letter topic.
    """

    n_records: int
    n_bytes: int
    n_dead_letters: int = 0


class TaskWriter:
    """Encodes the rows of tasks. Built without any I/O: Spark pickles it for the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.columns = SinkColumns.from_schema(schema, options.topic, options.typed.encoded, options.checkpoint)
        self.options = options

    def run(self, batches: Iterator[pa.RecordBatch], write_task: WriteTask) -> WriterCommitMessage:
        """Return what `write_task` returns; sends the task's figures where ``taskMetrics`` has it so, whether it succeeds or
        not."""
        agent = self.options.task_metrics
        if agent is None:
            return write_task(self, batches)
        counters = shared_cluster(self.options.client).counters
        before, written = counters.totals(), None
        try:
            written = write_task(self, batches)
        finally:
            produced = {
                f"{name}_produced": getattr(written, f"n_{name}", 0) for name in ("records", "bytes")
            }  # a task that has failed may have written some
            agent.send(TaskFigures.of_client(counters.totals().since(before), **produced))
        return written

    def append_all(
        self,
        destination: BatchDestination,
        batches: Iterator[pa.RecordBatch],
        on_records: Callable[[RecordColumns], None] | None = None,
    ) -> WrittenTask:
        """Encode all rows and append them to a destination, by topic-partition; `on_records` is called with all records."""
        builder = BatchBuilder(destination, self.options)
        n_records = n_bytes = 0
        for batch in coalesce_batches(batch.select(self.columns.names) for batch in batches):
            records = self.columns.records(batch)
            if on_records is not None and batch.num_rows:
                on_records(records)
            for built in builder.build(records):
                n_records += sum(batch.n_records for batch in built.batches)
                n_bytes += sum(len(batch.data) for batch in built.batches)
                destination.append(*built)
        return WrittenTask(n_records, n_bytes)


#: Writes one task's Arrow batches by one way of delivery.
WriteTask: TypeAlias = Callable[[TaskWriter, Iterator[Any]], WriterCommitMessage]


def send_task(rows: TaskWriter, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    """Send one task's Arrow batches at least once; returns its commit message when every record is acknowledged."""
    options = rows.options
    with shared_producer(options.client) as producer:
        if options.dead_letter_topic is None:
            written = rows.append_all(producer, batches)
            producer.flush()
            return written
        diverting = DeadLetterProducer(producer, options, options.dead_letter_topic)
        written = rows.append_all(diverting, batches)
        n_dead_letters = diverting.flush()
        return WrittenTask(written.n_records - n_dead_letters, written.n_bytes, n_dead_letters)
