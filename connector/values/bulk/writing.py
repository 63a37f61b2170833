"""Arrow columns as the bytes of Kafka records, all rows together: what is the same for every format.

A format has a function for each kind of value (:data:`Write`), to which it binds what its schema says; these are picklable. It
never raises for a value: an element that does not fit is reported to :class:`EncodeErrors` and gets bytes that mean nothing. Knows
neither Spark nor any format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import EncodeError, SchemaError
from pykafka_wire.values.bulk.arrays import Flags, Ints, bitmap, not_utf8
from pykafka_wire.wire.arrow.arrays import to_arrow, validity
from pykafka_wire.wire.arrow.row_segments import (
    RowSegment,
    Words64,
    constant,
    expand_rows,
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

    def write(self, column: pa.Array) -> pa.BinaryArray:
        """Return a pa.BinaryArray, as long as ``column``: each row's bytes; null for null.

        Raises:
            EncodeError: rows do not fit the schema.
        """


@runtime_checkable
class WritesColumns(Protocol):
    """A format that writes whole columns."""

    def column_writer(self, column_type: pa.DataType) -> ColumnWriter:
        """Return what writes columns of a type, with the frame of the format.

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


def encode(writer: ColumnWriter, column: pa.Array) -> Encoded:
    """Return all rows of ``column`` that fit. No policy is applied to the others."""
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

    def add(self, wrong: Flags, path: str, reason: str, column: pa.Array | None = None) -> None:
        """Report the elements that are ``wrong``, but for the nulls of ``column``."""
        if not wrong.any():
            return
        if column is not None and column.null_count:
            wrong = wrong & validity(column)
        elements = np.flatnonzero(wrong)
        rows = elements if self.rows_of is None else self.rows_of(elements)
        for row in rows.tolist():
            self.reasons.setdefault(row, f"{path}: {reason}" if path else reason)

    def inside(self, parents_of: Callable[[Ints], Ints]) -> EncodeErrors:
        """Return the same for elements within these: ``parents_of`` gives the number of the element that each is a part of."""
        outer = self.rows_of
        return EncodeErrors(self.reasons, parents_of if outer is None else lambda elements: outer(parents_of(elements)))


#: From a pa.Array to the row segments of its values (:mod:`~pykafka_wire.wire.arrow.row_segments`).
Write = Callable[[Any, EncodeErrors], list[RowSegment]]


@dataclass(frozen=True, slots=True)
class SegmentWriter:
    """Writes columns by a writer of the values that are not null; picklable, and needs no library where it writes.

    Attributes:
        prefix: the bytes before each value, such as Confluent's frame.
    """

    values: Write
    prefix: bytes = b""

    def write(self, column: pa.Array) -> pa.BinaryArray:
        """Return a pa.BinaryArray, as long as ``column``: each row's prefix and value; null for null.

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

    def _write(self, column: pa.Array, errors: EncodeErrors) -> pa.Array:
        present = validity(column)
        if present.all():
            return self._join(column, errors)
        index = np.flatnonzero(present)
        values = self._join(column.take(to_arrow(index)), errors.inside(index.__getitem__))
        _, edges, data = expand_rows(values, present).array.buffers()
        return pa.Array.from_buffers(pa.binary(), len(column), [bitmap(present), edges, data])

    def _join(self, column: pa.Array, errors: EncodeErrors) -> pa.Array:
        return join_segments([*constant(self.prefix, len(column)), *self.values(column, errors)], len(column))


class Problems:
    """Why a schema cannot hold a column, field by field."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, problem: str) -> None:
        self.texts.append(problem)

    def mismatch(self, path: str, column: pa.DataType, kind: str, remedy: str) -> None:
        """Add that the column's type at ``path`` is not the schema's."""
        where = f"field {path}" if path else "the column"
        self.add(f"{where} is {sql_name(column)} and the schema's type is {kind}: {remedy}")

    def places_of(self, column: pa.DataType, names: Collection[str], path: str, owner: str) -> dict[str, int]:
        """Return the places in a struct of the schema's fields, found by their names, exactly or in another case if that is
        clear.
        """
        places: dict[str, int] = {}
        in_any_case: dict[str, list[str]] = {}
        for name in names:
            in_any_case.setdefault(name.lower(), []).append(name)
        for place, child in enumerate(column):
            candidates = in_any_case.get(child.name.lower(), [])
            known = child.name if child.name in candidates else candidates[0] if len(candidates) == 1 else None
            if known is None:
                self.add(
                    f"field {within(path, child.name)} is not in the {owner} {', '.join(names) or 'no fields'}: drop it from the "
                    "column, or add it to the schema"
                )
            elif known in places:
                self.add(
                    f"fields {within(path, column.field(places[known]).name)} and {within(path, child.name)} are both the schema's "
                    f"field {known}: drop one of them"
                )
            else:
                places[known] = place
        return places

    def refuse(self, column: pa.DataType, format_name: str) -> None:
        """Raise SchemaError where there are problems."""
        if self.texts:
            listed = self.texts[:_MAX_PROBLEMS]
            if more := len(self.texts) - len(listed):
                listed.append(f"and {more} more")
            raise SchemaError(
                f"a column of {sql_name(column)} cannot be written as {format_name}: {'; '.join(listed)}."
            )


def sql_name(column: pa.DataType) -> str:
    """Return an Arrow type as Spark's SQL names it."""
    if pa.types.is_struct(column):
        return f"STRUCT<{', '.join(f'{field.name}: {sql_name(field.type)}' for field in column)}>"
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


