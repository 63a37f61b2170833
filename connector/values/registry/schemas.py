"""The schema of a value: by the id before it, with the schemas it refers to; and the schema that values are written under."""

from __future__ import annotations

from dataclasses import dataclass

from pykafka_wire.errors import OptionError, PoisonError
from pykafka_wire.values.registry.client import Registry, Schema
from pykafka_wire.values.registry.wire_format import unframe


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSchema:
    """The schema that values are written under, looked up once, where the expression was made."""

    schema_id: int
    schema: Schema

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
        except PoisonError as error:
            raise OptionError(f"subject {subject}: {error}. Give the schema to register it.") from error
        _same_kind(found, kind, f"subject {subject}")
        return cls(schema_id=schema_id, schema=found)


def _same_kind(schema: Schema, kind: str, where: str) -> None:
    if schema.kind != kind:
        raise OptionError(f"{where} is {schema.kind}, not {kind}: use the functions for {schema.kind}.")


def schema_of(registry: Registry, value: bytes, kind: str) -> tuple[Schema, bytes]:
    """The schema of a framed value, and its payload.

    Raises:
        PoisonError: no frame, no such schema, or one of another kind.
    """
    schema_id, payload = unframe(value)
    schema = registry.by_id(schema_id)
    if schema.kind != kind:
        raise PoisonError(f"its schema, {schema_id}, is {schema.kind} and not {kind}")
    return schema, payload


def referenced(registry: Registry, schema: Schema) -> dict[str, str]:
    """Every schema that this one needs, by the name it is known under; what others need stands before them."""
    found: dict[str, str] = {}
    for reference in schema.references:
        if reference.name not in found:
            inner = registry.version(reference)
            found |= referenced(registry, inner)
            found[reference.name] = inner.text
    return found
