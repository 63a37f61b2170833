"""Who writes the files of a table: tasks of this package, or Spark."""

from __future__ import annotations

from typing import Final, cast

from pyspark.sql import SparkSession

from pykafka_wire.ingest.delta_folder import DeltaFolder
from pykafka_wire.ingest.file_landing import FilesTable
from pykafka_wire.ingest.settings import Settings, Table
from pykafka_wire.ingest.spark_connect import is_connect
from pykafka_wire.ingest.tables import LandedTable, TopicTable

#: Unity Catalog's volumes have one path for Spark and for Python.
_VOLUMES: Final = "/Volumes/"


def spark_reason(settings: Settings, table: Table) -> str | None:
    """Return why Spark writes the files of a table of these settings; None if tasks of this package do."""
    if settings.table_format == "iceberg":
        return f"{table.mode} needs MERGE" if table.mode != "append" else None
    return DeltaFolder.settings_against(settings, table)


def _session_reason(session: SparkSession, settings: Settings) -> str | None:
    """Return why Spark writes the files of a session's tables; None if Python's folder of the name ``into`` is Spark's.

    Settings of a classic session name the file system (:meth:`~pykafka_wire.ingest.settings.Settings.in_file_system`).
    """
    if settings.table_format == "iceberg" or ":" in settings.into or settings.into.startswith(_VOLUMES):
        return None
    if not is_connect(session):
        return None
    return (
        "into is a path without a file system, which the server of Spark Connect may take for another one: name it in into, such "
        "as file:///lake, s3://… or hdfs://…, to let tasks write"
    )


def open_files(
    session: SparkSession, settings: Settings, table: Table, target: TopicTable, name: str
) -> FilesTable | str:
    """Return the table as files are committed to it, without the JVM; or the reason why Spark commits to it."""
    if (reason := spark_reason(settings, table) or _session_reason(session, settings)) is not None:
        return reason
    if not isinstance(target, LandedTable):
        return cast("FilesTable", target)
    files = DeltaFolder(settings.place(name), settings.storage_options)
    return files.unreachable() or files