def numbers_of(column: pa.Array) -> Any:
    """Return the numbers of a column of integers, floating point, dates or times, a view; for a null, anything."""
    kind = column.type
    name = "uint" if pa.types.is_unsigned_integer(kind) else "float" if pa.types.is_floating(kind) else "int"
    return _numbers(column, f"{name}{kind.bit_width}", 1)


def halves_of(column: pa.Array) -> tuple[Words64, Words64]:
    """Return the low and the high 64 bits of a column of decimals; for a null, anything."""
    halves = _numbers(column, "<u8", 2)
    return halves[0::2].copy(), halves[1::2].copy()


def _numbers(column: pa.Array, dtype: str, per_element: int) -> Any:
    numbers = np.frombuffer(column.buffers()[1] or b"", dtype=dtype)
    elements = numbers[column.offset * per_element :][: len(column) * per_element]
    return elements if len(elements) else np.zeros(len(column) * per_element, dtype=dtype)


def whole_numbers(column: pa.Array, lowest: int, highest: int, divide: int = 1) -> tuple[Ints, Flags]:
    """Return the numbers of a column of integers or times, in a larger unit and rounded down; and bool[n]: which are out of
    bounds.
    """
    numbers = numbers_of(column)
    limits, wide = np.iinfo(numbers.dtype), numbers.astype(np.int64)
    if divide != 1:
        wide //= divide
    wrong = np.zeros(len(wide), dtype=np.bool_)
    if int(limits.min) // divide < lowest:
        wrong |= wide < lowest
    if int(limits.max) // divide > highest:
        wrong |= wide > highest
    return wide, wrong


def places_in(column: pa.Array, names: pa.Array) -> tuple[Ints, Flags]:
    """Return the place of each text of a column in a pa.StringArray, and bool[n]: which are not there, a null, too."""
    indexes = pc.index_in(column.cast(pa.string()), value_set=names)
    is_known = validity(indexes)
    return np.where(is_known, numbers_of(indexes), 0).astype(np.int64), ~is_known


def binary(column: pa.Array) -> pa.BinaryArray:
    """Return a string or binary column of any width as pa.BinaryArray."""
    if pa.types.is_binary(column.type):
        return column
    return column.view(pa.binary()) if pa.types.is_string(column.type) else column.cast(pa.binary())


def rescale(column: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Flags]:
    """Return the decimals as ``wanted``, and bool[n]: those that it cannot hold exactly, which are null."""
    try:
        return column.cast(wanted), np.zeros(len(column), dtype=np.bool_)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, wanted), np.ones(1, dtype=np.bool_)
    half = len(column) // 2
    first, wrong = rescale(column.slice(0, half), wanted)
    second, more_wrong = rescale(column.slice(half), wanted)
    return pa.concat_arrays([first, second]), np.concatenate((wrong, more_wrong))


def varint(number: int) -> bytes:
    """Return an unsigned varint of up to 64 bits."""
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*content, number])


def within(path: str, name: str) -> str:
    """Return the path of a field."""
    return f"{path}.{name}" if path else name


def booleans(column: pa.Array) -> Any:
    """Return uint64[n]: 1 for true."""
    bits = np.frombuffer(column.buffers()[1] or b"", dtype=np.uint8)
    flags = np.unpackbits(bits, bitorder="little", count=column.offset + len(column))[column.offset :]
    return flags.astype(np.uint64)


def floats(column: pa.Array, n_bytes: int) -> Words64:
    """Return uint64[n]: the bits of floating point numbers of 4 or 8 bytes, which hold all that the column does."""
    numbers = numbers_of(column)
    if n_bytes == _WORD_BYTES:
        return numbers.astype("<f8").view(np.uint64)  # type: ignore[no-any-return]  # of pyarrow's buffers
    return numbers.astype("<f4").view(np.uint32).astype(np.uint64)  # type: ignore[no-any-return]


def texts_of(column: pa.Array, path: str, errors: EncodeErrors) -> pa.BinaryArray:
    """Return a column of strings or bytes as pa.BinaryArray. Reports strings that are not UTF-8: Spark's may hold anything."""
    array = binary(column)
    if is_text(column.type) and (wrong := not_utf8(array.view(pa.string()))) is not None:
        errors.add(wrong, path, "text that is not UTF-8", array)
    return array


def is_text(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_large_string(column))


def is_bytes(column: pa.DataType) -> bool:
    return bool(pa.types.is_binary(column) or pa.types.is_large_binary(column))


def is_list(column: pa.DataType) -> bool:
    return bool(pa.types.is_list(column) or pa.types.is_large_list(column))


def items_of(column: pa.Array, values: pa.Array, errors: EncodeErrors) -> tuple[Ints, pa.Array, EncodeErrors]:
    """Return, of lists or maps without nulls, where each one's items start, n + 1 numbers from 0 on; the items, out of all
    ``values``; their errors."""
    edges = numbers_of(column.offsets).astype(np.int64)
    starts = edges - edges[0]
    items = values.slice(int(edges[0]), int(starts[-1]))
    return starts, items, errors.inside(lambda elements: starts.searchsorted(elements, side="right") - 1)


def of_present(column: pa.Array, present: Flags, errors: EncodeErrors, write: Write) -> list[RowSegment]:
    """Return what ``write`` gives for the elements that are ``present``, and nothing for the others."""
    if present.all():
        return write(column, errors)
    index = np.flatnonzero(present)
    segments = write(column.take(to_arrow(index)), errors.inside(index.__getitem__))
    return [expand_rows(join_segments(segments, len(index)), present)]
