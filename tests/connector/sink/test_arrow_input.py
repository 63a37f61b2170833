"""Spark's Arrow batches of 10,000 rows are joined before they are encoded: the same rows, in larger batches."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from pykafka_wire.sink.arrow_input import coalesce_batches


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
    found = list(coalesce_batches(iter(batches)))
    assert 2 <= len(found) <= 4
    assert [value for batch in found for value in batch.column("value").to_pylist()] == values


def test_a_large_batch_goes_through_untouched_after_what_waited() -> None:
    small, large = (pa.RecordBatch.from_arrays([pa.array([b"x" * n])], names=["value"]) for n in (10, 5 << 20))
    found = list(coalesce_batches(iter([small, small, large, small])))
    assert [batch.num_rows for batch in found] == [2, 1, 1]
    assert found[1] is large


def test_rows_that_wait_are_sent_on_by_a_late_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.1, 0.5, 0.6, 0.7])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"])], names=["value"])
    assert [found.num_rows for found in coalesce_batches(iter([batch] * 4))] == [2, 2]


def test_nothing_and_empty_batches() -> None:
    empty = pa.RecordBatch.from_arrays([pa.array([], pa.binary())], names=["value"])
    assert list(coalesce_batches(iter([]))) == []
    assert list(coalesce_batches(iter([empty, empty]))) == []
