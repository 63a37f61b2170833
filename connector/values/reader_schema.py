"""What a typed column is read with: which schema, where it comes from, which type it gives, and how a checkpoint names it.

Owns the choice of the subject's newest version, and the form in the checkpoint. An id of the registry always means the same schema,
so the checkpoint has the id; a text that the user gave is kept as text. Knows neither Spark nor options.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from pykafka_wire.columns.selection import WHOLE, Selection, select_type
from pykafka_wire.errors import ConnectorError, DecodeError, OptionError, SchemaError
from pykafka_wire.values.converter import Format
from pykafka_wire.values.ddl import DdlError, arrow_type
from pykafka_wire.values.registry.client import Registry, Schema

FormatName = Literal["string", "json", "avro", "protobuf"]
_KINDS: Final[dict[str, str]] = {"avro": "AVRO", "protobuf": "PROTOBUF"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchema:
    """The schema that a column is read with.

    Attributes:
        schema_id: of the registry; None where ``text`` is given.
        text: the user's: Spark DDL for JSON, a schema for Avro and Protobuf.
        subject: where the id was found, for messages.
        message: of a Protobuf schema; None: the first.
    """

    format: FormatName
    schema_id: int | None = None
    text: str | None = None
    subject: str | None = None
    message: str | None = None

    def __str__(self) -> str:
        if self.format == "string":
            return "the format string"
        if self.schema_id is None:
            return f"the {self.format} schema in the options"
        return f"the schema of subject {self.subject}, id {self.schema_id}"

    @property
    def is_pinned(self) -> bool:
        """Whether the checkpoint has to remember it: JSON and text are read as the DataFrame's own type."""
        return self.format in _KINDS

    def to_json(self) -> dict[str, Any]:
        """The form in a checkpoint: only what is set."""
        found = {
            "format": self.format,
            "id": self.schema_id,
            "schema": self.text,
            "subject": self.subject,
            "message": self.message,
        }
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ReaderSchema:
        """Raises KeyError, TypeError or ValueError for what :meth:`to_json` does not make."""
        made = cls(
            format=found["format"],
            schema_id=None if found.get("id") is None else int(found["id"]),
            text=found.get("schema"),
            subject=found.get("subject"),
            message=found.get("message"),
        )
        if made.format not in _KINDS or (made.schema_id is None) == (made.text is None):
            raise ValueError(f"no reader's schema: {found}")
        return made

    def value_format(self, registry: Registry | None) -> Format:
        """The format that reads the column.

        Args:
            registry: None for values without a frame.

        Raises:
            SchemaError: the registry does not have the schema.
            RegistryError: it does not answer.
        """
        if self.format == "string":
            from pykafka_wire.values.text import Text

            return Text()
        if self.format == "json":
            from pykafka_wire.values.json.format import Json

            return Json()
        found: Format = self._registered(registry)
        return found

    def column_type(self, registry: Registry | None, selection: Selection = WHOLE, name: str = "value") -> pa.DataType:
        """The type of the column, of the selected fields alone.

        Args:
            name: of the column, for errors.

        Raises:
            OptionError: the text that the user gave is not valid, or has no such message.
            SchemaError: no type holds the values of the schema, or of its selected fields; a selected field is not there; the
                registry does not have the schema.
            RegistryError: the registry does not answer.
        """
        return select_type(self._whole_type(registry, selection), selection, name)

    def _whole_type(self, registry: Registry | None, selection: Selection) -> pa.DataType:
        """With all fields; the types of those that are not selected may be null."""
        if self.format == "string":
            return pa.string()
        if self.format == "json":
            try:
                return arrow_type(self.text or "")
            except DdlError as error:
                raise OptionError(f"the DDL {self.text!r}: {error}.") from error
        try:
            found: pa.DataType = self._registered(registry).column_type(selection)
        except DecodeError as error:
            raise self._invalid(error) from error
        return found

    def _registered(self, registry: Registry | None) -> Any:  # Avro or Protobuf
        schema = self._schema(registry)
        if self.format == "protobuf":
            from pykafka_wire.values.protobuf.format import Protobuf

            return Protobuf(registry=registry, reader_schema=schema, message=self.message)
        from pykafka_wire.values.avro.format import Avro

        try:
            return Avro(registry=registry, reader_schema=schema)
        except OptionError as error:
            raise self._invalid(error) from error

    def _invalid(self, error: OptionError | DecodeError) -> ConnectorError:
        reason = str(error) if isinstance(error, DecodeError) else error.message.removeprefix("reader_schema: ")
        if self.schema_id is None:
            return OptionError(f"the {self.format} schema in the options: {reason.rstrip('.')}.")
        return SchemaError(f"the schema of subject {self.subject}, id {self.schema_id}: {reason.rstrip('.')}.")

    def _schema(self, registry: Registry | None) -> Schema:
        if self.schema_id is None:
            return Schema(kind=_KINDS[self.format], text=self.text or "")
        if registry is None:
            raise SchemaError(
                f"the checkpoint names the schema of id {self.schema_id}, and there is no registry: set schema.registry.url."
            )
        try:
            return registry.by_id(self.schema_id)
        except DecodeError as error:
            raise SchemaError(
                f"the registry {registry.url} does not have the schema of id {self.schema_id} (subject {self.subject}), which "
                f"the query reads with: {error}. Restore it, or read with the newest version: set readerSchema to latest."
            ) from error


def resolve_newest(
    format_: FormatName, registry: Registry, subjects: Mapping[str, str], *, message: str | None = None, column: str
) -> ReaderSchema:
    """The newest schema of the subjects, which must be one.

    Args:
        subjects: the subject of each topic.
        column: ``key`` or ``value``, for errors.

    Raises:
        SchemaError: a subject does not exist, has another format, or several topics have different schemas.
        RegistryError: the registry does not answer.
    """
    found: dict[str, tuple[int, Schema]] = {}
    for topic, subject in subjects.items():
        if subject in found:
            continue
        try:
            found[subject] = registry.latest(subject)
        except DecodeError as error:
            raise SchemaError(
                f"{registry.url} has no subject {subject} with the schema of the {column} of topic {topic} "
                f"({error}). Name the subject with {column}Subject, or give the schema with {column}Schema."
            ) from error
    if not found:
        raise SchemaError(
            f"there is no topic whose subject could give the schema of the {column}: name the subject with {column}Subject, "
            f"or give the schema with {column}Schema."
        )
    for subject, (_, schema) in found.items():
        if schema.kind != _KINDS[format_]:
            raise SchemaError(
                f"subject {subject} is {schema.kind}, and {column}Format is {format_}: set {column}Format to "
                f"{schema.kind.lower()}, or name another subject with {column}Subject."
            )
    subject, (schema_id, first) = next(iter(found.items()))
    different = [name for name, (_, schema) in found.items() if schema != first]
    if different:
        raise SchemaError(
            f"the topics' newest schemas differ: {subject} has id {schema_id}, {_some(different, found)}. Read these topics in "
            f"queries of their own, or name one subject for all with {column}Subject, or give a schema with {column}Schema."
        )
    return ReaderSchema(format=format_, schema_id=schema_id, subject=subject, message=message)


def _some(subjects: Collection[str], found: Mapping[str, tuple[int, Schema]]) -> str:
    shown = [f"{subject} has id {found[subject][0]}" for subject in list(subjects)[:5]]
    return ", ".join(shown) + (f" and {len(subjects) - 5} more" if len(subjects) > 5 else "")
