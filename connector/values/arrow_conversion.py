"""Python values to and from an Arrow type, field by field, by name.

A value that does not fit its type is an error; it is never approximated, and no number goes by way of a float.
Also reads what JSON, and Protobuf's JSON mapping, have no type for: times and decimals as text, bytes as base64, int64 as text.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal
from functools import lru_cache, partial
from typing import Any, Final, Literal

import pyarrow as pa

from pykafka_wire.errors import DecodeError, OptionError
from pykafka_wire.values.numeric_times import INFINITE_TEXTS
from pykafka_wire.values.single_json.encodings import (
    Encodings,
    check_is_number,
    date_of_number,
    decimal_of_base64,
    decimal_of_struct,
    timestamp_of_number,
)
from pykafka_wire.values.single_json.text import date_days, json_text_of_part, local_timestamp_micros, timestamp_micros
from pykafka_wire.values.single_json.variant import variant_of
from pykafka_wire.values.single_json.variant_type import is_variant

Conversion = Callable[[Any], Any]
#: What text means where binary is expected: JSON's formats write bytes as base64, an Avro string is its UTF-8. In JSON documents,
#: whose encodings stand here, it is base64 too, and dates and timestamps are read as Spark's from_json reads them.
BinaryText = Encodings | Literal["base64", "utf-8"]

_UTC: Final = datetime.timezone.utc
#: ISO-8601 as RFC 3339 has it. Python 3.10 reads neither Z nor other than 3 or 6 digits of a second, later ones much more.
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)
#: Protobuf's JSON mapping of Duration.
_SECONDS: Final = re.compile(r"(-)?([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: The bits of a double that a float has not, and their first one.
_BELOW_FLOAT: Final = (1 << 29) - 1
_HALF_OF_FLOAT: Final = 1 << 28
#: Python's own parsers also take underscores, spaces, and digits of other scripts.
_DIGITS: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
#: More digits than any type holds: not worth an attempt, which would take time in proportion to their square.
_MAX_DIGITS: Final = 4_000
#: The kinds of values in words.
_KINDS: Final = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    Decimal: "a number",
    str: "text",
    bytes: "binary",
    dict: "a struct",
    list: "an array",
    datetime.datetime: "a timestamp",
    datetime.date: "a date",
    datetime.time: "a time",
}


@lru_cache(maxsize=256)
def conversion_to(column_type: pa.DataType, binary_text: BinaryText = "base64") -> Conversion:
    """Return what turns a decoded value into one that ``pa.array(…, column_type)`` takes; a missing field is null.

    Raises:
        OptionError: no value has such a type (an interval).
    """
    inner = _conversion(column_type, binary_text)

    def convert(value: Any) -> Any:
        try:
            return None if value is None else inner(value)
        except (ArithmeticError, ValueError) as error:  # too large for a float or a calendar, a lone surrogate
            raise DecodeError(f"{_kind(value)} that {column_type} cannot hold") from error

    return convert


def key_conversion_to(key_type: pa.DataType, binary_text: BinaryText = "base64") -> Conversion:
    """Return what :func:`conversion_to` does, of the keys of maps."""
    if pa.types.is_boolean(key_type):
        return _boolean_key
    inner = conversion_to(key_type, binary_text)
    return partial(_number_key, inner) if pa.types.is_floating(key_type) else inner


def from_arrow(value: Any, column_type: pa.DataType) -> Any:
    """Return a value of ``to_pylist`` with its maps as dicts.

    Raises:
        DecodeError: a map's key is a struct or an array, which no format has.
    """
    if value is None:
        return None
    if pa.types.is_struct(column_type):
        return {field.name: from_arrow(value[field.name], field.type) for field in column_type}
    if pa.types.is_map(column_type):
        try:
            return {key: from_arrow(item, column_type.item_type) for key, item in value}
        except TypeError as error:
            raise DecodeError(f"a map's key cannot be {column_type.key_type}") from error
    if pa.types.is_list(column_type) or pa.types.is_large_list(column_type):
        return [from_arrow(item, column_type.value_type) for item in value]
    return value


def _json_conversion(wanted: pa.DataType, encodings: Encodings) -> Conversion | None:
    """Return what JSON's numbers and texts mean where their encoding is declared; None for other types."""
    is_a = pa.types
    if is_a.is_decimal(wanted):
        return _json_decimal(wanted.precision, wanted.scale, encodings)
    if is_a.is_timestamp(wanted) and wanted.unit == "us":
        of_text, of_number = timestamp_micros if wanted.tz else local_timestamp_micros, timestamp_of_number
        return _json_time(of_text, partial(of_number, unit=encodings.timestamp_unit), "a timestamp (ISO-8601)")
    if is_a.is_date32(wanted):
        return _json_time(date_days, partial(date_of_number, unit=encodings.date_unit), "a date (ISO-8601)")
    return None


