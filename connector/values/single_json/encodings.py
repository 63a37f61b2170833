"""What numbers mean under dates and timestamps, and texts under decimals: JSON does not say, so that the user does.

Kafka Connect and Debezium write a timestamp as a number of milliseconds, microseconds or nanoseconds, a date as a number of days,
and a decimal as the base64 text of its unscaled bytes. None of them is guessed: a number's unit that nobody has named is an error
of the value, and so is a text that may be a number and base64 alike.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any, Final, Literal, TypeVar

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.numeric_times import TimeUnit, days_of, micros_of
from pykafka_wire.values.single_json.variant import VariantNumbers

DecimalFormat = Literal["numeric", "base64"]
ChoiceT = TypeVar("ChoiceT", bound=str)
#: The end of a field's path, empty for all fields, and what is chosen for it.
Choices = tuple[tuple[tuple[str, ...], ChoiceT], ...]

#: Before the path of each choice that is about one field alone, wherever fields of that name are.
ROOT: Final = ""
#: Texts that are both a number and base64, of which Java's encoder writes groups of four.
_AMBIGUOUS: Final = re.compile(r"(?:[0-9eE+]{4})+")
#: Of a decimal's bytes: PostgreSQL's longest ``numeric``, of 131,072 digits before the point and 16,383 behind it, has 61,230. It
#: takes a third of a second, and time grows with the square of the digits.
_MAX_BYTES: Final = 61_230
_CONTEXT: Final = Context(prec=150_000)
SCALES: Final = range(-1_000, 16_384)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """How the values of a place in a document are written.

    Attributes:
        time_units: of numbers. The end of a path that is longest counts; of those for all fields, ``days`` is for dates alone, and
            the others are for timestamps.
        decimal_formats: of texts.
        variant_numbers: what numbers become that VARIANT's decimals cannot hold.
        path: of the place, from the document on; items of arrays and maps have that of the array or map.
    """

    time_units: Choices[TimeUnit] = ()
    decimal_formats: Choices[DecimalFormat] = ()
    variant_numbers: VariantNumbers = "double"
    path: tuple[str, ...] = (ROOT,)

    def within(self, name: str) -> Encodings:
        """Return those of a field."""
        return replace(self, path=(*self.path, name))

    @property
    def differ(self) -> bool:
        """Return whether fields of different names may differ."""
        return any(path for path, _ in (*self.time_units, *self.decimal_formats))

    @property
    def timestamp_unit(self) -> TimeUnit | None:
        return _chosen([unit for unit in self.time_units if unit[0] or unit[1] != "days"], self.path)

    @property
    def date_unit(self) -> TimeUnit | None:
        return _chosen([unit for unit in self.time_units if unit[0] or unit[1] == "days"], self.path)

    @property
    def decimal_format(self) -> DecimalFormat | None:
        return _chosen(self.decimal_formats, self.path)


#: Nothing is said of numbers and texts.
UNKNOWN: Final = Encodings()


def encodings_of(
    time_unit: TimeUnit | Mapping[str, TimeUnit] | None,
    decimal_format: DecimalFormat | Mapping[str, DecimalFormat] | None,
) -> Encodings:
    """Return the encodings of all fields, or of fields by their names, of which an empty one stands for all others."""
    return Encodings(time_units=_choices(time_unit), decimal_formats=_choices(decimal_format))


def _choices(chosen: Any) -> Any:
    by_name = {} if chosen is None else chosen if isinstance(chosen, Mapping) else {"": chosen}
    return tuple((tuple(name.split(".")) if name else (), choice) for name, choice in by_name.items())


def _chosen(choices: Iterable[tuple[tuple[str, ...], ChoiceT]], path: tuple[str, ...]) -> ChoiceT | None:
    matching = [(len(end), choice) for end, choice in choices if not end or path[-len(end) :] == end]
    return max(matching)[1] if matching else None


def timestamp_of_number(number: int | Decimal, unit: TimeUnit | None) -> int | None:
    """Return microseconds since 1970; None for an infinity. Raises DecodeError."""
    if unit is None:
        raise _without_unit("a timestamp", "milliseconds")
    return micros_of(number, unit)


def date_of_number(number: int | Decimal, unit: TimeUnit | None) -> int | None:
    """Return days since 1970; None for an infinity. Raises DecodeError."""
    if unit is None:
        raise _without_unit("a date", "days")
    return days_of(number, unit)


def _without_unit(wanted: str, example: str) -> DecodeError:
    return DecodeError(
        f"a number where {wanted} is expected, and its unit is unknown: name it in the option valueTimeUnit (keyTimeUnit for "
        f"keys), such as {example}"
    )


def check_is_number(text: str) -> None:
    """Raise DecodeError for the text of a decimal of which nobody has said that it is digits, and that may be base64."""
    if _AMBIGUOUS.fullmatch(text):
        raise DecodeError(
            "a text that is both a number and base64, as Kafka Connect writes decimals, where a decimal is expected: set the "
            "option valueDecimalFormat (keyDecimalFormat for keys) to numeric or base64"
        )


def decimal_of_base64(text: str, scale: int) -> Decimal:
    """Return the decimal of ``org.apache.kafka.connect.data.Decimal``: base64 of the big-endian two's complement of the
    unscaled number.

    Raises:
        DecodeError: the text is not base64, or has more bytes than any decimal's.
    """
    try:
        unscaled = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError(
            "text that is not base64 where a decimal's bytes are expected (valueDecimalFormat=base64)"
        ) from None
    return decimal_of_bytes(unscaled, scale)


def decimal_of_bytes(unscaled: bytes, scale: int) -> Decimal:
    """Return the same of the bytes. Raises DecodeError."""
    if not 0 < len(unscaled) <= _MAX_BYTES:
        raise DecodeError("a decimal without digits, or with more than any type holds")
    return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _CONTEXT)


def decimal_of_struct(value: dict[str, Any]) -> Decimal:
    """Return the decimal of ``io.debezium.data.VariableScaleDecimal``: ``{"scale": 2, "value": "BNI="}``. Raises DecodeError."""
    scale, text = value.get("scale"), value.get("value")
    if type(scale) is not int or scale not in SCALES or not isinstance(text, str) or len(value) != 2:
        raise DecodeError("a struct where a decimal is expected")
    return decimal_of_base64(text, scale)
