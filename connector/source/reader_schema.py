"""Which schema is a typed column read with: the one in the options, else the newest of its subjects. Found once, on the driver.

Owns the choice, the type that a schema gives, and its form in the checkpoint and in the tasks' input partitions. An id of the
registry always means the same schema, so the checkpoint has the id; a text that the user gave is kept as text. Knows nothing of
Spark. Whether the type is a DataFrame's is :mod:`~pykafka_wire.source.dataframe_types`'s question, and which schema a micro-batch
has :mod:`~pykafka_wire.source.pinned_schemas`'s.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.columns.value_formats import NEED_SCHEMA, SCHEMA_KINDS, ValueFormat
from pykafka_wire.errors import ConnectorError, DecodeError, OffsetsError, OptionError, SchemaError
from pykafka_wire.field_selection import WHOLE, Selection, select_type
from pykafka_wire.options.source import Subscription
from pykafka_wire.options.typed_columns import TypedColumn, TypedColumns
from pykafka_wire.values.converter import Format, ReadsTypes
from pykafka_wire.values.ddl import DdlError, arrow_type
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.registered_schema import RegistryId, Schema, registry_id
from pykafka_wire.values.registry.schemas import strategy_of, subject_of
from pykafka_wire.values.registry.settings import registry_of
from pykafka_wire.wire.cluster import Cluster

#: A column of which the options say nothing but its format.
_PLAIN: Final = TypedColumn(name="value")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchema:
    """The schema that a column is read with.

    Attributes:
        schema_id: of the registry; None where ``text`` is given.
        text: the user's: Spark DDL for JSON, a schema for Avro and Protobuf.
        subject: where the id was found, for messages; None if the options have the id.
        message: of a Protobuf schema; None: the first. Of several types the full name of each, in Avro, too.
        types: the reader's schema of each type, where values are of several; then there is neither id nor text.
    """

    format: ValueFormat
    schema_id: RegistryId | None = None
    text: str | None = None
    subject: str | None = None
    message: str | None = None
    types: tuple[ReaderSchema, ...] = ()

    def __str__(self) -> str:
        if self.types:
            return ", ".join(f"{schema.message} by {schema}" for schema in self.types)
        if self.format == "string":
            return "the format string"
        if self.schema_id is None:
            return f"the {self.format} schema in the options"
        return f"the schema of {self._place}"

    @property
    def _place(self) -> str:
        return f"id {self.schema_id}" if self.subject is None else f"subject {self.subject}, id {self.schema_id}"

    @property
    def is_pinned(self) -> bool:
        """Return whether the checkpoint has to remember it. Text, and JSON whose type the user gives, have the DataFrame's
        type."""
        return self.format in NEED_SCHEMA or self.schema_id is not None

    def to_json(self) -> dict[str, Any]:
        """Return the form in a checkpoint: only what is set."""
        document = {
            "format": self.format,
            "id": str(self.schema_id) if isinstance(self.schema_id, uuid.UUID) else self.schema_id,
            "schema": self.text,
            "subject": self.subject,
            "message": self.message,
            "types": [schema.to_json() for schema in self.types] or None,
        }
        return {name: value for name, value in document.items() if value is not None}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ReaderSchema:
        """Return the schema of such a document. Raises KeyError, TypeError or ValueError for what :meth:`to_json` does not
        make."""
        made = cls(
            format=document["format"],
            schema_id=registry_id(document.get("id")),
            text=document.get("schema"),
            subject=document.get("subject"),
            message=document.get("message"),
            types=tuple(cls.from_json(schema) for schema in document.get("types", ())),
        )
        if (
            made.format not in SCHEMA_KINDS
            or [made.schema_id, made.text, made.types or None].count(None) != 2
            or not made.is_pinned
        ):
            raise ValueError(f"no reader's schema: {document}")
        return made

    def value_format(self, registry: Registry | None, column: TypedColumn = _PLAIN) -> Format | ReadsTypes:
        """Return the format that reads the column.

        Args:
            registry: None for values without a frame.
            column: what the options say of it.

        Raises:
            SchemaError: the registry does not have the schema.
            RegistryError: it does not respond.
        """
        if self.format == "string":
            from pykafka_wire.values.utf8 import Utf8

            return Utf8()
        if self.format == "json":
            from pykafka_wire.values.json.format import Json
            from pykafka_wire.values.single_json.encodings import Encodings

            # The options have checked the words.
            encodings = Encodings(
                time_units=column.time_units,  # type: ignore[arg-type]
                decimal_formats=column.decimal_formats,  # type: ignore[arg-type]
                variant_numbers=column.variant_numbers,
            )
            if self.schema_id is not None and column.connect_types != "false":
                from pykafka_wire.values.json.schema_types import type_and_encodings

                _, of_schema = type_and_encodings(registry, self._schema(registry), True)
                encodings = replace(
                    encodings,
                    time_units=encodings.time_units + of_schema.time_units,
                    decimal_formats=encodings.decimal_formats + of_schema.decimal_formats,
                )
            return Json(
                registry=None if self.schema_id is None else registry,
                encodings=encodings,
                envelope=column.envelope,
                schemas=column.connect_schemas,
            )
        if self.types:
            from pykafka_wire.values.record_types import RecordType, RecordTypes

            names = self._fields()
            return RecordTypes(
                types=tuple(
                    (schema.message or "", RecordType(names[schema], schema._registered(registry, column)))
                    for schema in self.types
                )
            )
        registered: Format = self._registered(registry, column)
        return registered

    def _fields(self) -> dict[ReaderSchema, str]:
        """Return the field of each type."""
        from pykafka_wire.values.record_types import field_names

        return dict(zip(self.types, field_names([schema.message or "" for schema in self.types]), strict=True))

    def column_type(
        self, registry: Registry | None, selection: Selection = WHOLE, column: TypedColumn = _PLAIN
    ) -> pa.DataType:
        """Return the type of the column, of the selected fields alone.

        Args:
            column: what the options say of it.

        Raises:
            OptionError: the text that the user gave is not valid, or has no such message.
            SchemaError: no type holds the values of the schema, or of its selected fields; a selected field is not there; the
                registry does not have the schema.
            RegistryError: the registry does not respond.
        """
        return select_type(self._whole_type(registry, selection, column), selection, column.name)

    def _whole_type(self, registry: Registry | None, selection: Selection, column: TypedColumn) -> pa.DataType:
        """Return the type with all fields; the types of those that are not selected may be null."""
        if self.types:
            return pa.struct(
                [
                    (field, schema._whole_type(registry, selection.get(field, WHOLE), column))
                    for schema, field in self._fields().items()
                ]
            )
        if self.format == "string":
            return pa.string()
        if self.format == "json" and self.schema_id is None:
            try:
                return arrow_type(self.text or "")
            except DdlError as error:
                raise OptionError(f"the DDL {self.text!r}: {error}.") from error
        try:
            if self.format == "json":
                from pykafka_wire.values.json.schema_types import type_and_encodings

                return type_and_encodings(registry, self._schema(registry), column.connect_types != "false")[0]
            column_type: pa.DataType = self._registered(registry, column).column_type(selection)
        except DecodeError as error:
            raise self._invalid(error) from error
        return column_type

    def _registered(self, registry: Registry | None, column: TypedColumn = _PLAIN) -> Any:  # Avro or Protobuf
        schema = self._schema(registry)
        if self.format == "protobuf":
            from pykafka_wire.values.protobuf.format import Protobuf

            as_numbers = column.times_as_numbers
            return Protobuf(registry=registry, reader_schema=schema, message=self.message, times_are_numbers=as_numbers)
        from pykafka_wire.values.avro.format import Avro
        from pykafka_wire.values.avro.types import TypeRules

        rules = TypeRules(
            names_by_type=column.union_fields == "type",
            connect=column.connect_types != "false",
            json_is_variant=column.connect_types == "variant",
            large_decimals_are_text=column.large_decimals == "string",
            times_are_numbers=column.times_as_numbers,
        )
        try:
            return Avro(registry=registry, reader_schema=schema, record=self.message, rules=rules)
        except OptionError as error:
            cause = error.__cause__  # without the parameter of Python's, which is no option
            raise self._invalid(cause if isinstance(cause, DecodeError) else error) from error

    def type_names(self, registry: Registry | None) -> list[str]:
        """Return the full names of the types that the schema has: a union's branches, or messages. Raises DecodeError."""
        registered = self._registered(registry)
        names: list[str] = registered.message_names() if self.format == "protobuf" else registered.record_names()
        if not names:
            raise DecodeError("it has no named type")
        return names

    def check_subject(self, registry: Registry | None) -> None:
        """Check that the subject has the schema: an id of a checkpoint means another schema in a registry that was built anew.

        Raises:
            SchemaError: no version of the subject has it, or the registry does not have the id.
            RegistryError: it does not respond.
        """
        for kind in self.types:
            kind.check_subject(registry)
        if registry is None or self.subject is None:
            return
        if RegistryClient(registry).is_foreign(self.subject, self._schema(registry)):
            raise SchemaError(
                f"the checkpoint reads with the schema of subject {self.subject} and id {self.schema_id}, and in the registry "
                f"{registry.url} this id has a schema that no version of the subject has, as after a registry was built anew. Set "
                "schema.registry.url to the registry that the checkpoint is from; or set readerSchema to latest, which reads later "
                "micro-batches with the newest version; or, if a micro-batch is planned, start a query with a new checkpoint and "
                "startingOffsets=checkpoint:PATH."
            )

    def with_full_name(self, registry: Registry | None) -> ReaderSchema:
        """Return the same, the message by its full name. Raises as :meth:`column_type`, if the schema does not have it."""
        if self.format == "avro":
            self._registered(registry)  # which looks it up
            return self
        try:
            return replace(self, message=self._registered(registry).message_name())
        except DecodeError as error:
            raise self._invalid(error) from error

    def _invalid(self, error: OptionError | DecodeError) -> ConnectorError:
        reason = str(error) if isinstance(error, DecodeError) else error.message
        if self.schema_id is None:
            return OptionError(f"the {self.format} schema in the options: {reason.rstrip('.')}.")
        return SchemaError(f"the schema of {self._place}: {reason.rstrip('.')}.")

    def _schema(self, registry: Registry | None) -> Schema:
        if self.schema_id is None:
            return Schema(kind=SCHEMA_KINDS[self.format], text=self.text or "")
        if registry is None:
            raise SchemaError(
                f"the checkpoint names the schema of id {self.schema_id}, and there is no registry: set schema.registry.url."
            )
        try:
            schema = RegistryClient(registry).by_id(self.schema_id)
        except DecodeError as error:
            of_subject = "" if self.subject is None else f" (subject {self.subject})"
            raise SchemaError(
                f"the registry {registry.url} does not have the schema of id {self.schema_id}{of_subject}, which "
                f"the query reads with: {error}. Restore it, or read with the newest version: set readerSchema to latest."
            ) from error
        if schema.kind != SCHEMA_KINDS[self.format]:
            raise SchemaError(
                f"the schema of {self._place} is {schema.kind}, and the format is {self.format}: name another id."
            )
        return schema


