"""Decoded Python objects into an Arrow type: field by field, by name; what does not fit is poison, not an approximation.

Also reads what JSON, and Protobuf's JSON mapping, have no type for: times and decimals as text, bytes as base64, int64 as text.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.errors import OptionError, PoisonError

Fit = Callable[[Any], Any]

_UTC: Final = datetime.timezone.utc
#: ISO-8601 as RFC 3339 has it; Python 3.10 reads neither Z nor other than 3 or 6 digits of a second.
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:?\d\d)?")


@lru_cache(maxsize=256)
def fitting(column_type: pa.DataType) -> Fit:
    """What turns a decoded object into one that ``pa.array(…, column_type)`` takes; a missing field is null.

    Raises:
        OptionError: no value has such a type (an interval, a variant).
    """
    inner = _of(column_type)

    def fit(value: Any) -> Any:
        try:
            return None if value is None else inner(value)
        except (ArithmeticError, ValueError) as error:  # too large for a float or a calendar, a lone surrogate
            raise PoisonError(f"{type(value).__name__} that {column_type} cannot hold") from error

    return fit


def _of(wanted: pa.DataType) -> Fit:
    is_a = pa.types
    if is_a.is_struct(wanted):
        return _struct([(field.name, fitting(field.type)) for field in wanted])
    if is_a.is_list(wanted):
        return _list(fitting(wanted.value_type))
    if is_a.is_map(wanted):
        return _map(fitting(wanted.key_type), fitting(wanted.item_type))
    if is_a.is_integer(wanted):
        return _integer(wanted.bit_width)
    if is_a.is_decimal(wanted):
        return _decimal(wanted.precision, wanted.scale)
    if is_a.is_timestamp(wanted):
        return _timestamp if wanted.tz else _local_timestamp
    if is_a.is_floating(wanted):
        return _float(wanted.bit_width)
    for test, fit in (
        (is_a.is_string, _string),
        (is_a.is_binary, _binary),
        (is_a.is_boolean, _boolean),
        (is_a.is_date, _date),
    ):
        if test(wanted):
            return fit
    raise OptionError(f"a decoded value cannot be {wanted}: use STRING for what has no other type.")


def _misfit(value: Any, wanted: str) -> PoisonError:
    # The kind of value alone: what it holds is nobody's business but the reader's.
    return PoisonError(f"{type(value).__name__} where {wanted} is expected")


def _struct(fields: list[tuple[str, Fit]]) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _misfit(value, "a struct")
        found = {}
        for name, inner in fields:
            try:
                found[name] = inner(value.get(name))
            except PoisonError as error:
                raise PoisonError(f"{name}: {error}") from None
        return found

    return fit


def _list(inner: Fit) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _misfit(value, "an array")
        return [inner(each) for each in value]

    return fit


def _map(key: Fit, item: Fit) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _misfit(value, "a map")
        return [(key(name), item(each)) for name, each in value.items()]

    return fit


def _integer(bits: int) -> Fit:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def fit(value: Any) -> Any:
        number = value
        if isinstance(value, str):
            try:
                number = int(value)
            except ValueError:
                raise _misfit(value, "an integer") from None
        elif isinstance(value, float) and value.is_integer():
            number = int(value)
        if not isinstance(number, int) or isinstance(number, bool):
            raise _misfit(value, "an integer")
        if not least <= number <= most:
            raise PoisonError(f"an integer that {bits} bits cannot hold")
        return number

    return fit


def _decimal(precision: int, scale: int) -> Fit:
    def fit(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (Decimal, int, float, str)):
            raise _misfit(value, "a decimal")
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            raise _misfit(value, "a decimal") from None
        _, digits, exponent = number.as_tuple()
        if not isinstance(exponent, int):
            raise PoisonError("a decimal that is no number")
        if number.is_zero():
            return Decimal(0)
        n_zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))  # which count for nothing
        if -exponent - n_zeros > scale or len(digits) + exponent + scale > precision:
            raise PoisonError(f"a decimal that DECIMAL({precision},{scale}) cannot hold")
        return number

    return fit


def _string(value: Any) -> Any:
    text = _text(value)
    if not text.isascii():
        text.encode()  # JSON may hold half of a surrogate pair, which no string column can
    return text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (bool, int, float, dict, list)):
        try:
            return json.dumps(value, ensure_ascii=False)  # as Spark's from_json does
        except TypeError:
            pass
    raise _misfit(value, "a string")


def _binary(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            raise PoisonError("text that is no base64 where binary is expected") from None
    raise _misfit(value, "binary")


def _boolean(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    raise _misfit(value, "a boolean")


def _float(bits: int) -> Fit:
    def fit(value: Any) -> Any:
        if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
            return float(value)  # Protobuf's JSON mapping
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise _misfit(value, "a number")
        number = float(value)
        if bits == 32 and math.isfinite(number):
            struct.pack("<f", number)  # raises OverflowError
        if math.isinf(number) and Decimal(value).is_finite():
            raise OverflowError
        return number

    return fit


def _timestamp(value: Any) -> Any:
    moment = _moment(value)
    return moment.replace(tzinfo=_UTC) if moment.tzinfo is None else moment.astimezone(_UTC)


def _local_timestamp(value: Any) -> Any:
    return _moment(value).replace(tzinfo=None)


def _moment(value: Any) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        return value
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _misfit(value, "a timestamp (ISO-8601)")
    day, clock, fraction, zone = found.groups()
    offset = "+00:00" if zone in ("Z", "z") else (zone if not zone or ":" in zone else f"{zone[:3]}:{zone[3:]}")
    try:
        return datetime.datetime.fromisoformat(f"{day}T{clock}.{(fraction or '')[:6]:0<6}{offset or ''}")
    except ValueError:
        raise PoisonError("a timestamp that is in no calendar") from None


def _date(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    if isinstance(value, str):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            pass
    raise _misfit(value, "a date (ISO-8601)")
