"""The reader's schema for values and keys of a registry, if the table already exists.

Three rules. Fields that the newest version has removed are read as long as the table has their columns, since older producers and a
backlog still write them; with ``removed_fields = "all"`` also for a new table. Keys whose fields differ from the newest version are
read with their own schema. A table keeps the kind of types that it was created with, whatever a newer version of this program does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

import pyarrow as pa
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
    nullable,
    versions_with,
    with_removed_fields,
)
from pykafka_wire.values.avro.schema import ParsedSchema, parse
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.cache import this_minute
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import split_frames
from pykafka_wire.values.registry.registered_schema import Reference, Schema
from pykafka_wire.values.registry.schemas import look_up_references

_log = logging.getLogger(__name__)

#: The number of subjects whose results are remembered.
_MAX_RESULTS: Final = 100
#: The length of the frame before a key: a zero byte, and the schema's id. A frame in a header is longer.
FRAME_BYTES: Final = 5


def schema_text(
    registry: Registry, subject: str, schema: Schema, reading: ReadSettings, columns: StructType | None
) -> str | None:
    """Return the text of the reader's schema; None if the registry's own schema applies, since it refers to other schemas.

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
        newest = _parsed(registry, schema)
        numbers = () if has_fields([newest], wanted) else tuple(RegistryClient(registry).versions(subject))
    except DecodeError:  # the read reports the error for each value
        return text
    return _merged(registry, subject, schema, wanted, numbers, this_minute()) or text


@lru_cache(maxsize=_MAX_RESULTS)
def _merged(
    registry: Registry, subject: str, schema: Schema, wanted: WantedFields, numbers: tuple[int, ...], _minute: int
) -> str | None:
    """Return the text of a schema with wanted fields of older versions; None if the newest schema needs no change.

    The result is remembered for a minute, as is a version that cannot be read.
    """
    newest = _parsed(registry, schema)
    older = (parsed for found, parsed in _versions(registry, subject, numbers) if not found.has_same_types(schema))
    needed = versions_with(wanted, chain([newest], older))
    return with_removed_fields(newest, needed[1:], wanted) if len(needed) > 1 or has_enum(newest) else None


def symbols_text(registry: Registry, schema: Schema) -> str | None:
    """Return the text of a reader's schema that keeps the writers' enum symbols; None if the schema has no Avro enum.

    Raises:
        RegistryError: the registry does not respond.
    """
    try:
        parsed = _parsed(registry, schema) if schema.kind == "AVRO" else None
    except DecodeError:  # the read reports the error for each key
        return None
    return with_removed_fields(parsed, (), NO_FIELDS) if parsed is not None and has_enum(parsed) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySchemas:
    """The schemas of a topic's keys, if not all have the same fields.

    Attributes:
        newest: the field names of the newest schema, sorted. All names here are sorted.
        texts: the newest schema for each set of field names.
        whole: the text of a schema with all fields. A field that a key lacks is null.
    """

    registry: Registry
    newest: tuple[str, ...]
    texts: Mapping[tuple[str, ...], str]
    whole: str

    def names(self, frames: Iterable[bytes]) -> dict[bytes, tuple[str, ...]]:
        """Return the key's field names for each frame. A frame of an unknown or unrelated schema is left out.

        Args:
            frames: the first :data:`FRAME_BYTES` of keys, or a header with a GUID.

        Raises:
            RegistryError: the registry does not respond.
        """
        known = list(frames)
        before = pa.array([key if len(key) <= FRAME_BYTES else b"" for key in known], pa.binary())
        headers = pa.array([key if len(key) > FRAME_BYTES else None for key in known], pa.binary())
        names_by_frame: dict[bytes, tuple[str, ...]] = {}
        for schema_id, rows in split_frames(before, "required", headers=headers).groups:
            if schema_id is None:
                continue
            try:
                schema = RegistryClient(self.registry).by_id(schema_id.id)
                names = _field_names(_parsed(self.registry, schema)) if schema.kind == "AVRO" else None
            except DecodeError:  # the read reports the error for each key
                continue
            if names in self.texts:
                names_by_frame |= {known[row]: names for row in rows.tolist()}
        return names_by_frame


def key_schemas(registry: Registry, subject: str) -> KeySchemas | None:
    """Return the key schemas of a subject; None if one schema suffices, since all have the same fields.

    Raises:
        RegistryError: the registry does not respond.
    """
    try:
        numbers = tuple(RegistryClient(registry).versions(subject))
    except DecodeError:  # there is no such subject
        return None
    return _key_schemas(registry, subject, numbers, this_minute())


@lru_cache(maxsize=_MAX_RESULTS)
def _key_schemas(registry: Registry, subject: str, numbers: tuple[int, ...], _minute: int) -> KeySchemas | None:
    """Return the key schemas of a subject's versions. The result is remembered for a minute."""
    newest: ParsedSchema | None = None
    by_names: dict[tuple[str, ...], ParsedSchema] = {}
    for _, schema in _versions(registry, subject, numbers):
        newest = newest or schema
        if (names := _field_names(schema)) is not None:
            by_names.setdefault(names, schema)
    if newest is None or len(by_names) < 2 or _field_names(newest) is None:
        return None
    needed = versions_with(ALL_FIELDS, by_names.values())
    whole = json.loads(with_removed_fields(newest, needed[1:], ALL_FIELDS))
    whole["fields"] = [{**field, "type": nullable(field["type"]), "default": None} for field in whole["fields"]]
    return KeySchemas(
        registry=registry.for_subject(subject),
        newest=_field_names(newest) or (),
        texts={names: with_removed_fields(schema, (), NO_FIELDS) for names, schema in by_names.items()},
        whole=json.dumps(whole),
    )


def _field_names(schema: ParsedSchema) -> tuple[str, ...] | None:
    """Return the sorted field names of a record type; None for another type."""
    root = schema.definition(schema.root)
    is_record = isinstance(root, dict) and root["type"] == "record"
    return tuple(sorted(field["name"] for field in root["fields"])) if is_record else None


def _versions(registry: Registry, subject: str, numbers: Sequence[int]) -> Iterator[tuple[Schema, ParsedSchema]]:
    """Yield a subject's Avro versions, the newest first. A version that cannot be read, such as one just deleted, hides no
    other.
    """
    for number in reversed(numbers):
        try:
            schema = RegistryClient(registry).version(Reference(name=subject, subject=subject, version=number))
            parsed = _parsed(registry, schema) if schema.kind == "AVRO" else None
        except DecodeError as error:
            if is_first(registry.url, f"version {number} of {subject}"):
                _log.warning(
                    "Version %d of subject %s cannot be read (%s): fields that only this version has are not landed.",
                    number,
                    subject,
                    error,
                )
            continue
        if parsed is not None:
            yield schema, parsed


def _parsed(registry: Registry, schema: Schema) -> ParsedSchema:
    return parse(schema.text, list(look_up_references(registry, schema).values()))


def _wanted(columns: DataType | None) -> WantedFields:
    """Return the fields that the columns of a table hold."""
    if isinstance(columns, StructType):
        return WantedFields({field.name.lower(): _wanted(field.dataType) for field in columns})
    if isinstance(columns, ArrayType):
        return _wanted(columns.elementType)
    return _wanted(columns.valueType) if isinstance(columns, MapType) else NO_FIELDS
