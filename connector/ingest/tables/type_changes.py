"""Where rows have other types than their table, whatever the table's format.

No write may cast a value to a type that cannot hold the value. So each write first compares the types of its rows with the types of
the table. Where the table's type holds every value of the rows' type, the rows are cast. Elsewhere the format decides whether the
table gets a wider type, and otherwise refuses the rows. Pure functions of Spark's types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.errors import ColumnConflictError
from pykafka_wire.ingest.files.types import fits
from pykafka_wire.ingest.spark.sql import quoted

_ELEMENT, _KEY, _VALUE = "element", "key", "value"


class TypeChange(NamedTuple):
    """A place where the table's type does not hold every value of the rows' type.

    Attributes:
        path: the names of the column and of the fields, in the spelling of the table; ``element``, ``key`` and ``value`` inside
            arrays and maps.
        is_in_key: whether the place is the key of a map, or inside a key.
    """

    path: tuple[str, ...]
    held: DataType
    rows: DataType
    is_in_key: bool = False

    @property
    def sql(self) -> str:
        """Return the place in SQL."""
        return ".".join(map(quoted, self.path))


def type_changes(held: DataType, rows: DataType) -> list[TypeChange]:
    """Return the places where a table of the type ``held`` cannot store rows of the type ``rows``. New fields do not count."""
    return list(_changes(held, rows, (), is_in_key=False))


def _changes(held: DataType, rows: DataType, path: tuple[str, ...], *, is_in_key: bool) -> Iterator[TypeChange]:
    if isinstance(rows, NullType):
        return
    if isinstance(held, StructType) and isinstance(rows, StructType):
        known = {field.name.lower(): field for field in held}
        for field in rows:
            if (of_table := known.get(field.name.lower())) is not None:
                inner = (*path, of_table.name)
                yield from _changes(of_table.dataType, field.dataType, inner, is_in_key=is_in_key)
    elif isinstance(held, ArrayType) and isinstance(rows, ArrayType):
        yield from _changes(held.elementType, rows.elementType, (*path, _ELEMENT), is_in_key=is_in_key)
    elif isinstance(held, MapType) and isinstance(rows, MapType):
        yield from _changes(held.keyType, rows.keyType, (*path, _KEY), is_in_key=True)
        yield from _changes(held.valueType, rows.valueType, (*path, _VALUE), is_in_key=is_in_key)
    elif not _holds(held, rows):
        yield TypeChange(path, held, rows, is_in_key)


def _holds(held: DataType, rows: DataType) -> bool:
    """Return whether a type without fields holds every value of another one."""
    return held == rows or fits(_arrow_type(rows), _arrow_type(held))


def _arrow_type(data_type: DataType) -> pa.DataType:
    try:
        return arrow_schema(StructType([StructField("x", data_type)])).field(0).type
    except Exception:  # of pyspark, for types that pyarrow does not have: such a type holds its own values alone
        return pa.null()


def stored_type(held: DataType, rows: DataType) -> DataType:
    """Return the type of rows in a table: their own fields, with the table's types where these hold every value of the rows."""
    if isinstance(held, StructType) and isinstance(rows, StructType):
        known = {field.name.lower(): field.dataType for field in held}
        fields = [
            StructField(
                field.name,
                stored_type(known.get(field.name.lower(), field.dataType), field.dataType),
                field.nullable,
                field.metadata,
            )
            for field in rows
        ]
        return StructType(fields)
    if isinstance(held, ArrayType) and isinstance(rows, ArrayType):
        return ArrayType(stored_type(held.elementType, rows.elementType), rows.containsNull)
    if isinstance(held, MapType) and isinstance(rows, MapType):
        value = stored_type(held.valueType, rows.valueType)
        return MapType(stored_type(held.keyType, rows.keyType), value, rows.valueContainsNull)
    return held if isinstance(rows, NullType) or _holds(held, rows) else rows


def in_types_of(held: StructType, rows: DataFrame) -> DataFrame:
    """Return rows with the types of :func:`stored_type`, which hold every value."""
    wanted = stored_type(held, rows.schema)
    assert isinstance(wanted, StructType)
    if wanted == rows.schema:
        return rows
    return rows.select(
        *(
            F.col(quoted(field.name))
            if field.dataType == own.dataType
            else F.col(quoted(field.name)).cast(field.dataType).alias(field.name, metadata=field.metadata)
            for field, own in zip(wanted, rows.schema, strict=True)
        )
    )


def conflict_error(identifier: str, conflicts: Iterable[TypeChange], reason: str) -> ColumnConflictError:
    """Return the error of a table that cannot get the types of the rows.

    Args:
        reason: why not, as a clause.
    """
    places = ", ".join(
        f"{'.'.join(each.path)} is {each.held.simpleString()} in the table and {each.rows.simpleString()} in the newest rows"
        for each in conflicts
    )
    return ColumnConflictError(
        f'the table {identifier} cannot store its topic\'s values: {places}; {reason}. Make the newest schema, or "schema" in the '
        'settings, fit the table, give the topic another table by "name" in [[table]], or set on_conflict = "divert".'
    )
