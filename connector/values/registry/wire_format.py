"""How Confluent's serializers frame a value: a zero byte, the schema's id (int32), for Protobuf the message indexes, the payload.

The layout is Confluent's "wire format". :mod:`~pykafka_wire.values.registry.framing` reads it for whole columns. Knows no registry.
"""

from __future__ import annotations

import struct
from typing import Final

from pykafka_wire.errors import DecodeError
from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.protocol.primitives import SHORT_READ, decode_uvarint, encode_uvarint

_HEAD: Final = struct.Struct(">bi")
#: protoc allows messages in messages 32 deep.
_MAX_DEPTH: Final = 100


def encode_frame(schema_id: int, payload: bytes) -> bytes:
    """A value under the id of its schema."""
    return _HEAD.pack(0, schema_id) + payload


def encode_message_indexes(indexes: tuple[int, ...]) -> bytes:
    """Which message of a .proto file: indexes from the outermost on, as zigzag varints; ``(0,)`` has a short form."""
    if indexes == (0,):
        return b"\0"
    return b"".join(encode_uvarint(2 * number) for number in (len(indexes), *indexes))


def decode_message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Which message of its .proto file, and the message's bytes.

    Raises:
        DecodeError: the payload ends too soon, or an index is negative.
    """
    try:
        count, position = decode_uvarint(payload, 0)
        if count == 0:
            return (0,), payload[position:]
        if count % 2 or count > 2 * _MAX_DEPTH:
            raise DecodeError("its number of message indexes is negative or too large")
        indexes = []
        for _ in range(count // 2):
            number, position = decode_uvarint(payload, position)
            if number % 2:
                raise DecodeError("one of its message indexes is negative")
            indexes.append(number // 2)
    except (ProtocolError, *SHORT_READ) as error:
        raise DecodeError("it ends within its message indexes") from error
    return tuple(indexes), payload[position:]
