"""Lands micro-batches in their tables, each table on its own.

The stream only plans: its checkpoint says up to which offsets each topic is planned. If the attempt of a table fails, the
micro-batch and the later ones are completed without this table. When the table's pause is over, a separate attempt lands the
missing records from the table's own position. The same holds for a table of changes during its maintenance. A table never has two
writers.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from pykafka_wire.checkpoints.positions import Beginning
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.landing.attempt import RunContext, TableAttempt, TableProgress
from pykafka_wire.ingest.landing.maintenance import Maintenance
from pykafka_wire.ingest.landing.rejects_table import RejectsTable
from pykafka_wire.ingest.landing.remedies import UNKNOWN_TOPIC, Failure, Remedy, reason_of_record, remedy_of
from pykafka_wire.ingest.landing.schedule import Event, Schedule, TableSchedule
from pykafka_wire.ingest.landing.session_pool import SessionPool
from pykafka_wire.ingest.landing.table_writer import TableWriter
from pykafka_wire.ingest.records.contracts import needs_headers, read_alike
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.records.shared_read import SharedRead
from pykafka_wire.ingest.settings.model import TABLE_STATE, Destination, Settings
from pykafka_wire.ingest.spark.connect import is_connect
from pykafka_wire.ingest.spark.errors import code_of, sentence_of
from pykafka_wire.ingest.spark.progress import describe_jobs
from pykafka_wire.ingest.tables.compaction import MayNotCommitError
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.maintenance import TableMaintenance
from pykafka_wire.ingest.tables.position import AlreadyLandedError
from pykafka_wire.ingest.tables.rejects import RejectOwner
from pykafka_wire.ingest_status import TableFigures, TableStatus, Trouble
from pykafka_wire.task_metrics import DriverReceiver

_log = logging.getLogger(__name__)

#: How long an attempt that conflicts with another program's commits is repeated at once, and the longest pause between repetitions.
_CONFLICTS_S: Final = 20.0
_CONFLICT_PAUSE_S: Final = 0.5
#: The interval of checks whether a table's pause is over, and the pause after an error of such a check, in seconds.
_POLL_S: Final = 0.2
_AFTER_ERROR_S: Final = 5.0
#: The longest wait of a compaction for the end of an attempt, in seconds: other tables wait for this compaction.
_BETWEEN_S: Final = 10.0


_FIGURES: Final = tuple(each.name for each in fields(TableFigures))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRange:
    """The end offsets up to which a table is to be landed: the end of its topic in the newest micro-batch that has the topic.

    Attributes:
        beginning: returns where the query began to read the topic.
        shared: a read that the table shares with other tables of its topic.
    """

    topic_range: TopicRange
    micro_batch: int
    beginning: Callable[[], Beginning]
    shared: SharedRead = field(default_factory=SharedRead)


class _TableRun:
    """One table of a run. Hold :attr:`Landing._changed` to change it; the table's writer updates ``progress`` without the lock."""

    def __init__(self, destination: Destination, maintenance: TableMaintenance, schedule: TableSchedule) -> None:
        self.destination = destination
        self.topic = destination.topic
        self.name = destination.name
        self.maintenance = maintenance
        self.schedule = schedule
        #: Whether only Spark may commit, as during the table's maintenance.
        self.spark_commits = False
        #: Whether a compaction by the ingest itself is committing now.
        self.is_compaction_committed = False
        self.progress = TableProgress()
        #: The number of this run's rejects at the last maintenance check of the table of rejects.
        self.n_rejects = 0
        self.target: TargetRange | None = None
        self._begins: tuple[str, Mapping[int, int]] = ("", {})
        #: Whether a record may have caused the last failure: if so, later records of the topic may show whether it did.
        self.may_be_record_error = False

    @property
    def status(self) -> TableStatus:
        return status_of(self.destination, self.progress, self.schedule.trouble)

    def beginning(self, target: TargetRange) -> Beginning:
        """Return where the query began to read the topic. The first answer is kept, since Spark's log forgets it."""
        beginning = target.beginning()
        topic_id, known = self._begins
        if topic_id != target.topic_range.topic_id:  # the topic was created again
            known = {}
        self._begins = target.topic_range.topic_id, {**beginning.known, **known}
        return replace(beginning, known=self._begins[1])


