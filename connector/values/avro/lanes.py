"""Many encoded values read in parallel: one lane per value, with its position, its end and whether it failed.

Owns Avro's encodings of single values (https://avro.apache.org/docs/1.12.0/specification/#binary-encoding), each read for all
lanes at once. It knows no schema. A lane never raises: invalid bytes mark it as failed. A failed lane continues at its end
with meaningless values, which the caller drops.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.avro.input_limits import FREE_BYTES, FREE_PER_BYTE
from pykafka_wire.values.payloads import Flags, Ints, Payloads
from pykafka_wire.wire.records.arrays import to_arrow

Octets = npt.NDArray[np.uint8]

#: Half of what a value may take that is read alone, where arrays within arrays are counted together.
_FREE_PER_BYTE: Final = FREE_PER_BYTE // 2
#: A varint of 64 bits takes ten bytes at most.
_MAX_VARINT_BYTES: Final = 10
_HIGH_BITS: Final = np.uint64(0x8080_8080_8080_8080)
_LOW_BITS: Final = ~_HIGH_BITS
_ONE: Final = np.uint64(1)
#: Which bits stay, how far away their neighbours are, and how far those move.
_JOINS: Final = tuple(
    (np.uint64(mask), np.uint64(shift), np.uint64(distance))
    for mask, shift, distance in (
        (0x007F_007F_007F_007F, 8, 1),
        (0x0000_3FFF_0000_3FFF, 16, 2),
        (0x0000_0000_0FFF_FFFF, 32, 4),
    )
)


class Room:
    """The bytes of memory that items of arrays may take, beyond what is in proportion to their values' sizes."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = FREE_BYTES

    def spend(self, counts: Ints, item_bytes: int, sizes: Ints) -> Flags | None:
        """bool[n]: the lanes that have too many items; None where all have room.

        Args:
            counts: int64[n], the items of each lane.
            item_bytes: what an item takes in memory.
            sizes: int64[n], the bytes of the value that each lane's items take.
        """
        self._left -= int(counts.sum()) * item_bytes
        if self._left >= 0:
            return None
        too_many: Flags = counts * item_bytes > _FREE_PER_BYTE * sizes
        return too_many if too_many.any() else None


