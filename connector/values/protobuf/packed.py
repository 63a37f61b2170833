"""Packed repeated fields: blocks of scalars without tags, those of all lanes read together."""

from __future__ import annotations

from typing import Final

import numpy as np

from pykafka_wire.values.protobuf.field_scan import FIXED64, VARINT
from pykafka_wire.values.protobuf.lanes import Data, Ints, Lanes, Words
from pykafka_wire.values.protobuf.scalar_columns import Scalar
from pykafka_wire.wire.records.arrays import to_numpy

#: Varints at a time, so that what is computed of them fits the cache.
_AT_ONCE: Final = 1 << 16


def unpacked(lanes: Lanes, owner: Ints, starts: Ints, sizes: Ints, items: Scalar) -> tuple[Data, Ints, Ints, Words]:
    """``(data, owner, starts, words)``: the items of blocks, in a buffer of their own. Lanes with an invalid block fail."""
    import pyarrow as pa

    if items.wire_type == VARINT:
        last = lanes.data.octets.take(starts + sizes - 1, mode="clip")
        wrong = (last > 0x7F) & (sizes > 0)
    else:
        width = 8 if items.wire_type == FIXED64 else 4
        wrong = sizes % width != 0
    if wrong.any():
        lanes.failed[owner[wrong]] = True
        sizes = np.where(wrong, 0, sizes)
    blocks = lanes.data.slices(starts, sizes, pa.binary())
    edges = to_numpy(pa.Array.from_buffers(pa.int32(), len(blocks) + 1, [None, blocks.buffers()[1]]), null=0)
    octets = np.frombuffer(blocks.buffers()[2] or b"", dtype=np.uint8)[: edges[-1]]
    if items.wire_type == VARINT:
        stops = np.flatnonzero(octets < 0x80)
        counts = np.diff(np.searchsorted(stops, edges))
        item_starts = np.zeros(len(stops), dtype=np.int64)
        item_starts[1:] = stops[:-1] + 1
    else:
        counts = sizes // width
        item_starts = np.arange(0, len(octets), width)
    owner = np.repeat(owner, counts)
    too_many = lanes.spend(owner, items.item_bytes)
    if too_many is not None:
        lanes.failed |= too_many
        kept = ~too_many[owner]
        owner, item_starts = owner[kept], item_starts[kept]
    data = Data(octets)
    words: Words = np.zeros(0, dtype=np.uint64)
    if items.wire_type == VARINT:
        words = np.zeros(len(item_starts), dtype=np.uint64)
        for first in range(0, len(item_starts), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            words[some], ends = data.varints(item_starts[some])
            beyond = ends > len(octets)
            if beyond.any():
                lanes.failed[owner[some][beyond]] = True
    return data, owner, item_starts, words
