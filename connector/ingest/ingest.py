"""An ingest as a Spark query: what is checked before it starts, and how its micro-batches get to the tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pykafka_wire.checkpoints.files import CheckpointFiles, StoredFiles
from pykafka_wire.checkpoints.positions import beginning_of, position_at, ranges_of
from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.reference import CheckpointReference
from pykafka_wire.checkpoints.spark_files import SparkFiles, default_file_system
from pykafka_wire.columns.spark_schema import spark_type
from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.errors import ConnectorError, IngestError, OffsetsError, OptionError, UnreachableRegistryError
from pykafka_wire.ingest.failures import Failure, Remedy, sentence_of
from pykafka_wire.ingest.landing.attempts import trouble_after
from pykafka_wire.ingest.landing.landing import Landing, status_of
from pykafka_wire.ingest.landing.micro_batch import MicroBatch
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.debezium_topics import DebeziumTopics
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.sessions.progress import ReadFigures
from pykafka_wire.ingest.sessions.server_rows import leave_release_to_server
from pykafka_wire.ingest.sessions.spark_connect import is_connect
from pykafka_wire.ingest.settings.model import DEFAULT_REJECTS, TABLE_STATE, Destination, Settings, Table, read_settings
from pykafka_wire.ingest.startup.folder_checks import place_mistakes, query_of
from pykafka_wire.ingest.startup.lease import CheckpointLease, check_free
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.topic_table import TOPIC_PROPERTY
from pykafka_wire.ingest.watching.metrics import values
from pykafka_wire.ingest.watching.watch import IngestWatch
from pykafka_wire.ingest_status import IngestStatus, TableStatus
from pykafka_wire.metrics.definitions import BY_NAME, TABLE, TABLE_LAG
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.page.address import PageSettings, listen_error
from pykafka_wire.page.server import Page
from pykafka_wire.source.stream_reader import HAS_ADMISSION_CONTROL
from pykafka_wire.values.ddl import DdlError, arrow_type
from pykafka_wire.values.registry.registered_schema import RegistryId
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import OffsetRange, topic_id_text

if TYPE_CHECKING:  # whose library is optional
    from pykafka_wire.metrics.prometheus import PrometheusServer

_log = logging.getLogger(__name__)


#: Of settings that are not given.
_NONE: Final[Mapping[str, str]] = {}
_DEFAULTS: Final = Table(topic=".*")
#: Runs in this process, by the id of their query: one whose query has ended may still be writing.
_RUNS: Final = WeakValueDictionary[str, Landing]()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """What an ingest would do with one topic, or with one of its tables.

    Attributes:
        where, expect: as those of :class:`~pykafka_wire.ingest.settings.model.Table`.
        columns: the value's columns, as DDL, or where they will come from; of ``select`` its expressions, until Spark has seen
            them.
        is_part: whether the topic may have other tables.
        by_spark: why Spark writes the table's files, None where tasks of this package do; the table itself may have another reason.
        mistake: why it cannot be landed, None if it can.
        failure: the error of :attr:`mistake`, by which the table begins as retrying or stopped.
    """

    topic: str
    table: str
    mode: str
    format: str
    schema_id: RegistryId | None
    columns: str
    by_spark: str | None
    mistake: str | None
    failure: Failure | None
    where: str | None = None
    expect: Mapping[str, str] = field(default_factory=dict)
    is_part: bool = False

    @property
    def key(self) -> str:
        """Return the table's :attr:`~pykafka_wire.ingest.settings.model.Destination.key`."""
        return f"{self.topic}:{self.table}" if self.is_part else self.topic


