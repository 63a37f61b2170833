"""Arrow arrays to NumPy and back, against Arrow's own conversions: nulls, and arrays that are slices of others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.wire.records.arrays import binary_array, binary_scalar, repeated, to_arrow, to_numpy, validity

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
    assert repeated("tøpic", 3).equals(pa.array(["tøpic"] * 3))
    assert binary_array([b"a", b"", b"bcd"]).equals(pa.array([b"a", b"", b"bcd"]))
    assert binary_scalar(b"\0").equals(pa.scalar(b"\0", pa.binary()))
