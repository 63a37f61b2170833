"""Rows that Arrow gives as Python objects, as the formats' libraries want them: maps as dicts, and all of it as JSON."""

from __future__ import annotations

import base64
import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pykafka_wire.errors import PoisonError


def plain(value: Any, column_type: pa.DataType) -> Any:
    """A value of ``to_pylist`` with its maps as dicts."""
    if value is None:
        return None
    if pa.types.is_struct(column_type):
        return {field.name: plain(value[field.name], field.type) for field in column_type}
    if pa.types.is_map(column_type):
        return {key: plain(each, column_type.item_type) for key, each in value}
    if pa.types.is_list(column_type) or pa.types.is_large_list(column_type):
        return [plain(each, column_type.value_type) for each in value]
    return value


def json_text(value: Any) -> str:
    """JSON as Spark's ``to_json`` writes it: fields that are null are left out, bytes are base64, times ISO-8601 in UTC.

    Raises:
        PoisonError: JSON has no such value (NaN).
    """
    try:
        return json.dumps(_without_nulls(value), default=_scalar, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise PoisonError(f"JSON cannot hold it ({error})") from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _scalar(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return (
            value.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
            if value.tzinfo
            else value.isoformat()
        )
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Decimal) and math.isfinite(value):
        return int(value) if value == value.to_integral_value() else float(value)
    raise ValueError(f"no JSON for {type(value).__name__}")
