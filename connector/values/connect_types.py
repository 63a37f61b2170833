"""The types of Kafka Connect and of Debezium, by the names that their converters give them: what the formats' own types do not say.

Owns the table of these types, and what their numbers count, for all formats: Connect's ``schema.name`` is ``connect.name`` in
Avro, and ``title`` in JSON Schema. https://debezium.io/documentation/reference/stable/connectors/postgresql.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from pykafka_wire.values.numeric_times import TimeUnit

#: What a value is, whatever it is written as.
Kind = Literal["date", "timestamp", "time", "json", "decimal"]

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
_NUMBERS: Final = frozenset({"int", "long"})
_TEXT: Final = frozenset({"string"})
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_LOCAL: Final = pa.timestamp("us")
_TIME: Final = pa.time64("ns")


@dataclass(frozen=True, slots=True)
class ConnectType:
    """
    Attributes:
        carriers: the types, as Avro names them, that it may stand on.
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
    VARIABLE_DECIMAL: ConnectType("decimal", frozenset({"record"}), pa.string()),
}
