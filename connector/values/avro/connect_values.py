"""Values of Kafka Connect's and Debezium's types that are texts or records: as dates, timestamps, decimals and variants.

One by one a function returns the value, and raises DecodeError; of a column it returns the column, and which elements failed.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.arrow_conversion import conversion_to
from pykafka_wire.values.avro.connect_names import connect_type_of
from pykafka_wire.values.avro.schema import Schema
from pykafka_wire.values.bulk.arrays import Flags, array_of
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.numeric_times import END_DAY, FIRST_DAY, INFINITE_TEXTS
from pykafka_wire.values.single_json.encodings import SCALES, decimal_of_bytes
from pykafka_wire.values.single_json.text import date_days, local_timestamp_micros, timestamp_micros

#: ``io.debezium.data.VariableScaleDecimal``.
VARIABLE_DECIMAL: Final = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
_DAY_MICROS: Final = 86_400_000_000


def is_variable_decimal(definition: Schema) -> bool:
    """Return whether a record is a decimal with a scale of its own."""
    connect_type = connect_type_of(definition)
    return (
        connect_type is not None
        and connect_type.kind == "decimal"
        and {field["name"] for field in definition["fields"]} == {"scale", "value"}
    )


def decimal_of_struct(value: dict[str, Any]) -> Decimal:
    """Return the decimal of a struct. Raises DecodeError."""
    scale, unscaled = value["scale"], value["value"]
    if not isinstance(scale, int) or not isinstance(unscaled, bytes) or scale not in SCALES:
        raise DecodeError("a decimal without a scale or digits, or with more than any type holds")
    return decimal_of_bytes(unscaled, scale)


def decimal_conversion(wanted: pa.DataType) -> Callable[[Decimal], Any]:
    """Return a decimal as text with all of its digits, without an exponent, or as another type."""
    return (lambda number: f"{number:f}") if pa.types.is_string(wanted) else conversion_to(wanted)


def time_of_text(text: str, wanted: pa.DataType) -> int | None:
    """Return days or microseconds since 1970; None for an infinity. Raises DecodeError."""
    if text in INFINITE_TEXTS:
        return None
    if pa.types.is_date32(wanted):
        moment = date_days(text.removesuffix("Z"))
    else:
        moment = timestamp_micros(text) if wanted.tz else local_timestamp_micros(text.removesuffix("Z"))
    if moment is None:
        raise DecodeError("text where a time (ISO-8601) is expected")
    per_day = 1 if pa.types.is_date32(wanted) else _DAY_MICROS
    if not FIRST_DAY * per_day <= moment < END_DAY * per_day:
        raise DecodeError("a time beyond the years 1 to 9999")
    return moment


def decimals_of_structs(structs: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Flags | None]:
    convert = decimal_conversion(wanted)
    return _one_by_one(structs, wanted, lambda value: convert(decimal_of_struct(value)))


def times_of_texts(texts: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Flags | None]:
    try:
        times = (texts if wanted == pa.timestamp("us", tz="UTC") else pc.utf8_rtrim(texts, "Z")).cast(wanted)
    except pa.ArrowInvalid:  # an infinity, or more digits of a second than Arrow's type has
        times = None
    # Arrow's years have four digits: of the others there is the year 0 alone.
    if times is None or pc.any(pc.less(times, _first(wanted))).as_py():
        return _one_by_one(texts, wanted, lambda text: time_of_text(text, wanted))
    return times, None


def _first(wanted: pa.DataType) -> pa.Scalar:
    """Return the first date or timestamp of the year 1."""
    number, kind = (FIRST_DAY, pa.int32()) if pa.types.is_date32(wanted) else (FIRST_DAY * _DAY_MICROS, pa.int64())
    return pa.scalar(number, kind).cast(wanted)


def variants_of_texts(texts: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Flags | None]:
    if not len(texts):
        return array_of(wanted)([]), None
    from pykafka_wire.values.json.variant_columns import VariantReader  # which needs the types of all JSON

    column, failed = VariantReader(wanted).read_column(Payloads.of(texts.view(pa.binary())))
    return column, failed if failed.any() else None


def _one_by_one(values: pa.Array, wanted: pa.DataType, convert: Callable[[Any], Any]) -> tuple[pa.Array, Flags | None]:
    made: list[Any] = []
    wrong = np.zeros(len(values), dtype=np.bool_)
    for nth, value in enumerate(values):
        try:
            made.append(convert(value.as_py()) if value.is_valid else None)
        except (DecodeError, UnicodeDecodeError):
            made.append(None)
            wrong[nth] = True
    return array_of(wanted)(made), wrong if wrong.any() else None
