"""An ingest's snapshots for its page: from what the ingest knows in this process, Spark's progress, and the tables' own logs.

Asks neither brokers nor the registry. One Spark job there is, and a small one: a table's newest rejects, when somebody looks at it.
"""

from __future__ import annotations

import json
import logging
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.streaming.query import StreamingQuery

import pykafka_wire
from pykafka_wire.errors import OptionError
from pykafka_wire.ingest.failures import sentence_of
from pykafka_wire.ingest.landing.micro_batch import MicroBatch
from pykafka_wire.ingest.landing.table_status import Stage, TableStatus
from pykafka_wire.ingest.sessions.progress import ReadFigures
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.log import LoggedCommit, ReadLog, TableSize, changes_between
from pykafka_wire.ingest.watching.masking import masked_settings, without_values
from pykafka_wire.ingest.watching.metrics import LogEnds, lag_in
from pykafka_wire.ingest.watching.processes import Processes
from pykafka_wire.options.option import AUTO, MOST_AUTO_OFFSETS, duration_ms
from pykafka_wire.page.snapshots import (
    Column,
    Commit,
    IngestSnapshot,
    IngestState,
    PartitionSnapshot,
    ProcessFigures,
    Reject,
    RunningBatch,
    SchemaChange,
    ShownMicroBatch,
    TableHistory,
    TableSnapshot,
    TableState,
    Trouble,
)
from pykafka_wire.task_metrics import TaskFigures
from pykafka_wire.wire.masking import without_secrets

_log = logging.getLogger(__name__)

#: Micro-batches that are kept.
_BATCHES: Final = 60
#: A trigger that takes longer to learn what is new waits for brokers.
_SILENT_S: Final = 15.0
#: What processes use is measured after so long, and sizes of tables are looked at.
_MEASURED_S: Final = 5.0
_SIZED_S: Final = 2.0
#: So many rejects are shown, of so many of the newest commits of rejects, and so many bytes of a value.
_REJECTS: Final = 20
_REJECT_COMMITS: Final = 10
_VALUE_BYTES: Final = 500
#: A query of rejects that takes longer is cancelled.
_QUERY_S: Final = 20.0
#: Durations in Spark's progress, by the phase that they belong to.
_PHASES: Final = {
    "planning": ("latestOffset", "getBatch", "queryPlanning"),
    "landing": ("addBatch",),
    "committing": ("walCommit", "commitOffsets", "commitBatch"),
}


