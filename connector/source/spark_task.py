"""A task as Spark runs it: the records of its input partition, as Spark takes them from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.input_partition import KafkaInputPartition

#: What Spark's worker may keep of a task's first batch while the task runs.
_MAX_KEPT_BYTES: Final = 1024 * 1024


def read_partition(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield Arrow record batches of one input partition, of the DataFrame's schema; runs on an executor. Raises as
    ``read_ranges``."""
    from pykafka_wire.source.task_reader import read_ranges  # which the driver does not need

    if isinstance(partition, KafkaInputPartition):  # Spark reads InputPartition(None) where there is nothing to read
        arrow = arrow_schema(schema)
        batches = read_ranges(
            options, partition.ranges, arrow, partition.query, partition.reader_schemas, receiver=partition.receiver
        )
        yield from batches_for_spark(batches, arrow)


def batches_for_spark(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield ``batches``, behind an empty one of ``schema`` (pyarrow's) where the first one is large.

    Spark's worker (4.0 to 4.2) has a reference to the first batch of a task until the task ends, to the others only until the
    next one.
    """
    first = next(batches, None)
    if first is None:
        return
    if first.get_total_buffer_size() > _MAX_KEPT_BYTES:
        yield pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    yield first
    del first
    yield from batches
