"""NumPy arrays as Arrow arrays, and back; byte strings that lie in a buffer as Arrow columns, copied or moved together in it.

``pa.array``, ``pa.scalar``, ``fill_null`` and ``to_numpy`` import pandas if it is installed, only to check for its objects. In a
Spark worker that import costs 0.2 s of CPU or more and 60 MB, and triples the garbage collection after each task. So code that
runs for every record uses the functions below instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.wire.arrow.varints import ByteBuffer, Ints

Flags = npt.NDArray[np.bool_]

#: Values that are smaller than this on average are copied: to move them takes as long.
_MOVED_BYTES: Final = 512
#: From this size on they are moved one by one, which takes 0.3 us for each besides the bytes.
_MOVED_ALONE_BYTES: Final = 4096
#: Smaller ones are copied to a place of this size, which stays in a core's cache, and from there.
_GROUP_BYTES: Final = 256 * 1024


def to_arrow(values: npt.NDArray[Any]) -> pa.Array:
    """Return an Arrow array without nulls over `values`, one-dimensional, contiguous integers; a view, no copy."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def to_arrow_with_nulls(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Return what :func:`to_arrow` does, null where `valid` is False."""
    buffers = [bitmap(valid), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def validity(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return bool[n]: which elements of an Arrow array are not null."""
    bits = values.buffers()[0]
    if not values.null_count or bits is None:
        return np.full(len(values), not values.null_count)
    flags = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little", count=values.offset + len(values))
    return flags[values.offset :].astype(np.bool_)


def to_numpy(values: pa.Array, *, null: int) -> npt.NDArray[Any]:
    """Return an Arrow array of integers as NumPy's, `null` for its nulls; a view, read-only, where it has none."""
    numbers = np.frombuffer(values.buffers()[1] or b"", dtype=str(values.type))[values.offset :][: len(values)]
    return np.where(validity(values), numbers, numbers.dtype.type(null)) if values.null_count else numbers


def repeat_text(text: str, n: int) -> pa.StringArray:
    """Return a pa.StringArray of `text`, which is not empty, `n` times."""
    encoded = text.encode()
    bounds = np.arange(0, (n + 1) * len(encoded), len(encoded), dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(bounds), pa.py_buffer(encoded * n)])


def binary_array(values: Sequence[bytes]) -> pa.BinaryArray:
    """Return a pa.BinaryArray of `values`."""
    bounds = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in values], out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(values))])


def binary_scalar(value: bytes) -> pa.BinaryScalar:
    """Return a pa.BinaryScalar."""
    return binary_array([value])[0]


def binary_column(buffer: ByteBuffer, starts: Ints, sizes: Ints) -> pa.BinaryArray:
    """Return a pa.BinaryArray of the strings in ``buffer`` at ``starts``, null where the size is -1; a copy.

    The boundaries of the strings are the offsets of one array over the buffer, and every second element of it is a string.
    """
    n = len(starts)
    size = int(sizes[0]) if n else 0
    if size > 0 and (sizes == size).all():
        return _of_one_size(buffer, starts, size)
    bounds = np.empty(2 * n + 1, dtype=np.int32)
    bounds[0:-1:2] = starts
    np.add(starts, np.maximum(sizes, 0), out=bounds[1::2], casting="unsafe")
    bounds[-1] = bounds[-2] if n else 0
    every = pa.Array.from_buffers(pa.binary(), 2 * n, [None, pa.py_buffer(bounds), pa.py_buffer(buffer)])
    _, offsets, content = every.take(to_arrow(np.arange(0, 2 * n, 2, dtype=np.int32))).buffers()
    return pa.Array.from_buffers(pa.binary(), n, [_nulls(sizes), offsets, content])


def _of_one_size(buffer: ByteBuffer, starts: Ints, size: int) -> pa.BinaryArray:
    """Return what :func:`binary_column` does, for strings of one size, which is above 0: NumPy copies them in half of the
    time of Arrow's ``take``."""
    n = len(starts)
    every = np.ndarray((len(buffer) - size + 1,), f"V{size}", buffer.data, strides=(1,))
    bounds = np.arange(0, (n + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(bounds), pa.py_buffer(every[starts])])


def value_column(buffer: ByteBuffer, starts: Ints, sizes: Ints) -> pa.BinaryArray:
    """Return what :func:`binary_column` does. But if the buffer is writable, and the strings are large and most of it, they
    are moved together in it, and the column is a view: page faults in the memory of a copy would cost more than the copying.
    """
    n, n_bytes = len(starts), int(sizes.sum(where=sizes > 0))
    if not buffer.flags.writeable or n_bytes < max(1, n * _MOVED_BYTES, len(buffer) * 3 // 4):
        return binary_column(buffer, starts, sizes)
    bounds = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(np.maximum(sizes, 0), out=bounds[1:])
    content = buffer[int(starts[0]) :]
    starts = starts - starts[0]
    if n_bytes < n * _MOVED_ALONE_BYTES:
        _move_groups(content, starts, sizes, bounds)
    else:
        _move_each(content, starts, bounds)
    return pa.Array.from_buffers(pa.binary(), n, [_nulls(sizes), pa.py_buffer(bounds), pa.py_buffer(content[:n_bytes])])


def _move_each(content: ByteBuffer, starts: Ints, bounds: npt.NDArray[np.int32]) -> None:
    """Move each string to its bounds, which are not behind its start."""
    view = content.data
    places = bounds.tolist()
    for start, place, end in zip(starts.tolist(), places[:-1], places[1:], strict=True):
        view[place:end] = view[start : start + end - place]


def _move_groups(content: ByteBuffer, starts: Ints, sizes: Ints, bounds: npt.NDArray[np.int32]) -> None:
    """Do as :func:`_move_each`, many strings together."""
    n = len(starts)
    n_grouped = _GROUP_BYTES * n // int(bounds[-1])
    for first in range(0, n, n_grouped):
        last = min(first + n_grouped, n)
        place, end = int(bounds[first]), int(bounds[last])
        if place < end:
            _, _, copied = binary_column(content, starts[first:last], sizes[first:last]).buffers()
            content[place:end] = np.frombuffer(copied, dtype=np.uint8, count=end - place)


def _nulls(sizes: Ints) -> pa.Buffer | None:
    """Return the validity bitmap of strings whose size is -1 for null; None if there are none."""
    valid = sizes >= 0
    return None if valid.all() else bitmap(valid)


def bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Return the validity bitmap of an Arrow array."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
