"""An ingest as a Spark query: its start, and the path of a micro-batch to the tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pykafka_wire.checkpoints.files import CheckpointFiles, StoredFiles
from pykafka_wire.checkpoints.positions import beginning_of, position_at, ranges_of
from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.reference import CheckpointReference
from pykafka_wire.checkpoints.spark_files import SparkFiles, default_file_system
from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.errors import IngestError, OffsetsError, OptionError
from pykafka_wire.ingest.landing.landing import Landing, status_of
from pykafka_wire.ingest.landing.micro_batch import MicroBatch
from pykafka_wire.ingest.landing.remedies import Failure, Remedy
from pykafka_wire.ingest.landing.retries import trouble_after
from pykafka_wire.ingest.planner import PlannedTable, TablePlanner, raise_mistakes
from pykafka_wire.ingest.records.debezium_topics import DebeziumTopics
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.settings.mistakes import check_settings
from pykafka_wire.ingest.settings.model import DEFAULT_REJECTS, TABLE_STATE, Settings, Table
from pykafka_wire.ingest.settings.settings_file import read_settings
from pykafka_wire.ingest.spark.connect import is_connect
from pykafka_wire.ingest.spark.progress import ReadFigures
from pykafka_wire.ingest.spark.server_rows import leave_release_to_server
from pykafka_wire.ingest.startup.folder_checks import is_local_folder
from pykafka_wire.ingest.startup.lease import CheckpointLease, check_free
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.watching.metrics import values
from pykafka_wire.ingest.watching.watch import IngestWatch
from pykafka_wire.ingest_status import IngestStatus, TableStatus
from pykafka_wire.metrics.definitions import BY_NAME, TABLE, TABLE_LAG
from pykafka_wire.page.address import PageSettings, listen_error
from pykafka_wire.page.server import Page
from pykafka_wire.source.stream_reader import HAS_ADMISSION_CONTROL
from pykafka_wire.wire.topic_partitions import OffsetRange, topic_id_text

if TYPE_CHECKING:  # whose library is optional
    from pykafka_wire.metrics.prometheus import PrometheusServer

_log = logging.getLogger(__name__)


#: The default of a mapping of settings.
_NONE: Final[Mapping[str, str]] = {}
_DEFAULTS: Final = Table(topic=".*")
#: The runs in this process, by query id. A run whose query has ended may still be writing.
_RUNS: Final = WeakValueDictionary[str, Landing]()


class Ingest:
    """Lands topics in tables. Each parameter is a setting of docs/ingest-settings.md.

    ::

        Ingest(checkpoint="…", kafka={"bootstrap.servers": "…"}, topics=r"shop\\..*", into="/lake/shop", registry="…",
               tables=[Table(topic="shop.orders", mode="upsert")]).start(spark)
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        checkpoint: str,
        kafka: Mapping[str, str],
        topics: str,
        into: str,
        name: str | None = None,
        registry: str | None = None,
        registry_options: Mapping[str, str] = _NONE,
        table_format: str = "delta",
        catalog: Mapping[str, str] = _NONE,
        storage: Mapping[str, str] = _NONE,
        prefix: str = "_kafka_",
        headers: bool = False,
        rejects: str = DEFAULT_REJECTS,
        starting_offsets: str = "earliest",
        max_rows: int = 10_000_000,
        parallel: int = 4,
        every: str = "10s",
        ui: int | str | None = None,
        ui_token: str | None = None,
        ui_values: bool = False,
        metrics_port: int | str | None = None,
        defaults: Table = _DEFAULTS,
        tables: Sequence[Table] = (),
    ) -> None:
        """Store the settings, and check them.

        Args:
            defaults: the settings of every table that ``tables`` does not match.
            tables: the settings of single topics; the first entry that matches a topic applies.

        Raises:
            IngestError: a setting is wrong; the error lists all mistakes.
        """
        self._begin(
            Settings(
                checkpoint=checkpoint,
                kafka=kafka,
                topics=topics,
                into=into,
                name=name,
                registry=registry,
                registry_options=registry_options,
                table_format=table_format,
                catalog=catalog,
                storage=storage,
                prefix=prefix,
                headers=headers,
                rejects=rejects,
                starting_offsets=starting_offsets,
                max_rows=max_rows,
                parallel=parallel,
                every=every,
                ui=ui,
                ui_token=ui_token,
                ui_values=ui_values,
                metrics_port=metrics_port,
                defaults=defaults,
                tables=tuple(tables),
            )
        )

    @classmethod
    def of(cls, settings: Settings) -> Ingest:
        """Return an ingest with these settings. Raises IngestError with all mistakes."""
        ingest = cls.__new__(cls)
        ingest._begin(settings)
        return ingest

    @classmethod
    def from_file(cls, path: str | Path) -> Ingest:
        """Return an ingest from a TOML file, the same file that ``pykafka-wire ingest`` reads. Raises IngestError with all
        mistakes."""
        return cls.of(read_settings(Path(path)))

    def _begin(self, settings: Settings) -> None:
        check_settings(settings)
        self.settings = settings
        self._debezium = DebeziumTopics(self.settings)
        self._landing: Landing | None = None
        self._is_once = False
        #: The failures of tables that could not be landed at the start, by table key.
        self._failed_at_start: dict[str, Failure] = {}
        self._failed_at = time.monotonic()
        self._query: StreamingQuery | None = None
        self._lease: CheckpointLease | None = None
        self._micro_batch: MicroBatch | None = None
        self._watch = IngestWatch(self, ())
        #: The figures that tasks report about their reads, for the page.
        self.reads: ReadFigures | None = None
        #: The page with its link, if :meth:`start` was asked for a page.
        self.page: Page | None = None
        self._metrics: PrometheusServer | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the settings alone. The server of Spark Connect lands micro-batches in its own process, where the ingest starts
        anew."""
        return _ingest_of, (self.settings, self._is_once)

    @property
    def query_name(self) -> str:
        """Return the name of Spark's query, which is also a label of the metrics. A session cannot run two queries of the same
        name."""
        return f"pykafka-wire ingest {self.settings.name or self.settings.checkpoint}"

    def status(self) -> IngestStatus:
        """Return what the ingest is doing now, and the status of each table, including tables of topics without records.

        The status is that of the run that :meth:`start` began in this process. With Spark Connect the server lands the tables, and
        this process knows nothing of them.
        """
        return self._watch.status()

    @property
    def statuses(self) -> Mapping[str, TableStatus]:
        """Return the status of each table that the run has opened; empty where the server of Spark Connect lands the tables.

        The key is the topic, or ``topic:table`` for a table that takes a subset of its topic (``where``, ``types``).
        """
        tables = {table.key: table for table in self.status().tables}
        return {key: tables.get(key, status) for key, status in self.reported.items()}

    @property
    def reported(self) -> Mapping[str, TableStatus]:
        """Return the run's own figures and failures of each table, without the figures that come from Spark."""
        stopped = {
            key: status_of(self.settings.destination(key), trouble=trouble_after(failure, None, self._failed_at))
            for key, failure in self._failed_at_start.items()
        }
        return stopped | (self._landing.statuses if self._landing is not None else {})

    def helper_topics(self, topics: Iterable[str]) -> Iterable[str]:
        """Return Debezium's own topics, such as heartbeats, which hold no rows."""
        return self._debezium.among(topics, ())

    @property
    def micro_batch(self) -> MicroBatch | None:
        """Return the micro-batch that is being landed; None between micro-batches, and where the server of Spark Connect lands the
        tables.
        """
        return self._micro_batch

    def figures(self, metric: str) -> dict[tuple[str, ...], float]:
        """Return the values of one metric by their labels, for :meth:`~pykafka_wire.metrics.QueryFigures.include`."""
        if BY_NAME[metric].labels[: len(TABLE)] != TABLE:
            return {}
        # Only the lag needs figures from Spark.
        statuses = self.statuses if metric == TABLE_LAG else self.reported
        return values(metric, self.query_name, statuses.values())

    @property
    def planner(self) -> TablePlanner:
        """Return the planner of the ingest's tables."""
        return TablePlanner(self.settings, self._debezium)

    def topics(self) -> list[str]:
        """Return the existing topics that the settings select."""
        return self.planner.topics()

    def plan(self, spark: SparkSession | None = None) -> list[PlannedTable]:
        """Return what the ingest would do with each topic that exists now. Needs brokers and the registry, but no Spark session.

        An error of the registry becomes a mistake of each table that needs the registry.

        Args:
            spark: a session, needed only to look up which topic a catalog table holds.
        """
        return self.planner.plan(spark)

    def checked_plan(self, *, on_this_machine: bool = False) -> list[PlannedTable]:
        """Return :meth:`plan`, after checking what would stop every topic. A mistake of one topic becomes the state of its table.

        Args:
            on_this_machine: whether the folders are on this machine, and are checked too; false with Spark Connect.

        Raises:
            IngestError: a folder cannot be written; or, before the first start, a folder holds data of another program; or another
                process of this machine runs this ingest. The error lists all mistakes.
        """
        if on_this_machine:
            check_free(self.settings.checkpoint)
        planned = self.plan()
        if on_this_machine:
            raise_mistakes(self.planner.folder_mistakes(planned))
        return planned

    def start(
        self,
        spark: SparkSession,
        *,
        once: bool = False,
        every: str | None = None,
        planned: list[PlannedTable] | None = None,
        ui: PageSettings | str | int | None = None,
    ) -> StreamingQuery:
        """Check everything that can be checked, then start the query.

        Args:
            once: stop after landing all records that exist at the start.
            every: the time between two micro-batches; overrides the setting ``every``.
            planned: the result of :meth:`plan`, if the caller has it. A mistake of one topic does not stop the others.
            ui: the address of the page, as ``[HOST:]PORT``; overrides the setting ``ui``. The page is served until this process
                ends; :attr:`page` has its link.

        Raises:
            IngestError: a table belongs to another program; the checkpoint belongs to another query, or another process uses it;
                the session cannot be cloned (Spark Connect before Spark 4.2); or this ingest is already running.
            OptionError: ``every`` is not a duration, or the page or the metrics server cannot listen.
        """
        if self._query is not None and self._query.isActive:
            raise IngestError("this ingest is running: stop its query first.")
        if is_connect(spark) and not hasattr(spark, "cloneSession"):
            raise IngestError(
                "an ingest in a session of Spark Connect needs Spark 4.2: use a newer Spark, or a classic session."
            )
        settings = self.settings if every is None else replace(self.settings, every=every)
        page = self.settings.page() if ui is None else PageSettings.of(ui)
        if is_connect(spark) and page is not None:
            raise IngestError(
                "the page shows figures of this process, but Spark Connect's server lands the tables: remove ui, or use a "
                "classic session."
            )
        trigger: dict[str, Any] = (
            {"availableNow": True} if once else {"processingTime": f"{settings.every_ms} milliseconds"}
        )
        self._close_servers()  # of an earlier start
        self.page = None if page is None else Page(page)
        self.reads = None if page is None else ReadFigures()
        self._is_once = once
        try:
            if self.settings.metrics_address is not None:
                self._serve_metrics(spark, *self.settings.metrics_address)
            if planned is None:
                planned = self.plan()
            if once and not planned:
                raise IngestError(
                    f"no topic to land matches {self.settings.topics}: correct topics, a regular expression that matches the "
                    "whole name of each topic, or start without once to wait for a topic."
                )
            query = self._start(spark, trigger, planned)
        except BaseException:
            self.close()  # tables may be retrying
            raise
        if self.page is not None:
            from pykafka_wire.ingest.watching.page import IngestPage, PagedRun

            run = PagedRun(ingest=self, spark=spark, query=query, shows_values=self.page.settings.shows_values)
            self.page.serve(IngestPage(run))
        return query

    def close(self) -> None:
        """Wait until nothing is written any more, after the query has ended. A running compaction may take a while.

        :meth:`start` calls this method, too. Start no other ingest of the same tables before it returns.
        """
        if self._landing is not None:
            self._landing.close()
        if self._lease is not None:
            self._lease.release()
        self._close_servers()

    def _close_servers(self) -> None:
        for resource in (self.page, self.reads, self._metrics):
            if resource is not None:
                resource.close()
        self._metrics = None

    def _serve_metrics(self, spark: SparkSession, host: str, port: int) -> None:
        from pykafka_wire import metrics

        try:
            self._metrics = metrics.serve_prometheus(spark, port, host)
        except (OSError, UnicodeError) as error:
            raise listen_error(host, port, "the metrics server", error) from error
        self._metrics.listener.figures.include(self.figures)

    def _start(self, spark: SparkSession, trigger: Mapping[str, Any], planned: list[PlannedTable]) -> StreamingQuery:
        spark.dataSource.register(PykafkaWireDataSource)
        if not is_connect(spark):
            self.settings = self.settings.in_file_system(default_file_system(spark))
        self._check_name_is_free(spark)
        of_session = format_of(self.settings).session_mistake(spark, self.settings)
        mistakes = [*filter(None, [of_session, format_of(self.settings).merge_mistake(spark, self.settings)])]
        if of_session is not None:  # such a session cannot find the tables' own mistakes
            raise_mistakes(mistakes)
        log = self._open_log(spark, is_remote=is_connect(spark))
        if log is not None:
            mistakes += self._checkpoint_mistakes(log)
        else:
            # A table with a stated position is adopted; opening the table checks its owner.
            new = [each.table for each in planned if not self.settings.destination(each.key).table.position]
            mistakes += self._existing_tables_mistakes(spark, new)
        raise_mistakes(mistakes)
        self._end_earlier_run(log)
        self._landing = None
        self._query = None
        self._watch = IngestWatch(self, planned)
        if not is_connect(spark):
            self._watch.start(spark)
        if not is_connect(spark):
            self._take_lease()
        if not self.settings.is_folder and len({table.table.lower() for table in planned}) < len(planned):
            planned = self.plan(spark)  # only Spark may know the owner of a table
        planned = self.planner.with_sql(spark, planned)
        if is_local_folder(self.settings):  # elsewhere, the logs of a thousand tables would delay the start
            self._watch.expect_lost_readers({table.key: self.planner.lost_readers(table) for table in planned})
        self._failed_at_start = {table.key: table.failure for table in planned if table.failure is not None}
        self._failed_at = time.monotonic()
        for key, failure in self._failed_at_start.items():
            until = "" if failure.remedy is Remedy.CHANGE else " until another attempt succeeds"
            text = "Topic %s is not landed%s; the other topics are. %s"
            _log.error(text, key, until, failure.sentence, extra={TABLE_STATE: self.settings.destination(key).name})
        if log is not None and not is_connect(spark):
            self._resume(spark, log)

        self._query = (
            spark.readStream.format("pykafka-wire")
            .options(**self._stream_options())
            .load()
            .writeStream.foreachBatch(self._land_batch)
            .option("checkpointLocation", self.settings.checkpoint)
            .queryName(self.query_name)
            .trigger(**trigger)
            .start()
        )
        self._watch.follow(self._query)
        return self._query

    def _take_lease(self) -> None:
        """Take the checkpoint's lease, and keep it until the query has ended and nothing is written any more.

        Raises:
            IngestError: another process runs the ingest with this checkpoint.
        """
        if self._lease is not None:
            self._lease.release()
        self._lease = CheckpointLease.take(self.settings.checkpoint, self._is_in_use)

    def _is_in_use(self) -> bool:
        """Return whether the ingest may still write to its tables."""
        return self._is_query_running() or (self._landing is not None and self._landing.is_writing)

    def _check_name_is_free(self, spark: SparkSession) -> None:
        """Raise IngestError if the session already runs a query of this name: Spark would reject the new query only after tables
        were written."""
        if any(query.name == self.query_name for query in spark.streams.active):
            raise IngestError(
                f"a query named {self.query_name!r} is already running in this Spark session: stop it, and close its ingest. "
                "Another ingest needs a name and a checkpoint of its own."
            )

    def _end_earlier_run(self, log: QueryLog | None) -> None:
        """Close every other run of this checkpoint in this process, and wait until it writes no more.

        Raises:
            IngestError: the query of that run is still running, in another Spark session.
        """
        earlier = {self._landing, None if log is None else _RUNS.get(log.query_id() or "")}
        for landing in filter(None, earlier):
            is_running = False
            try:
                is_running = landing is not self._landing and landing.is_running
            except Exception as error:  # the JVM of the earlier run, or its Spark Connect server, has ended
                _log.debug("The state of an earlier run of this checkpoint is unknown.", exc_info=error)
            if is_running:
                raise IngestError(
                    f"the ingest with the checkpoint {self.settings.checkpoint} is running in this process: stop its query first."
                )
            landing.close()  # tables may be retrying

    def _stream_options(self) -> dict[str, str]:
        settings = self.settings
        limits = {"maxOffsetsPerTrigger": str(settings.max_rows), **settings.waits}
        if not HAS_ADMISSION_CONTROL:
            _log.warning(
                "max_rows, min_rows and max_delay need Spark 4.2: each micro-batch takes all available records."
            )
            limits = {}
        return {
            **settings.kafka_options,
            **settings.group_options,
            "subscribePattern": f"^(?:{settings.topics})$",
            "startingOffsets": settings.starting_offsets,
            "columns": "offset",
            **limits,
            # A table whose records were lost is stopped when it is written; the query goes on.
            "failOnDataLoss": "false",
        }

    def _land_batch(self, batch: DataFrame, micro_batch: int) -> None:
        leave_release_to_server(batch)
        if self._lease is not None:
            self._lease.check()
        elif is_connect(batch.sparkSession) and self._landing is None:
            self._take_lease()
        log = self._open_log(batch.sparkSession)
        assert log is not None, "Spark has planned the micro-batch"
        if self._landing is None:  # in the process of Spark Connect's server
            self._resume(batch.sparkSession, log)
        self._land(batch.sparkSession, log, micro_batch)

    def _resume(self, session: SparkSession, log: QueryLog) -> None:
        """Land the records that tables still lack of the last micro-batch, also for topics without new records."""
        if log.committed:
            self._land(session, log, log.committed[-1], with_idle=True)

    def _land(self, session: SparkSession, log: QueryLog, micro_batch: int, *, with_idle: bool = False) -> None:
        if self._landing is None:
            query = log.query_id()
            if query is None:
                raise IngestError(
                    f"the checkpoint {log.shown} has no file metadata with the query's id: check that it is complete."
                )
            self._landing = Landing(
                self.settings, query, is_once=self._is_once, is_running=self._is_running,
                receiver=None if self.reads is None else self.reads.receiver,
            )  # fmt: skip
            _RUNS[query] = self._landing
            for key, failure in self._failed_at_start.items():
                self._landing.begin_failed(self.settings.destination(key), failure)
        reference = CheckpointReference(path=self.settings.checkpoint, batch_id=micro_batch)
        by_topic = _by_topic(ranges_of(log, reference, lambda tp: self.settings.lands(tp.topic)))
        new = None if with_idle else {each.topic for each in by_topic if each.n_offsets}
        helpers = self._debezium.among((each.topic for each in by_topic), new)
        ranges = [each for each in by_topic if (with_idle or each.n_offsets) and each.topic not in helpers]
        self._micro_batch = MicroBatch(
            number=micro_batch,
            ranges={destination.key: each for each in ranges for destination in self.settings.destinations(each.topic)},
            positions={
                key: status.position for key, status in self._landing.statuses.items() if status.position is not None
            },
            is_repeated=with_idle,
        )
        try:
            with nullcontext() if self.reads is None else self.reads.batch(micro_batch):
                self._landing.land(session, ranges, micro_batch, lambda topic: beginning_of(log, micro_batch, topic))
        finally:
            self._micro_batch = None

    def _is_running(self) -> bool:
        """Return whether the query is running and still holds its lease."""
        return not (self._lease is not None and self._lease.is_lost) and self._is_query_running()

    def _is_query_running(self) -> bool:
        """Return whether the query is running or about to start. Always true in the process of Spark Connect's server, which ends
        with the query.
        """
        return self._query is None or self._query.isActive

    def _open_log(self, session: SparkSession, *, is_remote: bool = False) -> QueryLog | None:
        """Return the checkpoint's log; None before the first start.

        Args:
            is_remote: whether the paths belong to another machine, that of Spark's driver.
        """
        places: list[CheckpointFiles] = []
        if not is_remote:
            with suppress(OptionError):  # pyarrow does not support the file system
                places.append(StoredFiles(self.settings.checkpoint, "checkpoint"))
        if not places or is_connect(session):  # the server may resolve the path on another file system
            places.append(SparkFiles(session, self.settings.checkpoint))
        for files in places:
            try:
                return QueryLog(files)
            except OffsetsError:
                if files.logged("offsets") or files.logged("commits"):
                    raise
        return None

    def _checkpoint_mistakes(self, log: QueryLog) -> list[str]:
        if not log.planned:
            return []
        last = log.planned[-1]
        try:
            topics = position_at(
                log, CheckpointReference(path=self.settings.checkpoint, batch_id=last), lambda _: True
            ).topics
        except OffsetsError as error:
            return [error.message]
        if topics and not any(map(self.settings.lands, topics)):
            return [
                f"the checkpoint {log.shown} belongs to other topics ({', '.join(sorted(topics)[:10])}): name a new folder, or "
                "correct topics"
            ]
        return []

    def _existing_tables_mistakes(self, spark: SparkSession, names: list[str]) -> list[str]:
        """Return a mistake that names the tables that exist although this ingest has never run."""
        tables = [
            format_of(self.settings).open_table(spark, self.settings, name)
            for name in dict.fromkeys([self.settings.rejects, *names])
        ]
        with ThreadPoolExecutor(self.settings.parallel) as threads:
            exists = list(threads.map(lambda table: table.exists, tables))
        taken = ", ".join(table.identifier for table in compress(tables, exists))
        text = (
            f"this checkpoint is new, but these tables exist: {taken}. Use the checkpoint of the ingest that made them (if it "
            'is lost, write {"id": "…"} with the property pykafka-wire.query of these tables into the file metadata of the new '
            "one), or give these tables another place with into, or another name in [[table]]"
        )
        return [text] if taken else []


def _ingest_of(settings: Settings, is_once: bool) -> Ingest:
    ingest = Ingest.of(settings)
    ingest._is_once = is_once
    return ingest


def _by_topic(ranges: Iterable[OffsetRange]) -> list[TopicRange]:
    by_topic: dict[str, list[OffsetRange]] = {}
    for offset_range in ranges:
        by_topic.setdefault(offset_range.topic, []).append(offset_range)
    return [
        TopicRange(
            topic=topic,
            topic_id=topic_id_text(group[0].topic_id) if group[0].topic_id.int else "",
            start={r.partition: r.start_offset for r in group},
            end={r.partition: r.end_offset for r in group},
            epochs={r.partition: r.leader_epoch for r in group if r.leader_epoch >= 0},
        )
        for topic, group in by_topic.items()
    ]
