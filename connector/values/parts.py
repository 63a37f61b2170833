"""A column put together from parts that were read apart, in the order of its rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.values.payloads import Ints
from pykafka_wire.wire.records.arrays import to_arrow_with_nulls

#: Of a row that no part of a column has. Not -1, which the first place, 0, would continue as a run.
_NO_PLACE: Final = -2
#: Where runs are shorter than this on average, rows are taken one by one: a copied run of eight fields costs as much as 300 rows.
_ROWS_OF_A_RUN: Final = 512


def joined(columns: list[Any], column_type: pa.DataType) -> Any:
    """Columns one after the other; a single one itself, which Arrow would copy."""
    if len(columns) == 1:
        return columns[0]
    return pa.concat_arrays(columns) if columns else pa.nulls(0, column_type)


def in_order(n_rows: int, column_type: pa.DataType, parts: list[tuple[Ints, Any]]) -> Any:
    """A column of ``n_rows`` of (row numbers, their column) each, later ones first; null in the rows that none has."""
    if len(parts) == 1 and len(parts[0][0]) == n_rows:
        return parts[0][1]
    if not parts:
        return pa.nulls(n_rows, column_type)
    order = np.full(n_rows, _NO_PLACE)
    n_taken = 0
    for index, _ in parts:
        order[index] = np.arange(n_taken, n_taken + len(index))
        n_taken += len(index)
    column = parts[0][1] if len(parts) == 1 else pa.concat_arrays([each for _, each in parts])
    is_null = order == _NO_PLACE
    breaks = np.flatnonzero((np.diff(order) != 1) & ~(is_null[1:] & is_null[:-1])) + 1
    if len(breaks) > n_rows // _ROWS_OF_A_RUN:
        return column.take(to_arrow_with_nulls(np.maximum(order, 0), ~is_null))
    # A few damaged values between many: whole runs are copied, in a fraction of the time.
    runs = [(int(order[begin]), int(begin), int(end)) for begin, end in pairwise([0, *breaks, n_rows])]
    return pa.concat_arrays(
        [
            pa.nulls(end - begin, column_type) if place == _NO_PLACE else column.slice(place, end - begin)
            for place, begin, end in runs
        ]
    )
