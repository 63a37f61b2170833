"""Kafka Connect's logical types, its own and Debezium's: what a name in a schema says of the number or text beneath.

One table for all formats: the names are those of Connect's ``schema.name``, which Avro has as ``connect.name``.
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykafka_wire.values.numeric_times import INFINITE, TimeUnit

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalType:
    """
    Attributes:
        ddl: the column's type. A time of day is BIGINT, microseconds since midnight: Delta has no type of it.
        unit: of the number beneath: ``days``, ``ms``, ``us`` or ``ns``; ``text`` for ISO-8601.
    """

    ddl: str
    unit: str


_CONNECT: Final = "org.apache.kafka.connect.data."
_DEBEZIUM: Final = "io.debezium.time."
#: A timestamp without a time zone is TIMESTAMP_NTZ, as in the database. Connect's own Timestamp is a moment.
LOGICAL_TYPES: Final = {
    name: LogicalType(ddl=ddl, unit=unit)
    for name, ddl, unit in (
        (_CONNECT + "Date", "DATE", "days"),
        (_CONNECT + "Timestamp", "TIMESTAMP", "ms"),
        (_CONNECT + "Time", "BIGINT", "ms"),
        (_DEBEZIUM + "Date", "DATE", "days"),
        (_DEBEZIUM + "Timestamp", "TIMESTAMP_NTZ", "ms"),
        (_DEBEZIUM + "MicroTimestamp", "TIMESTAMP_NTZ", "us"),
        (_DEBEZIUM + "NanoTimestamp", "TIMESTAMP_NTZ", "ns"),
        (_DEBEZIUM + "Time", "BIGINT", "ms"),
        (_DEBEZIUM + "MicroTime", "BIGINT", "us"),
        (_DEBEZIUM + "NanoTime", "BIGINT", "ns"),
        (_DEBEZIUM + "ZonedTimestamp", "TIMESTAMP", "text"),
        (_DEBEZIUM + "IsoTimestamp", "TIMESTAMP_NTZ", "text"),
        (_DEBEZIUM + "IsoDate", "DATE", "text"),
    )
}
_UNITS: Final[dict[str, TimeUnit]] = {
    "days": "days", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds",
}  # fmt: skip
#: What Debezium writes for PostgreSQL's ``infinity`` and ``-infinity``, by unit.
INFINITIES: Final = {short: tuple(sorted(INFINITE[unit])) for short, unit in _UNITS.items()}
