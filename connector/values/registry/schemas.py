"""The schema of a value, by the id before it; the schemas that it refers to; the schema that values are written with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykafka_wire.errors import DecodeError, OptionError
from pykafka_wire.values.registry.client import Registry, Schema
from pykafka_wire.values.registry.framing import SchemaId, encode_frame

#: Far more than schemas have. References to references could otherwise go on for ever.
_MAX_REFERENCES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSchema:
    """The schema that values are written with, looked up once, before any value is written.

    Attributes:
        schema_id: None for values without a frame.
    """

    schema_id: int | None
    schema: Schema

    def frame(self, message_indexes: bytes = b"") -> bytes:
        """What stands before each value; nothing without an id."""
        return b"" if self.schema_id is None else encode_frame(self.schema_id, message_indexes)

    @classmethod
    def of(cls, registry: Registry, kind: str, subject: str, schema: Schema | str | None) -> WriterSchema:
        """The subject's newest schema, or the one given, registered if it is new.

        Raises:
            OptionError: the subject has none, or one of another kind.
            RegistryError: the registry does not answer, or refuses the schema.
        """
        if isinstance(schema, str):
            schema = Schema(kind=kind, text=schema)
        if schema is not None:
            return cls(schema_id=registry.register(subject, schema), schema=schema)
        try:
            schema_id, found = registry.latest(subject)
        except DecodeError as error:
            raise OptionError(f"subject {subject}: {error}. Give the schema to register it.") from error
        if found.kind != kind:
            raise OptionError(f"subject {subject} is {found.kind}, not {kind}: use the functions for {found.kind}.")
        return cls(schema_id=schema_id, schema=found)


def schema_of(registry: Registry, schema_id: SchemaId, kind: str) -> Schema:
    """The schema that a frame names.

    Raises:
        DecodeError: the registry does not know it, or it is of another kind.
        RegistryError: the registry does not answer.
    """
    number = schema_id.id
    is_id = isinstance(number, int)
    try:
        schema = registry.by_id(number) if isinstance(number, int) else registry.by_guid(number)
    except DecodeError as error:
        raise DecodeError(
            f"its schema with the {'id' if is_id else 'GUID'} {number} in {registry.url}: {error}"
        ) from error
    if schema.kind != kind:
        raise DecodeError(f"its schema, {schema_id.id}, is {schema.kind} and not {kind}")
    return schema


def referenced(registry: Registry | None, schema: Schema) -> dict[str, str]:
    """The text of every schema that this one needs, by the name it is known under; what others need stands before them.

    Raises:
        DecodeError: the registry does not have one of them, or they are more than any schema needs.
    """
    found: dict[str, str] = {}
    opened: set[str] = set()
    waiting = [(each, False) for each in reversed(schema.references)]
    while waiting:
        reference, has_its_own = waiting.pop()
        if registry is None:
            raise DecodeError(f"its schema refers to {reference.name}, and there is no registry that has it")
        inner = registry.version(reference)
        if has_its_own:
            found.setdefault(reference.name, inner.text)
        elif reference.name not in opened:
            opened.add(reference.name)
            if len(opened) > _MAX_REFERENCES:
                raise DecodeError(f"its schema refers to more than {_MAX_REFERENCES} others")
            waiting.append((reference, True))
            waiting += [(each, False) for each in reversed(inner.references)]
    return found
