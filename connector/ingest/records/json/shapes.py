"""What the JSON values of one place are, of any number of documents, and the type that a column of them has.

A shape only grows, and in any order to the same, but for the order of its fields, which is that in which they were seen first: how
documents are divided among tasks and micro-batches does not show in it otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    TimestampType,
)

#: Which values a place has, beside nulls, objects and arrays. A whole number is written without a point and an exponent; a large
#: one is no BIGINT, and one beyond has more digits than a DECIMAL.
TEXT: Final = 1
BOOLEAN: Final = 2
WHOLE: Final = 4
LARGE: Final = 8
BEYOND: Final = 16
FRACTION: Final = 32
#: The texts "NaN" and "Infinity", which stand for numbers where no other text is.
NAN: Final = 64
#: Of numbers: one has digits that a DOUBLE loses; one is too large for :data:`EXACT_NUMBER`.
INEXACT: Final = 128
HUGE: Final = 256
#: Of texts: one is no timestamp, or none is looked for.
WORDS: Final = 512
#: A timestamp in ISO-8601 with a zone, as a regular expression of Python's and RE2's.
ISO_TIMESTAMP: Final = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"
    r"(Z|[+-](0\d|1[0-4]):?[0-5]\d)$"
)
_ISO_TIMESTAMP: Final = re.compile(ISO_TIMESTAMP, re.ASCII)
NUMBERS: Final = WHOLE | LARGE | BEYOND | FRACTION
_NOT_WHOLE: Final = FRACTION | NAN

#: What numbers with fractions are where a DOUBLE would lose digits of them, and what a BIGINT becomes at its first fraction.
EXACT_NUMBER: Final = DecimalType(38, 18)
_MAX_DIGITS: Final = 38
_HUGE: Final = 10**20
#: From here on a DOUBLE has not every whole number.
MAX_EXACT_WHOLE: Final = 1 << 53
_MAX_LONG: Final = 1 << 63
#: So many digits every DOUBLE keeps, and with so many it is written at most.
SURE_DIGITS: Final = 15
WRITTEN_DIGITS: Final = 17
#: The most that the exact value of a DOUBLE has.
_MAX_EXACT_DIGITS: Final = 767
_INFINITE: Final = frozenset({"NaN", "Infinity", "+Infinity", "-Infinity"})
#: Objects and arrays that are deeper in a document are text.
_MAX_DEPTH: Final = 100


@dataclass(slots=True)
class Shape:
    """
    Attributes:
        kinds: of the values that are neither objects nor arrays, as bits.
        fields: those of the objects, by their names; None without an object.
        items: those of the arrays; None without an array.
    """

    kinds: int = 0
    fields: dict[str, Shape] | None = None
    items: Shape | None = None

    def add(self, value: Any, depth: int = 0, *, with_timestamps: bool = False) -> None:
        """Take in a value, as :func:`~pykafka_wire.values.single_json.text.parse_json` reads it.

        Args:
            with_timestamps: texts that are timestamps differ from others.
        """
        kind = type(value)
        if kind is str:
            if value in _INFINITE:
                self.kinds |= NAN
            else:
                is_timestamp = with_timestamps and _ISO_TIMESTAMP.fullmatch(value) is not None
                self.kinds |= TEXT if is_timestamp else TEXT | WORDS
        elif kind is int:
            self.kinds |= WHOLE if -MAX_EXACT_WHOLE <= value <= MAX_EXACT_WHOLE else _kinds_of_whole(value)
        elif kind is Decimal:
            self.kinds |= _kinds_of_fraction(value)
        elif kind is bool:
            self.kinds |= BOOLEAN
        elif kind is float:  # NaN and the infinities, as other programs than JSON's write them
            self.kinds |= NAN
        elif kind is dict:
            if depth == _MAX_DEPTH:
                self.kinds |= TEXT | WORDS
                return
            if self.fields is None:
                self.fields = {}
            for name, inner in value.items():
                shape = self.fields.get(name)
                if shape is None:
                    shape = self.fields[name] = Shape()
                shape.add(inner, depth + 1, with_timestamps=with_timestamps)
        elif kind is list:
            if depth == _MAX_DEPTH:
                self.kinds |= TEXT | WORDS
                return
            if self.items is None:
                self.items = Shape()
            for inner in value:
                self.items.add(inner, depth + 1, with_timestamps=with_timestamps)

    def merge(self, other: Shape) -> None:
        """Take in all values of another shape."""
        self.kinds |= other.kinds
        if other.fields is not None:
            if self.fields is None:
                self.fields = {}
            for name, shape in other.fields.items():
                self.fields.setdefault(name, Shape()).merge(shape)
        if other.items is not None:
            if self.items is None:
                self.items = Shape()
            self.items.merge(other.items)

    @property
    def is_object(self) -> bool:
        """Return whether all values are objects, or null."""
        return self.fields is not None and self.items is None and not self.kinds

    @property
    def is_array(self) -> bool:
        """Return whether all values are arrays, or null."""
        return self.items is not None and self.fields is None and not self.kinds

    @property
    def is_empty(self) -> bool:
        """Return whether there is no value but nulls."""
        return not self.kinds and self.fields is None and self.items is None

    @property
    def scalar_type(self) -> DataType | None:
        """Return a type that a column of the values has that are neither objects nor arrays; None where there are none.

        Numbers are exact: a BIGINT, a DECIMAL, or a DOUBLE where that keeps the digits of each. Values of several sorts are text.
        """
        kinds = self.kinds
        if sum(map(bool, (kinds & TEXT, kinds & BOOLEAN, kinds & (NUMBERS | NAN)))) > 1:
            return StringType()
        if kinds & (NUMBERS | NAN):
            return self._number()
        if kinds & TEXT:
            return StringType() if kinds & WORDS else TimestampType()
        return BooleanType() if kinds & BOOLEAN else None

    def _number(self) -> DataType:
        kinds = self.kinds
        if kinds & _NOT_WHOLE:
            if not kinds & INEXACT:
                return DoubleType()
            return StringType() if kinds & (HUGE | NAN) else EXACT_NUMBER
        if kinds & BEYOND:
            return StringType()
        return DecimalType(_MAX_DIGITS, 0) if kinds & LARGE else LongType()


def merged(shapes: Iterable[Shape]) -> Shape:
    """Return the shape of all values of several."""
    whole = Shape()
    for shape in shapes:
        whole.merge(shape)
    return whole


def values_of(shape: Shape | None) -> Shape | None:
    """Return the shape of the values of objects that are maps; None without one."""
    return None if shape is None or shape.fields is None else merged(shape.fields.values())


def one_type(types: Iterable[DataType]) -> DataType:
    """Return the type of a map's values, from those of fields: theirs, a number's where all are numbers, else text."""
    return reduce(_common, types)


def _common(one: DataType, other: DataType) -> DataType:
    numbers = (LongType, DoubleType, DecimalType)
    if one == other:
        return one
    if not (isinstance(one, numbers) and isinstance(other, numbers)):
        return StringType()
    both = (one, other)
    if any(isinstance(number, DoubleType) or number == EXACT_NUMBER for number in both):
        return EXACT_NUMBER if any(isinstance(number, DecimalType) for number in both) else DoubleType()
    return DecimalType(_MAX_DIGITS, 0)


def _kinds_of_whole(value: int) -> int:
    size = abs(value)
    kinds = WHOLE if -_MAX_LONG <= value < _MAX_LONG else LARGE if size < 10**_MAX_DIGITS else BEYOND
    # Python writes numbers of more than 4,300 digits as no text.
    if size >= 10**_MAX_EXACT_DIGITS or not _is_kept(Decimal(size)):
        kinds |= INEXACT
    return kinds | HUGE if size >= _HUGE else kinds


def _kinds_of_fraction(number: Decimal) -> int:
    kinds = FRACTION if _is_kept(number) else FRACTION | INEXACT
    return kinds | HUGE if abs(number) >= _HUGE else kinds


def _is_kept(number: Decimal) -> bool:
    """Return whether a DOUBLE keeps all digits of a number: it is the same, written with as many."""
    digits = number.as_tuple().digits
    n_digits = len(digits)
    if n_digits <= SURE_DIGITS:
        return True
    text = "".join(map(str, digits)).strip("0")
    n_digits = len(text)
    if n_digits <= SURE_DIGITS or (n_digits <= WRITTEN_DIGITS and abs(number) < MAX_EXACT_WHOLE):
        return True
    if n_digits > _MAX_EXACT_DIGITS:
        return False
    return format(abs(float(number)), f".{n_digits - 1}e").partition("e")[0].replace(".", "").strip("0") == text
