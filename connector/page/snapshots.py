"""What a page shows beside the status of an ingest's tables, as values: the ingest, and what one table's own log holds.

Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pykafka_wire.ingest_status import IngestStatus, TableSize, TableStatus

IngestState = Literal["starting", "running", "ended", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFigures:
    """What processes use.

    Attributes:
        cpu: cores in use, 1.0 for one, since the last time that it was asked for.
        memory_bytes: resident.
        processes: how many they are.
    """

    cpu: float
    memory_bytes: int
    processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSnapshot:
    """An ingest as it is now: its status, and what only a page shows.

    Attributes:
        status: of the ingest and its tables; errors as the page may show them.
        name: of the ingest, for people.
        settings: all that were set, as text, secrets masked.
        sizes: of tables, by their keys, as far as their logs show them.
        bytes_written: of data files, as far as commits were looked at; only its growth means something.
        bytes_read: that tasks have received from brokers since the start.
        processes: by name: ``driver`` (this Python process), ``java`` (Spark's), ``tasks`` (Spark's Python workers here).
    """

    status: IngestStatus
    name: str
    state: IngestState
    started_at: float | None
    error: str | None
    topics: str
    into: str
    checkpoint: str
    registry: str | None
    brokers: tuple[str, ...]
    versions: Mapping[str, str]
    settings: Mapping[str, str]
    sizes: Mapping[str, TableSize] = field(default_factory=dict)
    bytes_written: int | None = None
    bytes_read: int | None = None
    processes: Mapping[str, ProcessFigures] = field(default_factory=dict)

    @property
    def tables(self) -> Sequence[TableStatus]:
        return self.status.tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        since: when it was added; None where the log that is kept begins later.
        version: of the table, with it.
    """

    name: str
    type: str
    since: float | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """What one commit did to a table's columns.

    Attributes:
        changes: each with ``kind`` (``added``, ``removed`` or ``widened``), ``column``, ``type`` and, if it was widened, ``from``.
        schema_id: of the registry's schema, as text, from the first commit of rows that was written by it.
    """

    version: int
    at: float
    changes: tuple[Mapping[str, str], ...]
    schema_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of a table.

    Attributes:
        operation: the format's name of it, such as ``WRITE`` or ``MERGE``; ``COMPACTION`` of the ingest itself.
        rows, files, bytes: that it added; None where its log does not show them.
        micro_batch, start, end: of a commit of the ingest: offsets by partition, half-open.
    """

    version: int
    at: float
    operation: str
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    micro_batch: int | None = None
    schema_id: str | None = None
    start: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A record that could not be read.

    Attributes:
        value: what can be shown of it, None where values are not to be shown.
        size: of the value in bytes, None of a record without one.
    """

    partition: int
    offset: int
    at: float | None
    reason: str
    micro_batch: int
    size: int | None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """What a table's log and the rejects hold, the newest first.

    Attributes:
        is_whole: whether the log was read from the table's first commit on.
        problem: why something of it is missing, None if nothing is.
    """

    columns: tuple[Column, ...] = ()
    changes: tuple[SchemaChange, ...] = ()
    commits: tuple[Commit, ...] = ()
    rejects: tuple[Reject, ...] = ()
    is_whole: bool = True
    problem: str | None = None


class PageSource(Protocol):
    """Where a page has its snapshots from. Every method may be called from any thread."""

    def snapshot(self, *, is_watched: bool) -> IngestSnapshot:
        """Return the ingest now; asks neither brokers nor Spark's executors, and returns soon.

        Args:
            is_watched: somebody looks at the page, so that what costs a little is renewed, such as the sizes of tables.
        """

    def queries(self, topic: str) -> Mapping[str, str]:
        """Return how to query a topic's table, by the program: ``Spark SQL``, ``PySpark``, ``Polars``, ``pyiceberg``."""

    def history(self, topic: str) -> TableHistory:
        """Return what the table's log holds. May take seconds."""

    def close(self) -> None:
        """End: no more is asked."""


def as_json(value: Any) -> Any:  # Any: a tree of these dataclasses, and what JSON can hold
    """Return a snapshot as values of JSON: objects, lists, texts, numbers; the names of fields are the keys."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_json(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value
