"""Reads many Avro values together: each has its next position, its end, and whether it failed.

Owns Avro's encodings of single values (https://avro.apache.org/docs/1.12.0/specification/#binary-encoding), each read for all
values at once. It knows no schema. It never raises on bytes: a value that is not valid is marked as failed. It continues at its
end with elements that mean nothing, which the caller drops.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.bulk.arrays import Flags, Ints, slices
from pykafka_wire.values.bulk.reading import MemoryBudget, Payloads
from pykafka_wire.wire.arrow.varints import ByteBuffer, numbers_at, read_unsigned, to_signed

#: What a value may take in memory for items that take no bytes of it, or few, in both ways of reading: a null is one byte, and has
#: a place in each column of the record that it stands for. A quarter of a million nulls for records of 30 numbers, or an array of
#: any length in which every tenth is a record. Twice what a Protobuf value may take: its items have two bytes at least, Avro's one.
FREE_BYTES: Final = 64 << 20
FREE_PER_BYTE: Final = 64
#: Half of what a value may take that is read alone, where arrays within arrays are counted together.
_FREE_PER_BYTE: Final = FREE_PER_BYTE // 2
#: Rounds that pass one item each of a few values, for all arrays of a buffer. Where deep maps differ from value to value,
#: each round is of few: reading the values one by one takes less time.
_MAX_ROUNDS_OF_FEW: Final = 16_384


class RoundsBudget:
    """How many more rounds of few values the values of one buffer may take."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MAX_ROUNDS_OF_FEW

    def spend(self) -> bool:
        """Return whether there is one more."""
        self._left -= 1
        return self._left >= 0


class BulkReader:
    """Values in one buffer.

    Attributes:
        buffer: uint8[…], the bytes of all values.
        position: int64[n], the next position of each value; ascending, and never after its end.
        end: int64[n], exclusive.
        failed: bool[n].
        memory, rounds: what items may still take, of all values of one buffer.
    """

    __slots__ = ("buffer", "end", "failed", "memory", "position", "rounds")

    def __init__(
        self, buffer: ByteBuffer, position: Ints, end: Ints, memory: MemoryBudget, rounds: RoundsBudget
    ) -> None:
        self.buffer = buffer
        self.memory = memory
        self.rounds = rounds
        self.position = position
        self.end = end
        self.failed: Flags = np.zeros(len(position), dtype=np.bool_)

    @classmethod
    def of(cls, payloads: Payloads) -> BulkReader:
        """Return a reader at the beginning of each value."""
        memory = MemoryBudget(FREE_BYTES, _FREE_PER_BYTE)
        return cls(payloads.data, payloads.starts.copy(), payloads.ends, memory, RoundsBudget())

    def __len__(self) -> int:
        return len(self.position)

    def select(self, index: Ints) -> BulkReader:
        """Return a copy of some values, to read them separately and then merge them with :meth:`put_back`."""
        if len(index) == len(self):  # all of them
            return self.at(self.position.copy(), self.end)
        return self.at(self.position.take(index), self.end.take(index))

    def at(self, position: Ints, end: Ints) -> BulkReader:
        """Return other values in the same buffer, within the same budgets."""
        return BulkReader(self.buffer, position, end, self.memory, self.rounds)

    def put_back(self, index: Ints, reader: BulkReader) -> None:
        """Take over the positions and failures of ``reader``, which :meth:`select` returned for ``index``."""
        if len(index) == len(self):
            self.position = reader.position.copy()
            self.failed |= reader.failed
            return
        self.position[index] = reader.position
        if reader.failed.any():
            self.failed[index] |= reader.failed

    def fail(self, wrong: Flags) -> None:
        """Mark values as failed, and move them to their end, where every length is 0."""
        if wrong.any():
            self.failed |= wrong
            np.copyto(self.position, self.end, where=wrong)

    def longs(self) -> Ints:
        """Return int64[n]: the next zigzag varint of each value; 0 if it fails."""
        words, ends = read_unsigned(self.buffer, self.position)
        return self._advance(ends, to_signed(words))

    def fixed(self, dtype: str) -> npt.NDArray[Any]:
        """Return the next fixed-width numbers, in a NumPy dtype such as ``<f8``; 0 if a value fails."""
        return self._advance(self.position + np.dtype(dtype).itemsize, numbers_at(self.buffer, self.position, dtype))

    def advance(self, sizes: Ints | int) -> None:
        """Go past so many bytes; values that have fewer fail."""
        ends = self.position + sizes
        wrong = ends > self.end
        self.position = ends
        self.fail(wrong)

    def single_bytes(self) -> ByteBuffer:
        """Return uint8[n]: the next byte of each value; 0 if it fails."""
        return self._advance(self.position + 1, self.buffer.take(self.position, mode="clip"))

    def lengths(self, size: int | None = None) -> Ints:
        """Return int64[n]: ``size``, or the next varint as a length, checked against the value's remaining bytes; 0 if it
        fails.
        """
        sizes = self.longs() if size is None else np.full(len(self), size, dtype=np.int64)
        wrong = (sizes < 0) | (sizes > self.end - self.position)
        if wrong.any():
            self.fail(wrong)
            sizes[wrong] = 0
        return sizes

    def spans(self, size: int | None = None) -> tuple[Ints, Ints]:
        """Return where the next bytes of each value start, and how many they are (:meth:`lengths`); goes past them."""
        sizes = self.lengths(size)
        starts = self.position
        self.position = starts + sizes
        return starts, sizes

    def slices(self, size: int | None, arrow_type: pa.DataType) -> pa.Array:
        """Return a pa.Array of these bytes, as ``pa.binary()`` or ``pa.string()``; a copy."""
        starts, _ = self.spans(size)
        return slices(self.buffer, starts, self.position, arrow_type)

    def _advance(self, ends: Ints, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        self.position = ends
        wrong = ends > self.end
        if wrong.any():
            self.fail(wrong)
            values[wrong] = 0
        return values
