"""What an Iceberg table cannot do for an ingest: errors that name the remedy, before files are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, StructType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.tables.iceberg.stored_table import partition_names
from pykafka_wire.ingest.tables.type_changes import TypeChange, conflict_error, type_changes

VERSION: Final = "format-version"
#: The first format version whose snapshots have sequence numbers.
_NUMBERED_VERSION: Final = 2
_PROMOTIONS: Final = (
    "Iceberg promotes int to bigint, float to double, and decimals to more digits with the same scale, except in keys "
    "of maps"
)


def check_writable(identifier: str, stored: Any) -> None:
    """Raise IngestError if files cannot be committed to a pyiceberg table in its present state."""
    check_version(identifier, stored.metadata.format_version)
    schema = stored.schema()
    required = _required(schema)
    if required is not None:
        raise IngestError(
            f"the Iceberg table {identifier} requires a value of {required}, but a topic cannot guarantee one: make the "
            "column optional, or give the topic another table by name in [[table]]."
        )
    other = next((field for field in stored.spec().fields if str(field.transform) != "identity"), None)
    if other is not None:
        raise IngestError(
            f"the Iceberg table {identifier} has partitions by {other.transform} of "
            f"{schema.find_column_name(other.source_id)}, but an ingest can only write partitions by column values: replace "
            "this field of the partition spec, or give the topic another table by name in [[table]]."
        )
    columns = {field.name for field in schema.fields}
    inner = next((name for name in partition_names(stored) if name not in columns), None)
    if inner is not None:
        raise IngestError(
            f"the Iceberg table {identifier} has partitions by {inner}, a field inside a column, but an ingest can only "
            "write partitions by columns: replace this field of the partition spec, or give the topic another table by name "
            "in [[table]]."
        )
    # Manifests of earlier partition specs are merged, too. Their columns may have been dropped.
    fields = [field for spec in stored.specs().values() for field in spec.fields if str(field.transform) == "identity"]
    sources = sorted({field.source_id for field in fields} & schema.field_ids)
    types = {schema.find_column_name(field_id): str(schema.find_type(field_id)) for field_id in sources}
    check_partition_types(identifier, types)


def check_promotions(identifier: str, held: StructType, rows: StructType) -> None:
    """Raise ColumnConflictError if a table of the schema ``held`` cannot get the types of rows."""
    # pyiceberg would also change the scale of a decimal, and then readers misread the older files.
    if conflicts := [change for change in type_changes(held, rows) if not is_promotion(change)]:
        raise conflict_error(identifier, conflicts, _PROMOTIONS)


def is_promotion(change: TypeChange) -> bool:
    """Return whether a table of Iceberg's version 2 may change a type: https://iceberg.apache.org/spec/#schema-evolution.

    The specification would allow promotions in keys of maps, but Iceberg's library for Java refuses them.
    """
    held, rows = change.held, change.rows
    if change.is_in_key:
        return False
    if isinstance(held, DecimalType) and isinstance(rows, DecimalType):
        return rows.scale == held.scale and rows.precision > held.precision
    return (isinstance(held, IntegerType) and isinstance(rows, LongType)) or (
        isinstance(held, FloatType) and isinstance(rows, DoubleType)
    )


def _required(schema: Any) -> str | None:
    """Return the name of a column, or of a field, an element or a value inside a column, that must not be null; None if there is
    none."""
    from pyiceberg.types import MapType

    types = [schema.find_type(field_id) for field_id in schema.field_ids]
    keys = {kind.key_id for kind in types if isinstance(kind, MapType)}
    required = (field_id for field_id in sorted(schema.field_ids) if schema.find_field(field_id).required)
    return next((schema.find_column_name(field_id) for field_id in required if field_id not in keys), None)


def check_numbers(table: str, version: int | str) -> None:
    """Raise IngestError if a table's format version has no sequence numbers of snapshots, by which a position is known."""
    if int(version) < _NUMBERED_VERSION:
        raise IngestError(
            f"the Iceberg table {table} has format version {version}, in which a position may be lost if snapshots expire: set "
            f"its property {VERSION} to {_NUMBERED_VERSION}."
        )


def check_version(table: str, version: int | str) -> None:
    """Raise IngestError if pyiceberg cannot write to tables of a format version."""
    from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION as NEWEST

    if int(version) > NEWEST:
        raise IngestError(
            f"the Iceberg table {table} has format version {version}, but the library pyiceberg on this machine writes at most "
            f"version {NEWEST}: let the ingest make the topic's table (name in [[table]]) without the property {VERSION}, or use "
            "a newer pyiceberg that writes this version."
        )


def check_partition_types(table: str, types: Mapping[str, str]) -> None:
    """Raise IngestError if a table has partitions by a FLOAT or DOUBLE column.

    pyiceberg 0.12 reads the partition values of a manifest as 32-bit numbers, and writes the rounded values back when manifests are
    merged. Readers take the column's values from there.
    """
    if (name := next((name for name, kind in types.items() if kind in ("float", "double")), None)) is not None:
        raise IngestError(
            f"the Iceberg table {table} cannot have partitions by {name}, a column of the type {types[name]}: its values would be "
            "rounded. Remove the column from partition_by, or cast it to DECIMAL or BIGINT with select in [[table]]."
        )
