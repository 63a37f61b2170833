"""Numbers of any length in big-endian two's complement, as Java's ``BigInteger`` writes them, as pairs of words of 64 bits."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pykafka_wire.values.bulk.arrays import Flags, Ints
from pykafka_wire.wire.arrow.varints import ByteBuffer

#: Of a number that is read here: no type holds more digits than its last bytes do.
_MAX_BYTES: Final = 128
WORDS_BYTES: Final = 16


def last_bytes(data: ByteBuffer, starts: Ints, sizes: Ints) -> tuple[Ints, Ints, Flags]:
    """Return where the last 16 bytes of each number start, and how many they are; and bool[n]: which numbers have more than
    these hold."""
    before = np.maximum(sizes - WORDS_BYTES, 0)
    if not before.any():
        return starts, sizes, np.zeros(len(starts), dtype=np.bool_)
    wrong: Flags = sizes > _MAX_BYTES
    before[wrong] = 0
    rest = starts + before
    sign = np.where(data.take(rest, mode="clip") > 0x7F, 0xFF, 0).astype(np.uint8)
    for nth in range(int(before.max())):
        going = np.flatnonzero(before > nth)
        wrong[going] |= data.take(starts[going] + nth, mode="clip") != sign[going]
    return rest, np.minimum(sizes, WORDS_BYTES), wrong


def words_of(data: ByteBuffer, starts: Ints, sizes: Ints) -> tuple[Ints, npt.NDArray[np.uint64]]:
    """Return the high and the low word of each number, sign-extended, of 16 bytes at most."""
    first = data.take(starts, mode="clip")
    negative = (first > 0x7F) & (sizes > 0)
    high = np.where(negative, np.uint64(0xFFFF_FFFF_FFFF_FFFF), np.uint64(0))
    low = high.copy()
    for nth in range(int(sizes.max(initial=0))):
        going = np.flatnonzero(sizes > nth)
        following = data.take(starts.take(going) + nth, mode="clip").astype(np.uint64)
        high[going] = (high[going] << np.uint64(8)) | (low[going] >> np.uint64(56))
        low[going] = (low[going] << np.uint64(8)) | following
    return high.view(np.int64), low


def out_of_range(high: Ints, low: npt.NDArray[np.uint64], bound: int) -> Flags:
    """Return bool[n]: which numbers of two words are not between -bound and bound, both exclusive."""
    n_high, n_low = np.int64(bound >> 64), np.uint64(bound & (2**64 - 1))
    m_high, m_low = np.int64((-bound) >> 64), np.uint64(-bound & (2**64 - 1))
    above = (high > n_high) | ((high == n_high) & (low >= n_low))
    below = (high < m_high) | ((high == m_high) & (low <= m_low))
    flags: Flags = above | below
    return flags
