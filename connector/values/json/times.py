"""Dates and timestamps in JSON text, as Spark's ``from_json`` reads them in a session whose time zone is UTC.

That is what Spark's CAST takes (``SparkDateTimeUtils.stringToTimestamp``): ``2026``, ``2026-3``, ``2026-3-1`` and
``2026-3-1 1:2:3.5 Europe/Berlin``, beside ISO-8601. An integer is seconds since 1970.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from functools import cache
from typing import Any, Final

from pykafka_wire.errors import DecodeError

_UTC: Final = datetime.timezone.utc
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
#: The last second of the year 9999. Integers after it are milliseconds or microseconds by mistake.
_MAX_SECONDS: Final = 253_402_300_799


def date_days(value: Any) -> int | None:
    """Days since 1970 of a date's text, whatever time follows it; None if it is none."""
    found = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if found is None else _days(found[1], found[2], found[3])


def timestamp_micros(value: Any) -> int | None:
    """Microseconds since 1970 of a timestamp's text, in UTC if it has no zone, or of an integer of seconds; None if it is none.

    Raises:
        DecodeError: an integer is not a number of seconds before the year 10000.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not -_MAX_SECONDS <= value <= _MAX_SECONDS:
            raise DecodeError("an integer that is not the seconds of a timestamp before the year 10000")
        return value * _MICROS_PER_SECOND
    found = _TIMESTAMP.fullmatch(value.strip()) if isinstance(value, str) else None
    local = None if found is None else _local_micros(found)
    if found is None or local is None or found[8] is None:
        return local
    offset = _offset(found[8].strip(), local)
    return None if offset is None else _long(local - offset * _MICROS_PER_SECOND)


def local_timestamp_micros(value: Any) -> int | None:
    """As :func:`timestamp_micros` of a text without a zone; None for one with a zone, as for one that is none."""
    found = _TIMESTAMP.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if found is None or found[8] is not None else _local_micros(found)


def _local_micros(found: re.Match[str]) -> int | None:
    days = _days(found[1], found[2], found[3])
    hour, minute, second = (int(found[nth] or 0) for nth in (4, 5, 6))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    seconds = days * _SECONDS_PER_DAY + hour * 3_600 + minute * 60 + second
    return _long(seconds * _MICROS_PER_SECOND + int(f"{(found[7] or '')[:6]:0<6}"))


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
    """Seconds that a zone is ahead of UTC."""
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    found = _OFFSET.fullmatch(zone)
    if found:
        hours, minutes, seconds = (int(found[nth] or 0) for nth in (2, 3, 4))
        if hours > 23 or minutes > 59 or seconds > 59:
            return None
        return (-1 if found[1] == "-" else 1) * (hours * 3_600 + minutes * 60 + seconds)
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
    """The names of time zones: no other text of a value becomes the name of a file."""
    return frozenset(zoneinfo.available_timezones())
