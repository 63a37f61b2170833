"""The schemas of a topic's keys, whose fields may differ: each key is read with the fields that its own schema has.

A field that a key does not have is null in the table's key column, as in the rows of the time before the field was added. Read with
the newest schema, such a key would get the field's default, and would be another row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pykafka_wire.errors import DecodeError, IngestError, OptionError
from pykafka_wire.ingest.records.reader_schemas import parsed_avro, versions_of
from pykafka_wire.values.avro.removed_fields import (
    ALL_FIELDS,
    NO_FIELDS,
    nullable,
    versions_with,
    with_removed_fields,
)
from pykafka_wire.values.avro.schema import ParsedSchema
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.cache import this_minute
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import split_frames
from pykafka_wire.values.registry.registered_schema import Schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

#: The number of subjects whose results are remembered.
_MAX_RESULTS: Final = 100
#: The length of the frame before a key: a zero byte, and the schema's id. A frame in a header is longer.
FRAME_BYTES: Final = 5

#: The sorted names of a key's fields.
FieldNames = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySchemas:
    """The schemas of a topic's keys, if not all have the same fields.

    Attributes:
        newest: the field names of the newest schema.
        texts: the text of a schema for each set of field names; None if there is none, see :meth:`text`.
        whole: the text of a schema with all fields; None if there is none. A field that a key lacks is null.
        names_of: returns the field names of a schema of the registry, None if its keys are none of this subject's. Raises
            DecodeError.
    """

    registry: Registry
    newest: FieldNames
    texts: Mapping[FieldNames, str | None]
    whole: str | None
    names_of: Callable[[Schema], FieldNames | None]

    def names(self, frames: Iterable[bytes]) -> dict[bytes, FieldNames]:
        """Return the key's field names for each frame. A frame of an unknown or unrelated schema is left out.

        Args:
            frames: the first :data:`FRAME_BYTES` of keys, or a header with a GUID.

        Raises:
            RegistryError: the registry does not respond.
        """
        known = list(frames)
        before = pa.array([key if len(key) <= FRAME_BYTES else b"" for key in known], pa.binary())
        headers = pa.array([key if len(key) > FRAME_BYTES else None for key in known], pa.binary())
        names_by_frame: dict[bytes, FieldNames] = {}
        for schema_id, rows in split_frames(before, "required", headers=headers).groups:
            if schema_id is None:
                continue
            try:
                names = self.names_of(RegistryClient(self.registry).by_id(schema_id.id))
            except DecodeError:  # the read reports the error for each key
                continue
            if names in self.texts:
                names_by_frame |= {known[row]: names for row in rows.tolist()}
        return names_by_frame

    def text(self, names: FieldNames) -> str | None:
        """Return the text of a schema with these fields; None if the registry's newest schema applies.

        Raises:
            IngestError: there is no such text.
        """
        text = self.texts[names]
        if text is None and names != self.newest:
            raise IngestError(
                f"keys have the fields {', '.join(names)}, while the newest version of their Protobuf schema has the fields "
                f"{', '.join(self.newest)}, and keys cannot be read with the former fields alone: the schema imports another one "
                "of the registry, or the name or the type of a removed field has another meaning now. Set key_schema to the text "
                "of the schema that all keys are to be read with."
            )
        return text


def key_versions(registry: Registry, subject: str) -> tuple[int, ...]:
    """Return the numbers of a subject's versions, ascending; none if there is no such subject.

    Raises:
        RegistryError: the registry does not respond.
    """
    try:
        return tuple(RegistryClient(registry).versions(subject))
    except DecodeError:
        return ()


def key_schemas(
    registry: Registry, subject: str, message: str | None = None, numbers: tuple[int, ...] | None = None
) -> KeySchemas | None:
    """Return the key schemas of a subject in Avro or Protobuf; None if one schema suffices, since all have the same fields.

    Args:
        message: the name of the Protobuf message that keys are, by default the first one of the newest schema.
        numbers: the result of :func:`key_versions`, if the caller has it.

    Raises:
        RegistryError: the registry does not respond.
    """
    numbers = key_versions(registry, subject) if numbers is None else numbers
    if _newest_kind(registry, subject, numbers) == "PROTOBUF":
        return _protobuf_schemas(registry, subject, numbers, message, this_minute())
    return _avro_schemas(registry, subject, numbers, this_minute())


def renamed_fields(
    registry: Registry, subject: str, message: str | None = None, numbers: tuple[int, ...] | None = None
) -> Mapping[str, str]:
    """Return the newest name of each field of a subject's keys that has had another name, by the former name.

    Args:
        message, numbers: as in :func:`key_schemas`.

    Raises:
        RegistryError: the registry does not respond.
    """
    numbers = key_versions(registry, subject) if numbers is None else numbers
    return _renamed_fields(registry, subject, numbers, message, this_minute())


@lru_cache(maxsize=_MAX_RESULTS)
def _renamed_fields(
    registry: Registry, subject: str, numbers: tuple[int, ...], message: str | None, _minute: int
) -> Mapping[str, str]:
    if _newest_kind(registry, subject, numbers) != "PROTOBUF":
        newest = next((found for _, found in versions_of(registry, subject, numbers, "AVRO", parsed_avro)), None)
        root = None if newest is None else newest.definition(newest.root)
        fields = root["fields"] if isinstance(root, dict) and root["type"] == "record" else []
        return {alias: field["name"] for field in fields for alias in field.get("aliases", ())}
    messages = _protobuf_messages(registry, subject, numbers, message)
    names = {number: field.name for found in reversed(messages) for number, field in found.fields_by_number.items()}
    former = {field.name: names[number] for found in messages for number, field in found.fields_by_number.items()}
    return {old: new for old, new in former.items() if old != new}


def _newest_kind(registry: Registry, subject: str, numbers: tuple[int, ...]) -> str | None:
    return next((schema.kind for schema, _ in versions_of(registry, subject, numbers, None, lambda *_: ())), None)


@lru_cache(maxsize=_MAX_RESULTS)
def _avro_schemas(registry: Registry, subject: str, numbers: tuple[int, ...], _minute: int) -> KeySchemas | None:
    """Return the key schemas of a subject's versions. The result is remembered for a minute."""
    newest: ParsedSchema | None = None
    by_names: dict[FieldNames, ParsedSchema] = {}
    for _, schema in versions_of(registry, subject, numbers, "AVRO", parsed_avro):
        newest = newest or schema
        if (names := _field_names(schema)) is not None:
            by_names.setdefault(names, schema)
    if newest is None or len(by_names) < 2 or _field_names(newest) is None:
        return None
    needed = versions_with(ALL_FIELDS, by_names.values())
    whole = json.loads(with_removed_fields(newest, needed[1:], ALL_FIELDS))
    whole["fields"] = [{**field, "type": nullable(field["type"]), "default": None} for field in whole["fields"]]
    of_subject = registry.for_subject(subject)
    return KeySchemas(
        registry=of_subject,
        newest=_field_names(newest) or (),
        texts={names: with_removed_fields(schema, (), NO_FIELDS) for names, schema in by_names.items()},
        whole=json.dumps(whole),
        names_of=lambda schema: _field_names(parsed_avro(of_subject, schema)) if schema.kind == "AVRO" else None,
    )


