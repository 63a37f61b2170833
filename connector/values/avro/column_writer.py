"""Writes an Arrow column as Avro, all rows together.

Owns the check of a column's type against a schema, and the way from rows to the steps and back. What fits, and how, is in
:mod:`~pykafka_wire.values.avro.write_plan`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import MisfitError, SchemaError
from pykafka_wire.values.avro.pieces import constant, expanded, joined
from pykafka_wire.values.avro.schema import ParsedSchema
from pykafka_wire.values.avro.write_plan import WritePlan, sql_name
from pykafka_wire.values.avro.write_steps import Misfits
from pykafka_wire.wire.records.arrays import to_arrow, validity

#: Rows that are written at once, chosen so that their columns fit the cache.
_ROWS_AT_ONCE: Final = 16_384
#: Problems that an error lists.
_MAX_PROBLEMS: Final = 5


class ColumnWriter:
    """Writes columns of one Arrow type under one schema; picklable, and needs no library where it writes.

    Args:
        column_type: of the columns.
        prefix: the bytes before each value, such as Confluent's frame.

    Raises:
        SchemaError: the schema cannot hold such a column.
    """

    def __init__(self, schema: ParsedSchema, column_type: pa.DataType, prefix: bytes = b"") -> None:
        plan = WritePlan(schema)
        step = plan.step(schema.root, column_type, "")
        if plan.problems:
            listed = plan.problems[:_MAX_PROBLEMS]
            if more := len(plan.problems) - len(listed):
                listed.append(f"and {more} more")
            raise SchemaError(f"a column of {sql_name(column_type)} cannot be written as Avro: {'; '.join(listed)}.")
        self._step = step
        self._prefix = prefix

    def write(self, column: Any) -> Any:  # Any: pyarrow has no types
        """pa.BinaryArray, as long as ``column``: each row's prefix and value; null for null.

        Raises:
            MisfitError: with all rows that do not fit the schema.
        """
        reasons: dict[int, str] = {}
        written = []
        for first in range(0, len(column), _ROWS_AT_ONCE):
            misfits = Misfits()
            written.append(self._write(column.slice(first, _ROWS_AT_ONCE), misfits))
            reasons |= {first + row: reason for row, reason in misfits.reasons.items()}
        if reasons:
            raise MisfitError(reasons)
        if not written:
            return pa.nulls(0, pa.binary())
        return written[0] if len(written) == 1 else pa.concat_arrays(written)

    def _write(self, column: Any, misfits: Misfits) -> Any:
        present = validity(column)
        if present.all():
            return self._joined(column, misfits)
        index = np.flatnonzero(present)
        values = self._joined(column.take(to_arrow(index)), misfits.inside(index.__getitem__))
        _, bounds, data = expanded(values, present).array.buffers()
        bitmap = pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(column), [bitmap, bounds, data])

    def _joined(self, column: Any, misfits: Misfits) -> Any:
        return joined([*constant(self._prefix, len(column)), *self._step.write(column, misfits)], len(column))
