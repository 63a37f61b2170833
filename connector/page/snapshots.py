"""The data of a page as values: the ingest, and the log of one table. The status of tables is in :mod:`pykafka_wire.ingest_status`.

Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pykafka_wire.ingest_status import IngestStatus, TableSize, TableStatus

IngestState = Literal["starting", "running", "ended", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFigures:
    """The resource use of processes.

    Attributes:
        cpu: the number of cores in use since the previous measurement.
        memory_bytes: the resident memory.
        processes: the number of processes.
    """

    cpu: float
    memory_bytes: int
    processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSnapshot:
    """The current state of an ingest: its status, and data that only a page shows.

    Attributes:
        status: the status of the ingest and its tables; errors have the form that the page may show.
        name: the ingest's name.
        settings: the settings with non-default values, as text, with masked secrets.
        sizes: the known sizes of tables, by table key.
        bytes_written: the bytes of data files, as far as commits were read; only its growth is meaningful.
        bytes_read: the bytes that tasks have received from brokers since the start.
        processes: the figures by name: ``driver`` (this Python process), ``java`` (Spark's), ``tasks`` (Spark's Python workers
            here).
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
        since: when the column was added; None if the kept part of the log begins later.
        version: the version of the table that added the column.
    """

    name: str
    type: str
    since: float | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """The changes of a table's columns by one commit.

    Attributes:
        changes: the changes, each with ``kind`` (``added``, ``removed`` or ``widened``), ``column``, ``type`` and, if widened,
            ``from``.
        schema_id: the id of the registry's schema, as text, from the first commit of rows that used it.
    """

    version: int
    at: float
    changes: tuple[Mapping[str, str], ...]
    schema_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of a table.

    Attributes:
        operation: the format's name of the operation, such as ``WRITE`` or ``MERGE``; ``COMPACTION`` for a compaction by the
            ingest.
        rows, files, bytes: what the commit added; None if the log does not show it.
        micro_batch, start, end: for a commit of the ingest, its micro-batch and its offsets by partition, half-open.
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
        value: the readable part of the value, None if values must not be shown.
        size: the size of the value in bytes, None for a record without a value.
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
    """The contents of a table's log and its rejects, newest first.

    Attributes:
        is_whole: whether the log was read from the table's first commit on.
        problem: why a part is missing, None if nothing is missing.
        limited_readers: which readers cannot read the table as it is, as sentences.
    """

    columns: tuple[Column, ...] = ()
    changes: tuple[SchemaChange, ...] = ()
    commits: tuple[Commit, ...] = ()
    rejects: tuple[Reject, ...] = ()
    is_whole: bool = True
    problem: str | None = None
    limited_readers: tuple[str, ...] = ()


class PageSource(Protocol):
    """The source of a page's snapshots. Thread-safe."""

    def snapshot(self, *, is_watched: bool) -> IngestSnapshot:
        """Return the current state of the ingest quickly, without asking brokers or Spark's executors.

        Args:
            is_watched: whether somebody watches the page, so that costly figures such as sizes of tables are updated.
        """

    def queries(self, topic: str) -> Mapping[str, str]:
        """Return example queries of a topic's table, by program: ``Spark SQL``, ``PySpark``, ``Polars``, ``pyiceberg``."""

    def history(self, topic: str) -> TableHistory:
        """Return the contents of the table's log. May take seconds."""

    def close(self) -> None:
        """Release resources. No further method is called."""


def as_json(value: Any) -> Any:  # Any: a tree of these dataclasses; the result is a JSON value
    """Return a snapshot as JSON values; field names become keys."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_json(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value
