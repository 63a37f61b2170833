"""How columns of an Arrow type come out of pyarrow's JSON reader: the type to read them as, and what is left to do then.

Owns what pyarrow reads otherwise than this package does row by row. Whatever is in doubt raises: the caller then reads these
rows one by one.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pykafka_wire.values import numeric_times
from pykafka_wire.values.bulk.arrays import Flags, Ints, slices, with_validity
from pykafka_wire.values.bulk.big_endian import out_of_range, words_of
from pykafka_wire.values.bulk.writing import numbers_of
from pykafka_wire.values.single_json.encodings import UNKNOWN, Encodings
from pykafka_wire.values.single_json.variant_type import is_variant
from pykafka_wire.wire.arrow.arrays import validity

#: Completes an array that pyarrow has read: the array, and which of its elements matter -> the array in the wanted type.
Finish = Callable[[Any, Flags], Any]

_PADDING, _FIRST_LETTER = b"=A"


class InDoubtError(Exception):
    """Values that pyarrow has read, and that may not be what the row by row reader reads."""


class NotInColumnsError(Exception):
    """A type that cannot be read in columns; the text says which."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """
    Attributes:
        read_as: the type to ask of pyarrow's JSON reader.
        finish: makes what was read into the wanted type; None where it is that already.
        has_decimals: pyarrow does not check their precision by itself.
        decimal_scale: the largest of its decimals.
        ambiguous: the names of fields whose texts may be numbers and base64 alike, and are to be neither.
    """

    read_as: pa.DataType
    finish: Finish | None = None
    has_decimals: bool = False
    decimal_scale: int = 0
    ambiguous: frozenset[str] = frozenset()


def column_type_of(wanted: pa.DataType, encodings: Encodings = UNKNOWN) -> ColumnType:
    """Return how columns of a type are read.

    Raises:
        NotInColumnsError: a map, a variant, or a type that only the row by row reader has.
    """
    is_a = pa.types
    if is_variant(wanted):
        raise NotInColumnsError("VARIANT")
    if is_a.is_struct(wanted):
        return _struct(wanted, encodings)
    if is_a.is_list(wanted):
        return _list(wanted, encodings)
    if is_a.is_boolean(wanted) or is_a.is_signed_integer(wanted) or is_a.is_string(wanted):
        return ColumnType(wanted)
    if is_a.is_float32(wanted) or is_a.is_float64(wanted):
        return ColumnType(wanted, _finite)
    if is_a.is_decimal(wanted):
        return _decimal(wanted, encodings)
    unit = encodings.date_unit if is_a.is_date32(wanted) else encodings.timestamp_unit
    if unit is not None and (is_a.is_date32(wanted) or (is_a.is_timestamp(wanted) and wanted.unit == "us")):
        return ColumnType(pa.int64(), _times(wanted, unit))
    if is_a.is_timestamp(wanted) and wanted.unit == "us":
        # The reader takes a text without a zone for UTC, and drops a zone: the cast, unlike it, refuses one.
        return ColumnType(wanted) if wanted.tz else ColumnType(pa.string(), _cast_to(wanted))
    if is_a.is_date32(wanted):
        return ColumnType(pa.string(), _cast_to(wanted))
    if is_a.is_binary(wanted):
        return ColumnType(pa.string(), _from_base64)
    raise NotInColumnsError(str(wanted))


def _decimal(wanted: pa.DataType, encodings: Encodings) -> ColumnType:
    form = encodings.decimal_format
    if form == "base64":
        return ColumnType(pa.string(), _decimals_of_base64(wanted))
    ambiguous = frozenset({encodings.path[-1]} if form is None else ())
    return ColumnType(wanted, has_decimals=True, decimal_scale=wanted.scale, ambiguous=ambiguous)


def _struct(wanted: pa.DataType, encodings: Encodings) -> ColumnType:
    fields = [wanted.field(nth) for nth in range(wanted.num_fields)]
    if len({field.name for field in fields}) < len(fields) or not fields:
        raise NotInColumnsError(f"{wanted}, without fields or with two of one name")
    inner = [column_type_of(field.type, encodings.within(field.name)) for field in fields]
    read_as = pa.struct(
        [pa.field(field.name, inner_type.read_as) for field, inner_type in zip(fields, inner, strict=True)]
    )
    required = [nth for nth, field in enumerate(fields) if not field.nullable]

    def finish(column: pa.Array, matters: Flags) -> pa.Array:
        if column.null_count:
            matters = matters & validity(column)
        children = [
            column.field(nth) if inner_type.finish is None else inner_type.finish(column.field(nth), matters)
            for nth, inner_type in enumerate(inner)
        ]
        for nth in required:
            if children[nth].null_count and (matters & ~validity(children[nth])).any():
                raise InDoubtError("null where a value is expected")
        return pa.Array.from_buffers(wanted, len(column), column.buffers()[:1], children=children)

    return ColumnType(
        read_as,
        None if read_as == wanted and not any(inner_type.finish for inner_type in inner) else finish,
        has_decimals=any(inner_type.has_decimals for inner_type in inner),
        decimal_scale=max(inner_type.decimal_scale for inner_type in inner),
        ambiguous=frozenset[str]().union(*(inner_type.ambiguous for inner_type in inner)),
    )


def _list(wanted: pa.DataType, encodings: Encodings) -> ColumnType:
    item = wanted.value_field
    inner = column_type_of(item.type, encodings)
    read_as = pa.list_(pa.field(item.name, inner.read_as))

    def finish(column: pa.Array, matters: Flags) -> pa.Array:
        items = column.values
        if inner.finish is not None:
            items = inner.finish(items, np.ones(len(items), dtype=np.bool_))
        if not item.nullable and items.null_count:
            raise InDoubtError("null where a value is expected")
        return pa.Array.from_buffers(wanted, len(column), column.buffers()[:2], children=[items])

    return ColumnType(
        read_as,
        None if read_as == wanted and inner.finish is None else finish,
        has_decimals=inner.has_decimals,
        decimal_scale=inner.decimal_scale,
        ambiguous=inner.ambiguous,
    )


def _finite(column: pa.Array, matters: Flags) -> pa.Array:
    """Reject names of NaN and the infinities: the row by row reader knows which of them are valid."""
    if not np.isfinite(numbers_of(column)).all():
        raise InDoubtError("a number that is not finite")
    return column


def _cast_to(wanted: pa.DataType) -> Finish:
    def finish(column: pa.Array, matters: Flags) -> pa.Array:
        return column.cast(wanted)

    return finish


def _times(wanted: pa.DataType, unit: numeric_times.TimeUnit) -> Finish:
    """Return numbers of a unit as dates or timestamps; an infinity is null."""
    of_numbers = numeric_times.days if pa.types.is_date32(wanted) else numeric_times.moments

    def finish(column: pa.Array, matters: Flags) -> pa.Array:
        valid = validity(column)
        times = of_numbers(numbers_of(column), unit)
        if times.infinite is not None:
            valid = valid & ~times.infinite
        if times.wrong is not None and (times.wrong & valid & matters).any():
            raise InDoubtError("a number that is no time")
        numbers = np.ascontiguousarray(times.numbers.astype(f"<i{wanted.bit_width // 8}", copy=False))
        made = pa.Array.from_buffers(wanted, len(column), [None, pa.py_buffer(numbers)])
        return with_validity(made, None if valid.all() else valid)

    return finish


def _decimals_of_base64(wanted: pa.DataType) -> Finish:
    def finish(column: pa.Array, matters: Flags) -> pa.Array:
        unscaled = _from_base64(column, matters)
        data = np.frombuffer(unscaled.buffers()[2] or b"\0", dtype=np.uint8)
        edges: Ints = np.frombuffer(unscaled.buffers()[1], dtype=np.int32)[: len(column) + 1].astype(np.int64)
        sizes = np.diff(edges)
        valid = validity(unscaled)
        matters = matters & valid
        high, low = words_of(data, edges[:-1], np.where(sizes <= 16, sizes, 0))
        wrong = (sizes > 16) | (sizes == 0) | out_of_range(high, low, 10**wanted.precision)
        if (wrong & matters).any():
            raise InDoubtError("bytes that are no decimal")
        words = np.empty((len(column), 2), dtype=np.int64)
        words[:, 0], words[:, 1] = low.view(np.int64), high
        words[~matters] = 0
        made = pa.Array.from_buffers(wanted, len(column), [None, pa.py_buffer(words)])
        return with_validity(made, None if valid.all() else valid)

    return finish


def _from_base64(column: pa.Array, matters: Flags) -> pa.BinaryArray:
    """Return a pa.BinaryArray of the bytes that base64 texts stand for, all decoded in one call."""
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[column.offset :][: len(column) + 1].astype(np.int64)
    letters = np.frombuffer(data or b"", dtype=np.uint8)[edges[0] : edges[-1]]
    sizes = np.diff(edges)
    if (sizes % 4).any():
        raise InDoubtError("base64 without padding")
    ends = edges[1:] - edges[0]
    padding = np.zeros(len(column), dtype=np.int64)
    paddings = np.flatnonzero(letters == _PADDING)
    if len(paddings):
        filled = sizes > 0
        last = filled & (letters.take(ends - 1, mode="clip") == _PADDING)
        padding = last.astype(np.int64) + (last & (letters.take(ends - 2, mode="clip") == _PADDING))
        if padding.sum() != len(paddings):
            raise InDoubtError("base64 with padding inside")
        letters = letters.copy()
        letters[paddings] = _FIRST_LETTER
    try:
        buffer = binascii.a2b_base64(letters.data)
    except binascii.Error as error:
        raise InDoubtError("not base64") from error
    if 4 * len(buffer) != 3 * len(letters):  # other letters were left out
        raise InDoubtError("not base64")
    n_bytes = sizes // 4 * 3
    ends = np.cumsum(n_bytes)
    encoded = slices(np.frombuffer(buffer, dtype=np.uint8), ends - n_bytes, ends - padding, pa.binary())
    return with_validity(encoded, validity(column) if column.null_count else None)