def _newest_of_subjects(
    format_: ValueFormat, registry: Registry, subjects: Mapping[str, str], *, message: str | None = None, column: str
) -> ReaderSchema:
    """Return the newest schema of the subjects, which must be one.

    Args:
        subjects: the subject of each topic.
        column: ``key`` or ``value``, for errors.

    Raises:
        SchemaError: a subject does not exist, has another format, or several topics have different schemas.
        RegistryError: the registry does not respond.
    """
    newest: dict[str, tuple[RegistryId, Schema]] = {}
    for topic, subject in subjects.items():
        if subject in newest:
            continue
        try:
            newest[subject] = RegistryClient(registry).latest(subject)
        except DecodeError as error:
            raise SchemaError(
                f"{registry.url} has no subject {subject} with the schema of the {column} of topic {topic} "
                f"({error}). Name the subject with {column}Subject, or give the schema with {column}Schema."
            ) from error
    if not newest:
        raise SchemaError(
            f"there is no topic whose subject could give the schema of the {column}: name the subject with {column}Subject, "
            f"or give the schema with {column}Schema."
        )
    for subject, (_, schema) in newest.items():
        if schema.kind != SCHEMA_KINDS[format_]:
            raise SchemaError(
                f"subject {subject} is {schema.kind}, and {column}Format is {format_}: set {column}Format to "
                f"{schema.kind.lower()}, or name another subject with {column}Subject."
            )
    subject, (schema_id, first) = next(iter(newest.items()))
    different = [name for name, (_, schema) in newest.items() if schema != first]
    if different:
        raise SchemaError(
            f"the topics' newest schemas differ: {subject} has id {schema_id}, {_some(different, newest)}. Read these topics in "
            f"queries of their own, or name one subject for all with {column}Subject, or give a schema with {column}Schema."
        )
    return ReaderSchema(format=format_, schema_id=schema_id, subject=subject, message=message)


