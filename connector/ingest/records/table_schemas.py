"""The formats and schemas with which one table's values and keys are read, from its settings and the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructField, StructType

from pykafka_wire.columns.value_formats import NEED_SCHEMA, format_of_kind
from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.errors import ConnectorError, DecodeError, IngestError, RegistryError
from pykafka_wire.ingest.changes.newest import REASON
from pykafka_wire.ingest.records.contracts import Contract
from pykafka_wire.ingest.records.key_schemas import KeySchemas, key_schemas, key_versions, renamed_fields
from pykafka_wire.ingest.records.modes import mode_of
from pykafka_wire.ingest.records.reader_schemas import schema_text, symbols_text, versions_of
from pykafka_wire.ingest.settings.model import ReadSettings, Settings
from pykafka_wire.ingest.spark.sql import column_ddl
from pykafka_wire.ingest.tables.definition import connect_types
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.registered_schema import RegistryId, Schema
from pykafka_wire.values.registry.schemas import strategy_of, subject_of

#: Prefixes, in lower case, of options that apply only to values.
_VALUE_PREFIXES: Final = ("value", "onvalue", "onothervalue", "includevalueschema")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSchema:
    """How a topic's values are read: the format, and the schema if the registry has it.

    Attributes:
        schema_id: the schema's id in the registry; None if the settings have the schema, or the format has no schema.
        schema: the schema with that id.
        refused: the ids of newer versions with fields that this older schema lacks, as texts. Values of these versions are rejects,
            since they would lose the fields.
    """

    format: str
    schema_id: RegistryId | None = None
    schema: Schema | None = None
    refused: frozenset[str] = frozenset()


class TableSchemas:
    """Finds the schemas with which one table reads its topic. Asks the registry for the newest schema each time."""

    def __init__(
        self, settings: Settings, registry: Registry | None, topic: str, reading: ReadSettings, contract: Contract
    ) -> None:
        """Store the settings of the ingest and of the table, and the registry, or None without a registry."""
        self._settings = settings
        self._registry = registry
        self._topic = topic
        self._reading = reading
        self._contract = contract
        self._mode = mode_of(reading.mode)
        #: The newest key schema in the registry's last response: () if the registry has none, None before the first response.
        self._newest_key: tuple[Schema] | tuple[()] | None = None

    def value_schema(self, schema_id: RegistryId | None = None) -> ValueSchema:
        """Return how values are read from now on: with the subject's newest schema, or with the schema ``schema_id``.

        Raises:
            IngestError: the format is ``registry``, but there is no registry, or it has no schema for the topic.
            RegistryError: the registry does not respond.
        """
        topic, reading = self._topic, self._reading
        if reading.format == "registry" and not self._registry:
            raise IngestError(
                f"topic {topic} has no format, and there is no registry: set registry, or a format such as json."
            )
        subject = self._subject("value")
        if not self.asks_registry:
            return ValueSchema(format=reading.format)
        assert self._registry is not None
        try:
            if schema_id is None:
                schema_id, schema = RegistryClient(self._registry).latest(subject)
            else:
                schema = RegistryClient(self._registry).by_id(schema_id)
                if RegistryClient(self._registry).is_foreign(subject, schema):
                    raise IngestError(
                        f"topic {topic} has a table that was written with the schema {schema_id} of subject {subject}, and in this "
                        "registry that id has a schema that no version of the subject has, as after a registry was built anew: set "
                        "registry to the one that the table was written with, or let the table take the newest schema."
                    )
        except DecodeError as error:
            raise IngestError(
                f"topic {topic} has no subject {subject} in the registry ({error}): register its schema, or give the topic a "
                "format such as json, string or binary in a [[table]]."
            ) from error
        value_format = format_of_kind(schema.kind) or schema.kind.lower()
        if (
            value_format == "json" and self._contract.settings.has_sql
        ):  # the types of JSON values are inferred from records
            raise IngestError(
                f"topic {topic} has JSON values, but a table with where, select or expect needs the types of its columns: set "
                "format to json, and declare the columns in schema."
            )
        if reading.format not in ("registry", value_format):
            raise IngestError(
                f"topic {topic} has format {reading.format}, but its subject {subject} has {value_format}: change one of them."
            )
        return ValueSchema(format=value_format, schema_id=schema_id, schema=schema)

    @property
    def asks_registry(self) -> bool:
        """Return whether the registry has the schema of the table's values."""
        is_of_registry = self._reading.format in ("registry", *NEED_SCHEMA) and self._reading.schema is None
        return is_of_registry and self._registry is not None

    def columns_text(self, schema: ValueSchema) -> str:
        """Return the value's columns as DDL, without a Spark session; or a sentence if only the values show the columns.

        With ``select``, return its expressions: only Spark knows their types.
        """
        reading, selected = self._reading, self._contract.settings.select
        if schema.format == "json" and reading.schema is None:
            return f"columns are inferred from the {self._mode.records}"
        if schema.format == "json":  # the settings' check has parsed the types; parsing them here would need Spark
            return ", ".join(selected) or reading.schema or ""
        value = self._value_type(schema)
        if selected:
            return ", ".join(selected)
        return column_ddl(value) if isinstance(value, StructType) else f"value {value.simpleString().upper()}"

    def record_types(self, schema: ValueSchema) -> StructType:
        """Return the types of the columns that the table's expressions see; without ``key`` if only records show its type."""
        types = StructType([StructField("value", self._value_type(schema))])
        key_format = self.key_format(schema.format, None)
        if key_format == "json" and self._reading.key_schema is not None:
            types.add("key", DataType.fromDDL(self._reading.key_schema))
        elif key_format is not None and key_format != "json":
            types.add("key", self._source_type("key", key_format))
        kafka = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, headers ARRAY<STRUCT<key STRING, value BINARY>>"
        columns = DataType.fromDDL(kafka)
        assert isinstance(columns, StructType)
        return StructType([*types, *columns, StructField(REASON, StringType())])

    def refused_by(self, schema: ValueSchema, held: DataType | None) -> frozenset[str]:
        """Return :attr:`ValueSchema.refused` of a schema of the registry that is not the newest one.

        Args:
            held: as in :meth:`reader_schema`.
        """
        assert self._registry is not None and schema.schema is not None, "the schema is the registry's"
        client, subject = RegistryClient(self._registry), self._subject("value")
        own, refused = self._value_type(schema, self.reader_schema(schema, held)), set[str]()
        for version, _ in versions_of(self._registry, subject, client.versions(subject), None, lambda *_: ()):
            if version.has_same_types(schema.schema):
                break
            schema_id = str(client.lookup(subject, version))
            try:
                is_whole = _has_fields_of(own, self._value_type(schema, {"valueReaderSchemaId": schema_id}))
            except RegistryError:
                raise
            except ConnectorError:  # of a schema that has no type in Spark
                is_whole = False
            if not is_whole:
                refused.add(schema_id)
        return frozenset(refused)

    def _value_type(self, schema: ValueSchema, reader: Mapping[str, str] = MappingProxyType({})) -> DataType:
        """Return the type of values, without a ``reader`` with the newest schema.

        Args:
            reader: options as :meth:`reader_schema` returns them.
        """
        if schema.format == "json":
            return DataType.fromDDL(self._reading.schema or "")
        value = self._source_type("value", schema.format, reader)
        name = self._contract.single_type(value)
        if name is not None and isinstance(value, StructType):
            return value[name].dataType
        return self._mode.row_type(value, self._topic)

    def _source_type(
        self, column: str, column_format: str, reader: Mapping[str, str] = MappingProxyType({})
    ) -> DataType:
        """Return the type that the source gives to a column, without a ``reader`` with the newest schema."""
        options = {**self._settings.kafka_options, "timesAsNumbers": "true", **options_of(self._reading)}
        if column_format in NEED_SCHEMA:
            options = self._settings.source_registry_options | options
            options.setdefault("connectTypes", connect_types(self._reading, None, is_new=True))
        options |= {"subscribe": self._topic, f"{column}Format": column_format, "columns": column}
        text = self._reading.schema if column == "value" else self._reading.key_schema
        if text is not None:
            options[f"{column}Schema"] = text
        options |= reader
        if column == "key":  # options of values need the values' format, which is not set
            options = {name: text for name, text in options.items() if not name.lower().startswith(_VALUE_PREFIXES)}
        schema = PykafkaWireDataSource(options).schema()
        assert isinstance(schema, StructType)
        return schema[column].dataType

    def key_format(self, value_format: str, held: DataType | None) -> str | None:
        """Return the format of keys; None if the keys decide whether it is JSON: for a new table of changes in JSON.

        Args:
            held: the type of the table's keys, None if it has none.

        Raises:
            RegistryError: the registry has never responded, and the table's keys are not bytes.
        """
        if self._reading.key_format is not None:
            return self._reading.key_format
        if (registered := self._registered_key_format(held)) is not None:
            return registered
        return self._mode.unregistered_key_format(value_format, held)

    def _registered_key_format(self, held: DataType | None) -> str | None:
        """Return the format of the newest key schema; None if the registry has none."""
        # AWS Glue's serializers give the schemas of keys and values the same name, so a schema of that name may not be the key's.
        if self._registry is None or self._registry.is_glue:
            return None
        try:
            _, schema = RegistryClient(self._registry).latest(self._subject("key"))
            self._newest_key = (schema,)
        except DecodeError:
            self._newest_key = ()
        except RegistryError:  # no error for a topic whose values do not need the registry
            if self._newest_key is None and not isinstance(held, BinaryType):
                raise
        return format_of_kind(self._newest_key[0].kind) or "binary" if self._newest_key else None

    def reader_schema(self, schema: ValueSchema, held: DataType | None) -> dict[str, str]:
        """Return the option with the schema to read values with: a text that includes removed fields that the table has, or the
        registry's id.

        Args:
            held: the type of the table's values, None if it has none.
        """
        assert self._registry is not None and schema.schema is not None, "the schema is the registry's"
        if self._has_subjects_of_types:  # records of each type are read with the newest schema of the type's subject
            return {}
        columns = held if isinstance(held, StructType) else None
        text = None
        if not self._reading.types:
            text = schema_text(self._registry, self._subject("value"), schema.schema, self._reading, columns)
        return {"valueReaderSchemaId": str(schema.schema_id)} if text is None else {"valueSchema": text}

    @property
    def _has_subjects_of_types(self) -> bool:
        """Return whether each record type has a subject of its own."""
        strategy = self._reading.options.get("value.subject.name.strategy", "TopicNameStrategy")
        is_by_topic = strategy_of(strategy, "value") == "TopicNameStrategy" or "valueSubject" in self._reading.options
        return bool(self._reading.types) and not is_by_topic

    def key_versions(self) -> tuple[int, ...]:
        """Return the versions of the subject of the keys of changes; none if the keys have a format without schemas, or if
        ``key_schema`` is set.
        """
        if self._registry is None or self._registry.is_glue or self._reading.key_format not in (None, *NEED_SCHEMA):
            return ()
        return () if self._reading.key_schema is not None else key_versions(self._registry, self._subject("key"))

    def key_schemas(self, versions: tuple[int, ...]) -> KeySchemas | None:
        """Return the schemas of the keys of changes in :meth:`key_versions`; None if one schema suffices."""
        if not versions:
            return None
        assert self._registry is not None, "it has versions"
        return key_schemas(self._registry, self._subject("key"), self._reading.options.get("keyMessage"), versions)

    def renamed_key_fields(self, versions: tuple[int, ...]) -> Mapping[str, str]:
        """Return the newest name of each renamed field of the keys in :meth:`key_versions`, by the former name."""
        if not versions:
            return {}
        assert self._registry is not None, "it has versions"
        return renamed_fields(self._registry, self._subject("key"), self._reading.options.get("keyMessage"), versions)

    def key_symbols_schema(self) -> str | None:
        """Return the text of the newest key schema, with the writers' enum symbols; None if the registry's own schema applies."""
        if self._reading.key_format is not None:  # the registry was not asked yet
            self._registered_key_format(None)
        if self._registry is None or not self._newest_key:
            return None
        return symbols_text(self._registry, self._newest_key[0])

    def _subject(self, column: Any) -> str:
        options, types = self._reading.options, self._reading.types
        strategy = options.get(f"{column}.subject.name.strategy", "TopicNameStrategy")
        record = options.get(f"{column}Message")
        if record is None and column == "value" and types and types != ("*",):
            record = types[0]
        return options.get(f"{column}Subject") or subject_of(
            strategy, self._topic, column, record_name=record, registry=self._registry
        )


def _has_fields_of(schema: DataType, version: DataType) -> bool:
    """Return whether a schema has each field of another version. Where types are of different kinds, a read reports the error."""
    if isinstance(schema, StructType) and isinstance(version, StructType):
        own = {field.name: field.dataType for field in schema}
        return all(field.name in own and _has_fields_of(own[field.name], field.dataType) for field in version)
    if isinstance(schema, ArrayType) and isinstance(version, ArrayType):
        return _has_fields_of(schema.elementType, version.elementType)
    if isinstance(schema, MapType) and isinstance(version, MapType):
        return _has_fields_of(schema.valueType, version.valueType)
    return True


def options_of(reading: ReadSettings) -> dict[str, str]:
    """Return a table's options of the source. Records of types that the table does not name are skipped."""
    of_types = {"valueTypes": ", ".join(reading.types), "onOtherValueType": "skip"} if reading.types else {}
    return {**of_types, **reading.options}
