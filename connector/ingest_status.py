"""The status of an ingest at one moment: its activity, and the state, freshness, lag and rows of each table.

This is the one model of an ingest's status. A terminal, a page, metrics, ``--json`` and a log render the model; none of them
computes a figure. The caller passes in all values, including the time, so this module asks neither Spark nor brokers nor a clock.
:mod:`pykafka_wire.ingest.watching.watch` creates the statuses of a running ingest.

Points in time are those of :func:`time.monotonic`; :class:`Moment` converts them into seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pykafka_wire.values.registry.registered_schema import RegistryId

Offsets = Mapping[int, int]


class TableState(Enum):
    """The states of a table, the worst first, which is the order of every list of tables. The values are words for people."""

    STOPPED = "stopped"
    RETRYING = "retrying"
    #: Nothing is known about the table and its topic yet.
    STARTING = "starting"
    #: The next three states belong to the running micro-batch: some records are read; all are read; none is read yet.
    LANDING = "landing"
    COMMITTING = "committing"
    QUEUED = "queued"
    BEHIND = "behind"
    #: The topic waits for more records (``min_rows``), or for its first record.
    WAITING = "waiting"
    #: The end of the topic's log is not known yet.
    LANDED = "landed"
    UP_TO_DATE = "up to date"

    @property
    def is_trouble(self) -> bool:
        """Return whether the table has failed and was not landed since."""
        return self in (TableState.STOPPED, TableState.RETRYING)


ORDER: Final = {state: number for number, state in enumerate(TableState)}


#: The share of a table's records in a micro-batch from which on the rate tells when the table has caught up.
_LEAST_SHARE: Final = 0.01


class Activity(Enum):
    """The activity of an ingest. The values are words for people."""

    STARTING = "starting"
    #: The tables get the records that an earlier run has planned.
    CONTINUING = "continuing where the tables ended"
    PLANNING = "planning a micro-batch"
    LANDING = "landing a micro-batch"
    WAITING = "waiting for new records"


@dataclass(frozen=True, slots=True)
class Moment:
    """One point in time, on two clocks.

    Attributes:
        at: the time in seconds since the epoch.
        now: the time of :func:`time.monotonic`.
    """

    at: float
    now: float

    def epoch(self, point: float | None) -> float | None:
        """Return a point of the monotonic clock as seconds since the epoch."""
        return None if point is None else self.at + point - self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a table is retrying or stopped.

    Attributes:
        code: the error's code, such as ``PYKAFKA_WIRE_INGEST``.
        reason: the error's sentence, with the remedy.
        is_stopped: whether another attempt would fail in the same way until something has changed.
        n_failures: the number of successive failed attempts.
        since: the time of the first of these failures.
        next_attempt: when the next attempt is due. A stopped table is retried sooner if the cause has changed.
    """

    code: str
    reason: str
    is_stopped: bool
    n_failures: int
    since: float
    next_attempt: float

    @property
    def state(self) -> TableState:
        return TableState.STOPPED if self.is_stopped else TableState.RETRYING

    def seconds_left(self, moment: Moment) -> float:
        """Return the number of seconds until the next attempt."""
        return max(0.0, self.next_attempt - moment.now)


@dataclass(frozen=True, slots=True)
class TableSize:
    """The number and the bytes of a table's files."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of a table's topic.

    Attributes:
        position: the next offset to land, None until the table was opened.
        log_end: the end of the partition's log, None until it is known.
        landed: the number of offsets landed since the ingest was started.
        lag: the number of records that the table lacks, None while the position or the end of the log is unknown.
    """

    partition: int
    position: int | None
    log_end: int | None
    landed: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """The range that a table still lacked when the running micro-batch began: offsets by partition, half-open."""

    start: Offsets
    end: Offsets

    def landed(self, position: Offsets | None) -> int:
        """Return how many offsets of the range a table has if its position is ``position``."""
        if position is None:
            return 0
        return sum(
            max(0, min(position.get(p, start), self.end[p]) - start) for p, start in self.start.items() if p in self.end
        )

    @property
    def n_offsets(self) -> int:
        return self.landed(self.end)


