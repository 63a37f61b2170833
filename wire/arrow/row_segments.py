"""Bytes that are written for many elements together: words of up to eight bytes, byte arrays, and how they are joined.

A segment holds some bytes for every element, and what is written for an element is its bytes out of each segment, in the segments'
order: records in a batch, and values of every format. Knows no format but the varints of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.wire.arrow.arrays import Flags, binary_scalar, to_arrow, validity
from pykafka_wire.wire.arrow.varints import Ints, zigzag

Words64 = npt.NDArray[np.uint64]

_WORD_BYTES: Final = 8
_NOTHING: Final = binary_scalar(b"")
#: More elements than this are joined without a list of their places, which takes 4 bytes for each element of each array.
_MAX_TAKEN: Final = 65_536
#: More bytes an element than this are joined without a copy of all of them, which would then cost more than it saves.
_MAX_TAKEN_BYTES: Final = 256
#: The bits that say "more bytes follow" in a varint of each size, up to the nine and ten bytes whose first eight all have it.
_CONTINUED: Final = np.array(
    [
        0,
        *(int.from_bytes(b"\x80" * (size - 1), "little") for size in range(1, 9)),
        0x8080808080808080,
        0x8080808080808080,
    ],
    dtype=np.uint64,
)


@dataclass(frozen=True, slots=True)
class WordSegment:
    """Up to eight bytes of each element, as little-endian numbers.

    Attributes:
        values: uint64[n]; bytes from an element's size on are zero.
        sizes: int64[n], or the one size of all elements.
        max_size: of any element.
    """

    values: Words64
    sizes: Ints | int
    max_size: int


@dataclass(frozen=True, slots=True)
class BytesSegment:
    """Any number of bytes of each element.

    Attributes:
        array: pa.BinaryArray; a null stands for no bytes.
    """

    array: pa.BinaryArray


RowSegment = WordSegment | BytesSegment


def constant(content: bytes, n: int) -> list[WordSegment]:
    """Return the same bytes for each of ``n`` elements."""
    parts = [content[start : start + _WORD_BYTES] for start in range(0, len(content), _WORD_BYTES)]
    return [
        WordSegment(np.full(n, int.from_bytes(part, "little"), dtype=np.uint64), len(part), len(part)) for part in parts
    ]


def bytes_segment(offsets: npt.NDArray[Any], data: Any) -> BytesSegment:
    """Return bytes between ``offsets``, which are n + 1 and ascend; a view of ``data``.

    Raises:
        OverflowError: more than 2 GiB.
    """
    if len(offsets) and int(offsets[-1]) > np.iinfo(np.int32).max:
        raise OverflowError("more than 2 GiB in one column")
    bounds = pa.py_buffer(np.ascontiguousarray(offsets, dtype=np.int32))
    return BytesSegment(pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, bounds, pa.py_buffer(data)]))


def varints(numbers: Ints) -> list[WordSegment]:
    """Return each number as a zigzag varint."""
    return unsigned_varints(zigzag(numbers))


def counts(numbers: Ints) -> list[WordSegment]:
    """Return each number, none of them negative, as a zigzag varint."""
    return unsigned_varints((numbers << 1).view(np.uint64))


def unsigned_varints(unsigned: Words64) -> list[WordSegment]:
    """Return each number as a varint."""
    if not len(unsigned):
        return []
    minimum, maximum = int(unsigned.min()), int(unsigned.max())
    smallest, largest = max(1, -(-minimum.bit_length() // 7)), max(1, -(-maximum.bit_length() // 7))
    sizes: Ints | int = largest
    if smallest != largest:
        sizes = np.full(len(unsigned), smallest, dtype=np.int64)
        for size in range(smallest, largest):
            sizes += unsigned >= np.uint64(1 << 7 * size)
    if largest == 1:
        return [WordSegment(unsigned, 1, 1)]
    low = unsigned if largest <= _WORD_BYTES else unsigned & np.uint64((1 << 56) - 1)
    scattered = _scatter(low, min(largest, _WORD_BYTES)) | _CONTINUED[sizes]
    if largest <= _WORD_BYTES:
        return [WordSegment(scattered, sizes, largest)]
    high = unsigned >> np.uint64(56)  # eight bits
    second = high & np.uint64(0x7F) | (high >> np.uint64(7)) << np.uint64(8)
    if isinstance(sizes, int):
        second |= np.uint64(0x80 if sizes == 10 else 0)
        return [WordSegment(scattered, 8, 8), WordSegment(second, sizes - 8, 2)]
    second |= np.where(sizes == 10, np.uint64(0x80), np.uint64(0))
    return [WordSegment(scattered, np.minimum(sizes, 8), 8), WordSegment(second, np.maximum(sizes - 8, 0), 2)]


def _scatter(numbers: Words64, n_groups: int) -> Words64:
    """Return the ``n_groups`` groups of seven bits of each number, in a byte each; the lowest group in the lowest byte."""
    if n_groups > 4:
        numbers = numbers & np.uint64(0x000000000FFFFFFF) | (numbers & np.uint64(0x00FFFFFFF0000000)) << np.uint64(4)
    if n_groups > 2:
        numbers = numbers & np.uint64(0x00003FFF00003FFF) | (numbers & np.uint64(0x0FFFC0000FFFC000)) << np.uint64(2)
    scattered: Words64 = numbers & np.uint64(0x007F007F007F007F) | (
        numbers & np.uint64(0x3F803F803F803F80)
    ) << np.uint64(1)
    return scattered


def mask_segment(segment: RowSegment, present: Flags) -> RowSegment:
    """Return the same segment without bytes where ``present`` is False. BytesSegment must have nulls there."""
    if isinstance(segment, BytesSegment):
        return segment
    return WordSegment(
        np.where(present, segment.values, np.uint64(0)), np.where(present, segment.sizes, 0), segment.max_size
    )


def expand_rows(array: pa.BinaryArray, present: Flags) -> BytesSegment:
    """Return the elements of a pa.BinaryArray without nulls, in their order, where ``present`` is True, and no bytes elsewhere."""
    before = np.zeros(len(present) + 1, dtype=np.int64)
    np.cumsum(present, out=before[1:])
    return bytes_segment(bounds(array)[before], _data(array))


def bounds(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return int32[n + 1]: where the elements of a binary or string array begin and end in its data."""
    offsets = array.buffers()[1]
    return np.frombuffer(offsets or bytes(4), dtype=np.int32)[array.offset :][: len(array) + 1]


