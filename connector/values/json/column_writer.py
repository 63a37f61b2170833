"""Columns of any type as JSON text, all rows together, as Spark's ``to_json`` writes them.

Every value has a text, but for strings that are not UTF-8, which Spark can hold. The differences from ``to_json`` are listed in
docs/json-types.md.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import EncodeError, SchemaError
from pykafka_wire.values.bulk.arrays import not_utf8, nulls_of
from pykafka_wire.values.bulk.writing import numbers_of, sql_name
from pykafka_wire.values.single_json.text import json_text
from pykafka_wire.wire.arrow.arrays import binary_scalar, to_arrow, validity
from pykafka_wire.wire.arrow.row_segments import bounds, byte_lengths

#: Rows that are written at once, chosen so that their columns fit the cache.
_ROWS_AT_ONCE: Final = 16_384
_QUOTE, _BACKSLASH, _FIRST_PRINTABLE = 0x22, 0x5C, 0x20
_OPEN, _PADDING, _T = b"{=T"
_SHORT_ESCAPES: Final = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MICROS_PER_MILLI: Final = 1_000
#: Seconds at which the years 0 and 10000 begin; Arrow writes years outside in another way than ISO-8601.
_FIRST_MICROS, _END_MICROS = -62_167_219_200_000_000, 253_402_300_800_000_000
_FIRST_DAY, _END_DAY = -719_528, 2_932_897


def _scalar(text: bytes) -> pa.Scalar:
    return binary_scalar(text).cast(pa.string())


_NOTHING: Final = _scalar(b"")
_NULL: Final = _scalar(b"null")
_COMMA: Final = _scalar(b",")


@dataclass(frozen=True, slots=True)
class _JsonText:
    """The texts of a column's elements: the same ``before`` and ``after`` each of ``array``, null for null."""

    before: bytes
    array: pa.Array
    after: bytes

    def joined(self, before: bytes = b"") -> pa.Array:
        """Return a pa.StringArray, null for null."""
        parts = [_scalar(before + self.before), self.array, _scalar(self.after)]
        return pc.binary_join_element_wise(*parts, _NOTHING)


@dataclass(frozen=True, slots=True)
class DocumentWriter:
    """See :class:`~pykafka_wire.values.bulk.writing.ColumnWriter`.

    Raises:
        SchemaError: JSON has no such type.
    """

    column_type: pa.DataType

    def __post_init__(self) -> None:
        problems = list(_problems(self.column_type, ""))
        if problems:
            raise SchemaError(
                f"a column of {sql_name(self.column_type)} cannot be written as JSON: {'; '.join(problems)}. Cast it to STRING."
            )

    def write(self, column: pa.Array) -> pa.BinaryArray:
        """Return a pa.BinaryArray, as long as ``column``: the JSON text of each row, null for null.

        Raises:
            EncodeError: a string is not UTF-8.
        """
        written: list[pa.Array] = []
        reasons: dict[int, str] = {}
        for first in range(0, len(column), _ROWS_AT_ONCE):
            texts = _text(column.slice(first, _ROWS_AT_ONCE)).joined()
            if (wrong := not_utf8(texts)) is not None:
                reasons |= dict.fromkeys((first + np.flatnonzero(wrong)).tolist(), "a string that is not UTF-8")
            written.append(texts.cast(pa.binary()))
        if reasons:
            raise EncodeError(reasons)
        return pa.concat_arrays(written) if written else pa.nulls(0, pa.binary())


#: What is written without quotes.
_BARE: Final = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_decimal)
_SCALARS: Final = (
    *(*_BARE, pa.types.is_float32, pa.types.is_float64, pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_date32, pa.types.is_null, pa.types.is_timestamp),
)


def _problems(column_type: pa.DataType, path: str) -> Iterator[str]:
    is_a = pa.types
    if is_a.is_struct(column_type):
        for field in column_type:
            yield from _problems(field.type, f"{path}.{field.name}" if path else field.name)
    elif is_a.is_map(column_type):
        if is_a.is_nested(column_type.key_type):
            yield f"{path or 'it'} has keys of {sql_name(column_type.key_type)}"
        else:
            yield from _problems(column_type.key_type, f"{path}.key")
        yield from _problems(column_type.item_type, f"{path}[]")
    elif is_a.is_list(column_type):
        yield from _problems(column_type.value_type, f"{path}[]")
    elif not any(is_kind(column_type) for is_kind in _SCALARS) or (
        is_a.is_timestamp(column_type) and column_type.unit != "us"
    ):
        yield f"{path or 'it'} is {sql_name(column_type)}"