def _conversion(wanted: pa.DataType, binary_text: BinaryText) -> Conversion:
    is_a = pa.types
    if is_variant(wanted):
        numbers = binary_text.variant_numbers if isinstance(binary_text, Encodings) else "double"
        return partial(variant_of, numbers=numbers)
    if is_a.is_struct(wanted):
        return _struct(
            [(field.name, field.nullable, _field_conversion(field, _within(binary_text, field))) for field in wanted]
        )
    if is_a.is_list(wanted):
        return _list(_field_conversion(wanted.value_field, binary_text))
    if is_a.is_map(wanted):
        return _map(key_conversion_to(wanted.key_type, binary_text), _field_conversion(wanted.item_field, binary_text))
    if is_a.is_integer(wanted):
        return _integer(wanted.bit_width)
    if isinstance(binary_text, Encodings) and (encoded := _json_conversion(wanted, binary_text)) is not None:
        return encoded
    if is_a.is_decimal(wanted):
        return _decimal(wanted.precision, wanted.scale)
    if is_a.is_timestamp(wanted):
        return _timestamp if wanted.tz else _local_timestamp
    if is_a.is_floating(wanted):
        return _float(wanted.bit_width)
    for test, conversion in (
        (is_a.is_string, _string),
        (is_a.is_binary, _binary_of_utf8 if binary_text == "utf-8" else _binary_of_base64),
        (is_a.is_boolean, _boolean),
        (is_a.is_date, _date),
        (is_a.is_time, _only(datetime.time, "a time")),
        (is_a.is_null, _only((), "null")),
        (lambda wanted: is_a.is_duration(wanted) and wanted.unit == "us", _duration),
    ):
        if test(wanted):
            return conversion
    raise OptionError(f"a decoded value cannot be {wanted}: use STRING for what has no other type.")


def _within(binary_text: BinaryText, field: pa.Field) -> BinaryText:
    return binary_text.within(field.name) if isinstance(binary_text, Encodings) and binary_text.differ else binary_text


def _field_conversion(field: pa.Field, binary_text: BinaryText) -> Conversion:
    """Return what :func:`conversion_to` does, of a struct's field or the items of an array or map, which may be NOT NULL."""
    inner = conversion_to(field.type, binary_text)

    return inner if field.nullable else lambda value: not_null(inner(not_null(value)))


def not_null(value: Any) -> Any:
    """Return a value of a field that is NOT NULL: Spark's tasks end where such a column holds a null. Raises DecodeError."""
    if value is None:
        raise DecodeError("null where a value is expected (NOT NULL)")
    return value


def _unexpected_error(value: Any, wanted: str) -> DecodeError:
    # The kind of value alone: logs and error columns must not show what it holds.
    return DecodeError(f"{_kind(value)} where {wanted} is expected")


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _struct(fields: list[tuple[str, bool, Conversion]]) -> Conversion:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _unexpected_error(value, "a struct")
        row = {}
        for name, is_nullable, inner in fields:
            field = value.get(name)
            if field is None and is_nullable:  # left out: an empty object of a wide type takes no memory here
                continue
            try:
                row[name] = inner(field)
            except DecodeError as error:
                raise DecodeError(f"{name}: {error}") from None
        return row

    return convert


