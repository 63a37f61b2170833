"""Snapshots of an ingest for its page: the ingest's status, and the logs of its tables.

Asks neither brokers nor the registry. The only Spark job is small: it reads a table's newest rejects when somebody opens the table.
"""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.streaming.query import StreamingQuery

import pykafka_wire
from pykafka_wire.errors import OptionError
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.spark.errors import sentence_of
from pykafka_wire.ingest.spark.progress import ReadFigures
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.log import LoggedCommit, ReadLog, changes_between
from pykafka_wire.ingest.tables.rejects import RejectOwner, Rejects
from pykafka_wire.ingest.watching.masking import masked_settings, without_values
from pykafka_wire.ingest.watching.processes import Processes
from pykafka_wire.ingest_status import IngestStatus, TableSize, TableStatus
from pykafka_wire.page.snapshots import (
    Column,
    Commit,
    IngestSnapshot,
    IngestState,
    ProcessFigures,
    Reject,
    SchemaChange,
    TableHistory,
)
from pykafka_wire.wire.masking import without_secrets

_log = logging.getLogger(__name__)

#: The interval at which the use of CPU and memory is measured, and at which sizes of tables are read, in seconds.
_MEASURED_S: Final = 5.0
_SIZED_S: Final = 2.0
#: The most rejects that are shown, the number of newest commits of rejects that are read, and the most bytes of a value.
_REJECTS: Final = 20
_REJECT_COMMITS: Final = 10
_VALUE_BYTES: Final = 500
#: A query of rejects is cancelled after this time, in seconds.
_QUERY_S: Final = 20.0


class RunningIngest(Protocol):
    """The part of an ingest that the page uses."""

    settings: Settings
    reads: ReadFigures | None

    def status(self) -> IngestStatus: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedRun:
    """A query of an ingest, for the page.

    Attributes:
        shows_values: whether the page may show values of rejects.
    """

    ingest: RunningIngest
    spark: SparkSession
    query: StreamingQuery
    shows_values: bool
    started_at: float = field(default_factory=time.time)


