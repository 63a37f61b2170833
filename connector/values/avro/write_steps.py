"""The steps of writing one column: each writes the values of one schema out of one Arrow type, for all elements together.

A step takes a pa.Array and returns segments (:mod:`~pykafka_wire.wire.records.row_segments`). It never raises for a value: an
element that does not fit is reported to :class:`EncodeErrors` and gets bytes that mean nothing. Nulls are judged by
:class:`Required` and :class:`Optional` alone; what a step returns for them means nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.values.bulk.arrays import Ints
from pykafka_wire.values.bulk.writing import (
    EncodeErrors,
    ValueWriter,
    binary,
    booleans,
    check_text,
    fixed_width,
    floats,
    items_of,
    of_present,
    rescaled,
)
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
        most = (1 << self.bits - 1) // self.multiply
        if most <= np.iinfo(numbers.dtype).max and np.dtype(self.dtype).itemsize * 8 > 32:
            wrong = (numbers < -most) | (numbers > most - 1)
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
class Text:
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
