"""Micro-batches into their tables, each table on its own.

The stream only plans: its checkpoint says up to which offsets each topic is read. A table whose attempt fails is left alone: the
micro-batch is done without it, and so are the later ones. What it misses is landed beside them, from the position that the table
itself has, when its pause is over. So it is with a table of changes while its files are looked after. At no time a table has two
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
from pykafka_wire.ingest.failures import (
    UNKNOWN_TOPIC,
    Failure,
    Remedy,
    code_of,
    reason_of_record,
    remedy_of,
    sentence_of,
)
from pykafka_wire.ingest.landing.attempt import RunContext, TableAttempt, TableProgress
from pykafka_wire.ingest.landing.maintenance import Maintenance
from pykafka_wire.ingest.landing.rejects_table import RejectsTable
from pykafka_wire.ingest.landing.schedule import Event, Schedule, TableTurn
from pykafka_wire.ingest.landing.session_pool import SessionPool
from pykafka_wire.ingest.landing.table_writer import TableWriter
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.contracts import needs_headers, read_alike
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.records.shared_read import SharedRead
from pykafka_wire.ingest.sessions.progress import describe_jobs
from pykafka_wire.ingest.sessions.spark_connect import is_connect
from pykafka_wire.ingest.settings.model import TABLE_STATE, Destination, Settings
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import AlreadyLandedError
from pykafka_wire.ingest.tables.upkeep import Upkeep
from pykafka_wire.ingest_status import TableFigures, TableStatus, Trouble
from pykafka_wire.task_metrics import DriverReceiver

_log = logging.getLogger(__name__)

#: For so long an attempt that conflicts with another program's commits is repeated at once, after up to such a pause.
_CONFLICTS_S: Final = 20.0
_CONFLICT_PAUSE_S: Final = 0.5
#: Between two looks at pauses that are over; and after an error of such a look.
_LOOK_S: Final = 0.2
_AFTER_ERROR_S: Final = 5.0


_FIGURES: Final = tuple(each.name for each in fields(TableFigures))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Up to where a table is to be landed: the end of its topic in the newest micro-batch that has the topic.

    Attributes:
        beginning: returns where the query began with the topic.
        shared: what the table reads together with others of its topic.
    """

    part: TopicRange
    micro_batch: int
    beginning: Callable[[], Beginning]
    shared: SharedRead = field(default_factory=SharedRead)


class _TableTask:
    """One topic on its way into a table. Who changes it holds :attr:`Landing._changed`, but for the one writer's progress."""

    def __init__(self, destination: Destination, upkeep: Upkeep, turn: TableTurn) -> None:
        self.destination = destination
        self.topic = destination.topic
        self.name = destination.name
        self.upkeep = upkeep
        self.turn = turn
        #: Whether Spark alone commits, which is so during the table's maintenance.
        self.spark_commits = False
        self.progress = TableProgress()
        #: Rejects of this run when the table of rejects was counted last.
        self.n_rejects = 0
        self.target: Target | None = None
        self._begins: tuple[str, Mapping[int, int]] = ("", {})
        #: Whether a record may be the cause of the last failure: the records behind it would show it.
        self.may_be_record_s = False

    def lacks(self, part: TopicRange) -> bool:
        """Return whether the table may not have all of a range."""
        return not self.progress.is_open or self.progress.is_behind(part)

    @property
    def status(self) -> TableStatus:
        return status_of(self.destination, self.progress, self.turn.trouble)

    def beginning(self, target: Target) -> Beginning:
        """Return where the query began with the topic, as it was known at first: Spark's log forgets it."""
        beginning = target.beginning()
        topic_id, known = self._begins
        if topic_id != target.part.topic_id:  # created again
            known = {}
        self._begins = target.part.topic_id, {**beginning.known, **known}
        return replace(beginning, known=self._begins[1])