class Ingest:
    """Lands topics in tables: each parameter is a setting of docs/ingest-settings.md.

    ::

        Ingest(checkpoint="…", kafka={"bootstrap.servers": "…"}, topics=r"shop\\..*", into="/lake/shop", registry="…",
               tables=[Table(topic="shop.orders", mode="upsert")]).start(spark)
    """

    def __init__(
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
        """Take the settings, and check them.

        Args:
            defaults: what tables have that ``tables`` does not name.
            tables: settings of single topics; the first one that matches counts.

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
        """Return an ingest of settings. Raises IngestError with all mistakes."""
        ingest = cls.__new__(cls)
        ingest._begin(settings)
        return ingest

    @classmethod
    def from_file(cls, path: str | Path) -> Ingest:
        """Return an ingest of a TOML file, as ``pykafka-wire ingest`` takes it. Raises IngestError with all mistakes."""
        return cls.of(read_settings(Path(path)))

    def _begin(self, settings: Settings) -> None:
        settings.check()
        self.settings = settings
        self._debezium = DebeziumTopics(self.settings)
        self._landing: Landing | None = None
        self._is_once = False
        #: Tables that could not be landed as they were at the start, by their keys.
        self._mistaken: dict[str, Failure] = {}
        self._mistaken_at = time.monotonic()
        self._query: StreamingQuery | None = None
        self._lease: CheckpointLease | None = None
        self._micro_batch: MicroBatch | None = None
        self._watch = IngestWatch(self, ())
        #: What its tasks report, for the page.
        self.reads: ReadFigures | None = None
        #: What shows it in a browser, with its link, where :meth:`start` was asked for one.
        self.page: Page | None = None
        self._metrics: PrometheusServer | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the settings alone: the server of Spark Connect lands micro-batches in a process of its own, which begins
        anew."""
        return _ingest_of, (self.settings, self._is_once)

    @property
    def query_name(self) -> str:
        """Return the name of Spark's query, which is a label of the metrics. A session runs queries of different names only."""
        return f"pykafka-wire ingest {self.settings.name or self.settings.checkpoint}"

    def status(self) -> IngestStatus:
        """Return what the ingest does now, and the status of each table, also of topics without records.

        Of the run that :meth:`start` began in this process. Where the server of Spark Connect lands the tables, nothing is known.
        """
        return self._watch.look()

    @property
    def statuses(self) -> Mapping[str, TableStatus]:
        """Return the status of each table that the run has looked at: none where the server of Spark Connect lands the tables.
        By topic, and ``topic:table`` where tables take parts of a topic (``where``, ``types``)."""
        tables = {table.key: table for table in self.status().tables}
        return {key: tables.get(key, status) for key, status in self.reported.items()}

    @property
    def reported(self) -> Mapping[str, TableStatus]:
        """Return what the run itself knows of each table: figures and trouble, without what Spark knows."""
        stopped = {
            key: status_of(self.settings.destination(key), trouble=trouble_after(failure, None, self._mistaken_at))
            for key, failure in self._mistaken.items()
        }
        return stopped | (self._landing.statuses if self._landing is not None else {})

    def helper_topics(self, topics: Iterable[str]) -> Iterable[str]:
        """Return the topics that Debezium writes for itself, such as heartbeats: they hold no rows."""
        return self._debezium.among(topics, ())

    @property
    def micro_batch(self) -> MicroBatch | None:
        """Return what is being landed now; None between two micro-batches, and where the server of Spark Connect lands the
        tables."""
        return self._micro_batch

    def figures(self, metric: str) -> dict[tuple[str, ...], float]:
        """Return one metric of each table, by its labels, for :meth:`~pykafka_wire.metrics.QueryFigures.include`."""
        if BY_NAME[metric].labels[: len(TABLE)] != TABLE:
            return {}
        # Of the metrics the lag alone needs what Spark knows.
        statuses = self.statuses if metric == TABLE_LAG else self.reported
        return values(metric, self.query_name, statuses.values())

    def plan(self, spark: SparkSession | None = None) -> list[PlannedTable]:
        """Return what would be done with each topic that exists now. Needs brokers and the registry, and no Spark session.

        Trouble with the registry is that of the topics that need it.

        Args:
            spark: a session, where one is needed to look up which topic a catalog's table holds.
        """
        readers = TableReaders(self.settings)
        destinations = [destination for topic in self.topics() for destination in self.settings.destinations(topic)]
        owners = self._owners(destinations, spark)
        planned: list[PlannedTable] = []
        unreachable: UnreachableRegistryError | None = None
        for destination in destinations:
            topic, table, name = destination.topic, destination.table, destination.name
            schema, columns = None, ""
            failed: Exception | None = None
            try:
                self._check_alone(destination, owners[name.lower()])
                schemas = readers.of(destination).schemas
                if unreachable is not None and schemas.asks_registry:
                    raise unreachable  # each request waits for it as long
                schema = schemas.value_schema()
                columns = schemas.columns_text(schema)
            except UnreachableRegistryError as error:
                unreachable = failed = error
            except Exception as error:  # whatever it is, the others are landed all the same
                failed = error
            planned.append(
                PlannedTable(
                    topic=topic, table=name, mode=table.mode, format=schema.format if schema else table.format,
                    schema_id=schema.schema_id if schema else None, columns=columns,
                    by_spark=format_of(self.settings).spark_reason(self.settings, table), mistake=_mistake_of(failed),
                    failure=None if failed is None else Failure.of(failed),
                    where=table.where, expect=table.expect, is_part=table.is_part,
                )
            )  # fmt: skip
        return planned

    def lost_readers(self, plan: PlannedTable) -> list[str]:
        """Return a sentence for each loss of other readers once a table has its planned columns; without Spark."""
        destination = self.settings.destination(plan.key)
        try:
            columns = spark_type(arrow_type(plan.columns))
        except DdlError:  # only the records, or Spark, tell them
            return []
        row = columns if isinstance(columns, StructType) else StructType().add("value", columns)
        return format_of(self.settings).lost_readers(self.settings, plan.table, destination.table, row)

    def _owners(self, destinations: Iterable[Destination], spark: SparkSession | None) -> dict[str, Destination]:
        """Return whose each table is, by the table's name in lower case: that of the topic which the table holds already, else of
        the first topic that asks for the name."""
        by_name: dict[str, list[Destination]] = {}
        for destination in destinations:
            by_name.setdefault(destination.name.lower(), []).append(destination)
        owners = {name: claims[0] for name, claims in by_name.items()}
        for name, claims in by_name.items():
            if len({claim.topic for claim in claims}) > 1:
                held = self._stored_topic({claim.name for claim in claims}, spark)
                owners[name] = next((claim for claim in claims if claim.topic == held), claims[0])
        return owners

    def _stored_topic(self, names: Iterable[str], spark: SparkSession | None) -> str | None:
        """Return the topic that a table holds, whose name is written in one of these ways; None where that is unknown."""
        for name in sorted(names):
            properties = format_of(self.settings).stored_properties(self.settings, name)
            if properties is None and spark is not None:
                table = format_of(self.settings).open_table(spark, self.settings, name)
                properties = table.properties() if table.exists else None
            if topic := (properties or {}).get(TOPIC_PROPERTY):
                return topic
        return None

    def _check_alone(self, destination: Destination, owner: Destination) -> None:
        """Raise IngestError where a table is another topic's, too, or leaves nothing to another one of its topic.

        Args:
            owner: whose the table of this name is.
        """
        topic, name = destination.topic, destination.name
        if owner is not destination and owner.topic == topic:
            raise IngestError(f"topic {topic} has two tables {name}: give each [[table]] a name of its own")
        if owner is not destination:
            raise IngestError(f"table {name} is topic {owner.topic}'s, too: give one of them a name in [[table]]")
        if (unused := self.settings.unused_for(topic)) is not None:
            raise IngestError(
                f"the [[table]] {destination.table.topic} is the first that matches topic {topic}, and takes all of its records, "
                f'so that {unused.name or unused.topic} would get none: put it behind, or give it where = "true"'
            )

    def has_sql(self, planned: Sequence[PlannedTable]) -> bool:
        """Return whether tables have expressions of SQL, which Spark alone can check."""
        return any(self.settings.destination(table.key).table.has_sql for table in planned)

    def planned_with_sql(self, spark: SparkSession, planned: Sequence[PlannedTable]) -> list[PlannedTable]:
        """Return the tables with what Spark says of their expressions: their columns, and their mistakes.

        Raises:
            IngestError: an expression is no SQL; the error lists all mistakes.
        """
        readers, checked, no_sql = TableReaders(self.settings), list[PlannedTable](), list[str]()
        for planned_table in planned:
            destination = self.settings.destination(planned_table.key)
            if not destination.table.has_sql or planned_table.mistake is not None:
                checked.append(planned_table)
                continue
            try:
                reader = readers.of(destination)
                schema = reader.schemas.value_schema()
                mistakes = reader.sql_mistakes(spark, schema)
                if not mistakes:
                    columns = reader.selected_columns(spark, schema)
                    is_selected = bool(destination.table.select)
                    checked.append(replace(planned_table, columns=columns if is_selected else planned_table.columns))
                    continue
            except Exception as error:  # the others are landed all the same
                mistakes = [(sentence_of(error), False)]
            if any(is_no_sql for _, is_no_sql in mistakes):
                no_sql += [
                    f"table {planned_table.table} of topic {planned_table.topic}: {text}" for text, _ in mistakes
                ]
            mistake = "; ".join(text for text, _ in mistakes)
            checked.append(replace(planned_table, mistake=mistake, failure=Failure.of(IngestError(mistake))))
        _refuse(no_sql)
        return checked

    def checked_plan(self, *, on_this_machine: bool = False) -> list[PlannedTable]:
        """Return :meth:`plan`, if nothing keeps all topics from being landed. A topic's own mistake is the state of its table.

        Args:
            on_this_machine: the folders are this machine's, and are looked at, too; not so with Spark Connect.

        Raises:
            IngestError: a folder cannot be written, or, before the first start, holds what another program has written; the error
                lists all mistakes. Or another process of this machine runs this ingest.
        """
        if on_this_machine:
            check_free(self.settings.checkpoint)
        planned = self.plan()
        if on_this_machine:
            _refuse(self.place_mistakes(planned))
        return planned

    def place_mistakes(self, planned: Sequence[PlannedTable]) -> list[str]:
        """Return what is wrong with the folders of this machine, as sentences. Once the ingest has run, a table's folder is that
        table's own trouble."""
        is_first = query_of(self.settings.checkpoint) is None
        return place_mistakes(self.settings, [table.table for table in planned] if is_first else [])

    def topics(self) -> list[str]:
        """Return the topics that exist now and are to be landed."""
        options = {name.removeprefix("kafka."): value for name, value in self.settings.kafka.items()}
        with Cluster(ClientSettings.from_options(options)) as cluster:
            every = cluster.metadata.topics(None)
        there = sorted(topic for topic, description in every.items() if not description.is_internal)
        topics = list(filter(self.settings.lands, there))
        if not topics:
            some = ", ".join(there[:10]) + (", …" if there[10:] else "")
            _log.warning("No topic matches %s. The cluster's topics: %s.", self.settings.topics, some or "none")
        helpers = self._debezium.among(topics)
        for topic, what in helpers.items():
            if is_first(self.settings.checkpoint, topic):
                _log.warning(
                    "Topic %s is left out: it has Debezium's %s. To land it, name it in a [[table]].", topic, what
                )
        return [topic for topic in topics if topic not in helpers]

    def start(
        self,
        spark: SparkSession,
        *,
        once: bool = False,
        every: str | None = None,
        planned: list[PlannedTable] | None = None,
        ui: PageSettings | str | int | None = None,
    ) -> StreamingQuery:
        """Start the query, after everything is checked that can be.

        Args:
            once: end when all is landed that is there now.
            every: the time between two micro-batches, in place of the setting ``every``.
            planned: what :meth:`plan` has found just before. A topic with a mistake keeps no other from being landed.
            ui: where a page shows the ingest, as ``[HOST:]PORT``, until this process ends, in place of the setting ``ui``;
                :attr:`page` has its link.

        Raises:
            IngestError: a table is another program's, the checkpoint is another query's or in use by another process, the session
                cannot be cloned, as Spark Connect's before Spark 4.2, or this ingest is running.
            OptionError: ``every`` is no duration, or the page or the metrics cannot listen.
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
                "the page shows what this process knows, and Spark Connect's server lands the tables: leave out ui, or use a "
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
            self.close()  # it may be retrying tables
            raise
        if self.page is not None:
            from pykafka_wire.ingest.watching.page import IngestPage, Run

            run = Run(ingest=self, spark=spark, query=query, shows_values=self.page.settings.shows_values)
            self.page.serve(IngestPage(run))
        return query

    def close(self) -> None:
        """Return when nothing is written any more, after the query has ended: a compaction may go on for a while.

        Another :meth:`start` does it, too. Another ingest of the same tables must not begin before.
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
        self._check_running_alone(spark)
        missing = format_of(self.settings).missing_place(spark, self.settings)
        mistakes = [*filter(None, [missing, format_of(self.settings).merge_mistake(spark, self.settings)])]
        if missing is not None:  # the tables' own mistakes cannot be found
            _refuse(mistakes)
        log = self._open_log(spark, is_remote=is_connect(spark))
        if log is not None:
            mistakes += self._checkpoint_mistakes(log)
        else:
            # A table with a position is adopted; whose it is by then, its first look says.
            new = [each.table for each in planned if not self.settings.destination(each.key).table.position]
            mistakes += self._taken_tables(spark, new)
        _refuse(mistakes)
        self._end_earlier_run(log)
        self._landing = None
        self._query = None
        self._watch = IngestWatch(self, planned)
        if not is_connect(spark):
            self._watch.start(spark)
        if not is_connect(spark):
            self._take_lease()
        if not self.settings.is_folder and len({table.table.lower() for table in planned}) < len(planned):
            planned = self.plan(spark)  # Spark alone may know whose a table is
        planned = self.planned_with_sql(spark, planned)
        self._mistaken = {table.key: table.failure for table in planned if table.failure is not None}
        self._mistaken_at = time.monotonic()
        for key, failure in self._mistaken.items():
            until = "" if failure.remedy is Remedy.CHANGE else " until another attempt succeeds"
            text = "Topic %s is not landed%s, the others are. %s"
            _log.error(text, key, until, failure.sentence, extra={TABLE_STATE: self.settings.destination(key).name})
        if log is not None and not is_connect(spark):
            self._continue(spark, log)

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
        """Take the checkpoint's lease, until the query has ended and nothing is written any more.

        Raises:
            IngestError: another process runs the ingest of this checkpoint.
        """
        if self._lease is not None:
            self._lease.release()
        self._lease = CheckpointLease.take(self.settings.checkpoint, self._is_in_use)

    def _is_in_use(self) -> bool:
        """Return whether the checkpoint's tables may be written to."""
        return self._is_query_running() or (self._landing is not None and self._landing.is_writing)

    def _check_running_alone(self, spark: SparkSession) -> None:
        """Raise IngestError if a query of this ingest's name is running in the session: Spark would refuse it after tables were
        written."""
        if any(query.name == self.query_name for query in spark.streams.active):
            raise IngestError(
                f"a query of the name {self.query_name!r} is running in this Spark session: stop it, and close its ingest. "
                "Another ingest needs a name and a checkpoint of its own."
            )

    def _end_earlier_run(self, log: QueryLog | None) -> None:
        """Return when no other run of this checkpoint in this process writes any more.

        Raises:
            IngestError: its query is running, in another Spark session.
        """
        earlier = {self._landing, None if log is None else _RUNS.get(log.query_id() or "")}
        for landing in filter(None, earlier):
            is_running = False
            try:
                is_running = landing is not self._landing and landing.is_running
            except Exception as error:  # its JVM, or its server of Spark Connect, has ended
                _log.debug("An earlier run of this checkpoint cannot be asked.", exc_info=error)
            if is_running:
                raise IngestError(
                    f"the ingest with the checkpoint {self.settings.checkpoint} is running in this process: stop its query first."
                )
            landing.close()  # it may be retrying tables

    def _stream_options(self) -> dict[str, str]:
        settings = self.settings
        limits = {"maxOffsetsPerTrigger": str(settings.max_rows), **settings.waits}
        if not HAS_ADMISSION_CONTROL:
            _log.warning("max_rows, min_rows and max_delay need Spark 4.2: each micro-batch takes all that is there.")
            limits = {}
        return {
            **settings.kafka_options,
            **settings.group_options,
            "subscribePattern": f"^(?:{settings.topics})$",
            "startingOffsets": settings.starting_offsets,
            "columns": "offset",
            **limits,
            # Lost records stop the one table that misses them, when it is written.
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
        if self._landing is None:  # the process of Spark Connect's server
            self._continue(batch.sparkSession, log)
        self._land(batch.sparkSession, log, micro_batch)

    def _continue(self, session: SparkSession, log: QueryLog) -> None:
        """Land tables that were stopped from where they are, also those of topics without new records."""
        if log.committed:
            self._land(session, log, log.committed[-1], with_idle=True)

    def _land(self, session: SparkSession, log: QueryLog, micro_batch: int, *, with_idle: bool = False) -> None:
        if self._landing is None:
            query = log.query_id()
            if query is None:
                raise IngestError(f"the checkpoint {log.shown} has no file metadata with the query's id: is it whole?")
            self._landing = Landing(
                self.settings, query, is_once=self._is_once, is_running=self._is_running,
                receiver=None if self.reads is None else self.reads.receiver,
            )  # fmt: skip
            _RUNS[query] = self._landing
            for key, failure in self._mistaken.items():
                self._landing.begin_failed(self.settings.destination(key), failure)
        reference = CheckpointReference(path=self.settings.checkpoint, batch_id=micro_batch)
        ranges = ranges_of(log, reference, lambda tp: self.settings.lands(tp.topic))
        by_topic = _by_topic(ranges)
        new = None if with_idle else {part.topic for part in by_topic if part.n_offsets}
        helpers = self._debezium.among((part.topic for part in by_topic), new)
        parts = [part for part in by_topic if (with_idle or part.n_offsets) and part.topic not in helpers]
        self._micro_batch = MicroBatch(
            number=micro_batch,
            parts={destination.key: part for part in parts for destination in self.settings.destinations(part.topic)},
            positions={
                key: status.position for key, status in self._landing.statuses.items() if status.position is not None
            },
            is_repeated=with_idle,
        )
        try:
            with nullcontext() if self.reads is None else self.reads.batch(micro_batch):
                self._landing.land(session, parts, micro_batch, lambda topic: beginning_of(log, micro_batch, topic))
        finally:
            self._micro_batch = None

    def _is_running(self) -> bool:
        """Return whether the query runs, and may write."""
        return not (self._lease is not None and self._lease.is_lost) and self._is_query_running()

    def _is_query_running(self) -> bool:
        """Return whether the query runs, or is about to start. In the process of Spark Connect's server, which ends with it,
        it does."""
        return self._query is None or self._query.isActive

    def _open_log(self, session: SparkSession, *, is_remote: bool = False) -> QueryLog | None:
        """Return the checkpoint's log; None before the first start.

        Args:
            is_remote: the paths are those of another machine, which Spark's driver is on.
        """
        places: list[CheckpointFiles] = []
        if not is_remote:
            with suppress(OptionError):  # a file system that pyarrow does not know
                places.append(StoredFiles(self.settings.checkpoint, "checkpoint"))
        if not places or is_connect(session):  # the server may take a path for one of another file system
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
                f"the checkpoint {log.shown} is of other topics ({', '.join(sorted(topics)[:10])}): name a new folder, or "
                "correct topics"
            ]
        return []

    def _taken_tables(self, spark: SparkSession, names: list[str]) -> list[str]:
        """Return tables that exist, though this ingest has never run."""
        tables = [
            format_of(self.settings).open_table(spark, self.settings, name)
            for name in dict.fromkeys([self.settings.rejects, *names])
        ]
        with ThreadPoolExecutor(self.settings.parallel) as threads:
            exists = list(threads.map(lambda table: table.exists, tables))
        taken = ", ".join(table.identifier for table in compress(tables, exists))
        text = (
            f"this checkpoint is new, and tables exist: {taken}. Use the checkpoint of the ingest that made them, or another place "
            "for these tables: into, or name in [[table]]"
        )
        return [text] if taken else []


def _ingest_of(settings: Settings, is_once: bool) -> Ingest:
    ingest = Ingest.of(settings)
    ingest._is_once = is_once
    return ingest


def _mistake_of(error: Exception | None) -> str | None:
    return error.message if isinstance(error, ConnectorError) else None if error is None else sentence_of(error)


def _refuse(mistakes: Iterable[str]) -> None:
    if lines := [f"  {mistake}" for mistake in mistakes]:
        raise IngestError("\n".join(["this ingest cannot start", *lines]))


def _by_topic(ranges: Iterable[OffsetRange]) -> list[TopicRange]:
    by_topic: dict[str, list[OffsetRange]] = {}
    for offset_range in ranges:
        by_topic.setdefault(offset_range.topic, []).append(offset_range)
    return [
        TopicRange(
            topic=topic,
            topic_id=topic_id_text(parts[0].topic_id) if parts[0].topic_id.int else "",
            start={r.partition: r.start_offset for r in parts},
            end={r.partition: r.end_offset for r in parts},
        )
        for topic, parts in by_topic.items()
    ]
