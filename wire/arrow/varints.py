"""Varints in bulk: arrays of them read from a buffer in one call, and the sizes of those to be written; and the fields of many
records, which are varints and what they count, of all records at once.

Records and Avro use zigzag varints (one byte holds -64 to 63), Protobuf both. Kafka's messages use unsigned varints, one at a time,
which :mod:`~pykafka_wire.wire.protocol.primitives` reads and writes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pykafka_wire.wire.errors import CorruptBatchError

Ints = npt.NDArray[np.int64]
ByteBuffer = npt.NDArray[np.uint8]
#: Unsigned varints: uint8[n] where all have one byte, uint16[n] where they have two at most, else uint32[n] or uint64[n].
Words = npt.NDArray[Any]

#: The end of a varint that is too long: after the end of any buffer.
_NOWHERE: Final = 1 << 60
_WORD_BYTES: Final = 8
#: Of so many varints, one that has more than two bytes is read alone.
_FEW: Final = 8
_HIGH_BITS: Final = np.uint64(0x8080_8080_8080_8080)
_LOW_BITS: Final = ~_HIGH_BITS
_ONE, _SEVEN_BITS, _U56, _U63 = (np.uint64(number) for number in (1, 0x7F, 56, 63))
#: Which bits stay, how far away their neighbours are, and how far those move.
_JOINS: Final = tuple(
    (np.uint64(mask), np.uint64(shift), np.uint64(distance))
    for mask, shift, distance in (
        (0x007F_007F_007F_007F, 8, 1),
        (0x0000_3FFF_0000_3FFF, 16, 2),
        (0x0000_0000_0FFF_FFFF, 32, 4),
    )
)
_HIGH_BITS_OF_SHORT, _ONE_OF_SHORT = np.uint32(0x8080_8080), np.uint32(1)
_JOINS_OF_SHORT: Final = (
    (np.uint32(0x007F_007F), np.uint32(8), np.uint32(1)),
    (np.uint32(0x3FFF), np.uint32(16), np.uint32(2)),
)


def read_unsigned(buffer: ByteBuffer, positions: Ints, max_tenth: int = 0x7F) -> tuple[Words, Ints]:
    """Return the varint at each position, and int64[n]: the positions behind them.

    One that reaches beyond the buffer's end, or is too long, ends beyond it, and has a value that means nothing.

    Args:
        max_tenth: the largest tenth byte of a varint that is not too long. Java's clients and Avro drop its bits above the 64th.
    """
    first = buffer.take(positions, mode="clip")
    ends = positions + 1
    if int(first.max(initial=0)) < 0x80:
        return first, ends
    second = buffer.take(ends, mode="clip")
    two = first >> 7
    more = np.flatnonzero(two & second >> 7)
    if len(more) <= len(first) // _FEW:
        ends += two
        words: Words = two_bytes(first, second)
        if len(more):
            longer, ends[more] = _read_wide(buffer, positions.take(more), max_tenth)
            words = words.astype(np.uint64)
            words[more] = longer
        return words, ends
    return _read_wide(buffer, positions, max_tenth)


def _read_wide(buffer: ByteBuffer, positions: Ints, max_tenth: int) -> tuple[Words, Ints]:
    """Return what :func:`read_unsigned` does, of varints of which most have more than two bytes."""
    ends = positions + 1
    short = numbers_at(buffer, positions, "<u4")
    last_of_short = ~short & _HIGH_BITS_OF_SHORT
    if last_of_short.all():
        last_of_short &= np.negative(
            last_of_short
        )  # the highest bit of the first byte that ends a varint, and of no other
        short &= (last_of_short - _ONE_OF_SHORT) & ~_HIGH_BITS_OF_SHORT
        _join(short, _JOINS_OF_SHORT)
        # A power of two as a float holds its exponent, which is 7, 15, 23, …
        ends += ((last_of_short.astype(np.float32).view(np.int32) >> 23) - 127) >> 3
        return short, ends
    words = numbers_at(buffer, positions, "<u8")
    last = ~words & _HIGH_BITS
    other = np.negative(last)
    last &= other
    np.subtract(last, _ONE, out=other)
    other &= _LOW_BITS
    words &= other
    _join(words, _JOINS)
    exponents = last.astype(np.float64).view(np.int64)
    exponents >>= 52
    exponents -= 1023
    exponents >>= 3
    ends += exponents
    if not int(last.min()):
        longer = np.flatnonzero(last == 0)
        words[longer], ends[longer] = _read_long(buffer, positions.take(longer), words.take(longer), max_tenth)
    return words, ends


def _join(words: npt.NDArray[Any], joins: tuple[Any, ...]) -> None:
    """Join the seven bits of each byte: first of two bytes, then of four, then of eight.

    In place: a new array of this size takes longer than the operation.
    """
    other = np.empty_like(words)
    for mask, shift, distance in joins:
        np.bitwise_and(words, mask << shift, out=other)
        other >>= distance
        words &= mask
        words |= other


def _read_long(
    buffer: ByteBuffer, positions: Ints, low: npt.NDArray[np.uint64], max_tenth: int
) -> tuple[npt.NDArray[np.uint64], Ints]:
    """Return varints of more than eight bytes, whose first 56 bits are ``low``."""
    last_two = numbers_at(buffer, positions + _WORD_BYTES, "<u2").astype(np.uint64)
    ninth, tenth = last_two & np.uint64(0xFF), last_two >> np.uint64(8)
    is_ten = ninth > _SEVEN_BITS
    words = low | (ninth & _SEVEN_BITS) << _U56 | np.where(is_ten, tenth & _ONE, np.uint64(0)) << _U63
    ends = positions + 9 + is_ten
    ends[is_ten & (tenth > max_tenth)] = _NOWHERE
    return words, ends


def numbers_at(buffer: ByteBuffer, positions: Ints, dtype: str) -> npt.NDArray[Any]:
    """Return the fixed-width number at each position, aligned or not; behind the buffer's end there are zeros. A copy."""
    width = np.dtype(dtype).itemsize
    if len(buffer) < width:
        buffer = np.append(buffer, np.zeros(width, dtype=np.uint8))
    last = len(buffer) - width
    # Of bytes, not numbers: those may not lie at any address.
    every: npt.NDArray[Any] = np.ndarray((last + 1,), f"V{width}", buffer.data, strides=(1,))
    if int(positions.max(initial=0)) <= last:
        return every[positions].view(dtype)
    numbers = every[np.minimum(positions, last)].view(f"<u{width}")
    numbers >>= (np.maximum(positions - last, 0) << 3).astype(numbers.dtype)
    return numbers.view(dtype)


