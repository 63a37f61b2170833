"""The format Avro: what fastavro is asked, and which of its failures is the value's."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

from pykafka_wire.errors import OptionError, PoisonError
from pykafka_wire.values.libraries import library
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.client import Registry, Schema
from pykafka_wire.values.registry.schemas import WriterSchema, referenced, schema_of
from pykafka_wire.values.registry.wire_format import frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Avro:
    """Avro values; ``reader_schema`` resolves older and newer ones into one shape, with its defaults."""

    registry: Registry
    reader_schema: str | None = None
    writer: WriterSchema | None = None

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