def _text(column: pa.Array) -> _JsonText:
    is_a, column_type = pa.types, column.type
    # As Spark sends them under spark.sql.execution.arrow.useLargeVarTypes, whatever type the writer was made for.
    if is_a.is_large_string(column_type):
        return _text(column.cast(pa.string()))
    if is_a.is_large_binary(column_type):
        return _text(column.cast(pa.binary()))
    if is_a.is_string(column_type):
        return _JsonText(b'"', _escape(column), b'"')
    if is_a.is_struct(column_type):
        return _JsonText(b"", _struct(column), b"")
    if is_a.is_map(column_type) or is_a.is_list(column_type):
        return _list(column)
    if is_a.is_floating(column_type):
        return _JsonText(b"", _float(column), b"")
    if is_a.is_binary(column_type):
        return _JsonText(b'"', _base64(column), b'"')
    if is_a.is_timestamp(column_type):
        return _timestamp(column)
    if is_a.is_date(column_type):
        days = pc.min_max(column.cast(pa.int32())).as_py()
        if days["min"] is not None and (days["min"] < _FIRST_DAY or days["max"] >= _END_DAY):
            return _JsonText(b'"', _years_outside(column, _FIRST_DAY, _END_DAY), b'"')
        return _JsonText(b'"', column.cast(pa.string()), b'"')
    if is_a.is_null(column_type):
        return _JsonText(b"", pa.nulls(len(column), pa.string()), b"")
    if not any(is_kind(column_type) for is_kind in _BARE):
        raise TypeError(f"a column of {column_type} cannot be written as JSON: its texts might need quotes")
    return _JsonText(b"", column.cast(pa.string()), b"")


def _struct(column: pa.Array) -> pa.Array:
    parts: list[pa.Array] = []
    literal = b""
    always = False
    present: npt.NDArray[np.bool_] = np.zeros(len(column), dtype=np.bool_)
    for nth, field in enumerate(column.type):
        child = column.field(nth)
        text = _text(child)
        name = b"," + json_text(field.name).encode() + b":"
        if child.null_count:
            parts += [_scalar(literal), text.joined(name)] if literal else [text.joined(name)]
            literal = b""
            present |= validity(child)
        else:
            parts += [_scalar(literal + name + text.before), text.array]
            literal, always = text.after, True
    if always or present.all():
        parts.append(_scalar(literal + b"}"))
    else:  # the first byte of each row is replaced
        ends = pa.array(np.where(present, "}", ",}"), pa.string())
        parts += [_scalar(literal), ends] if literal else [ends]
    if not any(isinstance(part, pa.Array) for part in parts):
        parts.append(pa.nulls(len(column), pa.string()))
    joined = pc.binary_join_element_wise(*parts, _NOTHING, null_handling="replace", null_replacement="")
    _, offsets, data = joined.buffers()
    letters = np.array(np.frombuffer(data or b"", dtype=np.uint8))
    letters[bounds(joined)[:-1]] = _OPEN
    return pa.Array.from_buffers(pa.string(), len(column), [nulls_of(column), offsets, pa.py_buffer(letters)])


def _list(column: pa.Array) -> _JsonText:
    edges = np.frombuffer(column.buffers()[1] or bytes(4), dtype=np.int32)[column.offset :][: len(column) + 1]
    first, n_items = int(edges[0]), int(edges[-1] - edges[0])
    is_map = pa.types.is_map(column.type)
    items = _text((column.items if is_map else column.values).slice(first, n_items)).joined()
    if items.null_count:
        items = pc.coalesce(items, _NULL)
    if is_map:
        items = pc.binary_join_element_wise(_keys(column.keys.slice(first, n_items)), items, _scalar(b":"))
    lists = pa.Array.from_buffers(
        pa.list_(pa.string()), len(column), [nulls_of(column), pa.py_buffer(edges - edges[0])], children=[items]
    )
    joined = pc.binary_join(lists, _COMMA)
    return _JsonText(b"{", joined, b"}") if is_map else _JsonText(b"[", joined, b"]")


def _keys(keys: pa.Array) -> pa.Array:
    if pa.types.is_floating(keys.type):
        return _JsonText(b'"', _float(keys, quote=b""), b'"').joined()
    text = _text(keys)
    return text.joined() if text.before else _JsonText(b'"', text.array, b'"').joined()


def _escape(column: pa.Array) -> pa.Array:
    """Return texts with what JSON cannot hold in them escaped."""
    data = column.buffers()[2]
    if data is None:
        return column
    edges = bounds(column)
    buffer = np.frombuffer(data, dtype=np.uint8)[edges[0] : edges[-1]]
    if (buffer == _BACKSLASH).any():
        column = pc.replace_substring(column, "\\", "\\\\")
    if (buffer == _QUOTE).any():
        column = pc.replace_substring(column, '"', '\\"')
    if len(buffer) and buffer.min() < _FIRST_PRINTABLE:
        for letter in map(chr, np.unique(buffer[buffer < _FIRST_PRINTABLE]).tolist()):
            column = pc.replace_substring(column, letter, _SHORT_ESCAPES.get(letter, f"\\u{ord(letter):04X}"))
    return column


