"""The format Avro: values in columns, and what columns leave, one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from pykafka_wire.errors import DecodeError, OptionError
from pykafka_wire.field_selection import WHOLE, Selection
from pykafka_wire.values.avro.column_reader import AvroReadPlan, TypeReader, decode
from pykafka_wire.values.avro.defaults import encode_long
from pykafka_wire.values.avro.resolution import resolve_schemas
from pykafka_wire.values.avro.row_reader import reader_of
from pykafka_wire.values.avro.schema import ParsedSchema, kind_of, parse
from pykafka_wire.values.avro.types import FROM_AVRO, TypeRules, arrow_type
from pykafka_wire.values.bulk.arrays import Flags
from pykafka_wire.values.bulk.reading import PayloadReader, Payloads
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.framing import Framing, SchemaId
from pykafka_wire.values.registry.registered_schema import Schema
from pykafka_wire.values.registry.schemas import (
    WriterSchema,
    applied_rules,
    behind_rules,
    look_up_references,
    schema_of,
)
from pykafka_wire.wire.arrow.row_segments import BytesSegment, byte_lengths, counts, join_segments

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
        record: the full name of the type of ``reader_schema`` that values are read as; None: the schema itself.
        writer: what values are encoded with.
        rules: what is chosen of the types.
    """

    has_message_indexes: ClassVar[bool] = False
    registry: Registry | None = None
    reader_schema: Schema | str | None = None
    writer: WriterSchema | None = None
    record: str | None = None
    rules: TypeRules = FROM_AVRO

    def __post_init__(self) -> None:
        if self.registry is None and self.reader_schema is None and self.writer is None:
            raise OptionError("Avro values without a registry need the schema that they were written with.")
        try:
            self._read()
        except DecodeError as error:
            raise OptionError(f"reader_schema: {error}.") from error

    @property
    def framing(self) -> Framing:
        return "none" if self.registry is None else self.registry.framing

    def column_type(self, selection: Selection = WHOLE) -> pa.DataType:
        """Return the type of the column that ``reader_schema`` gives; fields outside of the selection are of the type null.

        Raises:
            SchemaError: no type holds its values (:func:`~pykafka_wire.values.avro.types.arrow_type`).
        """
        read = self._read()
        assert read is not None
        return arrow_type(read, selection, self.rules)

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> PayloadReader:
        read = None if self.reader_schema is None else _schema(self.reader_schema)
        if self.registry is None or schema_id is None:
            written = read
        else:
            # Rules are for the whole value, not for a branch of it.
            applied = () if schema_id.message_indexes else applied_rules(self.registry, "AVRO")
            written = schema_of(self.registry, schema_id, "AVRO", read, applied=applied)
        assert written is not None, "values without a frame need a schema"
        branch = schema_id.message_indexes if schema_id is not None else ()
        is_same = read == written and not branch and self.record is None
        schemas = (self.registry, written, branch, None if is_same else read, self.record)
        reader = _reader(*schemas, column_type, self.rules.connect)
        if self.registry is None or schema_id is None:
            return reader
        return behind_rules(self.registry, schema_id, written, reader)

    def written_name(self, schema_id: SchemaId | None) -> str | None:
        """Return the full name of the record, enum or fixed that a frame stands for. Raises DecodeError, and RegistryError."""
        written = self._written(schema_id)
        root = written.definition(written.root)
        return root.get("name") if isinstance(root, dict) else None

    def is_null(self, schema_id: SchemaId | None) -> bool:
        """Return whether all values under a frame are Avro's null. Raises as :meth:`written_name`."""
        written = self._written(schema_id)
        return kind_of(written.definition(written.root)) == "null"

    def n_branches(self, schema_id: SchemaId | None) -> int | None:
        """Return the branches of the union that a frame stands for; None if its schema is none. Raises as :meth:`written_name`."""
        root = self._written(schema_id).root
        return len(root) if isinstance(root, list) else None

    def record_names(self) -> list[str]:
        """Return the full names of the types that ``reader_schema`` has, if it is a union of them, or one. Raises DecodeError."""
        read = self._read()
        assert read is not None
        branches = [read.definition(branch) for branch in (read.root if isinstance(read.root, list) else [read.root])]
        return [branch["name"] for branch in branches if isinstance(branch, dict) and "name" in branch]

    def _written(self, schema_id: SchemaId | None) -> ParsedSchema:
        if self.registry is None or schema_id is None:
            assert self.reader_schema is not None, "values without a frame need a schema"
            schema = _schema(self.reader_schema)
        else:
            schema = schema_of(self.registry, schema_id, "AVRO")
        return _branch(_parse_schema(self.registry, schema), () if schema_id is None else schema_id.message_indexes)

    def column_writer(self, column_type: pa.DataType) -> SegmentWriter:
        from pykafka_wire.values.avro.column_writer import column_writer  # which no reader loads

        assert self.writer is not None
        is_glue = self.registry is not None and self.registry.is_glue
        written = _parse_schema(self.registry, self.writer.schema)
        return column_writer(written, column_type, self.writer.frame(), has_lengths=is_glue)

    def _read(self) -> ParsedSchema | None:
        if self.reader_schema is None:
            return None
        return _record(_parse_schema(self.registry, _schema(self.reader_schema), self.rules.connect), self.record)


