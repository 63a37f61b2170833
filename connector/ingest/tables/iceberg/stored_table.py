"""The rows and columns of an Iceberg table, as pyiceberg has stored them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pykafka_wire.columns.spark_schema import spark_type
from pykafka_wire.ingest.files.types import small_type
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.format import TableWithoutSpark
from pykafka_wire.ingest.tables.iceberg.catalog import load_table
from pykafka_wire.ingest.tables.iceberg.files import IcebergFolder, have_kept_names
from pykafka_wire.ingest.tables.iceberg.long_properties import joined
from pykafka_wire.ingest.tables.iceberg.positions import numbered, with_expired


def stored_schema(table: Any) -> pa.Schema:
    """Return the schema of a pyiceberg table, as a pyarrow schema with field ids."""
    return pa.schema(arrow_type(table.schema()))


def partition_names(table: Any) -> tuple[str, ...]:
    """Return the names of the columns by which a pyiceberg table is divided, with dots for fields inside columns."""
    spec, schema = table.spec(), table.schema()
    return tuple(schema.find_column_name(field.source_id) for field in spec.fields)


def spark_schema(table: Any) -> StructType:
    """Return the schema of a pyiceberg table, as Spark's."""
    return StructType([StructField(field.name, spark_type(field.type)) for field in stored_schema(table)])


def opened_table(stored: Any) -> TableWithoutSpark:
    """Return a pyiceberg table as one that was opened without Spark."""
    return TableWithoutSpark(
        joined(stored.properties), lambda: numbered(with_expired(stored)), lambda: stored_rows(stored)
    )


def stored_dataset(settings: Settings, name: str) -> Any:
    """Return the rows of the table with this name, as :func:`stored_rows`."""
    return stored_rows(load_table(settings, name))


def stored_rows(stored: Any) -> Any:
    """Return the table's rows as a pyarrow dataset; or as a pyarrow table if the data files alone do not show the rows."""
    paths, kind = whole_files(stored, None), arrow_type(stored.schema())
    if not (paths and are_by_name(stored, kind)):
        return scanned(stored, None)
    return IcebergFolder.of(stored).dataset(paths, pa.schema(kind))


def whole_files(stored: Any, snapshot_id: int | None) -> list[str] | None:
    """Return the files whose rows are exactly the table's rows; None if there are deletes, defaults of columns, or files without
    columns of their partition."""
    schema, tasks = stored.schema(), list(stored.scan(snapshot_id=snapshot_id).plan_files())
    has_defaults = any(schema.find_field(field_id).initial_default is not None for field_id in schema.field_ids)
    is_whole = not has_defaults and not any(task.delete_files or _may_lack_columns(stored, task.file) for task in tasks)
    return [task.file.file_path for task in tasks] if is_whole else None


def _may_lack_columns(stored: Any, file: Any) -> bool:
    """Return whether a data file may lack the columns by which it is partitioned: Iceberg's procedures add files of Hive tables.
    Only the manifest has the values.

    Files in the folder of the table's own data have all columns.
    """
    if file.file_path.startswith(f"{IcebergFolder.of(stored).location}/"):
        return False
    identities = (
        field.source_id for field in stored.specs()[file.spec_id].fields if str(field.transform) == "identity"
    )
    return any(number not in (file.column_sizes or {}) for number in identities)


def scanned(stored: Any, snapshot_id: int | None, names: Sequence[str] = ()) -> pa.Table:
    """Return the rows of a snapshot, by default the current one, with the table's current columns or the columns ``names``.

    pyiceberg itself would show a snapshot with the columns of that time.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = stored.schema().select(*names) if names else stored.schema()
    tasks = stored.scan(snapshot_id=snapshot_id).plan_files()
    return ArrowScan(stored.metadata, stored.io, schema, AlwaysTrue()).to_table(tasks)


def are_by_name(stored: Any, columns: pa.StructType) -> bool:
    """Return whether all files of a table have these columns under the table's names: none was renamed."""
    pairs = {
        (field_id, schema.find_column_name(field_id))
        for schema in stored.schemas().values()
        for field_id in schema.field_ids
    }
    is_renamed = not len(pairs) == len({number for number, _ in pairs}) == len({name for _, name in pairs})
    return not is_renamed and have_kept_names(columns)


def arrow_type(schema: Any) -> Any:
    """Return the row type of a pyiceberg schema, with field ids."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return small_type(pa.struct(schema_to_pyarrow(schema)))
