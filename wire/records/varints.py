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
        return one_byte_varints(first), ends
    second = buffer.take(ends, mode="clip")
    two = first >> 7
    ends += two
    values = two_byte_varints(first, second)
    more = np.flatnonzero(two & second >> 7)
    if len(more):
        begun = (first[more] & 0x7F).astype(np.uint64) | (second[more] & 0x7F).astype(np.uint64) << np.uint64(7)
        values[more], ends[more] = _read_long(buffer, begun, ends[more])
    return values, ends


def one_byte_varints(first: Octets) -> Ints:
    """The values of zigzag varints that take one byte each; int64[n]."""
    values = (first >> 1).view(np.int8) ^ -(first & 1).view(np.int8)
    return values.astype(np.int64)


def two_byte_varints(first: Octets, second: Octets) -> Ints:
    """The values of zigzag varints that take one byte or two, out of the byte at each position and the following one; int64[n].
    Meaningless for longer ones."""
    words = (second & -(first >> 7)).astype(np.uint16)
    words <<= 7
    words |= first & 0x7F
    values = (words >> 1).view(np.int16) ^ -(words & 1).view(np.int16)
    return values.astype(np.int64)


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
