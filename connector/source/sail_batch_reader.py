"""A batch read on Sail, which passes Arrow's schema to a data source, and expects batches of exactly that schema.

Seen in pysail 0.7.2. Spark passes its own schema, and expects what it makes of it in Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pykafka_wire.columns.spark_schema import spark_schema
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.batch_reader import KafkaBatchReader

if TYPE_CHECKING:
    from pykafka_wire.source.reader_schemas import ReaderSchemas


class SailBatchReader(KafkaBatchReader):
    """As :class:`KafkaBatchReader`, under an Arrow schema: timestamps may have another zone's name or none, lists other names."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, reader_schemas: ReaderSchemas | None = None) -> None:
        super().__init__(options, spark_schema(schema), reader_schemas)
        self._arrow_schema = schema

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: pyarrow has no types
        """Arrow record batches of one input partition; runs where Sail does."""
        for batch in super().read(partition):
            columns = [column.cast(field.type) for column, field in zip(batch.columns, self._arrow_schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=self._arrow_schema)
