"""Which partition a key belongs to, as Java's default partitioner has it: ``(murmur2(key) & 0x7fffffff) % n``.

Records of one key must land in one partition whichever client wrote them. The hash is Java's murmur2 with the seed
0x9747b28c (org.apache.kafka.common.utils.Utils).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The hash of one key, unsigned 32 bits."""
    h = (_SEED ^ len(key)) & _MASK
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> _R) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partitions_of(keys: Any, n_partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each key, int32[n]; -1 where the key is null.

    Args:
        keys: pa.BinaryArray.
    """
    n = len(keys)
    partitions = np.full(n, -1, dtype=np.int32)
    if n == 0:
        return partitions
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + n + 1].astype(np.int64)
    octets = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.empty(0, dtype=np.uint8)
    sizes = np.diff(bounds)
    if keys.null_count:
        sizes[~np.asarray(keys.is_valid())] = -1
    # Keys of equal length are hashed together: a loop over lengths, then over their words, never over keys.
    order = np.argsort(sizes, kind="stable")
    cuts = np.flatnonzero(np.diff(sizes[order])) + 1
    for rows in np.split(order, cuts):
        size = int(sizes[rows[0]])
        if size >= 0:
            hashed = _murmur2_of_equal_length(octets, bounds[rows], size)
            partitions[rows] = (hashed & np.uint32(0x7FFFFFFF)) % np.uint32(n_partitions)
    return partitions


def _murmur2_of_equal_length(
    octets: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int
) -> npt.NDArray[np.uint32]:
    m = np.uint32(_M)
    h = np.full(len(starts), (_SEED ^ size) & _MASK, dtype=np.uint32)
    words = octets[starts[:, None] + np.arange(size)] if size else np.empty((len(starts), 0), dtype=np.uint8)
    whole = size & ~3
    for at in range(0, whole, 4):
        k = np.ascontiguousarray(words[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint32) * m
        k = (k ^ k >> np.uint32(_R)) * m
        h = h * m ^ k
    if whole < size:
        for at in range(whole, size):
            h = h ^ words[:, at].astype(np.uint32) << np.uint32(8 * (at - whole))
        h = h * m
    h = (h ^ h >> np.uint32(13)) * m
    hashed: npt.NDArray[np.uint32] = h ^ h >> np.uint32(15)
    return hashed
