"""Spark's Arrow batches of 10,000 rows are joined before they are encoded: the same rows, in larger batches."""

from __future__ import annotations

import pyarrow as pa

from pykafka_wire.sink.writer import joined


def test_rows_keep_their_order_and_batches_grow() -> None:
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    values = [b"%0100d" % n for n in range(100_000)]
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.nulls(n, pa.binary()), pa.array(values[at : at + n], pa.binary())], schema=schema
        )
        for at, n in [(start, 1000) for start in range(0, 100_000, 1000)]
    ]
    batches.insert(3, batches[3].slice(0, 0))
    found = list(joined(iter(batches)))
    assert 2 <= len(found) <= 4
    assert [value for batch in found for value in batch.column("value").to_pylist()] == values


def test_nothing_and_empty_batches() -> None:
    empty = pa.RecordBatch.from_arrays([pa.array([], pa.binary())], names=["value"])
    assert list(joined(iter([]))) == []
    assert list(joined(iter([empty, empty]))) == []
