"""Many Protobuf messages read in parallel: one lane per message, with its position, its end and whether it failed.

Owns Protobuf's encodings of single values (https://protobuf.dev/programming-guides/encoding/), each read for all lanes at once.
It knows no schema. A lane never raises: invalid bytes mark it as failed, and its values mean nothing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.protobuf.input_limits import FREE_BYTES, FREE_PER_BYTE
from pykafka_wire.wire.records.arrays import to_arrow

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
#: Varints as they are: uint8[n] where all have one byte, uint32[n] where they have four at most, else uint64[n].
Words = npt.NDArray[Any]

#: Zeros after the data that may be read, and mean nothing: a tag beyond the end and a word of 64 bits never reach further.
_PADDING: Final = 32
_HIGH_BITS: Final = np.uint64(0x8080_8080_8080_8080)
_SEVEN: Final = np.uint64(0x007F_007F_007F_007F)
_FOURTEEN: Final = np.uint64(0x0000_3FFF_0000_3FFF)
_TWENTY_EIGHT: Final = np.uint64(0x0000_0000_0FFF_FFFF)
#: A round takes some 50 µs, and a field that is read one by one some 0.2 µs: reading in columns takes a few times as long at most.
_LANES_OF_A_ROUND: Final = 64
_FREE_ROUNDS: Final = 500
_ONE, _TWO, _FOUR, _U8, _U16, _U32, _U56, _U63 = (np.uint64(each) for each in (1, 2, 4, 8, 16, 32, 56, 63))
_HIGH_BITS_OF_SHORT, _ONE_OF_SHORT = np.uint32(0x8080_8080), np.uint32(1)
_SEVEN_OF_SHORT, _FOURTEEN_OF_SHORT = np.uint32(0x007F_007F), np.uint32(0x0000_3FFF)
#: The end of a varint that has more than ten bytes, or more than 64 bits: after the end of any lane.
_NOWHERE: Final = 1 << 60


class Data:
    """The bytes of all lanes, copied so that reads may go beyond the last one.

    Attributes:
        octets: uint8[…].
        size: without the padding.
        room: bytes of memory that items of arrays may still take, beyond what is in proportion to the size of their message.
        work: how many lanes' fields may still be found in rounds of few lanes; see :meth:`is_worth_a_round`.
        unchecked: by what checks them, the starts, ends and rows of messages that no one wants.
    """

    __slots__ = ("octets", "room", "size", "unchecked", "work")

    def __init__(self, octets: Octets) -> None:
        self.size = len(octets)
        self.room = FREE_BYTES
        self.work = _FREE_ROUNDS * _LANES_OF_A_ROUND
        self.unchecked: dict[Any, list[tuple[Ints, Ints, Ints]]] = {}
        self.octets: Octets = np.empty(len(octets) + _PADDING, dtype=np.uint8)
        self.octets[: len(octets)] = octets
        self.octets[len(octets) :] = 0

    def is_worth_a_round(self, n_lanes: int) -> bool:
        """Whether to find a field of so many lanes; False where too many rounds found those of a few, and more would follow.

        A round takes as long as many fields that are read one by one. Messages that hold themselves have lanes that become fewer
        with each level, while there are more and more ways to them.
        """
        self.work += n_lanes - _LANES_OF_A_ROUND
        return self.work >= 0

    def at(self, dtype: str) -> npt.NDArray[Any]:
        """A number of any width at each position, aligned or not; a view, to be indexed: ``take`` would copy all of it."""
        n_places = len(self.octets) - np.dtype(dtype).itemsize + 1
        places: npt.NDArray[Any] = np.ndarray((n_places,), dtype=dtype, buffer=self.octets.data, strides=(1,))
        return places

    def varints(self, position: Ints) -> tuple[Words, Ints]:
        """The varint at each position, and int64[n]: where it ends."""
        first = self.octets.take(position, mode="clip")
        ends = position + 1
        if int(first.max(initial=0)) < 0x80:
            return first, ends
        short = self.at("<u4")[position]
        last_of_short = ~short & _HIGH_BITS_OF_SHORT
        if last_of_short.all():
            last_of_short &= np.negative(last_of_short)
            short &= (last_of_short - _ONE_OF_SHORT) & ~_HIGH_BITS_OF_SHORT
            short = (short & _SEVEN_OF_SHORT) | (short & (_SEVEN_OF_SHORT << np.uint32(8))) >> _ONE_OF_SHORT
            short = (short & _FOURTEEN_OF_SHORT) | (short & (_FOURTEEN_OF_SHORT << np.uint32(16))) >> np.uint32(2)
            ends += ((last_of_short.astype(np.float32).view(np.int32) >> 23) - 127) >> 3
            return short, ends
        found = self.at("<u8")[position]
        last = ~found & _HIGH_BITS
        last &= np.negative(last)  # the highest bit of the first byte that ends a varint, and of no other
        found &= (last - _ONE) & ~_HIGH_BITS
        # Join the seven bits of each byte: first of two bytes, then of four, then of eight.
        found = (found & _SEVEN) | (found & (_SEVEN << _U8)) >> _ONE
        found = (found & _FOURTEEN) | (found & (_FOURTEEN << _U16)) >> _TWO
        found = (found & _TWENTY_EIGHT) | (found & (_TWENTY_EIGHT << _U32)) >> _FOUR
        # A power of two as a float holds its exponent, which is 7, 15, 23, …
        ends += ((last.astype(np.float64).view(np.int64) >> 52) - 1023) >> 3
        longer = np.flatnonzero(last == 0)
        if len(longer):
            found[longer], ends[longer] = self._long(position.take(longer), found.take(longer))
        return found, ends

    def _long(self, position: Ints, low: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], Ints]:
        """Varints of more than eight bytes, whose first 56 bits are ``low``."""
        ninth = self.octets.take(position + 8, mode="clip").astype(np.uint64)
        tenth = self.octets.take(position + 9, mode="clip").astype(np.uint64)
        is_ten = ninth > 0x7F
        words = low | (ninth & np.uint64(0x7F)) << _U56 | np.where(is_ten, tenth & _ONE, np.uint64(0)) << _U63
        ends = position + 9 + is_ten
        ends[is_ten & (tenth > 1)] = _NOWHERE
        return words, ends

    def slices(self, starts: Ints, sizes: Ints, arrow_type: pa.DataType) -> Any:
        """pa.Array of bytes as ``pa.binary()`` or ``pa.string()``; slices must ascend and not overlap; a copy."""
        n = len(starts)
        bounds = np.zeros(max(2 * n, 1), dtype=np.int32)
        bounds[0 : 2 * n : 2] = starts
        bounds[1 : 2 * n : 2] = starts + sizes
        # Elements alternate between a slice and the gap before the next: every second one is needed.
        n_slices = max(2 * n - 1, 0)
        everything = pa.Array.from_buffers(
            arrow_type, n_slices, [None, pa.py_buffer(bounds), pa.py_buffer(self.octets)]
        )
        return everything.take(to_arrow(np.arange(0, n_slices, 2, dtype=np.int32)))


class Lanes:
    """Messages within one :class:`Data`.

    Attributes:
        start: int64[n], where each message starts; ascending.
        end: int64[n], exclusive; never after the next start.
        failed: bool[n].
        depth: how many messages are around these.
        rows: int64[n], the row of each message; None where each message is a row's.
    """

    __slots__ = ("data", "depth", "end", "failed", "rows", "start")

    def __init__(self, data: Data, start: Ints, end: Ints, depth: int = 0, rows: Ints | None = None) -> None:
        self.data = data
        self.start = start
        self.end = end
        self.depth = depth
        self.rows = rows
        self.failed: Flags = np.zeros(len(start), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.start)

    def rows_of(self, index: Ints) -> Ints:
        """The rows of the lanes at ``index``."""
        return index if self.rows is None else self.rows[index]

    def check_later(self, messages: Any, index: Ints, starts: Ints, ends: Ints) -> None:
        """Keep messages within the lanes at ``index``, which no one wants, to be checked with all others of their type."""
        self.data.unchecked.setdefault(messages, []).append((starts, ends, self.rows_of(index)))

    def spend(self, owner: Ints, item_bytes: int) -> Flags | None:
        """bool[n]: the lanes that have too many items for their size; None where all items have room.

        Args:
            owner: int64[…], the lane of each item.
            item_bytes: what an item takes in memory.
        """
        self.data.room -= len(owner) * item_bytes
        if self.data.room >= 0:
            return None
        sizes = np.bincount(owner, minlength=len(self)) * item_bytes
        too_many: Flags = sizes > FREE_PER_BYTE * (self.end - self.start)
        return too_many if too_many.any() else None
