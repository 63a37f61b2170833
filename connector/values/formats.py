"""JSON, and JSON Schema and Avro in Confluent's framing: bytes to Python objects and back.

Owns what each library is asked, and which of its failures is the value's. Parsed schemas are cached by process, as the
registry's texts are. Protobuf, which is compiled, is :mod:`~pykafka_wire.values.protobuf`'s.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

from pykafka_wire.errors import OptionError, PoisonError
from pykafka_wire.values.caching import cached
from pykafka_wire.values.json_values import json_text
from pykafka_wire.values.libraries import library
from pykafka_wire.values.registry import Registry, Schema
from pykafka_wire.values.wire_format import frame, unframe


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The schema that values are written under, looked up once, where the expression was made."""

    schema_id: int
    schema: Schema

    @classmethod
    def of(cls, registry: Registry, kind: str, subject: str, schema: Schema | str | None) -> Writer:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    """Values that are JSON and nothing else."""

    def decode(self, value: bytes) -> Any:
        return _parsed_json(value)

    def encode(self, value: Any) -> bytes:
        return json_text(value).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """Values that hold to a JSON Schema."""

    registry: Registry
    writer: Writer | None = None

    def decode(self, value: bytes) -> Any:
        schema, payload = schema_of(self.registry, value, "JSON")
        found = _parsed_json(payload)
        _hold(self.registry, schema, found)
        return found

    def encode(self, value: Any) -> bytes:
        assert self.writer is not None
        text = json_text(value)
        _hold(self.registry, self.writer.schema, json.loads(text))
        return frame(self.writer.schema_id, text.encode())


def _parsed_json(value: bytes) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        # Not the error's own text, which may hold the value's.
        place = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise PoisonError(f"it is no JSON{place}") from error


def _hold(registry: Registry, schema: Schema, value: Any) -> None:
    validator = _validator(registry, schema)
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except Exception as broken:  # a reference that the registry does not have with it, a pattern that is none
        raise PoisonError(f"its schema cannot be applied ({broken})") from broken
    if error is not None:
        raise PoisonError(
            f"the schema's rule {'/'.join(map(str, error.absolute_schema_path))} is broken at {error.json_path}"
        )


@cached
def _validator(registry: Registry, schema: Schema) -> Any:
    library("jsonschema", "JSON Schema")
    from jsonschema.validators import validator_for
    from referencing import Registry as References
    from referencing import Resource
    from referencing.jsonschema import DRAFT7

    # An explicit set of references: without one the validator would fetch URLs that a schema names.
    known: Any = References()
    for name, text in referenced(registry, schema).items():
        known = known.with_resource(name, Resource.from_contents(json.loads(text), default_specification=DRAFT7))
    document = json.loads(schema.text)
    return validator_for(document)(document, registry=known)


def referenced(registry: Registry, schema: Schema) -> dict[str, str]:
    """Every schema that this one needs, by the name it is known under; what others need stands before them."""
    found: dict[str, str] = {}
    for reference in schema.references:
        if reference.name not in found:
            inner = registry.version(reference)
            found |= referenced(registry, inner)
            found[reference.name] = inner.text
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Avro:
    """Avro values; ``reader_schema`` resolves older and newer ones into one shape, with its defaults."""

    registry: Registry
    reader_schema: str | None = None
    writer: Writer | None = None

    def __post_init__(self) -> None:
        if self.reader_schema is not None:
            try:
                _parsed_avro(self.registry, _avro(self.reader_schema))
            except PoisonError as error:
                raise OptionError(f"reader_schema: {error}.") from error

    def decode(self, value: bytes) -> Any:
        fastavro = library("fastavro", "Avro")
        schema, payload = schema_of(self.registry, value, "AVRO")
        written = _parsed_avro(self.registry, schema)
        wanted = None if self.reader_schema is None else _parsed_avro(self.registry, _avro(self.reader_schema))
        stream = io.BytesIO(payload)
        try:
            found = fastavro.schemaless_reader(stream, written, wanted)
        except Exception as error:  # what fastavro raises on bytes that are not what they say is its own affair
            raise PoisonError(f"it is not what its schema says ({type(error).__name__})") from error
        if left := len(payload) - stream.tell():
            raise PoisonError(f"{left} bytes are left over after what its schema describes")
        return found

    def encode(self, value: Any) -> bytes:
        fastavro = library("fastavro", "Avro")
        assert self.writer is not None
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, _parsed_avro(self.registry, self.writer.schema), value)
        except Exception as error:  # as above
            raise PoisonError(f"its schema cannot hold it ({type(error).__name__})") from error
        return frame(self.writer.schema_id, stream.getvalue())


def _avro(text: str) -> Schema:
    return Schema(kind="AVRO", text=text)


@cached
def _parsed_avro(registry: Registry, schema: Schema) -> Any:
    fastavro = library("fastavro", "Avro")
    named: dict[str, Any] = {}
    parsed: Any = None
    try:
        for text in [*referenced(registry, schema).values(), schema.text]:
            parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise PoisonError(f"its schema cannot be parsed ({type(error).__name__}: {error})") from error
    return parsed
