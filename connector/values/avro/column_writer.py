"""Columns to Avro values: what writes an Arrow type as a schema's place, what does not fit, and the functions that write.

A column fits a schema as for Spark's ``to_avro``: fields by name, exactly or in any case; a nullable field of the schema may be
missing in the column, and no other one, since a default is for readers; a union of several types takes a struct of
``member_int``, ``member_string`` and so on, or of ``member0``, ``member1``. In addition, what is written exactly, or is checked row
by row, need not have the schema's own type: any integer as int or long, integers as float or double that hold them, decimals of
another precision or scale, times with and without a zone.

Nulls are judged by :func:`_write_required` and :func:`_optional` alone; what other functions return for them means nothing.
https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.values.avro.schema import ParsedSchema, Schema, kind_of, logical_of
from pykafka_wire.values.avro.types import member_name, member_names
from pykafka_wire.values.bulk.arrays import Flags, Ints
from pykafka_wire.values.bulk.writing import (
    PER_SECOND,
    EncodeErrors,
    Problems,
    SegmentWriter,
    Write,
    binary,
    booleans,
    floats,
    halves_of,
    is_bytes,
    is_list,
    is_text,
    items_of,
    of_present,
    places_in,
    rescale,
    texts_of,
    whole_numbers,
    within,
)
from pykafka_wire.wire.arrow.arrays import binary_array, validity
from pykafka_wire.wire.arrow.row_segments import (
    BytesSegment,
    RowSegment,
    WordSegment,
    bounds,
    byte_lengths,
    bytes_segment,
    constant,
    counts,
    join_segments,
    mask_segment,
    varints,
)
from pykafka_wire.wire.single_varint import encode_uvarint


def _write_required(
    column: pa.Array, errors: EncodeErrors, *, write: Write, path: str, branch: bytes = b""
) -> list[RowSegment]:
    """Return a value that must not be null, after the index of its branch if it is one of a union."""
    if column.null_count:
        errors.add(~validity(column), path, "null, which the schema does not allow")
    return constant(branch, len(column)) + write(column, errors)


def _optional(
    column: pa.Array, errors: EncodeErrors, *, write: Write, branch: int, null_branch: int
) -> list[RowSegment]:
    """Return a union of null and one other branch."""
    if not column.null_count:
        return constant(_branch(branch), len(column)) + write(column, errors)
    present = validity(column)
    branches: list[RowSegment] = [*varints(np.where(present, branch, null_branch))]
    if pa.types.is_nested(column.type):
        return branches + of_present(column, present, errors, write)
    return branches + [mask_segment(segment, present) for segment in write(column, errors)]


def _null(column: pa.Array, errors: EncodeErrors, *, content: bytes = b"") -> list[RowSegment]:
    """Return null for each element: the index of the union's null, or nothing."""
    return [*constant(content, len(column))]


def _boolean(column: pa.Array, errors: EncodeErrors) -> list[RowSegment]:
    return [WordSegment(booleans(column), 1, 1)]


