"""Computes an ingest's status from successive observations: plans of micro-batches, and counts.

Pure: observations come in as values, with their time. :mod:`pykafka_wire.ingest.watching.watch` observes a running ingest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from pykafka_wire.ingest.landing.micro_batch import MicroBatch
from pykafka_wire.ingest_status import (
    Activity,
    IngestStatus,
    LandedMicroBatch,
    Moment,
    RunningMicroBatch,
    TableStatus,
    ordered,
)
from pykafka_wire.task_metrics import TaskFigures

#: The ends of logs: topic, partition, offset.
LogEnds = Mapping[str, Mapping[int, int]]

#: The number of micro-batches and plans that are kept.
KEPT: Final = 60
#: The time over which a rate is computed, and the shortest time between two samples, in seconds.
_RATE_S: Final = 30.0
_SAMPLED_S: Final = 0.2
#: Spark's durations in its progress, by the phase that they count for.
_PHASES: Final = {
    "planning": ("latestOffset", "getBatch", "queryPlanning"),
    "landing": ("addBatch",),
    "committing": ("walCommit", "commitOffsets", "commitBatch"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWaits:
    """When few records of a topic are landed.

    Attributes:
        min_rows: fewer new records than this wait.
        max_delay_s: the longest wait in seconds, None without a known limit.
    """

    min_rows: int
    max_delay_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An observation of an ingest at one moment, without the query's progress.

    Attributes:
        tables: the tables with their figures and failures.
        n_read: the number of records that running tasks have read, by table key.
        is_started: whether the query is running.
        is_planning: whether the query is asking brokers for new records, or planning a micro-batch.
        silent_s: for how long the brokers have not responded, None while they respond.
    """

    moment: Moment
    tables: Iterable[TableStatus]
    batch: MicroBatch | None = None
    n_read: Mapping[str, int] = field(default_factory=dict)
    is_started: bool = True
    is_planning: bool = False
    silent_s: float | None = None