def _field_names(schema: ParsedSchema) -> FieldNames | None:
    """Return the sorted field names of a record type; None for another type."""
    root = schema.definition(schema.root)
    is_record = isinstance(root, dict) and root["type"] == "record"
    return tuple(sorted(field["name"] for field in root["fields"])) if is_record else None


@lru_cache(maxsize=_MAX_RESULTS)
def _protobuf_schemas(
    registry: Registry, subject: str, numbers: tuple[int, ...], message: str | None, _minute: int
) -> KeySchemas | None:
    """Return the key schemas of a subject's versions. The result is remembered for a minute.

    A field is known by its number, so a renamed field is the same.
    """
    from pykafka_wire.values.protobuf.message_versions import MessageVersions

    messages = _protobuf_messages(registry, subject, numbers, message)
    field_sets = {frozenset(found.fields_by_number) for found in messages}
    if len(field_sets) < 2:
        return None
    versions = MessageVersions(messages)
    fields = versions.fields()
    of_subject = registry.for_subject(subject)

    def names(of_fields: Iterable[int]) -> FieldNames:
        return tuple(sorted(fields[number].name for number in of_fields if number in fields))

    def names_of(schema: Schema) -> FieldNames | None:
        found = _message(of_subject, schema, messages[0].full_name) if schema.kind == "PROTOBUF" else None
        return None if found is None else names(found.fields_by_number)

    texts: dict[FieldNames, str | None] = {}
    for field_set in field_sets:
        # Two sets of fields with the same names are different keys, so the names do not lead to one schema.
        texts[names(field_set)] = None if names(field_set) in texts else versions.text(field_set)
    partial = frozenset(fields) - frozenset.intersection(*field_sets)
    return KeySchemas(
        registry=of_subject,
        newest=names(messages[0].fields_by_number),
        texts=texts,
        whole=versions.text(frozenset(fields), partial),
        names_of=names_of,
    )


def _protobuf_messages(
    registry: Registry, subject: str, numbers: tuple[int, ...], message: str | None
) -> list[Descriptor]:
    """Return the message of the keys in each version that has the message, the newest first."""

    def named(of: Registry, schema: Schema) -> Descriptor | None:
        return _message(of, schema, message)

    if message is None:
        first = next((found for _, found in versions_of(registry, subject, numbers, "PROTOBUF", named)), None)
        message = None if first is None else first.full_name
    return [found for _, found in versions_of(registry, subject, numbers, "PROTOBUF", named)]


def _message(registry: Registry, schema: Schema, name: str | None) -> Descriptor | None:
    """Return the message of a Protobuf schema; None if the schema has no message of that name. Raises DecodeError."""
    try:
        return Protobuf(registry=registry, reader_schema=schema, message=name).descriptor()
    except OptionError:  # the keys of this version are other messages, which are rejects
        return None
