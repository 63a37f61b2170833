"""What goes wrong on Spark's side, each with a stable code at the head of its message.

Spark wraps a Python error in a condition of its own, and only the text survives: the code (``PYKAFKA_WIRE_…``) is what
a user can search for and an alarm can match. Every error is picklable, for it crosses Spark's process borders.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from pykafka_wire.wire.topics import TopicPartition


class ConnectorError(Exception):
    """Root of the connector's own errors; ``code`` is stable, the text may improve."""

    code = "PYKAFKA_WIRE"

    def __init__(self, message: str) -> None:
        super().__init__(f"[{self.code}] {message}")
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:  # Any: pickle's own protocol
        return (type(self), (self.message,))


class OptionError(ConnectorError):
    """An option is missing, unknown, malformed or contradicts another one. Raised before any broker is asked."""

    code = "PYKAFKA_WIRE_OPTION"


class SchemaError(ConnectorError):
    """A column that the source does not have, or that the sink cannot write."""

    code = "PYKAFKA_WIRE_SCHEMA"


class OffsetsError(ConnectorError):
    """Offsets that fit the topic's partitions in no way, or a checkpoint that this version cannot read."""

    code = "PYKAFKA_WIRE_OFFSETS"


class RecordError(ConnectorError):
    """A record that Kafka keeps and no row of Spark can hold."""

    code = "PYKAFKA_WIRE_RECORD"


class WriteError(ConnectorError):
    """Rows that cannot become Kafka records."""

    code = "PYKAFKA_WIRE_WRITE"


class ExactlyOnceError(ConnectorError):
    """A micro-batch that could not be committed exactly once. Nothing of it is visible, or a marker says that it is."""

    code = "PYKAFKA_WIRE_EXACTLY_ONCE"


class LedgerError(ConnectorError):
    """Lost ranges that could not be written to ``dataLossLedger``."""

    code = "PYKAFKA_WIRE_LEDGER"


class ValueFormatError(ConnectorError):
    """A value that is not what its format or its schema says, under ``on_error="fail"`` (``pykafka_wire.values``)."""

    code = "PYKAFKA_WIRE_VALUE"


class RegistryError(ConnectorError):
    """A schema registry that does not answer, or lets nobody in. No value is judged by it."""

    code = "PYKAFKA_WIRE_REGISTRY"


class MissingLibraryError(ConnectorError):
    """A library behind an extra is not installed where it is needed."""

    code = "PYKAFKA_WIRE_NOT_INSTALLED"


class PoisonError(Exception):
    """Why one value cannot be read or written. Within ``pykafka_wire.values``: the policy makes of it what the user sees."""


class Loss(Enum):
    """How records were lost between two looks at the log; the names follow Spark's own connector."""

    PARTITIONS_DELETED = "partitions of the checkpoint are gone"
    ADDED_PARTITION_DOES_NOT_START_FROM_ZERO = "a new partition's first records are gone"
    INITIAL_OFFSET_NOT_FOUND = "a new topic-partition was gone before its first offset was known"
    START_OFFSET_OUT_OF_RANGE = "the first offsets of the range have aged out"
    OFFSETS_CHANGED = "the log ends before the offsets that the checkpoint holds"
    LOG_TRUNCATED = "an unclean leader election truncated the log below what was read"
    TOPIC_RECREATED = "the topic was deleted and created again under the same name"
    RANGE_UNREADABLE = "a part of the range can no longer be read"


class DataLossError(ConnectorError):
    """Records that the query was to read no longer exist.

    Attributes:
        loss: the cause.
        lost: what is missing, ``(topic_partition, first lost offset, end of the lost range)``; -1 where unknown.
    """

    code = "PYKAFKA_WIRE_DATA_LOSS"

    def __init__(self, loss: Loss, lost: Iterable[tuple[TopicPartition, int, int]], detail: str = "") -> None:
        self.loss = loss
        self.lost = [(TopicPartition(*tp), start, end) for tp, start, end in lost]
        self.detail = detail
        super().__init__(
            f"{describe_loss(loss, self.lost, detail)}. To go on without these records set the option failOnDataLoss "
            "to false; to keep more of them raise the topic's retention, or start a new query with a new checkpoint."
        )
        self.code_suffix = loss.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (DataLossError, (self.loss, [(tuple(tp), s, e) for tp, s, e in self.lost], self.detail))


def describe_loss(loss: Loss, lost: Iterable[tuple[TopicPartition, int, int]], detail: str = "") -> str:
    """The sentence of a data loss, as the error and the log say it."""

    def span(start: int, end: int) -> str:
        return "" if start < 0 and end < 0 else f" [{start}, {'…' if end < 0 else end})"

    ranges = [f"{tp}{span(start, end)}" for tp, start, end in lost]
    shown = ", ".join(ranges[:20]) + (f" and {len(ranges) - 20} more" if len(ranges) > 20 else "")
    return f"{loss.name}: {loss.value}: {shown}" + (f" ({detail})" if detail else "")
