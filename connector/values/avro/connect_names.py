"""The types of Kafka Connect and of Debezium in Avro: a schema's ``connect.name``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pykafka_wire.values.avro.schema import CONNECT_TYPE, Schema, kind_of, logical_of
from pykafka_wire.values.connect_types import CONNECT_TYPES, ConnectType
from pykafka_wire.values.numeric_times import TimeUnit

_UNITS: Final[dict[str, TimeUnit]] = {"millis": "milliseconds", "micros": "microseconds", "nanos": "nanoseconds"}


def connect_type_of(definition: Schema) -> ConnectType | None:
    """Return the type by Connect's name; None where it has none, or one that changes nothing."""
    if isinstance(definition, (str, list)):
        return None
    connect_type = CONNECT_TYPES.get(str(definition.get(CONNECT_TYPE)))
    return connect_type if connect_type is not None and kind_of(definition) in connect_type.carriers else None


def meaning_of(definition: Schema) -> str:
    """Return what a value is, by Connect's name or else by the logical type: ``date``, ``time``, ``timestamp`` or ``decimal``.
    Empty for a plain number, text or bytes.
    """
    if (connect_type := connect_type_of(definition)) is not None:
        return "" if connect_type.kind == "json" else connect_type.kind
    kind, unit = unit_of(definition)
    return kind if unit is not None else "decimal" if logical_of(definition) == "decimal" else ""


def counted_by(written: Schema, read: Schema) -> ConnectType | None:
    """Return the type of a number by which it is read, with the unit that it was written in; None where Connect names neither.

    The number that was written keeps its meaning under a reader's schema with another unit.
    """
    wanted = connect_type_of(read)
    if wanted is None or wanted.unit is None:
        return None
    kind, unit = unit_of(written)
    return replace(wanted, unit=unit) if kind == wanted.kind and unit else wanted


def unit_of(definition: Schema) -> tuple[str, TimeUnit | None]:
    """Return what a number is, ``date``, ``time`` or ``timestamp``, and its unit; None for any other value."""
    if (connect_type := connect_type_of(definition)) is not None:
        return connect_type.kind, connect_type.unit
    logical = logical_of(definition)
    if logical == "date":
        return "date", "days"
    name, _, unit = logical.rpartition("-")
    return name.removeprefix("local-"), _UNITS.get(unit)
