"""Python values to JSON text, with every digit of their numbers."""

from __future__ import annotations

import base64
import datetime
import json
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Literal

from pykafka_wire.errors import DecodeError

#: Each level takes a frame of Python's stack, which has a thousand.
_MAX_DEPTH: Final = 400
#: What the text is for: a JSON document, or a part of a decoded value in a STRING column.
_Target = Literal["json", "part"]
_UTC: Final = datetime.timezone.utc

# In C where Python has that.
_quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring


def json_text(value: Any) -> str:
    """JSON as Spark's ``to_json`` writes it: fields that are null are left out, bytes are base64, times ISO-8601 in UTC.

    A decimal without a fraction is written without a point, so that it can be read as an integer. A time without a zone is
    written without one.

    Raises:
        DecodeError: JSON has no such value (NaN), or it is nested too deep.
    """
    parts: list[str] = []
    _write(value, parts.append, 0, "json")
    return "".join(parts)


def json_text_of_part(value: Any) -> str:
    """A part of a decoded value as JSON text, as Spark's ``from_json`` gives it for a STRING: nulls and digits stay.

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
            for name, each in value.items():
                if each is not None or target == "part":
                    # A key that is no text (a date's, a number's) is written as the text of its value.
                    key = name if type(name) is str else _scalar(name).strip('"')
                    out(f"{separator}{_quoted(key)}:")
                    _write(each, out, depth + 1, target)
                    separator = ","
            out("}" if separator != "{" else "{}")
        else:
            separator = "["
            for each in value:
                out(separator)
                _write(each, out, depth + 1, target)
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
    """Columns' decimals have at most 76 digits, so that zeros may be written out."""
    text = f"{value:f}"
    whole, point, fraction = text.partition(".")
    return whole if point and not fraction.strip("0") else text
