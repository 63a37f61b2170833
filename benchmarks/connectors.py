"""The connectors that are compared: format names and options, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OURS = "pykafka-wire"
JVM = "JVM connector"
JVM_TUNED = "JVM connector, tuned"
CEILING = "ceiling of the API"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """A data source, and its options beside those of the work itself."""

    name: str
    format: str
    read_options: Mapping[str, str] = field(default_factory=dict)
    write_options: Mapping[str, str] = field(default_factory=dict)

    def reader(self, builder: Any, options: Mapping[str, str]) -> Any:
        """`builder` (a DataFrameReader or a DataStreamReader; pyspark is not checked) for these options."""
        return _configured(builder.format(self.format), {**options, **self.read_options})

    def writer(self, builder: Any, options: Mapping[str, str]) -> Any:
        """`builder` (a DataFrameWriter) for these options."""
        return _configured(builder.format(self.format), {**options, **self.write_options})


#: At its defaults the JVM connector waits half a second at the end of every topic-partition: a long poll in flight
#: stands before its next request. With these it does not, and decoding is what remains.
_TUNED_READ: Mapping[str, str] = {
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.receive.buffer.bytes": str(2 << 20),
}
#: Java's producer makes batches of 16 KiB at its defaults; these are as large as ours may get by themselves.
_TUNED_WRITE: Mapping[str, str] = {
    "kafka.batch.size": str(256 << 10),
    "kafka.linger.ms": "20",
    "kafka.buffer.memory": str(64 << 20),
}

CONNECTORS: tuple[Connector, ...] = (
    Connector(name=OURS, format="pykafka-wire"),
    Connector(name=JVM, format="kafka"),
    Connector(name=JVM_TUNED, format="kafka", read_options=_TUNED_READ, write_options=_TUNED_WRITE),
)


def connector_named(name: str) -> Connector:
    """One of :data:`CONNECTORS`."""
    (connector,) = (other for other in CONNECTORS if other.name == name)
    return connector


def _configured(builder: Any, options: Mapping[str, str]) -> Any:
    for name, value in options.items():
        builder = builder.option(name, value)
    return builder
