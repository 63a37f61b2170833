"""The plan of an ingest: what becomes of each topic, before Spark starts. The plan changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY
from pykafka_wire.columns.spark_schema import spark_type
from pykafka_wire.errors import ColumnConflictError, ConnectorError, IngestError, UnreachableRegistryError
from pykafka_wire.ingest.landing.remedies import Failure
from pykafka_wire.ingest.records.debezium_topics import DebeziumTopics
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.settings.model import Destination, Settings
from pykafka_wire.ingest.spark.errors import sentence_of
from pykafka_wire.ingest.startup.folder_checks import folder_mistakes, query_of
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.values.ddl import DdlError, arrow_type
from pykafka_wire.values.registry.registered_schema import RegistryId
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """What an ingest would do with one topic, or with one of its tables.

    Attributes:
        where, expect: as the fields of :class:`~pykafka_wire.ingest.settings.model.Table`.
        columns: the value's columns as DDL, or a sentence that says where the columns will come from. With ``select``, the
            expressions, until Spark has analysed them.
        is_subset: whether the table takes a subset of the topic's records, so that the topic may have other tables.
        by_spark: why Spark writes the table's files, by the settings alone; None where tasks of this package write the files.
        mistake: why the table cannot be landed, None if the table can be landed.
        failure: the error behind :attr:`mistake`: it decides whether the table starts as retrying or as stopped.
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
    is_subset: bool = False

    @property
    def key(self) -> str:
        """Return the table's :attr:`~pykafka_wire.ingest.settings.model.Destination.key`."""
        return f"{self.topic}:{self.table}" if self.is_subset else self.topic


