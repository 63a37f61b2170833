"""JSON text and Python values: parsed and written with every digit of their numbers, and what text means as a date or timestamp.

Numbers are exact: integers are ints, all others are decimals with the digits of the text. Dates and timestamps are read as Spark's
``from_json`` reads them in a session whose time zone is UTC, which is what its CAST takes
(``SparkDateTimeUtils.stringToTimestamp``): ``2026``, ``2026-3``, ``2026-3-1`` and ``2026-3-1 1:2:3.5 Europe/Berlin``, beside
ISO-8601. What their numbers mean is :mod:`~pykafka_wire.values.single_json.encodings`'s.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
import uuid
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any, Final, Literal

from pykafka_wire.errors import DecodeError

_EXACT: Final = json.JSONDecoder(parse_float=Decimal)
#: For integers that are longer than Python's own limit (4,300 digits), which guards against quadratic time.
_SIGNED: Final = json.JSONDecoder(
    parse_float=Decimal, parse_int=lambda text: Decimal(text) if text == "-0" else int(text)
)
_MINUS_ZERO: Final = re.compile(r"-0(?![0-9.eE])")
_LONG_NUMBERS: Final = json.JSONDecoder(parse_float=Decimal, parse_int=Decimal)


def parse_json(value: bytes | str, *, has_signed_zero: bool = False) -> Any:
    """Return the value of a JSON document in UTF-8; NaN and the infinities, which JSON does not have, are floats.

    Args:
        has_signed_zero: whether ``-0`` is a decimal, which keeps the sign, and not the integer 0.

    Raises:
        DecodeError: the bytes are not one, or are nested deeper than Python reads, or a field's name is no text.
    """
    try:
        text = (value if isinstance(value, str) else value.decode()).removeprefix("\ufeff")
        try:
            is_signed = has_signed_zero and "-0" in text and _MINUS_ZERO.search(text) is not None
            parsed = (_SIGNED if is_signed else _EXACT).decode(text)
        except (json.JSONDecodeError, UnicodeError):
            raise
        except ValueError:
            parsed = _LONG_NUMBERS.decode(text)
        if "\\u" in text and ("\\ud" in text or "\\uD" in text):
            _check_names(parsed)
        return parsed
    except json.JSONDecodeError as error:
        # Not the error's own text, which may hold the value's.
        raise DecodeError(f"it is not JSON: an error at character {error.pos}") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"it is not JSON: not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise DecodeError("its JSON is nested too deep") from error
    except (ArithmeticError, ValueError) as error:
        raise DecodeError("its JSON holds a number that is too large for any type") from error


def _check_names(parsed: Any) -> None:
    """Raise DecodeError for a field's name with half a character (a surrogate without its other half)."""
    parts = [parsed]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if not all(map(_is_text, part)):
                raise DecodeError("the name of a field holds half a character (a surrogate)")
            parts += part.values()
        elif isinstance(part, list):
            parts += part


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


#: Each level takes a frame of Python's stack, which has a thousand.
_MAX_DEPTH: Final = 400
#: What the text is for: a JSON document, or a part of a decoded value in a STRING column.
_Target = Literal["json", "part"]
_UTC: Final = datetime.timezone.utc

# In C where Python has that.
_quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring


def json_text(value: Any) -> str:
    """Return JSON as Spark's ``to_json`` writes it: fields that are null are left out, bytes are base64, times ISO-8601 in UTC.

    A decimal without a fraction is written without a point, so that it can be read as an integer. A time without a zone is
    written without one.

    Raises:
        DecodeError: JSON has no such value (NaN), or it is nested too deep.
    """
    parts: list[str] = []
    _write(value, parts.append, 0, "json")
    return "".join(parts)


def json_text_of_part(value: Any) -> str:
    """Return a part of a decoded value as JSON text, as Spark's ``from_json`` gives it for a STRING: nulls and digits stay.

    Raises:
        DecodeError: as :func:`json_text`, but for NaN and the infinities, which are kept.
    """
    parts: list[str] = []
    _write(value, parts.append, 0, "part")
    return "".join(parts)


def _write(value: Any, out: Callable[[str], None], depth: int, target: _Target) -> None:
    if type(value) is str:
        out(_quoted(value))
    elif value is None:
        out("null")
    elif isinstance(value, (dict, list, tuple)):
        if depth >= _MAX_DEPTH:
            raise DecodeError(f"a value nested more than {_MAX_DEPTH} deep, for which JSON text is expected")
        if isinstance(value, dict):
            separator = "{"
            for name, item in value.items():
                if item is not None or target == "part":
                    # A key that is no text (a date's, a number's) is written as the text of its value.
                    key = name if type(name) is str else _scalar(name).strip('"')
                    out(f"{separator}{_quoted(key)}:")
                    _write(item, out, depth + 1, target)
                    separator = ","
            out("}" if separator != "{" else "{}")
        else:
            separator = "["
            for item in value:
                out(separator)
                _write(item, out, depth + 1, target)
                separator = ","
            out("]" if separator != "[" else "[]")
    else:
        out(_scalar(value, target))