class Lanes:
    """Values in one buffer.

    Attributes:
        buffer: uint8[…], the bytes of all values.
        position: int64[n], the next position of each lane; ascending, and never after its end.
        end: int64[n], exclusive.
        failed: bool[n].
        room: what items may still take, for all lanes of one buffer.
    """

    __slots__ = ("buffer", "end", "failed", "position", "room")

    def __init__(self, buffer: Octets, position: Ints, end: Ints, room: Room) -> None:
        self.buffer = buffer
        self.room = room
        self.position = position
        self.end = end
        self.failed: Flags = np.zeros(len(position), dtype=np.bool_)

    @classmethod
    def of(cls, payloads: Payloads) -> Lanes:
        """At the beginning of each value."""
        return cls(payloads.data, payloads.starts.copy(), payloads.ends, Room())

    def __len__(self) -> int:
        return len(self.position)

    def select(self, index: Ints) -> Lanes:
        """A copy of some lanes, to read them separately and then merge them with :meth:`put_back`."""
        if len(index) == len(self):  # all of them
            return Lanes(self.buffer, self.position.copy(), self.end, self.room)
        return Lanes(self.buffer, self.position.take(index), self.end.take(index), self.room)

    def put_back(self, index: Ints, lanes: Lanes) -> None:
        """Take over the positions and failures of ``lanes``, which :meth:`select` returned for ``index``."""
        if len(index) == len(self):
            self.position = lanes.position.copy()
            self.failed |= lanes.failed
            return
        self.position[index] = lanes.position
        if lanes.failed.any():
            self.failed[index] |= lanes.failed

    def fail(self, wrong: Flags) -> None:
        """Mark lanes as failed, and move them to their end, where every length is 0."""
        if wrong.any():
            self.failed |= wrong
            np.copyto(self.position, self.end, where=wrong)

    def longs(self) -> Ints:
        """int64[n]: the next zigzag varint of each lane; 0 if it fails."""
        ends = self.position + 1
        first = self.buffer.take(self.position, mode="clip")
        if int(first.max(initial=0)) < 0x80:
            return self._advance(ends, ((first >> 1).view(np.int8) ^ -(first & 1).view(np.int8)).astype(np.int64))
        second = self.buffer.take(ends, mode="clip")
        if int((first & second).max()) < 0x80:
            is_long = first >> 7
            ends += is_long
            pairs = (second * is_long).astype(np.int16)
            pairs <<= 7
            pairs |= first & 0x7F
            return self._advance(ends, ((pairs >> 1) ^ -(pairs & 1)).astype(np.int64))
        words, ends = self._words(ends)
        signs = np.negative(words & _ONE)
        words >>= _ONE
        words ^= signs
        return self._advance(ends, words.view(np.int64))

    def _words(self, ends: Ints) -> tuple[npt.NDArray[np.uint64], Ints]:
        """uint64[n] of the varints that begin one before ``ends``, and int64[n] of their ends; changes ``ends``."""
        n_places = max(len(self.buffer) - 7, 0)
        n_whole = int(np.searchsorted(self.position, n_places))  # lanes with eight bytes before the buffer's end
        words = np.empty(len(self), dtype=np.uint64)
        rest = np.arange(n_whole, len(self))
        if n_whole:
            places = np.ndarray((n_places,), dtype="<u8", buffer=self.buffer.data, strides=(1,))
            found = words[:n_whole]
            found[:] = places[self.position[:n_whole]]
            last = ~found
            last &= _HIGH_BITS
            other = np.negative(last)
            last &= other  # the highest bit of the first byte that ends a varint, and of no other
            np.subtract(last, _ONE, out=other)
            other &= _LOW_BITS
            found &= other
            # Join the seven bits of each byte: first of two bytes, then of four, then of eight. In place: a new array of this
            # size takes longer than the operation.
            for mask, shift, distance in _JOINS:
                np.bitwise_and(found, mask << shift, out=other)
                other >>= distance
                found &= mask
                found |= other
            # A power of two as a float holds its exponent, which is 7, 15, 23, …
            exponents = last.astype(np.float64).view(np.int64)
            exponents >>= 52
            exponents -= 1023
            exponents >>= 3
            ends[:n_whole] += exponents
            if not int(last.min()):
                longer = np.flatnonzero(last == 0)
                ends[longer] = self.position[longer] + 1
                rest = np.concatenate([longer, rest])
        if len(rest):
            words[rest], ends[rest] = self._long_words(rest)
        return words, ends

    def _long_words(self, index: Ints) -> tuple[npt.NDArray[np.uint64], Ints]:
        """As :meth:`_words`, of some lanes, byte by byte: varints of any length, up to the buffer's end."""
        position = self.position.take(index)
        words = np.zeros(len(index), dtype=np.uint64)
        going = np.arange(len(index))
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            octet = self.buffer.take(position[going], mode="clip")
            words[going] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
            position[going] += 1
            going = going[octet > 0x7F]
        position[going] = self.end.take(index)[going] + 1  # longer than the maximum of a varint
        return words, position

    def fixed(self, dtype: str) -> npt.NDArray[Any]:
        """The next fixed-width numbers, in a NumPy dtype such as ``<f8``; 0 if a lane fails."""
        width = np.dtype(dtype).itemsize
        n_places = len(self.buffer) - width + 1
        if n_places < 1:
            self.fail(np.ones(len(self), dtype=np.bool_))
            return np.zeros(len(self), dtype=dtype)
        # View each position of the buffer as a number, aligned or not: no bytes are copied one by one.
        places = np.ndarray((n_places,), dtype=dtype, buffer=self.buffer.data, strides=(1,))
        return self._advance(self.position + width, places[np.minimum(self.position, n_places - 1)])

    def advance(self, sizes: Ints | int) -> None:
        """Go past so many bytes; lanes that have fewer fail."""
        ends = self.position + sizes
        wrong = ends > self.end
        self.position = ends
        self.fail(wrong)

    def octets(self) -> Octets:
        """uint8[n]: the next byte of each lane; 0 if it fails."""
        return self._advance(self.position + 1, self.buffer.take(self.position, mode="clip"))

    def lengths(self) -> Ints:
        """int64[n]: the next varint as a length, checked against the lane's remaining bytes."""
        sizes = self.longs()
        wrong = (sizes < 0) | (sizes > self.end - self.position)
        if wrong.any():
            self.fail(wrong)
            sizes[wrong] = 0
        return sizes

    def slices(self, sizes: Ints | int, arrow_type: pa.DataType) -> Any:
        """pa.Array of the next ``sizes`` bytes of each lane, as ``pa.binary()`` or ``pa.string()``; a copy."""
        starts = self.position
        self.position = starts + sizes
        bounds = np.empty(2 * len(self), dtype=np.int32)
        bounds[0::2] = starts
        bounds[1::2] = self.position
        # Elements alternate between a lane's bytes and the gap before the next lane: every second one is needed.
        n_slices = max(2 * len(self) - 1, 0)
        everything = pa.Array.from_buffers(
            arrow_type,
            n_slices,
            [None, pa.py_buffer(bounds if n_slices else np.zeros(1, np.int32)), pa.py_buffer(self.buffer)],
        )
        return everything.take(to_arrow(np.arange(0, n_slices, 2, dtype=np.int32)))

    def _advance(self, ends: Ints, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        self.position = ends
        wrong = ends > self.end
        if wrong.any():
            self.fail(wrong)
            values[wrong] = 0
        return values