def _branch(schema: ParsedSchema, branch: tuple[int, ...]) -> ParsedSchema:
    """Return the schema of a branch of a union, ``(its number,)``; the schema itself for ``()``."""
    return replace(schema, root=schema.root[branch[0]]) if branch else schema


def _record(schema: ParsedSchema, name: str | None) -> ParsedSchema:
    """Return the schema of a type that a schema names. Raises DecodeError if it does not."""
    if name is None:
        return schema
    if name not in schema.named:
        raise DecodeError(f"it has no type {name} (there are {', '.join(schema.named) or 'none'})")
    return replace(schema, root=name)


def _schema(schema: Schema | str) -> Schema:
    return Schema(kind="AVRO", text=schema) if isinstance(schema, str) else schema


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads what was written with one schema: in columns by ``type_reader``, one by one by ``read_whole``.

    Attributes:
        lacks_length: whether values are bytes alone, without their length: behind their frame, Confluent's serializers write the
            type bytes so, whatever its logical type (``AbstractKafkaAvroSerializer``).
    """

    type_reader: TypeReader
    column_type: pa.DataType
    read_whole: Callable[[bytes], Any]
    lacks_length: bool

    def read_one(self, payload: bytes) -> Any:
        return self.read_whole(encode_long(len(payload)) + payload if self.lacks_length else payload)

    def read_column(self, payloads: Payloads) -> tuple[pa.Array, Flags]:
        return decode(_with_lengths(payloads) if self.lacks_length else payloads, self.type_reader, self.column_type)


def _with_lengths(payloads: Payloads) -> Payloads:
    """Return values of the type bytes with their lengths before them, as Avro's specification has them."""
    values = payloads.array()
    return Payloads.of(join_segments([*counts(byte_lengths(values)), BytesSegment(values)], len(values)))


@cached
def _reader(
    registry: Registry | None,
    schema: Schema,
    branch: tuple[int, ...],
    read: Schema | None,
    record: str | None,
    column_type: pa.DataType,
    has_connect_types: bool = False,
) -> _Reader:
    written = _branch(_parse_schema(registry, schema, has_connect_types), branch)
    reader = None if read is None else _record(_parse_schema(registry, read, has_connect_types), record)
    try:
        node = resolve_schemas(written, reader)
        plan = AvroReadPlan(reader or written)
        type_reader = plan.type_reader(node, column_type)
        read_one = reader_of(node, column_type, reader or written)
    except RecursionError as error:
        raise DecodeError("its schema is nested too deep") from error
    if plan.left:
        places = ", ".join(plan.left[:_MAX_PLACES]) + (", …" if len(plan.left) > _MAX_PLACES else "")
        logger.info("Avro values that hold %s are read one by one, not in columns, as %s", places, column_type)
    lacks_length = (
        registry is not None and not registry.is_glue and kind_of(written.definition(written.root)) == "bytes"
    )
    return _Reader(type_reader=type_reader, column_type=column_type, read_whole=read_one, lacks_length=lacks_length)


@cached
def _parse_schema(registry: Registry | None, schema: Schema, has_connect_types: bool = False) -> ParsedSchema:
    return parse(schema.text, list(look_up_references(registry, schema).values()), has_connect_types=has_connect_types)