def _scalar(value: Any, target: _Target = "json") -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        if target != "json":
            return json.dumps(value)
        raise DecodeError(f"JSON cannot hold {value}")
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise DecodeError(f"JSON cannot hold {value}")
        return str(value) if target == "part" else _decimal_text(value)
    if isinstance(value, (str, uuid.UUID)):
        return _quoted(str(value))
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            text = value.isoformat()
        else:
            text = value.astimezone(_UTC).isoformat().replace("+00:00", "Z")
        return f'"{text}"'
    if isinstance(value, (datetime.date, datetime.time)):
        return f'"{value.isoformat()}"'
    raise DecodeError(f"JSON cannot hold a {type(value).__name__}")


def _decimal_text(value: Decimal) -> str:
    """Return a decimal's text; columns' decimals have at most 76 digits, so that zeros may be written out."""
    text = f"{value:f}"
    whole, point, fraction = text.partition(".")
    return whole if point and not fraction.strip("0") else text


_DATE: Final = re.compile(r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[T ].*)?)?)?", re.DOTALL)
_TIMESTAMP: Final = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[T ](?:([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?(?: ?([A-Za-z+-].*))?)?)?)?)?"
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?")
_MICROS_PER_SECOND: Final = 1_000_000
_SECONDS_PER_DAY: Final = 86_400
_DAYS_BEFORE_1970: Final = 719_162
_LONG: Final = 2**63


def date_days(value: Any) -> int | None:
    """Return days since 1970 of a date's text, whatever time follows it; None if it is none."""
    match = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else _days(match[1], match[2], match[3])


def timestamp_micros(value: Any) -> int | None:
    """Return microseconds since 1970 of a timestamp's text, in UTC if it has no zone; None if it is none."""
    match = _TIMESTAMP.fullmatch(value.strip()) if isinstance(value, str) else None
    local = None if match is None else _local_micros(match)
    if match is None or local is None or match[8] is None:
        return local
    offset = _offset(match[8].strip(), local)
    return None if offset is None else _long(local - offset * _MICROS_PER_SECOND)


def local_timestamp_micros(value: Any) -> int | None:
    """Return what :func:`timestamp_micros` does of a text without a zone; None for one with a zone, as for one that is none."""
    match = _TIMESTAMP.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None or match[8] is not None else _local_micros(match)


def _local_micros(match: re.Match[str]) -> int | None:
    days = _days(match[1], match[2], match[3])
    hour, minute, second = (int(match[nth] or 0) for nth in (4, 5, 6))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    seconds = days * _SECONDS_PER_DAY + hour * 3_600 + minute * 60 + second
    return _long(seconds * _MICROS_PER_SECOND + int(f"{(match[7] or '')[:6]:0<6}"))


def _long(micros: int) -> int | None:
    return micros if -_LONG <= micros < _LONG else None


def _days(year: str, month: str | None, day: str | None) -> int | None:
    # Python's calendar has the years 1 to 9999; any other year is as one 400 years from it.
    cycles, within = divmod(int(year) - 1, 400)
    try:
        ordinal = datetime.date(within + 1, int(month or 1), int(day or 1)).toordinal()
    except ValueError:
        return None
    return cycles * 146_097 + ordinal - 1 - _DAYS_BEFORE_1970


def _offset(zone: str, local_micros: int) -> int | None:
    """Return seconds that a zone is ahead of UTC."""
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    match = _OFFSET.fullmatch(zone)
    if match:
        hours, minutes, seconds = (int(match[nth] or 0) for nth in (2, 3, 4))
        if hours > 23 or minutes > 59 or seconds > 59:
            return None
        return (-1 if match[1] == "-" else 1) * (hours * 3_600 + minutes * 60 + seconds)
    if zone not in _zones():
        return None
    try:
        local = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=local_micros)
    except OverflowError:
        return None
    offset = local.replace(tzinfo=zoneinfo.ZoneInfo(zone)).utcoffset()
    return None if offset is None else int(offset.total_seconds())


@cache
def _zones() -> frozenset[str]:
    """Return the names of time zones: no other text of a value becomes the name of a file."""
    return frozenset(zoneinfo.available_timezones())