class TablePlanner:
    """Plans the tables of an ingest."""

    def __init__(self, settings: Settings, debezium: DebeziumTopics) -> None:
        """Store the settings, and the reader of Debezium's topics."""
        self._settings = settings
        self._debezium = debezium

    def topics(self) -> list[str]:
        """Return the existing topics that the settings select."""
        options = {name.removeprefix("kafka."): value for name, value in self._settings.kafka.items()}
        with Cluster(ClientSettings.from_options(options)) as cluster:
            every = cluster.metadata.topics(None)
        there = sorted(topic for topic, description in every.items() if not description.is_internal)
        topics = list(filter(self._settings.lands, there))
        if not topics:
            some = ", ".join(there[:10]) + (", …" if there[10:] else "")
            _log.warning("No topic matches %s. The cluster's topics: %s.", self._settings.topics, some or "none")
        helpers = self._debezium.among(topics)
        for topic, what in helpers.items():
            if is_first(self._settings.checkpoint, topic):
                _log.warning(
                    "Topic %s is left out: it has Debezium's %s. To land it, name it in a [[table]].", topic, what
                )
        return [topic for topic in topics if topic not in helpers]

    def plan(self, spark: SparkSession | None = None) -> list[PlannedTable]:
        """Return a plan for each table of the topics that exist now. Needs brokers and the registry, but no Spark session.

        An error of the registry becomes a mistake of each table that needs the registry.

        Args:
            spark: a session, needed only to look up which topic a catalog table holds.
        """
        readers = TableReaders(self._settings)
        destinations = [destination for topic in self.topics() for destination in self._settings.destinations(topic)]
        owners = self._owners(destinations, spark)
        planned: list[PlannedTable] = []
        unreachable: UnreachableRegistryError | None = None
        for destination in destinations:
            topic, table, name = destination.topic, destination.table, destination.name
            schema, columns = None, ""
            failed: Exception | None = None
            try:
                self._check_single_owner(destination, owners[name.lower()])
                schemas = readers.of(destination).schemas
                if unreachable is not None and schemas.asks_registry:
                    raise unreachable  # another request would wait for the same timeout
                schema = schemas.value_schema()
                columns = schemas.columns_text(schema)
            except UnreachableRegistryError as error:
                unreachable = failed = error
            except Exception as error:  # an error of one topic does not affect the other topics
                failed = error
            planned.append(
                PlannedTable(
                    topic=topic, table=name, mode=table.mode, format=schema.format if schema else table.format,
                    schema_id=schema.schema_id if schema else None, columns=columns,
                    by_spark=format_of(self._settings).spark_reason(self._settings, table), mistake=_mistake_of(failed),
                    failure=None if failed is None else Failure.of(failed, format_of(self._settings).errors),
                    where=table.where, expect=table.expect, is_subset=table.is_subset,
                )
            )  # fmt: skip
        return planned

    def lost_readers(self, plan: PlannedTable) -> list[str]:
        """Return one sentence for each kind of reader that could not read the table with its planned columns. Needs no Spark."""
        row = _row_type(plan)
        if row is None:
            return []
        table = self._settings.destination(plan.key).table
        return format_of(self._settings).lost_readers(self._settings, plan.table, table, row)

    def with_stored_columns(self, planned: Sequence[PlannedTable]) -> list[PlannedTable]:
        """Return the tables, with a mistake where the existing table cannot store the planned columns. Needs no Spark."""
        table_format, checked = format_of(self._settings), list[PlannedTable]()
        for plan in planned:
            row, is_diverted = _row_type(plan), self._settings.destination(plan.key).table.on_conflict == "divert"
            try:
                if plan.mistake is None and row is not None and not is_diverted:
                    table_format.check_columns(self._settings, plan.table, row)
                checked.append(plan)
            except ColumnConflictError as error:
                checked.append(
                    replace(plan, mistake=error.message, failure=Failure.of(error, table_format.errors)),
                )
        return checked

    def _owners(self, destinations: Iterable[Destination], spark: SparkSession | None) -> dict[str, Destination]:
        """Return the owner of each table name, in lower case: the topic that the existing table holds, else the first topic that
        asks for the name.
        """
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
        """Return the topic that the existing table holds, under any of these spellings of its name; None if the topic is
        unknown."""
        for name in sorted(names):
            opened = format_of(self._settings).opened(self._settings, name)
            properties = None if opened is None else opened.properties
            if opened is None and spark is not None:
                table = format_of(self._settings).open_table(spark, self._settings, name)
                properties = table.properties() if table.exists else None
            if topic := (properties or {}).get(TOPIC_PROPERTY):
                return topic
        return None

    def _check_single_owner(self, destination: Destination, owner: Destination) -> None:
        """Raise IngestError if two topics want the same table, or if the table leaves no records to another table of its topic.

        Args:
            owner: the destination that owns the table name.
        """
        topic, name = destination.topic, destination.name
        if owner is not destination and owner.topic == topic:
            raise IngestError(f"topic {topic} has two tables {name}: give each [[table]] a name of its own")
        if owner is not destination:
            raise IngestError(
                f"table {name} already belongs to topic {owner.topic}: give one of the topics another name in [[table]]"
            )
        if (unused := self._settings.unused_for(topic)) is not None:
            raise IngestError(
                f"the [[table]] {destination.table.topic} is the first that matches topic {topic}, and takes all of its records, "
                f'so that {unused.name or unused.topic} would get none: move the first one below, or give it where = "true"'
            )

    @property
    def merges_by_catalog_of_session(self) -> bool:
        """Return whether a table needs a MERGE that not every session can run."""
        return format_of(self._settings).merges_by_catalog_of_session(self._settings)

    @property
    def has_started(self) -> bool:
        """Return whether the checkpoint is one of an earlier start; false if only Spark can read its folder."""
        return query_of(self._settings.checkpoint) is not None

    def has_sql(self, planned: Sequence[PlannedTable]) -> bool:
        """Return whether a table has SQL expressions, which only Spark can check."""
        return any(self._settings.destination(table.key).table.has_sql for table in planned)

    def with_sql(self, spark: SparkSession, planned: Sequence[PlannedTable]) -> list[PlannedTable]:
        """Return the tables with the result of Spark's analysis of their expressions: columns and mistakes.

        Raises:
            IngestError: an expression is not valid SQL; the error lists all mistakes.
        """
        readers, checked, no_sql = TableReaders(self._settings), list[PlannedTable](), list[str]()
        for planned_table in planned:
            destination = self._settings.destination(planned_table.key)
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
            except Exception as error:  # an error of one table does not affect the other tables
                mistakes = [(sentence_of(error), False)]
            if any(is_no_sql for _, is_no_sql in mistakes):
                no_sql += [
                    f"table {planned_table.table} of topic {planned_table.topic}: {text}" for text, _ in mistakes
                ]
            mistake = "; ".join(text for text, _ in mistakes)
            failure = Failure.of(IngestError(mistake), format_of(self._settings).errors)
            checked.append(replace(planned_table, mistake=mistake, failure=failure))
        raise_mistakes(no_sql)
        return checked

    def folder_mistakes(self, planned: Sequence[PlannedTable]) -> list[str]:
        """Return the mistakes of the folders on this machine, as sentences. After the first start, a mistake of a table's folder
        is an error of that table alone."""
        return folder_mistakes(self._settings, [] if self.has_started else [table.table for table in planned])

    def catalog_mistakes(self, spark: SparkSession | None) -> list[str]:
        """Return why the tables' catalog cannot be used, as sentences: from here, and by this session if tables need a MERGE."""
        table_format = format_of(self._settings)
        mistakes = [table_format.catalog_mistake(self._settings)]
        if mistakes == [None] and spark is not None:
            mistakes.append(table_format.merge_mistake(spark, self._settings))
        return [*filter(None, mistakes)]


def _row_type(plan: PlannedTable) -> StructType | None:
    """Return the planned columns; None before the records are read, or before Spark has analysed the expressions."""
    try:
        columns = spark_type(arrow_type(plan.columns))
    except DdlError:
        return None
    return columns if isinstance(columns, StructType) else StructType().add("value", columns)


def _mistake_of(error: Exception | None) -> str | None:
    return error.message if isinstance(error, ConnectorError) else None if error is None else sentence_of(error)


def raise_mistakes(mistakes: Iterable[str]) -> None:
    """Raise IngestError with the mistakes that stop the whole ingest, if there are any."""
    if lines := [f"  {mistake}" for mistake in mistakes]:
        raise IngestError("\n".join(["this ingest cannot start", *lines]))
