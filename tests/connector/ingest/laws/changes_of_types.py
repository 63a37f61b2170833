"""Changes of the types of a table's rows, and an oracle: the largest, smallest and finest values of each type."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

#: The types of whole numbers, by their bits.
WHOLE: Final[dict[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_OTHERS: Final[dict[type[DataType], list[Any]]] = {
    FloatType: [1.5, 3.4028234663852886e38, 2.0**-149],
    DoubleType: [0.1, 1.7976931348623157e308, 2.0**53 + 2],
    StringType: ["7", "text"],
    BinaryType: [bytearray(b"7"), bytearray(b"\xff")],
    BooleanType: [True, False],
    DateType: [date(2024, 2, 29), date(1969, 12, 31)],
    TimestampType: [datetime(2024, 5, 6, 7, 8, 9, 1), datetime(1969, 12, 31, 1)],
    TimestampNTZType: [datetime(2024, 5, 6, 7, 8, 9, 1), datetime(1969, 12, 31, 1)],
}
_LEAVES: Final = (*WHOLE, *_OTHERS, DecimalType)
_NUMBERS: Final = (*WHOLE, FloatType, DoubleType, DecimalType, DecimalType)
_PLACES: Final = ("column", "field", "element", "value", "key", "field of elements")
#: The number of columns that a table has: each has another pair of types.
_COLUMNS: Final = 24


class Change(NamedTuple):
    """The type that a table has at a place, and the type of its new rows."""

    held: DataType
    rows: DataType
    place: str


def drawn_changes(random: Random) -> list[Change]:
    """Draw changes of types: one in three of any types, where two types seldom fit; the others of numbers."""
    drawn = []
    for n in range(_COLUMNS):
        kinds = _LEAVES if n % 3 == 0 else _NUMBERS
        held, rows = drawn_type(random, kinds), drawn_type(random, kinds)
        if (
            isinstance(held, DecimalType) and random.random() < 0.7
        ):  # two random decimals seldom are close to each other
            scale = max(0, min(10, held.scale + random.choice([-2, 0, 0, 2])))
            rows = DecimalType(max(scale, min(38, held.precision + random.choice([-2, 0, 2, 2]))), scale)
        is_key = {BinaryType, FloatType, DoubleType}.isdisjoint(map(type, (held, rows)))
        drawn.append(Change(held, rows, random.choice(_PLACES if is_key else [p for p in _PLACES if p != "key"])))
    return drawn


def drawn_type(random: Random, kinds: Sequence[type[DataType]]) -> DataType:
    kind = random.choice(kinds)
    if kind is not DecimalType:
        return kind()
    precision = random.choice([*range(1, 39), 10, 12, 38])
    return DecimalType(precision, min(precision, random.choice([0, 0, 2, 4, random.randint(0, 38)])))


def extremes(kind: DataType) -> list[Any]:
    """Return the largest, smallest or finest values of a type."""
    if isinstance(kind, DecimalType):
        # From texts, since arithmetic of decimals rounds to 28 digits.
        return [
            Decimal(f"{digits}E-{kind.scale}") for digits in ("9" * kind.precision, "-" + "9" * kind.precision, "1")
        ]
    if type(kind) in WHOLE:
        return [2 ** (WHOLE[type(kind)] - 1) - 1, -(2 ** (WHOLE[type(kind)] - 1))]
    return _OTHERS[type(kind)]


def has_number(kind: DataType, number: Any) -> bool:
    """Return whether a type of numbers has exactly this number."""
    exact = Fraction(number)
    if isinstance(kind, DecimalType):
        scaled = exact * 10**kind.scale
        return scaled.denominator == 1 and abs(scaled) < 10**kind.precision
    if type(kind) in WHOLE:
        bound = 2 ** (WHOLE[type(kind)] - 1)
        return exact.denominator == 1 and -bound <= exact < bound
    layout = "<f" if isinstance(kind, FloatType) else "<d"
    try:
        return Fraction(struct.unpack(layout, struct.pack(layout, number))[0]) == exact
    except OverflowError:
        return False


def is_kept(held: DataType, rows: DataType) -> bool:
    """Return whether a table keeps its type for rows: the same type, or a wider type of numbers."""
    if held == rows:
        return True
    to = (*WHOLE, FloatType, DoubleType, DecimalType)
    known = {FloatType: (DoubleType,), DecimalType: (DecimalType,), **dict.fromkeys(WHOLE, to)}.get(type(rows), ())
    return isinstance(held, known) and all(has_number(held, value) for value in extremes(rows))


def placed(place: str, kind: DataType, *, is_new: bool) -> DataType:
    """Return the type of a column with a type at a place. The new struct has its fields in another order, and one more."""
    if place in ("field", "field of elements"):
        fields = [StructField("x", kind), StructField("y", StringType())]
        if is_new:
            fields = [StructField("y", StringType()), StructField("X", kind), StructField("z", IntegerType())]
        whole = StructType(fields)
        return whole if place == "field" else ArrayType(whole)
    if place == "element":
        return ArrayType(kind)
    if place == "column":
        return kind
    return MapType(kind, StringType()) if place == "key" else MapType(StringType(), kind)


def put(place: str, value: Any, *, is_new: bool) -> Any:
    """Return the value of a column with a value at a place."""
    if place in ("field", "field of elements"):
        whole = ("of y", value, 5) if is_new else (value, "of y")
        return whole if place == "field" else [whole]
    of_place = {"element": [value], "value": {"k": value}}
    return value if place == "column" else {value: "v"} if place == "key" else of_place[place]


def taken(place: str, value: Any) -> Any:
    """Return the value at a place, and check what is beside it."""
    if place in ("field", "field of elements"):
        row = value if place == "field" else value[0]
        assert row.y == "of y" and (len(row) == 2 or row.z in (None, 5))
        return row[0]
    if place == "column":
        return value
    return value[0] if place == "element" else value["k"] if place == "value" else next(iter(value))


def is_same(written: Any, read: Any) -> bool:
    if isinstance(written, (int, float, Decimal)) and not isinstance(written, bool):
        return isinstance(read, (int, float, Decimal)) and Fraction(written) == Fraction(read)
    if isinstance(written, date) and not isinstance(written, datetime) and isinstance(read, datetime):
        written = datetime(written.year, written.month, written.day)
    if isinstance(written, bytearray):
        written = bytes(written)  # Spark reads bytes or bytearrays, as the place of a value is
    return type(written) in (type(read), bytes) and bool(written == read)