class IngestPage:
    """The :class:`~pykafka_wire.page.snapshots.PageSource` of a running ingest."""

    def __init__(self, run: PagedRun) -> None:
        self._run = run
        self._settings = run.ingest.settings
        self._reads = run.ingest.reads
        self._masked = masked_settings(self._settings)
        self._versions = _versions(run.spark, format_of(self._settings).reader)
        self._processes = Processes()
        self._measured: tuple[float, Mapping[str, ProcessFigures]] = (float("-inf"), {})
        self._logs = _Logs(self._open_log)
        self._sizes = _Sizes(self._logs)

    def snapshot(self, *, is_watched: bool) -> IngestSnapshot:
        """See :meth:`~pykafka_wire.page.snapshots.PageSource.snapshot`."""
        state, error = self._state()
        status = self._run.ingest.status()
        status = replace(status, tables=[self._shown(table) for table in status.tables])
        if is_watched:
            self._sizes.want({table.key: table.commits for table in status.tables})
        if time.monotonic() - self._measured[0] >= _MEASURED_S:
            self._measured = time.monotonic(), self._processes.figures()
        settings = self._settings
        return IngestSnapshot(
            status=status,
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
            sizes=self._sizes.known(),
            bytes_written=self._sizes.written,
            bytes_read=None if self._reads is None else self._reads.total().bytes_received,
            processes=self._measured[1],
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
        except (OptionError, OSError, ValueError) as error:  # ValueError: a type that this Spark version does not know
            return TableHistory(is_whole=False, problem=f"The table's log cannot be read by this process: {error}")
        rejects, problem = self._rejects(topic)
        settings, name = self._settings, self._settings.destination(topic).name
        return TableHistory(
            columns=history.columns, changes=history.changes, is_whole=history.is_whole, commits=history.commits,
            rejects=tuple(rejects), problem=problem, limited_readers=tuple(format_of(settings).limited_readers(settings, name)),
        )  # fmt: skip

    def close(self) -> None:
        """Stop reading sizes of tables."""
        self._sizes.close()

    def _state(self) -> tuple[IngestState, str | None]:
        if self._run.query.isActive:
            return "running", None
        error = self._run.query.exception()
        return ("ended", None) if error is None else ("failed", self._text(sentence_of(error)))

    def _shown(self, table: TableStatus) -> TableStatus:
        trouble = table.trouble
        return table if trouble is None else replace(table, trouble=replace(trouble, reason=self._text(trouble.reason)))

    def _text(self, text: str) -> str:
        return text if self._run.shows_values else without_values(text, format_of(self._settings).errors)

    def _open_log(self, topic: str) -> ReadLog:
        """Return a table's log; for an empty key, the log of rejects. Raises OptionError if only Spark can resolve its place."""
        name = self._settings.destination(topic).name if topic else self._settings.rejects
        return format_of(self._settings).open_log(self._run.spark, self._settings, name)

    def _rejects(self, topic: str) -> tuple[Sequence[Reject], str | None]:
        """Return the newest rejects of a table. The log of the table of rejects shows which micro-batches have any; each commit
        has the rejects of one table, so Delta's statistics select a few files."""
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
            except Exception as error:  # of Spark, such as a cancelled job
                _log.debug("The rejects of %s could not be read.", topic, exc_info=True)
                return (
                    (),
                    f"The rejects could not be read ({type(error).__name__}): query the table {self._settings.rejects} directly.",
                )
        return (), "The log of the table of rejects cannot be read by this process."

    def _read_rejects(self, topic: str, numbers: list[int]) -> list[Reject]:
        value = F.substring("value", 1, _VALUE_BYTES) if self._run.shows_values else F.lit(None).cast("binary")
        with _limited_job(self._run.spark, f"the page's rejects of {topic}"):
            stored = format_of(self._settings).open_table(self._run.spark, self._settings, self._settings.rejects)
            rows = (
                Rejects(stored, [RejectOwner.of(self._settings.destination(topic))])
                .rows.where(F.col("micro_batch").isin(numbers))
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
    """Return the topic of a table's key. The page calls the key a topic."""
    return key.partition(":")[0]


def value_text(data: bytes, size: int) -> str:
    """Return the beginning of a value in a readable form: text, or a registry frame's schema id and the following bytes, or hex."""
    more = "" if size <= len(data) else f" … ({size} bytes in all)"
    if len(data) >= 5 and data[0] == 0:
        return f"schema {int.from_bytes(data[1:5], 'big')}, then {data[5:].hex(' ')}{more}"
    # The last character may be incomplete.
    text = data.decode("utf-8", errors="ignore" if more else "replace")
    if "\ufffd" not in text and all(character.isprintable() or character in "\t\r\n" for character in text):
        return text + more
    return data.hex(" ") + more


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
    with suppress(Exception):  # a Delta version without this constant
        versions["Delta"] = str(jvm.io.delta.package.VERSION())
    return versions


class _Logs:
    """The opened logs of tables, by table key; the log of rejects has an empty key."""

    def __init__(self, open_log: Callable[[str], ReadLog]) -> None:
        self._open_log = open_log
        self._lock = threading.Lock()
        self._logs: dict[str, tuple[threading.Lock, ReadLog]] = {}

    @contextmanager
    def open(self, topic: str) -> Iterator[ReadLog]:
        """Lend a log to one thread."""
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
    """Reads the sizes of tables with new commits in a thread, while somebody watches the page.

    Attributes:
        written: the bytes by which tables have grown since they were first read; None before that.
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
        """Request the sizes of tables whose number of commits has changed."""
        self._wanted = dict(commits)
        self._wake.set()

    def known(self) -> dict[str, TableSize]:
        """Return the known sizes, by table."""
        return {topic: size for topic, (_, size) in list(self._sizes.items()) if size is not None}

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
        before = size = self._sizes.get(topic, (0, None))[1]
        try:
            with self._logs.open(topic) as log:
                size = log.size()
        except Exception:  # the page must never disturb an ingest: the size is not shown
            _log.debug("The log of %s could not be read.", topic, exc_info=True)
        self._sizes[topic] = commits, size
        if size is not None:
            grown = 0 if before is None else max(0, size.bytes - before.bytes)
            self.written = (self.written or 0) + grown


def _columns(log: ReadLog) -> Iterator[Column]:
    """Yield the current columns, each with the commit that added it, if known."""
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
    """Yield the schema changes, newest first."""
    schemas = list(log.schemas())
    for commit, before, after in reversed(schemas):
        if before is None and not log.is_whole:  # the schema before it is unknown
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
    """Describe this thread's Spark jobs, and cancel them after a time limit."""
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
