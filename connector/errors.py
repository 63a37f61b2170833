"""The errors of Spark's side. Each message begins with a stable code.

Spark wraps a Python error in an error condition of its own, and only the text survives. So users search for the code
(``PYKAFKA_WIRE_…``), and alarms match it. Every error is picklable, because it crosses Spark's process borders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from pykafka_wire.wire.topic_partitions import TopicPartition


class ConnectorError(Exception):
    """Root of the connector's own errors; ``code`` is stable, the text may improve."""

    code = "PYKAFKA_WIRE"

    def __init__(self, message: str) -> None:
        super().__init__(f"[{self.code}] {message}")
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:  # Any: pickle's own protocol
        return (type(self), (self.message,))


class OptionError(ConnectorError):
    """An option is missing, unknown, malformed, or contradicts another one. Raised before any request to a broker."""

    code = "PYKAFKA_WIRE_OPTION"


class SchemaError(ConnectorError):
    """A column that the source does not have, or a schema that the sink cannot write."""

    code = "PYKAFKA_WIRE_SCHEMA"


class OffsetsError(ConnectorError):
    """Offsets that do not match the topic's partitions, or a checkpoint that this version cannot read."""

    code = "PYKAFKA_WIRE_OFFSETS"


class WriteError(ConnectorError):
    """A row that cannot be written as a Kafka record."""

    code = "PYKAFKA_WIRE_WRITE"


class ExactlyOnceError(ConnectorError):
    """A micro-batch that could not be committed exactly once: it was not written, or the marker decides on restart."""

    code = "PYKAFKA_WIRE_EXACTLY_ONCE"


class LedgerError(ConnectorError):
    """Lost ranges that could not be written to ``dataLossLedger``."""

    code = "PYKAFKA_WIRE_LEDGER"


class ValueFormatError(ConnectorError):
    """A value that does not match its format or schema, under ``on_error="fail"`` (``pykafka_wire.functions``)."""

    code = "PYKAFKA_WIRE_VALUE"


class RegistryError(ConnectorError):
    """A schema registry that does not respond, or rejects the credentials. It says nothing about any value."""

    code = "PYKAFKA_WIRE_REGISTRY"


class UnreachableRegistryError(RegistryError):
    """A schema registry that does not respond: no other request to it succeeds now."""


class IngestError(ConnectorError):
    """An ingest that cannot start, or a table that cannot go on."""

    code = "PYKAFKA_WIRE_INGEST"


class ColumnConflictError(IngestError):
    """A column of a table cannot store the values that its topic now has, and cannot get a type that can."""

    code = "PYKAFKA_WIRE_COLUMN_CONFLICT"


class UnfitRecordsError(IngestError):
    """The table cannot take records beside its others. Some of the records may be the cause, or all of them."""


class MissingLibraryError(ConnectorError):
    """A library of an extra is not installed where it is needed."""

    code = "PYKAFKA_WIRE_NOT_INSTALLED"


class DecodeError(Exception):
    """One value, or its schema, cannot be read. Internal to ``pykafka_wire.values``: ``on_error`` decides what the user sees."""


#: Python's errors of this process and its machine, such as a lack of memory, which say nothing about the value that is being read.
ENVIRONMENT_ERRORS: Final = (MemoryError, OSError, ImportError)


class EncodeError(Exception):
    """Rows of a column that its schema cannot hold. Internal to ``pykafka_wire.values``, as :class:`DecodeError` is.

    Attributes:
        reasons: row number -> field path and reason, such as ``items[].price: more than 9 digits``; no value. At least one row;
            rows that are not named may not fit, either.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(reasons)
        self.reasons = dict(reasons)


class Loss(Enum):
    """The cause of a data loss; the names follow Spark's own connector."""

    PARTITIONS_DELETED = "partitions of the checkpoint no longer exist"
    ADDED_PARTITION_DOES_NOT_START_FROM_ZERO = "the first records of a new partition were deleted before they were read"
    INITIAL_OFFSET_NOT_FOUND = "a new topic-partition was deleted before its first offset was known"
    START_OFFSET_OUT_OF_RANGE = "the first offsets of the range were deleted by retention"
    OFFSETS_CHANGED = "the log ends before the offsets of the checkpoint"
    LOG_TRUNCATED = "an unclean leader election truncated the log below what was read"
    TOPIC_RECREATED = "the topic was deleted and created again under the same name"
    RANGE_UNREADABLE = "a part of the range can no longer be read"


#: Losses that a longer retention prevents, and the advice for them.
_BY_RETENTION: Final = (Loss.START_OFFSET_OUT_OF_RANGE, Loss.ADDED_PARTITION_DOES_NOT_START_FROM_ZERO)
_LONGER: Final = "; to keep records for longer, raise the topic's retention"


class DataLossError(ConnectorError):
    """Records that the query had to read no longer exist.

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
            f"{describe_loss(loss, self.lost, detail)}. To continue without these records, set the option failOnDataLoss "
            f"to false{_LONGER if loss in _BY_RETENTION else ''}; or start a new query with a new checkpoint."
        )
        self.code_suffix = loss.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (DataLossError, (self.loss, [(tuple(tp), s, e) for tp, s, e in self.lost], self.detail))


def describe_loss(loss: Loss, lost: Iterable[tuple[TopicPartition, int, int]], detail: str = "") -> str:
    """Return the text of a data loss, for the error and the log."""

    def span(start: int, end: int) -> str:
        return "" if start < 0 and end < 0 else f" [{start}, {'…' if end < 0 else end})"

    ranges = [f"{tp}{span(start, end)}" for tp, start, end in lost]
    shown = ", ".join(ranges[:20]) + (f" and {len(ranges) - 20} more" if len(ranges) > 20 else "")
    return f"{loss.name}: {loss.value}: {shown}" + (f" ({detail})" if detail else "")
