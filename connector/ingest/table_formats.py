"""The table that a topic lands in, by the settings' format."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from pykafka_wire.checkpoints.files import local_folder, table_uri
from pykafka_wire.ingest.delta_folder import DeltaFolder
from pykafka_wire.ingest.file_landing import FilesTable
from pykafka_wire.ingest.landing_progress import is_connect
from pykafka_wire.ingest.settings import Settings, Table
from pykafka_wire.ingest.table_log import ReadLog, TableLog
from pykafka_wire.ingest.tables import LandedTable, TopicTable
from pykafka_wire.wire.masking import without_secrets

#: Unity Catalog's volumes have one path for Spark and for Python.
_VOLUMES: Final = "/Volumes/"


def open_table(session: SparkSession, settings: Settings, name: str) -> TopicTable:
    """Return the table of this name, which may not exist."""
    if settings.table_format == "iceberg":
        from pykafka_wire.ingest.iceberg_table import IcebergTable  # whose library is optional

        return IcebergTable(session, settings, name)
    return LandedTable(session, settings, name)


def open_log(session: SparkSession, settings: Settings, name: str) -> ReadLog:
    """Return what the table of this name says of its commits."""
    if settings.table_format == "iceberg":
        from pykafka_wire.ingest.iceberg_log import IcebergLog

        return IcebergLog(settings, name)
    folder = settings.place(name) if settings.is_folder else LandedTable(session, settings, name).location
    return TableLog(folder, settings.storage_options)


def datasets(settings: Settings) -> dict[str, Callable[[], Any]] | None:
    """Return what opens each table as a dataset of pyarrow's, by name, without Spark; None where that is not known without
    Spark."""
    if settings.table_format == "iceberg":
        from pykafka_wire.ingest.iceberg_table import stored_dataset, table_names

        return {name: partial(stored_dataset, settings, name) for name in table_names(settings)}
    folder = local_folder(settings.into) if settings.is_folder else None
    if folder is None:
        return None
    names = sorted(log.parent.name for log in Path(folder).glob("*/_delta_log"))
    return {name: partial(_delta_dataset, settings.place(name)) for name in names}


def _delta_dataset(folder: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(table_uri(folder)).to_pyarrow_dataset()


def missing_place(session: SparkSession, settings: Settings) -> str | None:
    """Return what has to be made before there can be tables, None if nothing has to."""
    if settings.table_format == "iceberg":
        from pykafka_wire.ingest.iceberg_table import namespace_exists

        is_there, what = namespace_exists(settings), "namespace"
    else:
        is_there, what = settings.is_folder or session.catalog.databaseExists(settings.schema), "schema"
    return None if is_there else f"the {what} {settings.into} does not exist: CREATE {what.upper()} {settings.into}"


def spark_reason(settings: Settings, table: Table) -> str | None:
    """Return why Spark writes the files of a table of these settings; None if tasks of this package do."""
    if table.has_sql or table.types:
        return "where, types, select and expect are Spark's to apply"
    return None if settings.table_format == "iceberg" else DeltaFolder.settings_against(settings, table)


def session_reason(session: SparkSession, settings: Settings) -> str | None:
    """Return why Spark writes the files of a session's tables; None if Python's folder of the name ``into`` is Spark's."""
    if settings.table_format == "iceberg" or ":" in settings.into or settings.into.startswith(_VOLUMES):
        return None
    advice = "name its file system in into, such as file:///lake, s3://… or hdfs://…, to let tasks write"
    if is_connect(session):
        return f"into is a path without a file system, which the server of Spark Connect may take for another one: {advice}"
    default = session._jsparkSession.sessionState().newHadoopConf().get("fs.defaultFS")
    if default.partition(":")[0].lower() == "file":
        return None
    return f"into is a path without a file system, and Spark's own one is {without_secrets(default)}: {advice}"


def open_files(
    session: SparkSession, settings: Settings, table: Table, target: TopicTable, name: str
) -> FilesTable | str:
    """Return the table as files are committed to it, without the JVM; or the reason why Spark commits to it."""
    if (reason := spark_reason(settings, table) or session_reason(session, settings)) is not None:
        return reason
    if not isinstance(target, LandedTable):
        return cast("FilesTable", target)
    files = DeltaFolder(settings.place(name), settings.storage_options)
    return files.unreachable() or files
