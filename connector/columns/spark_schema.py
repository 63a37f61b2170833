"""A DataFrame's schema: the source's columns in Spark's types, and how Spark's schema and Arrow's agree on them.

``key`` and ``value`` may have a type of their own (``valueFormat``), and ``keyError`` and ``valueError`` beside them
(``onValueError=divert``). The columns themselves are :mod:`~pykafka_wire.columns.source_columns`'s.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from pykafka_wire.columns.arrow_types import ARROW_TYPES
from pykafka_wire.columns.source_columns import SOURCE_COLUMNS, source_schema
from pykafka_wire.errors import OptionError, SchemaError
from pykafka_wire.field_selection import Selection, selected_paths

#: Columns in which a record may have null.
_NULLABLE_COLUMNS: Final = frozenset({"key", "value", "headers"})


def typed_source_schema(names: Iterable[str], types: Mapping[str, DataType]) -> StructType:
    """Return the schema of the columns with these names; ``types`` has those of decoded columns, and a column of errors is
    text."""
    schema = StructType()
    for name in names:
        schema.add(name, types.get(name) or (spark_type(ARROW_TYPES[name]) if name in ARROW_TYPES else StringType()))
    return schema


def check_source_schema(
    schema: StructType, *, typed: Collection[str] = (), added_columns: Collection[str] = ()
) -> tuple[str, ...]:
    """Return names of the columns to read, in the order of ``schema``: all of the source's columns or a subset of them.

    Args:
        typed: columns that are decoded. Their types are checked where the reader's schema is known
            (:func:`~pykafka_wire.source.dataframe_types.missing_fields`).
        added_columns: those that ``onKeyError`` and ``onValueError`` add.

    Raises:
        SchemaError: a name or a type that the source does not have, or NOT NULL where Kafka has nulls.
    """
    for field in schema.fields:
        if field.name in added_columns:
            known = "string"
        elif field.name in SOURCE_COLUMNS:
            known = SOURCE_COLUMNS[field.name]
        else:
            raise _no_such_column(field.name, added_columns)
        given = field.dataType.simpleString()
        if given == "timestamp_ntz" and known == "timestamp":
            raise SchemaError(
                f"column {field.name!r} is TIMESTAMP_LTZ, not TIMESTAMP_NTZ, which the word TIMESTAMP means in this session "
                "(spark.sql.timestampType). Write timestamp TIMESTAMP_LTZ in .schema(…), and cast the column in the query."
            )
        if given != known and field.name not in typed:
            other = ""
            if field.name in ("key", "value") and not isinstance(field.dataType, StringType):
                other = f", or set {field.name}Format to read the column decoded"
            raise SchemaError(
                f"column {field.name!r} is {known}, not {given}: name it with its own type in .schema(…) and "
                f"cast it in the query{other}."
            )
        may_be_null = field.name in _NULLABLE_COLUMNS or field.name in added_columns
        if may_be_null and not (field.nullable and _allows_nulls(field.dataType)):
            raise SchemaError(
                f"column {field.name!r} cannot be NOT NULL: Kafka records may have no key, no value (a tombstone) and no "
                f"headers. Leave NOT NULL out of .schema(…), and filter in the query: .where('{field.name} IS NOT NULL')."
            )
    return tuple(field.name for field in schema.fields)


def check_selection(given: StructType | pa.Schema, selection: Selection) -> None:
    """Raise OptionError where the user gave a schema with other columns or fields than those of the option ``columns``."""
    schema = spark_schema(given)
    if selection and not _has_fields(schema, selection):
        raise OptionError(
            f"columns selects {', '.join(selected_paths(selection))}, but .schema(…), in SQL the list of columns of the "
            f"view or table, is {schema.simpleString()}: leave one of them out."
        )


def _has_fields(given: DataType, selection: Selection) -> bool:
    if isinstance(given, ArrayType):
        return _has_fields(given.elementType, selection)
    if not selection:
        return True
    return (
        isinstance(given, StructType)
        and given.names == list(selection)
        and all(_has_fields(given[name].dataType, fields) for name, fields in selection.items())
    )


def _no_such_column(name: str, added_columns: Collection[str]) -> SchemaError:
    for column in ("key", "value"):
        if name == f"{column}Error":
            return SchemaError(
                f"the source has no column {name!r} without on{column.capitalize()}Error=divert: set that, or leave {name} out of "
                ".schema(…)."
            )
    more = "".join(f", {name} string" for name in added_columns)
    return SchemaError(
        f"the source has no column {name!r}. Its columns are {source_schema(True)}{more}; .schema(…) may name a subset of "
        "them."
    )


def _allows_nulls(data_type: DataType) -> bool:
    """Return whether arrays, maps and structs within a type may hold nulls."""
    if isinstance(data_type, ArrayType):
        return data_type.containsNull and _allows_nulls(data_type.elementType)
    if isinstance(data_type, MapType):
        return data_type.valueContainsNull and _allows_nulls(data_type.keyType) and _allows_nulls(data_type.valueType)
    if isinstance(data_type, StructType):
        return all(field.nullable and _allows_nulls(field.dataType) for field in data_type.fields)
    return True


def spark_schema(given: StructType | pa.Schema) -> StructType:
    """Return the schema that a data source is given, as Spark's: Sail gives Arrow's, in which ``timestamp`` may have no zone."""
    if isinstance(given, StructType):
        return given
    from pyspark.sql.pandas.types import from_arrow_type

    schema = StructType()
    for field in given:
        data_type = from_arrow_type(field.type, prefer_timestamp_ntz=field.name != "timestamp")
        schema.add(field.name, data_type, field.nullable)
    return schema


def spark_type(arrow_type: pa.DataType) -> DataType:
    """Return Spark's type for an Arrow type; a timestamp without a zone is TIMESTAMP_NTZ."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(arrow_type, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark demands of each batch, field by field and nullability included."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, **_utc())


@cache
def _utc() -> Mapping[str, Any]:
    """Return the argument by which PySpark's timestamps are in UTC. Before Spark 4.2 there is none: UTC is the default."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
