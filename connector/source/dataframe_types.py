"""A DataFrame's types of typed columns: what ``load()`` gives them, and whether a given type fits the reader's schemas."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql.types import DataType, StructType

from pykafka_wire.columns.selection import WHOLE, check_whole, column_names
from pykafka_wire.columns.source_columns import SOURCE_COLUMNS
from pykafka_wire.columns.spark_schema import arrow_schema, spark_type, typed_source_schema
from pykafka_wire.errors import SchemaError
from pykafka_wire.options.source import SchemaOptions
from pykafka_wire.options.typed_columns import TypedColumn, TypedColumns
from pykafka_wire.schema_projection import TypesContradictError, describe_missing, missing_fields
from pykafka_wire.source.reader_schemas import (
    ReaderSchemas,
    check_has_type,
    find_reader_schemas,
    read_columns,
    registry_in,
)
from pykafka_wire.values.reader_schema import ReaderSchema
from pykafka_wire.wire.process_clients import shared_cluster


def find_source_schema(options: SchemaOptions) -> tuple[StructType, dict[str, ReaderSchema]]:
    """The schema of a DataFrame of the selected columns, and the reader's schemas that its types come from.

    Raises:
        OptionError, SchemaError, RegistryError, WireError: as :func:`find_reader_schemas`.
    """
    columns = options.typed_columns
    names = column_names(options.columns, options.include_headers, columns.error_columns)
    wanted = read_columns(columns, names)
    for column in wanted:
        check_has_type(column)
    cluster = shared_cluster(options.client)
    readers = find_reader_schemas(columns, wanted, cluster, options.subscription) if wanted else {}
    registry = registry_in(columns)
    types: dict[str, DataType] = {}
    for name in names:
        selected = options.columns.get(name, WHOLE)
        if name in readers:
            types[name] = spark_type(readers[name].column_type(registry, selected, name))
        else:
            check_whole(selected, name, SOURCE_COLUMNS.get(name, "string"))
    return typed_source_schema(names, types), readers


def column_type(reader: ReaderSchema, columns: TypedColumns) -> DataType:
    """Spark's type for all of a reader's schema. Raises as :meth:`~pykafka_wire.values.reader_schema.ReaderSchema.column_type`."""
    return spark_type(reader.column_type(registry_in(columns)))


def available_type(reader: ReaderSchema, columns: TypedColumns) -> DataType | None:
    """As :func:`column_type`; None for a recursive schema, of which the DataFrame's type can name a part only."""
    reader.value_format(registry_in(columns))  # raises where the schema itself is the problem
    try:
        return column_type(reader, columns)
    except SchemaError:
        return None


def check_types(
    readers: ReaderSchemas, columns: TypedColumns, schema: StructType, *, wanted: Collection[TypedColumn]
) -> None:
    """Refuses a DataFrame's type that names what the reader's schemas do not have.

    Raises:
        SchemaError: it names the field, and what there is.
    """
    for column in wanted:
        reader = readers[column.name]
        if column.name not in schema.names:  # the reasons alone: values are decoded whole
            check_has_type(column)
            column_type(reader, columns)
            continue
        if column.format == "json" and column.schema is None:
            wanted_type = arrow_schema(schema).field(column.name).type
            reader.value_format(None).reader(None, wanted_type)  # raises for a type that no value has
            continue
        available = available_type(reader, columns)
        if available is None:
            continue
        try:
            missing = missing_fields(schema[column.name].dataType, available, column.name)
        except TypesContradictError as error:
            raise SchemaError(
                f"{error.message} in {reader}: name fields with their own types in .schema(…), and cast them in the query."
            ) from error
        if missing:
            raise SchemaError(
                f"{reader} has no {describe_missing(missing, available, column.name)}. .schema(…) may name a part of its fields."
            )
