"""Dates and timestamps that are written as numbers: what a number of a unit stands for, one by one and in columns.

Owns the numbers and texts that Debezium writes for PostgreSQL's ``infinity`` and ``-infinity``, which no type of Spark's has:
they are null. Other times beyond the years 1 to 9999, which are those of Spark's types, are errors.
Debezium takes them from PostgreSQL's JDBC driver (``PGStatement.DATE_POSITIVE_INFINITY``), and has written dates of either sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.bulk.arrays import Flags, Ints

#: What a time's number counts since 1970.
TimeUnit = Literal["days", "seconds", "milliseconds", "microseconds", "nanoseconds"]

_DAY_NANOS: Final = 86_400_000_000_000
_MICRO_NANOS: Final = 1_000
_NANOS: Final[dict[TimeUnit, int]] = {
    "days": _DAY_NANOS,
    "seconds": 1_000_000_000,
    "milliseconds": 1_000_000,
    "microseconds": _MICRO_NANOS,
    "nanoseconds": 1,
}
_LONG: Final = 1 << 63
_INT: Final = 1 << 31
#: Of 0001-01-01 and 10000-01-01, since 1970.
FIRST_DAY: Final = -719_162
END_DAY: Final = 2_932_897
#: Of a number's first digit from the point. Numbers so large, or so small, are no times of any unit.
_MAX_DIGITS: Final = 30
_DRIVERS: Final = (9_223_372_036_825_200_000, -9_223_372_036_832_400_000)
#: The days of +5877611-06-21, -5877611-06-21 and -5877611-06-22; those that Debezium 3.6 writes in a snapshot, where the driver's
#: numbers overflow; and the ends of the type.
INFINITE_DAYS: Final = frozenset(
    {2_146_033_979, -2_147_472_692, -2_147_472_691, -622_191_234, -625_821_272, _INT - 1, -_INT}
)
#: By unit. The driver's are microseconds or milliseconds.
INFINITE: Final[dict[TimeUnit, frozenset[int]]] = {
    "days": INFINITE_DAYS,
    "seconds": frozenset(),
    "milliseconds": frozenset({*_DRIVERS, *(millis // 1_000 for millis in _DRIVERS), _LONG - 1, -_LONG}),
    "microseconds": frozenset({*_DRIVERS, _LONG - 1, -_LONG}),
    "nanoseconds": frozenset({_LONG - 1, -_LONG}),
}
#: The smallest of them, without signs.
_LEAST: Final = {unit: min(map(abs, numbers), default=_LONG) for unit, numbers in INFINITE.items()}
#: The infinities as texts: PostgreSQL's, and the driver's numbers as ISO-8601, in microseconds and in milliseconds.
INFINITE_TEXTS: Final = frozenset(
    {
        *("infinity", "+infinity", "-infinity"),
        *("+294247-01-10T04:00:25.2Z", "+294247-01-10T04:00:25.200Z"),
        *("-290308-12-21T19:59:27.6Z", "-290308-12-21T19:59:27.600Z"),
        *("+292278994-08-16T23:00:00Z", "-292275055-05-16T23:00:00Z"),
    }
)


def micros_of(number: int | Decimal, unit: TimeUnit) -> int | None:
    """Return microseconds since 1970 of a timestamp's number, rounded down; None for an infinity.

    Raises:
        DecodeError: Spark has no such timestamp.
    """
    return _scale(number, unit, _MICRO_NANOS, "a timestamp")


def days_of(number: int | Decimal, unit: TimeUnit) -> int | None:
    """Return days since 1970 of a date's number; None for an infinity.

    Raises:
        DecodeError: it is within a day, or Spark has no such date.
    """
    days = _scale(number, unit, _DAY_NANOS, "a date")
    if days is not None and days * _DAY_NANOS != Fraction(number) * _NANOS[unit]:
        raise DecodeError(f"a number of {unit} that is no whole day where a date is expected")
    return days


def _scale(number: int | Decimal, unit: TimeUnit, nanos: int, wanted: str) -> int | None:
    if isinstance(number, Decimal) and (not number.is_finite() or abs(number.adjusted()) > _MAX_DIGITS):
        raise DecodeError(f"a number that is not the {unit} of {wanted}")
    if number in INFINITE[unit]:
        return None
    moment = int(Fraction(number) * _NANOS[unit] // nanos)
    per_day = _DAY_NANOS // nanos
    if not FIRST_DAY * per_day <= moment < END_DAY * per_day:
        raise DecodeError(f"a number that is not the {unit} of a time in the years 1 to 9999")
    return moment


@dataclass(frozen=True, slots=True)
class Times:
    """The numbers of a column of dates, in days, or of timestamps, in microseconds.

    Attributes:
        numbers: int64[n].
        wrong: bool[n]: those that are none; None where all are.
        infinite: bool[n]: those that stand for an infinity; None where none does.
    """

    numbers: Ints
    wrong: Flags | None = None
    infinite: Flags | None = None


def moments(numbers: Ints, unit: TimeUnit) -> Times:
    """Return what :func:`micros_of` does, of int64[n]."""
    infinite = _infinite(numbers, unit)
    nanos = _NANOS[unit]
    if nanos < _MICRO_NANOS:  # they reach from 1677 to 2262
        return Times(numbers // _MICRO_NANOS, None, infinite)
    factor, wrong = nanos // _MICRO_NANOS, _beyond(numbers, _DAY_NANOS // nanos)
    return Times(numbers if factor == 1 else np.multiply(numbers, factor), wrong, infinite)


def days(numbers: Ints, unit: TimeUnit) -> Times:
    """Return what :func:`days_of` does, of int64[n]."""
    infinite = _infinite(numbers, unit)
    per_day = _DAY_NANOS // _NANOS[unit]
    days = numbers // per_day
    wrong = _beyond(days, 1)
    if per_day != 1 and (parts := days * per_day != numbers).any():
        wrong = parts if wrong is None else wrong | parts
    return Times(days, wrong, infinite)


def _beyond(numbers: Ints, per_day: int) -> Flags | None:
    """Return bool[n]: those that are beyond the years 1 to 9999; None where none is."""
    first, end = FIRST_DAY * per_day, END_DAY * per_day
    if not len(numbers) or (int(numbers.min()) >= first and int(numbers.max()) < end):
        return None
    beyond: Flags = (numbers < first) | (numbers >= end)
    return beyond


def _infinite(numbers: Ints, unit: TimeUnit) -> Flags | None:
    least = _LEAST[unit]
    if not len(numbers) or least >= _LONG or (int(numbers.max()) < least and int(numbers.min()) > -least):
        return None
    is_infinite: Flags = np.isin(numbers, np.array(sorted(INFINITE[unit]), dtype=np.int64))
    return is_infinite if is_infinite.any() else None
