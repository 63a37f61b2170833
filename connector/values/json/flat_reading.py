"""Flat JSON objects read by the layouts that their producers use; what has none of them is left for pyarrow's reader.

Owns when a layout is looked for, and when reading by layouts is given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.values.bulk.arrays import Ints
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.json.column_types import ColumnType, InDoubtError
from pykafka_wire.values.json.flat_objects import Layout, UnreadableError, are_plain, layout_of, read_flat

#: For fewer rows, pyarrow's reader takes less time than all the calls of NumPy.
_MIN_ROWS: Final = 512
#: Several producers may write to a topic, or one of them several kinds of objects.
_MAX_LAYOUTS: Final = 3
#: A layout of fewer rows than one of so many is not worth the pass over the others.
_MIN_SHARE: Final = 8
#: So many groups of rows that cannot be read, or layouts of few rows, and the others of their column are not tried.
_MAX_IN_VAIN: Final = 2


class FlatReader:
    """Reads documents of one column by the layouts that it has found in it."""

    def __init__(self, plan: ColumnType) -> None:
        self._plan = plan
        self._types = _flat_types(plan.read_as)
        self._layouts: list[Layout] = []
        self._n_in_vain = 0

    def read(self, payloads: Payloads, rows: Ints) -> tuple[list[tuple[Ints, Any]], Ints]:
        """Parts of the column, and the rows that are in no part.

        Later parts come first where two have the same row. Of a row that is left, parts may have an element that means nothing.

        Args:
            rows: ascending; their documents begin with ``{`` and end with ``}``.
        """
        parts: list[tuple[Ints, Any]] = []
        if self._types is None or self._n_in_vain >= _MAX_IN_VAIN or len(rows) < _MIN_ROWS:
            return parts, rows
        documents = Payloads.of(payloads.take(rows).array())  # without the frames between them
        # The others are left out from the beginning, so that all that are read begin alike.
        plain = are_plain(documents)
        left, n_least = np.flatnonzero(plain), max(_MIN_ROWS, len(rows) // _MIN_SHARE)
        nth = 0
        for _ in range(_MAX_LAYOUTS):
            if len(left) < n_least:
                break
            if nth == len(self._layouts):
                layout = layout_of(documents, left, self._types)
                if layout is None:
                    break
                self._layouts.append(layout)
            some = documents if len(left) == len(rows) else documents.take(left)
            try:
                column, unread = self._column(some, self._layouts[nth], self._types)
            except (pa.ArrowException, InDoubtError, UnreadableError):
                break
            if np.count_nonzero(~unread) < len(left) // _MIN_SHARE:
                del self._layouts[nth]
                self._n_in_vain += 1
            else:
                nth += 1
            parts.append((rows[left], column))
            left = left[unread]
        self._n_in_vain += not parts
        is_left = ~plain
        is_left[left] = True
        return parts, rows[is_left]

    def _column(self, payloads: Payloads, layout: Layout, types: Mapping[str, pa.DataType]) -> tuple[Any, Any]:
        columns, unread = read_flat(payloads, layout)
        children = [columns[name] if name in columns else pa.nulls(len(payloads), kind) for name, kind in types.items()]
        column = pa.StructArray.from_arrays(children, fields=list(self._plan.read_as))
        if self._plan.has_decimals:
            column.validate(full=True)
        return column if self._plan.finish is None else self._plan.finish(column, ~unread), unread


def _flat_types(read_as: pa.DataType) -> Mapping[str, pa.DataType] | None:
    """The type of each field, by its name; None if one of them is nested."""
    types = {field.name: field.type for field in read_as}
    return None if any(pa.types.is_nested(each) for each in types.values()) else types