def _float(column: pa.Array, quote: bytes = b'"') -> pa.Array:
    """Return numbers with a point or an exponent, and between quotes what JSON has no number for: NaN and the infinities."""
    texts = column.cast(pa.string())
    is_whole = pc.equal(column, pc.trunc(column))
    if pc.any(is_whole).as_py():
        whole = texts.filter(is_whole)
        with_point = pc.binary_join_element_wise(whole, _scalar(b".0"), _NOTHING)
        has_point = pc.match_substring_regex(whole, "[.e]")
        texts = pc.replace_with_mask(texts, is_whole, pc.if_else(has_point, whole, with_point))
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() in (True, None):
        return texts
    numbers = column.cast(pa.float64())
    nan, infinity, negative = (_scalar(quote + name + quote) for name in (b"NaN", b"Infinity", b"-Infinity"))
    names = pc.if_else(pc.is_nan(numbers), nan, pc.if_else(pc.less(numbers, _ZERO), negative, infinity))
    return pc.if_else(finite, texts, names)


_ZERO: Final = to_arrow(np.zeros(1, dtype=np.int64)).cast(pa.float64())[0]


def _timestamp(column: pa.Array) -> _JsonText:
    """Return times with milliseconds, as ``to_json`` writes them, or with microseconds where they are not zero."""
    after = b'Z"' if column.type.tz else b'"'
    micros = column.cast(pa.int64())
    numbers = numbers_of(micros)[validity(micros)]
    local = micros.cast(pa.timestamp("us"))
    if len(numbers) and (numbers.min() < _FIRST_MICROS or numbers.max() >= _END_MICROS):
        return _JsonText(b'"', _years_outside(local, _FIRST_MICROS, _END_MICROS), after)
    if not (numbers % _MICROS_PER_MILLI).any():
        return _JsonText(b'"', _with_t(local.cast(pa.timestamp("ms")).cast(pa.string())), after)
    texts = _with_t(local.cast(pa.string()))
    return _JsonText(b'"', pc.replace_substring_regex(texts, r"(\.[0-9]{3})000$", r"\1"), after)


def _with_t(texts: pa.Array) -> pa.Array:
    """Return ``2026-03-01T12:30:00.000`` for ``2026-03-01 12:30:00.000``."""
    n_letters = int(bounds(texts)[-1])
    if texts.null_count or not len(texts) or n_letters % len(texts):
        return pc.replace_substring(texts, " ", "T")
    _, offsets, data = texts.buffers()
    letters = np.array(np.frombuffer(data, dtype=np.uint8, count=n_letters)).reshape(len(texts), -1)
    letters[:, len("2026-03-01")] = _T
    return pa.Array.from_buffers(pa.string(), len(texts), [None, offsets, pa.py_buffer(letters)])


def _years_outside(column: pa.Array, first: int, end: int) -> pa.Array:
    """Return times of which some are not in the years 0 to 9999, each as Spark writes it."""
    cycle = (end - first) // 25  # 400 years
    numbers = column.cast(pa.int64()) if not pa.types.is_date(column.type) else column.cast(pa.int32())
    texts: list[str | None] = []
    for number in numbers.to_pylist():
        if number is None:
            texts.append(None)
            continue
        n_cycles = (number - first) // cycle
        moment = number - n_cycles * cycle + 5 * cycle  # the same time in the years 2000 to 2399
        kind = pa.date32() if pa.types.is_date(column.type) else pa.timestamp("us")
        text = pa.array([moment], kind).cast(pa.string())[0].as_py().replace(" ", "T")
        year = int(text[:4]) + 400 * (n_cycles - 5)
        text = (text[:-3] if len(text) > 10 and text.endswith("000") else text)[4:]
        texts.append(f"{'+' if year > 9999 else '-' if year < 0 else ''}{abs(year):04}{text}")
    return pa.array(texts, pa.string())


def _base64(column: pa.Array) -> pa.Array:
    """Return all values encoded in one call: each is padded to whole groups of three bytes, and its letters begin a group."""
    sizes = byte_lengths(column)
    edges = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum((sizes + 2) // 3 * 3, out=edges[1:])
    buffer = np.zeros(int(edges[-1]), dtype=np.uint8)
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    source = np.frombuffer(column.buffers()[2] or b"", dtype=np.uint8)
    buffer[np.repeat(edges[:-1], sizes) + within] = source[np.repeat(bounds(column)[:-1], sizes) + within]
    letters = np.array(np.frombuffer(binascii.b2a_base64(buffer.data, newline=False), dtype=np.uint8))
    ends = edges[1:] // 3 * 4
    letters[ends[sizes % 3 > 0] - 1] = _PADDING
    letters[ends[sizes % 3 == 1] - 2] = _PADDING
    offsets = pa.py_buffer((edges // 3 * 4).astype(np.int32))
    return pa.Array.from_buffers(pa.string(), len(column), [nulls_of(column), offsets, pa.py_buffer(letters)])
