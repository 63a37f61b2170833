"""The shape of a place in JSON documents: the kinds of all values seen there, and the column type that holds all of them.

A shape only grows. Values in any order give the same shape, except for the order of its fields, which is the order of first
appearance. So a shape does not depend on how documents are divided among tasks and micro-batches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from pykafka_wire.values.numeric_times import END_DAY, FIRST_DAY
from pykafka_wire.values.single_json.text import timestamp_micros

#: The kinds of values in a place, besides nulls, objects and arrays. A whole number has neither a point nor an exponent; a LARGE
#: one exceeds a BIGINT, and one BEYOND has more digits than a DECIMAL.
TEXT: Final = 1
BOOLEAN: Final = 2
WHOLE: Final = 4
LARGE: Final = 8
BEYOND: Final = 16
FRACTION: Final = 32
#: The texts "NaN" and "Infinity", which count as numbers if the place has no other text.
NAN: Final = 64
#: Properties of numbers: a number has digits that a DOUBLE loses; a number is too large for :data:`EXACT_NUMBER`.
INEXACT: Final = 128
HUGE: Final = 256
#: A property of texts: a text is no timestamp, or timestamps are not detected.
WORDS: Final = 512
_TIME_AND_ZONE: Final = r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-4]):?[0-5]\d)"
#: The form of a timestamp in ISO-8601 with a zone. The calendar may lack its date.
_ISO_FORM: Final = re.compile(r"\d{4}-\d{2}-\d{2}" + _TIME_AND_ZONE, re.ASCII)
#: Texts that surely are such timestamps, as a regular expression for RE2: all but those of February 29 and of some years.
ISO_TIMESTAMP: Final = (
    r"^[1-8]\d{3}-((0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    + _TIME_AND_ZONE
    + "$"
)
NUMBERS: Final = WHOLE | LARGE | BEYOND | FRACTION
_NOT_WHOLE: Final = FRACTION | NAN

#: The type of numbers with fractions if a DOUBLE would lose digits, and of a BIGINT column after its first fraction.
EXACT_NUMBER: Final = DecimalType(38, 18)
_MAX_DIGITS: Final = 38
_HUGE: Final = 10**20
#: The first whole number from which on a DOUBLE cannot represent every whole number.
MAX_EXACT_WHOLE: Final = 1 << 53
_MAX_LONG: Final = 1 << 63
#: The number of digits that every DOUBLE keeps, and the most digits that a DOUBLE is written with.
SURE_DIGITS: Final = 15
WRITTEN_DIGITS: Final = 17
#: The most digits of the exact value of a DOUBLE.
_MAX_EXACT_DIGITS: Final = 767
_DAY_MICROS: Final = 86_400_000_000
_INFINITE: Final = frozenset({"NaN", "Infinity", "+Infinity", "-Infinity"})
#: Objects and arrays nested deeper than this are read as text.
_MAX_DEPTH: Final = 100


@dataclass(slots=True)
class Shape:
    """The values seen in one place.

    Attributes:
        kinds: the kinds of values that are neither objects nor arrays, as bits.
        fields: the shapes of the objects' fields, by name; None if there is no object.
        items: the shape of the arrays' items; None if there is no array.
    """

    kinds: int = 0
    fields: dict[str, Shape] | None = None
    items: Shape | None = None

    def add(self, value: Any, depth: int = 0, *, with_timestamps: bool = False) -> None:
        """Add a value, as returned by :func:`~pykafka_wire.values.single_json.text.parse_json`.

        Args:
            with_timestamps: whether texts that are timestamps are distinguished from other texts.
        """
        kind = type(value)
        if kind is str:
            if value in _INFINITE:
                self.kinds |= NAN
            else:
                is_timestamp = with_timestamps and _is_timestamp(value)
                self.kinds |= TEXT if is_timestamp else TEXT | WORDS
        elif kind is int:
            self.kinds |= WHOLE if -MAX_EXACT_WHOLE <= value <= MAX_EXACT_WHOLE else _kinds_of_whole(value)
        elif kind is Decimal:
            self.kinds |= _kinds_of_fraction(value)
        elif kind is bool:
            self.kinds |= BOOLEAN
        elif kind is float:  # NaN and infinities, which are not standard JSON but which some programs write
            self.kinds |= NAN
        elif kind is dict:
            if depth == _MAX_DEPTH:
                self.kinds |= TEXT | WORDS
                return
            self._add_fields(value, depth, with_timestamps=with_timestamps)
        elif kind is list:
            if depth == _MAX_DEPTH:
                self.kinds |= TEXT | WORDS
                return
            if self.items is None:
                self.items = Shape()
            for inner in value:
                self.items.add(inner, depth + 1, with_timestamps=with_timestamps)

    def _add_fields(self, value: dict[str, Any], depth: int, *, with_timestamps: bool) -> None:
        if self.fields is None:
            self.fields = {}
        for name, inner in value.items():
            shape = self.fields.get(name)
            if shape is None:
                shape = self.fields[name] = Shape()
            shape.add(inner, depth + 1, with_timestamps=with_timestamps)

    def merge(self, other: Shape) -> None:
        """Add all values of another shape."""
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
        """Return whether every value is an object or null."""
        return self.fields is not None and self.items is None and not self.kinds

    @property
    def is_array(self) -> bool:
        """Return whether every value is an array or null."""
        return self.items is not None and self.fields is None and not self.kinds

    @property
    def has_only_texts(self) -> bool:
        """Return whether every value is surely a text or null."""
        return not self.kinds & ~(TEXT | WORDS) and self.fields is None and self.items is None

    @property
    def is_empty(self) -> bool:
        """Return whether every value is null."""
        return not self.kinds and self.fields is None and self.items is None

    def of_one_kind(self, held: DataType | None) -> Shape:
        """Return the shape without the values that a new key column rejects, so that no two kinds of values become text: of texts,
        numbers and booleans the first that there are, and no number that only a text could hold.

        Args:
            held: the type of the place in the table, which decides the kind; None for a new place.
        """
        if held is not None and not isinstance(held, StructType | ArrayType):
            return self
        kinds = self.kinds
        if kinds & TEXT:
            kinds &= TEXT | WORDS
        elif kinds & NUMBERS:
            kinds &= ~(BOOLEAN | HUGE)
            kinds = kinds & ~BEYOND | LARGE if kinds & BEYOND else kinds
            kinds = kinds & ~NAN if kinds & INEXACT else kinds
        of_fields = {field.name.lower(): field.dataType for field in held} if isinstance(held, StructType) else {}
        of_items = held.elementType if isinstance(held, ArrayType) else None
        return Shape(
            kinds=kinds,
            fields=None
            if self.fields is None
            else {name: inner.of_one_kind(of_fields.get(name.lower())) for name, inner in self.fields.items()},
            items=None if self.items is None else self.items.of_one_kind(of_items),
        )

    @property
    def scalar_type(self) -> DataType | None:
        """Return the column type for the values that are neither objects nor arrays; None if there are none.

        Numbers stay exact: a BIGINT, a DECIMAL, or a DOUBLE if it keeps all digits of each. Values of different kinds become text.
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
    """Return the shape of all values of several shapes."""
    whole = Shape()
    for shape in shapes:
        whole.merge(shape)
    return whole


