"""Decodes all Avro values of one writer's schema into one Arrow column together.

Owns the conversion from a binary column to lanes and back. If a row cannot be read in columns, its number is returned, and the
caller decodes it separately, to find the reason or that it is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import PoisonError
from pykafka_wire.values.avro.lanes import Flags, Ints, Lanes
from pykafka_wire.values.avro.scalar_steps import Step
from pykafka_wire.wire.records.arrays import to_arrow, validity

#: Lanes per group, chosen so that their data fits the cache.
_LANES_AT_ONCE: Final = 32_768


#: Confluent's frame before each value: a zero byte and the schema's id.
_FRAME_BYTES: Final = 5


def decode_framed(rows: Any, column_type: pa.DataType, step_of: Callable[[int], Step]) -> tuple[Any, Flags]:
    """``(pa.Array, bool[n])``: a pa.BinaryArray of framed values decoded, and which rows the caller must decode one by one.

    Elements of those rows, and of nulls, are meaningless.

    Args:
        step_of: returns the step for a schema's id; if it raises PoisonError, the rows of that id are left to the caller.
    """
    buffer, starts, ends = bounds(rows)
    left = validity(rows)
    whole = left & (ends - starts >= _FRAME_BYTES) & (buffer.take(starts, mode="clip") == 0)
    index = np.flatnonzero(whole)
    n_places = max(len(buffer) - _FRAME_BYTES + 1, 0)
    places = np.ndarray((n_places,), dtype=">i4", buffer=buffer.data, offset=1, strides=(1,))
    ids = places[starts[index]] if len(index) else np.zeros(0, dtype=">i4")
    columns, order = [pa.nulls(1, column_type)], np.zeros(len(rows), dtype=np.int64)
    n_decoded = 1
    for schema_id in np.unique(ids):
        some = index[ids == schema_id]
        try:
            step = step_of(int(schema_id))
        except PoisonError:
            continue
        column, failed = decode(buffer, starts[some] + _FRAME_BYTES, ends[some], step, column_type)
        left[some] = failed
        if len(some) == len(rows):
            return column, left
        columns.append(column)
        order[some] = np.arange(n_decoded, n_decoded + len(some))
        n_decoded += len(some)
    return pa.concat_arrays(columns).take(to_arrow(order)), left


def bounds(values: Any) -> tuple[Any, Ints, Ints]:
    """``(uint8[…], int64[n], int64[n])``: the bytes of a pa.BinaryArray, and the start and end of each value in them; views."""
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets or b"\0\0\0\0", dtype=np.int32)[
        values.offset : values.offset + len(values) + 1
    ].astype(np.int64)
    buffer = np.frombuffer(data or bytes(_FRAME_BYTES), dtype=np.uint8)
    return buffer, edges[:-1], edges[1:]


def decode(buffer: Any, starts: Ints, ends: Ints, step: Step, column_type: pa.DataType) -> tuple[Any, Flags]:
    """``(pa.Array, bool[n])``: the values between ``starts`` and ``ends``, which ascend, and which of them could not be read.

    Elements that could not be read are meaningless. A value with bytes left over counts as not read.
    """
    columns, failed = [], [np.zeros(0, dtype=np.bool_)]
    for first in range(0, len(starts), _LANES_AT_ONCE):
        some = slice(first, first + _LANES_AT_ONCE)
        lanes = Lanes(buffer, starts[some].copy(), ends[some])
        columns.append(step.read(lanes))
        failed.append(lanes.failed | (lanes.position != lanes.end))
    column = pa.concat_arrays(columns) if columns else pa.nulls(0, column_type)
    return column, np.concatenate(failed)