def _integer(
    column: pa.Array, errors: EncodeErrors, *, path: str, bits: int, multiply: int = 1, divide: int = 1
) -> list[RowSegment]:
    """Encode whole numbers, and the dates and times that are counted by them.

    Args:
        bits: of the schema's type, 32 or 64.
        multiply, divide: from the column's unit to the schema's; a division rounds down, as Spark's ``to_avro`` does.
    """
    lowest, highest = -((1 << bits - 1) // multiply), ((1 << bits - 1) - 1) // multiply
    numbers, wrong = whole_numbers(column, lowest, highest, divide)
    if wrong.any():
        errors.add(wrong, path, f"a number that {bits} bits cannot hold", column)
        numbers[wrong] = 0
    return [*varints(numbers * multiply if multiply != 1 else numbers)]


def _floating(column: pa.Array, errors: EncodeErrors, *, n_bytes: int) -> list[RowSegment]:
    """Encode float and double, from any number that they hold exactly."""
    return [WordSegment(floats(column, n_bytes), n_bytes, n_bytes)]


def _bytes(column: pa.Array, errors: EncodeErrors, *, path: str, has_length: bool = True) -> list[RowSegment]:
    """Encode string and bytes: a length, unless it is to be left out, and the bytes."""
    array = texts_of(column, path, errors)
    return [*(counts(byte_lengths(array)) if has_length else ()), BytesSegment(array)]


def _write_fixed(column: pa.Array, errors: EncodeErrors, *, path: str, size: int) -> list[RowSegment]:
    array = binary(column)
    errors.add(byte_lengths(array) != size, path, f"not {size} bytes, the size of the schema's fixed", column)
    return [BytesSegment(array)]


def _uuid(column: pa.Array, errors: EncodeErrors, *, path: str) -> list[RowSegment]:
    """Return a uuid's text as the 16 bytes of a fixed."""
    encoded: list[bytes] = []
    wrong = np.zeros(len(column), dtype=np.bool_)
    for row, text in enumerate(binary(column).to_pylist()):
        try:
            encoded.append(b"" if text is None else uuid.UUID(text.decode()).bytes)
        except ValueError:
            encoded.append(b"")
            wrong[row] = True
    errors.add(wrong, path, "text that is not a uuid")
    return [BytesSegment(binary_array(encoded))]


def _enum(column: pa.Array, errors: EncodeErrors, *, path: str, symbols: pa.Array) -> list[RowSegment]:
    """Encode symbols by their text. ``symbols`` is a pa.StringArray."""
    numbers, unknown = places_in(column, symbols)
    errors.add(unknown, path, "text that is not a symbol of the schema's enum", column)
    return [*varints(numbers)]


def _decimal(
    column: pa.Array,
    errors: EncodeErrors,
    *,
    path: str,
    decimal: pa.DataType,
    size: int | None,
    has_length: bool = True,
) -> list[RowSegment]:
    """Encode decimals as big-endian numbers of the schema's scale.

    Args:
        decimal: the Arrow type of the schema's precision and scale.
        size: of a fixed; None for bytes, whose size is the least that holds the number.
        has_length: whether the size of bytes stands before them.
    """
    if column.type != decimal:
        column, wrong = rescale(column, decimal)
        errors.add(wrong, path, f"a number that DECIMAL({decimal.precision},{decimal.scale}) cannot hold exactly")
    low, high = halves_of(column)
    sign = (high.view(np.int64) >> 63).view(np.uint64)
    segments: list[RowSegment] = []
    if size is None:
        sizes = _n_bytes(low ^ sign, high ^ sign)
        segments += varints(sizes) if has_length else ()
    else:
        for first in range(0, size - 16, 8):
            n_bytes = min(8, size - 16 - first)
            segments.append(WordSegment(sign >> np.uint64(64 - 8 * n_bytes), n_bytes, n_bytes))
        sizes = np.full(len(column), min(size, 16), dtype=np.int64)
    n_high = np.maximum(sizes - 8, 0)
    if int(n_high.max(initial=0)):
        segments.append(WordSegment(_big_endian(high, n_high), n_high, 8))
    n_low = np.minimum(sizes, 8)
    segments.append(WordSegment(_big_endian(low, n_low), n_low, 8))
    return segments


def _record(column: pa.Array, errors: EncodeErrors, *, fields: Sequence[tuple[Write, int]]) -> list[RowSegment]:
    """Return the fields in the schema's order: each with its place in the column's struct, -1 for one that is null in every
    row.
    """
    segments: list[RowSegment] = []
    for write, place in fields:
        segments += write(column if place < 0 else column.field(place), errors)
    return segments


def _items(column: pa.Array, errors: EncodeErrors, *, item: Write, key: Write | None = None) -> list[RowSegment]:
    """Encode arrays and maps, as one block: the count, the items, 0. A map has a ``key``, which is never null."""
    starts, items, inner = items_of(column, column.values if key is None else column.items, errors)
    segments = [] if key is None else key(items_of(column, column.keys, errors)[1], inner)
    written = join_segments([*segments, *item(items, inner)], len(items))
    n_each = np.diff(starts)
    end = WordSegment(np.zeros(len(n_each), dtype=np.uint64), (n_each > 0).astype(np.int64), 1)
    return [*counts(n_each), bytes_segment(bounds(written)[starts], written.buffers()[2] or b""), end]


def _members(
    column: pa.Array, errors: EncodeErrors, *, path: str, branches: Sequence[tuple[Write, int]], null_branch: int | None
) -> list[RowSegment]:
    """Return a union of several branches out of a struct of one field for each, of which one is not null.

    Args:
        branches: of each field, what writes it and the index of its branch.
        null_branch: written if all fields are null; None if the union has no null.
    """
    present: Flags = validity(column)
    free = present.copy()
    chosen = np.full(len(column), null_branch or 0, dtype=np.int64)
    n_set = np.zeros(len(column), dtype=np.int64)
    segments: list[RowSegment] = []
    for place, (write, branch) in enumerate(branches):
        values = column.field(place)
        here = free & validity(values)
        free &= ~here
        chosen[here] = branch
        if here.any():
            segments += of_present(values, here, errors, write)
        n_set += validity(values)
    errors.add(present & (n_set > 1), path, "several branches of one union are set")
    if null_branch is None:
        errors.add(free, path, "null, which the schema's union does not have")
    return varints(chosen) + segments


def _n_bytes(low: pa.Array, high: pa.Array) -> Ints:
    """Return the least bytes that hold each 128-bit number, of which these are the halves without its sign, in two's
    complement.
    """
    sizes = np.ones(len(low), dtype=np.int64)
    for n_bytes in range(1, 16):
        half, bits = (low, 8 * n_bytes - 1) if n_bytes <= 8 else (high, 8 * n_bytes - 65)
        more = half >> np.uint64(bits) != 0
        sizes += more | (high != 0) if n_bytes <= 8 else more
        if n_bytes == 8 and not high.any():
            break
    return sizes


def _big_endian(values: pa.Array, sizes: Ints) -> Any:
    """Return the lowest bytes of each number, ``sizes`` of them, as words: the most significant first."""
    shift = (64 - 8 * sizes).view(np.uint64)
    swapped = values.byteswap() >> (shift & np.uint64(63))
    return np.where(sizes == 0, np.uint64(0), swapped)


#: Spark's decimals have 38 digits at most.
_MAX_DIGITS: Final = 38
#: Of a fixed. Larger ones are not read, either (:mod:`~pykafka_wire.values.avro.row_reader`).
_MAX_DECIMAL_BYTES: Final = 128
_FLOAT_BITS: Final = 24
_DOUBLE_BITS: Final = 53
#: Microseconds of Spark's timestamps to the unit of a logical type: (multiply, divide). A long without one is in
#: milliseconds, as to_avro writes it.
_TIMESTAMPS: Final = {
    "": (1, 1000),
    "timestamp-millis": (1, 1000),
    "timestamp-micros": (1, 1),
    "timestamp-nanos": (1000, 1),
    "local-timestamp-millis": (1, 1000),
    "local-timestamp-micros": (1, 1),
    "local-timestamp-nanos": (1000, 1),
}


def column_writer(
    schema: ParsedSchema, column_type: pa.DataType, prefix: bytes = b"", *, has_lengths: bool = False
) -> SegmentWriter:
    """Return what writes columns of an Arrow type under a schema.

    Args:
        prefix: the frame before each value, if there is one.
        has_lengths: whether values that are bytes alone have their lengths behind a frame; Confluent's serializers leave them out.

    Raises:
        SchemaError: the schema cannot hold such a column.
    """
    is_bare = bool(prefix) and not has_lengths and kind_of(schema.definition(schema.root)) == "bytes"
    plan = AvroWritePlan(schema, is_bare=is_bare)
    write = plan.write(schema.root, column_type, "")
    plan.problems.refuse(column_type, "Avro")
    return SegmentWriter(write, prefix)


class AvroWritePlan:
    """Finds what writes columns under one schema.

    Attributes:
        problems: what does not fit; what is found is useless unless there are none.

    Args:
        is_bare: whether values are bytes alone, without their length.
    """

    def __init__(self, schema: ParsedSchema, *, is_bare: bool = False) -> None:
        self._schema = schema
        self._has_length = not is_bare
        self.problems = Problems()

    def write(self, schema: Schema, column: pa.DataType, path: str) -> Write:
        """Return what writes ``column`` as ``schema``; nulls included."""
        schema = self._schema.definition(schema)
        if isinstance(schema, list):
            return self._union(schema, column, path)
        if kind_of(schema) == "null" and pa.types.is_null(column):
            return _null
        return partial(_write_required, write=self._value(schema, column, path), path=path)

    def _mismatch(self, path: str, column: pa.DataType, schema: Schema, remedy: str) -> Write:
        self.problems.mismatch(path, column, _describe(schema), remedy)
        return _null

    def _union(self, union: list[Schema], column: pa.DataType, path: str) -> Write:
        branches = [self._schema.definition(branch) for branch in union]
        null = next((index for index, branch in enumerate(branches) if kind_of(branch) == "null"), None)
        if pa.types.is_null(column) and null is not None:
            return partial(_null, content=_branch(null))
        others = [(index, branch) for index, branch in enumerate(branches) if index != null]
        by_type = member_names([branch for _, branch in others])
        if len(others) > 1 and _is_members(column, by_type):
            members = [
                (self._value(branch, member.type, within(path, member.name)), index)
                for member, (index, branch) in zip(column, others, strict=True)
            ]
            return partial(_members, path=path, branches=members, null_branch=null)
        if len(others) == 1:
            (chosen, branch) = others[0]
            write = self._value(branch, column, path)
        else:
            fitting = [
                (index, writer) for index, branch in others if (writer := self._exact(branch, column, path)) is not None
            ]
            if len(fitting) != 1:
                members_shown = ", ".join(
                    f"{name}: {_describe(branch)}" for name, (_, branch) in zip(by_type, others, strict=True)
                )
                return self._mismatch(
                    path, column, union, f"make it one of the union's types, or a struct of {members_shown}"
                )
            chosen, write = fitting[0]
        if null is None:
            return partial(_write_required, write=write, path=path, branch=_branch(chosen))
        return partial(_optional, write=write, branch=chosen, null_branch=null)

    def _exact(self, schema: Schema, column: pa.DataType, path: str) -> Write | None:
        """Return what writes one of several branches; None if the column is not of this very type."""
        if pa.types.is_integer(column):
            is_wide = column.bit_width > 32 or pa.types.is_uint32(column)
            if kind_of(schema) != ("long" if is_wide else "int"):
                return None
        if pa.types.is_floating(column) and kind_of(schema) != ("double" if pa.types.is_float64(column) else "float"):
            return None
        if pa.types.is_decimal(column) and not _is_decimal(schema, column.precision, column.scale):
            return None
        attempt = AvroWritePlan(self._schema)
        write = attempt._value(schema, column, path)
        return None if attempt.problems.texts else write

    def _value(self, schema: Schema, column: pa.DataType, path: str) -> Write:
        """Return what writes values that are not null."""
        is_a = pa.types
        kind, logical = kind_of(schema), logical_of(schema)
        write: Write | None = None
        if kind == "record":
            return self._record(schema, column, path)
        if kind == "array" and is_list(column):
            write = partial(_items, item=self.write(schema["items"], column.value_type, f"{path}[]"))
        elif kind == "map" and is_a.is_map(column) and is_text(column.key_type):
            item = self.write(schema["values"], column.item_type, f"{path}{{}}")
            write = partial(_items, item=item, key=partial(_bytes, path=within(path, "key")))
        elif kind == "boolean" and is_a.is_boolean(column):
            write = _boolean
        elif kind in ("int", "long"):
            write = _integer_writer(32 if kind == "int" else 64, logical, column, path)
        elif kind in ("float", "double") and _is_exact(column, kind):
            write = partial(_floating, n_bytes=8 if kind == "double" else 4)
        elif kind == "enum" and is_text(column):
            symbols = binary_array([symbol.encode() for symbol in schema["symbols"]]).view(pa.string())
            write = partial(_enum, path=path, symbols=symbols)
        elif logical == "decimal" and is_a.is_decimal(column):
            digits, scale = min(schema["precision"], _MAX_DIGITS), schema.get("scale", 0)
            if scale <= _MAX_DIGITS and schema.get("size", 0) <= _MAX_DECIMAL_BYTES:
                decimal, size = pa.decimal128(digits, scale), schema.get("size")
                write = partial(_decimal, path=path, decimal=decimal, size=size, has_length=self._has_length)
        elif kind == "fixed" and is_bytes(column):
            write = partial(_write_fixed, path=path, size=schema["size"])
        elif kind == "fixed" and logical == "uuid" and is_text(column):
            write = partial(_uuid, path=path)
        elif kind == "string" and is_text(column):
            write = partial(_bytes, path=path)
        elif kind == "bytes" and is_bytes(column):
            write = partial(_bytes, path=path, has_length=self._has_length)
        return write or self._mismatch(path, column, schema, "cast the column, or change the schema")

    def _record(self, schema: Schema, column: pa.DataType, path: str) -> Write:
        names = [field["name"] for field in schema["fields"]]
        if not pa.types.is_struct(column):
            remedy = f"make it a struct of the record's fields, as in struct({', '.join(names)})"
            return self._mismatch(path, column, schema, remedy)
        places = self.problems.places_of(column, names, path, f"schema, whose record {schema['name']} has")
        writes: list[tuple[Write, int]] = []
        for schema_field in schema["fields"]:
            inner, place = within(path, schema_field["name"]), places.get(schema_field["name"], -1)
            if place >= 0:
                writes.append((self.write(schema_field["type"], column.field(place).type, inner), place))
            else:
                writes.append((self._absent(schema_field["type"], inner), -1))
        return partial(_record, fields=writes)

    def _absent(self, schema: Schema, path: str) -> Write:
        definition = self._schema.definition(schema)
        branches = definition if isinstance(definition, list) else [definition]
        for index, branch in enumerate(branches):
            if kind_of(self._schema.definition(branch)) == "null":
                return partial(_null, content=_branch(index) if isinstance(definition, list) else b"")
        self.problems.add(
            f"field {path} ({_describe(definition)}) is missing in the column, and the schema allows no null: add it to the column "
            "(a default in the schema is for readers)"
        )
        return _null


def _integer_writer(bits: int, logical: str, column: pa.DataType, path: str) -> Write | None:
    is_a = pa.types
    multiply = divide = 1
    if is_a.is_timestamp(column) and bits == 64 and logical in _TIMESTAMPS:
        multiply, divide = _units(*_TIMESTAMPS[logical], column.unit)
    elif is_a.is_time(column) and (bits, logical) in ((32, "time-millis"), (64, "time-micros")):
        multiply, divide = _units(1, 1000 if bits == 32 else 1, column.unit)
    elif not (is_a.is_integer(column) and not is_a.is_uint64(column)) and not (
        is_a.is_date32(column) and bits == 32 and logical in ("", "date")
    ):
        return None
    return partial(_integer, path=path, bits=bits, multiply=multiply, divide=divide)


def _units(multiply: int, divide: int, unit: str) -> tuple[int, int]:
    """Return what turns a column's unit into the one that microseconds become by these factors."""
    multiply, divide = multiply * PER_SECOND["us"], divide * PER_SECOND[unit]
    common = math.gcd(multiply, divide)
    return multiply // common, divide // common


def _is_exact(column: pa.DataType, kind: str) -> bool:
    """Return whether float or double holds all numbers of a column."""
    if pa.types.is_integer(column):
        return bool(column.bit_width <= (_DOUBLE_BITS if kind == "double" else _FLOAT_BITS))
    return bool(pa.types.is_float32(column) or (pa.types.is_float64(column) and kind == "double"))


def _branch(index: int) -> bytes:
    """Return the index of a union's branch as Avro writes it."""
    return encode_uvarint(2 * index)  # zigzag


def _is_decimal(schema: Schema, precision: int, scale: int) -> bool:
    """Return whether a schema is a decimal of just these digits."""
    return logical_of(schema) == "decimal" and (schema["precision"], schema.get("scale", 0)) == (precision, scale)


def _is_members(column: pa.DataType, by_type: list[str]) -> bool:
    names = [field.name for field in column] if pa.types.is_struct(column) else []
    return names in (by_type, [member_name(nth) for nth in range(len(by_type))])


def _describe(schema: Schema) -> str:
    """Return a schema's type in a few words."""
    if isinstance(schema, list):
        return f"[{', '.join(map(_describe, schema))}]"
    if isinstance(schema, str):
        return schema
    logical = logical_of(schema)
    if logical == "decimal":
        size = f" of {schema['size']} bytes" if kind_of(schema) == "fixed" else ""
        return f"{kind_of(schema)} decimal({schema['precision']},{schema.get('scale', 0)}){size}"
    name = schema.get("name")
    return " ".join(word for word in (kind_of(schema), str(name) if name else "", logical) if word)
