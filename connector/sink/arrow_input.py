"""A task's rows as Arrow batches of a size that is cheap to encode, whatever Spark hands over."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timezone
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

#: Rows per Arrow batch where Spark hands over rows (4.0, streaming).
_ROWS_PER_BATCH: Final = 10_000
#: Encoded at a time: for a few hundred rows at once, calls of NumPy cost more than the records.
_COALESCED_BYTES: Final = 4 << 20
#: The most that a batch waits for others. There is no timer: the next batch sends it on.
_LINGER_S: Final = 0.2


def coalesce_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in larger Arrow batches, none of them empty: Spark's hold 10,000, of which a topic-partition gets few.

    Batches are held until there are enough bytes, or until a batch comes that is large by itself or late.
    """
    held: list[pa.RecordBatch] = []
    n_bytes, since = 0, 0.0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        is_large = batch.nbytes >= _COALESCED_BYTES
        if held and (is_large or time.monotonic() - since > _LINGER_S):
            yield from _concatenate(held)
            held, n_bytes = [], 0
        if not held:
            since = time.monotonic()
        held.append(batch)
        n_bytes += batch.nbytes
        if n_bytes >= _COALESCED_BYTES:
            yield from _concatenate(held)
            held, n_bytes = [], 0
    yield from _concatenate(held)


def _concatenate(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return one batch with all rows, a copy; a single batch, or none, as it is."""
    if len(batches) < 2:
        return batches
    concatenated: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return concatenated


def rows_to_arrow(rows: Iterator[Any], schema: StructType, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the columns ``names`` of Spark's rows as Arrow batches: Spark 4.0 hands rows to a streaming writer, with timestamps
    as naive datetimes in this process's time zone."""
    from pykafka_wire.columns.spark_schema import arrow_schema

    arrow = arrow_schema(StructType([schema[name] for name in names]))

    def values(row: Any) -> dict[str, Any]:
        return {field.name: _python_value(row[field.name], field.type) for field in arrow}

    while chunk := list(islice(rows, _ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist([values(row) for row in chunk], schema=arrow)


def _python_value(value: Any, column_type: pa.DataType) -> Any:
    """Return a value of Spark's rows as ``pa.array`` takes it."""
    is_a = pa.types
    if value is None:
        return None
    if is_a.is_struct(column_type):  # by position: a Row may have two fields of one name
        return {field.name: _python_value(value[nth], field.type) for nth, field in enumerate(column_type)}
    if is_a.is_list(column_type):
        return [_python_value(item, column_type.value_type) for item in value]
    if is_a.is_map(column_type):
        key_type, item_type = column_type.key_type, column_type.item_type
        return [(_python_value(key, key_type), _python_value(item, item_type)) for key, item in value.items()]
    if is_a.is_timestamp(column_type) and column_type.tz is not None:
        return value.astimezone(timezone.utc)
    return value