def byte_lengths(array: pa.BinaryArray) -> Ints:
    """Return int64[n]: the bytes of each element of a binary or string array, 0 for null."""
    lengths: Ints = np.diff(bounds(array)).astype(np.int64)
    return np.where(validity(array), lengths, 0) if array.null_count else lengths


def _data(array: pa.BinaryArray) -> Any:
    return array.buffers()[2] or b""


def join_segments(segments: Sequence[RowSegment], n: int) -> pa.BinaryArray:
    """Return a pa.BinaryArray, without nulls: the bytes of each of ``n`` elements out of all segments."""
    arrays: list[pa.BinaryArray] = []
    run: list[WordSegment] = []
    for segment in segments:
        if isinstance(segment, WordSegment):
            _append(run, segment)
            continue
        if run:
            arrays.append(_write_words(run, n))
            run = []
        arrays.append(segment.array)
    if run:
        arrays.append(_write_words(run, n))
    if len(arrays) == 1 and not arrays[0].null_count:
        return arrays[0]
    if not arrays or n == 0:
        return bytes_segment(np.zeros(n + 1, dtype=np.int32), b"").array
    if n > _MAX_TAKEN or sum(array.nbytes for array in arrays) > _MAX_TAKEN_BYTES * n:
        return pc.binary_join_element_wise(*arrays, _NOTHING, null_handling="replace", null_replacement=b"")
    # The elements of all arrays in the order of rows, taken at once: what a row has is side by side. It takes 40 ns a row for six
    # arrays, where binary_join_element_wise takes 70, and 90 if there are nulls.
    taken = pa.concat_arrays(arrays).take(_row_order(n, len(arrays)))
    return bytes_segment(bounds(taken)[:: len(arrays)], _data(taken)).array


@lru_cache(maxsize=2)  # a column writer's rows come in groups of one size, but for the last of a batch
def _row_order(n: int, n_arrays: int) -> pa.Array:
    """Return the places of the elements of arrays of ``n``, one behind the other, row by row."""
    order = np.empty((n, n_arrays), dtype=np.int32)
    for nth in range(n_arrays):
        order[:, nth] = np.arange(nth * n, (nth + 1) * n, dtype=np.int32)
    return to_arrow(order.reshape(-1))


def _append(run: list[WordSegment], word: WordSegment) -> None:
    """Add a word to a run, within its last word where both together have room in eight bytes."""
    if not run or run[-1].max_size + word.max_size > _WORD_BYTES:
        run.append(word)
        return
    last = run.pop()
    shift = np.uint64(8 * last.sizes) if isinstance(last.sizes, int) else (last.sizes << 3).view(np.uint64)
    values = word.values << shift
    values |= last.values
    run.append(WordSegment(values, last.sizes + word.sizes, last.max_size + word.max_size))


def _write_words(run: Sequence[WordSegment], n: int) -> pa.BinaryArray:
    """Return a pa.BinaryArray of each element's words.

    Every word is stored with all its eight bytes, at its position. The words are stored in the order of their positions, so that
    each one overwrites what the one before has stored behind its end.
    """
    if len(run) == 1:
        return _written_alone(run[0], n)
    ends = np.empty((n, len(run)), dtype=np.int64)
    values = np.empty((n, len(run)), dtype=np.uint64)
    for place, word in enumerate(run):
        ends[:, place] = word.sizes
        values[:, place] = word.values
    flat = ends.reshape(-1)
    np.cumsum(flat, out=flat)
    positions = np.zeros(len(flat), dtype=np.int64)
    positions[1:] = flat[:-1]
    offsets = np.zeros(n + 1, dtype=np.int64)
    offsets[1:] = ends[:, -1]
    return bytes_segment(offsets, _store_words(positions, values.reshape(-1), int(offsets[-1]))).array


def _written_alone(word: WordSegment, n: int) -> pa.BinaryArray:
    """Return what :func:`_write_words` does, of one word."""
    if isinstance(word.sizes, int):
        row_bytes = word.values.astype("<u8", copy=False).view(np.uint8).reshape(n, _WORD_BYTES)
        offsets = np.arange(0, (n + 1) * word.sizes, word.sizes, dtype=np.int64)
        return bytes_segment(offsets, np.ascontiguousarray(row_bytes[:, : word.sizes])).array
    offsets = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(word.sizes, out=offsets[1:])
    return bytes_segment(offsets, _store_words(offsets[:-1], word.values, int(offsets[-1]))).array


def _store_words(positions: Ints, values: Words64, n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return uint8[n_bytes and more]: all eight bytes of each word, in order."""
    buffer = np.empty(n_bytes + _WORD_BYTES, dtype=np.uint8)
    places = np.ndarray((n_bytes + 1,), dtype="<u8", buffer=buffer.data, strides=(1,))
    places[positions] = values
    return buffer
