"""The header of a record batch, magic 2: its layout, and how it is read, checked and patched.

Layout (big-endian, 61 bytes; https://kafka.apache.org/documentation/#recordbatch)::

    0 base_offset int64          23 last_offset_delta int32
    8 batch_length int32         27 base_timestamp int64
    12 partition_leader_epoch    35 max_timestamp int64
    16 magic int8                43 producer_id int64
    17 crc uint32                51 producer_epoch int16
    21 attributes int16          53 base_sequence int32
                                 57 records_count int32

``batch_length`` is the number of bytes after it; the CRC-32C covers everything from the attributes on. Attributes: bits 0-2 codec,
bit 3 log-append time, bit 4 transactional, bit 5 control, bit 6 the base timestamp is a delete horizon (KIP-534).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from pykafka_wire.wire.errors import CorruptBatchError
from pykafka_wire.wire.records.producer_identity import ProducerIdentity

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
#: The same in two parts, before and after the CRC.
UP_TO_CRC: Final = struct.Struct(">qiibI")
AFTER_CRC: Final = struct.Struct(">hiqqqhii")
#: Bytes of base_offset and batch_length, which batch_length does not count.
LOG_OVERHEAD: Final = 12
#: The place of the magic byte, in every format.
MAGIC_AT: Final = 16

TIMESTAMP_TYPE: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
#: The format of this header.
MAGIC: Final = 2
#: The length of a batch without records.
MIN_LENGTH: Final = HEADER_BYTES - LOG_OVERHEAD
#: The length of a message of magic 0 without key and value, the shortest of the old formats.
MIN_MESSAGE_LENGTH: Final = 14

_CRC_AT: Final = 17
#: The CRC covers the attributes and everything after them.
CRC_COVERS_FROM: Final = 21
_PRODUCER_AT: Final = 43
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")


class BatchHeader(NamedTuple):
    """The fields of a batch's header, in their order on the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


#: The header as a NumPy dtype, to read many at once.
HEADER_DTYPE: Final = np.dtype(
    list(
        zip(
            BatchHeader._fields,
            (">i8", ">i4", ">i4", "i1", ">u4", ">i2", ">i4", ">i8", ">i8", ">i8", ">i2", ">i4", ">i4"),
            strict=True,
        )
    )
)


@dataclass(slots=True, kw_only=True)
class EncodedBatch:
    """A batch ready to be sent, its producer fields not yet set (-1).

    Attributes:
        data: header and records; patched in place by :func:`stamp_producer`.
        first_row: index of its first record among the encoded rows.
    """

    data: bytearray
    n_records: int
    base_timestamp: int
    max_timestamp: int
    first_row: int


def read_header(batch: memoryview) -> BatchHeader:
    """Return the header of the batch at the start of ``batch``, which holds at least 61 bytes."""
    return BatchHeader._make(HEADER.unpack_from(batch))


def min_length(magic: int) -> int:
    """Return the smallest length that a batch, or a message of an old format, can have."""
    return MIN_LENGTH if magic >= MAGIC else MIN_MESSAGE_LENGTH


def complete_batches(records: memoryview) -> tuple[list[int], int]:
    """Return ``(starts, end)``: where each batch of ``records`` begins, in any format, and where the last one ends.

    An incomplete batch, as the last one of a Fetch response may be, is left out. A batch with an invalid length is the
    last one and extends to the end; the decoder rejects it.
    """
    size = len(records)
    starts: list[int] = []
    add, length_at = starts.append, _LENGTH.unpack_from
    start = 0
    while size - start > MAGIC_AT:
        (length,) = length_at(records, start + _LENGTH_AT)
        if length < MIN_LENGTH and length < min_length(records[start + MAGIC_AT]):
            add(start)
            return starts, size
        end = start + LOG_OVERHEAD + length
        if end > size:
            break
        add(start)
        start = end
    return starts, start


def crc_error(expected: int, actual: int, base_offset: int) -> CorruptBatchError:
    return CorruptBatchError(
        f"the batch's CRC is {actual:#010x}, but its header says {expected:#010x}", offset=base_offset
    )


def stamp_producer(
    data: bytearray, identity: ProducerIdentity, base_sequence: int, *, transactional: bool = False
) -> None:
    """Write a producer's identity and sequence into a batch, in place, and compute its CRC."""
    _PRODUCER.pack_into(data, _PRODUCER_AT, identity.producer_id, identity.producer_epoch, base_sequence)
    if transactional:
        (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_COVERS_FROM)
        _ATTRIBUTES.pack_into(data, CRC_COVERS_FROM, attributes | TRANSACTIONAL)
    write_crc(data)


def write_crc(data: bytearray) -> None:
    """Write a batch's CRC, in place."""
    _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[CRC_COVERS_FROM:]))