class Landing:
    """Lands micro-batches; one for each run of a query, in the process of its driver."""

    def __init__(
        self,
        settings: Settings,
        query: str,
        *,
        is_once: bool = False,
        is_running: Callable[[], bool] = lambda: True,
        receiver: DriverReceiver | None = None,
    ) -> None:
        """Begin a run; no table is looked at yet.

        Args:
            query: Spark's id of the query, in its checkpoint.
            is_once: the query ends by itself: tables that are retrying are waited for, for a limited time.
            is_running: whether the query may still write.
            receiver: gets the figures of the tables' reads.
        """
        self._settings = settings
        self._receiver = receiver
        self._is_once = is_once
        self._schedule = Schedule(parallel=settings.parallel, is_once=is_once)
        self._is_running = is_running
        self._sessions = SessionPool()
        self._rejects = RejectsTable(settings, query, self._sessions, self._take_held_rejects)
        self._run = RunContext(
            settings=settings,
            readers=TableReaders(settings),
            query=query,
            await_rejects=self._rejects.wait,
            check_running=self._check_running,
        )
        self._threads = ThreadPoolExecutor(settings.parallel, thread_name_prefix="pykafka-wire-ingest")
        self._tables: dict[str, _TableTask] = {}
        #: One writer for each table, also where two topics claim it.
        self._writers: dict[str, threading.Lock] = {}
        self._changed = threading.Condition()
        self._maintenance = Maintenance(self._sessions, self._changed, self._check_running)
        #: The table of rejects has as few files as the others: each of them adds to it. Spark alone commits there, or pyiceberg.
        self._rejects_upkeep = format_of(settings).open_upkeep(
            settings, replace(settings.defaults, mode="append"), settings.rejects
        )
        self._n_rejecting = 0
        #: Rejects by table, as the run has found them.
        self._held_rejects: Mapping[str, int] = {}
        self._retrier: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        """Return whether the run has begun no end, and its query may write."""
        return not self._is_closed and self._is_running()

    @property
    def is_writing(self) -> bool:
        """Return whether a table is being written to, or its files are looked after."""
        with self._changed:
            return self._maintenance.at_work is not None or self._schedule.is_running

    @property
    def statuses(self) -> dict[str, TableStatus]:
        """Return what is known of each table now, by its key."""
        with self._changed:
            return {key: table.status for key, table in self._tables.items()}

    def begin_failed(self, destination: Destination, failure: Failure) -> None:
        """Begin with a table that cannot be landed now; it is tried later, or when what stops it has changed."""
        with self._changed:
            if destination.key not in self._tables:
                now = time.monotonic()
                self._retry_later(self._table(destination).turn.begin_failed(failure, now), now)

    def land(
        self,
        session: SparkSession,
        parts: Iterable[TopicRange],
        micro_batch: int,
        beginning: Callable[[str], Beginning],
    ) -> None:
        """Bring every table up to the ends of ``parts``, but for those that are retrying or stopped, or withheld: they follow by
        themselves.

        Args:
            beginning: returns where the query began with a topic.

        Raises:
            IngestError: the table of rejects is another program's, or the process ends.
        """
        self._sessions.base = session
        with self._changed:
            self._rejects.begin(self._threads)
            due = []
            every = [(part, destination) for part in parts for destination in self._settings.destinations(part.topic)]
            for part, destination in every:
                table = self._table(destination)
                table.target = Target(part=part, micro_batch=micro_batch, beginning=partial(beginning, part.topic))
                if table.turn.is_with_micro_batches and table.lacks(part):
                    due.append(table)
            if not is_connect(session):
                self._share_reads(due)
            for table in due:
                table.turn.move(Event.BEGIN)
        futures = [self._threads.submit(self._attempt, table) for table in due]
        for error in [future.exception() for future in futures]:  # after all have ended
            if error is not None:  # no error of a table
                text = f"micro-batch {micro_batch} was not landed, since the process ends: {error!r}"
                raise IngestError(text) from error
        self._rejects.check()
        if self._is_once:
            self._await_retries()

    def _share_reads(self, due: Iterable[_TableTask]) -> None:
        """Let tables of a topic that read its records alike read the micro-batch's range together.

        Spark Connect analyses a DataFrame anew each time, so that it does not use the rows that it keeps.
        """
        groups: list[list[_TableTask]] = []
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
                None if target is None else target.part,
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
        """Begin no further attempt, and wait for what is being written: a later run may not commit beside this one."""
        with self._changed:
            self._is_closed = True
            self._maintenance.stop()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._schedule.is_running)
        self._threads.shutdown(cancel_futures=True)
        self._maintenance.close()

    def _table(self, destination: Destination) -> _TableTask:
        key = destination.key
        if key not in self._tables:
            upkeep = format_of(self._settings).open_upkeep(self._settings, destination.table, destination.name)
            table = self._tables[key] = _TableTask(destination, upkeep, self._schedule.new_turn())
            table.progress.held_rejects = self._held_rejects.get(table.name, 0)
        return self._tables[key]

    def _take_held_rejects(self, counted: Mapping[str, int] | None) -> None:
        """Note how many rejects there are of each table; None where there are none, perhaps since they were dropped."""
        with self._changed:
            self._held_rejects = counted or {}
            for task in self._tables.values():
                held = self._held_rejects.get(task.name, 0)
                task.progress.held_rejects = 0 if counted is None else task.progress.held_rejects + held

    # Attempts

    def _attempt(self, table: _TableTask) -> None:
        """Bring a table up to its newest target; the caller has marked it as running."""
        started = time.monotonic()
        try:
            while True:
                target = table.target
                try:
                    with self._writers_lock(table):
                        self._land_beside_others(table, target)
                finally:
                    if target is not None:
                        target.shared.end(table.name)
                with self._changed:
                    # Else the next one follows: nobody else begins it while this one runs.
                    if table.target is target:
                        self._succeed(table)
                        self._end_attempt(table, started)
                        return
        except BaseException as error:
            try:
                if not isinstance(error, Exception):
                    raise
                self._take_failure(table, error)
            finally:
                self._end_attempt(table, started)

    def _take_failure(self, table: _TableTask, error: Exception) -> None:
        if not self.is_running:
            _log.debug("The attempt to land table %s ended with the query.", table.name, exc_info=error)
            return
        failure = Failure.of(error)
        target = table.target
        table.may_be_record_s = reason_of_record(error) is not None
        if table.may_be_record_s and not table.progress.is_searched:
            text = f"{failure.sentence} The records that cause the error are looked for now, and become rejects."
            failure = replace(failure, remedy=Remedy.REPEAT, sentence=text)
            table.progress.is_searched = True
        if failure.code == UNKNOWN_TOPIC and target is not None:
            failure = replace(failure, sentence=f"{failure.sentence} {_lost_text(table, target.part)}")
        if target is not None and table.progress.position is None:
            with suppress(Exception):  # remembered for later attempts
                table.beginning(target)
        cause = self._cause_of(table) if failure.remedy is Remedy.CHANGE else None
        with self._changed:
            table.progress.is_open = False
            self._fail(table, failure, cause)

    def _end_attempt(self, table: _TableTask, started: float) -> None:
        """End an attempt, once: another one may begin from here on."""
        with self._changed:
            table.progress.seconds += time.monotonic() - started
            table.turn.move(Event.END)
            self._changed.notify_all()

    def _land_beside_others(self, table: _TableTask, target: Target | None) -> None:
        """Land a table; where another program has committed meanwhile, again at once, for a while."""
        patience_ends = time.monotonic() + _CONFLICTS_S
        while True:
            try:
                return self._land_one(table, target)
            except Exception as error:
                if remedy_of(error) is not Remedy.REPEAT or time.monotonic() >= patience_ends or not self.is_running:
                    raise
                level = logging.WARNING if isinstance(error, AlreadyLandedError) else logging.DEBUG
                _log.log(level, "Table %s is written again at once. %s", table.name, sentence_of(error))
                table.progress.is_open = False
                # Two writers of one rhythm would meet each time.
                time.sleep(random.uniform(0.0, _CONFLICT_PAUSE_S))

    def _land_one(self, table: _TableTask, target: Target | None) -> None:
        if table.name.lower() == self._settings.rejects.lower():
            raise IngestError(
                f"topic {table.topic} would go into the table of rejects: give it another table by name in [[table]]."
            )
        if table.turn.trouble is not None and (target is None or not target.part.n_offsets):
            # Nothing to land shows whether it could be.
            reader = self._run.readers.of(table.destination)
            schema = reader.schemas.value_schema()
            reader.schemas.columns_text(schema)
            if table.destination.table.has_sql:
                with self._sessions.lent() as session:
                    mistakes = reader.sql_mistakes(session, schema)
                if mistakes:
                    raise IngestError("; ".join(text for text, _ in mistakes))
        if target is None:
            return
        with self._sessions.lent() as session:
            describe_jobs(session, table.name, self._receiver)
            writer = self._writer(session, table, target.shared)
            writer.land(target.part, target.micro_batch, lambda: table.beginning(target))

    def _writer(self, session: SparkSession, table: _TableTask, shared: SharedRead | None = None) -> TableWriter:
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
    def _writers_lock(self, table: _TableTask) -> Iterator[None]:
        with self._changed:
            lock = self._writers.setdefault(table.name.lower(), threading.Lock())
        with lock:
            yield

    def _succeed(self, table: _TableTask) -> None:
        if table.turn.trouble is not None:
            n = table.turn.trouble.n_failures
            attempts = "attempt" if n == 1 else "attempts"
            _log.warning("Table %s is landing again, after %d %s.", table.name, n, attempts, extra=_of_state(table))
        table.turn.succeed()
        if table.progress.rejects > table.n_rejects:
            table.n_rejects = table.progress.rejects
            self._n_rejecting += 1
        if self._is_closed:
            return
        self._maintenance.begin(table.name, table.upkeep, table.progress.commits, self._beside(table))
        self._maintenance.begin(self._settings.rejects, self._rejects_upkeep, self._n_rejecting, nullcontext())

    @contextmanager
    def _beside(self, table: _TableTask) -> Iterator[None]:
        """Let a table's files be looked after: meanwhile Spark commits what is landed, or nothing is. Then micro-batches are done
        without the table, and it gets what it lacks afterwards."""
        upkeep = table.upkeep
        with self._changed:
            if upkeep.is_alone or upkeep.spark_commits:
                self._changed.wait_for(lambda: self._is_closed or not table.turn.is_running)
            self._check_running()
            if upkeep.is_alone:
                table.turn.move(Event.WITHHOLD)
            table.spark_commits = upkeep.spark_commits
        is_over = True
        try:
            self._check_running()
            with self._writers_lock(table) if upkeep.is_alone else nullcontext():
                is_over = False
                yield
                is_over = True
        finally:
            with self._changed:
                if upkeep.is_alone:
                    table.turn.move(Event.RELEASE)
                # Where its response was lost, the server of Spark Connect may go on with it.
                is_elsewhere = self._sessions.base is not None and is_connect(self._sessions.base)
                table.spark_commits = upkeep.spark_commits and is_elsewhere and not is_over
                target = table.target
                is_behind = target is not None and table.lacks(target.part)
                # One that is retrying or stopped is tried again in any case.
                if is_behind and table.turn.is_with_micro_batches and not self._is_closed:
                    table.turn.move(Event.BEGIN)
                    self._threads.submit(self._attempt, table)

    def _fail(self, table: _TableTask, failure: Failure, cause: tuple[object, ...] | None) -> None:
        now, earlier = time.monotonic(), table.turn.trouble
        trouble = table.turn.fail(failure, cause, now)
        self._retry_later(trouble, now)
        is_known = earlier is not None and earlier.is_stopped and earlier.code == failure.code
        if trouble.is_stopped and not is_known:
            _log.error(
                "Table %s is stopped, the others go on. %s", table.name, failure.sentence, extra=_of_state(table)
            )
        elif not trouble.is_stopped:
            text = "Table %s is tried again in %.0f s, the others go on. %s"
            pause_s = trouble.next_attempt - now
            _log.warning(text, table.name, pause_s, failure.sentence, extra=_of_state(table))

    def _retry_later(self, trouble: Trouble, now: float) -> None:
        """See to it that a table that has failed is tried again."""
        self._schedule.note_failure(trouble, now)
        if self._retrier is None:
            self._retrier = threading.Thread(target=self._retry, name="pykafka-wire-ingest-retries", daemon=True)
            self._retrier.start()

    def _retry(self) -> None:
        """Begin attempts of tables that are not landing, when they are due, until the run ends."""
        pause_s = _LOOK_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, pause_s)
                if self._is_closed:
                    return
            try:
                if not self._begin_due():
                    return
                pause_s = _LOOK_S
            except Exception:  # whatever it is, no other thread tries the tables again
                pause_s = _AFTER_ERROR_S
                _log.exception("Tables that are retrying or stopped are looked at again in %.0f s.", pause_s)

    def _begin_due(self) -> bool:
        """Begin the attempts that are due now; return whether the query still runs."""
        with self._changed:
            now = time.monotonic()
            tables = list(self._tables.values())
            looked_at = [table for table in tables if table.turn.is_to_look_at(now)]
            wakes = self._schedule.wakes(now)
        if not wakes or self._sessions.base is None:
            return True
        if not self._is_running():
            return False
        for table in looked_at:
            cause = self._cause_of(table)
            with self._changed:
                table.turn.look(cause, time.monotonic())
        for table in tables:
            self._begin_retry(table)
        return True

    def _begin_retry(self, table: _TableTask) -> None:
        with self._changed:
            if self._is_closed or not self._schedule.may_retry(table.turn, time.monotonic()):
                return
            # Only a table whose thread has begun is running: nobody else would end it. The attempt needs this lock, too.
            threading.Thread(
                target=self._attempt, args=(table,), name=f"pykafka-wire-ingest-{table.name}", daemon=True
            ).start()
            table.turn.move(Event.BEGIN)

    def _cause_of(self, table: _TableTask) -> tuple[object, ...]:
        """Return what a stopped table waits for; the code of an error where that cannot be looked up, which is no reason to end."""
        if self._sessions.base is None:
            return ()
        try:
            with self._sessions.lent() as session:
                cause = self._writer(session, table).cause()
        except Exception as error:
            return (code_of(error),)
        target = table.target
        return (*cause, dict(target.part.end)) if table.may_be_record_s and target is not None else cause

    def _await_retries(self) -> None:
        """Return when no table is retrying any more, or their time is over; neither attempts nor upkeep outlive the run."""

        with self._changed:
            while not self._is_closed and (self._maintenance.is_waiting or self._schedule.waits(time.monotonic())):
                self._changed.wait(_LOOK_S)

    def _check_running(self) -> None:
        """Raise RuntimeError if the query has ended."""
        if not self.is_running:
            raise RuntimeError("the query has ended")


def status_of(
    destination: Destination, figures: TableFigures | None = None, trouble: Trouble | None = None
) -> TableStatus:
    """Return the status of a table with a copy of its figures; what others know of the table is not in it yet."""
    copied = {} if figures is None else {name: getattr(figures, name) for name in _FIGURES}
    table = destination.table
    return TableStatus(
        topic=destination.topic, name=destination.name, is_part=table.is_part, mode=table.mode, format=table.format,
        trouble=trouble, **copied,
    )  # fmt: skip


def _of_state(table: _TableTask) -> dict[str, str]:
    """Return what marks a log record as one of a table's state."""
    return {TABLE_STATE: table.name}


def _lost_text(table: _TableTask, part: TopicRange) -> str:
    """Return what a topic that is no longer there means for its table."""
    position = table.progress.position or part.start
    unread = {p: (position.get(p, part.start[p]), end) for p, end in part.end.items()}
    offsets = ", ".join(f"{p}: {start} to {end - 1}" for p, (start, end) in sorted(unread.items()) if start < end)
    return (
        f"If the topic was deleted, its records that table {table.name} does not have yet are lost (offsets by partition: "
        f"{offsets}); the table keeps what it has."
    )
