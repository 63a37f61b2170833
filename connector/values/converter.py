"""A column of values through a format, in columns or row by row, and what happens to rows that cannot be read or written.

Owns the policy (fail, null, divert) and the way from Python values to Arrow; knows neither Spark nor any format.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import (
    ENVIRONMENT_ERRORS,
    ConnectorError,
    DecodeError,
    EncodeError,
    OptionError,
    ValueFormatError,
)
from pykafka_wire.values.arrow_conversion import conversion_to, from_arrow
from pykafka_wire.values.bulk.arrays import Flags, Ints, array_of, flag_array, flags_at, reassemble
from pykafka_wire.values.bulk.reading import ColumnTooLargeError, PayloadReader, Payloads, leave_all
from pykafka_wire.values.bulk.writing import ColumnWriter, WritesColumns, encode
from pykafka_wire.values.registry.framing import Frames, Framing, SchemaId, split_frames

_log: Final = logging.getLogger(__name__)

OnError = Literal["fail", "null", "divert"]
_POLICIES: Final = ("fail", "null", "divert")
#: Of values that are read one by one, before they become a column: of one byte, Python may make an object of 200.
_BYTES_AT_ONCE: Final = 1 << 17
_ROWS_AT_ONCE: Final = 4_096
#: A few bytes can be a value of 64 MiB: how many rows are read at once follows from what those before have become.
_FIRST_ROWS: Final = 8
_COLUMN_BYTES_AT_ONCE: Final = 8 << 20
#: An Arrow array has offsets of 32 bits.
_MAX_ARRAY_BYTES: Final = (1 << 31) - 1
#: Of one column. Each takes memory for each part of the type, some 7 MiB for a type of 20,000, however few rows it has.
_MAX_PIECES: Final = 8
#: A reason may name a schema's fields or a document's keys, which have no limit of their own.
_MAX_REASON: Final = 500


class Format(Protocol):
    """One way of writing values. Stateless but for what its process has cached; picklable.

    Attributes:
        framing: whether a frame with a schema's id stands before each payload.
        has_message_indexes: whether the frame names one of several messages, too.
    """

    @property
    def framing(self) -> Framing: ...

    @property
    def has_message_indexes(self) -> bool: ...

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> PayloadReader:
        """Return a reader of what was written with a schema; the format's own schema where values have no frame.

        Raises:
            DecodeError: no such value can be read: the schema is unknown, or does not fit.
            RegistryError: the registry does not respond.
        """

    def __hash__(self) -> int: ...


@runtime_checkable
class WritesRows(Protocol):
    """A format that writes one value after the other."""

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a Python value. Raises as a reader does."""


class TypeFormat(Protocol):
    """One of several types: the field of its values, and what reads them."""

    @property
    def field(self) -> str: ...

    @property
    def format(self) -> Format: ...


