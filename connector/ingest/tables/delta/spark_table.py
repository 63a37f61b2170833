"""A Delta table that Spark writes.

Each commit of an ingest has its :class:`~pykafka_wire.ingest.tables.position.Landed` in Delta's ``userMetadata``, and its sequence
number as a transaction id. Delta skips a second commit with the same number, and Spark does not report the skip. So a commit
counts as landed only after the table's history, read afresh, contains it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import DataType, StructField, StructType

from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY
from pykafka_wire.checkpoints.tables import KafkaColumns, pinned
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.spark.connect import is_connect
from pykafka_wire.ingest.spark.errors import code_of
from pykafka_wire.ingest.spark.sql import quoted, sql_text, type_ddl
from pykafka_wire.ingest.tables.delta import transactions as delta_transactions
from pykafka_wire.ingest.tables.delta.errors import NO_TABLE
from pykafka_wire.ingest.tables.delta.features import (
    DISABLED,
    TYPE_WIDENING,
    Feature,
    check_changes,
    is_widened,
    needed_features,
    wider_type,
)
from pykafka_wire.ingest.tables.delta.history import (
    RECENT,
    Commit,
    is_copy,
    landed_history,
    landed_in,
    newest_position,
    rewrite_of,
)
from pykafka_wire.ingest.tables.position import (
    AlreadyLandedError,
    Landed,
    new_attempt,
    position_property,
    recorded_at,
)
from pykafka_wire.ingest.tables.topic_table import (
    COLUMNS_PROPERTY,
    QUERY_PROPERTY,
    check_layout,
    is_within,
    made_properties,
    merge_into,
    nested_columns,
    owner_properties,
    start_position,
    topic_columns_of,
)
from pykafka_wire.ingest.tables.type_changes import TypeChange, conflict_error, in_types_of, type_changes
from pykafka_wire.places import is_spark_s_to_resolve, local_folder, table_uri

_log = logging.getLogger(__name__)
#: The shortest time between two position properties: setting a property conflicts with open transactions of other programs.
_RECORD_EVERY_S: Final = 3600.0
_FOLDER: Final = "delta.`"
#: Delta's conditions for rows that the table could store with more features.
_FOR_FEATURES: Final = (
    "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
)
#: Conditions of a read of a folder that holds no table.
_NO_FOLDER: Final = NO_TABLE | {"PATH_NOT_FOUND"}
#: Delta features that a table still has after all its rows were written again.
_KEPT_BY_A_REWRITE: Final = frozenset({"appendOnly", "invariants", "timestampNtz", "variantType"})
_USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_WRITE: Final = "spark.databricks.delta.write."
_OPTIMIZE: Final = "spark.databricks.delta.optimize"
#: The table property that says for how long unneeded files are kept, as an interval.
_RETENTION: Final = "delta.deletedFileRetentionDuration"
_WEEK_MS: Final = 7 * 24 * 3_600_000
#: By default Delta 4.4 uses only that property, and ignores the time given to VACUUM.
_RETENTION_IGNORED: Final = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
#: Disabled, since VACUUM changes no table, and its log commit could conflict with commits of the library deltalake on some stores.
_VACUUM_LOGGED: Final = "spark.databricks.delta.vacuum.logging.enabled"
#: The number of tasks in which VACUUM lists a folder. Spark's default of 10,000 takes a minute on two cores, even for a small
#: folder.
_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_DEFAULT: Final = "10000"
_SHUFFLE: Final = "spark.sql.shuffle.partitions"
#: Makes VACUUM refuse to delete files younger than a week.
_RETENTION_CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"


def sql_name(settings: Settings, name: str) -> str:
    """Return the name in SQL of the table with this name."""
    return f"{_FOLDER}{settings.place(name)}`" if settings.is_folder else f"{settings.schema}.`{name}`"


def commits_of(session: SparkSession, identifier: str, limit: int | None) -> list[Commit]:
    """Return the newest commits of a table, newest first, all without a limit."""
    history = session.sql(f"DESCRIBE HISTORY {identifier}" + ("" if limit is None else f" LIMIT {limit}"))
    rows = history.select("version", "userMetadata", "operation", "operationParameters", "operationMetrics").collect()
    return [row.asDict() for row in rows]


class SparkDeltaTable:
    """A Delta table of an ingest in one Spark session. The session's settings belong to the calling thread."""

    records_commits = False

    def __init__(self, session: SparkSession, settings: Settings, name: str) -> None:
        self._session = session
        self._settings = settings
        self._prefix = settings.prefix
        self._name = name
        self.identifier = sql_name(settings, name)
        self.rewritten_by: str | None = None
        self._properties: dict[str, str] = {}

    @property
    def is_folder(self) -> bool:
        """Return whether the table is a folder, not registered in a catalog."""
        return self.identifier.startswith(_FOLDER)

    @property
    def exists(self) -> bool:
        """Return whether the table exists. Spark needs a tenth of a second to find out, so the files of a local folder tell."""
        if not self.is_folder:
            return self._session.catalog.tableExists(self.identifier)
        place = self._shared_place()
        local = None if place is None else local_folder(place)
        return self.is_known_to_spark() if local is None else _has_commits(Path(local))

    def is_known_to_spark(self) -> bool:
        """Return whether Spark finds a table in the folder.

        Raises:
            IngestError: the session has no Delta.
        """
        try:
            self.properties()
        except AnalysisException as error:
            if code_of(error) in NO_TABLE:
                return False
            if code_of(error) == "TABLE_OR_VIEW_NOT_FOUND":  # also raised for a folder that is a table
                raise IngestError(
                    f"Spark cannot look for the table {self.identifier}: start the session with Delta's jars, "
                    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
                    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog, and leave "
                    "spark.sql.runSQLOnFiles on."
                ) from error
            raise
        return True

    @property
    def schema(self) -> StructType:
        return self._session.table(self.identifier).schema

    @property
    def id(self) -> str:
        """Return Delta's id of the table. A table that is created again under the same name has another id."""
        if (stored := self._by_deltalake()) is not None:
            return str(stored.metadata().id)
        return str(self._session.sql(f"DESCRIBE DETAIL {self.identifier}").collect()[0].id)

    @property
    def created_at(self) -> float:
        """Return when the table was created, in seconds since the epoch; 0 if that is unknown."""
        if (stored := self._by_deltalake()) is not None:
            return (stored.metadata().created_time or 0) / 1000
        detail = self._session.sql(f"DESCRIBE DETAIL {self.identifier}").select(F.unix_millis("createdAt"))
        return (detail.collect()[0][0] or 0) / 1000

    @property
    def version(self) -> int:
        """Return the version of the newest commit of any program."""
        return int(self._commits(1)[0]["version"])

    @property
    def rows(self) -> DataFrame:
        return self._session.table(self.identifier)

    def places(self, topic: str) -> DataFrame:
        """Return ``partition`` and ``offset`` of the table's rows of a topic."""
        return KafkaColumns.of(self.rows, self._name, self._prefix).of_topic(topic).select("partition", "offset")

    def properties(self) -> dict[str, str]:
        """Return the table's properties, cached until :meth:`set_properties` or :meth:`alter`."""
        if not self._properties:
            properties = self._session.sql(f"SHOW TBLPROPERTIES {self.identifier}").collect()
            self._properties = {row.key: row.value for row in properties}
        return self._properties

    def landed(self) -> Landed | None:
        """Return the position in the newest commit of an ingest, or the recorded position; None if the table has neither."""
        landed, commits = newest_position(self._commits, (RECENT, None))
        self.rewritten_by = rewrite_of(commits)
        return None if landed is None and is_copy(commits) else landed or self._recorded()

    def _recorded(self) -> Landed | None:
        properties = self.properties()
        return delta_transactions.recorded_position(
            self._by_deltalake(), properties, properties.get(QUERY_PROPERTY, ""), properties.get(TOPIC_PROPERTY, "")
        )

    def _shared_place(self) -> str | None:
        """Return the folder's path or URI if Python resolves it as Spark does; None for other folders and for a catalog's table."""
        place = self.identifier.removeprefix(_FOLDER).removesuffix("`")
        # The server of Spark Connect may resolve a path without a file system differently.
        is_shared = ":" in place or not (is_connect(self._session) or is_spark_s_to_resolve(place))
        return place if self.is_folder and is_shared else None

    def _by_deltalake(self) -> Any | None:  # Any: deltalake is optional
        """Return the table as a deltalake table; None if the library is missing or cannot read the table."""
        place = self._shared_place()
        if place is None or find_spec("deltalake") is None:
            return None
        import deltalake

        try:
            return deltalake.DeltaTable(table_uri(place), storage_options=dict(self._settings.storage_options))
        except Exception as error:  # deltalake raises errors of many classes
            _log.debug("The library deltalake cannot read table %s.", self.identifier, exc_info=error)
            return None

    def is_recorded(self, landed: Landed) -> bool:
        """Return whether the position of the newest commit is also stored outside the table's history."""
        recorded = self._recorded()
        return recorded is not None and recorded.sequence >= landed.sequence

    def record(self, landed: Landed) -> None:
        """Store the position of the newest commit outside the table's history: as transaction ids; or, if deltalake cannot write
        to the table, as a property, at most once an hour unless transaction ids expire.
        """
        stored = self._by_deltalake()
        if stored is not None:
            try:
                delta_transactions.record(stored, landed)
                return
            except Exception as error:  # deltalake raises errors of many classes
                _log.debug("The library deltalake cannot write to table %s.", self.identifier, exc_info=error)
        self._properties = {}  # another program may have changed the properties
        is_due = time.time() - recorded_at(self.properties()) >= _RECORD_EVERY_S
        # If the sequence number expires, only the property shows the newest commit.
        if is_due or delta_transactions.expires(self.properties()):
            self.alter(position_property(landed))

    def newest_number(self, application: str) -> int:
        """Return the same as :meth:`TopicTable.newest_number`. If deltalake cannot read the table, only the history shows the
        number, and not that of an application."""
        if (stored := self._by_deltalake()) is not None:
            return delta_transactions.newest_sequence(stored, application) or 0
        held = None if application else next(self.history(), None)
        return 0 if held is None else held.sequence

    def check_follows(self, landed: Landed) -> None:
        """Raise AlreadyLandedError if the table, read afresh, does not end where a commit begins.

        Where deltalake cannot read the table, only the properties are read, since the history costs Spark half as much as a small
        append. A table that another program has created again lacks them. The sequence number of a commit refuses an outdated
        driver.
        """
        if self._by_deltalake() is not None:
            is_followed = landed.follows(self.landed())
        else:
            self._properties = {}
            is_followed = QUERY_PROPERTY in self.properties()
        if not is_followed:
            raise AlreadyLandedError(self.identifier, is_begun=False)

    def _check_landed(self, landed: Landed | None) -> None:
        """Raise AlreadyLandedError if the table, read afresh, lacks this commit: Spark skips a repeated number without an error."""
        if landed is None:
            return
        recent = landed_in(self._commits(RECENT))
        if not any(commit.attempt == landed.attempt for commit in recent):
            raise AlreadyLandedError(self.identifier)

    def history(self, version: int | None = None) -> Iterator[Landed]:
        """Return the position in each commit of an ingest: :func:`landed_history`."""
        return landed_history(self._commits, version)

    def earlier(self) -> Iterator[tuple[Landed, DataFrame | None]]:
        """Yield the position in each recent commit of an ingest, newest first, with the table's rows before the commit, if any."""
        for commit in self._commits(RECENT):
            landed, version = Landed.from_json(commit.get("userMetadata")), commit["version"]
            if landed is not None:
                earlier = f"SELECT * FROM {self.identifier} VERSION AS OF {version - 1}"
                yield landed, self._session.sql(earlier) if version else None

    def _commits(self, limit: int | None) -> Sequence[Commit]:
        """Return the newest commits, newest first: by deltalake if possible, since Spark needs a tenth of a second for them."""
        stored = self._by_deltalake()
        return commits_of(self._session, self.identifier, limit) if stored is None else stored.history(limit)

    def create(self, columns: str, table: Table, query: str, initial_position: Landed | None) -> None:
        """Create the table without rows, from columns as DDL, and store its topic and the offsets at which it begins."""
        rows = DataType.fromDDL(columns)
        assert isinstance(rows, StructType)
        check_layout(table, nested_columns(rows))
        given = self._enabling(rows) | {QUERY_PROPERTY: query} | _properties(table, initial_position)
        given |= {} if initial_position is None else start_position(initial_position)
        clauses = [
            "USING delta",
            _by("PARTITIONED BY", table.partition_by),
            _by("CLUSTER BY", table.cluster_by),
            f"TBLPROPERTIES {_clause(given)}",
        ]
        with self._committing(initial_position, with_transaction=False):
            self._session.sql(f"CREATE TABLE {self.identifier} ({columns}) {' '.join(filter(None, clauses))}")

    def append(self, rows: DataFrame, landed: Landed | None) -> None:
        """Append rows, and add new columns; ``landed`` is None for rows that do not move the table's position.

        Raises:
            AlreadyLandedError, ColumnConflictError: as :meth:`TopicTable.append`.
        """
        self._write(self._fitted(rows), {} if landed is None else _commit_options(landed))
        self._check_landed(landed)

    def append_first(self, rows: DataFrame, table: Table, landed: Landed) -> None:
        """Make a folder a table by writing its first rows, with one commit less than :meth:`create` and an append.

        A crash before the properties are set leaves a table that only :meth:`landed` distinguishes from another program's table.
        """
        check_layout(table, nested_columns(rows.schema))
        writer = rows.write
        if table.partition_by:
            writer = writer.partitionBy(*table.partition_by)
        if table.cluster_by:
            writer = writer.clusterBy(*table.cluster_by)
        of_delta = {name: value for name, value in table.properties.items() if name.startswith("delta.")}
        # Another ingest may have created the table meanwhile. Spark Connect has no mode "errorifexists".
        writer = writer.mode("error")
        self._save(writer, _commit_options(landed) | self._enabling(rows.schema) | of_delta)
        self._check_landed(landed)
        self.set_properties(table, landed)

    def set_properties(self, table: Table, first: Landed) -> None:
        """Store the table's topic, and the offsets at which the table begins: the start of its first commit."""
        properties = _properties(table, first)
        if table.merges:
            properties[COLUMNS_PROPERTY] = json.dumps(sorted(name.lower() for name in self.schema.names))
        self.alter(properties)

    def alter(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""
        self._session.sql(f"ALTER TABLE {self.identifier} SET TBLPROPERTIES {_clause(properties)}")
        self._properties = {}

    def _fitted(self, rows: DataFrame) -> DataFrame:
        """Give the table the wider types that rows need, and return the rows in the table's types.

        Delta casts the rows of a catalog table to the table's types, as Spark's settings allow: 19.99 becomes the INT 19. So only
        rows in the table's types reach Delta.

        Raises:
            ColumnConflictError: the table cannot get a type that the rows need.
        """
        try:
            held = self.schema
        except AnalysisException as error:
            if self.is_folder and code_of(error) in _NO_FOLDER:
                return rows  # the write makes the folder a table
            raise
        changes = type_changes(held, rows.schema)
        check_changes(self.identifier, changes)
        # A write to a folder changes free types, and a write to a catalog table does not.
        wider = [change for change in changes if is_widened(change) or not self.is_folder]
        if wider:
            self._widen(held, rows.schema, wider)
            held = self.schema
        return in_types_of(held, rows)

    def _widen(self, held: StructType, rows: StructType, wider: Sequence[TypeChange]) -> None:
        """Give columns wider types, by Delta's type widening or by a rewrite of all rows."""
        self._properties = {}  # another program may have changed the properties
        properties = self.properties()
        # Of the other features, the types can need TIMESTAMP_NTZ alone.
        of_types = StructType([StructField("x", change.rows) for change in wider])
        for feature in (*needed_features(of_types, None), TYPE_WIDENING):
            if properties.get(feature.property) in DISABLED:
                raise conflict_error(
                    self.identifier, wider, f"the table's property {feature.property} disables {feature.name}"
                )
        is_rewritten = self._is_rewritten_for_wider_types()
        self._enable(needed_features(of_types, None))
        if is_rewritten:
            self._rewrite(wider_type(held, rows))
            return
        self._enable([TYPE_WIDENING])
        for change in wider:
            self._session.sql(f"ALTER TABLE {self.identifier} ALTER COLUMN {change.sql} TYPE {type_ddl(change.rows)}")

    def _enable(self, features: Iterable[Feature]) -> bool:
        """Enable table features, and return whether the table lacked any of them.

        A feature excludes some readers, and cannot be removed later.
        """
        lacking = [feature for feature in features if feature.property not in self.properties()]
        for feature in lacking:
            self._log_feature(feature)
            self.alter({feature.property: feature.value})
        return bool(lacking)

    def _enable_for(self, rows: StructType) -> bool:
        """Enable the table features that new columns need, unless one of them is disabled. Return whether any was enabled."""
        self._properties = {}  # another program may have changed the properties
        properties, needed = self.properties(), needed_features(rows, None)
        if any(properties.get(feature.property) in DISABLED for feature in needed):
            return False
        return self._enable(needed)

    def _is_rewritten_for_wider_types(self) -> bool:
        """Return whether the settings ask for a rewrite of all rows in place of Delta's type widening.

        Raises:
            IngestError: the table has features that a rewrite would lose.
        """
        topic = self.properties().get(TOPIC_PROPERTY)
        tables = [] if topic is None else self._settings.destinations(topic)
        if not any(each.name == self._name and each.table.widen == "rewrite" for each in tables):
            return False
        detail = self._session.sql(f"DESCRIBE DETAIL {self.identifier}").collect()[0]
        others = sorted(set(detail.tableFeatures or ()) - _KEPT_BY_A_REWRITE)
        others += ["clustering"] if detail.clusteringColumns and "clustering" not in others else []
        others += ["NOT NULL"] if not all(field.nullable for field in self.schema) else []
        if others or not self.is_folder:
            what = f"has {', '.join(others)}" if others else "is a table of a catalog"
            raise IngestError(
                f'the table {self.identifier} {what}, so the ingest cannot rewrite it for a wider type: set widen = "feature", or '
                "rewrite the table with your engine."
            )
        return True

    def _rewrite(self, schema: DataType) -> None:
        """Write all rows again, in columns of wider types, in one commit that keeps the table's position.

        The commit has the sequence number of the ingest's newest commit, and no transaction id, since it lands no records.
        """
        assert isinstance(schema, StructType)
        held, begun = self.landed(), time.monotonic()
        kept = None
        if held is not None:
            kept = replace(held, start=held.end, n_rejects=0, isolated=(), unreadable=(), attempt=new_attempt())
        columns = [
            F.col(quoted(field.name)).cast(field.dataType).alias(field.name, metadata=field.metadata)
            for field in schema
        ]
        detail = self._session.sql(f"DESCRIBE DETAIL {self.identifier}").collect()[0]
        writer = self.rows.select(*columns).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        if detail.partitionColumns:
            writer = writer.partitionBy(*detail.partitionColumns)
        if kept is not None:
            writer = writer.option("userMetadata", kept.to_json())
        writer.save(self.identifier.removeprefix(_FOLDER).removesuffix("`"))
        self._check_landed(kept)
        self._properties = {}
        _log.warning(
            "Table %s was rewritten for a wider type, %d bytes in %.1f s, so that deltalake, DuckDB and Polars can still read it. "
            "Streams that read the table must be restarted from the beginning.",
            self.identifier,
            detail.sizeInBytes,
            time.monotonic() - begun,
        )

    def _enabling(self, columns: DataType) -> dict[str, str]:
        """Return the properties that enable the features for a new table's columns."""
        assert isinstance(columns, StructType)
        features = needed_features(columns, None)
        for feature in features:
            self._log_feature(feature)
        return {feature.property: feature.value for feature in features}

    def _log_feature(self, feature: Feature) -> None:
        _log.warning(
            "Table %s gets Delta's feature %s, which its columns need. %s",
            self.identifier,
            feature.name,
            feature.readers,
        )

    def _write(self, rows: DataFrame, options: Mapping[str, str]) -> None:
        """Append rows in the table's types. If new columns need features that the table lacks, enable them and try again."""
        try:
            self._save(rows.write.mode("append"), options)
        except Exception as error:
            if code_of(error) not in _FOR_FEATURES or not self._enable_for(rows.schema):
                raise
            self._save(rows.write.mode("append"), options)

    def _save(self, writer: DataFrameWriter, options: Mapping[str, str]) -> None:
        writer = writer.format("delta").options(**{"mergeSchema": "true", **options})
        if self.is_folder:
            writer.save(self.identifier.removeprefix(_FOLDER).removesuffix("`"))
        else:
            writer.saveAsTable(self.identifier)

    def merge(self, changes: DataFrame, clauses: str, landed: Landed | None) -> None:
        """Run one MERGE of ``changes`` (alias ``new``) into the table (alias ``old``); ``landed`` is as in :meth:`append`."""
        with self._committing(landed, with_transaction=True):
            merge_into(self.identifier, changes, clauses)
        self._check_landed(landed)

    def topic_columns(self) -> list[StructField]:
        """Return the columns that come from the topic, without columns that a user has added."""
        return topic_columns_of(self.schema, self.properties())

    def add_columns(self, rows: DataFrame) -> None:
        """Add the columns and wider types of ``rows`` to the table. Writes nothing if the table has them."""
        rows = self._fitted(rows)
        held = self.schema
        if is_within(rows.schema, held):
            return
        self._add_before_kafka(rows.schema, held)
        if not is_within(rows.schema, self.schema):
            self._write(rows.limit(0), {})

    def _add_before_kafka(self, rows: StructType, held: StructType) -> None:
        """Add new columns before Kafka's columns, if they need no further Delta feature."""
        names, properties = {name.lower() for name in held.names}, self.properties()
        new = [
            column
            for column in rows
            if column.name.lower() not in names
            and all(feature.property in properties for feature in needed_features(StructType([column]), None))
        ]
        if not new:
            return
        n_before = next((n for n, name in enumerate(held.names) if name.startswith(self._prefix)), len(held))
        place = f"AFTER {quoted(held.names[n_before - 1])}" if n_before else "FIRST"
        # In reverse order, since each is inserted at the same place.
        added = ", ".join(f"{quoted(column.name)} {type_ddl(column.dataType)} {place}" for column in reversed(new))
        try:
            self._session.sql(f"ALTER TABLE {self.identifier} ADD COLUMNS ({added})")
        except AnalysisException as error:
            # The later write adds the columns at the end, or raises the error.
            _log.debug("Table %s cannot have %s before Kafka's columns.", self.identifier, added, exc_info=error)

    def pinned(self) -> tuple[DataFrame, int | None]:
        """Return the table's rows at its current version, and the version."""
        return pinned(self._session, self.identifier)

    def delete(self, condition: str, places: DataFrame | None) -> None:
        """Delete the rows that satisfy an SQL condition; with places, only those at the given ``partition`` and ``offset``."""
        if places is None:
            self._session.sql(f"DELETE FROM {self.identifier} WHERE {condition}")
            return
        places.createOrReplaceTempView("pykafka_wire_places")
        self._session.sql(
            f"""MERGE INTO {self.identifier} AS old USING pykafka_wire_places AS new
            ON {condition} AND old.partition = new.partition AND old.offset = new.offset
            WHEN MATCHED THEN DELETE"""
        )

    @property
    def location(self) -> str:
        """Return the table's folder."""
        return str(self._session.sql(f"DESCRIBE DETAIL {self.identifier}").collect()[0].location)

    def optimize(self, target_bytes: int) -> None:
        """Compact many small files into few files of up to ``target_bytes``."""
        sizes = {f"{_OPTIMIZE}.{name}FileSize": str(target_bytes) for name in ("min", "max")}
        with self._set(sizes):
            self._session.sql(f"OPTIMIZE {self.identifier}")

    def vacuum(self, keep_ms: int) -> None:
        """Delete files that no version of the last ``keep_ms`` names. If the table's own property is longer, it applies."""
        kept_ms = max(keep_ms, self._retention_ms())
        # A time below a week is possible only if the user asks for it.
        disabled = (_RETENTION_IGNORED, _VACUUM_LOGGED, *((_RETENTION_CHECK,) if kept_ms < _WEEK_MS else ()))
        conf = self._session.conf
        listing = {_LISTING: conf.get(_SHUFFLE) or "200"} if conf.get(_LISTING) == _LISTING_DEFAULT else {}
        with self._set({**dict.fromkeys(disabled, "false"), **listing}):
            self._session.sql(f"VACUUM {self.identifier} RETAIN {kept_ms / 3_600_000} HOURS")

    def _retention_ms(self) -> int:
        """Return the retention of removed files by the table's own property; 0 without the property."""
        text = self.properties().get(_RETENTION)
        if text is None:
            return 0
        # TIMESTAMP_NTZ, so that a day has 24 hours, as Delta counts days.
        zero = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
        interval = f"CAST({sql_text(text)} AS INTERVAL)"
        row = self._session.sql(f"SELECT timestampdiff(MILLISECOND, {zero}, {zero} + {interval}) AS ms").collect()[0]
        return int(row.ms)

    @contextmanager
    def _committing(self, landed: Landed | None, *, with_transaction: bool) -> Iterator[None]:
        """Set the session's settings for one commit: SQL statements take no options, so the settings carry the commit's
        metadata."""
        given = {} if landed is None else {_USER_METADATA: landed.to_json()}
        if landed is not None and with_transaction:
            given |= {f"{_WRITE}{name}": value for name, value in landed.transaction.items()}
        with self._set(given):
            yield

    @contextmanager
    def _set(self, given: Mapping[str, str]) -> Iterator[None]:
        for name, value in given.items():
            self._session.conf.set(name, value)
        try:
            yield
        finally:
            for name in given:
                self._session.conf.unset(name)


def _has_commits(folder: Path) -> bool:
    """Return whether a local folder has a log with a commit or a checkpoint, whose names begin with the version in 20 digits."""
    return any(folder.glob(f"_delta_log/{'[0-9]' * 20}.*"))


def _properties(table: Table, first: Landed | None) -> dict[str, str]:
    """Return the properties of a table whose first commit, or initial position, is ``first``."""
    of_owner = {} if first is None else owner_properties(first)
    return {**table.properties, **of_owner, **made_properties(table)}


def _clause(properties: Mapping[str, str]) -> str:
    return "(" + ", ".join(f"{sql_text(name)} = {sql_text(value)}" for name, value in properties.items()) + ")"


def _commit_options(landed: Landed) -> dict[str, str]:
    return {"userMetadata": landed.to_json(), **landed.transaction}


def _by(clause: str, columns: Sequence[str]) -> str:
    return f"{clause} ({', '.join(map(quoted, columns))})" if columns else ""
