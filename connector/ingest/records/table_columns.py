"""The columns of a table made from typed records: the value's fields first, then Kafka's columns with a prefix."""

from __future__ import annotations

import logging
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import BooleanType, DataType, StructField, StructType

from pykafka_wire.errors import UnfitRecordsError
from pykafka_wire.ingest.changes.newest import UNTYPED
from pykafka_wire.ingest.records.contracts import KAFKA_COLUMNS
from pykafka_wire.ingest.records.json.storable_types import empty_places, storable, storable_type
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.spark.sql import clash, equal_names, quoted
from pykafka_wire.ingest.tables.merging import DELETE
from pykafka_wire.options.logged_once import is_first

_log = logging.getLogger(__name__)


class TableColumn(NamedTuple):
    """A column of a table, and its source in a typed read: a column, or the path of a field.

    Attributes:
        type: the storable part of ``read_type``.
    """

    name: str
    path: tuple[str, ...]
    type: DataType
    read_type: DataType

    @property
    def sql(self) -> str:
        """Return the path as a Spark expression."""
        return ".".join(map(quoted, self.path))


def table_columns(rows: StructType, settings: Settings) -> list[TableColumn]:
    """Return the columns of a table made from typed rows, without columns that cannot be stored, such as empty records.

    Raises:
        UnfitRecordsError: two columns would have the same name.
    """
    value, prefix = rows["value"].dataType, settings.prefix
    names = (*KAFKA_COLUMNS, *(("headers",) if settings.headers else ()))
    read: list[tuple[str, tuple[str, ...], DataType]] = [("value", ("value",), value)]
    if isinstance(value, StructType):
        read = [(field.name, ("value", field.name), field.dataType) for field in value]
    columns = []
    for name, path, data_type in (*read, *((prefix + name, (name,), rows[name].dataType) for name in names)):
        stored = storable_type(data_type)
        if stored != data_type and data_type != UNTYPED:
            _warn_of_empty(name, data_type, settings.checkpoint)
        if stored is not None:
            columns.append(TableColumn(name, path, stored, data_type))
    fields = [StructField(column.name, column.type) for column in columns]
    two = clash(StructType([*fields, StructField(DELETE, BooleanType())]))
    if two is not None:
        raise UnfitRecordsError(
            f"columns {two} of the table would have the same name, since Delta ignores case in names. The setting prefix "
            f"({prefix!r}) renames Kafka's columns; schema chooses the fields of JSON values."
        )
    return columns


def table_rows(rows: DataFrame, settings: Settings, *others: str) -> DataFrame:
    """Return the columns of a table for rows that could be read, and further columns unchanged.

    Raises:
        UnfitRecordsError: two columns would have the same name.
    """
    columns = table_columns(rows.schema, settings)
    if (two := equal_names([*others, *(column.name for column in columns)])) is not None:
        raise UnfitRecordsError(
            f"values have the field {two[1]}, a name that the ingest uses itself while Spark writes the table: rename the field, "
            "or list the columns in schema."
        )
    return rows.select(
        *(storable(F.col(column.sql), column.read_type).alias(column.name) for column in columns),
        *others,
    )


def columns_without_value(settings: Settings) -> str:
    """Return the columns of a table whose values are not known yet, as DDL."""
    types = {"topic": "string", "partition": "int", "offset": "bigint", "timestamp": "timestamp"}
    return ", ".join(f"{quoted(settings.prefix + name)} {kind}" for name, kind in types.items())


def _warn_of_empty(name: str, data_type: DataType, checkpoint: str) -> None:
    for place in empty_places(data_type, name):
        if is_first(checkpoint, f"{place} is empty"):
            _log.warning(
                "Field %s has records without fields, which no table can store: the field is left out. It lands as soon as its "
                "type has a field.",
                place,
            )