@dataclass(slots=True, kw_only=True)
class TableFigures:
    """The figures of one table in a run. The table's writer changes them, and each status has a copy.

    Attributes:
        position: the next offset to land, by partition; None until the table was opened, or while it does not exist.
        first_position: the position when the run first opened the table, or the position of a new table; None before.
        rows, rejects, commits: the numbers since the ingest was started.
        stale: the number of rejected changes since the start; their rows may be outdated.
        held_rejects: the number of this table's rejects in the table of rejects, including those of earlier runs.
        schema_id: the registry's id of the newest schema that the table was written with.
        newest_ms: the timestamp of the newest landed record, in ms since the epoch; at the start that of the last commit; None
            while the table has no rows.
        landed_at: when this run last landed rows.
        seconds: the total time of work on this table.
        by_spark: why Spark writes the table's files, None if tasks write them.
    """

    position: dict[int, int] | None = None
    first_position: dict[int, int] | None = None
    rows: int = 0
    rejects: int = 0
    stale: int = 0
    commits: int = 0
    held_rejects: int = 0
    schema_id: RegistryId | None = None
    newest_ms: int | None = None
    landed_at: float | None = None
    seconds: float = 0.0
    by_spark: str | None = None


@dataclass(slots=True, kw_only=True)
class TableStatus(TableFigures):
    """The status of one table at one moment; immutable.

    Attributes:
        is_subset: whether the table takes a subset of its topic, so that the topic may have other tables.
        place: the table's folder, or the table's name in a catalog, without secrets.
        moment: the time of this status.
        log_ends: the ends of the log by partition, in the newest plan of a micro-batch; None before the first plan.
        unplanned: the number of the topic's records that no micro-batch has planned yet; None while unknown.
        waits_until: when a topic that waits for more records (``min_rows``) is landed at the latest; infinite without such a limit,
            None if the topic does not wait.
        planned: the range that the table gets in the running micro-batch, None if it gets none.
        n_done: the number of records of that range that were read or landed.
        n_read: the number of records that were read or landed since the start, as far as micro-batches show it.
        complete_at: the newest point in time at which the table had all records of its topic, None while unknown.
        rows_per_second: the rate of records read or landed, over the last half minute.
        lost_readers: what the columns of the next rows cost other readers, as sentences; from the plan of the start, until the run
            has landed rows.
    """

    topic: str
    name: str
    is_subset: bool = False
    mode: str = "append"
    format: str = ""
    place: str = ""
    trouble: Trouble | None = None
    moment: Moment = field(default=Moment(0.0, 0.0))
    log_ends: Offsets | None = None
    unplanned: int | None = None
    waits_until: float | None = None
    planned: PlannedRange | None = None
    n_done: int = 0
    n_read: int = 0
    complete_at: float | None = None
    rows_per_second: float = 0.0
    lost_readers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the table's :attr:`~pykafka_wire.ingest.settings.model.Destination.key`."""
        return f"{self.topic}:{self.name}" if self.is_subset else self.topic

    @property
    def error(self) -> str | None:
        """Return why the table is retrying or stopped, None while it is neither."""
        return None if self.trouble is None else self.trouble.reason

    @property
    def state(self) -> TableState:
        if self.trouble is not None:
            return self.trouble.state
        if self.planned is not None and self.planned.landed(self.position) < self.n_planned:
            if self.n_done >= self.n_planned:
                return TableState.COMMITTING
            return TableState.LANDING if self.n_done else TableState.QUEUED
        if self.waits_until is not None:
            return TableState.WAITING
        if self.lag is None:
            return TableState.STARTING if self.position is None else TableState.LANDED
        if self.lag:
            return TableState.BEHIND
        return TableState.WAITING if self.position is None else TableState.UP_TO_DATE

    @property
    def has_landed(self) -> bool:
        """Return whether the table has records, of this run or of an earlier one."""
        return self.rows > 0 or self.newest_ms is not None

    @property
    def n_planned(self) -> int:
        """Return the number of records that the table gets in the running micro-batch."""
        return 0 if self.planned is None else self.planned.n_offsets

    @property
    def n_records(self) -> int:
        """Return the number of records that were read or landed since the start."""
        return max(self.n_read, self.rows + self.rejects)

    @property
    def share(self) -> float | None:
        """Return the share of the table's records in the running micro-batch that were read or landed; None without such
        records."""
        return min(1.0, self.n_done / self.n_planned) if self.n_planned else None

    @property
    def lag(self) -> int | None:
        """Return the number of the topic's records that the table lacks; None while unknown."""
        if self.position is None and self.planned is None:
            return None if self.trouble is not None else self.unplanned
        missing = 0 if self.planned is None else self.n_planned - self.planned.landed(self.position)
        if self.position is None or self.log_ends is None:
            return missing or None
        behind = sum(max(0, end - self.position.get(p, 0)) for p, end in self.log_ends.items())
        # The running micro-batch may know newer ends.
        return max(behind, missing)

    @property
    def freshness_s(self) -> float | None:
        """Return how long ago the table had all records of its topic; None while unknown."""
        return None if self.complete_at is None else max(0.0, self.moment.now - self.complete_at)

    @property
    def catch_up_s(self) -> float | None:
        """Return the number of seconds until the lag is landed at the current rate.

        None if unknown, if the rate is 0, or while hardly any of the table's records of the running micro-batch were read: a first
        record tells no rate.
        """
        if self.lag == 0:
            return 0.0
        if self.share is not None and self.share < _LEAST_SHARE:
            return None
        if self.lag is None or self.trouble is not None or self.rows_per_second <= 0:
            return None
        return self.lag / self.rows_per_second

    @property
    def partitions(self) -> list[PartitionStatus]:
        position, first = self.position or {}, self.first_position or {}
        planned = self.planned or PlannedRange({}, {})
        ends = {**planned.end, **(self.log_ends or {})}
        partitions = []
        for p in sorted(position.keys() | ends.keys()):
            end = max(ends[p], planned.end.get(p, 0)) if p in ends else None
            begin = position.get(p, planned.start.get(p))
            partitions.append(
                PartitionStatus(
                    partition=p,
                    position=position.get(p),
                    log_end=end,
                    landed=max(0, position[p] - first.get(p, position[p])) if p in position else 0,
                    lag=None if end is None or begin is None else max(0, end - begin),
                )
            )
        return partitions

    def document(self) -> dict[str, Any]:
        """Return the table as JSON values, for ``/api/tables`` and ``--json``.

        Points in time are seconds since the epoch.
        """
        trouble, waits = self.trouble, self.waits_until
        return {
            "topic": self.key,
            "table": self.name,
            "place": self.place,
            "mode": self.mode,
            "format": self.format,
            "state": self.state.value,
            "share": self.share,
            "trouble": None
            if trouble is None
            else {
                "code": trouble.code,
                "text": trouble.reason,
                "since": self.moment.epoch(trouble.since),
                "attempts": trouble.n_failures,
                "next_attempt_at": self.moment.epoch(trouble.next_attempt),
            },
            "freshness_s": self.freshness_s,
            "lag": self.lag,
            "catch_up_s": self.catch_up_s,
            "rows": self.rows,
            "rows_per_second": self.rows_per_second,
            "rejects": self.rejects,
            "held_rejects": self.held_rejects,
            "commits": self.commits,
            "seconds": self.seconds,
            "landed_at": self.moment.epoch(self.landed_at),
            "newest_at": None if self.newest_ms is None else self.newest_ms / 1000,
            "schema_id": None if self.schema_id is None else str(self.schema_id),
            "by_spark": self.by_spark,
            "lost_readers": list(self.lost_readers),
            "waits_until": None if waits is None or waits == float("inf") else self.moment.epoch(waits),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMicroBatch:
    """The micro-batch that is being landed.

    Attributes:
        begun_at: when it began.
        n_planned, n_done: the number of records that tables lacked when it began, and how many of these were read or landed.
    """

    number: int
    begun_at: float
    n_planned: int
    n_done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedMicroBatch:
    """A micro-batch that has ended.

    Attributes:
        started_at: when its trigger fired, in seconds since the epoch.
        rows: the number of offsets in its plan, over all topics.
        seconds: the duration of the whole trigger.
        phases: the seconds by phase: ``planning``, ``landing`` and ``committing``.
        landing: the seconds of landing: ``fetching`` (and decoding) and ``writing`` by tasks, and ``driver``, while no task ran;
            None if no task has reported.
        bytes_read: the bytes that its tasks have received from brokers; None if no task has reported.
    """

    number: int
    started_at: float
    rows: int
    seconds: float
    phases: Mapping[str, float]
    landing: Mapping[str, float] | None = None
    bytes_read: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestStatus:
    """The status of a whole ingest at one moment.

    Attributes:
        tables: the tables, the worst state first, then the largest lag.
        running: the running micro-batch, None between micro-batches.
        micro_batches: the newest completed micro-batches, the last one at the end.
        brokers_silent_s: for how long the brokers have not responded to requests for new records; None while they respond.
    """

    moment: Moment
    activity: Activity
    tables: Sequence[TableStatus]
    running: RunningMicroBatch | None = None
    micro_batches: Sequence[LandedMicroBatch] = ()
    brokers_silent_s: float | None = None

    @property
    def states(self) -> dict[TableState, int]:
        """Return the number of tables in each state, the worst state first."""
        states = [table.state for table in self.tables]
        return {state: states.count(state) for state in TableState}

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def held_rejects(self) -> int:
        return sum(table.held_rejects for table in self.tables)

    @property
    def lag(self) -> int | None:
        """Return the sum of the known lags; None if no lag is known."""
        lags = [table.lag for table in self.tables if table.lag is not None]
        return sum(lags) if lags else None

    @property
    def catch_up_s(self) -> float | None:
        """Return the number of seconds until all tables that are not in trouble have caught up; None if unknown."""
        times = [table.catch_up_s for table in self.tables if table.trouble is None and table.lag]
        known = [seconds for seconds in times if seconds is not None]
        return None if len(known) < len(times) else max(known, default=0.0)

    @property
    def oldest_s(self) -> float | None:
        """Return the largest known freshness."""
        return max((table.freshness_s for table in self.tables if table.freshness_s is not None), default=None)

    @property
    def rows_per_second(self) -> float:
        return sum(table.rows_per_second for table in self.tables)

    def totals(self) -> dict[str, Any]:
        """Return the figures of all tables together as JSON values."""
        tables = self.tables
        return {
            "tables": len(tables),
            "states": {state.value: n for state, n in self.states.items()},
            "rows": self.rows,
            "rejects": sum(table.rejects for table in tables),
            "held_rejects": self.held_rejects,
            "tables_with_rejects": sum(table.held_rejects > 0 for table in tables),
            "commits": sum(table.commits for table in tables),
            "lag": self.lag,
            "lag_in_trouble": sum(table.lag or 0 for table in tables if table.trouble is not None),
            "catch_up_s": self.catch_up_s,
            "oldest_s": self.oldest_s,
            "tables_of_unknown_freshness": sum(table.freshness_s is None for table in tables),
            "records_per_second": self.rows_per_second,
        }


def ordered(tables: Sequence[TableStatus]) -> list[TableStatus]:
    """Return the tables, the worst state first; within one state, tables with rejects first, then the largest lag."""
    return sorted(
        tables, key=lambda table: (ORDER[table.state], table.held_rejects == 0, -(table.lag or 0), table.name)
    )