class RunningIngest(Protocol):
    """What of an ingest is asked."""

    settings: Settings

    reads: ReadFigures | None

    @property
    def micro_batch(self) -> MicroBatch | None: ...
    @property
    def statuses(self) -> Mapping[str, TableStatus]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A query of an ingest.

    Attributes:
        formats: of the topics that were planned at the start.
        shows_values: whether values of rejects may be shown.
    """

    ingest: RunningIngest
    spark: SparkSession
    query: StreamingQuery
    formats: Mapping[str, str]
    shows_values: bool
    started_at: float = field(default_factory=time.time)


class IngestPage:
    """A running ingest as a :class:`~pykafka_wire.page.snapshots.PageSource`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._settings = run.ingest.settings
        self._reads = run.ingest.reads
        self._masked = masked_settings(self._settings)
        self._versions = _versions(run.spark, format_of(self._settings).reader)
        self._batches: deque[ShownMicroBatch] = deque(maxlen=_BATCHES)
        self._ends: LogEnds = {}
        self._completeness = _Completeness(run.started_at)
        self._silence = _Silence()
        self._first: dict[str, dict[int, int]] = {}
        #: Since when topics wait for ``min_rows``, and how many records they have.
        self._waiting: dict[str, tuple[float, int]] = {}
        #: Since when tables are in trouble.
        self._since: dict[str, float] = {}
        self._processes = Processes()
        self._measured: tuple[float, Mapping[str, ProcessFigures]] = (float("-inf"), {})
        self._logs = _Logs(self._open_log)
        self._sizes = _Sizes(self._logs)

    def snapshot(self, *, is_watched: bool) -> IngestSnapshot:
        """See :meth:`~pykafka_wire.page.snapshots.PageSource.snapshot`."""
        state, error = self._state()
        self._take_progress()
        now, batch = time.time(), self._run.ingest.micro_batch
        statuses = self._statuses()
        if is_watched:
            self._sizes.want({status.key: status.commits for status in statuses})
        if time.monotonic() - self._measured[0] >= _MEASURED_S:
            self._measured = time.monotonic(), self._processes.figures()
        settings = self._settings
        return IngestSnapshot(
            at=now,
            name=settings.title,
            state=state,
            started_at=self._run.started_at,
            error=error,
            topics=settings.topics,
            into=without_secrets(settings.into),
            checkpoint=without_secrets(settings.checkpoint),
            registry=None if settings.registry is None else without_secrets(settings.registry),
            brokers=tuple(_brokers(settings)),
            versions=self._versions,
            settings=self._masked,
            tables=tuple(self._table(status, batch, now) for status in statuses),
            micro_batches=tuple(self._batches),
            running=_running(batch, {status.key: status for status in statuses}, now),
            brokers_silent_s=self._silence.seconds(self._run.query, now, is_landing=batch is not None),
            bytes_written=self._sizes.written,
            bytes_read=None if self._reads is None else self._reads.total().bytes_received,
            processes=self._measured[1],
        )

    def partitions(self, topic: str) -> tuple[PartitionSnapshot, ...]:
        """See :meth:`~pykafka_wire.page.snapshots.PageSource.partitions`."""
        status, ends = self._run.ingest.statuses.get(topic), self._ends.get(_topic_of(topic), {})
        position = dict(status.position or {}) if status is not None else {}
        first = self._first.get(topic, {})
        return tuple(
            PartitionSnapshot(
                partition=p,
                position=position.get(p),
                log_end=ends.get(p),
                landed=max(0, position[p] - first.get(p, position[p])) if p in position else 0,
            )
            for p in sorted(position.keys() | ends.keys())
        )

    def queries(self, topic: str) -> Mapping[str, str]:
        """See :meth:`~pykafka_wire.page.snapshots.PageSource.queries`."""
        return format_of(self._settings).queries(self._settings, self._settings.destination(topic).name)

    def history(self, topic: str) -> TableHistory:
        """See :meth:`~pykafka_wire.page.snapshots.PageSource.history`."""
        try:
            with self._logs.open(topic) as log:
                log.refresh()
                history = TableHistory(
                    columns=tuple(_columns(log)), changes=tuple(_changes(log)), is_whole=log.is_whole,
                    commits=tuple(_commit(commit) for commit in reversed(log.commits)),
                )  # fmt: skip
        except (OptionError, OSError, ValueError) as error:  # ValueError: a type that this Spark does not know
            return TableHistory(is_whole=False, problem=f"The table's log cannot be read from here: {error}")
        rejects, problem = self._rejects(topic)
        return TableHistory(
            columns=history.columns, changes=history.changes, is_whole=history.is_whole, commits=history.commits,
            rejects=tuple(rejects), problem=problem,
        )  # fmt: skip

    def close(self) -> None:
        """Look at no more tables."""
        self._sizes.close()

    def _state(self) -> tuple[IngestState, str | None]:
        if self._run.query.isActive:
            return "running", None
        error = self._run.query.exception()
        return ("ended", None) if error is None else ("failed", self._text(sentence_of(error)))

    def _text(self, text: str) -> str:
        return text if self._run.shows_values else without_values(text)

    def _statuses(self) -> list[TableStatus]:
        """Return the status of every topic's table, also of those that have nothing to land."""
        statuses = dict(self._run.ingest.statuses)
        topics = {*map(_topic_of, self._run.formats), *self._ends}
        for destination in (
            destination
            for topic in topics
            if self._settings.lands(topic)
            for destination in self._settings.destinations(topic)
        ):
            if destination.key not in statuses:
                statuses[destination.key] = TableStatus.of(destination)
        for topic, status in statuses.items():
            if status.position is not None:
                first = self._first.setdefault(topic, {})
                for partition, position in list(status.position.items()):
                    first.setdefault(partition, position)
        return list(statuses.values())

    def _take_progress(self) -> None:
        """Take up the micro-batches since the last time, and the ends of the logs when each was planned."""
        for progress in _progresses(self._run.query, self._batches[-1].number if self._batches else -1):
            planned_at = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
            source = progress["sources"][0]
            self._ends = _offsets(source["latestOffset"])
            self._completeness.planned(planned_at, self._ends)
            self._take_waits(planned_at, _offsets(source["endOffset"]))
            durations = {name: ms / 1000 for name, ms in progress["durationMs"].items()}
            number = int(progress["batchId"])
            # Nothing was new; or the newest one, which is looked at until the next trigger, is known.
            if "addBatch" not in durations or (self._batches and self._batches[-1].number >= number):
                continue
            phases = {phase: sum(durations.get(name, 0.0) for name in names) for phase, names in _PHASES.items()}
            figures = None if self._reads is None else self._reads.of_batch(number)
            self._batches.append(
                ShownMicroBatch(
                    number=number,
                    started_at=planned_at,
                    rows=_n_planned(_offsets(source["startOffset"]), _offsets(source["endOffset"])),
                    seconds=durations.get("triggerExecution", 0.0),
                    phases=phases,
                    landing=_divided(phases["landing"], figures),
                    bytes_read=figures.bytes_received if figures is not None and figures.tasks else None,
                )
            )

    def _take_waits(self, planned_at: float, planned: LogEnds) -> None:
        """Note which topics were left out until they have more records. The planner, another process, counts from when it
        first leaves one out; Spark tells of a trigger without rows every 10 s."""
        for topic, ends in self._ends.items():
            left_out = sum(end - planned.get(topic, {}).get(p, end) for p, end in ends.items())
            min_rows = self._settings.table_for(topic).min_rows
            if 0 < left_out < (min_rows if isinstance(min_rows, int) else MOST_AUTO_OFFSETS):
                since, _ = self._waiting.get(topic, (planned_at, 0))
                self._waiting[topic] = since, left_out
            else:
                self._waiting.pop(topic, None)

    def _table(self, status: TableStatus, batch: MicroBatch | None, now: float) -> TableSnapshot:
        settings = self._settings
        table, lag = settings.destination(status.key).table, lag_in(batch, status, self._ends)
        size = self._sizes.get(status.key)
        is_planned = batch is not None and status.key in batch.parts
        since, left_out = (None, None) if is_planned else self._waiting.get(status.topic, (None, None))
        lag = left_out if lag is None else lag  # of a table that nothing was landed in yet
        return TableSnapshot(
            topic=status.key,
            table=status.name,
            place=without_secrets(settings.place(status.name)),
            mode=table.mode,
            format=self._run.formats.get(status.key, table.format),
            state=_table_state(status, lag, is_waiting=since is not None),
            trouble=self._trouble(status),
            freshness_s=self._completeness.age(status, now),
            lag=lag,
            rows=status.rows,
            rejects=status.rejects,
            held_rejects=status.held_rejects,
            untaken=status.untaken,
            commits=status.commits,
            seconds=status.seconds,
            landed_at=None if status.landed_at is None else now - (time.monotonic() - status.landed_at),
            schema_id=None if status.schema_id is None else str(status.schema_id),
            files=None if size is None else size.files,
            bytes=None if size is None else size.bytes,
            waits_until=None
            if since is None or table.max_delay == AUTO
            else since + duration_ms(table.max_delay, "max_delay") / 1000,
        )

    def _trouble(self, status: TableStatus) -> Trouble | None:
        if status.error is None:
            self._since.pop(status.key, None)
            return None
        state, due = status.state, status.state.next_attempt
        return Trouble(
            code=state.code,
            text=self._text(status.error),
            since=self._since.setdefault(status.key, time.time()),
            attempts=state.n_failures,
            next_attempt_at=None if due is None else time.time() + due - time.monotonic(),
        )

    def _open_log(self, topic: str) -> ReadLog:
        """Return a table's log, of rejects without a topic. Raises OptionError where its place is not known without Spark."""
        name = self._settings.destination(topic).name if topic else self._settings.rejects
        return format_of(self._settings).open_log(self._run.spark, self._settings, name)

    def _rejects(self, topic: str) -> tuple[Sequence[Reject], str | None]:
        """Return the newest rejects of a topic. The log of rejects says in which micro-batches there are any: one commit has
        those of one table, so that Delta's statistics lead to a few files."""
        with suppress(OptionError, OSError), self._logs.open("") as log:
            log.refresh()
            of_topic = (
                commit.landed.micro_batch
                for commit in log.commits
                if commit.landed and commit.landed.topic == _topic_of(topic)
            )
            numbers = sorted(set(of_topic), reverse=True)[:_REJECT_COMMITS]
            if not numbers:
                return (), None
            try:
                return self._read_rejects(topic, numbers), None
            except Exception as error:  # Spark's own, a cancelled job's among them
                _log.debug("The rejects of %s could not be read.", topic, exc_info=True)
                return (
                    (),
                    f"The rejects could not be read ({type(error).__name__}): query {self._settings.rejects} itself.",
                )
        return (), "The table of rejects cannot be read from here."

    def _read_rejects(self, topic: str, numbers: list[int]) -> list[Reject]:
        value = F.substring("value", 1, _VALUE_BYTES) if self._run.shows_values else F.lit(None).cast("binary")
        with _limited_job(self._run.spark, f"the page's rejects of {topic}"):
            rows = (
                format_of(self._settings)
                .open_table(self._run.spark, self._settings, self._settings.rejects)
                .rows.where(
                    (F.col("table") == self._settings.destination(topic).name) & F.col("micro_batch").isin(numbers)
                )
                .orderBy(F.desc("micro_batch"), F.desc("timestamp"), F.desc("offset"))
                .select(
                    "partition", "offset", F.unix_micros("timestamp"), "reason", "micro_batch", F.length("value"), value
                )
                .limit(_REJECTS)
                .collect()
            )
        return [
            Reject(
                partition=partition, offset=offset, at=None if micros is None else micros / 1e6, reason=self._text(reason or ""),
                micro_batch=number, size=size, value=None if data is None else value_text(bytes(data), size),
            )
            for partition, offset, micros, reason, number, size, data in rows
        ]  # fmt: skip