def _some(subjects: Collection[str], newest: Mapping[str, tuple[RegistryId, Schema]]) -> str:
    shown = [f"{subject} has id {newest[subject][0]}" for subject in list(subjects)[:5]]
    return ", ".join(shown) + (f" and {len(subjects) - 5} more" if len(subjects) > 5 else "")


#: By column, ``key`` or ``value``: those that are typed, and read.
ReaderSchemas = Mapping[str, ReaderSchema]


def registry_in(columns: TypedColumns, column: TypedColumn | None = None) -> Registry | None:
    """Return the registry that the options describe, None without one, and the context of a column's subject. It is asked for
    nothing."""
    registry = registry_of(columns.registry_options)
    return registry if registry is None or column is None else registry.for_subject(column.subject)


def read_columns(columns: TypedColumns, names: Collection[str]) -> tuple[TypedColumn, ...]:
    """Return the typed columns that a read of the columns with these names decodes."""
    return tuple(
        column for column in columns.typed if column.name in names or not set(column.added_columns).isdisjoint(names)
    )


def find_reader_schemas(
    columns: TypedColumns,
    wanted: Collection[TypedColumn],
    cluster: Cluster,
    subscription: Subscription,
    *,
    has_types: bool = False,
) -> dict[str, ReaderSchema]:
    """Return the reader's schema of each wanted column: the one in the options, else the newest of the registry. Brokers are asked
    for the topics of ``subscribePattern`` only.

    Args:
        has_types: the user has given the DataFrame's types, and JSON is read as these.

    Raises:
        OptionError: a strategy that names subjects is unknown, or needs a name.
        SchemaError: the registry has no such subject, or topics differ.
        RegistryError: the registry does not respond.
        WireError: the brokers do not respond, asked for the topics of ``subscribePattern``.
    """
    schemas: dict[str, ReaderSchema] = {}
    for column in wanted:
        given = schema_in_options(column)
        registry = registry_in(columns, column)
        if column.types:
            has_schema = column.schema is not None or column.schema_id is not None
            topics = () if has_schema else _topics(column, cluster, subscription)
            schemas[column.name] = _of_types(column, registry, topics)
            continue
        if given is not None and (has_types or registry is None or not column.takes_type_of_registry):
            schemas[column.name] = given
            continue
        assert registry is not None, "the options were checked"
        subjects = _subjects(column, registry, cluster, subscription)
        schemas[column.name] = _newest_of_subjects(
            column.format, registry, subjects, message=column.message, column=column.name
        )
    return schemas


