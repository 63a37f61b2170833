"""Which writer serves a batch or a stream, by its delivery guarantee."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from pykafka_wire.columns.spark_schema import spark_schema
from pykafka_wire.errors import OptionError
from pykafka_wire.options.parsing import log_warnings
from pykafka_wire.options.sink import SinkOptions, parse_sink_options
from pykafka_wire.sink.encoding import Encoding
from pykafka_wire.sink.preflight import check_batch_write, check_stream_write
from pykafka_wire.sink.writer import KafkaBatchWriter, KafkaStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa


def batch_writer(given: Mapping[str, str], schema: StructType | pa.Schema, overwrite: bool) -> DataSourceWriter:
    """A writer of one DataFrame; brokers, topics and permissions are checked here, before any task.

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
    """A writer of a stream's micro-batches; brokers, topics and permissions are checked here, before any task.

    Raises:
        OptionError, SchemaError: what the user gave cannot be.
    """
    parsed = parse_sink_options(given)
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
