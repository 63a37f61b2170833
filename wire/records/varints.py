"""Varints in bulk: arrays of them read from a buffer in one call, and the sizes of those to be written.

Records use zigzag varints (one byte holds -64 to 63). Kafka's messages use unsigned varints, which
:mod:`~pykafka_wire.wire.protocol.primitives` reads and writes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pykafka_wire.wire.errors import CorruptBatchError

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

_MAX_VARINT_BYTES = 10


def read_varints(buffer: Octets, positions: Ints) -> tuple[Ints, Ints]:
    """``(values, positions behind them)`` of the zigzag varints at ``positions``; both int64[n], copies.

    Two bytes of each are read, since that costs less than finding those that have a second one. Further bytes are read for a
    shrinking subset. Past the buffer's end its last byte is read again; the caller detects that by the position.

    Raises:
        CorruptBatchError: one is longer than ten bytes.
    """
    first = buffer.take(positions, mode="clip")
    ends = positions + 1
    if int(first.max(initial=0)) < 0x80:
        short = (first >> 1).view(np.int8) ^ -(first & 1).view(np.int8)
        return short.astype(np.int64), ends
    second = buffer.take(ends, mode="clip")
    two = first >> 7
    ends += two
    word = (second & -two).astype(np.uint16)
    word <<= 7
    word |= first & 0x7F
    values = ((word >> 1).view(np.int16) ^ -(word & 1).view(np.int16)).astype(np.int64)
    more = np.flatnonzero(two & second >> 7)
    if len(more):
        values[more], ends[more] = _read_long(buffer, (word[more] & 0x3FFF).astype(np.uint64), ends[more])
    return values, ends


def _read_long(buffer: Octets, values: npt.NDArray[np.uint64], position: Ints) -> tuple[Ints, Ints]:
    """As :func:`read_varints`, for varints whose first two bytes are already in ``values``."""
    going = np.arange(len(values))
    for shift in range(14, 7 * _MAX_VARINT_BYTES, 7):
        octet = buffer.take(position[going], mode="clip")
        values[going] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
        position[going] += 1
        going = going[octet > 0x7F]
        if not len(going):
            return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64), position
    raise CorruptBatchError("a varint is longer than ten bytes")


def zigzag(values: Ints) -> npt.NDArray[np.uint64]:
    """Signed numbers in zigzag encoding: unsigned, as varints need."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def n_varint_bytes(unsigned: npt.NDArray[np.uint64]) -> Ints:
    """The size of each varint in bytes."""
    sizes = np.ones(len(unsigned), dtype=np.int64)
    limit = np.uint64(0x80)
    top = unsigned.max(initial=np.uint64(0))
    while limit <= top:
        sizes += unsigned >= limit
        if limit >= np.uint64(1 << 63):
            break
        limit = limit << np.uint64(7)
    return sizes
