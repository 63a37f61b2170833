"""An Arrow array put in some places of a longer one, null in the others, without a copy of texts or items.

A union with null is read for the lanes that are not null alone: this is the way from their array to that of all lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pykafka_wire.values.payloads import Flags, Ints
from pykafka_wire.wire.records.arrays import validity


def spread(values: Any, index: Ints, n: int) -> Any:
    """A pa.Array of ``n`` elements: those of ``values`` at ``index``, which ascends, and nulls. Texts and items are views."""
    valid = np.zeros(n, dtype=np.bool_)
    valid[index] = validity(values) if values.null_count else True
    return _spread(values, index, valid)


def _spread(values: Any, index: Ints, valid: Flags) -> Any:
    n, kind, is_a = len(valid), values.type, pa.types
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if is_a.is_null(kind):
        return pa.nulls(n)
    if is_a.is_struct(kind):
        children = [spread(each, index, n) for each in _fields(values)]
        return pa.Array.from_buffers(kind, n, [bitmap], children=children)
    if is_a.is_boolean(kind):
        bits = np.unpackbits(np.frombuffer(values.buffers()[1] or b"", dtype=np.uint8), bitorder="little")
        flags = np.zeros(n, dtype=np.uint8)
        flags[index] = bits[values.offset :][: len(values)]
        return pa.Array.from_buffers(kind, n, [bitmap, pa.py_buffer(np.packbits(flags, bitorder="little"))])
    if is_a.is_string(kind) or is_a.is_binary(kind) or is_a.is_list(kind) or is_a.is_map(kind):
        return _spread_lists(values, index, valid, bitmap)
    width = kind.bit_width // 8
    words = np.frombuffer(values.buffers()[1] or b"", dtype=f"V{width}" if width > 8 else f"u{width}")
    spaced = np.zeros(n, dtype=words.dtype)
    spaced[index] = words[values.offset :][: len(values)]
    return pa.Array.from_buffers(kind, n, [bitmap, pa.py_buffer(spaced.view(np.uint8))])


def _spread_lists(values: Any, index: Ints, valid: Flags, bitmap: Any) -> Any:
    """Elements of any length: those in between have none."""
    n, kind = len(valid), values.type
    edges = np.frombuffer(values.buffers()[1] or bytes(4), dtype=np.int32)[values.offset :][: len(values) + 1]
    sizes = np.zeros(n, dtype=np.int32)
    sizes[index] = np.diff(edges)
    bounds = np.empty(n + 1, dtype=np.int32)
    bounds[0] = edges[0]
    np.cumsum(sizes, out=bounds[1:])
    bounds[1:] += edges[0]
    offsets = pa.py_buffer(bounds)
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, n, [bitmap, offsets], children=[values.values])
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([values.keys, values.items], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, n, [bitmap, offsets], children=[entries])
    return pa.Array.from_buffers(kind, n, [bitmap, offsets, values.buffers()[2]])


def _fields(values: Any) -> list[Any]:
    """A struct's columns; nulls of the struct itself are not theirs."""
    return [values.field(place) for place in range(values.type.num_fields)]
