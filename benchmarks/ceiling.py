"""The ceiling of Spark's Python data source API: a source that yields a ready-made batch, a sink that drops its own.

What these cost, no Python connector can go below: workers started, Arrow batches through a socket, rows in the JVM.
Executors get this module by value: they cannot import it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

_ROWS_PER_BATCH = 50_000
#: Of large values a batch has fewer rows.
_BATCH_BYTES = 8 << 20


class ReadyMade(DataSource):
    """Options: ``rows``, ``partitions``, ``valueBytes``, ``topic``. The columns are those of a Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "bench-ready-made"

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
            "timestampType int"
        )

    def reader(self, schema: Any) -> DataSourceReader:
        options = self.options
        rows, partitions, value_bytes = (int(options[name]) for name in ("rows", "partitions", "valuebytes"))
        return ReadyMadeReader(schema, rows, partitions, value_bytes, options["topic"])

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return Dropping()


class ReadyMadeReader(DataSourceReader):
    def __init__(self, schema: Any, n_rows: int, n_partitions: int, value_bytes: int, topic: str) -> None:
        self._schema, self._n_rows, self._n_partitions = schema, n_rows, n_partitions
        self._value_bytes, self._topic = value_bytes, topic

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(i) for i in range(self._n_partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        n = max(1, min(_ROWS_PER_BATCH, _BATCH_BYTES // self._value_bytes))
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([b"12345678"] * n, pa.binary()),
                pa.array([b"x" * self._value_bytes] * n, pa.binary()),
                pa.array([self._topic] * n, pa.string()),
                pa.array([partition.value] * n, pa.int32()),
                pa.array(range(n), pa.int64()),
                pa.array(range(n), pa.timestamp("us", tz="UTC")),
                pa.array([0] * n, pa.int32()),
            ],
            schema=to_arrow_schema(self._schema, timezone="UTC"),
        )
        remaining = self._n_rows // self._n_partitions
        while remaining > 0:
            yield batch if remaining >= n else batch.slice(0, remaining)
            remaining -= n


class Dropping(DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def register(spark: SparkSession) -> None:
    """Make ``format("bench-ready-made")`` known in this session."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(ReadyMade)
