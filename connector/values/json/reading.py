"""JSON text to Python values."""

from __future__ import annotations

import json
from typing import Any

from pykafka_wire.errors import PoisonError


def parse_json(value: bytes) -> Any:
    """The value of a JSON document.

    Raises:
        PoisonError: the bytes are not one.
    """
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        # Not the error's own text, which may hold the value's.
        place = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise PoisonError(f"it is no JSON{place}") from error
