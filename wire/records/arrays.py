"""NumPy arrays as Arrow arrays, and back.

``pa.array``, ``pa.scalar``, ``fill_null`` and ``to_numpy`` import pandas if it is installed, only to check for its objects. In a
Spark worker that import costs 0.2 s of CPU or more and 60 MB, and triples the garbage collection after each task. So code that
runs for every record uses the functions below instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def to_arrow(values: npt.NDArray[Any]) -> Any:
    """An Arrow array without nulls over `values`, one-dimensional, contiguous integers; a view, no copy."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def to_arrow_with_nulls(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> Any:
    """As :func:`to_arrow`, null where `valid` is False."""
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bitmap, pa.py_buffer(values)])


def validity(values: Any) -> npt.NDArray[np.bool_]:
    """bool[n]: which elements of an Arrow array are not null."""
    bitmap = values.buffers()[0]
    if not values.null_count or bitmap is None:
        return np.full(len(values), not values.null_count)
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little", count=values.offset + len(values))
    return bits[values.offset :].astype(np.bool_)


def to_numpy(values: Any, *, null: int) -> npt.NDArray[Any]:
    """An Arrow array of integers as NumPy's, `null` for its nulls; a view, read-only, where it has none."""
    numbers = np.frombuffer(values.buffers()[1] or b"", dtype=str(values.type))[values.offset :][: len(values)]
    return np.where(validity(values), numbers, numbers.dtype.type(null)) if values.null_count else numbers


def repeated(text: str, n: int) -> Any:
    """pa.StringArray of `text`, which is not empty, `n` times."""
    encoded = text.encode()
    bounds = np.arange(0, (n + 1) * len(encoded), len(encoded), dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(bounds), pa.py_buffer(encoded * n)])


def binary_array(values: Sequence[bytes]) -> Any:
    """pa.BinaryArray of `values`."""
    bounds = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in values], out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(values))])


def binary_scalar(value: bytes) -> Any:
    """A pa.BinaryScalar."""
    return binary_array([value])[0]
