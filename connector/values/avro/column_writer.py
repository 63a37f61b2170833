"""Columns to Avro values: which step writes an Arrow type as a schema's place, what does not fit, and the steps.

A column fits a schema as for Spark's ``to_avro``: fields by name, exactly or in any case; a nullable field of the schema may be
missing in the column, and no other one, since a default is for readers; a union of several types takes a struct of ``member0``,
``member1`` and so on. In addition, what is written exactly, or is checked row by row, need not have the schema's own type: any
integer as int or long, integers as float or double that hold them, decimals of another precision or scale, times with and without a
zone.

A step takes a pa.Array and returns segments (:mod:`~pykafka_wire.wire.records.row_segments`). It never raises for a value: an
element that does not fit is reported to :class:`EncodeErrors` and gets bytes that mean nothing. Nulls are judged by
:class:`Required` and :class:`Optional` alone; what a step returns for them means nothing.
https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.values.avro.schema import ParsedSchema, Schema, kind_of, logical_of
from pykafka_wire.values.avro.types import member_name
from pykafka_wire.values.bulk.arrays import Ints
from pykafka_wire.values.bulk.writing import (
    PER_SECOND,
    EncodeErrors,
    SegmentWriter,
    ValueWriter,
    binary,
    booleans,
    check_text,
    fixed_width,
    floats,
    items_of,
    matching,
    of_present,
    refuse,
    rescaled,
    sql_name,
    within,
)
from pykafka_wire.wire.protocol.primitives import encode_uvarint
from pykafka_wire.wire.records.arrays import binary_array, validity
from pykafka_wire.wire.records.row_segments import (
    BytesSegment,
    RowSegment,
    WordSegment,
    bounds,
    byte_lengths,
    bytes_segment,
    constant,
    counts,
    join_segments,
    masked,
    varints,
)


class SchemaWriter(ValueWriter, Protocol):
    """Writes values of one schema.

    Attributes:
        is_flat: whether all elements can be written although some are null; their bytes are then null, too.
    """

    is_flat: ClassVar[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """A value that must not be null, after the index of its branch if it is one of a union."""

    step: SchemaWriter
    path: str
    branch: bytes = b""
    is_flat: ClassVar[bool] = False

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        if column.null_count:
            errors.add(np.flatnonzero(~validity(column)), self.path, "null, which the schema does not allow")
        return constant(self.branch, len(column)) + self.step.write(column, errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optional:
    """A union of null and one other branch."""

    step: SchemaWriter
    branch: int
    null_branch: int
    is_flat: ClassVar[bool] = False

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        n = len(column)
        if not column.null_count:
            return [*varints(np.full(n, self.branch, dtype=np.int64)), *self.step.write(column, errors)]
        present = validity(column)
        branches = varints(np.where(present, self.branch, self.null_branch))
        if self.step.is_flat:
            inner = EncodeErrors()
            segments = self.step.write(column, inner)
            for row, reason in inner.reasons.items():
                if present[row]:
                    errors.add(np.array([row]), "", reason)
            return branches + [masked(segment, present) for segment in segments]
        return [*branches, *of_present(column, present, errors, self.step.write)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Null for each element: the index of the union's null, or nothing."""

    content: bytes = b""
    is_flat: ClassVar[bool] = True

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return [*constant(self.content, len(column))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean:
    is_flat: ClassVar[bool] = True

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return [WordSegment(booleans(column), 1, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """Whole numbers, and the dates and times that are counted by them.

    Attributes:
        dtype: NumPy's name of the column's numbers.
        bits: of the schema's type, 32 or 64.
        multiply, divide: from the column's unit to the schema's; a division rounds down, as Spark's ``to_avro`` does.
    """

    path: str
    dtype: str
    bits: int
    multiply: int = 1
    divide: int = 1
    is_flat: ClassVar[bool] = True

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        numbers = fixed_width(column, self.dtype).astype(np.int64)
        if self.divide != 1:
            numbers = numbers // self.divide
        lowest, highest = -((1 << self.bits - 1) // self.multiply), ((1 << self.bits - 1) - 1) // self.multiply
        own = np.iinfo(self.dtype)
        if own.min // self.divide < lowest or own.max // self.divide > highest:
            wrong = (numbers < lowest) | (numbers > highest)
            if wrong.any():
                errors.add(np.flatnonzero(wrong), self.path, f"a number that {self.bits} bits cannot hold")
                numbers = np.where(wrong, 0, numbers)
        if self.multiply != 1:
            numbers = numbers * self.multiply
        return [*varints(numbers)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Floating:
    """float and double, from any number that they hold exactly."""

    dtype: str
    is_double: bool
    is_flat: ClassVar[bool] = True

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        n_bytes = 8 if self.is_double else 4
        return [WordSegment(floats(column, self.dtype, n_bytes), n_bytes, n_bytes)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StringWriter:
    """string and bytes: a length, unless it is to be left out, and the bytes."""

    path: str
    has_length: bool = True
    is_flat: ClassVar[bool] = True

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        array = binary(column)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            check_text(array, self.path, errors)
        return [*(counts(byte_lengths(array)) if self.has_length else ()), BytesSegment(array)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    path: str
    size: int
    is_flat: ClassVar[bool] = True

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        array = binary(column)
        wrong = (byte_lengths(array) != self.size) & validity(array)
        if wrong.any():
            errors.add(np.flatnonzero(wrong), self.path, f"not {self.size} bytes, the size of the schema's fixed")
        return [BytesSegment(array)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uuid:
    """A uuid's text as the 16 bytes of a fixed."""

    path: str
    is_flat: ClassVar[bool] = True

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        found: list[bytes] = []
        for row, text in enumerate(binary(column).to_pylist()):
            try:
                found.append(b"" if text is None else uuid.UUID(text.decode()).bytes)
            except ValueError:
                errors.add(np.array([row]), self.path, "text that is not a uuid")
                found.append(b"")
        return [BytesSegment(binary_array(found))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enum:
    """Symbols by their text.

    Attributes:
        symbols: pa.StringArray.
    """

    path: str
    symbols: Any
    is_flat: ClassVar[bool] = True

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        indexes = pc.index_in(column.cast(pa.string()), value_set=self.symbols)
        unknown = ~validity(indexes) & validity(column)
        if unknown.any():
            errors.add(np.flatnonzero(unknown), self.path, "text that is not a symbol of the schema's enum")
        return [*varints(np.where(validity(indexes), fixed_width(indexes, "int32"), 0).astype(np.int64))]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalNumber:
    """Decimals as big-endian numbers of the schema's scale.

    Attributes:
        type: the Arrow type of the schema's precision and scale.
        size: of a fixed; None for bytes, whose size is the least that holds the number.
        has_length: whether the size of bytes stands before them.
    """

    path: str
    type: pa.DataType
    size: int | None
    has_length: bool = True
    is_flat: ClassVar[bool] = True

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        if column.type != self.type:
            column, wrong = rescaled(column, self.type)
            if len(wrong):
                reason = f"a number that DECIMAL({self.type.precision},{self.type.scale}) cannot hold exactly"
                errors.add(wrong, self.path, reason)
        halves = np.frombuffer(column.buffers()[1] or b"", dtype="<u8")[2 * column.offset :][: 2 * len(column)]
        low, high = halves[0::2].copy(), halves[1::2].copy()
        sign = (high.view(np.int64) >> 63).view(np.uint64)
        segments: list[RowSegment] = []
        if self.size is None:
            sizes = _n_bytes(low ^ sign, high ^ sign)
            segments += varints(sizes) if self.has_length else ()
        else:
            for first in range(0, self.size - 16, 8):
                n_bytes = min(8, self.size - 16 - first)
                segments.append(WordSegment(sign >> np.uint64(64 - 8 * n_bytes), n_bytes, n_bytes))
            sizes = np.full(len(column), min(self.size, 16), dtype=np.int64)
        n_high = np.maximum(sizes - 8, 0)
        if int(n_high.max(initial=0)):
            segments.append(WordSegment(_big_endian(high, n_high), n_high, 8))
        n_low = np.minimum(sizes, 8)
        segments.append(WordSegment(_big_endian(low, n_low), n_low, 8))
        return segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The fields in the schema's order: each with its place in the column's struct, -1 for one that is null in every row."""

    fields: Sequence[tuple[SchemaWriter, int]]
    is_flat: ClassVar[bool] = False

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        segments: list[RowSegment] = []
        for step, place in self.fields:
            segments += step.write(column if place < 0 else column.field(place), errors)
        return segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Arrays and maps, as one block: the count, the items, 0.

    Attributes:
        key: of a map; its keys are never null.
    """

    item: SchemaWriter
    key: SchemaWriter | None = None
    is_flat: ClassVar[bool] = False

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        values = column.values if self.key is None else column.items
        starts, items, inner = items_of(column, values, errors)
        segments = [] if self.key is None else self.key.write(items_of(column, column.keys, errors)[1], inner)
        written = join_segments([*segments, *self.item.write(items, inner)], len(items))
        n_each = np.diff(starts)
        end = WordSegment(np.zeros(len(n_each), dtype=np.uint64), (n_each > 0).astype(np.int64), 1)
        return [*counts(n_each), bytes_segment(bounds(written)[starts], written.buffers()[2] or b""), end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """A union of several branches out of a struct of one field for each: the first that is not null.

    Attributes:
        branches: of each field, its step and the index of its branch.
        null_branch: written if all fields are null; None if the union has no null.
    """

    path: str
    branches: Sequence[tuple[SchemaWriter, int]]
    null_branch: int | None
    is_flat: ClassVar[bool] = False

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        free = validity(column)
        chosen = np.full(len(column), self.null_branch or 0, dtype=np.int64)
        segments: list[RowSegment] = []
        for place, (step, branch) in enumerate(self.branches):
            values = column.field(place)
            here = free & validity(values)
            free &= ~here
            chosen[here] = branch
            if here.any():
                segments += of_present(values, here, errors, step.write)
        if self.null_branch is None and free.any():
            errors.add(np.flatnonzero(free), self.path, "null, which the schema's union does not have")
        return varints(chosen) + segments


def _n_bytes(low: Any, high: Any) -> Ints:
    """The least bytes that hold each 128-bit number, of which these are the halves without its sign, in two's complement."""
    sizes = np.ones(len(low), dtype=np.int64)
    for n_bytes in range(1, 16):
        half, bits = (low, 8 * n_bytes - 1) if n_bytes <= 8 else (high, 8 * n_bytes - 65)
        more = half >> np.uint64(bits) != 0
        sizes += more | (high != 0) if n_bytes <= 8 else more
        if n_bytes == 8 and not high.any():
            break
    return sizes


def _big_endian(values: Any, sizes: Ints) -> Any:
    """The lowest bytes of each number, ``sizes`` of them, as words: the most significant first."""
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
    """What writes columns of an Arrow type under a schema.

    Args:
        prefix: the frame before each value, if there is one.
        has_lengths: whether values that are bytes alone have their lengths behind a frame; Confluent's serializers leave them out.

    Raises:
        SchemaError: the schema cannot hold such a column.
    """
    plan = WritePlan(schema)
    step = plan.step(schema.root, column_type, "")
    refuse(plan.problems, column_type, "Avro")
    if prefix and not has_lengths and kind_of(schema.definition(schema.root)) == "bytes":
        assert isinstance(step, Required) and isinstance(step.step, (StringWriter, DecimalNumber))
        step = replace(step, step=replace(step.step, has_length=False))
    return SegmentWriter(step, prefix)


class WritePlan:
    """Makes the steps of one schema.

    Attributes:
        problems: what does not fit, field by field; the steps are useless unless it is empty.
    """

    def __init__(self, schema: ParsedSchema) -> None:
        self._schema = schema
        self.problems: list[str] = []

    def step(self, schema: Schema, column: pa.DataType, path: str) -> SchemaWriter:
        """The step that writes ``column`` as ``schema``; nulls included."""
        schema = self._schema.definition(schema)
        if isinstance(schema, list):
            return self._union(schema, column, path)
        if kind_of(schema) == "null" and pa.types.is_null(column):
            return Absent()
        return Required(step=self._value(schema, column, path), path=path)

    def _refuse(self, path: str, column: pa.DataType, schema: Schema, remedy: str) -> SchemaWriter:
        where = f"field {path}" if path else "the column"
        self.problems.append(f"{where} is {sql_name(column)} and the schema's type is {_shown(schema)}: {remedy}")
        return Absent()

    def _union(self, union: list[Schema], column: pa.DataType, path: str) -> SchemaWriter:
        branches = [self._schema.definition(each) for each in union]
        null = next((index for index, each in enumerate(branches) if kind_of(each) == "null"), None)
        if pa.types.is_null(column) and null is not None:
            return Absent(content=_branch(null))
        others = [(index, each) for index, each in enumerate(branches) if index != null]
        if len(others) > 1 and _is_members(column, len(others)):
            return self._members(others, null, column, path)
        if len(others) == 1:
            (chosen, branch) = others[0]
            step = self._value(branch, column, path)
        else:
            fitting = [
                (index, found) for index, each in others if (found := self._exact(each, column, path)) is not None
            ]
            if len(fitting) != 1:
                members = ", ".join(f"{member_name(nth)}: {_shown(each)}" for nth, (_, each) in enumerate(others))
                return self._refuse(path, column, union, f"make it one of the union's types, or a struct of {members}")
            chosen, step = fitting[0]
        if null is None:
            return Required(step=step, path=path, branch=_branch(chosen))
        return Optional(step=step, branch=chosen, null_branch=null)

    def _exact(self, schema: Schema, column: pa.DataType, path: str) -> SchemaWriter | None:
        """The step for one of several branches; None if the column is not of this very type."""
        if pa.types.is_integer(column):
            is_wide = column.bit_width > 32 or pa.types.is_uint32(column)
            if kind_of(schema) != ("long" if is_wide else "int"):
                return None
        if pa.types.is_floating(column) and kind_of(schema) != ("double" if pa.types.is_float64(column) else "float"):
            return None
        if pa.types.is_decimal(column) and not _is_decimal(schema, column.precision, column.scale):
            return None
        attempt = WritePlan(self._schema)
        step = attempt._value(schema, column, path)
        return None if attempt.problems else step

    def _members(
        self, others: list[tuple[int, Schema]], null: int | None, column: pa.DataType, path: str
    ) -> SchemaWriter:
        branches = []
        for place, (index, branch) in enumerate(others):
            member = column.field(place)
            branches.append((self._value(branch, member.type, within(path, member.name)), index))
        return Members(path=path, branches=tuple(branches), null_branch=null)

    def _value(self, schema: Schema, column: pa.DataType, path: str) -> SchemaWriter:
        """The step for values that are not null."""
        is_a = pa.types
        kind, logical = kind_of(schema), logical_of(schema)
        if kind == "record":
            return self._record(schema, column, path)
        if kind == "array" and (is_a.is_list(column) or is_a.is_large_list(column)):
            item = self.step(schema["items"], column.value_type, f"{path}[]")
            return Items(item=item)
        if kind == "map" and is_a.is_map(column) and _is_text(column.key_type):
            item = self.step(schema["values"], column.item_type, f"{path}{{}}")
            return Items(item=item, key=StringWriter(path=within(path, "key")))
        found: SchemaWriter | None = None
        if kind == "boolean" and is_a.is_boolean(column):
            found = Boolean()
        elif kind in ("int", "long"):
            found = _integer(32 if kind == "int" else 64, logical, column, path)
        elif kind in ("float", "double"):
            found = _floating(kind == "double", column)
        elif kind == "enum" and _is_text(column):
            symbols = binary_array([each.encode() for each in schema["symbols"]]).view(pa.string())
            found = Enum(path=path, symbols=symbols)
        elif logical == "decimal" and is_a.is_decimal(column):
            digits, scale = min(schema["precision"], _MAX_DIGITS), schema.get("scale", 0)
            if scale <= _MAX_DIGITS and schema.get("size", 0) <= _MAX_DECIMAL_BYTES:
                found = DecimalNumber(path=path, type=pa.decimal128(digits, scale), size=schema.get("size"))
        elif kind == "fixed":
            if is_a.is_binary(column) or is_a.is_large_binary(column):
                found = Fixed(path=path, size=schema["size"])
            elif logical == "uuid" and _is_text(column):
                found = Uuid(path=path)
        elif (kind == "string" and _is_text(column)) or (
            kind == "bytes" and (is_a.is_binary(column) or is_a.is_large_binary(column))
        ):
            found = StringWriter(path=path)
        return found or self._refuse(path, column, schema, "cast the column, or change the schema")

    def _record(self, schema: Schema, column: pa.DataType, path: str) -> SchemaWriter:
        if not pa.types.is_struct(column):
            names = ", ".join(field["name"] for field in schema["fields"])
            return self._refuse(path, column, schema, f"make it a struct of the record's fields, as in struct({names})")
        fields = [column.field(place) for place in range(column.num_fields)]
        places: dict[str, int] = {}
        written = [each["name"] for each in schema["fields"]]
        for place, field in enumerate(fields):
            name = matching(field.name, written)
            if name is None:
                self.problems.append(
                    f"field {within(path, field.name)} is not in the schema, whose record {schema['name']} has "
                    f"{', '.join(written) or 'no fields'}: drop it from the column, or add it to the schema"
                )
            elif name in places:
                self.problems.append(
                    f"fields {within(path, fields[places[name]].name)} and {within(path, field.name)} are both the schema's "
                    f"field {name}: drop one of them"
                )
            else:
                places[name] = place
        found: list[tuple[SchemaWriter, int]] = []
        for each in schema["fields"]:
            inner = within(path, each["name"])
            place = places.get(each["name"], -1)
            if place >= 0:
                found.append((self.step(each["type"], fields[place].type, inner), place))
            else:
                found.append((self._absent(each["type"], inner), -1))
        return Record(fields=tuple(found))

    def _absent(self, schema: Schema, path: str) -> SchemaWriter:
        definition = self._schema.definition(schema)
        branches = definition if isinstance(definition, list) else [definition]
        for index, branch in enumerate(branches):
            if kind_of(self._schema.definition(branch)) == "null":
                return Absent(content=_branch(index) if isinstance(definition, list) else b"")
        self.problems.append(
            f"field {path} ({_shown(definition)}) is missing in the column, and the schema allows no null: add it to the column "
            "(a default in the schema is for readers)"
        )
        return Absent()


def _integer(bits: int, logical: str, column: pa.DataType, path: str) -> SchemaWriter | None:
    is_a = pa.types
    if is_a.is_integer(column):
        dtype = str(column)
        return None if dtype == "uint64" else Integer(path=path, dtype=dtype, bits=bits)
    if is_a.is_date32(column) and bits == 32 and logical in ("", "date"):
        return Integer(path=path, dtype="int32", bits=32)
    if is_a.is_timestamp(column) and bits == 64 and logical in _TIMESTAMPS:
        multiply, divide = _TIMESTAMPS[logical]
        multiply, divide = _units(multiply, divide, column.unit)
        return Integer(path=path, dtype="int64", bits=64, multiply=multiply, divide=divide)
    if is_a.is_time(column) and (bits, logical) in ((32, "time-millis"), (64, "time-micros")):
        multiply, divide = _units(1, 1000 if bits == 32 else 1, column.unit)
        return Integer(path=path, dtype=f"int{column.bit_width}", bits=bits, multiply=multiply, divide=divide)
    return None


def _units(multiply: int, divide: int, unit: str) -> tuple[int, int]:
    """What turns a column's unit into the one that microseconds become by these factors."""
    multiply, divide = multiply * PER_SECOND["us"], divide * PER_SECOND[unit]
    common = math.gcd(multiply, divide)
    return multiply // common, divide // common


def _floating(is_double: bool, column: pa.DataType) -> SchemaWriter | None:
    is_a = pa.types
    if is_a.is_integer(column):
        fits = column.bit_width <= (_DOUBLE_BITS if is_double else _FLOAT_BITS)
    else:
        fits = is_a.is_float32(column) or (is_a.is_float64(column) and is_double)
    if not fits:
        return None
    dtype = str(column) if is_a.is_integer(column) else f"float{column.bit_width}"
    return Floating(dtype=dtype, is_double=is_double)


def _branch(index: int) -> bytes:
    """The index of a union's branch as Avro writes it."""
    return encode_uvarint(2 * index)  # zigzag


def _is_text(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_large_string(column))


def _is_decimal(schema: Schema, precision: int, scale: int) -> bool:
    """Whether a schema is a decimal of just these digits."""
    return logical_of(schema) == "decimal" and (schema["precision"], schema.get("scale", 0)) == (precision, scale)


def _is_members(column: pa.DataType, n: int) -> bool:
    return bool(pa.types.is_struct(column)) and [each.name for each in column] == [member_name(nth) for nth in range(n)]


def _shown(schema: Schema) -> str:
    """A schema's type in a few words."""
    if isinstance(schema, list):
        return f"[{', '.join(map(_shown, schema))}]"
    if isinstance(schema, str):
        return schema
    logical = logical_of(schema)
    if logical == "decimal":
        size = f" of {schema['size']} bytes" if kind_of(schema) == "fixed" else ""
        return f"{kind_of(schema)} decimal({schema['precision']},{schema.get('scale', 0)}){size}"
    name = schema.get("name")
    return " ".join(each for each in (kind_of(schema), str(name) if name else "", logical) if each)
