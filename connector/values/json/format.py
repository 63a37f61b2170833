"""The formats JSON and JSON Schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pykafka_wire.errors import PoisonError
from pykafka_wire.values.json.reading import parse_json
from pykafka_wire.values.json.writing import json_text
from pykafka_wire.values.libraries import library
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.client import Registry, Schema
from pykafka_wire.values.registry.schemas import WriterSchema, referenced, schema_of
from pykafka_wire.values.registry.wire_format import frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    """Values that are JSON and nothing else."""

    def decode(self, value: bytes) -> Any:
        return parse_json(value)

    def encode(self, value: Any) -> bytes:
        return json_text(value).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """Values that hold to a JSON Schema."""

    registry: Registry
    writer: WriterSchema | None = None

    def decode(self, value: bytes) -> Any:
        schema, payload = schema_of(self.registry, value, "JSON")
        found = parse_json(payload)
        _hold(self.registry, schema, found)
        return found

    def encode(self, value: Any) -> bytes:
        assert self.writer is not None
        text = json_text(value)
        _hold(self.registry, self.writer.schema, json.loads(text))
        return frame(self.writer.schema_id, text.encode())


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
