"""An ingest as it looks to someone who watches it: each table's state, freshness, lag and rate, and what is under way.

Owns what a figure means. How it is drawn is the business of whoever shows it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from pykafka_wire.ingest.landing.micro_batch import MicroBatch
from pykafka_wire.ingest.landing.table_status import Stage, TableStatus
from pykafka_wire.ingest.sessions.progress import StageProgress, TaskRecords
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.watching.metrics import LogEnds, lag_in, lag_of, log_ends

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


#: Over so many seconds a rate is taken.
_RATE_S: Final = 30.0
#: Values of JSON whose type nobody has declared are read once more, to find it.
_INFERRED: Final = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTable:
    """One table at a moment.

    Attributes:
        state: ``stopped``, ``retrying``; in a micro-batch ``queued``, ``landing`` and ``committing``; ``behind``, ``up to date``;
            ``landed`` where the end of its log is unknown, and ``waiting`` before it has landed anything.
        reason: why it is stopped, or tried again; empty if it is not.
        again_s: in so many seconds it is tried again; sooner where what has stopped it changes.
        share: of what it has to get in the running micro-batch, how much it has; None where it has no part in it.
        fresh_s: for so many seconds it may lack records: it has all that were there before. None while that is unknown.
        lag: records of the topic that it lacks, None while that is unknown.
        per_s: records that were read or landed a second, of the last half minute.
    """

    status: TableStatus
    state: str
    reason: str
    again_s: float | None = None
    share: float | None
    fresh_s: float | None
    lag: int | None
    per_s: float

    @property
    def topic(self) -> str:
        return self.status.topic

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def rows(self) -> int:
        """Return the rows landed since the start."""
        return self.status.rows

    @property
    def rejects(self) -> int:
        """Return all that the table of rejects has of this table."""
        return self.status.held_rejects


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """All of an ingest at a moment.

    Attributes:
        number: of the running micro-batch, None between two of them.
        begun_at: when it began, by the clock of :func:`time.monotonic`.
        n_done, n_planned: records of it that were read or landed, and all of them.
        per_s: of all tables.
        is_planning: brokers are asked what the next one has.
    """

    tables: Sequence[WatchedTable]
    number: int | None
    begun_at: float
    n_done: int
    n_planned: int
    per_s: float
    is_planning: bool


class IngestInSight(Protocol):
    """What the terminal asks of a running ingest."""

    settings: Settings

    @property
    def statuses(self) -> Mapping[str, TableStatus]: ...

    @property
    def micro_batch(self) -> MicroBatch | None: ...


class PlannedFormat(Protocol):
    """What is known of a table before the start."""

    @property
    def key(self) -> str: ...

    @property
    def format(self) -> str: ...


class IngestWatch:
    """Looks at an ingest again and again, and so knows its rates."""

    def __init__(self, run: IngestInSight, planned: Sequence[PlannedFormat]) -> None:
        """Take the topics, also those without new records, as ``planned``."""
        self._run = run
        self._planned = planned
        declared = {table.key: run.settings.destination(table.key).table.schema is not None for table in planned}
        self._n_reads = {
            table.key: 2 if table.format == _INFERRED and not declared[table.key] else 1 for table in planned
        }
        self._tasks: TaskRecords | None = None
        self._query: StreamingQuery | None = None
        #: Records read or landed by each table, in all micro-batches so far, with the time; and the most of the running one.
        self._samples: deque[tuple[float, dict[str, int]]] = deque([(time.monotonic(), {})])
        self._finished: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self._batch: MicroBatch | None = None
        self._complete_at: dict[str, float] = {}

    def start(self, spark: SparkSession) -> None:
        """Note that Spark runs from now on."""
        self._tasks = TaskRecords(spark)

    def follow(self, query: StreamingQuery) -> None:
        """Note that the query runs from now on."""
        self._query = query

    def look(self) -> Watched:
        """Return the ingest now."""
        now = time.monotonic()
        progress = None if self._query is None else self._query.lastProgress
        ends = log_ends(progress)
        batch, statuses = self._run.micro_batch, self.statuses()
        if batch is not self._batch:
            for key, n_done in self._most.items():
                self._finished[key] = self._finished.get(key, 0) + n_done
            self._batch, self._most = batch, {}
            if self._tasks is not None:
                self._tasks.clear()
        read = {} if batch is None or self._tasks is None else self._tasks.look()
        if batch is not None:
            for key in batch.parts.keys() & statuses.keys():
                status = statuses[key]
                n_landed = batch.n_landed(key, status.position)
                n_read = read.get(status.name, StageProgress()).n_records // self._n_reads.get(key, 1)
                n_done = min(batch.n_planned(key), n_landed + n_read)
                self._most[key] = max(n_landed, n_done, self._most.get(key, 0))
        done = {key: self._finished.get(key, 0) + self._most.get(key, 0) for key in statuses}
        self._samples.append((now, done))
        while len(self._samples) > 2 and self._samples[1][0] < now - _RATE_S:
            self._samples.popleft()
        tables = [self._table(status, batch, ends, progress, now) for _, status in sorted(statuses.items())]
        keys = [] if batch is None else [key for key in batch.parts if key in statuses]
        return Watched(
            tables=tables,
            number=None if batch is None else batch.number,
            begun_at=now if batch is None else batch.begun_at,
            n_done=sum(self._most.get(key, 0) for key in keys),
            n_planned=0 if batch is None else sum(map(batch.n_planned, keys)),
            per_s=sum(table.per_s for table in tables),
            is_planning=batch is None and self._is_planning(progress),
        )

    def _is_planning(self, progress: Any) -> bool:  # Any: the query's last one
        return self._query is not None and (progress is None or bool(self._query.status["isTriggerActive"]))

    def statuses(self) -> dict[str, TableStatus]:
        """Return the status of each table, also of those without new records, by its key."""
        settings = self._run.settings
        idle = {table.key: TableStatus.of(settings.destination(table.key)) for table in self._planned}
        return idle | dict(self._run.statuses)

    def _table(
        self, status: TableStatus, batch: MicroBatch | None, ends: LogEnds, progress: Any, now: float
    ) -> WatchedTable:  # Any: a query's progress
        key, lag = status.key, lag_in(batch, status, ends)
        (began_at, before), (ended_at, after) = self._samples[0], self._samples[-1]
        elapsed_s = ended_at - began_at
        n_planned = batch.n_planned(key) if batch is not None and key in batch.parts else 0
        if (
            lag_of(status, ends) == 0 and progress is not None
        ):  # it has all that was there when the micro-batch was planned
            planned_ago_s = (
                time.time() - datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
            )
            self._complete_at[key] = now - max(0.0, planned_ago_s)
        n_missing = n_planned - (batch.n_landed(key, status.position) if batch is not None and n_planned else 0)
        complete_at = self._complete_at.get(key)
        share = min(1.0, self._most.get(key, 0) / n_planned) if n_planned else None
        return WatchedTable(
            status=status,
            state=_state(status, share if n_missing else None, lag),
            reason=status.error or "",
            again_s=None if status.state.next_attempt is None else max(0.0, status.state.next_attempt - now),
            share=share,
            fresh_s=None if complete_at is None else now - complete_at,
            lag=lag,
            per_s=(after.get(key, 0) - before.get(key, 0)) / elapsed_s if elapsed_s > 0 else 0.0,
        )


def _state(status: TableStatus, share: float | None, lag: int | None) -> str:
    if status.state.stage is not Stage.LANDING:
        return str(status.state.stage.value)
    if share is not None:
        return "queued" if not share else "landing" if share < 1.0 else "committing"
    if lag is None:
        return "waiting" if status.position is None else "landed"
    return "behind" if lag else "up to date"
