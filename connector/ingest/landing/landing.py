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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.checkpoints.positions import Beginning
from pykafka_wire.datasource import PykafkaWireDataSource
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
from pykafka_wire.ingest.landing.attempts import due, trouble_after
from pykafka_wire.ingest.landing.isolation import SearchPausedError
from pykafka_wire.ingest.landing.table_writer import TableWriter
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.contracts import needs_headers, read_alike
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.records.shared_read import SharedRead
from pykafka_wire.ingest.sessions.progress import describe_jobs
from pykafka_wire.ingest.sessions.row_settings import set_row_settings
from pykafka_wire.ingest.sessions.spark_connect import is_connect
from pykafka_wire.ingest.settings.model import TABLE_STATE, Destination, Settings, Table
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import AlreadyLandedError
from pykafka_wire.ingest.tables.topic_table import check_owner
from pykafka_wire.ingest.tables.upkeep import Upkeep
from pykafka_wire.ingest_status import TableFigures, TableStatus, Trouble
from pykafka_wire.task_metrics import DriverReceiver

_log = logging.getLogger(__name__)

_REJECTS_COLUMNS: Final = (
    "table STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, reason STRING, micro_batch BIGINT"
)
#: What a new session does not take from the one that it is made of.
_SESSION_SETTINGS: Final = ("spark.sql.", "spark.databricks.")
#: Each commit computes the state of its table's log for the transaction's id; Delta's default, 50 tasks, is for huge logs.
_SNAPSHOT_PARTITIONS: Final = "spark.databricks.delta.snapshotPartitions"
#: Commits of one process to a local folder wait for each other; a setting may have turned it off.
_COMMIT_LOCK: Final = "spark.databricks.delta.commitLock.enabled"
#: How long a run that ends by itself waits for tables that are retrying, from the first failure on.
_PATIENCE_S: Final = 30.0
#: For so long an attempt that conflicts with another program's commits is repeated at once, after up to such a pause.
_CONFLICTS_S: Final = 20.0
_CONFLICT_PAUSE_S: Final = 0.5
#: Between two looks at pauses that are over, and at the causes of tables that are stopped; the latter twice as long each time.
_LOOK_S: Final = 0.2
_FIRST_CAUSE_S: Final = 5.0
_LONGEST_CAUSE_S: Final = 60.0

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

    def __init__(self, destination: Destination, upkeep: Upkeep) -> None:
        self.destination = destination
        self.topic = destination.topic
        self.name = destination.name
        self.upkeep = upkeep
        #: While its files are looked after: whether nothing is landed; whether Spark commits what is.
        self.is_withheld = False
        self.spark_commits = False
        #: None while the table is landed with the micro-batches.
        self.trouble: Trouble | None = None
        self.progress = TableProgress()
        #: Rejects of this run when the table of rejects was counted last.
        self.n_rejects = 0
        self.target: Target | None = None
        self.is_running = False
        self._begins: tuple[str, Mapping[int, int]] = ("", {})
        #: Whether a record may be the cause of the last failure: the records behind it would show it.
        self.may_be_record_s = False
        #: What a stopped table waits for, and when it is looked at again.
        self.cause: tuple[object, ...] | None = None
        self.next_look = 0.0
        self.look_pause_s = _FIRST_CAUSE_S

    @property
    def is_free(self) -> bool:
        """Return whether an attempt may begin."""
        return not (self.is_running or self.is_withheld)

    def lacks(self, part: TopicRange) -> bool:
        """Return whether the table may not have all of a range."""
        return not self.progress.is_open or self.progress.is_behind(part)

    @property
    def status(self) -> TableStatus:
        return status_of(self.destination, self.progress, self.trouble)

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
        self._is_running = is_running
        self._query = query
        self._run = RunContext(
            settings=settings,
            readers=TableReaders(settings),
            query=query,
            await_rejects=self._await_rejects,
            check_running=self._check_running,
        )
        self._threads = ThreadPoolExecutor(settings.parallel, thread_name_prefix="pykafka-wire-ingest")
        self._upkeep = ThreadPoolExecutor(1, thread_name_prefix="pykafka-wire-ingest-upkeep")
        self._tables: dict[str, _TableTask] = {}
        #: One writer for each table, also where two topics claim it.
        self._writers: dict[str, threading.Lock] = {}
        self._changed = threading.Condition()
        self._session: SparkSession | None = None
        self._idle_sessions: list[SparkSession] = []
        self._rejects: Future[None] | None = None
        #: The table of rejects has as few files as the others: each of them adds to it. Spark alone commits there, or pyiceberg.
        self._rejects_upkeep = format_of(settings).open_upkeep(
            settings, replace(settings.defaults, mode="append"), settings.rejects
        )
        self._n_rejecting = 0
        #: Of the tables whose files are to be looked after, or are; and the name of the one that is at work.
        self._tended: set[Upkeep] = set()
        self._in_upkeep: str | None = None
        self._remaking = threading.Lock()
        #: Rejects by table, as the run has found them.
        self._held_rejects: Mapping[str, int] = {}
        self._retrier: threading.Thread | None = None
        self._patience_ends: float | None = None
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        """Return whether the run has begun no end, and its query may write."""
        return not self._is_closed and self._is_running()

    @property
    def is_writing(self) -> bool:
        """Return whether a table is being written to, or its files are looked after."""
        with self._changed:
            return self._in_upkeep is not None or any(table.is_running for table in self._tables.values())

    @property
    def statuses(self) -> dict[str, TableStatus]:
        """Return what is known of each table now, by its key."""
        with self._changed:
            return {key: table.status for key, table in self._tables.items()}

    def begin_failed(self, destination: Destination, failure: Failure) -> None:
        """Begin with a table that cannot be landed now; it is tried later, or when what stops it has changed."""
        with self._changed:
            if destination.key not in self._tables:
                self._note(self._table(destination), failure)

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
        self._session = session
        with self._changed:
            if self._rejects is None:  # beside the first rows of tables, which seldom need it
                self._rejects = self._threads.submit(self._make_rejects)
            due = []
            every = [(part, destination) for part in parts for destination in self._settings.destinations(part.topic)]
            for part, destination in every:
                table = self._table(destination)
                table.target = Target(part=part, micro_batch=micro_batch, beginning=partial(beginning, part.topic))
                if table.trouble is None and table.lacks(part) and table.is_free:
                    due.append(table)
            if not is_connect(session):
                self._share_reads(due)
            for table in due:
                table.is_running = True
        futures = [self._threads.submit(self._attempt, table) for table in due]
        for error in [future.exception() for future in futures]:  # after all have ended
            if error is not None:  # no error of a table
                text = f"micro-batch {micro_batch} was not landed, since the process ends: {error!r}"
                raise IngestError(text) from error
        self._check_rejects()
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
            contracts = [other.table.contract for other in self._settings.destinations(group[0].topic)]
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
                with_headers=needs_headers(contracts),
            )
            for table in group:
                table.target = table.target and replace(table.target, shared=shared)

    def close(self) -> None:
        """Begin no further attempt, and wait for what is being written: a later run may not commit beside this one."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not any(table.is_running for table in self._tables.values()))
            tended = self._in_upkeep
        if tended is not None:
            _log.warning(
                "The files of table %s are being compacted or vacuumed: the run ends when that is done.", tended
            )
        self._threads.shutdown(cancel_futures=True)
        self._upkeep.shutdown(cancel_futures=True)

    def _table(self, destination: Destination) -> _TableTask:
        key = destination.key
        if key not in self._tables:
            upkeep = format_of(self._settings).open_upkeep(self._settings, destination.table, destination.name)
            table = self._tables[key] = _TableTask(destination, upkeep)
            table.progress.held_rejects = self._held_rejects.get(table.name, 0)
        return self._tables[key]

    # The table of rejects

    def _make_rejects(self) -> None:
        """Make the table of rejects, or note how many it has of each table."""
        with self._lent_session() as session:
            table = format_of(self._settings).open_table(session, self._settings, self._settings.rejects)
            if not table.exists:
                table.create(_REJECTS_COLUMNS, Table(topic=".*"), self._query, None)
                with self._changed:  # it may have been dropped
                    for task in self._tables.values():
                        task.progress.held_rejects = 0
                return
            check_owner(table, self._query, topic=None)
            counted = table.rows.groupBy("table").agg(F.count(F.lit(1)).alias("n")).collect()
        with self._changed:
            self._held_rejects = {row.table: row.n for row in counted}
            for task in self._tables.values():
                task.progress.held_rejects += self._held_rejects.get(task.name, 0)

    def _await_rejects(self) -> None:
        """Return when the table of rejects is there; what has failed before is tried again, and one that was dropped meanwhile is
        made anew: rows alone would make it a table of nobody."""
        assert self._rejects is not None
        with self._remaking:
            is_failed = self._rejects.exception() is not None  # first, since it waits
            if is_failed or not self._has_rejects():  # in this thread: the others may all wait for it
                self._make_rejects()
                self._rejects = Future()
                self._rejects.set_result(None)

    def _has_rejects(self) -> bool:
        with self._lent_session() as session:
            return format_of(self._settings).open_table(session, self._settings, self._settings.rejects).exists

    def _check_rejects(self) -> None:
        """Raise IngestError if the table of rejects is another program's, or the process ends."""
        assert self._rejects is not None
        error = self._rejects.exception()
        if isinstance(error, IngestError):
            raise error
        if error is not None and not isinstance(error, Exception):
            raise IngestError(f"the table of rejects was not made, since the process ends: {error!r}") from error
        if error is not None:
            _log.warning("The table of rejects cannot be made; tables with rejects wait for it. %s", sentence_of(error))

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
            table.cause = cause
            self._fail(table, failure)

    def _end_attempt(self, table: _TableTask, started: float) -> None:
        """End an attempt, once: another one may begin from here on."""
        with self._changed:
            table.progress.seconds += time.monotonic() - started
            table.is_running = False
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
        if table.trouble is not None and (target is None or not target.part.n_offsets):
            # Nothing to land shows whether it could be.
            reader = self._run.readers.of(table.destination)
            schema = reader.schemas.value_schema()
            reader.schemas.columns_text(schema)
            if table.destination.table.has_sql:
                with self._lent_session() as session:
                    mistakes = reader.sql_mistakes(session, schema)
                if mistakes:
                    raise IngestError("; ".join(text for text, _ in mistakes))
        if target is None:
            return
        with self._lent_session() as session:
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
        if table.trouble is not None:
            n = table.trouble.n_failures
            attempts = "attempt" if n == 1 else "attempts"
            _log.warning("Table %s is landing again, after %d %s.", table.name, n, attempts, extra=_of_state(table))
        table.trouble = None
        table.look_pause_s = _FIRST_CAUSE_S
        if table.progress.rejects > table.n_rejects:
            table.n_rejects = table.progress.rejects
            self._n_rejecting += 1
        if self._is_closed:
            return
        self._begin_upkeep(table.name, table.upkeep, table.progress.commits, self._beside(table))
        self._begin_upkeep(self._settings.rejects, self._rejects_upkeep, self._n_rejecting, nullcontext())

    def _begin_upkeep(self, name: str, upkeep: Upkeep, n_commits: int, beside: AbstractContextManager[None]) -> None:
        """Let a table's files be looked after, if it is time for it after so many commits; the caller holds the lock."""
        if upkeep not in self._tended and upkeep.is_time(n_commits):
            self._tended.add(upkeep)
            self._upkeep.submit(self._tend, name, upkeep, beside)

    def _tend(self, name: str, upkeep: Upkeep, beside: AbstractContextManager[None]) -> None:
        try:
            with self._lent_session() as session:
                describe_jobs(session, f"{name}, upkeep")
                if upkeep.is_needed(session):
                    with beside:
                        with self._changed:
                            self._check_running()
                            self._in_upkeep = name
                        upkeep.run(session, self._check_running)
        except Exception as error:
            _log.log(
                logging.DEBUG if self._is_closed else logging.WARNING,
                "The files of table %s could not be looked after; it is tried again later. %s",
                name,
                sentence_of(error),
            )
        finally:
            with self._changed:
                self._in_upkeep = None
                self._tended.discard(upkeep)
                self._changed.notify_all()

    @contextmanager
    def _beside(self, table: _TableTask) -> Iterator[None]:
        """Let a table's files be looked after: meanwhile Spark commits what is landed, or nothing is. Then micro-batches are done
        without the table, and it gets what it lacks afterwards."""
        upkeep = table.upkeep
        with self._changed:
            if upkeep.is_alone or upkeep.spark_commits:
                self._changed.wait_for(lambda: self._is_closed or not table.is_running)
            table.is_withheld, table.spark_commits = upkeep.is_alone, upkeep.spark_commits
        is_over = True
        try:
            self._check_running()
            with self._writers_lock(table) if upkeep.is_alone else nullcontext():
                is_over = False
                yield
                is_over = True
        finally:
            with self._changed:
                table.is_withheld = False
                # Where its response was lost, the server of Spark Connect may go on with it.
                is_elsewhere = self._session is not None and is_connect(self._session)
                table.spark_commits = upkeep.spark_commits and is_elsewhere and not is_over
                target = table.target
                is_behind = target is not None and table.lacks(target.part)
                # One that is retrying or stopped is tried again in any case.
                is_due = is_behind and table.trouble is None and table.is_free
                if is_due and not self._is_closed:
                    table.is_running = True
                    self._threads.submit(self._attempt, table)

    def _fail(self, table: _TableTask, failure: Failure) -> None:
        now = time.monotonic()
        earlier = table.trouble
        table.next_look = now + table.look_pause_s
        trouble = self._note(table, failure)
        is_known = earlier is not None and earlier.is_stopped and earlier.code == failure.code
        if trouble.is_stopped and not is_known:
            _log.error(
                "Table %s is stopped, the others go on. %s", table.name, failure.sentence, extra=_of_state(table)
            )
        elif not trouble.is_stopped:
            text = "Table %s is tried again in %.0f s, the others go on. %s"
            pause_s = trouble.next_attempt - now
            _log.warning(text, table.name, pause_s, failure.sentence, extra=_of_state(table))

    def _note(self, table: _TableTask, failure: Failure) -> Trouble:
        """Give a table the trouble of a failure, and see to it that the table is tried again."""
        now = time.monotonic()
        table.trouble = trouble = trouble_after(failure, table.trouble, now)
        if self._patience_ends is None and not trouble.is_stopped:
            self._patience_ends = now + _PATIENCE_S
        if self._retrier is None:
            self._retrier = threading.Thread(target=self._retry, name="pykafka-wire-ingest-retries", daemon=True)
            self._retrier.start()
        return trouble

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
                pause_s = _FIRST_CAUSE_S
                _log.exception("Tables that are retrying or stopped are looked at again in %.0f s.", pause_s)

    def _begin_due(self) -> bool:
        """Begin the attempts that are due now; return whether the query still runs."""
        with self._changed:
            now = time.monotonic()
            waiting = [
                (table, trouble)
                for table in self._tables.values()
                if (trouble := table.trouble) is not None and table.is_free
            ]
        looked_at = [table for table, trouble in waiting if trouble.is_stopped and table.next_look <= now]
        is_due = any(trouble.next_attempt <= now for _, trouble in waiting)
        if not (looked_at or is_due) or self._session is None:
            return True
        if not self._is_running():
            return False
        for table in looked_at:
            self._look_at(table)
        for table, _ in waiting:
            self._begin_retry(table)
        return True

    def _begin_retry(self, table: _TableTask) -> None:
        with self._changed:
            n_retries = sum(table.is_running and table.trouble is not None for table in self._tables.values())
            is_late = self._is_once and self._is_out_of_patience(table)
            is_due = table.trouble is not None and table.trouble.next_attempt <= time.monotonic()
            if not is_due or is_late or self._is_closed or not table.is_free or n_retries >= self._settings.parallel:
                return
            # Only a table whose thread has begun is running: nobody else would end it. The attempt needs this lock, too.
            threading.Thread(
                target=self._attempt, args=(table,), name=f"pykafka-wire-ingest-{table.name}", daemon=True
            ).start()
            table.is_running = True

    def _look_at(self, table: _TableTask) -> None:
        """Let a stopped table be tried at once, if what stopped it has changed."""
        cause = self._cause_of(table)
        with self._changed:
            # None is the cause of a table that was stopped before it was tried.
            if cause != table.cause and table.trouble is not None:
                table.trouble = due(table.trouble, time.monotonic())
            table.cause = cause
            table.next_look = time.monotonic() + table.look_pause_s
            table.look_pause_s = min(_LONGEST_CAUSE_S, table.look_pause_s * 2)

    def _cause_of(self, table: _TableTask) -> tuple[object, ...]:
        """Return what a stopped table waits for; the code of an error where that cannot be looked up, which is no reason to end."""
        if self._session is None:
            return ()
        try:
            with self._lent_session() as session:
                cause = self._writer(session, table).cause()
        except Exception as error:
            return (code_of(error),)
        target = table.target
        return (*cause, dict(target.part.end)) if table.may_be_record_s and target is not None else cause

    def _await_retries(self) -> None:
        """Return when no table is retrying any more, or their time is over; neither attempts nor upkeep outlive the run."""

        def is_retrying(table: _TableTask) -> bool:
            return table.trouble is not None and not table.trouble.is_stopped

        def is_over() -> bool:
            return self._is_closed or not (
                self._tended
                or any(
                    table.is_running or (is_retrying(table) and not self._is_out_of_patience(table))
                    for table in self._tables.values()
                )
            )

        with self._changed:
            while not is_over():
                self._changed.wait(_LOOK_S)

    def _is_out_of_patience(self, table: _TableTask) -> bool:
        """Return whether a run that ends by itself waits no longer for a table; a search that is paused lands more each time."""
        is_search = table.trouble is not None and table.trouble.code == SearchPausedError.__name__
        return not is_search and time.monotonic() >= (self._patience_ends or 0.0)

    def _check_running(self) -> None:
        """Raise RuntimeError if the query has ended."""
        if not self.is_running:
            raise RuntimeError("the query has ended")

    # Sessions

    @contextmanager
    def _lent_session(self) -> Iterator[SparkSession]:
        """Lend a session to one user at a time: the settings by which a commit gets its metadata belong to a session."""
        with self._changed:
            session = self._idle_sessions.pop() if self._idle_sessions else None
        if session is None:
            session = self._new_session()
        try:
            yield session
        finally:
            with self._changed:
                self._idle_sessions.append(session)

    def _new_session(self) -> SparkSession:
        base = self._session
        assert base is not None, "land has been called"
        session: SparkSession = base.cloneSession() if hasattr(base, "cloneSession") else base.newSession()
        # A platform may install libraries after Spark has looked for data sources.
        session.dataSource.register(PykafkaWireDataSource)
        for name, value in base.conf.getAll.items():
            is_new = session.conf.get(name, None) != value
            # Hadoop's, such as keys of a store, are none of Spark's: it does not know whether they can be modified.
            is_hadoop_s = not name.startswith("spark.")
            if is_new and (is_hadoop_s or (name.startswith(_SESSION_SETTINGS) and session.conf.isModifiable(name))):
                session.conf.set(name, value)
        if session.conf.get(_SNAPSHOT_PARTITIONS, None) is None:
            session.conf.set(_SNAPSHOT_PARTITIONS, "2")
        session.conf.set(_COMMIT_LOCK, "true")
        set_row_settings(session)
        return session


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
