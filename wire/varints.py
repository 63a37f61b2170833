"""Varints by the thousand: whole arrays read out of a buffer, or written into one, at once.

Records use zigzag varints (a length is never one byte for more than 63); Kafka's messages use unsigned ones, which are
:mod:`~pykafka_wire.wire.primitives`' matter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pykafka_wire.wire.errors import CorruptBatchError

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

#: A buffer that is read here has so many bytes of padding behind its last, so that no read of a varint that starts inside
#: can leave it.
PADDING = 16
_MAX_VARINT_BYTES = 10


def read_varints(buffer: Octets, positions: Ints) -> tuple[Ints, Ints]:
    """``(values, positions behind them)`` of the zigzag varints at ``positions``; both int64[n].

    The first byte of all is taken at once, further bytes for a shrinking subset.

    Raises:
        CorruptBatchError: one is longer than ten bytes.
    """
    first = buffer.take(positions)
    values = first.astype(np.int64)
    ends = positions + 1
    more = np.flatnonzero(first > 0x7F)
    if len(more):
        values[more] &= 0x7F
        shift = 7
        at = positions[more] + 1
        while len(more):
            if shift >= 7 * _MAX_VARINT_BYTES:
                raise CorruptBatchError("a varint is longer than ten bytes")
            octet = buffer.take(at)
            values[more] |= (octet & 0x7F).astype(np.int64) << shift
            ends[more] += 1
            keep = octet > 0x7F
            if not keep.any():
                break
            more = more[keep]
            at = at[keep] + 1
            shift += 7
    # Zigzag: the lowest bit is the sign. The shift is logical: a full 64-bit value has its highest bit set.
    unsigned = values.view(np.uint64)
    return ((unsigned >> np.uint64(1)).view(np.int64) ^ -(values & 1)), ends


def zigzag(values: Ints) -> npt.NDArray[np.uint64]:
    """Signed numbers as the unsigned ones that varints hold."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def n_varint_bytes(unsigned: npt.NDArray[np.uint64]) -> Ints:
    """How many bytes each varint takes."""
    sizes = np.ones(len(unsigned), dtype=np.int64)
    limit = np.uint64(0x80)
    top = unsigned.max(initial=np.uint64(0))
    while limit <= top:
        sizes += unsigned >= limit
        if limit >= np.uint64(1 << 63):
            break
        limit = limit << np.uint64(7)
    return sizes


def write_varints(buffer: Octets, positions: Ints, unsigned: npt.NDArray[np.uint64], sizes: Ints) -> None:
    """Write each varint at its position; ``sizes`` as :func:`n_varint_bytes` gave them."""
    at, rest, left = positions, unsigned, sizes
    while True:
        if int(left.max(initial=1)) == 1:
            buffer[at] = rest.astype(np.uint8)
            return
        more = left > 1
        octets = rest.astype(np.uint8) & 0x7F
        octets[more] |= 0x80
        buffer[at] = octets
        at, rest, left = at[more] + 1, rest[more] >> np.uint64(7), left[more] - 1
