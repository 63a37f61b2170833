"""Columns written by steps, all rows together: what is the same for every format.

A step takes a pa.Array and returns segments (:mod:`~pykafka_wire.wire.records.row_segments`). It never raises for a value: an
element that does not fit is reported to :class:`EncodeErrors` and gets bytes that mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import EncodeError, SchemaError
from pykafka_wire.wire.records.arrays import to_arrow, validity
from pykafka_wire.wire.records.row_segments import Ints, RowSegment, constant, expanded, join_segments

#: Rows that are written at once. The calls for one group of rows take 0.6 ms in all, so that fewer rows are slower.
_ROWS_AT_ONCE: Final = 32_768
#: Problems that an error lists.
_MAX_PROBLEMS: Final = 5
_SQL_NAMES: Final = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "large_string": "STRING",
    "binary": "BINARY",
    "large_binary": "BINARY",
    "date32[day]": "DATE",
    "timestamp[us]": "TIMESTAMP_NTZ",
    "null": "VOID",
}


@dataclass(frozen=True, slots=True)
class EncodeErrors:
    """The elements that do not fit, by the number of their row; the first reason of a row counts.

    Attributes:
        rows_of: the row of each of these elements; None where elements are rows.
    """

    reasons: dict[int, str] = field(default_factory=dict)
    rows_of: Callable[[Ints], Ints] | None = None

    def add(self, elements: Ints, path: str, reason: str) -> None:
        rows = elements if self.rows_of is None else self.rows_of(elements)
        for row in rows.tolist():
            self.reasons.setdefault(row, f"{path}: {reason}" if path else reason)

    def inside(self, parents_of: Callable[[Ints], Ints]) -> EncodeErrors:
        """The same for elements within these: ``parents_of`` gives the number of the element that each is a part of."""
        outer = self.rows_of
        return EncodeErrors(self.reasons, parents_of if outer is None else lambda elements: outer(parents_of(elements)))


class Step(Protocol):
    """Writes values of one schema."""

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]: ...


class StepWriter:
    """Writes columns by a step for each row that is not null; picklable.

    Args:
        prefix: the bytes before each value, such as Confluent's frame.
    """

    def __init__(self, step: Step, prefix: bytes = b"") -> None:
        self._step = step
        self._prefix = prefix

    def __reduce__(self) -> tuple[type[StepWriter], tuple[Step, bytes]]:
        # Not as its subclass, which checks types on the driver: a task would load all that its plan needs, for 0.3 s of CPU.
        return StepWriter, (self._step, self._prefix)

    def write(self, column: Any) -> Any:  # Any: pyarrow has no types
        """pa.BinaryArray, as long as ``column``: each row's prefix and value; null for null.

        Raises:
            EncodeError: with all rows that do not fit the schema.
        """
        reasons: dict[int, str] = {}
        written = []
        for first in range(0, len(column), _ROWS_AT_ONCE):
            errors = EncodeErrors()
            written.append(self._write(column.slice(first, _ROWS_AT_ONCE), errors))
            reasons |= {first + row: reason for row, reason in errors.reasons.items()}
        if reasons:
            raise EncodeError(reasons)
        if not written:
            return pa.nulls(0, pa.binary())
        return written[0] if len(written) == 1 else pa.concat_arrays(written)

    def _write(self, column: Any, errors: EncodeErrors) -> Any:
        present = validity(column)
        if present.all():
            return self._joined(column, errors)
        index = np.flatnonzero(present)
        values = self._joined(column.take(to_arrow(index)), errors.inside(index.__getitem__))
        _, bounds, data = expanded(values, present).array.buffers()
        bitmap = pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(column), [bitmap, bounds, data])

    def _joined(self, column: Any, errors: EncodeErrors) -> Any:
        return join_segments([*constant(self._prefix, len(column)), *self._step.write(column, errors)], len(column))


def refuse(problems: Sequence[str], column: pa.DataType, format_name: str) -> None:
    """Raises SchemaError where there are problems."""
    if problems:
        listed = list(problems[:_MAX_PROBLEMS])
        if more := len(problems) - len(listed):
            listed.append(f"and {more} more")
        raise SchemaError(f"a column of {sql_name(column)} cannot be written as {format_name}: {'; '.join(listed)}.")


def sql_name(column: pa.DataType) -> str:
    """An Arrow type as Spark's SQL names it."""
    if pa.types.is_struct(column):
        return f"STRUCT<{', '.join(f'{each.name}: {sql_name(each.type)}' for each in column)}>"
    if pa.types.is_map(column):
        return f"MAP<{sql_name(column.key_type)}, {sql_name(column.item_type)}>"
    if pa.types.is_list(column) or pa.types.is_large_list(column):
        return f"ARRAY<{sql_name(column.value_type)}>"
    if pa.types.is_decimal(column):
        return f"DECIMAL({column.precision},{column.scale})"
    if pa.types.is_timestamp(column) and column.tz:
        return "TIMESTAMP"
    if pa.types.is_time(column):
        return "TIME"
    return _SQL_NAMES.get(str(column), str(column))


def fixed_width(column: Any, dtype: str, per_element: int = 1) -> Any:
    """The numbers of a column, a view; for a null, anything."""
    numbers = np.frombuffer(column.buffers()[1] or b"", dtype=dtype)
    found = numbers[column.offset * per_element :][: len(column) * per_element]
    return found if len(found) else np.zeros(len(column) * per_element, dtype=dtype)


def binary(column: Any) -> Any:
    """A string or binary column of any width as pa.BinaryArray."""
    if pa.types.is_binary(column.type):
        return column
    return column.view(pa.binary()) if pa.types.is_string(column.type) else column.cast(pa.binary())


def rescaled(column: Any, wanted: pa.DataType) -> tuple[Any, Ints]:
    """The decimals as ``wanted``, and the places of those that it cannot hold exactly, which are null."""
    try:
        return column.cast(wanted), np.zeros(0, dtype=np.int64)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, wanted), np.zeros(1, dtype=np.int64)
    half = len(column) // 2
    first, wrong = rescaled(column.slice(0, half), wanted)
    second, more_wrong = rescaled(column.slice(half), wanted)
    return pa.concat_arrays([first, second]), np.concatenate((wrong, more_wrong + half))
