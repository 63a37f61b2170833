"""The format Avro: values in columns as far as that goes, else one by one by fastavro, whose failures are the value's."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pykafka_wire.errors import OptionError, PoisonError
from pykafka_wire.values.arrow_conversion import fitting
from pykafka_wire.values.avro.decode import decode_framed
from pykafka_wire.values.avro.lanes import Flags
from pykafka_wire.values.avro.plan import Plan
from pykafka_wire.values.avro.steps import Step
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
        written, _ = _parsed_avro(self.registry, schema)
        wanted = None if self.reader_schema is None else _parsed_avro(self.registry, _avro(self.reader_schema))[0]
        stream = io.BytesIO(payload)
        try:
            found = fastavro.schemaless_reader(stream, written, wanted)
        except Exception as error:  # what fastavro raises on bytes that are not what they say is its own affair
            raise PoisonError(f"it is not what its schema says ({type(error).__name__})") from error
        if left := len(payload) - stream.tell():
            raise PoisonError(f"{left} bytes are left over after what its schema describes")
        return found

    def decode_column(self, rows: Any, column_type: pa.DataType) -> tuple[Any, Flags]:
        """The values of a pa.BinaryArray as ``column_type``, and bool[n]: which rows are left to :meth:`decode`."""

        def step_of(schema_id: int) -> Step:
            return _step(self.registry, schema_id, self.reader_schema, column_type)

        return decode_framed(rows, column_type, step_of)

    def encode(self, value: Any) -> bytes:
        fastavro = library("fastavro", "Avro")
        assert self.writer is not None
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, _parsed_avro(self.registry, self.writer.schema)[0], value)
        except Exception as error:  # as above
            raise PoisonError(f"its schema cannot hold it ({type(error).__name__})") from error
        return frame(self.writer.schema_id, stream.getvalue())


def _avro(text: str) -> Schema:
    return Schema(kind="AVRO", text=text)


@cached
def _step(registry: Registry, schema_id: int, reader_schema: str | None, column_type: pa.DataType) -> Step:
    """What reads the values of a schema's id into a column."""
    schema = registry.by_id(schema_id)
    if schema.kind != "AVRO":
        raise PoisonError(f"its schema, {schema_id}, is {schema.kind} and not AVRO")
    written, named = _parsed_avro(registry, schema)
    if reader_schema is None:
        return Plan(named, {}, _constant).step(written, None, column_type)
    read, reader_named = _parsed_avro(registry, _avro(reader_schema))
    return Plan(named, reader_named, _constant).step(written, read, column_type)


def _constant(value: Any, column_type: pa.DataType) -> Any:
    return pa.array([fitting(column_type)(value)], column_type)


@cached
def _parsed_avro(registry: Registry, schema: Schema) -> tuple[Any, dict[str, Any]]:
    """The schema as fastavro has it, and all types that it names."""
    fastavro = library("fastavro", "Avro")
    named: dict[str, Any] = {}
    parsed: Any = None
    try:
        for text in [*referenced(registry, schema).values(), schema.text]:
            parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise PoisonError(f"its schema cannot be parsed ({type(error).__name__}: {error})") from error
    return parsed, named
