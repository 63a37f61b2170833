"""The table that a topic lands in, by the settings' format."""

from __future__ import annotations

from typing import cast

from pyspark.sql import SparkSession

from pykafka_wire.ingest.delta_folder import DeltaFolder
from pykafka_wire.ingest.file_landing import FilesTable
from pykafka_wire.ingest.settings import Settings, Table
from pykafka_wire.ingest.tables import LandedTable, TopicTable


def open_table(session: SparkSession, settings: Settings, name: str) -> TopicTable:
    """The table of this name, which may not exist."""
    if settings.table_format == "iceberg":
        from pykafka_wire.ingest.iceberg_table import IcebergTable  # whose library is optional

        return IcebergTable(session, settings, name)
    return LandedTable(session, settings, name)


def missing_place(session: SparkSession, settings: Settings) -> str | None:
    """What has to be made before there can be tables, None if nothing has to."""
    if settings.table_format == "iceberg":
        from pykafka_wire.ingest.iceberg_table import namespace_exists

        is_there, what = namespace_exists(settings), "namespace"
    else:
        is_there, what = settings.is_folder or session.catalog.databaseExists(settings.schema), "schema"
    return None if is_there else f"the {what} {settings.into} does not exist: CREATE {what.upper()} {settings.into}"


def spark_reason(settings: Settings, table: Table) -> str | None:
    """Why Spark writes the files of a table of these settings; None if tasks of this package do."""
    return None if settings.table_format == "iceberg" else DeltaFolder.settings_against(settings, table)


def files_table(settings: Settings, target: TopicTable, name: str) -> FilesTable:
    """The table, where :func:`spark_reason` has nothing against it, as files are committed to it."""
    return DeltaFolder(settings.place(name)) if isinstance(target, LandedTable) else cast("FilesTable", target)
