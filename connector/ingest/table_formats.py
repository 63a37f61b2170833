"""The table that a topic lands in, by the settings' format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, reduce
from operator import and_
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pykafka_wire.checkpoints.files import is_spark_s_to_resolve, table_uri
from pykafka_wire.errors import ConnectorError
from pykafka_wire.ingest.delta_folder import DeltaFolder
from pykafka_wire.ingest.failures import code_of, sentence_of
from pykafka_wire.ingest.file_tasks import UriFolder
from pykafka_wire.ingest.settings import Settings
from pykafka_wire.ingest.table_log import ReadLog, TableLog
from pykafka_wire.ingest.tables import LandedTable, TopicTable
from pykafka_wire.wire.masking import without_secrets


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


def stored_properties(settings: Settings, name: str) -> dict[str, str] | None:
    """Return the properties of the table of this name, looked up without Spark; None where there is no table, or where that is not
    known without Spark."""
    with suppress(Exception):  # pyarrow's, deltalake's and pyiceberg's are of many classes
        if settings.table_format == "iceberg":
            from pykafka_wire.ingest.iceberg_table import load_table

            return dict(load_table(settings, name).properties)
        if settings.is_folder and not is_spark_s_to_resolve(settings.into):
            return DeltaFolder(settings.place(name), settings.storage_options).properties()
    return None


def datasets(settings: Settings) -> dict[str, Callable[[], Any]] | None:
    """Return what opens each table as a dataset of pyarrow's, by name, without Spark; None where that is not known without
    Spark."""
    if settings.table_format == "iceberg":
        from pykafka_wire.ingest.iceberg_table import stored_dataset, table_names

        return {name: partial(stored_dataset, settings, name) for name in table_names(settings)}
    if not settings.is_folder or is_spark_s_to_resolve(settings.into):
        return None
    import pyarrow.fs

    storage = settings.storage_options
    try:
        filesystem, folder = UriFolder(uri=settings.into, storage=storage).open()
        inside = filesystem.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True))
        names = sorted(entry.base_name for entry in inside if entry.type == pyarrow.fs.FileType.Directory)
        tables = [name for name in names if DeltaFolder(settings.place(name), storage).exists]
    except Exception:  # pyarrow's, deltalake's of many classes; Spark may have other means
        return None
    return {name: partial(_delta_dataset, settings.place(name), storage) for name in tables}


def _delta_dataset(folder: str, storage: Mapping[str, str]) -> Any:
    """Return the table's rows as a dataset of pyarrow's, in which the values of partitions alone say what a file cannot have.

    deltalake (1.6.6) says ``column >= null`` of a file where the log has no bound of a column, as Delta has none of booleans, and
    pyarrow then leaves the file out of ``WHERE flag = true``.
    """
    import pyarrow.dataset as pads
    from deltalake import DeltaTable

    dataset = DeltaTable(table_uri(folder), storage_options=dict(storage)).to_pyarrow_dataset()
    fragments = [
        dataset.format.make_fragment(
            fragment.path,
            filesystem=dataset.filesystem,
            partition_expression=_equal_to(pads.get_partition_keys(fragment.partition_expression)),
        )
        for fragment in dataset.get_fragments()
    ]
    return pads.FileSystemDataset(fragments, dataset.schema, dataset.format, dataset.filesystem)


def _equal_to(values: Mapping[str, Any]) -> Any:
    """Return the condition, pyarrow's, that columns have these values."""
    conditions = (
        pc.field(name).is_null() if value is None else pc.field(name) == value for name, value in values.items()
    )
    return reduce(and_, conditions, pc.scalar(True))


def missing_place(session: SparkSession, settings: Settings) -> str | None:
    """Return what has to be made before there can be tables, None if nothing has to."""
    if settings.table_format == "iceberg":
        from pykafka_wire.ingest.iceberg_table import namespace_exists

        try:
            is_there, what = namespace_exists(settings), "namespace"
        except ConnectorError:
            raise
        except Exception as error:  # pyiceberg's, requests', SQLAlchemy's, a cloud's
            return (
                f"the Iceberg catalog {settings.into.partition('.')[0]} does not respond ({code_of(error)}: "
                f"{without_secrets(sentence_of(error))}): check uri and the credentials in [catalog], and that the catalog runs"
            )
    else:
        is_there, what = settings.is_folder or session.catalog.databaseExists(settings.schema), "schema"
    return None if is_there else f"the {what} {settings.into} does not exist: CREATE {what.upper()} {settings.into}"


def merge_mistake(session: SparkSession, settings: Settings) -> str | None:
    """Return why the session cannot merge into the Iceberg tables of these settings; None if it can, or need not."""
    modes = sorted({table.mode for table in (settings.defaults, *settings.tables)} - {"append"})
    if settings.table_format != "iceberg" or not modes:
        return None
    catalog = settings.into.partition(".")[0]
    setting = f"spark.sql.catalog.{catalog}"
    if session.conf.get(setting, None) is None:
        reason = f"which has no catalog {catalog} ({setting})"
    else:
        try:
            session.sql(f"DESCRIBE NAMESPACE {settings.schema}").collect()
            return None
        except Exception as error:  # Spark's, or Java's of a runtime for another Spark
            reason = f"which does not see {settings.into} ({sentence_of(error)})"
    return (
        f"mode {' and '.join(modes)} needs MERGE, which Spark runs by Iceberg's runtime, and it cannot in this session, {reason}: "
        f"start Spark with the iceberg-spark-runtime of its version (Iceberg 1.12 has none for Spark 4.2) and {setting} and its "
        'properties for the catalog that [catalog] has, or set mode = "append"'
    )
