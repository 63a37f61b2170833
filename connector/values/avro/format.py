"""The format Avro: values in columns, and what columns leave, one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from pykafka_wire.columns.selection import WHOLE, Selection
from pykafka_wire.errors import DecodeError, OptionError
from pykafka_wire.values.avro.column_reader import Plan, Step, decode
from pykafka_wire.values.avro.defaults import encode_long
from pykafka_wire.values.avro.resolution import resolved
from pykafka_wire.values.avro.row_reader import reader_of
from pykafka_wire.values.avro.schema import ParsedSchema, kind_of, parse
from pykafka_wire.values.avro.types import arrow_type
from pykafka_wire.values.bulk.arrays import Flags
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.client import Registry, Schema
from pykafka_wire.values.registry.framing import Framing, SchemaId
from pykafka_wire.values.registry.schemas import WriterSchema, referenced, schema_of
from pykafka_wire.wire.records.row_segments import BytesSegment, byte_lengths, counts, join_segments

if TYPE_CHECKING:
    from pykafka_wire.values.bulk.writing import SegmentWriter

logger = logging.getLogger(__name__)

#: Places that the log names of a schema that is not read in columns alone.
_MAX_PLACES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Avro:
    """Avro values.

    Attributes:
        registry: has the schema that each value's frame names; without it, values have no frame and are all of ``reader_schema``.
        reader_schema: resolves older and newer values into one shape, with its aliases and defaults.
        writer: what values are encoded with.
    """

    has_message_indexes: ClassVar[bool] = False
    registry: Registry | None = None
    reader_schema: Schema | str | None = None
    writer: WriterSchema | None = None

    def __post_init__(self) -> None:
        if self.registry is None and self.reader_schema is None and self.writer is None:
            raise OptionError("Avro values without a registry need the schema that they were written with.")
        try:
            self._read()
        except DecodeError as error:
            raise OptionError(f"reader_schema: {error}.") from error

    @property
    def framing(self) -> Framing:
        return "none" if self.registry is None else "required"

    def column_type(self, selection: Selection = WHOLE) -> pa.DataType:
        """The type of the column that ``reader_schema`` gives; fields outside of the selection are of the type null.

        Raises:
            SchemaError: no type holds its values (:func:`~pykafka_wire.values.avro.types.arrow_type`).
        """
        read = self._read()
        assert read is not None
        return arrow_type(read, selection)

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> _Reader:
        read = None if self.reader_schema is None else _schema(self.reader_schema)
        written = read if self.registry is None or schema_id is None else schema_of(self.registry, schema_id, "AVRO")
        assert written is not None, "values without a frame need a schema"
        return _reader(self.registry, written, None if read == written else read, column_type)

    def column_writer(self, column_type: pa.DataType) -> SegmentWriter:
        from pykafka_wire.values.avro.column_writer import column_writer  # which no reader loads

        assert self.writer is not None
        return column_writer(_parsed(self.registry, self.writer.schema), column_type, self.writer.frame())

    def _read(self) -> ParsedSchema | None:
        return None if self.reader_schema is None else _parsed(self.registry, _schema(self.reader_schema))


def _schema(schema: Schema | str) -> Schema:
    return Schema(kind="AVRO", text=schema) if isinstance(schema, str) else schema


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads what was written with one schema: in columns by ``step``, one by one by ``read_whole``.

    Attributes:
        lacks_length: whether values are bytes alone, without their length: behind a frame, Confluent's serializers write the type
            bytes so, whatever its logical type (``AbstractKafkaAvroSerializer``).
    """

    step: Step
    column_type: pa.DataType
    read_whole: Callable[[bytes], Any]
    lacks_length: bool

    def read_one(self, payload: bytes) -> Any:
        return self.read_whole(encode_long(len(payload)) + payload if self.lacks_length else payload)

    def read_column(self, payloads: Payloads) -> tuple[Any, Flags]:
        return decode(_with_lengths(payloads) if self.lacks_length else payloads, self.step, self.column_type)


def _with_lengths(payloads: Payloads) -> Payloads:
    """Values of the type bytes with their lengths before them, as Avro's specification has them."""
    values = payloads.array()
    return Payloads.of(join_segments([*counts(byte_lengths(values)), BytesSegment(values)], len(values)))


@cached
def _reader(registry: Registry | None, schema: Schema, read: Schema | None, column_type: pa.DataType) -> _Reader:
    written = _parsed(registry, schema)
    reader = None if read is None else _parsed(registry, read)
    try:
        node = resolved(written, reader)
        plan = Plan(reader or written)
        step = plan.step(node, column_type)
        read_one = reader_of(node, column_type, reader or written)
    except RecursionError as error:
        raise DecodeError("its schema is nested too deep") from error
    if plan.left:
        places = ", ".join(plan.left[:_MAX_PLACES]) + (", …" if len(plan.left) > _MAX_PLACES else "")
        logger.info("Avro values that hold %s are read one by one, not in columns, as %s", places, column_type)
    lacks_length = registry is not None and kind_of(written.definition(written.root)) == "bytes"
    return _Reader(step=step, column_type=column_type, read_whole=read_one, lacks_length=lacks_length)


@cached
def _parsed(registry: Registry | None, schema: Schema) -> ParsedSchema:
    return parse(schema.text, list(referenced(registry, schema).values()))
