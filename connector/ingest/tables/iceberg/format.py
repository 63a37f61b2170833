"""Iceberg as a table format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast

from pykafka_wire.errors import ConnectorError
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.format import (
    NeededLibrary,
    PlacedTables,
    SparkAlone,
    TableErrors,
    TableFormat,
    TableWithoutSpark,
)
from pykafka_wire.ingest.tables.iceberg.placed import PlacedIcebergTables
from pykafka_wire.wire.masking import without_secrets

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pykafka_wire.ingest.tables.files_table import FilesTable
    from pykafka_wire.ingest.tables.log import ReadLog
    from pykafka_wire.ingest.tables.maintenance import TableMaintenance
    from pykafka_wire.ingest.tables.topic_table import TopicTable


class IcebergFormat:
    """Iceberg: pyiceberg creates tables and appends to them; Spark runs MERGE with Iceberg's runtime."""

    reader = "pyiceberg"
    # The class of pyiceberg, and of Iceberg's runtime for Spark.
    errors = TableErrors(conflicts=frozenset({"CommitFailedException"}), modules=frozenset({"pyiceberg"}))
    placed: PlacedTables = PlacedIcebergTables()

    def needed_libraries(self, settings: Settings) -> Iterator[NeededLibrary]:
        yield NeededLibrary("pyiceberg", "iceberg", "Iceberg tables")
        if any(self._is_by_tasks(table) for table in (settings.defaults, *settings.tables)):
            yield NeededLibrary("pandas", "iceberg", "tasks that write the tables' files")

    @staticmethod
    def _is_by_tasks(table: Table) -> bool:
        return not table.merges and table.write != "spark" and not table.cluster_by

    def identifier(self, settings: Settings, name: str) -> str:
        from pykafka_wire.ingest.tables.iceberg.catalog import sql_name

        return sql_name(settings, name)

    def prepare_session(self, session: SparkSession) -> None:
        """Set nothing: a commit needs no setting but its own."""

    def open_table(self, session: SparkSession, settings: Settings, name: str) -> TopicTable:
        from pykafka_wire.ingest.tables.iceberg.table import IcebergTable

        return IcebergTable(session, settings, name)

    def spark_reason(self, settings: Settings, table: Table) -> str | None:
        return f"{table.mode} needs MERGE, for which Spark needs Iceberg's runtime" if table.merges else None

    def open_files(
        self, session: SparkSession, settings: Settings, table: Table, target: TopicTable, name: str
    ) -> FilesTable | SparkAlone:
        reason = self.spark_reason(settings, table)
        # IcebergTable implements both protocols.
        return cast("FilesTable", target) if reason is None else SparkAlone(reason)

    def open_log(self, session: SparkSession, settings: Settings, name: str) -> ReadLog:
        from pykafka_wire.ingest.tables.iceberg.log import IcebergLog

        return IcebergLog(settings, name)

    def open_maintenance(self, settings: Settings, table: Table, name: str) -> TableMaintenance:
        from pykafka_wire.ingest.tables.compaction import OwnCompaction
        from pykafka_wire.ingest.tables.iceberg.maintenance import IcebergMaintenance
        from pykafka_wire.ingest.tables.iceberg.table import IcebergTable

        def open_table(session: SparkSession) -> IcebergTable:
            return IcebergTable(session, settings, name)

        is_own = table.compact == "often" and self.spark_reason(settings, table) is None
        compaction = OwnCompaction(open_table, table.target_bytes) if is_own else None
        return IcebergMaintenance(settings, table, name, compaction)

    def opened(self, settings: Settings, name: str) -> TableWithoutSpark | None:
        from pykafka_wire.ingest.tables.iceberg.catalog import load_table
        from pykafka_wire.ingest.tables.iceberg.stored_table import opened_table

        with suppress(Exception):  # pyiceberg and its catalogs raise errors of many classes
            return opened_table(load_table(settings, name))
        return None

    def lost_readers(self, settings: Settings, name: str, table: Table, columns: StructType) -> list[str]:
        return []  # every version of the format has all types that a column may get

    def check_columns(self, settings: Settings, name: str, columns: StructType) -> None:
        from pykafka_wire.ingest.tables.iceberg.catalog import load_table
        from pykafka_wire.ingest.tables.iceberg.limits import check_promotions
        from pykafka_wire.ingest.tables.iceberg.stored_table import spark_schema

        held = None
        with suppress(Exception):  # pyiceberg and its catalogs raise errors of many classes
            held = spark_schema(load_table(settings, name))
        if held is not None:
            check_promotions(self.identifier(settings, name), held, columns)

    def limited_readers(self, settings: Settings, name: str) -> list[str]:
        return []

    def datasets(self, settings: Settings) -> dict[str, Callable[[], Any]] | None:
        from pykafka_wire.ingest.tables.iceberg.catalog import table_names
        from pykafka_wire.ingest.tables.iceberg.stored_table import stored_dataset

        return {name: partial(stored_dataset, settings, name) for name in table_names(settings)}

    def session_mistake(self, session: SparkSession, settings: Settings) -> str | None:
        from pykafka_wire.ingest.tables.iceberg.catalog import make_namespace

        return self._mistake_of(settings, lambda: make_namespace(settings))

    def catalog_mistake(self, settings: Settings) -> str | None:
        if find_spec("pyiceberg") is None:  # of the machine that only plans
            return None
        from pykafka_wire.ingest.tables.iceberg.catalog import has_namespace

        return self._mistake_of(settings, lambda: has_namespace(settings))

    @staticmethod
    def _mistake_of(settings: Settings, use: Callable[[], object]) -> str | None:
        """Use the catalog, and return why it does not respond, or None."""
        from pykafka_wire.ingest.spark.errors import code_of, sentence_of

        try:
            use()
        except ConnectorError:
            raise
        except Exception as error:  # of pyiceberg, requests, SQLAlchemy or a cloud's library
            return (
                f"the Iceberg catalog {settings.into.partition('.')[0]} does not respond ({code_of(error)}: "
                f"{without_secrets(sentence_of(error))}): check uri and the credentials in [catalog], and that the catalog runs"
            )
        return None

    def merges_by_catalog_of_session(self, settings: Settings) -> bool:
        return bool(self._merging_modes(settings))

    @staticmethod
    def _merging_modes(settings: Settings) -> list[str]:
        return sorted({table.mode for table in (settings.defaults, *settings.tables) if table.merges})

    def merge_mistake(self, session: SparkSession, settings: Settings) -> str | None:
        from pykafka_wire.ingest.spark.errors import sentence_of
        from pykafka_wire.ingest.tables.iceberg.catalog import has_namespace

        modes = self._merging_modes(settings)
        if not modes:
            return None
        catalog = settings.into.partition(".")[0]
        setting = f"spark.sql.catalog.{catalog}"
        if session.conf.get(setting, None) is None:
            reason = f"which has no catalog {catalog} ({setting})"
        else:
            try:
                # A plan makes no namespace.
                session.sql(
                    f"DESCRIBE NAMESPACE {settings.schema}"
                    if has_namespace(settings)
                    else f"SHOW NAMESPACES IN `{catalog}`"
                ).collect()
                return None
            except Exception as error:  # of Spark; of Java, if the runtime is for another Spark version
                reason = f"which does not see {settings.into} ({sentence_of(error)})"
        return (
            f"mode {' and '.join(modes)} needs MERGE, which Spark runs with Iceberg's runtime, but not in this session, "
            f"{reason}: start Spark with the iceberg-spark-runtime for its version (Iceberg 1.12 has none for Spark 4.2), and set "
            f'{setting} and its properties to the catalog in [catalog]; or set mode = "append"'
        )

    def folder_mistake(self, folder: Path, query: str | None) -> str | None:
        return None  # the catalog knows the tables

    def queries(self, settings: Settings, name: str) -> Mapping[str, str]:
        place = settings.place(name)
        catalog, _, inside = place.partition(".")
        return {
            "Spark SQL": f"SELECT * FROM {self.identifier(settings, name)} LIMIT 20",
            "PySpark": f"spark.table({json.dumps(place)}).show()",
            "pyiceberg": "from pyiceberg.catalog import load_catalog\n"
            f"load_catalog({json.dumps(catalog)}).load_table({json.dumps(inside)}).scan(limit=20).to_arrow()",
        }

    def has_views(self, settings: Settings) -> bool:
        return True


FORMAT: Final[TableFormat] = IcebergFormat()
