"""JSON text to Python values. Numbers are exact: integers are ints, all others are decimals with the digits of the text."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

from pykafka_wire.errors import DecodeError

_EXACT: Final = json.JSONDecoder(parse_float=Decimal)
#: For integers that are longer than Python's own limit (4,300 digits), which guards against quadratic time.
_LONG: Final = json.JSONDecoder(parse_float=Decimal, parse_int=Decimal)


def parse_json(value: bytes | str) -> Any:
    """The value of a JSON document in UTF-8; NaN and the infinities, which JSON does not have, are floats.

    Raises:
        DecodeError: the bytes are not one, or are nested deeper than Python reads.
    """
    try:
        text = (value if isinstance(value, str) else value.decode()).removeprefix("\ufeff")
        try:
            return _EXACT.decode(text)
        except (json.JSONDecodeError, UnicodeError):
            raise
        except ValueError:
            return _LONG.decode(text)
    except json.JSONDecodeError as error:
        # Not the error's own text, which may hold the value's.
        raise DecodeError(f"it is not JSON: an error at character {error.pos}") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"it is not JSON: not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise DecodeError("its JSON is nested too deep") from error
    except (ArithmeticError, ValueError) as error:
        raise DecodeError("its JSON holds a number that is too large for any type") from error
