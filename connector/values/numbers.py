"""Exact numbers: what fits an integer or a decimal type, digit by digit, and what does not. Never by way of a float."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Context, Decimal
from functools import lru_cache
from typing import Any, Final

from pykafka_wire.errors import DecodeError

#: Python's own parsers also take underscores, spaces, and digits of other scripts.
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
#: More digits than any type holds: not worth an attempt, which would take time in proportion to their square.
_MAX_DIGITS: Final = 4_000


def integer(value: Any) -> int | None:
    """The value as an integer: a number without a fraction, or a text of digits. None for any other value."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        return int(value) if len(value) <= _MAX_DIGITS and _INTEGER.fullmatch(value) else None
    if isinstance(value, Decimal):
        if not value.is_finite() or value.adjusted() > _MAX_DIGITS or value != value.to_integral_value():
            return None
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def decimal(value: Any) -> Decimal | None:
    """The value as a finite decimal: a number, or the text of one. None for any other value. Of a float, its shortest digits."""
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        found = Decimal(repr(value))
        return found if found.is_finite() else None
    return Decimal(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def rescaled(number: Decimal, precision: int, scale: int) -> Decimal:
    """An equal number with ``scale`` digits after the point and at most ``precision`` in all.

    Raises:
        DecodeError: the number does not fit.
    """
    if not number:
        return Decimal(0)
    # Looked at first, since a number such as 1E+1000000 must not be written out.
    if number.adjusted() < precision - scale:
        unit, context = _unit(precision, scale)
        found = number.quantize(unit, ROUND_DOWN, context)
        if found == number:
            return found
    raise DecodeError(f"a decimal that DECIMAL({precision},{scale}) cannot hold")


@lru_cache(maxsize=256)
def _unit(precision: int, scale: int) -> tuple[Decimal, Context]:
    return Decimal((0, (1,), -scale)), Context(prec=precision)
