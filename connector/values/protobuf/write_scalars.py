"""The steps that write Protobuf's scalar values, without tags: out of the Arrow column of a field, or of a list's items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.values.bulk.arrays import Flags, Ints
from pykafka_wire.values.bulk.writing import EncodeErrors, binary, booleans, check_text, fixed_width, floats, rescaled
from pykafka_wire.values.protobuf.field_scan import FIXED64, LENGTH, VARINT
from pykafka_wire.wire.records.arrays import to_arrow, validity
from pykafka_wire.wire.records.row_segments import (
    BytesSegment,
    RowSegment,
    Words,
    WordSegment,
    byte_lengths,
    unsigned_varints,
)
from pykafka_wire.wire.records.varints import zigzag


class Value(ABC):
    """Writes the values of a field.

    Attributes:
        wire_type: of a value.
        is_flat: whether a column with nulls is written as it is: what is written for a null means nothing.
    """

    wire_type: int
    is_flat: ClassVar[bool] = True

    @abstractmethod
    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        """The segments of each value, a length before it where it has one; and bool[n]: which are other than zero or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer(Value):
    """Integers as varints or of fixed width.

    Attributes:
        dtype: NumPy's name of the column's numbers; empty for decimals without a fraction.
        least, most: of the field's type.
    """

    path: str
    wire_type: int
    dtype: str
    least: int
    most: int
    is_zigzag: bool = False

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        words, wrong = self._of_decimals(column) if not self.dtype else self._of_integers(column)
        if column.null_count:
            valid = validity(column)
            wrong &= valid
            words = np.where(valid, words, np.uint64(0))
        if wrong.any():
            errors.add(np.flatnonzero(wrong), self.path, f"a number that is not between {self.least} and {self.most}")
        is_set = words != 0
        if self.is_zigzag:
            words = zigzag(words.view(np.int64))
        if self.wire_type == VARINT:
            return [*unsigned_varints(words)], is_set
        if self.wire_type == FIXED64:
            return [WordSegment(words, 8, 8)], is_set
        return [WordSegment(words & np.uint64(0xFFFF_FFFF), 4, 4)], is_set

    def _of_integers(self, column: Any) -> tuple[Words, Flags]:
        numbers = fixed_width(column, self.dtype).astype(np.int64)
        wrong = np.zeros(len(numbers), dtype=np.bool_)
        limits = np.iinfo(self.dtype)
        if int(limits.min) < self.least:
            wrong |= numbers < self.least
        if int(limits.max) > self.most:
            wrong |= numbers > self.most
        return numbers.view(np.uint64), wrong

    def _of_decimals(self, column: Any) -> tuple[Words, Flags]:
        whole = pa.decimal128(38, 0)
        wrong = np.zeros(len(column), dtype=np.bool_)
        if column.type != whole:
            column, places = rescaled(column, whole)
            wrong[places] = True
        halves = fixed_width(column, "<i8", 2)
        low, high = halves[0::2].copy(), halves[1::2]
        if self.least:
            wrong |= (low >> 63) != high
            wrong |= (low < self.least) | (low > self.most)
        else:
            wrong |= high != 0
            wrong |= low.view(np.uint64) > self.most
        return low.view(np.uint64), wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Floating(Value):
    """Attributes:
    dtype: NumPy's name of the column's numbers, which the field's type holds exactly.
    """

    wire_type: int
    dtype: str

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        n_bytes = 8 if self.wire_type == FIXED64 else 4
        words = floats(column, self.dtype, n_bytes)
        return [WordSegment(words, n_bytes, n_bytes)], words != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean(Value):
    wire_type: int = VARINT

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        words = booleans(column)
        return [WordSegment(words, 1, 1)], words != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Value):
    """``string`` and ``bytes``."""

    path: str
    is_text: bool
    wire_type: int = LENGTH

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        array = binary(column)
        if self.is_text:
            check_text(array, self.path, errors)
        lengths = byte_lengths(array)
        return [*unsigned_varints(lengths.view(np.uint64)), BytesSegment(array)], lengths != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumName(Value):
    """An enum's values by their names; the digits of a number without a name where the enum is open.

    Attributes:
        names: pa.StringArray of all names.
        numbers: int64[…], theirs.
    """

    path: str
    names: Any
    numbers: Ints
    is_closed: bool
    wire_type: int = VARINT

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        found = pc.index_in(column.cast(pa.string()), value_set=self.names)
        is_known = validity(found)
        numbers = self.numbers[np.where(is_known, fixed_width(found, "int32"), 0)]
        unknown = np.flatnonzero(~is_known & validity(column))
        if len(unknown):
            others = _enum_numbers(column.take(to_arrow(unknown)), self.is_closed)
            numbers[unknown] = [0 if each is None else each for each in others]
            wrong = [place for place, each in zip(unknown.tolist(), others, strict=True) if each is None]
            errors.add(np.array(wrong, dtype=np.int64), self.path, "text that is no name of the enum")
        return [*unsigned_varints(numbers.view(np.uint64))], numbers != 0


def _enum_numbers(texts: Any, is_closed: bool) -> list[int | None]:
    found: list[int | None] = []
    for text in texts.to_pylist():
        is_number = not is_closed and len(text) <= 11 and text.lstrip("-").isdecimal() and text.isascii()
        number = int(text) if is_number and str(int(text)) == text else None
        found.append(number if number is not None and -(1 << 31) <= number < 1 << 31 else None)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumNumber(Value):
    """An enum's values by their numbers.

    Attributes:
        numbers: int64[…], of a closed enum; None for an open one.
    """

    integer: Integer
    numbers: Ints | None
    wire_type: int = VARINT

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        if self.numbers is not None:
            wrong = ~np.isin(fixed_width(column, self.integer.dtype), self.numbers) & validity(column)
            if wrong.any():
                errors.add(np.flatnonzero(wrong), self.integer.path, "a number that the enum does not have")
        return self.integer.write(column, errors)


def enum_name(path: str, names: Mapping[str, int], *, is_closed: bool) -> EnumName:
    numbers = np.array(list(names.values()), dtype=np.int64)
    return EnumName(path=path, names=pa.array(list(names), pa.string()), numbers=numbers, is_closed=is_closed)