def _topic_of(key: str) -> str:
    """Return the topic of a table's key, which is what the page calls a topic."""
    return key.partition(":")[0]


def value_text(data: bytes, size: int) -> str:
    """Return the beginning of a value, as far as it can be read: text, the id of a registry's frame and what follows it, or
    hex."""
    more = "" if size <= len(data) else f" … ({size} bytes in all)"
    if len(data) >= 5 and data[0] == 0:
        return f"schema {int.from_bytes(data[1:5], 'big')}, then {data[5:].hex(' ')}{more}"
    # The last character may be cut.
    text = data.decode("utf-8", errors="ignore" if more else "replace")
    if "\ufffd" not in text and all(character.isprintable() or character in "\t\r\n" for character in text):
        return text + more
    return data.hex(" ") + more


def _table_state(status: TableStatus, lag: int | None, *, is_waiting: bool) -> TableState:
    if status.state.stage is not Stage.LANDING:
        return "stopped" if status.state.stage is Stage.STOPPED else "retrying"
    if is_waiting:
        return "waiting"
    if status.position is None or lag is None:
        return "starting"
    return "landing" if lag else "current"


def _divided(landing_s: float, figures: TaskFigures | None) -> dict[str, float] | None:
    """Return the seconds of landing, divided as the tasks' time was."""
    if figures is None or figures.task_s <= 0:
        return None
    fetching = landing_s * min(1.0, figures.read_s / figures.task_s)
    return {"fetching": fetching, "writing": landing_s - fetching}