def schema_in_options(column: TypedColumn) -> ReaderSchema | None:
    """Return the schema that the options themselves give, None where it is the registry's."""
    assert column.format != "binary"
    if column.format in ("string", "json") or column.schema is not None:
        return ReaderSchema(format=column.format, text=column.schema, message=column.message)
    if column.schema_id is not None:
        return ReaderSchema(
            format=column.format, schema_id=column.schema_id, subject=column.subject, message=column.message
        )
    return None


def check_has_type(column: TypedColumn, *, has_registry: bool = False) -> None:
    """Raise OptionError for JSON that neither the options, the DataFrame nor a registry give a type."""
    if column.takes_type_of_registry and not has_registry:
        option = column.option("Schema")
        raise OptionError(
            f"{column.option('Format')}=json needs the type of the {column.name}: the columns as Spark DDL, as in "
            f'.option("{option}", "id BIGINT, at TIMESTAMP"), or as a struct in .schema("{column.name} struct<id: bigint>, …"), or '
            "schema.registry.url where the topic has a JSON Schema in a registry."
        )


def to_json(readers: ReaderSchemas) -> dict[str, Any]:
    """Return what the checkpoint holds of the reader's schemas."""
    return {name: readers[name].to_json() for name in sorted(readers) if readers[name].is_pinned}


def for_tasks(readers: ReaderSchemas, columns: TypedColumns) -> dict[str, Any]:
    """Return what each input partition needs of the reader's schemas, as JSON: not those that the options of the tasks give."""
    given: dict[str, ReaderSchema | None] = {column.name: schema_in_options(column) for column in columns.typed}
    return to_json({name: reader for name, reader in readers.items() if given.get(name) != reader})


