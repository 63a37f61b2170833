"""Delta as a table format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.errors import ERRORS
from pykafka_wire.ingest.tables.delta.placed import PlacedDeltaTables
from pykafka_wire.ingest.tables.format import NeededLibrary, PlacedTables, SparkAlone, TableFormat, TableWithoutSpark
from pykafka_wire.places import is_spark_s_to_resolve

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pykafka_wire.ingest.tables.delta.features import HeldFeatures
    from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
    from pykafka_wire.ingest.tables.files_table import FilesTable
    from pykafka_wire.ingest.tables.log import ReadLog
    from pykafka_wire.ingest.tables.maintenance import TableMaintenance
    from pykafka_wire.ingest.tables.topic_table import TopicTable

_WRITING: Final = "tasks that write the tables' files"
_BY_SPARK: Final = 'let Spark write the files, which is slower: write = "spark" in [defaults]'
#: A path in a Unity Catalog volume is the same for Spark and for Python.
_VOLUMES: Final = "/Volumes/"
#: The number of tasks that compute a Delta snapshot. Each commit computes one; Delta's default, 50, is for huge logs.
_SNAPSHOT_PARTITIONS: Final = "spark.databricks.delta.snapshotPartitions"
#: Makes commits of one process to a local folder wait for each other; a user's setting may have turned it off.
_COMMIT_LOCK: Final = "spark.databricks.delta.commitLock.enabled"


class DeltaFormat:
    """Delta: Spark creates tables and merges changes; tasks append files through the library deltalake."""

    reader = "deltalake"
    errors = ERRORS
    placed: PlacedTables = PlacedDeltaTables()

    def needed_libraries(self, settings: Settings) -> Iterator[NeededLibrary]:
        for table in (settings.defaults, *settings.tables):
            is_plain = not table.merges and table.write != "spark" and not table.cluster_by
            if is_plain and settings.is_folder:
                yield NeededLibrary("deltalake", "delta", _WRITING, instead=_BY_SPARK)
                yield NeededLibrary("pandas", "delta", _WRITING, instead=_BY_SPARK)
                return

    def identifier(self, settings: Settings, name: str) -> str:
        from pykafka_wire.ingest.tables.delta.spark_table import sql_name

        return sql_name(settings, name)

    def prepare_session(self, session: SparkSession) -> None:
        if session.conf.get(_SNAPSHOT_PARTITIONS, None) is None:
            session.conf.set(_SNAPSHOT_PARTITIONS, "2")
        session.conf.set(_COMMIT_LOCK, "true")

    def open_table(self, session: SparkSession, settings: Settings, name: str) -> TopicTable:
        from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable

        return SparkDeltaTable(session, settings, name)

    def spark_reason(self, settings: Settings, table: Table) -> str | None:
        from pykafka_wire.ingest.tables.delta.folder import DeltaFolder

        return DeltaFolder.settings_reason(settings, table)

    def open_files(
        self, session: SparkSession, settings: Settings, table: Table, target: TopicTable, name: str
    ) -> FilesTable | SparkAlone:
        return self._open_folder(session, settings, table, name)

    def _open_folder(
        self, session: SparkSession, settings: Settings, table: Table, name: str
    ) -> DeltaFolder | SparkAlone:
        from pykafka_wire.ingest.tables.delta.folder import DeltaFolder

        if (reason := self.spark_reason(settings, table) or _session_reason(session, settings)) is not None:
            return SparkAlone(reason)
        files = DeltaFolder(settings.place(name), settings.storage_options)
        unreachable = files.unreachable()
        return files if unreachable is None else SparkAlone(unreachable)

    def open_log(self, session: SparkSession, settings: Settings, name: str) -> ReadLog:
        from pykafka_wire.ingest.tables.delta.log import DeltaLog
        from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable

        folder = settings.place(name) if settings.is_folder else SparkDeltaTable(session, settings, name).location
        return DeltaLog(folder, settings.storage_options)

    def open_maintenance(self, settings: Settings, table: Table, name: str) -> TableMaintenance:
        from pykafka_wire.ingest.tables.compaction import OwnCompaction
        from pykafka_wire.ingest.tables.delta.maintenance import DeltaMaintenance

        def open_table(session: SparkSession) -> DeltaFolder | None:
            folder = self._open_folder(session, settings, table, name)
            return None if isinstance(folder, SparkAlone) else folder

        is_own = table.compact == "often" and self.spark_reason(settings, table) is None
        compaction = OwnCompaction(open_table, table.target_bytes) if is_own else None
        return DeltaMaintenance(settings, table, name, compaction)

    def opened(self, settings: Settings, name: str) -> TableWithoutSpark | None:
        from pykafka_wire.ingest.tables.delta.opened_table import opened_table

        with suppress(Exception):  # pyarrow and deltalake raise errors of many classes
            folder = self._folder_without_spark(settings, name)
            return None if folder is None else opened_table(folder)
        return None

    def _folder_without_spark(self, settings: Settings, name: str) -> DeltaFolder | None:
        """Return the folder of the table with this name, in which there may be no table; None if only Spark knows the folder."""
        from pykafka_wire.ingest.tables.delta.folder import DeltaFolder

        if not settings.is_folder or is_spark_s_to_resolve(settings.into):
            return None
        return DeltaFolder(settings.place(name), settings.storage_options)

    def lost_readers(self, settings: Settings, name: str, table: Table, columns: StructType) -> list[str]:
        from pykafka_wire.ingest.tables.delta.features import TYPE_WIDENING, gained_features

        if (state := self._state(settings, name)) is None:
            return []
        schema, held = state
        return [
            "A column becomes wider: all rows of the table are written again (widen)."
            if feature is TYPE_WIDENING and table.widen == "rewrite"
            else f"The table gets Delta's feature {feature.name}: {feature.readers}"
            for feature in gained_features(columns, schema, held)
        ]

    def check_columns(self, settings: Settings, name: str, columns: StructType) -> None:
        from pykafka_wire.ingest.tables.delta.features import check_changes
        from pykafka_wire.ingest.tables.type_changes import type_changes

        schema, _ = self._state(settings, name) or (None, None)
        if schema is not None:
            check_changes(self.identifier(settings, name), type_changes(schema, columns))

    def limited_readers(self, settings: Settings, name: str) -> list[str]:
        state = self._state(settings, name)
        enabled = () if state is None else state[1].enabled
        return [f"The table has Delta's feature {feature.name}: {feature.readers}" for feature in enabled]

    def _state(self, settings: Settings, name: str) -> tuple[StructType | None, HeldFeatures] | None:
        """Return the schema and the features of the table with this name, no schema if there is no table; None if only Spark can
        tell."""
        from pykafka_wire.ingest.tables.delta.features import HeldFeatures, held_features

        if (folder := self._folder_without_spark(settings, name)) is None:
            return None
        try:
            if not folder.exists:
                return None, HeldFeatures()
            return folder.schema, held_features(folder.properties(), folder.reader_features)
        except Exception:  # pyarrow and deltalake raise errors of many classes
            return None

    def datasets(self, settings: Settings) -> dict[str, Callable[[], Any]] | None:
        if not settings.is_folder or is_spark_s_to_resolve(settings.into):
            return None
        import pyarrow.fs

        from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
        from pykafka_wire.ingest.tables.delta.opened_table import stored_dataset
        from pykafka_wire.ingest.tables.delta.uri_folder import UriFolder

        storage = settings.storage_options
        try:
            filesystem, folder = UriFolder(uri=settings.into, storage=storage).open()
            inside = filesystem.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True))
            names = sorted(entry.base_name for entry in inside if entry.type == pyarrow.fs.FileType.Directory)
            tables = [name for name in names if DeltaFolder(settings.place(name), storage).exists]
        except Exception:  # pyarrow and deltalake raise errors of many classes; Spark may have other credentials
            return None
        return {name: partial(stored_dataset, settings.place(name), storage) for name in tables}

    def session_mistake(self, session: SparkSession, settings: Settings) -> str | None:
        from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable

        if settings.is_folder:
            try:
                SparkDeltaTable(session, settings, settings.rejects).is_known_to_spark()
            except IngestError as error:
                return error.message
            return None
        if session.catalog.databaseExists(settings.schema):
            return None
        return f"the schema {settings.into} does not exist: CREATE SCHEMA {settings.into}"

    def catalog_mistake(self, settings: Settings) -> str | None:
        return None

    def merges_by_catalog_of_session(self, settings: Settings) -> bool:
        return False

    def merge_mistake(self, session: SparkSession, settings: Settings) -> str | None:
        return None

    def folder_mistake(self, folder: Path, query: str | None) -> str | None:
        from pykafka_wire.ingest.tables.delta.owner import owner_mistake

        return owner_mistake(folder, query)

    def queries(self, settings: Settings, name: str) -> Mapping[str, str]:
        place = settings.place(name)
        queries = {"Spark SQL": f"SELECT * FROM {self.identifier(settings, name)} LIMIT 20"}
        if not settings.is_folder:
            return queries | {"PySpark": f"spark.table({json.dumps(place)}).show()"}
        return queries | {
            "PySpark": f'spark.read.format("delta").load({json.dumps(place)}).show()',
            "Polars": f"import polars\npolars.scan_delta({json.dumps(place)}).head(20).collect()",
        }

    def has_views(self, settings: Settings) -> bool:
        return settings.is_folder


def _session_reason(session: SparkSession, settings: Settings) -> str | None:
    """Return why only Spark can write files in this session; None if Python resolves the path ``into`` as Spark does.

    In a classic session the settings include the file system (:meth:`~pykafka_wire.ingest.settings.model.Settings.in_file_system`).
    """
    from pykafka_wire.ingest.spark.connect import is_connect

    if ":" in settings.into or settings.into.startswith(_VOLUMES) or not is_connect(session):
        return None
    return (
        "into is a path without a file system, which the server of Spark Connect may resolve on another file system: to let tasks "
        "write, include the file system in into, such as file:///lake, s3://… or hdfs://…"
    )


FORMAT: Final[TableFormat] = DeltaFormat()