def _running(batch: MicroBatch | None, statuses: Mapping[str, TableStatus], now: float) -> RunningBatch | None:
    if batch is None:
        return None
    return RunningBatch(
        number=batch.number,
        started_at=now - (time.monotonic() - batch.begun_at),
        planned=sum(map(batch.n_planned, batch.parts)),
        landed=sum(batch.n_landed(key, statuses[key].position) for key in batch.parts if key in statuses),
    )


def _brokers(settings: Settings) -> Iterator[str]:
    for name, value in settings.kafka.items():
        if name.removeprefix("kafka.") == "bootstrap.servers":
            yield from (catalog.strip() for catalog in value.split(","))


def _versions(spark: SparkSession, reader: str) -> Mapping[str, str]:
    versions = {"pykafka-wire": pykafka_wire.__version__, "Spark": spark.version, "Python": platform.python_version()}
    jvm: Any = spark.sparkContext._jvm
    versions["Java"] = str(jvm.java.lang.System.getProperty("java.version"))
    with suppress(PackageNotFoundError):
        versions[reader] = version(reader)
    with suppress(Exception):  # a Delta that does not say it
        versions["Delta"] = str(jvm.io.delta.package.VERSION())
    return versions


def _progresses(query: StreamingQuery, after: int) -> Iterator[Any]:  # Any: JSON
    """Yield the progress of the micro-batches after one, and of the newest trigger in any case, the oldest first.

    As JSON of the JVM's objects: to make Python's of all of Spark's recent ones takes a thousand calls.
    """
    java: Any = query._jsq
    newest = java.lastProgress()
    if newest is None:
        return
    n_new = min(int(newest.batchId()) - after, _BATCHES)
    if n_new > 1:
        recent = java.recentProgress()
        for progress in [recent[index] for index in range(max(0, len(recent) - _BATCHES), len(recent) - 1)]:
            if int(progress.batchId()) > after:
                yield json.loads(progress.json())
    yield json.loads(newest.json())


