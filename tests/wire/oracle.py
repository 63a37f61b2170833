"""A record batch decoder and encoder in plain Python, one record at a time: slow, short, and easy to believe.

What the vectorised ones of `pykafka_wire.wire` do is compared with this. Layout: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from crc32c import crc32c

from pykafka_wire.wire.records.compression import Codec, compress, decompress


@dataclass
class Record:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_type: int = 0


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    body = b"\x00" + varint(record.timestamp - base_timestamp) + varint(record.offset - base_offset)
    body += sized(record.key) + sized(record.value) + varint(len(record.headers))
    for name, content in record.headers:
        body += sized(name.encode()) + sized(content)
    return varint(len(body)) + body


def encode_batch(
    records: list[Record],
    *,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    producer_id: int = -1,
    base_offset: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    base_offset = records[0].offset if base_offset is None else base_offset
    last_offset = records[-1].offset if last_offset is None else last_offset
    base_timestamp = records[0].timestamp if records else 0
    payload = compress(codec, b"".join(encode_record(r, base_offset, base_timestamp) for r in records))
    max_timestamp = max((r.timestamp for r in records), default=0) if max_timestamp is None else max_timestamp
    after_crc = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        0 if producer_id >= 0 else -1,
        0 if producer_id >= 0 else -1,
        len(records),
    )
    after_crc += payload
    return struct.pack(">qiibI", base_offset, len(after_crc) + 9, -1, 2, crc32c(after_crc)) + after_crc


def control_batch(offset: int, producer_id: int, *, commit: bool) -> bytes:
    marker = Record(offset, 0, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0))
    return encode_batch([marker], attributes=0x30, producer_id=producer_id)


def decode_batches(data: bytes) -> list[Record]:
    found = []
    at = 0
    while at < len(data):
        base_offset, length = struct.unpack_from(">qi", data, at)
        attributes, _, base_timestamp, max_timestamp = struct.unpack_from(">hiqq", data, at + 21)
        (count,) = struct.unpack_from(">i", data, at + 57)
        payload = bytes(decompress(Codec(attributes & 7), memoryview(data)[at + 61 : at + 12 + length]))
        position = 0
        for _ in range(count):
            _, position = read_varint(payload, position)
            timestamp, position = read_varint(payload, position + 1)
            offset, position = read_varint(payload, position)
            fields = []
            for _ in range(2):
                size, position = read_varint(payload, position)
                fields.append(None if size < 0 else payload[position : position + size])
                position += max(size, 0)
            n_headers, position = read_varint(payload, position)
            headers = []
            for _ in range(n_headers):
                size, position = read_varint(payload, position)
                name = payload[position : position + size].decode()
                size, position = read_varint(payload, position + size)
                headers.append((name, None if size < 0 else payload[position : position + size]))
                position += max(size, 0)
            append_time = bool(attributes & 8)
            found.append(
                Record(
                    base_offset + offset,
                    max_timestamp if append_time else base_timestamp + timestamp,
                    fields[0],
                    fields[1],
                    headers,
                    int(append_time),
                )
            )
        assert position == len(payload)
        at += 12 + length
    return found


def murmur2(key: bytes) -> int:
    """Java's hash of one key, unsigned 32 bits."""
    m = 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & 0xFFFFFFFF
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ k >> 24) * m & 0xFFFFFFFF
        h = h * m & 0xFFFFFFFF ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return h ^ h >> 15