def values_of(shape: Shape | None) -> Shape | None:
    """Return the shape of the values of objects that are used as maps; None without objects."""
    return None if shape is None or shape.fields is None else merged(shape.fields.values())


def one_type(types: Iterable[DataType]) -> DataType:
    """Return the type of a map's values from the types of fields: the common type, a wider number type, or text."""
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


def _is_timestamp(text: str) -> bool:
    """Return whether a text is a timestamp with a zone, in the years 1 to 9999, which are those of Spark's type."""
    micros = timestamp_micros(text) if _ISO_FORM.fullmatch(text) is not None else None
    return micros is not None and FIRST_DAY * _DAY_MICROS <= micros < END_DAY * _DAY_MICROS


def _kinds_of_whole(value: int) -> int:
    size = abs(value)
    kinds = WHOLE if -_MAX_LONG <= value < _MAX_LONG else LARGE if size < 10**_MAX_DIGITS else BEYOND
    # Python does not convert numbers of more than 4,300 digits to text.
    if size >= 10**_MAX_EXACT_DIGITS or not _is_kept(Decimal(size)):
        kinds |= INEXACT
    return kinds | HUGE if size >= _HUGE else kinds


def _kinds_of_fraction(number: Decimal) -> int:
    kinds = FRACTION if _is_kept(number) else FRACTION | INEXACT
    return kinds | HUGE if abs(number) >= _HUGE else kinds


def _is_kept(number: Decimal) -> bool:
    """Return whether a DOUBLE keeps all digits of a number: it converts back to the same digits."""
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
