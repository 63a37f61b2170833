"""Which reader serves a batch or a stream: Spark's or Sail's, and what the running Spark can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import ArrayType, DataType, StructType

from pykafka_wire.columns.selection import Selection, selected_paths
from pykafka_wire.columns.spark_schema import spark_schema
from pykafka_wire.errors import OptionError
from pykafka_wire.options.parsing import log_warnings
from pykafka_wire.options.source import SourceOptions, parse_source_options

if TYPE_CHECKING:
    import pyarrow as pa

    from pykafka_wire.source.reader_schema import ReaderSchemas


def batch_reader(
    given: Mapping[str, str], schema: StructType | pa.Schema, reader_schemas: ReaderSchemas | None
) -> DataSourceReader:
    """A reader of the options' records, once.

    Raises:
        OptionError, SchemaError: what the user gave cannot be.
    """
    from pykafka_wire.source.batch_reader import KafkaBatchReader, SailBatchReader

    options = parse_source_options(given, "batch")
    _check_selection(options, schema)
    log_warnings(options.warnings)
    if not isinstance(schema, StructType):
        return SailBatchReader(options, schema, reader_schemas)
    return KafkaBatchReader(options, schema, reader_schemas)


def stream_reader(
    given: Mapping[str, str], schema: StructType, reader_schemas: ReaderSchemas | None
) -> DataSourceStreamReader:
    """A reader of micro-batches.

    Raises:
        OptionError, SchemaError: what the user gave cannot be, or not with this Spark.
    """
    from pykafka_wire.source.planning.spark_read_limits import HAS_ADMISSION_CONTROL
    from pykafka_wire.source.stream_reader import KafkaStreamReader, KafkaStreamReaderSpark40

    options = parse_source_options(given, "stream")
    _check_selection(options, schema)
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


def _check_selection(options: SourceOptions, schema: StructType | pa.Schema) -> None:
    """Raises OptionError where the user gave a schema with other columns or fields than those of the option ``columns``."""
    if not options.columns:
        return
    given = spark_schema(schema)
    if not _has_fields(given, options.columns):
        raise OptionError(
            f"columns selects {', '.join(selected_paths(options.columns))}, but .schema(…), in SQL the list of columns of the "
            f"view or table, is {given.simpleString()}: leave one of them out."
        )


def _has_fields(given: DataType, selection: Selection) -> bool:
    if isinstance(given, ArrayType):
        return _has_fields(given.elementType, selection)
    if not selection:
        return True
    return (
        isinstance(given, StructType)
        and given.names == list(selection)
        and all(_has_fields(given[name].dataType, fields) for name, fields in selection.items())
    )
