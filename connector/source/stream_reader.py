"""A streaming read: the driver plans micro-batch after micro-batch, the tasks read them.

One reader lives in one Python process on the driver for a query's whole life. Spark's contract for it is subtle; the
rules that shape this module:

- an offset equal to the start, as JSON text, means "nothing new": the start is returned as it came;
- only ends of batches are logged, so a batch's own starts travel inside its end (``starts``);
- ``commit(end)`` of a batch comes only with the next one: never after the last one of an AvailableNow run, nor in an idle
  query. ``latestOffset(start)`` shows earlier that ``start`` is done (Spark 4.2), except at the very first start, whose commit
  would rewind the group: its offset has the mark ``initial``;
- starting offsets that cannot be resolved are reported by ``latestOffset``: Spark asks for the start of a batch 0 that is
  replayed, too, and that must not fail only because the topic has more partitions now.

Owns what Spark calls. The query's state and the planning are :mod:`~pykafka_wire.source.micro_batch_stream`'s.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.columns.spark_schema import check_selection, check_source_schema
from pykafka_wire.concise_errors import with_concise_errors
from pykafka_wire.errors import OptionError
from pykafka_wire.options.source import SourceOptions, parse_source_options
from pykafka_wire.source.spark_task import read_partition
from pykafka_wire.worker_pickling import SentToWorkers

if TYPE_CHECKING:
    import pyarrow as pa

    from pykafka_wire.source.micro_batch_stream import MicroBatchStream
    from pykafka_wire.source.pinned_schemas import PinnedSchemas
    from pykafka_wire.source.reader_schema import ReaderSchemas

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
    )
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as AvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ImportError:  # Spark 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False

    class AvailableNow:  # type: ignore[no-redef]
        """Stands in for the mixin that Spark before 4.2 does not have."""


#: The module that runs as the program of Spark's process for the reader of a query.
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


def stream_reader(
    given: Mapping[str, str], schema: StructType, reader_schemas: ReaderSchemas | None
) -> DataSourceStreamReader:
    """Return a reader of micro-batches, for what the running Spark can do.

    Raises:
        OptionError, SchemaError: what the user gave cannot be, or not with this Spark.
    """
    options = parse_source_options(given, "stream")
    check_selection(schema, options.columns)
    if HAS_ADMISSION_CONTROL:
        return KafkaStreamReader(options, schema, reader_schemas)
    limits = (options.max_offsets_per_trigger, options.max_bytes_per_trigger, options.min_offsets_per_trigger)
    if any(limits) or options.topic_minimums:
        raise OptionError(
            "maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger and minOffsetsPerTopic need Spark 4.2 or newer: leave "
            "them out here."
        )
    if options.task_metrics == "driver":
        raise OptionError(
            "taskMetrics=driver needs Spark 4.2 or newer, which shows a Python source's figures in the query's progress: use "
            "statsd://host:port, or remove taskMetrics."
        )
    return KafkaStreamReaderSpark40(options, schema, reader_schemas)


@with_concise_errors
class KafkaStreamReader(SentToWorkers, DataSourceStreamReader, AvailableNow):
    """Plans and reads micro-batches. Built without any I/O: Spark pickles it to the executors, which call ``read``."""

    def __init__(self, options: SourceOptions, schema: StructType, reader_schemas: ReaderSchemas | None = None) -> None:
        """Take the ``reader_schemas`` that ``load()`` has got, None where the user gave the schema."""
        columns = options.typed_columns
        check_source_schema(schema, typed=columns.names, added_columns=columns.added_columns)
        self._options = options
        self._schema = schema
        self._reader_schemas = reader_schemas
        self._stream: MicroBatchStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_stream": None}

    @property
    def _micro_batches(self) -> MicroBatchStream:
        if self._stream is None:
            from pykafka_wire.source.micro_batch_stream import MicroBatchStream  # which no task needs

            self._stream = MicroBatchStream(self._options, self._pinned_schemas())
        return self._stream

    def _pinned_schemas(self) -> PinnedSchemas | None:
        if not self._options.typed_columns.typed:
            return None
        from pykafka_wire.source.pinned_schemas import PinnedSchemas

        return PinnedSchemas(self._options, self._schema, self._reader_schemas)

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts, asked for before batch 0, maybe more than once: it stays the same."""
        return self._micro_batches.initial_offset().to_json()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Return the end of the next micro-batch, ``start`` itself where nothing is new. Commits ``start``: it is durable."""
        return self._micro_batches.latest_offset(
            start, max_offsets=getattr(limit, "max_rows", None), reads_all=isinstance(limit, ReadAllAvailable)
        )

    def getDefaultReadLimit(self) -> Any:
        """Return ``maxOffsetsPerTrigger``, else ``maxBytesPerTrigger``, as Spark's read limit, which cannot have both."""
        max_rows, max_bytes = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        if max_rows is not None:
            return ReadMaxRows(max_rows)
        return ReadAllAvailable() if max_bytes is None else ReadMaxBytes(max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the ends of all logs: an AvailableNow query reads up to them and no further."""
        self._micro_batches.set_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of all logs and how far behind them the query is, for the query's progress."""
        return self._micro_batches.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return input partitions of the micro-batch between two offsets, the same ranges whenever it is replayed."""
        return self._micro_batches.input_partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches of one input partition; runs on an executor."""
        yield from read_partition(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit a batch up to ``end``, which is done, to the consumer group."""
        self._micro_batches.commit(QueryOffsets.from_json(end))

    def stop(self) -> None:
        """Close connections; safe to call twice. Spark's own process for a query ends here, once Spark has closed its socket."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        program = getattr(sys.modules["__main__"], "__spec__", None)
        if program is not None and program.name == _RUNNER and isinstance(sys.exc_info()[1], EOFError):
            # The query has ended. Else pyspark (4.0 to 4.3) writes this EOFError to the closed socket; if Spark does not end the
            # process before that, it prints the traceback of a BrokenPipeError.
            os._exit(0)


@with_concise_errors
class KafkaStreamReaderSpark40(KafkaStreamReader):
    """The reader for Spark 4.0 and 4.1, which know no admission control: ``latestOffset`` takes no arguments there, and
    Spark tells the versions apart by that. It asks for the next offset only when the batch planned last is done.

    In these versions (seen in 4.0.0 to 4.1.4) a restarted query begins with ``partitions(end, end)`` for the last logged offset.
    """

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the end of the next micro-batch: all that is there."""
        return self._micro_batches.latest_offset_without_start()