@runtime_checkable
class ReadsTypes(Protocol):
    """A format of several types, a field for each (:mod:`~pykafka_wire.values.record_types`, which no other reader loads)."""

    @property
    def framing(self) -> Framing: ...

    @property
    def has_message_indexes(self) -> bool: ...

    def divide(self, frames: Frames) -> Frames: ...

    def type_of(self, schema_id: SchemaId | None) -> TypeFormat | None: ...

    def written_name(self, schema_id: SchemaId | None) -> str | None: ...

    def is_null(self, schema_id: SchemaId | None) -> bool: ...


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded column, null where a value could not be read, and the reason for each such row."""

    column: pa.Array
    reasons: Mapping[int, str]
    #: Rows of types that are not read, which have no reason (:mod:`~pykafka_wire.values.record_types`).
    others: tuple[Ints, ...] = ()
    #: The rows of each schema; None for values without a frame.
    groups: Sequence[tuple[SchemaId | None, Ints]] = ()


def diverted_type(column_type: pa.DataType) -> pa.DataType:
    """Return the type of a column under ``on_error="divert"``."""
    return pa.struct([pa.field("value", column_type), pa.field("error", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter:
    """``converter(array)`` is the array decoded, or encoded where ``type`` is None; a null stays null.

    Attributes:
        type: of the decoded column.
        on_error: ``fail`` raises for the first row that cannot be converted; ``null`` leaves it null; ``divert`` makes each
            row a struct of ``value`` and ``error``, one of them null.
    """

    format: Format
    type: pa.DataType | None
    on_error: OnError = "fail"

    def __post_init__(self) -> None:
        if self.on_error not in _POLICIES:
            raise OptionError(f"on_error is {self.on_error!r} and must be one of {', '.join(_POLICIES)}.")
        if self.type is None and self.on_error == "null":
            raise OptionError("on_error='null' would write tombstones for rows that cannot be encoded: fail or divert.")
        if self.type is not None:
            try:
                conversion_to(self.type)  # refuses types that no value can have, before any task runs
            except RecursionError as error:
                raise OptionError(
                    "the column's type is nested deeper than Python can follow: use one of fewer levels."
                ) from error

    def __call__(self, rows: pa.Array) -> pa.Array:
        """Return the column, as long as ``rows``, a pa.Array.

        Raises:
            ValueFormatError: a row cannot be converted, under ``on_error="fail"``.
            ColumnTooLargeError: the column would be larger than Arrow's arrays may be, under every policy.
            RegistryError: the registry does not respond, under every policy.
        """
        converted = self._encode(rows) if self.type is None else read_column(self.format, self.type, rows)
        if converted.reasons and self.on_error == "fail":
            raise self._failure(converted.reasons[min(converted.reasons)])
        if self.on_error != "divert":
            return converted.column
        fields = list(diverted_type(converted.column.type))
        return pa.StructArray.from_arrays([converted.column, reasons_column(converted, len(rows))], fields=fields)

    def _encode(self, rows: pa.Array) -> Decoded:
        try:
            encoded = encode(column_writer(self.format, rows.type), rows)
        except DecodeError as error:
            raise self._failure(_reason(error)) from error
        return Decoded(encoded.column, encoded.reasons)

    def _failure(self, reason: str) -> ValueFormatError:
        done = "encoded" if self.type is None else "decoded"
        return ValueFormatError(
            f"a value cannot be {done} as {type(self.format).__name__}: {reason}. on_error='divert' keeps the other rows, and "
            "puts the reason beside each row that fails."
        )


@lru_cache(maxsize=100)
def column_writer(value_format: Format, column_type: pa.DataType) -> ColumnWriter:
    """Return what writes columns of a type as a format.

    Raises:
        SchemaError: the format's schema cannot hold such a column.
        DecodeError: the schema is not valid.
        RegistryError: a schema that it refers to cannot be looked up.
    """
    if isinstance(value_format, WritesColumns):
        return value_format.column_writer(column_type)
    assert isinstance(value_format, WritesRows)
    return RowWriter(value_format)


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes a column one row after the other."""

    format: WritesRows

    def write(self, column: pa.Array) -> pa.BinaryArray:
        """Return pa.BinaryArray: see :class:`~pykafka_wire.values.bulk.writing.ColumnWriter`."""

        def encode_row(row: Any) -> bytes:
            return self.format.encode(from_arrow(row.read() if type(row) is _Unread else row, column.type))

        values = _values(column)
        present = [row for row, value in enumerate(values) if value is not None]
        made = (values[row] for row in present)
        encoded, reasons = _convert_each(made, encode_row, pa.binary(), array_of(pa.binary()))
        if reasons:
            raise EncodeError({present[nth]: reason for nth, reason in reasons.items()})
        return reassemble(len(column), pa.binary(), [(np.array(present, dtype=np.int64), encoded)])


def read_column(
    value_format: Format | ReadsTypes,
    column_type: pa.DataType,
    rows: pa.Array,
    *,
    schema_headers: pa.Array | None = None,
    foreign: Mapping[int, str] = MappingProxyType({}),
    max_bytes: int | None = None,
) -> Decoded:
    """Return the values of a binary or string column. Rows with the same schema are read together; what is left, one by one.

    Args:
        schema_headers: pa.BinaryArray, each record's header with its schema's id (:func:`~.registry.framing.header_values`).
        foreign: why rows cannot be read whose schemas are named in other ways (:func:`~.registry.framing.foreign_frames`).
        max_bytes: what the column of more than one row may take, for each type; by default what Arrow can hold.

    Raises:
        ColumnTooLargeError: it takes more.
        RegistryError: the registry does not respond.
    """
    if not pa.types.is_binary(rows.type):
        rows = rows.cast(pa.binary())
    others = [row for row in foreign if rows[row].is_valid]
    if others:
        left_out = flags_at(np.array(others), len(rows))
        rows = pc.if_else(flag_array(left_out), pa.scalar(None, pa.binary()), rows)
    frames = split_frames(
        rows,
        value_format.framing,
        has_message_indexes=value_format.has_message_indexes,
        headers=schema_headers,
    )
    frames.reasons.update((row, foreign[row]) for row in others)
    if isinstance(value_format, ReadsTypes):
        return _read_types(value_format, column_type, value_format.divide(frames), len(rows), max_bytes)
    column = _read_groups(
        value_format, column_type, frames.payloads, frames.groups, len(rows), frames.reasons, max_bytes
    )
    return Decoded(column, frames.reasons, groups=frames.groups)


