"""The format Protobuf. Registries keep .proto text, which each worker parses once (no protoc, no file, no other program).

Values are those of Protobuf's JSON mapping (https://protobuf.dev/programming-guides/json/), under the fields' own names.
They are read in columns (`column_reader`), and what resists one by one (`message_reader`), within a limit of memory
(`input_limits`).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from pykafka_wire.errors import ENVIRONMENT_ERRORS, DecodeError, RegistryError
from pykafka_wire.field_selection import WHOLE, Selection
from pykafka_wire.values.optional_libraries import library
from pykafka_wire.values.protobuf.message_reader import MessageReader, message_reader
from pykafka_wire.values.protobuf.types import arrow_type
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.framing import Framing, SchemaId, encode_message_indexes
from pykafka_wire.values.registry.registered_schema import Schema
from pykafka_wire.values.registry.schemas import WriterSchema, look_up_references, schema_of
from pykafka_wire.wire.single_varint import encode_uvarint

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from pykafka_wire.values.bulk.writing import SegmentWriter
    from pykafka_wire.values.protobuf.linker import LinkedFile

#: The name of a schema's own file; a reference under this name would not be looked at.
_ROOT: Final = "the schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protobuf:
    """Protobuf messages.

    Attributes:
        registry: None for values without a frame, which are messages of ``reader_schema``.
        reader_schema: what values are read by; without it, each by the schema it was written with.
        message: the one to read or to write, where the file has several; None: the first.
        times_are_numbers: whether durations are BIGINT, their microseconds.
    """

    has_message_indexes: ClassVar[bool] = True
    registry: Registry | None
    reader_schema: Schema | None = None
    writer: WriterSchema | None = None
    message: str | None = None
    times_are_numbers: bool = False

    @property
    def framing(self) -> Framing:
        return "none" if self.registry is None else self.registry.framing

    def column_type(self, selection: Selection = WHOLE) -> pa.DataType:
        """Return the type of the message of the reader's schema; fields outside of the selection are of the type null.

        Raises:
            OptionError: the reader's schema has no such message.
            SchemaError: no type can hold it.
            DecodeError: the schema is not valid, or refers to one that the registry does not have.
        """
        assert self.reader_schema is not None
        message = _message(self.registry, self.reader_schema, self.message_indexes())
        return arrow_type(message, selection, times_are_numbers=self.times_are_numbers)

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> MessageReader:
        if self.registry is None or schema_id is None:
            assert self.reader_schema is not None, "values without a frame need a schema"
            return _reader(self.registry, self.reader_schema, self.message_indexes(), column_type)
        schema = schema_of(self.registry, schema_id, "PROTOBUF", self.reader_schema)
        indexes = _indexes(self.registry, schema, schema_id)
        if self.reader_schema is None:
            return _reader(self.registry, schema, indexes, column_type)
        wanted = (self.reader_schema, self.message_indexes())
        if wanted == (schema, indexes):
            return _reader(self.registry, *wanted, column_type)
        return _reader_of_pair(self.registry, (schema, indexes), wanted, column_type)

    def column_writer(self, column_type: pa.DataType) -> SegmentWriter:
        from pykafka_wire.values.protobuf.column_writer import column_writer  # which no reader loads

        assert self.writer is not None
        indexes = self.message_indexes()
        descriptor = _message(self.registry, self.writer.schema, indexes)
        if self.registry is not None and self.registry.is_glue:
            named = encode_uvarint(_in_order(self.registry, self.writer.schema).index(indexes))
        else:
            named = encode_message_indexes(indexes)
        return column_writer(descriptor, column_type, self.writer.frame(named))

    def message_indexes(self) -> tuple[int, ...]:
        """Return the indexes of the message to read or write, from the outermost on.

        Raises:
            OptionError: the schema has no message of that name.
            DecodeError: the schema is not valid.
        """
        if self.message is None:
            return (0,)
        return _file(self.registry, self._schema()).message_indexes(self.message)

    def descriptor(self) -> Descriptor:
        """Return the message to read or write. Raises as :meth:`message_indexes`."""
        return _message(self.registry, self._schema(), self.message_indexes())

    def message_name(self) -> str:
        """Return the full name of the message to read or write, with its package. Raises as :meth:`message_indexes`."""
        full_name: str = self.descriptor().full_name
        return full_name

    def written_name(self, schema_id: SchemaId | None) -> str | None:
        """Return the full name of the message that a frame stands for. Raises DecodeError, and RegistryError."""
        if self.registry is None or schema_id is None:
            return self.message_name()
        schema = schema_of(self.registry, schema_id, "PROTOBUF")
        return str(_message(self.registry, schema, _indexes(self.registry, schema, schema_id)).full_name)

    def message_names(self) -> list[str]:
        """Return the full names of the messages that the schema declares, without nested ones. Raises DecodeError."""
        return _file(self.registry, self._schema()).message_names()

    def _schema(self) -> Schema:
        schema = self.reader_schema if self.writer is None else self.writer.schema
        assert schema is not None
        return schema


@cached
def _reader(
    registry: Registry | None, schema: Schema, indexes: tuple[int, ...], column_type: pa.DataType
) -> MessageReader:
    return message_reader(_message(registry, schema, indexes), column_type)


@cached
def _reader_of_pair(
    registry: Registry,
    written: tuple[Schema, tuple[int, ...]],
    wanted: tuple[Schema, tuple[int, ...]],
    column_type: pa.DataType,
) -> MessageReader:
    """Return a reader by ``wanted`` of messages that were written as ``written``; each is a schema and a message's indexes.

    Raises:
        DecodeError: they are other messages, or the reader's does not hold all values of the writer's.
    """
    from pykafka_wire.values.protobuf.resolution import merged_message

    one, other = _message(registry, *written), _message(registry, *wanted)
    if one.full_name != other.full_name:
        raise DecodeError(f"it is a message {one.full_name}, and {other.full_name} is read")
    merged = merged_message(one, other, column_type)
    if merged is None:
        return _reader(registry, *wanted, column_type)
    return message_reader(merged.descriptor, column_type, merged.rules)


def _indexes(registry: Registry, schema: Schema, schema_id: SchemaId) -> tuple[int, ...]:
    """Return the indexes of the message that a frame names. Raises DecodeError."""
    number = schema_id.message_number
    if number is None:
        return schema_id.message_indexes
    known = _in_order(registry, schema)
    message = known[number] if number < len(known) else None
    if message is None:
        raise DecodeError(f"its schema has no message with the number {number}")
    return message


@cached
def _in_order(registry: Registry, schema: Schema) -> list[tuple[int, ...] | None]:
    return _file(registry, schema).in_order()


def _message(registry: Registry | None, schema: Schema, indexes: tuple[int, ...]) -> Descriptor:
    """Return a message's class. Raises DecodeError."""
    try:
        return _file(registry, schema).message(indexes)
    except IndexError as error:
        raise DecodeError(f"its schema has no message with the indexes {indexes}") from error


@cached
def _file(registry: Registry | None, schema: Schema) -> LinkedFile:
    """Return a schema's file, in a pool of its own: two versions of a message have the same name."""
    library("google.protobuf", "Protobuf")
    from pykafka_wire.values.protobuf.linker import link

    try:
        files = {**look_up_references(registry, schema), _ROOT: schema.text}
        return link(_ROOT, {name: _descriptor(text) or text for name, text in files.items()})
    except (DecodeError, RegistryError, *ENVIRONMENT_ERRORS):
        raise
    except Exception as error:  # InvalidProtoError, and what the library raises on a descriptor that is damaged
        reason = str(error) if isinstance(error, ValueError) else type(error).__name__
        raise DecodeError(f"its schema is not valid ({reason})") from error


def _descriptor(text: str) -> bytes | None:
    """Return what confluent-kafka's Python client registers instead of text, and some registries keep: a descriptor in base64."""
    from google.protobuf import message
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    try:
        content = base64.b64decode(text, validate=True)
        FileDescriptorProto.FromString(content)
    except (ValueError, message.DecodeError):
        return None
    return content
