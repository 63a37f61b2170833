"""Arrow columns as the bytes of Kafka records, all rows together: what is the same for every format.

A value writer takes a pa.Array and returns row segments (:mod:`~pykafka_wire.wire.records.row_segments`). It never raises for a
value: an element that does not fit is reported to :class:`EncodeErrors` and gets bytes that mean nothing. Knows neither Spark nor
any format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import EncodeError, SchemaError
from pykafka_wire.values.bulk.arrays import Flags, Ints, bitmap, not_utf8
from pykafka_wire.wire.records.arrays import to_arrow, validity
from pykafka_wire.wire.records.row_segments import (
    RowSegment,
    constant,
    expanded,
    join_segments,
)

#: Rows that are written at once. The calls for one group of rows take 0.6 ms in all, so that fewer rows are slower.
_ROWS_AT_ONCE: Final = 32_768
_WORD_BYTES: Final = 8
#: Of the units of Arrow's times.
PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
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


class ColumnWriter(Protocol):
    """Writes columns of one Arrow type under one schema. Made on the driver, where the two are checked once; picklable."""

    def write(self, column: Any) -> Any:
        """pa.BinaryArray, as long as ``column``: each row's bytes; null for null.

        Raises:
            EncodeError: rows do not fit the schema.
        """


@runtime_checkable
class WritesColumns(Protocol):
    """A format that writes whole columns."""

    def column_writer(self, column_type: pa.DataType) -> ColumnWriter:
        """What writes columns of a type, with the frame of the format.

        Raises:
            SchemaError: the schema cannot hold such a column.
            DecodeError: the schema is not valid.
            RegistryError: a schema that it refers to cannot be looked up.
        """


@dataclass(frozen=True, slots=True)
class Encoded:
    """A column's bytes, and row number -> reason for the rows that could not be written, which are null in ``column``."""

    column: Any
    reasons: dict[int, str]


def encode(writer: ColumnWriter, column: Any) -> Encoded:
    """All rows of ``column`` that fit. No policy is applied to the others."""
    reasons: dict[int, str] = {}
    rows = np.arange(len(column))
    while True:
        try:
            written = writer.write(column)
            break
        except EncodeError as error:
            reasons |= {int(rows[row]): reason for row, reason in error.reasons.items()}
            fit = np.ones(len(rows), dtype=np.bool_)
            fit[list(error.reasons)] = False
            kept = np.flatnonzero(fit)
            column, rows = column.take(to_arrow(kept)), rows[kept]
    if reasons:
        places = np.full(len(rows) + len(reasons), len(rows))
        places[rows] = np.arange(len(rows))
        written = pa.concat_arrays([written, pa.nulls(1, pa.binary())]).take(to_arrow(places))
    return Encoded(written, reasons)


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


class ValueWriter(Protocol):
    """Writes values of one schema."""

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        """``column`` has no nulls, unless the writer says how it writes them."""


@dataclass(frozen=True, slots=True)
class SegmentWriter:
    """Writes columns by a writer of the values that are not null; picklable, and needs no library where it writes.

    Attributes:
        prefix: the bytes before each value, such as Confluent's frame.
    """

    values: ValueWriter
    prefix: bytes = b""

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
        _, edges, data = expanded(values, present).array.buffers()
        return pa.Array.from_buffers(pa.binary(), len(column), [bitmap(present), edges, data])

    def _joined(self, column: Any, errors: EncodeErrors) -> Any:
        return join_segments([*constant(self.prefix, len(column)), *self.values.write(column, errors)], len(column))


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


def varint(number: int) -> bytes:
    """An unsigned varint of up to 64 bits."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def within(path: str, name: str) -> str:
    """The path of a field."""
    return f"{path}.{name}" if path else name


def matching(name: str, names: Collection[str]) -> str | None:
    """The schema's field that a column's field is written as: of the same name, or the only one in another case."""
    if name in names:
        return name
    found = [each for each in names if each.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def booleans(column: Any) -> Any:
    """uint64[n]: 1 for true."""
    bits = np.frombuffer(column.buffers()[1] or b"", dtype=np.uint8)
    flags = np.unpackbits(bits, bitorder="little", count=column.offset + len(column))[column.offset :]
    return flags.astype(np.uint64)


def floats(column: Any, dtype: str, n_bytes: int) -> Any:
    """uint64[n]: the bits of floating point numbers of 4 or 8 bytes, which hold all that ``dtype``, the column's, does."""
    numbers = fixed_width(column, dtype)
    if n_bytes == _WORD_BYTES:
        return numbers.astype("<f8").view(np.uint64)
    return numbers.astype("<f4").view(np.uint32).astype(np.uint64)


def check_text(array: Any, path: str, errors: EncodeErrors) -> None:
    """Reports the elements of a binary array that are not UTF-8: Spark's strings may hold anything."""
    wrong = not_utf8(array.view(pa.string()))
    if wrong is not None:
        errors.add(np.flatnonzero(wrong), path, "text that is not UTF-8")


def items_of(column: Any, values: Any, errors: EncodeErrors) -> tuple[Ints, Any, EncodeErrors]:
    """Of lists or maps without nulls: where each one's items start, n + 1 numbers from 0 on; the items, out of all ``values``;
    their errors."""
    edges = fixed_width(column.offsets, str(column.offsets.type)).astype(np.int64)
    starts = edges - edges[0]
    items = values.slice(int(edges[0]), int(starts[-1]))
    return starts, items, errors.inside(lambda elements: starts.searchsorted(elements, side="right") - 1)


def of_present(
    column: Any,
    present: Flags,
    errors: EncodeErrors,
    write: Callable[[Any, EncodeErrors], list[RowSegment]],
) -> list[RowSegment]:
    """What ``write`` gives for the elements that are ``present``, and nothing for the others."""
    if present.all():
        return write(column, errors)
    index = np.flatnonzero(present)
    segments = write(column.take(to_arrow(index)), errors.inside(index.__getitem__))
    return [expanded(join_segments(segments, len(index)), present)]