def _read_types(
    types: ReadsTypes, column_type: pa.DataType, frames: Frames, n_rows: int, max_bytes: int | None
) -> Decoded:
    """Return a struct with a field for each type; null where its type is not read, or it is Avro's null."""
    groups: dict[str, list[tuple[SchemaId | None, Ints]]] = {}
    formats: dict[str, Format] = {}
    others: list[Ints] = []
    for schema_id, index in frames.groups:
        try:
            type_format = types.type_of(schema_id)
        except DecodeError as error:
            frames.reasons.update(dict.fromkeys(index.tolist(), _reason(error)))
            continue
        if type_format is not None:
            formats[type_format.field] = type_format.format
            groups.setdefault(type_format.field, []).append((schema_id, index))
        elif not types.is_null(schema_id):
            others.append(index)
    columns = [
        _read_groups(
            formats[field.name], field.type, frames.payloads, groups[field.name], n_rows, frames.reasons, max_bytes
        )
        if field.name in groups
        else pa.nulls(n_rows, field.type)
        for field in column_type
    ]
    is_null = np.ones(n_rows, dtype=np.bool_)
    for field in column_type:
        for _, index in groups.get(field.name, ()):
            is_null[index] = False
    is_null[list(frames.reasons)] = True
    column = pa.StructArray.from_arrays(columns, fields=list(column_type), mask=pa.array(is_null))
    return Decoded(column, frames.reasons, tuple(others), frames.groups)


def _read_groups(
    value_format: Format,
    column_type: pa.DataType,
    all_payloads: Payloads,
    groups: Sequence[tuple[SchemaId | None, Ints]],
    n_rows: int,
    reasons: dict[int, str],
    max_bytes: int | None,
) -> pa.Array:
    """Return a column of the rows of these groups, null in others; adds to the reasons. Raises ColumnTooLargeError."""
    parts: list[tuple[Ints, pa.Array]] = []
    n_bytes = 0

    def add(index: Ints, column: pa.Array) -> None:
        nonlocal n_bytes
        parts.append((index, column))
        n_bytes += column.nbytes
        if max_bytes is not None and n_bytes > max_bytes and n_rows > 1:
            raise ColumnTooLargeError.of(n_rows, column_type)
        while len(parts) > _MAX_PIECES and len(parts[-2][0]) <= 2 * len(
            parts[-1][0]
        ):  # so that few rows are moved often
            (one, first), (other, second) = parts.pop(-2), parts.pop()
            parts.append((np.concatenate([one, other]), joined([first, second])))

    def joined(columns: list[pa.Array]) -> pa.Array:
        try:
            return pa.concat_arrays(columns)
        except pa.ArrowException as error:
            raise ColumnTooLargeError.of(n_rows, column_type) from error

    # The ids of most values first: damaged values name many others, for which a registry is asked without success (UnknownIds).
    for schema_id, index in sorted(groups, key=lambda group: -len(group[1])):
        try:
            reader = value_format.reader(schema_id, column_type)
        except DecodeError as error:
            reasons.update(dict.fromkeys(index.tolist(), _reason(error)))
            continue
        payloads = all_payloads if len(index) == n_rows else all_payloads.take(index)
        column, unread = _read_together(reader, payloads, column_type)
        add(index, column)
        for some, values, failed in _read_alone(np.flatnonzero(unread), payloads, reader, column_type):
            add(index[some], values)
            reasons.update((int(index[some[nth]]), reason) for nth, reason in failed.items())
    try:
        return reassemble(n_rows, column_type, parts)
    except pa.ArrowException as error:
        raise ColumnTooLargeError.of(n_rows, column_type) from error