def to_signed(words: Words) -> Ints:
    """Return int64[n]: the numbers that zigzag varints stand for. A copy."""
    if words.dtype == np.uint64:
        signs = np.negative(words & _ONE)
        halves = words >> _ONE
        halves ^= signs
        wide: Ints = halves.view(np.int64)
        return wide
    narrow = np.dtype(f"i{words.dtype.itemsize}")
    numbers: Ints = ((words >> 1).view(narrow) ^ -(words & 1).view(narrow)).astype(np.int64)
    return numbers


def read_varints(buffer: ByteBuffer, positions: Ints) -> tuple[Ints, Ints]:
    """Return ``(values, positions behind them)`` of the zigzag varints at ``positions``; both int64[n], copies.

    Raises:
        CorruptBatchError: one is longer than ten bytes.
    """
    words, ends = read_unsigned(buffer, positions)
    if int(ends.max(initial=0)) >= _NOWHERE:
        raise CorruptBatchError("a varint is longer than ten bytes")
    return to_signed(words), ends


def two_bytes(first: ByteBuffer, second: ByteBuffer) -> npt.NDArray[np.uint16]:
    """Return uint16[n]: unsigned varints that have one byte or two, out of the byte at each position and the one behind it."""
    words = (second & -(first >> 7)).astype(np.uint16)
    words <<= 7
    words |= first & 0x7F
    return words


def zigzag(values: Ints) -> npt.NDArray[np.uint64]:
    """Return signed numbers in zigzag encoding: unsigned, as varints need."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def n_varint_bytes(unsigned: npt.NDArray[np.uint64]) -> Ints:
    """Return the size of each varint in bytes."""
    sizes = np.ones(len(unsigned), dtype=np.int64)
    limit = np.uint64(0x80)
    top = unsigned.max(initial=np.uint64(0))
    while limit <= top:
        sizes += unsigned >= limit
        if limit >= np.uint64(1 << 63):
            break
        limit = limit << np.uint64(7)
    return sizes


# --- the fields of many records, one field after the other --------------------------------------------------------------
# Eight bytes of each record are copied next to each other, as one number for each. The fields at the beginning of a record take so
# many bytes at most, nearly always, and NumPy reads them from the numbers at a tenth of what it costs to look up a byte in each
# record, which is somewhere else in memory.


class FieldReader:
    """Reads the next field of each record; it knows varints only, not which field means what.

    Attributes:
        position: int64[n_records], where it begins. What was returned once does not change.
    """

    __slots__ = ("_buffer", "_n_loaded", "_words", "position")

    def __init__(self, buffer: ByteBuffer, position: Ints) -> None:
        """Take positions that may lie behind the end of ``buffer``: zeros are read there."""
        self.position = position
        self._buffer = buffer
        #: The next bytes of each record, and how many of them at least.
        self._words: npt.NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._n_loaded = 0

    def pairs(self) -> npt.NDArray[np.uint16]:
        """Return the next two bytes of each record as a little-endian number; does not move."""
        self._load(2)
        return self._words.astype(np.uint16)

    def varints(self) -> Ints:
        """Return int64[n_records]: the zigzag varints that come next.

        Raises:
            CorruptBatchError: one is longer than ten bytes.
        """
        self._load(1)
        first = self._words.astype(np.uint8)
        if int(first.max(initial=0)) < 0x80:
            self.skip(1)
            return to_signed(first)
        second = (self.pairs() >> 8).astype(np.uint8)
        two = first >> 7
        if (two & second >> 7).any():
            values, self.position = read_varints(self._buffer, self.position)
            self._n_loaded = 0
            return values
        self.skip(two + np.uint8(1))
        return to_signed(two_bytes(first, second))

    def skip(self, n_bytes: int | ByteBuffer) -> None:
        """Move by one byte or two, in all records or in each."""
        self.position = self.position + n_bytes
        # NumPy 1 makes a float of np.uint64(8) * n_bytes.
        self._words >>= np.uint64(8 * n_bytes) if isinstance(n_bytes, int) else (n_bytes << 3).astype(np.uint64)
        self._n_loaded -= int(np.max(n_bytes, initial=0))

    def jump(self, n_bytes: Ints) -> None:
        """Move by any number of bytes in each record."""
        self.position = self.position + n_bytes
        self._n_loaded = 0

    def _load(self, n_bytes: int) -> None:
        """Have at least so many bytes of each record in the words."""
        if self._n_loaded < n_bytes:
            self._words = numbers_at(self._buffer, self.position, "<u8")
            self._n_loaded = _WORD_BYTES
