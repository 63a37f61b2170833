"""One unsigned varint: in Kafka's messages, in the frames of values, and in Avro. :mod:`~pykafka_wire.wire.arrow.varints` has many.

A reader takes ``(buffer, position)`` and returns ``(value, next position)``. It may raise what :data:`SHORT_READ` lists if the
buffer is too short: the caller that owns the whole buffer turns that into an error of its own.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from pykafka_wire.wire.errors import ProtocolError

Buffer: TypeAlias = bytes | memoryview

#: Java's Integer.MAX_VALUE.
MAX_INT32: Final = 0x7FFFFFFF
#: A reader's errors if the buffer is too short.
SHORT_READ: Final = (IndexError, struct.error)

_UVARINTS: Final = tuple(bytes((n,)) for n in range(0x80))


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 31 bits, for the protocol's lengths, counts and tags.

    Raises ProtocolError for a larger one, which Java reads as a negative number.
    """
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > MAX_INT32:
                raise ProtocolError(f"varint {value} before byte {position} exceeds 31 bits")
            return value, position
    raise ProtocolError(f"varint before byte {position} is longer than 5 bytes")


def encode_uvarint(value: int) -> bytes:
    """Return the shortest unsigned varint for 0 <= value < 2**31."""
    if 0 <= value < 0x80:
        return _UVARINTS[value]
    if not 0 <= value <= MAX_INT32:
        raise ProtocolError(f"{value} does not fit in a varint of 31 bits")
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
