"""The formats JSON and JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from pykafka_wire.errors import ENVIRONMENT_ERRORS, ConnectorError, DecodeError
from pykafka_wire.values.bulk.reading import OneByOne, PayloadReader
from pykafka_wire.values.json.column_reader import EnvelopeMode, document_reader
from pykafka_wire.values.json.documents import schema_documents
from pykafka_wire.values.json.input_limits import document_conversion
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.framing import Framing, SchemaId
from pykafka_wire.values.registry.registered_schema import Schema
from pykafka_wire.values.registry.schemas import WriterSchema, applied_rules, behind_rules, schema_of
from pykafka_wire.values.single_json.encodings import UNKNOWN, Encodings
from pykafka_wire.values.single_json.text import json_text, parse_json

if TYPE_CHECKING:
    from pykafka_wire.values.json.column_writer import DocumentWriter

#: Quotients with more digits than this do not occur in practice; they count as broken.
_REMAINDERS: Final = Context(prec=2_000, traps=[])


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    """Values that are JSON; a frame of Confluent's serializer before it is skipped.

    Attributes:
        registry: has the schemas that frames name, whose rules are looked at; None: no frame is looked at.
        encodings: what numbers mean under times, and texts under decimals.
        envelope: what to do with documents in the envelope of Kafka Connect's converter.
        schemas: the schemas of envelopes whose payloads have fields of their own.
    """

    has_message_indexes: ClassVar[bool] = False
    registry: Registry | None = None
    encodings: Encodings = UNKNOWN
    envelope: EnvelopeMode = "keep"
    schemas: tuple[str | None, ...] = ()

    @property
    def framing(self) -> Framing:
        return "optional" if self.registry is None else "known glue" if self.registry.is_glue else "known"

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> PayloadReader:
        reader = document_reader(column_type, self.encodings, self.envelope, self.schemas)
        if self.registry is None or schema_id is None:
            return reader
        schema = schema_of(self.registry, schema_id, "JSON", applied=applied_rules(self.registry, "JSON"))
        return behind_rules(self.registry, schema_id, schema, reader)

    def column_writer(self, column_type: pa.DataType) -> DocumentWriter:
        from pykafka_wire.values.json.column_writer import DocumentWriter  # which no reader loads

        return DocumentWriter(column_type)

    def encode(self, value: Any) -> bytes:
        return json_text(value).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """Values that follow a JSON Schema."""

    has_message_indexes: ClassVar[bool] = False
    registry: Registry
    writer: WriterSchema | None = None

    @property
    def framing(self) -> Framing:
        return self.registry.framing

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> OneByOne:
        assert schema_id is not None
        schema = schema_of(self.registry, schema_id, "JSON")
        convert = document_conversion(column_type)

        def read(payload: bytes) -> Any:
            value = parse_json(payload)
            _validate(self.registry, schema, value)
            return convert(value, len(payload))

        return OneByOne(column_type, read)

    def encode(self, value: Any) -> bytes:
        assert self.writer is not None
        text = json_text(value)
        _validate(self.registry, self.writer.schema, parse_json(text))
        return self.writer.frame() + text.encode()


def _validate(registry: Registry, schema: Schema, value: Any) -> None:
    validator = _validator(registry, schema)
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except (ConnectorError, DecodeError, *ENVIRONMENT_ERRORS):
        raise
    except Exception as broken:  # a reference that is missing, an invalid pattern
        raise DecodeError(f"its schema cannot be applied ({type(broken).__name__}: {str(broken)[:200]})") from broken
    if error is not None:
        raise DecodeError(
            f"the schema's rule {'/'.join(map(str, error.absolute_schema_path))} is broken at {error.json_path}"
        )


@cached
def _validator(registry: Registry, schema: Schema) -> Any:
    document, known = schema_documents(registry, schema)
    from jsonschema import Draft7Validator
    from jsonschema.validators import extend, validator_for

    try:
        cls = validator_for(document, default=Draft7Validator)  # Confluent's own, where a schema names no draft
        types = cls.TYPE_CHECKER.redefine("integer", lambda _, value: _is_integer(value))
        return extend(cls, {"multipleOf": _multiple_of, "uniqueItems": _unique_items}, type_checker=types)(
            document, registry=known
        )
    except ENVIRONMENT_ERRORS:
        raise
    except Exception as error:  # a schema that is not one
        raise DecodeError(f"its schema is not valid ({type(error).__name__})") from error


def _is_integer(value: Any) -> bool:
    """Return whether a value is a whole number, also 1.0, as the specification wants it."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def _multiple_of(validator: Any, factor: Any, value: Any, schema: Any) -> Any:
    """Return the rule multipleOf in decimals: 0.3 is a multiple of 0.1."""
    from jsonschema import ValidationError

    if validator.is_type(value, "number"):
        rest = _REMAINDERS.remainder(Decimal(value), Decimal(factor))
        if rest or rest.is_nan():
            yield ValidationError("not a multiple")


def _unique_items(validator: Any, is_wanted: Any, value: Any, schema: Any) -> Any:
    """Return the rule uniqueItems in time in proportion to the items; jsonschema compares each object with all others."""
    from jsonschema import ValidationError

    if is_wanted and validator.is_type(value, "array") and len({_hashable(item) for item in value}) < len(value):
        yield ValidationError("not unique")


def _hashable(value: Any) -> Any:
    """Return what is equal for values that JSON Schema calls equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return frozenset((name, _hashable(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    return (bool, value) if isinstance(value, bool) else value
