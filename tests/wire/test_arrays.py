"""Arrow arrays to NumPy and back, against Arrow's own conversions: nulls, and arrays that are slices of others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.wire.arrow.arrays import (
    binary_array,
    binary_column,
    binary_scalar,
    repeat_text,
    to_arrow,
    to_numpy,
    validity,
    value_column,
)

INTEGERS = [
    pa.array([1, None, 3, None, 5, 6, 7, 8, None, 10], pa.int32()),
    pa.array(range(10), pa.int64()),
    pa.array([None] * 10, pa.int64()),
    pa.array([], pa.int32()),
]


@pytest.mark.parametrize("whole", INTEGERS, ids=str)
@pytest.mark.parametrize("start", [0, 1, 9])
def test_integers_and_their_nulls(whole: pa.Array, start: int) -> None:
    values = whole.slice(start, 8)
    found = to_numpy(values, null=-7)
    assert found.dtype == np.dtype(str(values.type))
    assert found.tolist() == [-7 if value is None else value for value in values.to_pylist()]
    assert validity(values).tolist() == [value is not None for value in values.to_pylist()]


def test_other_arrays() -> None:
    assert to_arrow(np.arange(3, dtype=np.int32)).equals(pa.array([0, 1, 2], pa.int32()))
    assert repeat_text("tøpic", 3).equals(pa.array(["tøpic"] * 3))
    assert binary_array([b"a", b"", b"bcd"]).equals(pa.array([b"a", b"", b"bcd"]))
    assert binary_scalar(b"\0").equals(pa.scalar(b"\0", pa.binary()))


def scattered(values: list[bytes | None], gap: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A writable buffer with the values, apart from each other, and where they begin, and their sizes."""
    buffer = np.frombuffer(b"".join(b"." * gap + (value or b"") for value in values), dtype=np.uint8).copy()
    sizes = np.array([-1 if value is None else len(value) for value in values], dtype=np.int64)
    lengths = np.maximum(sizes, 0)
    return buffer, np.cumsum(lengths + gap) - lengths, sizes


def is_view(column: object, buffer: np.ndarray) -> bool:
    begins = buffer.__array_interface__["data"][0]
    return begins <= column.buffers()[2].address < begins + len(buffer)


def numbered(n: int, sizes: list[int | None]) -> list[bytes | None]:
    """Values of these sizes in turn, None for null, each of other bytes than its neighbours."""
    each = (sizes[i % len(sizes)] for i in range(n))
    return [None if size is None else (b"%06d" % i * (size // 6 + 1))[:size] for i, size in enumerate(each)]


@pytest.mark.parametrize("n", [1, 3, 1_000])
@pytest.mark.parametrize(
    "sizes",
    [[512], [1_000], [700, None, 2_000, 0], [None, 4_095], [0, 3_000], [4_096], [9_000, None, 20_000, 0], [100_000, 1]],
    ids=str,
)
def test_large_values_are_moved_together_and_come_out_as_if_copied(n, sizes):
    values = numbered(n, sizes)
    buffer, starts, lengths = scattered(values)
    assert binary_column(buffer, starts, lengths).to_pylist() == values
    column = value_column(buffer, starts, lengths)
    column.validate(full=True)
    assert column.to_pylist() == values
    n_bytes = sum(len(value or b"") for value in values)
    assert is_view(column, buffer) == (n_bytes >= max(1, 512 * n))


@pytest.mark.parametrize(
    ("sizes", "gap", "writable"), [([100], 7, True), ([1_000], 500, True), ([1_000], 7, False)], ids=str
)
def test_values_that_are_small_or_little_of_the_buffer_or_must_not_be_moved_are_copied(sizes, gap, writable):
    values = numbered(50, sizes)
    buffer, starts, lengths = scattered(values, gap)
    buffer.flags.writeable = writable
    before = buffer.copy()
    column = value_column(buffer, starts, lengths)
    assert column.to_pylist() == values
    assert not is_view(column, buffer)
    assert (buffer == before).all()


def test_there_may_be_no_values():
    nothing = np.empty(0, dtype=np.int64)
    for column in (binary_column, value_column):
        assert column(np.zeros(9, dtype=np.uint8), nothing, nothing).to_pylist() == []
