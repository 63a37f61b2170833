"""The fields of many records, read one field after the other: of all records at once.

Owns the place of the next field in each record. It knows varints only: which field means what is
:mod:`~pykafka_wire.wire.records.decode`'s to know. https://kafka.apache.org/documentation/#record

How: eight bytes of each record are copied next to each other, as one number for each. The fields at the beginning of a record take
so many bytes at most, nearly always, and NumPy reads them from the numbers at a tenth of what it costs to look up a byte in each
record, which is somewhere else in memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pykafka_wire.wire.records.varints import Ints, Octets, one_byte_varints, read_varints, two_byte_varints

Words = npt.NDArray[np.uint64]

_WORD_BYTES: Final = 8


class FieldReader:
    """Reads the next field of each record.

    Attributes:
        position: int64[n_records], where it begins. What was returned once does not change.
    """

    __slots__ = ("_buffer", "_n_loaded", "_words", "position")

    def __init__(self, buffer: Octets, position: Ints) -> None:
        """Positions may lie behind the end of ``buffer``: zeros are read there."""
        self.position = position
        self._buffer = buffer
        #: The next bytes of each record, and how many of them at least.
        self._words: Words = np.empty(0, dtype=np.uint64)
        self._n_loaded = 0

    def pairs(self) -> npt.NDArray[np.uint16]:
        """The next two bytes of each record as a little-endian number; does not move."""
        self._load(2)
        return self._words.astype(np.uint16)

    def varints(self) -> Ints:
        """int64[n_records]: the zigzag varints that come next.

        Raises:
            CorruptBatchError: one is longer than ten bytes.
        """
        self._load(1)
        first = self._words.astype(np.uint8)
        if int(first.max(initial=0)) < 0x80:
            self.skip(1)
            return one_byte_varints(first)
        second = (self.pairs() >> 8).astype(np.uint8)
        two = first >> 7
        if (two & second >> 7).any():
            values, self.position = read_varints(self._buffer, self.position)
            self._n_loaded = 0
            return values
        self.skip(two + np.uint8(1))
        return two_byte_varints(first, second)

    def skip(self, n_bytes: int | Octets) -> None:
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
            self._words = _read_words(self._buffer, self.position)
            self._n_loaded = _WORD_BYTES


def _read_words(buffer: Octets, position: Ints) -> Words:
    """The eight bytes from each position on as a little-endian number, zeros behind the buffer's end; a copy."""
    if len(buffer) < _WORD_BYTES:
        buffer = np.append(buffer, np.zeros(_WORD_BYTES, dtype=np.uint8))
    last = len(buffer) - _WORD_BYTES
    # Of bytes, not numbers: those may not lie at any address.
    every = np.ndarray((last + 1,), f"V{_WORD_BYTES}", buffer, strides=(1,))
    is_inside = int(position.max(initial=0)) <= last
    words: Words = every[position if is_inside else np.minimum(position, last)].view("<u8")
    if not is_inside:
        words >>= (np.maximum(position - last, 0) << 3).astype(np.uint64)
    return words
