"""The types of Kafka Connect and of Debezium that Avro's own types do not say: a schema's ``connect.name``.

Owns the table of these types, and what their numbers count. https://debezium.io/documentation/reference/stable/connectors/postgresql.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from pykafka_wire.values.avro.schema import CONNECT_TYPE, Schema, kind_of, logical_of
from pykafka_wire.values.numeric_times import TimeUnit

#: What a value is, whatever it is written as.
Kind = Literal["date", "timestamp", "time", "json", "decimal"]

_NUMBERS: Final = frozenset({"int", "long"})
_TEXT: Final = frozenset({"string"})
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_LOCAL: Final = pa.timestamp("us")
_TIME: Final = pa.time64("ns")


@dataclass(frozen=True, slots=True)
class ConnectType:
    """
    Attributes:
        carriers: the kinds of Avro's types that it may stand on.
        type: of its column.
        unit: what its numbers count; None for texts.
    """

    kind: Kind
    carriers: frozenset[str]
    type: pa.DataType
    unit: TimeUnit | None = None


CONNECT_TYPES: Final[dict[str, ConnectType]] = {
    "org.apache.kafka.connect.data.Date": ConnectType("date", _NUMBERS, pa.date32(), "days"),
    "org.apache.kafka.connect.data.Time": ConnectType("time", _NUMBERS, _TIME, "milliseconds"),
    "org.apache.kafka.connect.data.Timestamp": ConnectType("timestamp", _NUMBERS, _INSTANT, "milliseconds"),
    "io.debezium.time.Date": ConnectType("date", _NUMBERS, pa.date32(), "days"),
    "io.debezium.time.Time": ConnectType("time", _NUMBERS, _TIME, "milliseconds"),
    "io.debezium.time.MicroTime": ConnectType("time", _NUMBERS, _TIME, "microseconds"),
    "io.debezium.time.NanoTime": ConnectType("time", _NUMBERS, _TIME, "nanoseconds"),
    "io.debezium.time.Timestamp": ConnectType("timestamp", _NUMBERS, _LOCAL, "milliseconds"),
    "io.debezium.time.MicroTimestamp": ConnectType("timestamp", _NUMBERS, _LOCAL, "microseconds"),
    "io.debezium.time.NanoTimestamp": ConnectType("timestamp", _NUMBERS, _LOCAL, "nanoseconds"),
    "io.debezium.time.ZonedTimestamp": ConnectType("timestamp", _TEXT, _INSTANT),
    "io.debezium.time.IsoDate": ConnectType("date", _TEXT, pa.date32()),
    "io.debezium.time.IsoTimestamp": ConnectType("timestamp", _TEXT, _LOCAL),
    "io.debezium.data.Json": ConnectType("json", _TEXT, pa.string()),
    "io.debezium.data.VariableScaleDecimal": ConnectType("decimal", frozenset({"record"}), pa.string()),
}
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
    return ConnectType(wanted.kind, wanted.carriers, wanted.type, unit if kind == wanted.kind and unit else wanted.unit)


def _of_logical_type(definition: Schema) -> tuple[str, TimeUnit | None]:
    logical = logical_of(definition)
    if logical == "date":
        return "date", "days"
    name, _, unit = logical.rpartition("-")
    return name.removeprefix("local-"), _UNITS.get(unit)
