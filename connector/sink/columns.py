"""The columns that the sink writes, and an Arrow batch of them as the columns of Kafka records.

Owns the rules for a DataFrame's columns. They are those of Spark's own Kafka sink; in addition, a ``timestamp`` column sets the
record's timestamp (SPARK-50160). Knows nothing of brokers.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from pykafka_wire.errors import SchemaError, WriteError
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.wire.arrow.arrays import to_arrow, to_numpy

_log = logging.getLogger(__name__)

#: Columns of the sink and the types each may have (Spark's ``simpleString``); other columns are not written.
_SINK_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
#: The source's other columns: a copied row has them, so they are neither typing errors nor worth a warning.
_SOURCE_ONLY: Final = frozenset({"offset", "timestampType"})
#: A typing error is one wrong, missing, additional or exchanged letter; two of them in names as long as this.
_LONG_NAME: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """The columns of a schema that the sink writes; ``topic`` is the option's, where it is set."""

    names: tuple[str, ...]
    topic: str | None

    @classmethod
    def from_schema(
        cls, schema: StructType, topic: str | None, typed: Collection[str] = (), query: str = ""
    ) -> SinkColumns:
        """Return the sink's columns in ``schema``.

        A warning names the columns that are not written, once for a query.

        Args:
            typed: the columns that are encoded under a format, whatever their type.

        Raises:
            SchemaError: no value, neither a topic column nor the option, a column of the wrong type, two columns of one
                name, or a name that looks like a typing error of a column that is not there.
        """
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        needed = [name for name in _SINK_TYPES if not (name == "topic" and topic is not None)]
        if twice := [name for name, count in Counter(field.name for field in schema.fields).items() if count > 1]:
            # Also a column that is not written: Spark hands Python no Arrow batches with it.
            raise SchemaError(
                f"the rows have more than one column {twice[0]!r}: keep one of them, as in df.drop(other.{twice[0]}), or "
                "rename the others."
            )
        others = [name for name in types if name not in _SINK_TYPES and name not in _SOURCE_ONLY]
        for name in others:
            for meant in needed:
                if meant not in types and _is_near(name, meant):
                    raise SchemaError(
                        f"column {name!r} would not be written: did you mean {meant!r}? Rename the column, or drop it if the "
                        "records do not need it."
                    )
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
            if (
                name in types
                and types[name] not in allowed
                and name not in typed
                and not (name == "topic" and topic is not None)
            ):
                encoded = f", or set {name}Format (json, avro or protobuf)" if name in ("key", "value") else ""
                raise SchemaError(
                    f"column {name!r} is {types[name]} and must be {' or '.join(allowed)}: cast it before the write{encoded}."
                )
        if others:
            _warn_of_others(others, query)
        return cls(names=tuple(name for name in _SINK_TYPES if name in types), topic=topic)

    def records(self, batch: pa.RecordBatch) -> RecordColumns:
        """Return the records of one Arrow record batch, whose typed columns have been encoded.

        Raises:
            WriteError: a row has no topic, or a header without a key.
        """
        column = {name: batch.column(batch.schema.get_field_index(name)) for name in self.names}
        n_records = batch.num_rows
        if self.topic is not None:
            topics: pa.Array | None = None
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
            timestamp_ms = np.full(n_records, now_ms, dtype=np.int64)
        else:
            # Spark counts microseconds; a null timestamp is "now", as for a row without the column.
            micros = to_numpy(timestamps.cast(pa.timestamp("us", tz="UTC")).view(pa.int64()), null=now_ms * 1000)
            timestamp_ms = np.floor_divide(micros, 1000)
        return RecordColumns(
            n_records=n_records,
            key=_binary(column.get("key")),
            value=_binary(column["value"]),
            headers=headers,
            topic=topics,
            partition=column.get("partition"),
            timestamp_ms=timestamp_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """The columns of ``n_records`` Kafka records; ``topic`` is None where the option topic names it.

    Attributes:
        key, value: pa.BinaryArray; ``key`` None where there is no such column.
        headers: pa.ListArray of struct<key, value> or None.
        partition: pa.Int32Array with nulls, or None.
        timestamp_ms: int64[n_records].
    """

    n_records: int
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    topic: pa.Array
    partition: pa.Array
    timestamp_ms: npt.NDArray[np.int64]

    @property
    def n_bytes(self) -> int:
        """Return the bytes of keys, values and headers."""
        return sum(column.nbytes for column in (self.key, self.value, self.headers) if column is not None)

    def take(self, indices: npt.NDArray[np.int64]) -> RecordColumns:
        """Return the records at ``indices``, in that order; copies."""
        wanted = to_arrow(indices)

        def of(array: pa.Array) -> pa.Array:
            return None if array is None else array.take(wanted)

        return RecordColumns(
            n_records=len(indices),
            key=of(self.key),
            value=of(self.value),
            headers=of(self.headers),
            topic=of(self.topic),
            partition=of(self.partition),
            timestamp_ms=self.timestamp_ms[indices],
        )


def _warn_of_others(names: Sequence[str], query: str) -> None:
    if is_first(query, "columns", *names):  # Spark builds a writer for every micro-batch
        _log.warning(
            "Columns that are not written to Kafka: %s. Records have %s; put the others into value, as with "
            "to_json(struct(*)), or drop them",
            ", ".join(names),
            ", ".join(_SINK_TYPES),
        )


def _is_near(name: str, meant: str) -> bool:
    """Return whether ``name`` is likely a typing error of ``meant``, or differs from it in case only."""
    lowered = name.lower()
    return _edits(lowered, meant) <= (2 if len(meant) >= _LONG_NAME else 1)


def _edits(a: str, b: str) -> int:
    """Return the letters to change, insert, remove or exchange with their neighbour, to get from one word to the other."""
    rows: list[list[int]] = [list(range(len(b) + 1))]
    for i, letter in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            row.append(min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != other)))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                row[-1] = min(row[-1], rows[-2][j - 2] + 1)
        rows.append(row)
    return rows[-1][-1]


def _binary(array: pa.Array) -> pa.Array:
    """Return a string or binary column as pa.BinaryArray; strings share their bytes (both are UTF-8)."""
    if array is None or pa.types.is_binary(array.type):
        return array
    return array.cast(pa.binary())
