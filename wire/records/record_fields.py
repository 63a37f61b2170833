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

from pykafka_wire.wire.records.varints import ByteBuffer, Ints, numbers_at, read_varints, signed, two_bytes

Words = npt.NDArray[np.uint64]

_WORD_BYTES: Final = 8


class FieldReader:
    """Reads the next field of each record.

    Attributes:
        position: int64[n_records], where it begins. What was returned once does not change.
    """

    __slots__ = ("_buffer", "_n_loaded", "_words", "position")

    def __init__(self, buffer: ByteBuffer, position: Ints) -> None:
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
            return signed(first)
        second = (self.pairs() >> 8).astype(np.uint8)
        two = first >> 7
        if (two & second >> 7).any():
            values, self.position = read_varints(self._buffer, self.position)
            self._n_loaded = 0
            return values
        self.skip(two + np.uint8(1))
        return signed(two_bytes(first, second))

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
