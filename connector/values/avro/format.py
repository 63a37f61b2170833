"""The format Avro: values in columns as far as that goes, else one by one by fastavro, whose failures are the value's."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from pykafka_wire.errors import ConnectorError, OptionError, PoisonError
from pykafka_wire.values.arrow_conversion import BinaryText, conversion_to
from pykafka_wire.values.avro.column_decoder import decode
from pykafka_wire.values.avro.column_writer import ColumnWriter
from pykafka_wire.values.avro.input_limits import Bounds
from pykafka_wire.values.avro.logical_types import renamed
from pykafka_wire.values.avro.plan import Plan
from pykafka_wire.values.avro.scalar_steps import Step
from pykafka_wire.values.avro.schema import parse
from pykafka_wire.values.avro.types import arrow_type
from pykafka_wire.values.optional_libraries import library
from pykafka_wire.values.payloads import Flags, Payloads
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.client import Registry, Schema
from pykafka_wire.values.registry.framing import Framing, SchemaId
from pykafka_wire.values.registry.schemas import WriterSchema, referenced, schema_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """A schema as fastavro parses it.

    Attributes:
        named: all types that it names.
        by_row: the same with logical types of our own, for fastavro to read and write values with.
        check: raises PoisonError for bytes that fastavro must not read; None where it may read any.
    """

    schema: Any
    named: dict[str, Any]
    by_row: Any
    check: Callable[[bytes], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Avro:
    """Avro values; ``reader_schema`` resolves older and newer ones into one shape, with its defaults.

    Attributes:
        registry: None for values without a frame, all of them written with ``reader_schema``.
    """

    binary_text: ClassVar[BinaryText] = "utf-8"
    has_message_indexes: ClassVar[bool] = False
    registry: Registry | None
    reader_schema: str | Schema | None = None
    writer: WriterSchema | None = None

    def __post_init__(self) -> None:
        if self.reader_schema is not None:
            try:
                _parsed(self.registry, _avro(self.reader_schema))
            except PoisonError as error:
                raise OptionError(f"reader_schema: {error}.") from error

    @property
    def framing(self) -> Framing:
        return "none" if self.registry is None else "required"

    def column_type(self) -> pa.DataType:
        """The type of the reader's schema.

        Raises:
            SchemaError: no type can hold its values.
            PoisonError: it is not valid, or refers to a schema that the registry does not have.
        """
        assert self.reader_schema is not None
        schema = _avro(self.reader_schema)
        return arrow_type(parse(schema.text, tuple(referenced(self.registry, schema).values())))

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> _Reader:
        read = None if self.reader_schema is None else _avro(self.reader_schema)
        written = read if self.registry is None or schema_id is None else schema_of(self.registry, schema_id, "AVRO")
        assert written is not None, "values without a frame need a schema"
        return _reader(self.registry, written, None if read == written else read, column_type)

    def column_writer(self, column_type: pa.DataType) -> ColumnWriter:
        assert self.writer is not None
        referred = tuple(referenced(self.registry, self.writer.schema).values())
        return ColumnWriter(parse(self.writer.schema.text, referred), column_type, self.writer.frame())


def _avro(schema: str | Schema) -> Schema:
    return Schema(kind="AVRO", text=schema) if isinstance(schema, str) else schema


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads what was written with one schema: in columns by ``step``, one by one by fastavro."""

    step: Step
    column_type: pa.DataType
    written: _Parsed
    read: _Parsed | None
    convert: Callable[[Any], Any]

    def read_column(self, payloads: Payloads) -> tuple[Any, Flags]:
        return decode(payloads, self.step, self.column_type)

    def read_one(self, payload: bytes) -> Any:
        return self.convert(self._value(payload))

    def _value(self, payload: bytes) -> Any:
        fastavro = library("fastavro", "Avro")
        if self.written.check is not None:
            self.written.check(payload)
        stream = io.BytesIO(payload)
        try:
            found = fastavro.schemaless_reader(
                stream, self.written.by_row, None if self.read is None else self.read.by_row
            )
        except PoisonError:
            raise
        except Exception as error:  # fastavro names no errors for bytes that are not what they should be
            raise PoisonError(f"it is not what its schema says ({type(error).__name__})") from error
        if left := len(payload) - stream.tell():
            raise PoisonError(f"{left} bytes are left over after what its schema describes")
        return found


@cached
def _reader(
    registry: Registry | None, schema: Schema, reader_schema: Schema | None, column_type: pa.DataType
) -> _Reader:
    written = _parsed(registry, schema)
    read = None if reader_schema is None else _parsed(registry, reader_schema)
    plan = Plan(written.named, {} if read is None else read.named, _constant)
    try:
        step = plan.step(written.schema, None if read is None else read.schema, column_type)
    except (ConnectorError, PoisonError):
        raise
    except Exception as error:  # a schema that fastavro accepts and that is not valid
        raise PoisonError(f"its schema is not valid ({type(error).__name__})") from error
    convert = conversion_to(column_type, Avro.binary_text)
    return _Reader(step=step, column_type=column_type, written=written, read=read, convert=convert)


def _constant(value: Any, column_type: pa.DataType) -> Any:
    return pa.array([conversion_to(column_type, Avro.binary_text)(value)], column_type)


@cached
def _parsed(registry: Registry | None, schema: Schema) -> _Parsed:
    fastavro = library("fastavro", "Avro")
    named: dict[str, Any] = {}
    named_by_row: dict[str, Any] = {}
    parsed: Any = None
    by_row: Any = None
    try:
        for text in [*referenced(registry, schema).values(), schema.text]:
            document = json.loads(text)
            parsed = fastavro.parse_schema(document, named_schemas=named)
            by_row = fastavro.parse_schema(renamed(document), named_schemas=named_by_row)
        return _Parsed(schema=parsed, named=named, by_row=by_row, check=Bounds(by_row, named_by_row).check)
    except (ConnectorError, PoisonError):
        raise
    except Exception as error:  # a SchemaParseException, or whatever else an invalid schema makes the library raise
        reason = f": {error}" if isinstance(error, (ValueError, fastavro.schema.SchemaParseException)) else ""
        raise PoisonError(f"its schema is not valid ({type(error).__name__}{reason})") from error
