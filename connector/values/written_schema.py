"""The schema that a column is written with: given, a subject's newest, or derived from the column and registered.

Owns this choice and its errors. Knows Confluent's names for subjects, and neither Spark nor brokers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from pykafka_wire.errors import DecodeError, OptionError, RegistryError, SchemaError
from pykafka_wire.values.avro import derived as avro
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.bulk.writing import ColumnWriter
from pykafka_wire.values.converter import Format, column_writer
from pykafka_wire.values.protobuf import derived as protobuf
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.client import Registry, Schema
from pykafka_wire.values.registry.schemas import WriterSchema
from pykafka_wire.values.registry.subjects import subject_of

_KINDS: Final = {"avro": "AVRO", "protobuf": "PROTOBUF"}
_AUTO_REGISTER: Final = "schema.registry.auto.register"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSchema:
    """What is known of the schema of ``key`` or ``value`` before it is looked up.

    Attributes:
        text: the schema itself; None: the subject's newest.
        message: the name of a Protobuf message; None: the schema's first.
        auto_register: register a schema that the subject does not have.
    """

    column: Literal["key", "value"]
    format: str
    text: str | None
    message: str | None
    registry: Registry | None
    auto_register: bool

    def subject(self, strategy: str, topic: str | None) -> str:
        """The subject by one of Confluent's strategies.

        Raises:
            OptionError: it cannot be named: the topic or the record is unknown, or the strategy.
            DecodeError: the given schema is not valid.
        """
        record = self._record_name()
        subject = subject_of(strategy, topic or "", self.column, record_name=record)
        if topic is None and subject != record:
            raise OptionError(
                "the topic comes from a column, and a subject cannot be named after it before any row is seen: set "
                f"{self.column}Subject, or the option topic."
            )
        return subject

    def without_registry(self, column_type: pa.DataType) -> ColumnWriter:
        """A writer of plain values of the schema that is given. Raises as :meth:`of_subject`."""
        assert self.text is not None
        return self._writer(WriterSchema(schema_id=None, schema=self._schema(self.text)), column_type)

    def of_subject(self, subject: str, column_type: pa.DataType) -> ColumnWriter:
        """A writer of framed values.

        Raises:
            OptionError: the subject does not have the schema that is given, or is of another format.
            SchemaError: the column does not fit the schema, or the subject has none.
            DecodeError: the schema is not valid.
            RegistryError: the registry does not answer, or refuses a schema.
        """
        assert self.registry is not None
        if self.text is not None:
            return self._writer(self._found(subject, self._schema(self.text)), column_type)
        try:
            schema_id, newest = self.registry.latest(subject)
        except DecodeError as error:
            derived = self._derived(column_type)
            if not self.auto_register:
                raise SchemaError(
                    f"subject {subject}: {error}. Register a schema, or set {_AUTO_REGISTER}=true to register the one of the "
                    f"column: {derived}"
                ) from error
            return self._writer(self._registered(subject, self._schema(derived)), column_type)
        if newest.kind != _KINDS[self.format]:
            raise OptionError(
                f"subject {subject} is {newest.kind}, and {self.column}Format is {self.format}: set that format, or name another "
                f"subject in {self.column}Subject."
            )
        try:
            return self._writer(WriterSchema(schema_id=schema_id, schema=newest), column_type)
        except SchemaError as error:
            if self.auto_register and (wider := self._with_new_fields(newest, column_type)) is not None:
                return self._writer(self._registered(subject, wider), column_type)
            raise SchemaError(
                f"{error.message.removesuffix('.')}. This is the newest schema of subject {subject}, with the id {schema_id}; "
                f"{_AUTO_REGISTER}=true adds fields that only the column has, and changes nothing else."
            ) from error

    def _schema(self, text: str) -> Schema:
        return Schema(kind=_KINDS[self.format], text=text)

    def _found(self, subject: str, schema: Schema) -> WriterSchema:
        """The given schema with its id under the subject."""
        assert self.registry is not None
        if self.auto_register:
            return self._registered(subject, schema)
        try:
            return WriterSchema(schema_id=self.registry.lookup(subject, schema), schema=schema)
        except DecodeError as error:
            raise OptionError(
                f"subject {subject} does not have the schema of {self.column}Schema ({error}): register it, set "
                f"{_AUTO_REGISTER}=true, or remove {self.column}Schema to write with the newest one."
            ) from error

    def _registered(self, subject: str, schema: Schema) -> WriterSchema:
        assert self.registry is not None
        try:
            return WriterSchema(schema_id=self.registry.register(subject, schema), schema=schema)
        except RegistryError as error:
            raise RegistryError(
                f"the schema of the column {self.column} could not be registered under {subject}: {error.message} "
                f"The schema is {schema.text}"
            ) from error

    def _derived(self, column_type: pa.DataType) -> str:
        """The schema that the column itself has."""
        return avro.derived_schema(column_type) if self.format == "avro" else protobuf.derived_schema(column_type)

    def _with_new_fields(self, newest: Schema, column_type: pa.DataType) -> Schema | None:
        """The newest schema with fields that only the column has; None if it has none, or does not fit even so."""
        if self.format != "avro":
            return None
        wider = replace(newest, text=avro.with_new_fields(newest.text, column_type))
        try:
            self._writer(WriterSchema(schema_id=None, schema=wider), column_type)
        except SchemaError:
            return None
        return wider

    def _record_name(self) -> str | None:
        """The full name of the record or message of the given schema."""
        if self.text is None:
            return None
        if self.format == "avro":
            return _record_name(self.text)
        return self._protobuf(WriterSchema(schema_id=None, schema=self._schema(self.text))).message_name()

    def _writer(self, schema: WriterSchema, column_type: pa.DataType) -> ColumnWriter:
        value_format: Format = self._protobuf(schema)
        if self.format == "avro":
            value_format = Avro(registry=self.registry, writer=schema)
        return column_writer(value_format, column_type)

    def _protobuf(self, schema: WriterSchema) -> Protobuf:
        return Protobuf(registry=self.registry, writer=schema, message=self.message)


def _record_name(schema: str) -> str | None:
    """The full name of an Avro schema's outermost record."""
    try:
        document = json.loads(schema)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        return None
    name, namespace = document["name"], document.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name