def _list(inner: Conversion) -> Conversion:
    def convert(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _unexpected_error(value, "an array")
        return [inner(item) for item in value]

    return convert


def _map(key: Conversion, item: Conversion) -> Conversion:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _unexpected_error(value, "a map")
        # The last of several, as in JSON itself: 1 and 01 are one key of MAP<INT, …>, and Spark's maps have each key once.
        return list({key(name): item(element) for name, element in value.items()}.items())

    return convert


def _integer(bits: int) -> Conversion:
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(value: Any) -> Any:
        number = _whole_number(value)
        if number is None:
            raise _unexpected_error(value, "an integer")
        if not lowest <= number <= highest:
            raise DecodeError(f"an integer that {bits} bits cannot hold")
        return number

    return convert


def _decimal(precision: int, scale: int) -> Conversion:
    def convert(value: Any) -> Any:
        number = _finite_decimal(value)
        if number is None:
            raise _unexpected_error(value, "a decimal")
        return _rescale(number, precision, scale)

    return convert


def _json_decimal(precision: int, scale: int, encodings: Encodings) -> Conversion:
    number_of, form = _decimal(precision, scale), encodings.decimal_format

    def convert(value: Any) -> Any:
        if isinstance(value, dict) and form == "base64":
            return _rescale(decimal_of_struct(value), precision, scale)
        if not isinstance(value, str) or form == "numeric":
            return number_of(value)
        if form == "base64":
            return _rescale(decimal_of_base64(value, scale), precision, scale)
        check_is_number(value)
        return number_of(value)

    return convert


def _whole_number(value: Any) -> int | None:
    """Return the value as an integer: a number without a fraction, or a text of digits. None for any other value."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        return int(value) if len(value) <= _MAX_DIGITS and _DIGITS.fullmatch(value) else None
    if isinstance(value, Decimal):
        if not value.is_finite() or value.adjusted() > _MAX_DIGITS or value != value.to_integral_value():
            return None
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _finite_decimal(value: Any) -> Decimal | None:
    """Return the value as a finite decimal: a number, or the text of one. None for any other value. Of a float, its shortest
    digits.
    """
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        decimal = Decimal(repr(value))
        return decimal if decimal.is_finite() else None
    return Decimal(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _rescale(number: Decimal, precision: int, scale: int) -> Decimal:
    """Return an equal number with ``scale`` digits after the point and at most ``precision`` in all.

    Raises:
        DecodeError: the number does not fit.
    """
    if not number:
        return Decimal(0)
    # Looked at first, since a number such as 1E+1000000 must not be written out.
    if number.adjusted() < precision - scale:
        unit, context = _unit(precision, scale)
        quantized = number.quantize(unit, ROUND_DOWN, context)
        if quantized == number:
            return quantized
    raise DecodeError(f"a decimal that DECIMAL({precision},{scale}) cannot hold")


@lru_cache(maxsize=256)
def _unit(precision: int, scale: int) -> tuple[Decimal, Context]:
    return Decimal((0, (1,), -scale)), Context(prec=precision)


def _string(value: Any) -> Any:
    text = _text(value)
    if not text.isascii():
        text.encode()  # JSON may hold half of a surrogate pair, which no string column can
    return text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()  # Avro's promotion of bytes to a string
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return json_text_of_part(value)  # as Spark's from_json does


def _binary_of_base64(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            raise DecodeError("text that is not base64 where binary is expected") from None
    return _bytes(value)


def _binary_of_utf8(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else _bytes(value)


def _only(kind: type | tuple[()], wanted: str) -> Conversion:
    """Return values of a Python type, as they are."""

    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _unexpected_error(value, wanted)
        return value

    return convert


_bytes: Final = _only(bytes, "binary")
_boolean: Final = _only(bool, "a boolean")


def _boolean_key(value: Any) -> Any:
    """Return a boolean of a key, since a key of a JSON object is text whatever it means."""
    return value == "true" if value in ("true", "false") else _boolean(value)


def _number_key(number_of: Conversion, value: Any) -> Any:
    """Return a number of a key, as :func:`_boolean_key` does."""
    return number_of(Decimal(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value)


def _float(bits: int) -> Conversion:
    def convert(value: Any) -> Any:
        if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
            return float(value)  # Protobuf's JSON mapping
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise _unexpected_error(value, "a number")
        number = float(value)
        if math.isinf(number) and not isinstance(value, float):
            raise OverflowError
        if bits == 32 and math.isfinite(number):
            (word,) = struct.unpack("<q", struct.pack("<d", number))
            if word & _BELOW_FLOAT == _HALF_OF_FLOAT and number != value:
                # Between two floats by rounding alone: the digits decide which of them is nearer.
                number = math.nextafter(number, math.inf if value > number else -math.inf)
            struct.pack("<f", number)  # raises OverflowError
        return number

    return convert


def _json_time(
    of_text: Callable[[Any], int | None], of_number: Callable[[int | Decimal], int | None], wanted: str
) -> Conversion:
    """Return integers, as Arrow keeps times: Spark has times that Python has not. None for an infinity."""

    def convert(value: Any) -> Any:
        if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
            return of_number(value)
        if isinstance(value, str) and value in INFINITE_TEXTS:
            return None
        converted = of_text(value)
        if converted is None:
            raise _unexpected_error(value, wanted)
        return converted

    return convert


def _timestamp(value: Any) -> Any:
    moment = _moment(value)
    return moment.replace(tzinfo=_UTC) if moment.tzinfo is None else moment.astimezone(_UTC)


def _local_timestamp(value: Any) -> Any:
    return _moment(value).replace(tzinfo=None)


def _moment(value: Any) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        return value
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _unexpected_error(value, "a timestamp (ISO-8601)")
    day, clock, fraction, zone = match.groups()
    offset = "+00:00" if zone in ("Z", "z") else (zone if not zone or ":" in zone else f"{zone[:3]}:{zone[3:]}")
    try:
        return datetime.datetime.fromisoformat(f"{day}T{clock}.{(fraction or '')[:6]:0<6}{offset or ''}")
    except ValueError:
        raise DecodeError("a timestamp that is not in the calendar") from None


def _date(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            pass
    raise _unexpected_error(value, "a date (ISO-8601)")


def _duration(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value
    match = _SECONDS.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _unexpected_error(value, "a duration (seconds, such as 1.5s)")
    sign, seconds, fraction = match.groups()
    span = datetime.timedelta(seconds=int(seconds), microseconds=int(f"{(fraction or '')[:6]:0<6}"))
    return -span if sign else span
