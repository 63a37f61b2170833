"""The reader's schema for values of a registry, if the table already exists; the versions of a subject.

Two rules. Fields that the newest version has removed are read as long as the table has their columns, since older producers and a
backlog still write them; with ``removed_fields = "all"`` also for a new table. A table keeps the kind of types that it was created
with, whatever a newer version of this program does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, TypeVar

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pykafka_wire.errors import DecodeError
from pykafka_wire.ingest.records.modes import mode_of
from pykafka_wire.ingest.settings.model import ReadSettings
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.values.avro.removed_fields import (
    ALL_FIELDS,
    NO_FIELDS,
    WantedFields,
    has_enum,
    has_fields,
    versions_with,
    with_removed_fields,
)
from pykafka_wire.values.avro.schema import ParsedSchema, parse
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.cache import cached_if_whole
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.registered_schema import Reference, Schema
from pykafka_wire.values.registry.schemas import look_up_references

_log = logging.getLogger(__name__)

#: The number of subjects whose results are remembered.
_MAX_RESULTS: Final = 100

ParsedT = TypeVar("ParsedT")


def schema_text(
    registry: Registry, subject: str, schema: Schema, reading: ReadSettings, columns: StructType | None
) -> str | None:
    """Return the text of the reader's schema; None if the registry's own schema applies, which no text replaces, since the schema
    refers to others.

    Args:
        columns: the table's columns of the value, None for a new table.

    Raises:
        RegistryError: the registry does not respond.
    """
    text = None if schema.references else schema.text
    if schema.kind != "AVRO":
        return text
    row = ALL_FIELDS if reading.removed_fields == "all" else _wanted(columns)
    wanted = mode_of(reading.mode).wanted_fields(row)
    try:
        newest = parsed_avro(registry, schema)
        numbers = () if has_fields([newest], wanted) else tuple(RegistryClient(registry).versions(subject))
    except DecodeError:  # the read reports the error for each value
        return text
    return _merged(registry, subject, schema, wanted, numbers) or text


@partial(cached_if_whole, max_results=_MAX_RESULTS)
def _merged(
    registry: Registry, subject: str, schema: Schema, wanted: WantedFields, numbers: tuple[int, ...]
) -> tuple[str | None, bool]:
    """Return the text of a schema with wanted fields of older versions, None if the newest schema needs no change; and whether all
    versions could be read.
    """
    newest, unreadable = parsed_avro(registry, schema), list[int]()
    older = (
        parsed
        for found, parsed in versions_of(registry, subject, numbers, "AVRO", parsed_avro, unreadable)
        if not found.has_same_types(schema)
    )
    needed = versions_with(wanted, chain([newest], older))
    text = with_removed_fields(newest, needed[1:], wanted) if len(needed) > 1 or has_enum(newest) else None
    return text, not unreadable


def symbols_text(registry: Registry, schema: Schema) -> str | None:
    """Return the text of a reader's schema that keeps the writers' enum symbols; None if the schema has no Avro enum.

    Raises:
        RegistryError: the registry does not respond.
    """
    try:
        parsed = parsed_avro(registry, schema) if schema.kind == "AVRO" else None
    except DecodeError:  # the read reports the error for each key
        return None
    return with_removed_fields(parsed, (), NO_FIELDS) if parsed is not None and has_enum(parsed) else None


def versions_of(
    registry: Registry,
    subject: str,
    numbers: Sequence[int],
    kind: str | None,
    parsed: Callable[[Registry, Schema], ParsedT | None],
    unreadable: list[int] | None = None,
) -> Iterator[tuple[Schema, ParsedT]]:
    """Yield a subject's versions of a kind, the newest first. A version that cannot be read, such as one just deleted, hides no
    other.

    Args:
        kind: None for all kinds.
        parsed: returns None for a version to leave out. Raises DecodeError.
        unreadable: gets the numbers of versions that cannot be read.
    """
    for number in reversed(numbers):
        try:
            schema = RegistryClient(registry).version(Reference(name=subject, subject=subject, version=number))
            found = parsed(registry, schema) if kind in (None, schema.kind) else None
        except DecodeError as error:
            if unreadable is not None:
                unreadable.append(number)
            if is_first(registry.url, f"version {number} of {subject}"):
                _log.warning(
                    "Version %d of subject %s cannot be read (%s): fields that only this version has are not landed.",
                    number,
                    subject,
                    error,
                )
            continue
        if found is not None:
            yield schema, found


def parsed_avro(registry: Registry, schema: Schema) -> ParsedSchema:
    """Return an Avro schema with those that it refers to. Raises DecodeError."""
    return parse(schema.text, list(look_up_references(registry, schema).values()))


def _wanted(columns: DataType | None) -> WantedFields:
    """Return the fields that the columns of a table hold."""
    if isinstance(columns, StructType):
        return WantedFields({field.name.lower(): _wanted(field.dataType) for field in columns})
    if isinstance(columns, ArrayType):
        return _wanted(columns.elementType)
    return _wanted(columns.valueType) if isinstance(columns, MapType) else NO_FIELDS
