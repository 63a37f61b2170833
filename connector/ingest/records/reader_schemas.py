"""The reader's schema for values and keys of a registry, if the table already exists.

Three rules. Fields that the newest version has removed are read as long as the table has their columns, since older producers and a
backlog still write them; with ``removed_fields = "all"`` also for a new table. Keys whose fields differ from the newest version are
read with their own schema. A table keeps the kind of types that it was created with, whatever a newer version of this program does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pykafka_wire.errors import DecodeError
from pykafka_wire.ingest.records.modes import mode_of
from pykafka_wire.ingest.settings.model import ReadSettings
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.values.avro.removed_fields import field_paths, has_enum, nullable, with_removed_fields
from pykafka_wire.values.avro.schema import ParsedSchema, parse
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import split_frames
from pykafka_wire.values.registry.registered_schema import Reference, Schema
from pykafka_wire.values.registry.schemas import look_up_references

_log = logging.getLogger(__name__)

#: The number of versions that are read, starting with the newest.
_MAX_VERSIONS: Final = 50
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
    held, mode = set() if columns is None else set(_paths(columns)), mode_of(reading.mode)

    def in_row(path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of a value's field in the table's columns, in lower case as Delta compares names."""
        return tuple(name.lower() for name in mode.row_path(path))

    def is_kept(path: tuple[str, ...]) -> bool:
        column = in_row(path)
        return column in held or (reading.removed_fields == "all" and bool(column))

    try:
        newest = _parsed(registry, schema)
        is_whole = held <= {in_row(path) for path in field_paths(newest)} and reading.removed_fields != "all"
        older = [] if is_whole else list(_older(registry, subject, schema))
        return with_removed_fields(newest, older, is_kept) if older or has_enum(newest) else text
    except DecodeError:  # the read reports the error for each value
        return text


def symbols_text(registry: Registry, schema: Schema) -> str | None:
    """Return the text of a reader's schema that keeps the writers' enum symbols; None if the schema has no Avro enum.

    Raises:
        RegistryError: the registry does not respond.
    """
    try:
        parsed = _parsed(registry, schema) if schema.kind == "AVRO" else None
    except DecodeError:  # the read reports the error for each key
        return None
    return with_removed_fields(parsed, (), lambda _: False) if parsed is not None and has_enum(parsed) else None


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
        parsed = [schema for _, schema in _versions(registry, subject)][::-1]
    except DecodeError:  # there is no such subject
        return None
    by_names = {names: schema for schema in parsed if (names := _field_names(schema)) is not None}
    if len(by_names) < 2 or _field_names(parsed[-1]) is None:
        return None
    whole = json.loads(with_removed_fields(parsed[-1], parsed[-2::-1], lambda _: True))
    whole["fields"] = [{**field, "type": nullable(field["type"]), "default": None} for field in whole["fields"]]
    return KeySchemas(
        registry=registry.for_subject(subject),
        newest=_field_names(parsed[-1]) or (),
        texts={names: with_removed_fields(schema, (), lambda _: False) for names, schema in by_names.items()},
        whole=json.dumps(whole),
    )


def _field_names(schema: ParsedSchema) -> tuple[str, ...] | None:
    """Return the sorted field names of a record type; None for another type."""
    root = schema.definition(schema.root)
    is_record = isinstance(root, dict) and root["type"] == "record"
    return tuple(sorted(field["name"] for field in root["fields"])) if is_record else None


def _older(registry: Registry, subject: str, newest: Schema) -> Iterator[ParsedSchema]:
    """Yield the versions that have other types than the newest version, the newest version first."""
    return (parsed for schema, parsed in _versions(registry, subject) if not schema.has_same_types(newest))


def _versions(registry: Registry, subject: str) -> Iterator[tuple[Schema, ParsedSchema]]:
    """Yield a subject's Avro versions, the newest first. A version that cannot be read, such as one just deleted, hides no other.

    Raises:
        DecodeError: there is no such subject.
    """
    for number in reversed(RegistryClient(registry).versions(subject)[-_MAX_VERSIONS:]):
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
