"""The types of Kafka Connect and of Debezium in Avro: a schema's ``connect.name``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pykafka_wire.values.avro.schema import CONNECT_TYPE, Schema, kind_of, logical_of
from pykafka_wire.values.connect_types import CONNECT_TYPES, ConnectType
from pykafka_wire.values.numeric_times import TimeUnit

_UNITS: Final[dict[str, TimeUnit]] = {"millis": "milliseconds", "micros": "microseconds", "nanos": "nanoseconds"}


def connect_type_of(definition: Schema) -> ConnectType | None:
    """The type by Connect's name; None where it has none, or one that changes nothing."""
    if isinstance(definition, (str, list)):
        return None
    found = CONNECT_TYPES.get(str(definition.get(CONNECT_TYPE)))
    return found if found is not None and kind_of(definition) in found.carriers else None


def counted_by(written: Schema, read: Schema) -> ConnectType | None:
    """The type of a number by which it is read, with the unit that it was written in; None where Connect names neither.

    The number that was written keeps its meaning under a reader's schema with another unit.
    """
    own, wanted = connect_type_of(written), connect_type_of(read)
    if wanted is None or wanted.unit is None:
        return None
    kind, unit = (own.kind, own.unit) if own is not None else _of_logical_type(written)
    return replace(wanted, unit=unit) if kind == wanted.kind and unit else wanted


def _of_logical_type(definition: Schema) -> tuple[str, TimeUnit | None]:
    logical = logical_of(definition)
    if logical == "date":
        return "date", "days"
    name, _, unit = logical.rpartition("-")
    return name.removeprefix("local-"), _UNITS.get(unit)
