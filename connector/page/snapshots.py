"""What a page shows, as values: an ingest, its tables, and what one table's own log holds. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

TableState = Literal["stopped", "retrying", "starting", "landing", "waiting", "current"]
IngestState = Literal["starting", "running", "ended", "failed"]
#: States of a table, the worst one first: how a page sorts them.
STATES: Final[tuple[TableState, ...]] = ("stopped", "retrying", "starting", "landing", "waiting", "current")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a table does not land.

    Attributes:
        code: the error's, such as ``PYKAFKA_WIRE_INGEST``; empty without one.
        text: the whole error, remedy included.
        since: when it failed for the first time; None if unknown.
        attempts: how often it was tried since then.
        next_attempt_at: of a stopped table: it is tried sooner when what stops it has changed.
    """

    code: str
    text: str
    since: float | None = None
    attempts: int = 1
    next_attempt_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """One partition of a topic.

    Attributes:
        position: the next offset to land, None until the table was looked at.
        log_end: the end of the partition's log, None until it is known.
        landed: offsets that were landed since the ingest was started.
    """

    partition: int
    position: int | None
    log_end: int | None
    landed: int = 0

    @property
    def lag(self) -> int | None:
        """Return records of the log that the table does not have, None while either end is unknown."""
        if self.position is None or self.log_end is None:
            return None
        return max(0, self.log_end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """One table of an ingest.

    Attributes:
        topic: with a colon and the table's name behind it, where several tables take parts of the topic's records.
        place: the table's folder, or its name in a catalog.
        freshness_s: how old the oldest record is that the table lacks, in seconds, 0 where it lacks none; None while it is unknown.
        lag: records of the topic that the table lacks; None while it is unknown.
        rows, rejects, commits: since the ingest was started.
        held_rejects: what the table of rejects has of this table, those of earlier runs among them.
        untaken: records since the start that none of the topic's tables takes; the first of these tables counts them.
        seconds: of work for this table since then.
        landed_at: when rows were last landed.
        schema_id: of the registry, as text.
        files, bytes: of the table; None where its log does not show them.
        waits_until: when a topic that waits for more records (``min_rows``) is landed at the latest.
    """

    topic: str
    table: str
    place: str
    mode: str
    format: str
    state: TableState
    trouble: Trouble | None = None
    freshness_s: float | None = None
    lag: int | None = None
    rows: int = 0
    rejects: int = 0
    held_rejects: int = 0
    untaken: int = 0
    commits: int = 0
    seconds: float = 0.0
    landed_at: float | None = None
    schema_id: str | None = None
    files: int | None = None
    bytes: int | None = None
    waits_until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMicroBatch:
    """One micro-batch of the query.

    Attributes:
        started_at: when its trigger fired.
        rows: offsets that it has planned, over all topics.
        seconds: of the whole trigger.
        phases: seconds by phase: ``planning``, ``landing`` and ``committing``.
        landing: its seconds, divided as its tasks' time was: ``fetching`` (and decoding), ``writing`` (all else); None where no
            task has reported.
        bytes_read: that its tasks have received from brokers, None as ``landing``.
    """

    number: int
    started_at: float
    rows: int
    seconds: float
    phases: Mapping[str, float]
    landing: Mapping[str, float] | None = None
    bytes_read: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBatch:
    """The micro-batch that is being landed.

    Attributes:
        planned: records that tables had to get when it began.
        landed: those of them that tables have.
    """

    number: int
    started_at: float
    planned: int
    landed: int


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
    """An ingest as it is now.

    Attributes:
        name: of the ingest, for people.
        running: the micro-batch of this moment, None between two of them.
        brokers_silent_s: for so long brokers have been asked for new records without a response; None while they respond.
        settings: all that were set, as text, secrets masked.
        bytes_written: of data files, as far as commits were looked at; only its growth means something.
        bytes_read: that tasks have received from brokers since the start.
        processes: by name: ``driver`` (this Python process), ``java`` (Spark's), ``tasks`` (Spark's Python workers here).
    """

    at: float
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
    tables: tuple[TableSnapshot, ...]
    micro_batches: tuple[ShownMicroBatch, ...] = ()
    running: RunningBatch | None = None
    brokers_silent_s: float | None = None
    bytes_written: int | None = None
    bytes_read: int | None = None
    processes: Mapping[str, ProcessFigures] = field(default_factory=dict)


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
        operation: Delta's name of it, such as ``WRITE`` or ``MERGE``.
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

    def partitions(self, topic: str) -> tuple[PartitionSnapshot, ...]:
        """Return the partitions of one topic of the snapshot."""

    def queries(self, topic: str) -> Mapping[str, str]:
        """Return how to query a topic's table, by the program: ``Spark SQL``, ``PySpark``, ``DuckDB``, ``pyiceberg``."""

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
