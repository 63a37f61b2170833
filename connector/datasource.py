"""The data source that Spark looks up: its name, its schema, and which reader or writer serves.

I/O happens for the schema of typed columns alone: ``load()`` asks the registry, once. The answer stays with the data source, which
Spark pickles after it has asked for the schema (seen in 4.2, and so written since before 4.0), so that DataFrame and readers have
the same one. A Spark that pickled it before would make the readers ask again.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pykafka_wire.errors import OptionError
from pykafka_wire.options.parsing import TABLE_OPTIONS, log_warnings
from pykafka_wire.options.sink import SinkOptions, parse_sink_options
from pykafka_wire.options.source import parse_schema_options, parse_source_options
from pykafka_wire.options.typed_columns import FORMAT_OPTIONS
from pykafka_wire.schema import source_schema, spark_schema
from pykafka_wire.sink.encoding import Encoding
from pykafka_wire.worker_pickling import ClassSentToWorkers

if TYPE_CHECKING:
    import pyarrow as pa

    from pykafka_wire.source.reader_schemas import ReaderSchemas


class PykafkaWireDataSource(DataSource, metaclass=ClassSentToWorkers):
    """Kafka topics as a Spark data source, ``format("pykafka-wire")``: batch and streaming, reading and writing."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(…)``; in SQL it needs backticks, for its dash."""
        return "pykafka-wire"

    #: Found by :meth:`schema`; None where the user gave the schema, or no column is typed.
    _reader_schemas: ReaderSchemas | None = None

    def schema(self) -> str | StructType:
        """The source's columns, those of Spark's own Kafka connector; ``key`` and ``value`` have the types of their schemas where
        they are decoded. Not asked for where ``.schema(…)`` is given.
        """
        given = {name.lower(): value.strip().lower() for name, value in self.options.items()}
        if any(name.startswith("option.") for name in given):  # Spark asks for the schema of a table that it creates
            log_warnings([TABLE_OPTIONS])
        if not given.keys().isdisjoint(FORMAT_OPTIONS):
            from pykafka_wire.source.dataframe_types import find_source_schema

            schema, self._reader_schemas = find_source_schema(parse_schema_options(self.options))
            return schema
        return source_schema(given.get("includeheaders") == "true")

    def reader(self, schema: StructType | pa.Schema) -> DataSourceReader:
        """A batch reader for ``schema``, which may name a subset of the columns. It is Arrow's on Sail, and Spark's on Spark."""
        from pykafka_wire.source.batch_reader import KafkaBatchReader

        options = parse_source_options(self.options, "batch")
        log_warnings(options.warnings)
        if not isinstance(schema, StructType):
            from pykafka_wire.source.sail_batch_reader import SailBatchReader

            return SailBatchReader(options, schema, self._reader_schemas)
        return KafkaBatchReader(options, schema, self._reader_schemas)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming reader for ``schema``, fit for the running Spark version."""
        from pykafka_wire.source.planning.spark_read_limits import HAS_ADMISSION_CONTROL
        from pykafka_wire.source.stream_reader import KafkaStreamReader, KafkaStreamReaderWithoutLimits

        options = parse_source_options(self.options, "stream")
        if HAS_ADMISSION_CONTROL:
            return KafkaStreamReader(options, schema, self._reader_schemas)
        limits = (options.max_offsets_per_trigger, options.max_bytes_per_trigger, options.min_offsets_per_trigger)
        if any(limit is not None for limit in limits):
            raise OptionError(
                "maxOffsetsPerTrigger, maxBytesPerTrigger and minOffsetsPerTrigger need Spark 4.2 or newer: leave them "
                "out here."
            )
        if options.task_metrics == "driver":
            raise OptionError(
                "taskMetrics=driver needs Spark 4.2 or newer, which shows a Python source's figures in the query's progress: use "
                "statsd://host:port, or remove taskMetrics."
            )
        return KafkaStreamReaderWithoutLimits(options, schema, self._reader_schemas)

    def writer(self, schema: StructType | pa.Schema, overwrite: bool) -> DataSourceWriter:
        """A batch writer; a topic cannot be overwritten. The schema is as :meth:`reader`'s."""
        from pykafka_wire.sink.preflight import check_batch_write
        from pykafka_wire.sink.writer import KafkaBatchWriter

        if overwrite:
            raise OptionError('a topic cannot be overwritten, only appended to: use .mode("append").')
        parsed = parse_sink_options(self.options)
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

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming writer; with output mode complete every row of every batch is written."""
        from pykafka_wire.sink.preflight import check_stream_write
        from pykafka_wire.sink.writer import KafkaStreamWriter

        parsed = parse_sink_options(self.options)
        only_commits = _only_commits()
        if not only_commits:
            log_warnings(parsed.warnings, parsed.checkpoint)
        writer: KafkaStreamWriter
        if parsed.exactly_once is None:
            writer = KafkaStreamWriter(parsed.for_tasks(), schema)
        elif parsed.exactly_once.through_tasks:
            from pykafka_wire.sink.exactly_once.tasks_writer import TasksStreamWriter

            writer = TasksStreamWriter(parsed.for_tasks(), parsed.exactly_once, schema)
        else:
            from pykafka_wire.sink.exactly_once.writer import ExactlyOnceStreamWriter

            writer = ExactlyOnceStreamWriter(parsed.for_tasks(), parsed.exactly_once, schema)
        if not only_commits:
            writer.encoding = _encoding(parsed, schema)
            check_stream_write(parsed)
            writer.before_tasks()
        return writer


def _encoding(options: SinkOptions, schema: StructType) -> Encoding:
    """What writes the typed columns of a DataFrame; asks the schema registry, if there is one."""
    if not options.typed.encoded:
        return Encoding()
    from pykafka_wire.sink.encoding_lookup import look_up_encoding  # and with it, the formats' modules

    return look_up_encoding(options, schema)


def _only_commits() -> bool:
    """Whether Spark builds stream writers in this process only to commit what others, built before them, have written."""
    runner = "python_streaming_sink_runner"
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return any(name.endswith(runner) for name in (*sys.modules, getattr(main, "name", "")))
