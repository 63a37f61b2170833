"""Which schema is a typed column written with: the one in the options, the newest of its subject, or the column's own, registered.

Owns the choice, which is the driver's, and what a process remembers of it: Spark builds a writer for every micro-batch. The tasks
get what writes the columns, as :class:`~pykafka_wire.sink.encoding.Encoding`.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.columns.value_formats import SCHEMA_KINDS
from pykafka_wire.errors import DecodeError, OptionError, RegistryError, SchemaError
from pykafka_wire.options.sink import SinkOptions
from pykafka_wire.options.typed_columns import TypedColumn
from pykafka_wire.sink.encoding import Encoding
from pykafka_wire.values.avro import types as avro
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.bulk.writing import ColumnWriter
from pykafka_wire.values.converter import Format, column_writer
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.protobuf import types as protobuf
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.registered_schema import RegistryId, Schema
from pykafka_wire.values.registry.schemas import WriterSchema, applied_rules, refuse_rules, subject_of
from pykafka_wire.values.registry.settings import registry_of
from pykafka_wire.values.single_json.variant_type import holds_variant

_log = logging.getLogger(__name__)

#: How long a process writes with the schema that it has looked up, before it asks for a newer one.
_FRESH_S: Final = 300
_AUTO_REGISTER: Final = "schema.registry.auto.register"


def look_up_encoding(options: SinkOptions, schema: StructType) -> Encoding:
    """Return what writes the typed columns of ``schema``; asks the schema registry, if there is one.

    A process that has looked it up before, for the same column, asks again after five minutes, and keeps what it has if the
    registry does not respond.

    Raises:
        OptionError: a schema is not valid, of another format, or cannot be named.
        SchemaError: a column does not fit its schema, or its subject has none.
        RegistryError: the registry does not respond, or refuses the schema.
    """
    typed = options.typed
    registry = registry_of(typed.registry_options)
    writers: dict[str, ColumnWriter] = {}
    for column in typed.typed:
        if column.format == "string":  # bytes already, as the check of the columns' types has seen
            continue
        if column.name not in schema.names:
            raise SchemaError(
                f"{column.option('Format')} is {column.format}, and the rows have no column {column.name!r}: name the column, or "
                f"remove {column.option('Format')}."
            )
        column_type = arrow_schema(StructType([schema[column.name]])).field(0).type
        if holds_variant(column_type):
            raise SchemaError(
                f"the column {column.name} is, or holds, a VARIANT, which {column.format} does not have: write its text, as in "
                f"to_json(v) with {column.option('Format')}=string, or cast its parts."
            )
        wanted = WantedSchema(
            column=column,
            type=column_type,
            registry=None if registry is None else registry.for_subject(column.subject),
            topic=options.topic,
            auto_register=typed.auto_register,
        )
        writers[column.name] = _known(os.getpid(), wanted).writer()
    return Encoding(writers)


@lru_cache(maxsize=100)
def _known(pid: int, wanted: WantedSchema) -> _Known:
    """Return what this process knows of a column: one for the same arguments."""
    return _Known(wanted)


class _Known:
    """The writer of a column, looked up when it is asked for first, and again when it is old."""

    def __init__(self, wanted: WantedSchema) -> None:
        self._wanted = wanted
        self._writer: ColumnWriter | None = None
        self._old_at = 0.0

    def writer(self) -> ColumnWriter:
        wanted = self._wanted
        if self._writer is None or (wanted.registry is not None and time.monotonic() > self._old_at):
            try:
                self._writer = wanted.look_up()
            except RegistryError as error:
                if self._writer is None:
                    raise
                _log.warning(
                    "The schema of the column %s could not be looked up again; the known schema is used: %s",
                    wanted.column.name,
                    error,
                )
            self._old_at = time.monotonic() + _FRESH_S
        return self._writer


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSchema:
    """What is known of the schema of ``key`` or ``value`` before it is looked up.

    Attributes:
        type: of the column, pyarrow's.
        topic: the option's; None where a column names each row's.
        auto_register: register a schema that the subject does not have.
    """

    column: TypedColumn
    type: pa.DataType
    registry: Registry | None
    topic: str | None
    auto_register: bool

    def look_up(self) -> ColumnWriter:
        """Return what writes the column; asks the registry, if there is one. Raises as :func:`look_up_encoding`."""
        column = self.column
        try:
            if column.format == "json":
                self._refuse_rules_of_json()
                return column_writer(Json(), self.type)
            if self.registry is None:
                assert column.schema is not None, "the options were checked"
                return self._writer(WriterSchema(schema_id=None, schema=self._schema(column.schema)))
            return self._of_subject(self.subject() if column.subject is None else column.subject)
        except DecodeError as error:
            raise OptionError(f"the schema of the column {column.name} cannot be used: {error}.") from error

    def subject(self) -> str:
        """Return the subject by the strategy in the options.

        Raises:
            OptionError: it cannot be named: the topic or the record is unknown, or the strategy.
            DecodeError: the given schema is not valid.
        """
        record = self._record_name()
        subject = subject_of(
            self.column.subject_strategy, self.topic or "", self.column.name, record_name=record, registry=self.registry
        )
        if self.topic is None and subject != record:
            raise OptionError(
                "the topic comes from a column, and a subject cannot be named after it before any row is seen: set "
                f"{self.column.name}Subject, or the option topic."
            )
        return subject

    def _of_subject(self, subject: str) -> ColumnWriter:
        """Return a writer of framed values.

        Raises:
            OptionError: the subject does not have the schema that is given, or is of another format.
            SchemaError: the column does not fit the schema, or the subject has none.
            DecodeError: the schema is not valid.
            RegistryError: the registry does not respond, or refuses a schema.
        """
        assert self.registry is not None
        if self.column.schema is not None:
            return self._look_up(subject, self._schema(self.column.schema))
        try:
            schema_id, newest = RegistryClient(self.registry).latest(subject)
        except DecodeError as error:
            derived = self._derive()
            if not self.auto_register:
                raise SchemaError(
                    f"subject {subject}: {error}. Register a schema, or set {_AUTO_REGISTER}=true to register the one of the "
                    f"column: {derived}"
                ) from error
            return self._register(subject, self._schema(derived))
        if newest.kind != SCHEMA_KINDS[self.column.format]:
            raise OptionError(
                f"subject {subject} is {newest.kind}, and {self.column.name}Format is {self.column.format}: set that format, or "
                f"name another subject in {self.column.name}Subject."
            )
        refuse_rules(subject, newest, self._applied())
        try:
            return self._frame(subject, WriterSchema(schema_id=schema_id, schema=newest), newest)
        except SchemaError as error:
            if self.auto_register and (wider := self._with_new_fields(newest)) is not None:
                return self._register(subject, wider)
            raise SchemaError(
                f"{error.message.removesuffix('.')}. This is the newest schema of subject {subject}, with the id {schema_id}; "
                f"{_AUTO_REGISTER}=true adds fields that only the column has, and changes nothing else."
            ) from error

    def _schema(self, text: str) -> Schema:
        return Schema(kind=SCHEMA_KINDS[self.column.format], text=text)

    def _applied(self) -> Collection[str]:
        """Return the types of rules that are applied to what is written."""
        return () if self.registry is None else applied_rules(self.registry, SCHEMA_KINDS[self.column.format])

    def _frame(self, subject: str, schema: WriterSchema, registered: Schema) -> ColumnWriter:
        """Return a writer under a schema that the registry has, which applies its rules, if any."""
        writer = self._writer(schema)
        if registered.rule("WRITE", "WRITEREAD") is None:
            return writer
        from pykafka_wire.values.registry.rules import WriterByRules  # which few subjects need

        assert self.registry is not None and isinstance(schema.schema_id, int), "AWS Glue has no rules"
        return WriterByRules(writer, self.registry, subject, schema.schema_id, registered)

    def _refuse_rules_of_json(self) -> None:
        """Raise SchemaError where the topic's subject has rules for what is written, though JSON is written without a frame."""
        if self.registry is None or self.registry.is_glue or self.topic is None:
            return
        subject = subject_of("TopicNameStrategy", self.topic, self.column.name)
        try:
            _, newest = RegistryClient(self.registry).latest(subject)
        except DecodeError:  # no such subject
            return
        refuse_rules(subject, newest)

    def _look_up(self, subject: str, schema: Schema) -> ColumnWriter:
        """Return a writer of the given schema, with its id under the subject."""
        assert self.registry is not None
        if self.auto_register:
            return self._register(subject, schema)
        try:
            schema_id = RegistryClient(self.registry).lookup(subject, schema)
        except DecodeError as error:
            raise OptionError(
                f"subject {subject} does not have the schema of {self.column.name}Schema ({error}): register it, set "
                f"{_AUTO_REGISTER}=true, or remove {self.column.name}Schema to write with the newest one."
            ) from error
        return self._by_id(subject, schema_id, schema)

    def _by_id(self, subject: str, schema_id: RegistryId, schema: Schema) -> ColumnWriter:
        assert self.registry is not None
        registered = RegistryClient(self.registry).by_id(schema_id)
        refuse_rules(subject, registered, self._applied())
        return self._frame(subject, WriterSchema(schema_id=schema_id, schema=schema), registered)

    def _register(self, subject: str, schema: Schema) -> ColumnWriter:
        assert self.registry is not None
        try:
            schema_id = RegistryClient(self.registry).register(subject, schema)
        except RegistryError as error:
            raise RegistryError(
                f"the schema of the column {self.column.name} could not be registered under {subject}: {error.message} "
                f"The schema is {schema.text}"
            ) from error
        # Confluent's registry gives a new version the rules of the one before.
        return self._by_id(subject, schema_id, schema)

    def _derive(self) -> str:
        """Return the schema that the column itself has."""
        return avro.derived_schema(self.type) if self.column.format == "avro" else protobuf.derived_schema(self.type)

    def _with_new_fields(self, newest: Schema) -> Schema | None:
        """Return the newest schema with fields that only the column has; None if it has none, or does not fit even so."""
        if self.column.format != "avro":
            return None
        wider = replace(newest, text=avro.with_new_fields(newest.text, self.type))
        try:
            self._writer(WriterSchema(schema_id=None, schema=wider))
        except SchemaError:
            return None
        return wider

    def _record_name(self) -> str | None:
        """Return the full name of the record or message of the given schema."""
        if self.column.schema is None:
            return None
        if self.column.format == "avro":
            return _record_name(self.column.schema)
        return self._protobuf(WriterSchema(schema_id=None, schema=self._schema(self.column.schema))).message_name()

    def _writer(self, schema: WriterSchema) -> ColumnWriter:
        value_format: Format = self._protobuf(schema)
        if self.column.format == "avro":
            value_format = Avro(registry=self.registry, writer=schema)
        return column_writer(value_format, self.type)

    def _protobuf(self, schema: WriterSchema) -> Protobuf:
        return Protobuf(registry=self.registry, writer=schema, message=self.column.message)


def _record_name(schema: str) -> str | None:
    """Return the full name of an Avro schema's outermost record."""
    try:
        document = json.loads(schema)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        return None
    name, namespace = document["name"], document.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name
