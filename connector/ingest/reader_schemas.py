"""By which schema, and as which types, values of a registry's schemas are read for a table that is there already.

Owns two rules: fields that the newest version no longer has are read as long as the table has their columns, since older producers
and a backlog still write them; and a table keeps the kind of types that it was made with, whatever a newer version of this program
does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pykafka_wire.errors import DecodeError
from pykafka_wire.ingest.settings import Table
from pykafka_wire.values.avro.removed_fields import field_paths, with_removed_fields
from pykafka_wire.values.avro.schema import ParsedSchema, parse
from pykafka_wire.values.registry.client import Registry
from pykafka_wire.values.registry.registered_schema import Reference, Schema
from pykafka_wire.values.registry.schemas import referenced

#: The property of a table that was made with Kafka Connect's types: the value of the option ``connectTypes``.
CONNECT_TYPES_PROPERTY: Final = "pykafka-wire.connect-types"
#: Versions that are looked at, from the newest on.
_MAX_VERSIONS: Final = 50
#: The fields of Debezium's envelope that hold a row.
_ROWS: Final = ("before", "after")


def connect_types(table: Table, made_with: str | None, *, is_new: bool) -> str:
    """The option ``connectTypes`` of a table's reads.

    Args:
        made_with: :data:`CONNECT_TYPES_PROPERTY` of the table.
    """
    if table.connect_types != "auto":
        return table.connect_types
    if not is_new:
        return made_with or "false"
    return "true" if table.mode == "cdc" else "false"


def schema_text(
    registry: Registry, subject: str, schema: Schema, table: Table, columns: StructType | None
) -> str | None:
    """The text of the reader's schema; None where the registry's own is asked for, since it refers to others.

    Args:
        columns: those that the table has of its values, None for a new one.

    Raises:
        RegistryError: the registry does not respond.
    """
    own = None if schema.references else schema.text
    if schema.kind != "AVRO" or columns is None:
        return own
    try:
        newest = _parsed(registry, schema)
        held = set(_paths(columns))
        read = {_in_row(path, table) for path in field_paths(newest)}
        if held <= read:
            return own
        older = list(_older(registry, subject, schema))
        return with_removed_fields(newest, older, lambda path: _in_row(path, table) in held) if older else own
    except DecodeError:  # which reading reports, value by value
        return own


def _older(registry: Registry, subject: str, newest: Schema) -> Iterator[ParsedSchema]:
    for number in reversed(registry.versions(subject)[-_MAX_VERSIONS:]):
        found = registry.version(Reference(name=subject, subject=subject, version=number))
        if found.kind == "AVRO" and found.text != newest.text:
            yield _parsed(registry, found)


def _parsed(registry: Registry, schema: Schema) -> ParsedSchema:
    return parse(schema.text, list(referenced(registry, schema).values()))


def _in_row(path: tuple[str, ...], table: Table) -> tuple[str, ...]:
    """The path of a value's field in the table's columns; empty for one of Debezium's envelope. Delta does not tell cases apart."""
    if table.mode == "cdc":
        path = path[1:] if path[0] in _ROWS else ()
    return tuple(name.lower() for name in path)


def _paths(columns: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(columns, StructType):
        for field in columns:
            inner = (*path, field.name.lower())
            yield inner
            yield from _paths(field.dataType, inner)
    elif isinstance(columns, ArrayType):
        yield from _paths(columns.elementType, path)
    elif isinstance(columns, MapType):
        yield from _paths(columns.valueType, path)