def _offsets(source_offset: Any) -> LogEnds:  # Any: JSON, or none
    offsets_by_topic = (source_offset or {}).get("offsets", {})
    return {
        topic: {int(p): int(offset) for p, offset in offsets.items()} for topic, offsets in offsets_by_topic.items()
    }


def _n_planned(start: LogEnds, end: LogEnds) -> int:
    """Return offsets between a micro-batch's start and its end."""
    return sum(
        max(0, offset - start.get(topic, {}).get(partition, 0))
        for topic, end_offsets in end.items()
        for partition, offset in end_offsets.items()
    )


class _Silence:
    """Since when brokers are asked what is new: a trigger has begun, and neither its micro-batch nor its end has come."""

    def __init__(self) -> None:
        self._asked: tuple[str, float] | None = None

    def seconds(self, query: StreamingQuery, now: float, *, is_landing: bool) -> float | None:
        """Return for how long; None where that is usual, or before the first trigger's end, when Spark's processes start."""
        java: Any = query._jsq
        newest = java.lastProgress()
        if is_landing or newest is None or not java.isActive() or not java.status().isTriggerActive():
            self._asked = None
            return None
        # An idle query has triggers all the time, and tells of one every 10 s.
        told = str(newest.timestamp())
        if self._asked is None or self._asked[0] != told:
            self._asked = told, now
        seconds = now - self._asked[1]
        return seconds if seconds >= _SILENT_S else None


