"""Rows as the sink sees them: which columns a schema offers, and one Arrow batch as keys, values, headers and places.

The column rules are those of Spark's own Kafka sink; a ``timestamp`` column besides sets the record's timestamp
(SPARK-50160). Knows nothing of brokers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from pykafka_wire.errors import SchemaError, WriteError
from pykafka_wire.wire.records.arrays import to_arrow, to_numpy

#: Columns of the sink and the types each may have (Spark's ``simpleString``); other columns are left alone.
_SINK_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """The columns of a schema that the sink writes; ``topic`` is the option's, where it is set."""

    names: tuple[str, ...]
    topic: str | None

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> SinkColumns:
        """The sink's columns in ``schema``.

        Raises:
            SchemaError: no value, neither a topic column nor the option, or a column of the wrong type.
        """
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        if "value" not in types:
            raise SchemaError(
                f"the rows have no column 'value' (they have {', '.join(types) or 'none'}): name the column to write, "
                'as in df.selectExpr("to_json(struct(*)) AS value").'
            )
        if topic is None and "topic" not in types:
            raise SchemaError(
                'no topic to write to: set the option topic, or give the rows a column "topic" of strings.'
            )
        for name, allowed in _SINK_TYPES.items():
            if name in types and types[name] not in allowed and not (name == "topic" and topic is not None):
                raise SchemaError(
                    f"column {name!r} is {types[name]} and must be {' or '.join(allowed)}: cast it before the write."
                )
        return cls(names=tuple(name for name in _SINK_TYPES if name in types), topic=topic)

    def rows(self, batch: Any) -> Rows:  # Any: pyarrow has no types
        """One Arrow record batch as rows to write.

        Raises:
            WriteError: a row has no topic, or a header without a key.
        """
        column = {name: batch.column(batch.schema.get_field_index(name)) for name in self.names}
        n_rows = batch.num_rows
        if self.topic is not None:
            topics: Any = None
        else:
            topics = column["topic"]
            if topics.null_count:
                raise WriteError(
                    "a row has a null topic: fill the column, filter such rows out, or set the option topic for all."
                )
        headers = column.get("headers")
        if headers is not None:
            entries = headers.flatten()
            if entries.null_count or entries.field("key").null_count:
                raise WriteError(
                    "a row has a header that is null or has a null key: filter the array, or name the key."
                )
        timestamps = column.get("timestamp")
        now_ms = int(time.time() * 1000)
        if timestamps is None:
            timestamp_ms = np.full(n_rows, now_ms, dtype=np.int64)
        else:
            # Spark counts microseconds; a null timestamp is "now", as for a row without the column.
            micros = to_numpy(timestamps.cast(pa.timestamp("us", tz="UTC")).view(pa.int64()), null=now_ms * 1000)
            timestamp_ms = np.floor_divide(micros, 1000)
        return Rows(
            n_rows=n_rows,
            key=_binary(column.get("key")),
            value=_binary(column["value"]),
            headers=headers,
            topic=topics,
            partition=column.get("partition"),
            timestamp_ms=timestamp_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Arrow columns of ``n_rows`` rows; ``topic`` is None where one topic takes them all.

    Attributes:
        key, value: pa.BinaryArray; ``key`` None where the rows have none.
        headers: pa.ListArray of struct<key, value> or None.
        partition: pa.Int32Array with nulls, or None.
        timestamp_ms: int64[n_rows].
    """

    n_rows: int
    key: Any
    value: Any
    headers: Any
    topic: Any
    partition: Any
    timestamp_ms: npt.NDArray[np.int64]

    def take(self, indices: npt.NDArray[np.int64]) -> Rows:
        """The rows at ``indices``, in their order; copies."""
        wanted = to_arrow(indices)

        def of(array: Any) -> Any:
            return None if array is None else array.take(wanted)

        return Rows(
            n_rows=len(indices),
            key=of(self.key),
            value=of(self.value),
            headers=of(self.headers),
            topic=of(self.topic),
            partition=of(self.partition),
            timestamp_ms=self.timestamp_ms[indices],
        )

    def slice(self, start: int, length: int) -> Rows:
        """Rows ``start`` to ``start + length``, a view."""

        def of(array: Any) -> Any:
            return None if array is None else array.slice(start, length)

        return Rows(
            n_rows=length,
            key=of(self.key),
            value=of(self.value),
            headers=of(self.headers),
            topic=of(self.topic),
            partition=of(self.partition),
            timestamp_ms=self.timestamp_ms[start : start + length],
        )


def _binary(array: Any) -> Any:
    """A string or binary column as pa.BinaryArray; strings share their bytes (both are UTF-8)."""
    if array is None or pa.types.is_binary(array.type):
        return array
    return array.cast(pa.binary())
