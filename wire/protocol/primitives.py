"""Kafka's primitive types: bytes to value and value to bytes (https://kafka.apache.org/protocol#protocol_types).

Owns lengths, strings, bytes and uuids, each read within the bounds of its buffer. It does not know messages, fields or
versions.

A reader takes ``(buffer, position)`` and returns ``(value, next position)``. It may raise IndexError or
struct.error if the buffer is too short: the caller that owns the whole buffer turns them into :class:`ProtocolError`
(:data:`~pykafka_wire.wire.single_varint.SHORT_READ`).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Final, TypeAlias

from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.single_varint import Buffer, decode_uvarint, encode_uvarint
from pykafka_wire.wire.topic_partitions import ZERO_UUID

Segment: TypeAlias = bytes | bytearray | memoryview

_ZERO_UUID_BYTES: Final = bytes(16)

#: Java's Short.MAX_VALUE: Kafka rejects a longer string in compact encoding too.
MAX_STRING_BYTES: Final = 0x7FFF
#: Java's Long.MAX_VALUE.
MAX_INT64: Final = 0x7FFFFFFFFFFFFFFF
#: The maximum number of elements of one array. This client's own limit: KRaft clusters are designed for about two million
#: partitions in all topics. A Python object takes a hundred times its one or two bytes on the wire, so the frame's size is
#: not a sufficient limit.
MAX_ARRAY_ELEMENTS: Final = 1 << 20

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_unpack_int16, _unpack_int32 = _INT16.unpack_from, _INT32.unpack_from
_pack_int16, _pack_int32 = _INT16.pack, _INT32.pack


# --- lengths ----------------------------------------------------------------------------------------------------------
# A length reader returns a negative length for null: Java treats any negative length as null.

LengthReader: TypeAlias = Callable[[Buffer, int], tuple[int, int]]


def decode_length16(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the int16 length of a string."""
    return _unpack_int16(buffer, position)[0], position + 2


def decode_length32(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the int32 length of bytes, records or an array."""
    return _unpack_int32(buffer, position)[0], position + 4


def decode_compact_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return a compact length (KIP-482): unsigned varint of n + 1, where 0 is null."""
    byte = buffer[position]
    if byte < 0x80:
        return byte - 1, position + 1
    value, position = decode_uvarint(buffer, position)
    return value - 1, position


def encode_length16(length: int) -> bytes:
    return _pack_int16(length)


def encode_length32(length: int) -> bytes:
    return _pack_int32(length)


def encode_compact_length(length: int) -> bytes:
    return encode_uvarint(length + 1)


# --- strings, bytes, uuids --------------------------------------------------------------------------------------------


def decode_text(buffer: Buffer, position: int, length: int) -> tuple[str, int]:
    """Return the string of `length` bytes at `position`.

    Invalid UTF-8 becomes U+FFFD, as in Java: another client wrote it (a commit's metadata, a client id), and the rest of the
    message must stay readable.
    """
    end = position + length
    if length > MAX_STRING_BYTES:
        raise ProtocolError(f"string of {length} bytes at byte {position}, at most {MAX_STRING_BYTES} are allowed")
    if end > len(buffer):
        raise ProtocolError(f"string of {length} bytes at byte {position} runs past the end at {len(buffer)}")
    return str(buffer[position:end], "utf-8", "replace"), end


def encode_text(value: str) -> bytes:
    """Return UTF-8 of `value`. Raises ProtocolError if it is too long or has lone surrogates."""
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError(f"a string is not valid Unicode: {error.reason} at {error.start}") from error
    if len(data) > MAX_STRING_BYTES:
        raise ProtocolError(f"a string of {len(data)} bytes, at most {MAX_STRING_BYTES} are allowed")
    return data


def decode_view(buffer: Buffer, position: int, length: int) -> tuple[Buffer, int]:
    """Return `length` bytes at `position`: a view if the buffer is one, not a copy."""
    end = position + length
    if end > len(buffer):
        raise ProtocolError(f"{length} bytes at byte {position} run past the end at {len(buffer)}")
    return buffer[position:end], end


def decode_uuid(buffer: Buffer, position: int) -> tuple[uuid.UUID, int]:
    """Return a uuid: 16 bytes, most significant first; :data:`ZERO_UUID` is Kafka's null."""
    end = position + 16
    data = bytes(buffer[position:end])
    if data == _ZERO_UUID_BYTES:
        return ZERO_UUID, end
    if len(data) < 16:
        raise ProtocolError(f"uuid at byte {position} runs past the end at {len(buffer)}")
    return uuid.UUID(bytes=data), end


def n_bytes(segment: Segment) -> int:
    """Return size in bytes, also of a view with wider items."""
    return segment.nbytes if isinstance(segment, memoryview) else len(segment)