def from_json(document: Mapping[str, Any]) -> dict[str, ReaderSchema]:
    """Return the reader's schemas that :func:`to_json` made. Raises OffsetsError for anything else."""
    try:
        return {name: ReaderSchema.from_json(schema) for name, schema in document.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OffsetsError(
            f"the reader's schemas in the checkpoint are damaged ({error}): {str(document)[:200]}"
        ) from error


def _of_types(column: TypedColumn, registry: Registry | None, topics: Collection[str]) -> ReaderSchema:
    """Return the reader's schemas of several types: each of its own subject, or all of one schema.

    Raises as :func:`find_reader_schemas`.
    """
    format_ = column.format
    names: Collection[str] = column.types
    if column.schema is not None:
        whole = ReaderSchema(format=format_, text=column.schema)
    elif column.schema_id is not None:
        whole = ReaderSchema(format=format_, schema_id=column.schema_id, subject=column.subject)
    else:
        assert registry is not None, "the options were checked"
        by_topic = (
            strategy_of(column.subject_strategy, column.name) == "TopicNameStrategy" or column.subject is not None
        )
        if not by_topic:
            if names == ("*",):
                names = _all_names(column, registry, topics)
            return ReaderSchema(format=format_, types=tuple(_of_type(column, registry, topics, name) for name in names))
        subjects = _named_subjects(column, registry, topics)
        whole = _newest_of_subjects(format_, registry, subjects, column=column.name)
    if names == ("*",):
        try:
            names = whole.type_names(registry)
        except DecodeError as error:
            raise whole._invalid(error) from error
    types = tuple(replace(whole, message=name).with_full_name(registry) for name in names)
    return ReaderSchema(format=format_, types=types)


def _of_type(column: TypedColumn, registry: Registry, topics: Collection[str], name: str) -> ReaderSchema:
    """Return the newest schema of the subjects of one type."""
    subjects = _named_subjects(column, registry, topics, name)
    newest = _newest_of_subjects(column.format, registry, subjects, message=name, column=column.name)
    return newest.with_full_name(registry)


def _all_names(column: TypedColumn, registry: Registry, topics: Collection[str]) -> list[str]:
    """Return the types that the registry has under the topics' names."""
    option = f"{column.name}Types"
    if strategy_of(column.subject_strategy, column.name) == "RecordNameStrategy":
        raise OptionError(
            f"{option}=* needs subjects that begin with the topic's name, and {column.name}.subject.name.strategy is "
            f"RecordNameStrategy: name the types in {option}."
        )
    prefixes = (f"{topic}-" for topic in topics)
    suffixes = {name[len(prefix) :] for prefix in prefixes for name in RegistryClient(registry).subjects(prefix)} - {
        "key",
        "value",
    }
    # No type has a hyphen in its name: "eu-shop.Order" is of the topic orders-eu, not of orders.
    type_names = sorted(name for name in suffixes if "-" not in name)
    if not type_names:
        raise SchemaError(
            f"{registry.url} has no subject that begins with {', '.join(f'{topic}-' for topic in topics)}."
        )
    return type_names


def _subjects(column: TypedColumn, registry: Registry, cluster: Cluster, subscription: Subscription) -> dict[str, str]:
    """Return the subject of each topic."""
    return _named_subjects(column, registry, _topics(column, cluster, subscription), column.message)


def _named_subjects(
    column: TypedColumn, registry: Registry, topics: Collection[str], record: str | None = None
) -> dict[str, str]:
    if column.subject is not None:
        return {"": column.subject}
    strategy, name = column.subject_strategy, column.name
    return {topic: subject_of(strategy, topic, name, record_name=record, registry=registry) for topic in topics}


def _topics(column: TypedColumn, cluster: Cluster, subscription: Subscription) -> Collection[str]:
    """Return the topics that are read; none where the column's subject is named."""
    if column.subject is not None:
        return ()
    if subscription.pattern:
        from pykafka_wire.source.planning.offset_lookups import find_topics

        return sorted(find_topics(cluster, subscription))
    topics = subscription.topics or tuple(dict.fromkeys(tp.topic for tp in subscription.assigned))
    if not topics:
        raise OptionError(
            f"microBatch with {column.name}Format={column.format} needs the topics whose subjects have the schema: name them "
            f"with subscribe, or name {column.name}Subject."
        )
    return topics
