"""Messages of magic 0 and 1, as in topics from before Kafka 0.11, converted to batches of magic 2.

Owns these two formats, which are only read. It takes one Python step a message: such topics are rare. After the conversion no
other module has to know these formats. https://kafka.apache.org/documentation/#messageset

=========  =======  ==  ===============================================================
offset     int64    0   in a wrapper: the last inner message's
size       int32    8   number of bytes after it
crc        uint32   12  CRC-32 (not CRC-32C) of all that follows
magic      int8     16
attributes int8     17  bits 0-2 codec, bit 3 log-append time (magic 1)
timestamp  int64    18  magic 1 only
key        bytes        int32 length, -1 for null
value      bytes        the same; in a wrapper, compressed messages (KIP-31)
=========  =======  ==  ===============================================================
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

from crc32c import crc32c

from pykafka_wire.wire.errors import CorruptBatchError, WireError
from pykafka_wire.wire.records import batches
from pykafka_wire.wire.records.compression import Codec, codec_of, decompress

_HEAD: Final = struct.Struct(">qiIbb")
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_CRC_FROM: Final = 16
_FILLER_OFFSET: Final = -1
_NO_TIMESTAMP: Final = -1
_MAX_INT32: Final = 2**31 - 1


class _LegacyMessage(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None


def convert(entry: memoryview, *, check_crc: bool, max_bytes: int) -> memoryview | None:
    """Return a message, or all messages in a wrapper, as one uncompressed batch; None for a filler message, which has no record.

    The batch has the layout of magic 2, but keeps the magic byte 0 or 1: with 0 there are no timestamps.

    Raises:
        CorruptBatchError: a CRC or a length is invalid.
        UnsupportedVersionError: the codec is unknown.
    """
    outer = _read(entry, 0, len(entry), check_crc)
    if outer.offset == _FILLER_OFFSET:
        return None
    try:
        messages = _unwrap(outer, check_crc, max_bytes)
    except WireError as error:
        error.offset = outer.offset
        raise
    base_offset = messages[0].offset if messages else outer.offset
    base_timestamp = messages[0].timestamp if messages else outer.timestamp
    if base_offset < 0 or not 0 <= outer.offset - base_offset <= _MAX_INT32:
        raise CorruptBatchError(
            f"messages from offset {base_offset} in a wrapper of offset {outer.offset}", offset=outer.offset
        )
    body = b"".join(_record(message, base_offset, base_timestamp) for message in messages)
    appended = outer.magic == 1 and outer.attributes & batches.TIMESTAMP_TYPE
    latest = max((message.timestamp for message in messages), default=_NO_TIMESTAMP)
    covered = batches.AFTER_CRC.pack(
        batches.TIMESTAMP_TYPE if appended else 0,
        outer.offset - base_offset,
        base_timestamp,
        outer.timestamp if appended else latest,
        *(-1, -1, -1, len(messages)),
    )
    covered += body
    length = len(covered) + batches.CRC_COVERS_FROM - batches.LOG_OVERHEAD
    return memoryview(batches.UP_TO_CRC.pack(base_offset, length, -1, outer.magic, crc32c(covered)) + covered)


def _unwrap(outer: _LegacyMessage, check_crc: bool, max_bytes: int) -> list[_LegacyMessage]:
    codec = codec_of(outer.attributes)
    if codec is Codec.NONE:
        return [outer]
    if outer.value is None:
        raise CorruptBatchError("a compressed message without a value")
    compressed = fix_lz4_checksum(outer.value) if codec is Codec.LZ4 and outer.magic == 0 else outer.value
    payload = memoryview(decompress(codec, compressed, max_bytes))
    messages: list[_LegacyMessage] = []
    start = 0
    while start < len(payload):
        if len(payload) - start < batches.LOG_OVERHEAD + batches.MIN_MESSAGE_LENGTH:
            raise CorruptBatchError("a wrapper's messages end early")
        (size,) = _INT32.unpack_from(payload, start + 8)
        end = start + batches.LOG_OVERHEAD + size
        if size < batches.MIN_MESSAGE_LENGTH or end > len(payload):
            raise CorruptBatchError(f"a message of {size} bytes in a wrapper of {len(payload)}")
        message = _read(payload, start, end, check_crc)
        if message.magic != outer.magic or codec_of(message.attributes) is not Codec.NONE:
            raise CorruptBatchError("a wrapper holds messages of another format, or another wrapper")
        messages.append(message)
        start = end
    if outer.magic == 1 and messages:
        # Relative offsets (KIP-31): the last message has the wrapper's offset.
        shift = outer.offset - messages[-1].offset
        messages = [message._replace(offset=message.offset + shift) for message in messages]
    return messages


def _read(data: memoryview, start: int, end: int, check_crc: bool) -> _LegacyMessage:
    offset, _, crc, magic, attributes = _HEAD.unpack_from(data, start)
    if check_crc and zlib.crc32(data[start + _CRC_FROM : end]) != crc:
        raise CorruptBatchError("a message's CRC does not match", offset=offset)
    position = start + _HEAD.size
    timestamp = _NO_TIMESTAMP
    if magic == 1:
        if end - position < _INT64.size:
            raise CorruptBatchError("a message ends inside its header", offset=offset)
        (timestamp,) = _INT64.unpack_from(data, position)
        position += _INT64.size
    fields: list[memoryview | None] = []
    for _ in range(2):
        size = _INT32.unpack_from(data, position)[0] if end - position >= _INT32.size else -2
        position += _INT32.size
        if not -1 <= size <= end - position:
            raise CorruptBatchError("a message's key or value exceeds its length", offset=offset)
        fields.append(None if size < 0 else data[position : position + size])
        position += max(size, 0)
    if position != end:
        raise CorruptBatchError(f"{end - position} bytes left over in a message", offset=offset)
    return _LegacyMessage(offset, magic, attributes, timestamp, *fields)


def _record(message: _LegacyMessage, base_offset: int, base_timestamp: int) -> bytes:
    pieces = [b"\0", _varint(message.timestamp - base_timestamp), _varint(message.offset - base_offset)]
    for piece in (message.key, message.value):
        pieces += [_varint(-1)] if piece is None else [_varint(len(piece)), bytes(piece)]
    pieces.append(b"\0")
    body = b"".join(pieces)
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    unsigned = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while unsigned > 0x7F:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


# --- KAFKA-3160: clients of magic 0 included the frame's magic in its descriptor's checksum --------------------------------

_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK: Final = 0xFFFFFFFF


def fix_lz4_checksum(frame: memoryview) -> bytes:
    """Return the frame with the correct checksum of its descriptor."""
    fixed = bytearray(frame)
    if len(fixed) >= 7:
        flags = fixed[4]
        position = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        if position < len(fixed):
            fixed[position] = xxh32(bytes(fixed[4:position])) >> 8 & 0xFF
    return bytes(fixed)


def xxh32(data: bytes) -> int:
    """Return XXH32 with seed 0 of fewer than 16 bytes."""
    p1, p2, p3, p4, p5 = _PRIMES
    value = p5 + len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        value = _rotate(value + int.from_bytes(data[position : position + 4], "little") * p3, 17) * p4
    for byte in data[whole:]:
        value = _rotate(value + byte * p5, 11) * p1
    value &= _MASK
    value = (value ^ value >> 15) * p2 & _MASK
    value = (value ^ value >> 13) * p3 & _MASK
    return value ^ value >> 16


def _rotate(value: int, n_bits: int) -> int:
    value &= _MASK
    return (value << n_bits | value >> (32 - n_bits)) & _MASK
