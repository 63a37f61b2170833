"""Python values to JSON text, with every digit of their numbers."""

from __future__ import annotations

import base64
import datetime
import json
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from pykafka_wire.errors import PoisonError

#: Each level takes a frame of Python's stack, which has a thousand.
_MAX_DEPTH: Final = 400
_UTC: Final = datetime.timezone.utc

# In C where Python has that.
_quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring


def json_text(value: Any) -> str:
    """JSON as Spark's ``to_json`` writes it: fields that are null are left out, bytes are base64, times ISO-8601 in UTC.

    A decimal without a fraction is written without a point, so that it can be read as an integer.

    Raises:
        PoisonError: JSON has no such value (NaN), or it is nested too deep.
    """
    parts: list[str] = []
    _write(value, parts.append, 0, True)
    return "".join(parts)


def json_text_of_part(value: Any) -> str:
    """A part of a decoded value as JSON text, as Spark's ``from_json`` gives it for a STRING: nulls and digits stay.

    Raises:
        PoisonError: as :func:`json_text`, but for NaN and the infinities, which are kept.
    """
    parts: list[str] = []
    _write(value, parts.append, 0, False)
    return "".join(parts)


def _write(value: Any, out: Callable[[str], None], depth: int, to_send: bool) -> None:
    if type(value) is str:
        out(_quoted(value))
    elif value is None:
        out("null")
    elif isinstance(value, (dict, list, tuple)):
        if depth >= _MAX_DEPTH:
            raise PoisonError(f"a value nested more than {_MAX_DEPTH} deep, for which JSON text is expected")
        if isinstance(value, dict):
            separator = "{"
            for name, each in value.items():
                if each is not None or not to_send:
                    # A key that is no text (a date's, a number's) is written as the text of its value.
                    key = name if type(name) is str else _scalar(name).strip('"')
                    out(f"{separator}{_quoted(key)}: ")
                    _write(each, out, depth + 1, to_send)
                    separator = ", "
            out("}" if separator != "{" else "{}")
        else:
            separator = "["
            for each in value:
                out(separator)
                _write(each, out, depth + 1, to_send)
                separator = ", "
            out("]" if separator != "[" else "[]")
    else:
        out(_scalar(value, to_send))


def _scalar(value: Any, to_send: bool = True) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        if not to_send:
            return json.dumps(value)
        raise PoisonError(f"JSON cannot hold {value}")
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise PoisonError(f"JSON cannot hold {value}")
        return _decimal_text(value) if to_send else str(value)
    if isinstance(value, (str, uuid.UUID)):
        return _quoted(str(value))
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, datetime.datetime):
        # A time without a zone stays one.
        text = value.isoformat() if value.tzinfo is None else value.astimezone(_UTC).isoformat().replace("+00:00", "Z")
        return f'"{text}"'
    if isinstance(value, (datetime.date, datetime.time)):
        return f'"{value.isoformat()}"'
    raise PoisonError(f"JSON cannot hold a {type(value).__name__}")


def _decimal_text(value: Decimal) -> str:
    """Columns' decimals have at most 76 digits, so that zeros may be written out."""
    text = f"{value:f}"
    whole, point, fraction = text.partition(".")
    return whole if point and not fraction.strip("0") else text