class Landing:
    """Lands micro-batches. There is one Landing for each run of a query, in the driver's process."""

    def __init__(
        self,
        settings: Settings,
        query: str,
        *,
        is_once: bool = False,
        is_running: Callable[[], bool] = lambda: True,
        receiver: DriverReceiver | None = None,
    ) -> None:
        """Begin a run. Opens no table.

        Args:
            query: the id of Spark's query, from its checkpoint.
            is_once: whether the query ends by itself. Then the run waits for retrying tables, for a limited time.
            is_running: returns whether the query may still write.
            receiver: gets the figures of the tables' reads.
        """
        self._settings = settings
        self._errors = format_of(settings).errors
        self._is_once = is_once
        self._schedule = Schedule(parallel=settings.parallel, is_once=is_once)
        self._is_running = is_running
        self._sessions = SessionPool(format_of(settings).prepare_session)
        self._rejects = RejectsTable(settings, query, self._sessions, self._set_held_rejects)
        self._run = RunContext(
            settings=settings,
            readers=TableReaders(settings),
            query=query,
            await_rejects=self._rejects.wait,
            check_running=self._check_running,
            receiver=receiver,
        )
        self._threads = ThreadPoolExecutor(settings.parallel, thread_name_prefix="pykafka-wire-ingest")
        self._tables: dict[str, _TableRun] = {}
        #: One lock for each table name, also if two topics claim the same table.
        self._writers: dict[str, threading.Lock] = {}
        self._changed = threading.Condition()
        self._maintenance = Maintenance(self._sessions, self._changed, self._check_running)
        #: Keeps the number of files of the table of rejects low. Only Spark or pyiceberg commits to that table.
        self._rejects_maintenance = format_of(settings).open_maintenance(
            settings, replace(settings.defaults, mode="append"), settings.rejects
        )
        self._n_rejecting = 0
        #: The number of rejects of each table, as counted at the start.
        self._held_rejects: Mapping[RejectOwner, int] = {}
        self._retrier: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        """Return whether the run is open and its query may write."""
        return not self._is_closed and self._is_running()

    @property
    def is_writing(self) -> bool:
        """Return whether an attempt or maintenance may be writing to a table."""
        with self._changed:
            return self._maintenance.is_writing or self._schedule.is_running

    @property
    def statuses(self) -> dict[str, TableStatus]:
        """Return the current status of each table, by its key."""
        with self._changed:
            return {key: table.status for key, table in self._tables.items()}

    def begin_failed(self, destination: Destination, failure: Failure) -> None:
        """Add a table that cannot be landed now. It is retried later, or when the cause has changed."""
        with self._changed:
            if destination.key not in self._tables:
                now = time.monotonic()
                self._retry_later(self._table(destination).schedule.begin_failed(failure, now), now)

    def land(
        self,
        session: SparkSession,
        ranges: Iterable[TopicRange],
        micro_batch: int,
        beginning: Callable[[str], Beginning],
    ) -> None:
        """Land every table up to the ends of ``ranges``. Tables that are retrying, stopped or in maintenance are landed later, by
        attempts of their own.

        Args:
            beginning: returns where the query began to read a topic.

        Raises:
            IngestError: the table of rejects belongs to another program, or the process is ending.
        """
        self._sessions.base = session
        with self._changed:
            self._rejects.begin(self._threads)
            due = []
            every = [
                (topic_range, destination)
                for topic_range in ranges
                for destination in self._settings.destinations(topic_range.topic)
            ]
            for topic_range, destination in every:
                table = self._table(destination)
                table.target = TargetRange(
                    topic_range=topic_range, micro_batch=micro_batch, beginning=partial(beginning, topic_range.topic)
                )
                if table.schedule.may_join_micro_batch and not table.progress.is_at(topic_range):
                    due.append(table)
            if not is_connect(session):
                self._share_reads(due)
            for table in due:
                table.schedule.move(Event.BEGIN_ATTEMPT)
        futures = [self._threads.submit(self._attempt, table) for table in due]
        for error in [future.exception() for future in futures]:  # waits for all attempts
            if error is not None:  # not the error of a table
                text = f"micro-batch {micro_batch} was not landed, since the process is ending: {error!r}"
                raise IngestError(text) from error
        self._rejects.check()
        if self._is_once:
            self._await_retries()

    def _share_reads(self, due: Iterable[_TableRun]) -> None:
        """Let tables with the same read settings share one read of the topic's range.

        Not used with Spark Connect, which analyses a DataFrame again for each use, so that cached rows are not reused.
        """
        groups: list[list[_TableRun]] = []
        for table in due:
            asked = table.destination.table
            if asked.merges or not asked.has_sql:
                continue
            alike = (
                group
                for group in groups
                if group[0].topic == table.topic and read_alike([group[0].destination.table.reading, asked.reading])
            )
            if (group := next(alike, None)) is None:
                groups.append([table])
            else:
                group.append(table)
        for group in groups:
            target = group[0].target
            shared = SharedRead(
                None if target is None else target.topic_range,
                [self._run.readers.of(table.destination) for table in group],
                by_spark=[
                    table.name
                    for table in group
                    if table.spark_commits
                    or format_of(self._settings).spark_reason(self._settings, table.destination.table)
                ],
                with_headers=needs_headers([table.destination.table.contract for table in group]),
            )
            for table in group:
                table.target = table.target and replace(table.target, shared=shared)

    def close(self) -> None:
        """Begin no further attempt, and wait for running writes: a later run must not commit at the same time."""
        with self._changed:
            self._is_closed = True
            self._maintenance.stop()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._schedule.is_running)
        self._threads.shutdown(cancel_futures=True)
        self._maintenance.close()

    def _table(self, destination: Destination) -> _TableRun:
        key = destination.key
        if key not in self._tables:
            maintenance = format_of(self._settings).open_maintenance(
                self._settings, destination.table, destination.name
            )
            table = self._tables[key] = _TableRun(destination, maintenance, self._schedule.new_table())
            table.progress.held_rejects = self._n_held(destination)
        return self._tables[key]

    def _n_held(self, destination: Destination) -> int:
        return sum(n for owner, n in self._held_rejects.items() if owner.may_be(destination))

    def _set_held_rejects(self, counted: Mapping[RejectOwner, int] | None) -> None:
        """Store the number of rejects of each table; None if the table of rejects is new, perhaps because it was dropped."""
        with self._changed:
            self._held_rejects = counted or {}
            for table in self._tables.values():
                held = self._n_held(table.destination)
                table.progress.held_rejects = 0 if counted is None else table.progress.held_rejects + held

    # Attempts

    def _attempt(self, table: _TableRun) -> None:
        """Land a table up to its newest target range. The caller has already marked the table as running."""
        started = time.monotonic()
        try:
            while True:
                target = table.target
                try:
                    with self._writers_lock(table):
                        self._land_despite_conflicts(table, target)
                finally:
                    if target is not None:
                        target.shared.end(table.name)
                with self._changed:
                    # Another micro-batch may have set a new target range: this attempt must land it, since no other attempt starts.
                    if table.target is target:
                        self._succeed(table)
                        self._end_attempt(table, started)
                        return
        except BaseException as error:
            try:
                if not isinstance(error, Exception):
                    raise
                self._handle_failure(table, error)
            finally:
                self._end_attempt(table, started)

    def _handle_failure(self, table: _TableRun, error: Exception) -> None:
        if not self.is_running:
            _log.debug("The attempt to land table %s ended with the query.", table.name, exc_info=error)
            return
        failure = Failure.of(error, self._errors)
        target = table.target
        table.may_be_record_error = reason_of_record(error, self._errors) is not None
        if table.may_be_record_error and not table.progress.is_searched:
            text = f"{failure.sentence} The next attempt searches for the records that cause the error, and makes them rejects."
            failure = replace(failure, remedy=Remedy.RETRY_NOW, sentence=text)
            table.progress.is_searched = True
        if failure.code == UNKNOWN_TOPIC and target is not None:
            failure = replace(failure, sentence=f"{failure.sentence} {_lost_text(table, target.topic_range)}")
        if target is not None and table.progress.position is None:
            with suppress(Exception):  # stored for later attempts
                table.beginning(target)
        cause = self._cause_of(table) if failure.remedy is Remedy.CHANGE else None
        with self._changed:
            table.progress.is_open = False
            self._fail(table, failure, cause)

    def _end_attempt(self, table: _TableRun, started: float) -> None:
        """End an attempt, exactly once. From here on another attempt may begin."""
        with self._changed:
            table.progress.seconds += time.monotonic() - started
            table.schedule.move(Event.END_ATTEMPT)
            self._changed.notify_all()

    def _land_despite_conflicts(self, table: _TableRun, target: TargetRange | None) -> None:
        """Land a table. After a conflict with another program's commit, try again at once, for a limited time."""
        patience_ends = time.monotonic() + _CONFLICTS_S
        while True:
            try:
                return self._land_one(table, target)
            except Exception as error:
                is_conflict = remedy_of(error, self._errors) is Remedy.RETRY_NOW
                if not is_conflict or time.monotonic() >= patience_ends or not self.is_running:
                    raise
                level = logging.WARNING if isinstance(error, AlreadyLandedError) else logging.DEBUG
                _log.log(level, "Table %s is written again at once. %s", table.name, sentence_of(error))
                table.progress.is_open = False
                # A random pause: two writers with the same rhythm would conflict each time.
                time.sleep(random.uniform(0.0, _CONFLICT_PAUSE_S))

    def _land_one(self, table: _TableRun, target: TargetRange | None) -> None:
        if table.name.lower() == self._settings.rejects.lower():
            raise IngestError(
                f"topic {table.topic} would go into the table of rejects: give it another table by name in [[table]]."
            )
        if table.schedule.trouble is not None and (target is None or not target.topic_range.n_offsets):
            # There is nothing to land, so check the schema and the expressions to see whether the table could be landed.
            reader = self._run.readers.of(table.destination)
            schema = reader.schemas.value_schema()
            reader.schemas.columns_text(schema)
            if table.destination.table.has_sql:
                with self._sessions.borrow() as session:
                    mistakes = reader.sql_mistakes(session, schema)
                if mistakes:
                    raise IngestError("; ".join(text for text, _ in mistakes))
        if target is None:
            return
        with self._sessions.borrow() as session:
            describe_jobs(session, table.name, self._run.receiver)
            writer = self._writer(session, table, target.shared)
            writer.land(target.topic_range, target.micro_batch, lambda: table.beginning(target))

    def _writer(self, session: SparkSession, table: _TableRun, shared: SharedRead | None = None) -> TableWriter:
        attempt = TableAttempt.begin(
            session,
            self._run,
            table.destination,
            table.progress,
            shared=shared,
            is_spark_alone=table.spark_commits,
        )
        return TableWriter(attempt)

    @contextmanager
    def _writers_lock(self, table: _TableRun, timeout_s: float = -1) -> Iterator[bool]:
        """Hold the lock of the table's writer; yield False if the lock was not free in time."""
        with self._changed:
            lock = self._writers.setdefault(table.name.lower(), threading.Lock())
        is_held = lock.acquire(timeout=timeout_s)
        try:
            yield is_held
        finally:
            if is_held:
                lock.release()

    def _succeed(self, table: _TableRun) -> None:
        if table.schedule.trouble is not None:
            n = table.schedule.trouble.n_failures
            attempts = "attempt" if n == 1 else "attempts"
            _log.warning("Table %s is landing again, after %d %s.", table.name, n, attempts, extra=_log_extra(table))
        table.schedule.succeed()
        if table.progress.rejects > table.n_rejects:
            table.n_rejects = table.progress.rejects
            self._n_rejecting += 1
        if self._is_closed:
            return
        self._maintenance.begin(table.name, table.maintenance, table.progress.commits, self._in_maintenance(table))
        if table.maintenance.compaction is not None:
            self._maintenance.begin_compaction(
                table.name, table.maintenance.compaction, table.progress.commits, partial(self._between_attempts, table)
            )
        self._maintenance.begin(self._settings.rejects, self._rejects_maintenance, self._n_rejecting, nullcontext())

    @contextmanager
    def _between_attempts(self, table: _TableRun) -> Iterator[None]:
        """Let a compaction commit, while nothing else in this process commits to the table.

        Raises:
            MayNotCommitError: Spark commits to the table, or an attempt took too long.
        """
        with self._writers_lock(table, _BETWEEN_S) as is_held:
            with self._changed:
                self._check_running()
                if not is_held or table.spark_commits or self._maintenance.table_in_maintenance == table.name:
                    raise MayNotCommitError(f"table {table.name} is written to by another thread")
                table.is_compaction_committed = True
            try:
                yield
            finally:
                with self._changed:
                    table.is_compaction_committed = False
                    self._changed.notify_all()

    @contextmanager
    def _in_maintenance(self, table: _TableRun) -> Iterator[None]:
        """Hold a table in maintenance. Meanwhile only Spark commits to the table, or nobody does. In the second case micro-batches
        are completed without the table, and an attempt lands the missing records afterwards."""
        maintenance = table.maintenance
        with self._changed:
            if maintenance.blocks_landing or maintenance.spark_commits:
                self._changed.wait_for(
                    lambda: self._is_closed or not (table.schedule.is_running or table.is_compaction_committed)
                )
            self._check_running()
            if maintenance.blocks_landing:
                table.schedule.move(Event.BEGIN_MAINTENANCE)
            table.spark_commits = maintenance.spark_commits
        is_over = True
        try:
            self._check_running()
            with self._writers_lock(table) if maintenance.blocks_landing else nullcontext():
                is_over = False
                yield
                is_over = True
        finally:
            with self._changed:
                if maintenance.blocks_landing:
                    table.schedule.move(Event.END_MAINTENANCE)
                # If the response was lost, the server of Spark Connect may still be running the maintenance.
                is_elsewhere = self._sessions.base is not None and is_connect(self._sessions.base)
                table.spark_commits = maintenance.spark_commits and is_elsewhere and not is_over
                target = table.target
                is_due = target is not None and not table.progress.is_at(target.topic_range)
                # A retrying or stopped table has its own next attempt.
                if is_due and table.schedule.may_join_micro_batch and not self._is_closed:
                    table.schedule.move(Event.BEGIN_ATTEMPT)
                    self._threads.submit(self._attempt, table)

    def _fail(self, table: _TableRun, failure: Failure, cause: tuple[object, ...] | None) -> None:
        now, earlier = time.monotonic(), table.schedule.trouble
        trouble = table.schedule.fail(failure, cause, now)
        self._retry_later(trouble, now)
        is_known = earlier is not None and earlier.is_stopped and earlier.code == failure.code
        if trouble.is_stopped and not is_known:
            _log.error(
                "Table %s is stopped; the other tables continue. %s",
                table.name,
                failure.sentence,
                extra=_log_extra(table),
            )
        elif not trouble.is_stopped:
            text = "Table %s is retried in %.0f s; the other tables continue. %s"
            pause_s = trouble.next_attempt - now
            _log.warning(text, table.name, pause_s, failure.sentence, extra=_log_extra(table))

    def _retry_later(self, trouble: Trouble, now: float) -> None:
        """Make sure that a thread retries the failed table."""
        self._schedule.note_failure(trouble, now)
        if self._retrier is None:
            self._retrier = threading.Thread(target=self._retry, name="pykafka-wire-ingest-retries", daemon=True)
            self._retrier.start()

    def _retry(self) -> None:
        """Retry failed tables when they are due, until the run ends."""
        pause_s = _POLL_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, pause_s)
                if self._is_closed:
                    return
            try:
                if not self._begin_due():
                    return
                pause_s = _POLL_S
            except Exception:  # no other thread retries the tables, so this one must go on
                pause_s = _AFTER_ERROR_S
                _log.exception("The next check of retrying and stopped tables is in %.0f s.", pause_s)

    def _begin_due(self) -> bool:
        """Begin the attempts that are due now; return whether the query is still running."""
        with self._changed:
            now = time.monotonic()
            tables = list(self._tables.values())
            to_check = [table for table in tables if table.schedule.is_check_due(now)]
            has_work = self._schedule.has_work(now)
        if not has_work or self._sessions.base is None:
            return True
        if not self._is_running():
            return False
        for table in to_check:
            cause = self._cause_of(table)
            with self._changed:
                table.schedule.note_cause(cause, time.monotonic())
        for table in tables:
            self._begin_retry(table)
        return True

    def _begin_retry(self, table: _TableRun) -> None:
        with self._changed:
            if self._is_closed or not self._schedule.may_retry(table.schedule, time.monotonic()):
                return
            # Mark the table as running only after its thread has started: otherwise nothing would end the attempt. The attempt
            # waits for this lock.
            threading.Thread(
                target=self._attempt, args=(table,), name=f"pykafka-wire-ingest-{table.name}", daemon=True
            ).start()
            table.schedule.move(Event.BEGIN_ATTEMPT)

    def _cause_of(self, table: _TableRun) -> tuple[object, ...]:
        """Return what a stopped table waits for, or the code of the error if the lookup fails: a failed lookup ends nothing."""
        if self._sessions.base is None:
            return ()
        try:
            with self._sessions.borrow() as session:
                cause = self._writer(session, table).cause()
        except Exception as error:
            return (code_of(error),)
        target = table.target
        return (*cause, dict(target.topic_range.end)) if table.may_be_record_error and target is not None else cause

    def _await_retries(self) -> None:
        """Wait until no table is retrying any more, or the time limit is reached. No attempt or maintenance outlives the run."""

        with self._changed:
            while not self._is_closed and (self._maintenance.is_waiting or self._schedule.is_waiting(time.monotonic())):
                self._changed.wait(_POLL_S)

    def _check_running(self) -> None:
        """Raise RuntimeError if the query has ended."""
        if not self.is_running:
            raise RuntimeError("the query has ended")


def status_of(
    destination: Destination, figures: TableFigures | None = None, trouble: Trouble | None = None
) -> TableStatus:
    """Return the status of a table, with a copy of the run's figures. Figures from Spark are missing."""
    copied = {} if figures is None else {name: getattr(figures, name) for name in _FIGURES}
    table = destination.table
    return TableStatus(
        topic=destination.topic, name=destination.name, is_subset=table.is_subset, mode=table.mode, format=table.format,
        trouble=trouble, **copied,
    )  # fmt: skip


def _log_extra(table: _TableRun) -> dict[str, str]:
    """Return the attribute of a log record about a table's state."""
    return {TABLE_STATE: table.name}


def _lost_text(table: _TableRun, topic_range: TopicRange) -> str:
    """Return a sentence about the records that are lost if a missing topic was deleted."""
    position = table.progress.position or topic_range.start
    unread = {p: (position.get(p, topic_range.start[p]), end) for p, end in topic_range.end.items()}
    offsets = ", ".join(f"{p}: {start} to {end - 1}" for p, (start, end) in sorted(unread.items()) if start < end)
    return (
        f"If the topic was deleted, the records that table {table.name} does not have yet are lost (offsets by partition: "
        f"{offsets}); the table keeps its rows."
    )