def _read_together(reader: PayloadReader, payloads: Payloads, column_type: pa.DataType) -> tuple[pa.Array, Flags]:
    """Return what :meth:`PayloadReader.read_column` does; all rows are left where Arrow cannot hold them together."""
    try:
        return reader.read_column(payloads)
    except pa.ArrowException as error:
        _log.warning("%d values cannot be read in columns, and are read one by one: %s", len(payloads), error)
        return leave_all(payloads, column_type)


def _read_alone(
    rows: Ints, payloads: Payloads, reader: PayloadReader, column_type: pa.DataType
) -> Iterator[tuple[Ints, pa.Array, dict[int, str]]]:
    """Yield the values of ``rows``, read one by one: some of the rows at a time, their column, and the reasons by places in it."""
    if not len(rows):
        return
    make = array_of(column_type)
    ends = np.cumsum(payloads.ends[rows] - payloads.starts[rows])
    first, n_rows = 0, _FIRST_ROWS
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        by_bytes = int(np.searchsorted(ends, before + _BYTES_AT_ONCE, side="right"))
        some = rows[first : min(max(by_bytes, first + 1), first + n_rows)]
        try:
            column, reasons = _convert_each(
                (payloads[row] for row in some.tolist()), reader.read_one, column_type, make
            )
        except ColumnTooLargeError:
            n_rows = len(some) // 2
            continue
        yield some, column, reasons
        n_rows = max(n_rows // 2, 1) if column.nbytes > _COLUMN_BYTES_AT_ONCE else min(2 * n_rows, _ROWS_AT_ONCE)
        first += len(some)


def reasons_column(converted: Decoded, n_rows: int) -> pa.Array:
    """Return a pa.StringArray of each row's reason, null where there is none."""
    if not converted.reasons:
        return pa.nulls(n_rows, pa.string())
    return pa.array([converted.reasons.get(row) for row in range(n_rows)], pa.string())


def _convert_each(
    rows: Iterable[Any], convert: Callable[[Any], Any], column_type: pa.DataType, make: Callable[[list[Any]], pa.Array]
) -> tuple[pa.Array, dict[int, str]]:
    """Return the rows converted one by one, null where that fails, and the reasons. Raises ColumnTooLargeError, of more than
    one row.

    Args:
        make: the array of values of the type (:func:`array_of`).
    """
    converted: list[Any] = []
    reasons: dict[int, str] = {}
    for nth, row in enumerate(rows):
        try:
            converted.append(convert(row))
        except (ConnectorError, *ENVIRONMENT_ERRORS):  # the registry, a library, an option, memory: not the value
            raise
        except Exception as error:
            converted.append(None)
            reasons[nth] = _reason(error)
    try:
        return make(converted), reasons
    except ENVIRONMENT_ERRORS:
        raise
    except Exception:  # Arrow does not accept one of them, or more: each is tried alone
        pass
    n_bytes = 0
    for nth, value in enumerate(converted):
        try:
            n_bytes += make([value]).nbytes
        except ENVIRONMENT_ERRORS:
            raise
        except Exception:
            converted[nth], reasons[nth] = None, f"a value that {column_type} cannot hold"[:_MAX_REASON]
        if n_bytes > _MAX_ARRAY_BYTES:
            raise ColumnTooLargeError.of(len(converted), column_type)
    return make(converted), reasons


@dataclass(frozen=True, slots=True)
class _Unread:
    """A row whose Python value is still to be made, since some row of its column has none."""

    scalar: pa.Scalar

    def read(self) -> Any:
        try:
            return self.scalar.as_py()
        except (ArithmeticError, ValueError) as error:
            raise DecodeError(
                "Python has no such value: a timestamp outside the years 1 to 9999, or below microseconds"
            ) from error


def _values(rows: pa.Array) -> list[Any]:
    try:
        values: list[Any] = rows.to_pylist()
        return values
    except Exception:  # a timestamp of the year 10000, for instance, which Spark has and Python does not
        return [_Unread(row) if row.is_valid else None for row in rows]


def _reason(error: Exception) -> str:
    if isinstance(error, DecodeError):
        # A key of a JSON document may hold half of a surrogate pair, which no string column can.
        return str(error)[:_MAX_REASON].encode("utf-8", "backslashreplace").decode()
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return f"an unexpected {type(error).__name__}"