class _Completeness:
    """Until when each table is complete: a table that holds what its topic held when a micro-batch was planned is so until then."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._plans: deque[tuple[float, LogEnds]] = deque(maxlen=_BATCHES)
        self._complete: dict[str, float] = {}

    def planned(self, planned_at: float, ends: LogEnds) -> None:
        if not self._plans or self._plans[-1][0] < planned_at:
            self._plans.append((planned_at, ends))

    def age(self, status: TableStatus, now: float) -> float | None:
        position = status.position
        if position is None:
            return None
        for planned_at, ends in reversed(self._plans):
            if all(position.get(p, 0) >= end for p, end in ends.get(status.topic, {}).items()):
                self._complete[status.key] = planned_at
                break
        return now - self._complete.get(status.key, self._started_at)


class _Logs:
    """The logs of tables that were looked at, by topic; that of rejects by an empty one."""

    def __init__(self, open_log: Callable[[str], ReadLog]) -> None:
        self._open_log = open_log
        self._lock = threading.Lock()
        self._logs: dict[str, tuple[threading.Lock, ReadLog]] = {}

    @contextmanager
    def open(self, topic: str) -> Iterator[ReadLog]:
        """Lend the log to one thread."""
        with self._lock:
            lock_and_log = self._logs.get(topic)
        if lock_and_log is None:
            log = self._open_log(topic)
            with self._lock:
                lock_and_log = self._logs.setdefault(topic, (threading.Lock(), log))
        lock, log = lock_and_log
        with lock:
            yield log


class _Sizes:
    """Sizes of tables, by a thread that looks at those with new commits, while somebody watches the page.

    Attributes:
        written: bytes by which tables have grown since they were first looked at; None before.
    """

    def __init__(self, logs: _Logs) -> None:
        self._logs = logs
        self._wanted: dict[str, int] = {}
        self._sizes: dict[str, tuple[int, TableSize | None]] = {}
        self._wake = threading.Event()
        self._closed = threading.Event()
        self.written: int | None = None
        threading.Thread(target=self._look, name="pykafka-wire-page-sizes", daemon=True).start()

    def want(self, commits: Mapping[str, int]) -> None:
        """Look at the tables whose counts of commits have changed."""
        self._wanted = dict(commits)
        self._wake.set()

    def get(self, topic: str) -> TableSize | None:
        return self._sizes.get(topic, (0, None))[1]

    def close(self) -> None:
        self._closed.set()
        self._wake.set()

    def _look(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            for topic, commits in self._wanted.items():
                if self._closed.is_set():
                    return
                if self._sizes.get(topic, (-1, None))[0] != commits:
                    self._look_at(topic, commits)
            self._closed.wait(_SIZED_S)

    def _look_at(self, topic: str, commits: int) -> None:
        before = self.get(topic)
        size = before
        try:
            with self._logs.open(topic) as log:
                size = log.size()
        except Exception:  # a page never disturbs an ingest: its size is not shown
            _log.debug("The log of %s could not be read.", topic, exc_info=True)
        self._sizes[topic] = commits, size
        if size is not None:
            grown = 0 if before is None else max(0, size.bytes - before.bytes)
            self.written = (self.written or 0) + grown


def _columns(log: ReadLog) -> Iterator[Column]:
    """Yield the present columns, each with the commit that has added it, as far as it is known."""
    since: dict[str, LoggedCommit] = {}
    for commit, before, after in log.schemas():
        known = set() if before is None else set(before.names)
        for name in after.names:
            if name not in known and (before is not None or log.is_whole):
                since[name] = commit
    for column in log.schema or ():
        commit_of = since.get(column.name)
        yield Column(
            name=column.name, type=column.dataType.simpleString(),
            since=None if commit_of is None else commit_of.at, version=None if commit_of is None else commit_of.version,
        )  # fmt: skip


def _changes(log: ReadLog) -> Iterator[SchemaChange]:
    """Yield the changes, the newest first."""
    schemas = list(log.schemas())
    for commit, before, after in reversed(schemas):
        if before is None and not log.is_whole:  # what it has changed is not known
            continue
        later = (other.landed.schema_id for other in log.commits if other.version >= commit.version and other.landed)
        schema_id = next(later, None)
        yield SchemaChange(
            version=commit.version, at=commit.at, changes=changes_between(before, after),
            schema_id=None if schema_id is None else str(schema_id),
        )  # fmt: skip


def _commit(logged: LoggedCommit) -> Commit:
    landed = logged.landed
    schema_id = None if landed is None or landed.schema_id is None else str(landed.schema_id)
    return Commit(
        version=logged.version, at=logged.at, operation=logged.operation, rows=logged.rows, files=logged.files, bytes=logged.bytes,
        micro_batch=None if landed is None else landed.micro_batch, schema_id=schema_id,
        start={} if landed is None else landed.start, end={} if landed is None else landed.end,
    )  # fmt: skip


@contextmanager
def _limited_job(spark: SparkSession, description: str) -> Iterator[None]:
    """Describe Spark's jobs of this thread, and cancel them if they take long."""
    context = spark.sparkContext
    group = f"pykafka-wire page {threading.get_ident()} {time.monotonic()}"
    context.setJobGroup(group, description)
    timer = threading.Timer(_QUERY_S, context.cancelJobGroup, (group,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
