"""Which types do a DataFrame's typed columns have: what ``load()`` gives them, and whether a given type fits the reader's schemas.

A type is compared with a schema's field by field, by name; types are Spark's.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pykafka_wire.columns.selected_columns import column_names
from pykafka_wire.columns.source_columns import SOURCE_COLUMNS
from pykafka_wire.columns.spark_schema import arrow_schema, spark_type, typed_source_schema
from pykafka_wire.errors import SchemaError
from pykafka_wire.field_selection import WHOLE, check_whole
from pykafka_wire.options.source import SchemaOptions
from pykafka_wire.options.typed_columns import TypedColumn, TypedColumns
from pykafka_wire.source.reader_schema import (
    ReaderSchema,
    ReaderSchemas,
    check_has_type,
    find_reader_schemas,
    read_columns,
    registry_in,
)
from pykafka_wire.values.json.column_reader import json_reader
from pykafka_wire.wire.process_clients import shared_cluster


def find_source_schema(options: SchemaOptions) -> tuple[StructType, dict[str, ReaderSchema]]:
    """Return the schema of a DataFrame of the selected columns, and the reader's schemas that its types come from.

    Raises:
        OptionError, SchemaError, RegistryError, WireError: as :func:`find_reader_schemas`.
    """
    columns = options.typed_columns
    names = column_names(options.columns, options.include_headers, columns.added_columns)
    wanted = read_columns(columns, names)
    for column in wanted:
        check_has_type(column, has_registry=bool(columns.registry_options))
    cluster = shared_cluster(options.client)
    readers = find_reader_schemas(columns, wanted, cluster, options.subscription) if wanted else {}
    types: dict[str, DataType] = {}
    for name in names:
        selected = options.columns.get(name, WHOLE)
        if name in readers:
            (column,) = (field for field in wanted if field.name == name)
            types[name] = spark_type(readers[name].column_type(registry_in(columns, column), selected, column))
        else:
            check_whole(selected, name, SOURCE_COLUMNS.get(name, "string"))
    return typed_source_schema(names, types), readers


def column_type(reader: ReaderSchema, columns: TypedColumns, column: TypedColumn) -> DataType:
    """Return Spark's type for all of a reader's schema. Raises as
    :meth:`~pykafka_wire.source.reader_schema.ReaderSchema.column_type`."""
    return spark_type(reader.column_type(registry_in(columns, column), column=column))


def available_type(reader: ReaderSchema, columns: TypedColumns, column: TypedColumn) -> DataType | None:
    """Return what :func:`column_type` does; None for a recursive schema, of which the DataFrame's type can name a part only."""
    reader.value_format(registry_in(columns, column), column)  # raises where the schema itself is the problem
    try:
        return column_type(reader, columns, column)
    except SchemaError:
        return None


def check_types(
    readers: ReaderSchemas, columns: TypedColumns, schema: StructType, *, wanted: Collection[TypedColumn]
) -> None:
    """Refuse a DataFrame's type that names what the reader's schemas do not have.

    Raises:
        SchemaError: it names the field, and what there is.
    """
    for column in wanted:
        reader = readers[column.name]
        if column.name not in schema.names:  # the reasons alone: values are decoded whole
            check_has_type(column)
            column_type(reader, columns, column)
            continue
        if column.format == "json" and column.schema is None:
            wanted_type = arrow_schema(schema).field(column.name).type
            json_reader(wanted_type)  # raises for a type that no value has
            continue
        available = available_type(reader, columns, column)
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


class TypesContradictError(SchemaError):
    """A field has another type in the reader's schema."""


def missing_fields(wanted: DataType, available: DataType, column: str) -> list[str]:
    """Return paths such as ``value.customer.name`` of the fields in ``wanted`` that ``available`` does not have.

    Raises:
        TypesContradictError: a field is there with another type.
    """
    return list(_missing(wanted, available, column))


def describe_missing(missing: list[str], available: DataType, column: str) -> str:
    """Return the fields that are missing, and what there is in their place."""
    path = missing[0]
    parent = _at(available, path.split(".")[1:-1])
    name = path.rpartition(".")[2]
    names = parent.names if isinstance(parent, StructType) else []
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    there = parent.simpleString() if parent is not None else available.simpleString()
    return f"{', '.join(missing)}{hint}; {path.rpartition('.')[0] or column} is {_short(there)}"


def changes(before: DataType, after: DataType, column: str) -> list[str]:
    """Return what is new, gone and different in a type, field by field, in words."""
    differences = []
    for path, old, new in _differences(before, after, column):
        if old is None or new is None:
            differences.append(f"{path} is gone" if new is None else f"{path} {_short(new.simpleString())} is new")
        else:
            differences.append(f"{path} is {_short(new.simpleString())} in place of {_short(old.simpleString())}")
    return differences


def _missing(wanted: DataType, available: DataType, path: str) -> Iterator[str]:
    for where, there, needed in _differences(available, wanted, path):
        if there is None:
            yield where
        elif needed is not None:
            raise TypesContradictError(
                f"{where} is {_short(there.simpleString())}, not {_short(needed.simpleString())}"
            )


def _differences(
    before: DataType, after: DataType, path: str
) -> Iterator[tuple[str, DataType | None, DataType | None]]:
    """Yield ``(path, before, after)`` of each place where two types differ, in the order of ``after``; None for a missing
    field."""
    if isinstance(before, StructType) and isinstance(after, StructType):
        old = {field.name: field.dataType for field in before.fields}
        for field in after.fields:
            if field.name in old:
                yield from _differences(old[field.name], field.dataType, f"{path}.{field.name}")
            else:
                yield f"{path}.{field.name}", None, field.dataType
        yield from ((f"{path}.{name}", gone, None) for name, gone in old.items() if name not in after.names)
    elif isinstance(before, ArrayType) and isinstance(after, ArrayType):
        yield from _differences(before.elementType, after.elementType, f"{path}.element")
    elif isinstance(before, MapType) and isinstance(after, MapType):
        yield from _differences(before.keyType, after.keyType, f"{path}.key")
        yield from _differences(before.valueType, after.valueType, f"{path}.value")
    elif before != after:
        yield path, before, after


def _at(data_type: DataType | None, names: list[str]) -> DataType | None:
    """Return the type at a path; None where it cannot be followed."""
    for name in names:
        if isinstance(data_type, StructType) and name in data_type.names:
            data_type = data_type[name].dataType
        elif isinstance(data_type, ArrayType) and name == "element":
            data_type = data_type.elementType
        elif isinstance(data_type, MapType) and name in ("key", "value"):
            data_type = data_type.valueType if name == "value" else data_type.keyType
        else:
            return None
    return data_type


def _short(text: str, max_length: int = 300) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"