class StatusHistory:
    """Turns observations of an ingest into statuses. Not thread-safe."""

    def __init__(self, waits_of: Callable[[str], TopicWaits]) -> None:
        """Store the function that returns when records of a topic wait."""
        self._waits_of = waits_of
        self._ends: LogEnds = {}
        self._unplanned: dict[str, int] = {}
        #: The newest plans: the time of each, in seconds since the epoch, and the ends of the logs at that time.
        self._plans: deque[tuple[float, LogEnds]] = deque(maxlen=KEPT)
        self._complete_at: dict[str, float] = {}
        #: Since when topics have been waiting for more records, in seconds since the epoch.
        self._waiting_since: dict[str, float] = {}
        self._micro_batches: deque[LandedMicroBatch] = deque(maxlen=KEPT)
        self._batch: MicroBatch | None = None
        #: The number of records that each table has read or landed, in the running micro-batch and in earlier ones.
        self._n_done: dict[str, int] = {}
        self._n_before: dict[str, int] = {}
        #: The samples: the time, and for each table the number of records read or landed and the number of rows.
        self._samples: deque[tuple[float, dict[str, tuple[int, int]]]] = deque()

    @property
    def newest_number(self) -> int:
        """Return the number of the newest completed micro-batch, -1 before the first."""
        return self._micro_batches[-1].number if self._micro_batches else -1

    @property
    def topics(self) -> Iterable[str]:
        """Return the topics in the newest plan."""
        return self._ends.keys()

    def add_progress(self, progress: Any, figures_of: Callable[[int], TaskFigures | None]) -> None:  # Any: JSON
        """Add the progress of one trigger, in Spark's JSON. Known progress has no effect.

        Args:
            figures_of: returns the figures that the tasks of a micro-batch have reported.
        """
        source = progress["sources"][0]
        planned_at = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        ends, planned = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        if ends:  # empty for a micro-batch that Spark repeats without a new plan
            self._ends = ends
            if not self._plans or self._plans[-1][0] < planned_at:
                self._plans.append((planned_at, ends))
            self._unplanned = {
                topic: sum(max(0, end - planned.get(topic, {}).get(p, end)) for p, end in of_topic.items())
                for topic, of_topic in ends.items()
            }
            for topic, n in self._unplanned.items():
                # The planner runs in another process, and starts its clock when it first leaves a topic out. Spark reports a
                # trigger without rows every 10 s.
                if 0 < n < self._waits_of(topic).min_rows:
                    self._waiting_since.setdefault(topic, planned_at)
                else:
                    self._waiting_since.pop(topic, None)
        number = int(progress["batchId"])
        durations = {name: ms / 1000 for name, ms in progress["durationMs"].items()}
        # Nothing was new, or the micro-batch is already known: Spark reports it until the next trigger.
        if "addBatch" not in durations or number <= self.newest_number:
            return
        phases = {phase: sum(durations.get(name, 0.0) for name in names) for phase, names in _PHASES.items()}
        figures = figures_of(number)
        self._micro_batches.append(
            LandedMicroBatch(
                number=number,
                started_at=planned_at,
                rows=_n_planned(_offsets(source["startOffset"]), planned),
                seconds=durations.get("triggerExecution", 0.0),
                phases=phases,
                landing=_divided(phases["landing"], figures),
                bytes_read=figures.bytes_received if figures is not None and figures.tasks else None,
            )
        )

    def status(self, observation: Observation) -> IngestStatus:
        """Return the status of the ingest at the time of an observation, which must be later than earlier ones."""
        batch, moment = observation.batch, observation.moment
        if batch is not self._batch:
            for key, n_done in self._n_done.items():
                self._n_before[key] = self._n_before.get(key, 0) + n_done
            self._batch, self._n_done = batch, {}
        tables = [self._with_context(table, observation) for table in observation.tables]
        self._sample(moment.now, tables)
        tables = ordered([replace(table, rows_per_second=self._rate(table.key)) for table in tables])
        return IngestStatus(
            moment=moment,
            activity=_activity(observation, has_plan=bool(self._plans)),
            tables=tables,
            running=None
            if batch is None
            else RunningMicroBatch(
                number=batch.number,
                begun_at=batch.begun_at,
                n_planned=sum(table.n_planned for table in tables),
                n_done=sum(table.n_done for table in tables if table.planned is not None),
            ),
            micro_batches=tuple(self._micro_batches),
            brokers_silent_s=observation.silent_s,
        )

    def _with_context(self, table: TableStatus, observation: Observation) -> TableStatus:
        key, moment = table.key, observation.moment
        planned = None if observation.batch is None else observation.batch.planned(key, table)
        if planned is not None:
            n_landed = planned.landed(table.position)
            n_done = min(planned.n_offsets, n_landed + observation.n_read.get(key, 0))
            self._n_done[key] = max(n_landed, n_done, self._n_done.get(key, 0))
        ends = self._ends.get(table.topic)
        waiting_since = None if planned is not None else self._waiting_since.get(table.topic)
        waits_until = None
        if waiting_since is not None:
            max_delay_s = self._waits_of(table.topic).max_delay_s
            since = moment.now - (moment.at - waiting_since)
            waits_until = float("inf") if max_delay_s is None else since + max_delay_s
        return replace(
            table,
            moment=moment,
            log_ends=ends,
            unplanned=self._unplanned.get(table.topic),
            waits_until=waits_until,
            planned=planned,
            n_done=self._n_done.get(key, 0) if planned is not None else 0,
            n_read=self._n_before.get(key, 0) + self._n_done.get(key, 0),
            complete_at=self._completeness(table, moment),
        )

    def _completeness(self, table: TableStatus, moment: Moment) -> float | None:
        """Return when the table was last complete: the time of the newest plan whose end offsets the table has reached."""
        position = table.position
        for planned_at, ends in reversed(self._plans) if position is not None else ():
            of_topic = ends.get(table.topic)
            if (
                of_topic is not None
                and position is not None
                and all(position.get(p, 0) >= e for p, e in of_topic.items())
            ):
                self._complete_at[table.key] = planned_at
                break
        complete_at = self._complete_at.get(table.key)
        return None if complete_at is None else moment.now - (moment.at - complete_at)

    def _sample(self, now: float, tables: Iterable[TableStatus]) -> None:
        counts = {}
        for table in tables:
            n_done = self._n_before.get(table.key, 0) + self._n_done.get(table.key, 0)
            counts[table.key] = n_done, table.rows
        if len(self._samples) > 1 and now - self._samples[-2][0] < _SAMPLED_S:
            self._samples[-1] = now, counts
        else:
            self._samples.append((now, counts))
        while len(self._samples) > 2 and self._samples[1][0] < now - _RATE_S:
            self._samples.popleft()

    def _rate(self, key: str) -> float:
        (began_at, first), (ended_at, last) = self._samples[0], self._samples[-1]
        if ended_at <= began_at:
            return 0.0
        # Records landed outside micro-batches, or between two observations, are visible only as rows.
        growths = (after - before for before, after in zip(first.get(key, (0, 0)), last[key], strict=True))
        return max(*growths) / (ended_at - began_at)


def _activity(observation: Observation, *, has_plan: bool) -> Activity:
    if observation.batch is not None:
        return Activity.CONTINUING if observation.batch.is_repeated else Activity.LANDING
    if not observation.is_started:
        return Activity.STARTING
    return Activity.PLANNING if observation.is_planning or not has_plan else Activity.WAITING


def _offsets(source_offset: Any) -> LogEnds:  # Any: JSON, or none
    offsets_by_topic = (source_offset or {}).get("offsets", {})
    return {
        topic: {int(p): int(offset) for p, offset in offsets.items()} for topic, offsets in offsets_by_topic.items()
    }


def _n_planned(start: LogEnds, end: LogEnds) -> int:
    """Return the number of offsets between a micro-batch's start and end."""
    return sum(
        max(0, offset - start.get(topic, {}).get(partition, 0))
        for topic, end_offsets in end.items()
        for partition, offset in end_offsets.items()
    )


def _divided(landing_s: float, figures: TaskFigures | None) -> dict[str, float] | None:
    """Return how the seconds of landing divide into fetching, writing and work of the driver.

    Tasks that run at the same time report more seconds than have passed; then the seconds are divided in proportion to the tasks'
    time. If tasks report less, the rest is the driver's.
    """
    if figures is None or figures.task_s <= 0:
        return None
    in_tasks_s = min(landing_s, figures.task_s)
    fetching = in_tasks_s * min(1.0, figures.read_s / figures.task_s)
    return {"fetching": fetching, "writing": in_tasks_s - fetching, "driver": landing_s - in_tasks_s}
