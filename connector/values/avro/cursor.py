"""A position in the bytes of one Avro value, and what the value has used of its limits.

Owns Avro's encodings of single values (https://avro.apache.org/docs/1.12.0/specification/#binary-encoding), for values that are
read one by one. :mod:`~pykafka_wire.values.avro.bulk_reader` is the same for many values together.
"""

from __future__ import annotations

from typing import Final

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.avro.input_limits import FREE_BYTES, FREE_PER_BYTE

#: Array items and their fields that take no bytes (nulls, empty records): few schemas have any, and a few bytes can claim
#: billions of them.
_MAX_FREE: Final = 1_000
#: Python's own stack has a thousand frames, of which each level takes up to four.
_MAX_DEPTH: Final = 150
_MASK: Final = (1 << 64) - 1


class Cursor:
    """Reads from ``data`` at ``at``, which it advances."""

    __slots__ = ("_depth", "_n_free", "_room", "at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self._depth = 0
        self._n_free = 0
        self._room = FREE_BYTES + FREE_PER_BYTE * len(data)

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes. Raises DecodeError where they are not there."""
        start, end = self.at, self.at + size
        if size < 0 or end > len(self.data):
            raise DecodeError("it is shorter than its schema says")
        self.at = end
        return self.data[start:end]

    def long(self) -> int:
        """The next zigzag varint. Raises DecodeError where it has no end within ten bytes."""
        data, at = self.data, self.at
        number = shift = 0
        try:
            while True:
                byte = data[at]
                at += 1
                number |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 63:
                    raise DecodeError("an integer of more than ten bytes")
        except IndexError:
            raise DecodeError("it is shorter than its schema says") from None
        self.at = at
        number &= _MASK  # as the Java library, which drops what the tenth byte has above 64 bits
        return (number >> 1) ^ -(number & 1)

    def block(self) -> int:
        """The number of items in the next block of an array or a map; 0 behind the last."""
        count = self.long()
        if count < 0:
            count = -count
            self.long()
        return count

    def descend(self) -> None:
        """Go into a record; :meth:`ascend` leaves it. Raises DecodeError where records are nested too deep."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise DecodeError(f"its records are nested more than {_MAX_DEPTH} deep")

    def ascend(self) -> None:
        self._depth -= 1

    def spend(self, n_bytes: int) -> None:
        """Count memory that no bytes of the value stand for. Raises DecodeError where it is too much for its size."""
        self._room -= n_bytes
        if self._room < 0:
            raise DecodeError(
                f"its arrays and maps hold too much for its size: more than {FREE_BYTES >> 20} MiB and {FREE_PER_BYTE} bytes of "
                "memory for each of its own"
            )

    def check_item(self, at: int, item_bytes: int) -> None:
        """Count an item that was read since ``at``, and that takes ``item_bytes`` in a column.

        Raises:
            DecodeError: too many took no bytes of the value, or all take too much for its size.
        """
        self.spend(item_bytes)
        if self.at == at:
            self._n_free += 1
            if self._n_free > _MAX_FREE:
                raise DecodeError(f"its arrays have more than {_MAX_FREE} items that take no bytes")
