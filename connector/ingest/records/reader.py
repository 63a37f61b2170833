"""One table's reader: reads a range of the table's topic as typed rows.

It decides how a range is read: the formats and types of values and keys, and the conversion of JSON after the read. A record that
cannot be read gets a reject reason.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import DataType, StructType

from pykafka_wire.columns.value_formats import NEED_SCHEMA
from pykafka_wire.errors import IngestError, UnfitRecordsError
from pykafka_wire.ingest.changes.newest import (
    ENVELOPE_FIELDS,
    REASON,
    changed_row,
    is_of_fields,
    names_of,
)
from pykafka_wire.ingest.records.contracts import KAFKA_COLUMNS, UNSEEN, Contract, TaskContract, needs_headers
from pykafka_wire.ingest.records.json.columns import (
    Documents,
    JsonReading,
    documents_to_note,
    reading,
    row_type,
    without_absent,
)
from pykafka_wire.ingest.records.json.survey import PLACE_COLUMNS, JsonSurvey, Kind, survey, survey_here, survey_of
from pykafka_wire.ingest.records.key_columns import KeyColumns
from pykafka_wire.ingest.records.modes import mode_of
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.table_schemas import TableSchemas, ValueSchema, options_of
from pykafka_wire.ingest.records.topic_source import TopicSource
from pykafka_wire.ingest.settings.model import Destination, Settings
from pykafka_wire.ingest.spark.sql import column_ddl
from pykafka_wire.ingest.tables.definition import (
    CONNECT_TYPES_PROPERTY,
    DOCUMENTS_PROPERTY,
    connect_types,
    key_format_to_note,
)
from pykafka_wire.ingest.tables.files_table import KnownTable
from pykafka_wire.ingest.tables.topic_table import COLUMNS_PROPERTY
from pykafka_wire.values.registry.registered_schema import RegistryId
from pykafka_wire.values.registry.settings import registry_of

_log = logging.getLogger(__name__)

#: The column with the reason of an isolated record.
_ISOLATED: Final = "_pykafka_wire_isolated"
#: The reject reason of a value of a newer schema, before the schema's id.
_NEWER: Final = "the table has no columns for fields of the schema with which the value was written, "
#: Prefixes, in lower case, of a table's options that need the registry.
_REGISTRY_PREFIXES: Final = ("valuesubject", "keysubject", "schema.registry.", "basic.auth.", "bearer.auth.", "proxy.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A planned read of typed columns.

    Attributes:
        options: the options of the source.
        errors: the columns with the reason why a record cannot be read.
        readings: how JSON columns are converted after the read, by ``value`` and ``key``.
        kinds: the kinds of JSON columns whose types are inferred.
        isolated: as in :class:`TopicRange`.
        refused: as in :class:`ValueSchema`.
        noted: the properties that the table has to have before its rows are written, since its columns will not show them.
    """

    options: Mapping[str, str]
    errors: tuple[str, ...]
    readings: Mapping[str, JsonReading]
    kinds: Mapping[str, Kind]
    isolated: Mapping[tuple[int, int], str]
    refused: frozenset[str] = frozenset()
    noted: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_spark(self) -> bool:
        """Return whether Spark computes the rows, since tasks would not return the same."""
        return bool(self.readings or self.refused)

    def with_option(self, name: str, value: str) -> Read:
        """Return the read with one more option of the source. An earlier value of the option is replaced, whatever its case."""
        others = {key: text for key, text in self.options.items() if key.lower() != name.lower()}
        return replace(self, options={**others, name: value})


class TableReaders:
    """The readers of an ingest's tables: one for each table, with one shared registry."""

    def __init__(self, settings: Settings) -> None:
        """Store the ingest's settings."""
        self._settings = settings
        self._registry = registry_of(settings.source_registry_options | settings.kafka_options)
        self._readers: dict[Destination, TableReader] = {}

    def of(self, destination: Destination) -> TableReader:
        """Return the reader of a table, always the same object."""
        if destination not in self._readers:
            reading, contract = destination.table.reading, Contract(destination.table.contract, self._settings.prefix)
            schemas = TableSchemas(self._settings, self._registry, destination.topic, reading, contract)
            reader = TableReader(self._settings, destination, contract, schemas)
            self._readers.setdefault(destination, reader)  # another thread may have added the reader
        return self._readers[destination]

    def of_topic(self, topic: str) -> list[TableReader]:
        """Return the readers of a topic's tables."""
        return [self.of(destination) for destination in self._settings.destinations(topic)]


class TableReader:
    """Reads the topic of one table.

    Attributes:
        name: the table's name, without schema or folder.
        mode: the mode, which decides what a record does to the table.
        contract: decides which typed records the table takes.
        schemas: the schemas of values and keys.
        keys: the key columns of changes.
        source: the records as bytes.
    """

    def __init__(self, settings: Settings, destination: Destination, contract: Contract, schemas: TableSchemas) -> None:
        """Store the settings of the ingest and of the table."""
        self.topic = destination.topic
        self.name = destination.name
        self.contract = contract
        self.schemas = schemas
        self._settings = settings
        self._reading = destination.table.reading
        self.mode = mode_of(self._reading.mode)
        self.source = TopicSource(settings, self._reading)
        self.keys = KeyColumns(self.source, schemas, self._reading, settings.checkpoint)
        #: Resolved task contracts, by the read's columns; None if Spark has to evaluate the contract.
        self._task_contracts: dict[str, TaskContract | None] = {}

    # Checks before the table is written

    def sql_mistakes(self, session: SparkSession, schema: ValueSchema) -> list[tuple[str, bool]]:
        """Return the mistakes of the table's expressions; see :meth:`Contract.mistakes`."""
        return self.contract.mistakes(session.createDataFrame([], self.schemas.record_types(schema)))

    def selected_columns(self, session: SparkSession, schema: ValueSchema) -> str:
        """Return the value's columns in the table as DDL. The expressions must have no mistakes."""
        rows = session.createDataFrame([], self.schemas.record_types(schema))
        return column_ddl(self.contract.columns(rows))

    # How a range is read

    def typed_options(self, topic_range: TopicRange, *, value_format: str, key_format: str) -> dict[str, str]:
        """Return the options of a typed read, without the schemas.

        The registry is included only if it is used: otherwise the source would warn about an unused option in every micro-batch.
        """
        options = self.source.options(topic_range)
        if {value_format, key_format} & NEED_SCHEMA or any(
            option.lower().startswith(_REGISTRY_PREFIXES) for option in self._reading.options
        ):
            options |= self._settings.source_registry_options
        # Delta stores neither TIME nor interval columns.
        return options | {
            "timesAsNumbers": "true",
            **options_of(self._reading),
            "valueFormat": value_format,
            "keyFormat": key_format,
        }

    def plan(
        self,
        session: SparkSession,
        topic_range: TopicRange,
        schema: ValueSchema,
        known: KnownTable | None,
        *,
        is_landed: bool = False,
    ) -> Read:
        """Plan a typed read of a range.

        Args:
            known: the table, None for a new table. An inferred JSON type only extends the table's columns.
            is_landed: whether the range is to be merged into the table.

        Raises:
            KeysDifferError: the range is to be merged, but its changes have keys with different columns.
        """
        asked, held = self._reading, self._held(known)
        key_format = self.schemas.key_format(schema.format, held["key"])
        formats = {"value": schema.format, "key": key_format or "json"}
        documents, noted = _documents(known), dict[str, str]()
        texts = {"value": asked.schema, "key": asked.key_schema}
        kinds = self._kinds(formats)
        surveys = self._surveys(session, topic_range, kinds)
        if is_landed and "key" in surveys:
            self._check_keys(schema, surveys, kinds, held, documents)
        if key_format is None and asked.key_schema is None and not self.mode.are_json_keys(surveys["key"]):
            formats["key"] = "binary"
            kinds.pop("key")
        if self.mode.merges:
            properties = {} if known is None else known.properties()
            noted |= key_format_to_note(
                properties, formats["key"], self.name, self.topic, has_keys=held["key"] is not None
            )
        options = self.typed_options(topic_range, value_format=schema.format, key_format=formats["key"])
        errors: list[str] = []
        readings: dict[str, JsonReading] = {}
        for name, column_format in formats.items():
            if column_format == "binary":
                continue
            options[f"on{name.capitalize()}Error"] = "divert"
            if name == "key" and column_format in NEED_SCHEMA and texts["key"] is None:
                options |= self.keys.schema_option(session, topic_range, held["key"], is_landed=is_landed)
            errors.append(f"{name}Error")
            if name in kinds:
                read_as, new = self._surveyed(name, kinds[name], surveys[name], held[name], documents, known)
                readings[name] = read_as
                options |= _options_of(name, read_as)
                noted |= {} if new is None else {DOCUMENTS_PROPERTY: new}
            elif (text := texts[name]) is not None:
                options |= self._declared_options(name, column_format, text)
        if schema.schema is not None and schema.format != "json":
            made_with = None if known is None else known.properties().get(CONNECT_TYPES_PROPERTY)
            options = {"connectTypes": connect_types(asked, made_with, is_new=known is None)} | options
            options |= self.schemas.reader_schema(schema, held["value"])
        if self._settings.headers or needs_headers([self.contract.settings]):
            options["includeHeaders"] = "true"
        if schema.refused:
            options["includeValueSchema"] = "true"
        return Read(
            options=options,
            errors=tuple(errors),
            readings=readings,
            kinds=kinds,
            isolated=topic_range.isolated,
            refused=schema.refused,
            noted=noted,
        )

    def _check_keys(
        self,
        schema: ValueSchema,
        surveys: Mapping[str, JsonSurvey],
        kinds: Mapping[str, Kind],
        held: Mapping[str, DataType | None],
        documents: Documents | None,
    ) -> None:
        """Check that the keys of changes fit the table's key columns, and warn if other columns may be meant."""
        value = held["value"]
        if schema.format == "json" and self._reading.schema is not None:
            value = DataType.fromDDL(self._reading.schema)
        elif "value" in surveys:
            value = row_type(surveys["value"], kinds["value"], value, documents)
        names = self.keys.declared_of(surveys["key"].names)
        self.keys.check(self.topic, names, value)
        self.keys.warn_of_others(self.topic, names, held["key"], value)

    def _surveyed(
        self,
        name: str,
        kind: Kind,
        surveyed: JsonSurvey,
        held: DataType | None,
        documents: Documents | None,
        known: KnownTable | None,
    ) -> tuple[JsonReading, Documents | None]:
        """Return how a surveyed JSON column is read, and the kind of the table's documents if the table has to record it."""
        text = self._reading.schema if name == "value" else self._reading.key_schema
        new: Documents | None = None
        if text is not None:
            data_type: DataType | None = DataType.fromDDL(text)
        else:
            data_type = row_type(surveyed, kind, held, documents if name == "value" else None)
            if documents is None:
                new = documents_to_note(surveyed, kind, held, data_type)
        # A table of an older version does not say which columns the user has added, so write only the documents' columns.
        is_owned = known is None or COLUMNS_PROPERTY in known.properties()
        is_whole = text is not None or (self.mode.merges and is_owned)
        if kind == "key" or not is_whole:
            data_type = without_absent(data_type, surveyed, kind)
        return reading(surveyed, kind, data_type, ENVELOPE_FIELDS, is_declared=text is not None), new

    def _declared_options(self, name: str, column_format: str, text: str) -> dict[str, str]:
        """Return the options of a column whose schema the settings declare."""
        options = {}
        if column_format == "json":
            text = self.mode.declared_json(text, name)
            if not self.mode.has_envelopes and _has_room_for_payload(text):
                options[f"{name}ConnectEnvelope"] = "unwrap"
        return options | {f"{name}Schema": text}

    def _kinds(self, formats: Mapping[str, str]) -> dict[str, Kind]:
        """Return the kinds of the JSON columns that are surveyed."""
        texts = {"value": self._reading.schema, "key": self._reading.key_schema}
        return {
            name: self.mode.json_value if name == "value" else "key"
            for name, column_format in formats.items()
            if column_format == "json"
            and (texts[name] is None or (name == "key" and self.mode.is_surveyed_key(self.keys.declared)))
        }

    def older_schema(self, schema_id: RegistryId, known: KnownTable) -> ValueSchema:
        """Return an earlier schema of the values, with which values of some newer versions are rejects."""
        schema = self.schemas.value_schema(schema_id)
        return replace(schema, refused=self.schemas.refused_by(schema, self._held(known)["value"]))

    def unfit(
        self, records: Iterable[Row], schema: ValueSchema, known: KnownTable | None
    ) -> dict[tuple[int, int], str]:
        """Return the reasons of records whose JSON has no place among a table's columns, by partition and offset.

        Args:
            records: ``partition``, ``offset``, ``key`` and ``value``.
        """
        held = self._held(known)
        key_format = self.schemas.key_format(schema.format, held["key"])
        kinds = self._kinds({"value": schema.format, "key": key_format or "json"})
        documents = _documents(known)
        reasons: dict[tuple[int, int], str] = {}
        for record in records:
            for name, kind in kinds.items():
                document = None if record[name] is None else bytes(record[name])
                try:
                    surveyed = survey_of([document], kind, with_timestamps=self._reading.json_timestamps)
                    row_type(surveyed, kind, held[name], documents if name == "value" else None)
                except UnfitRecordsError as error:
                    reasons[record.partition, record.offset] = str(error)
        return reasons

    def _surveys(self, session: SparkSession, topic_range: TopicRange, kinds: dict[str, Kind]) -> dict[str, JsonSurvey]:
        """Return a survey of the JSON texts of all records of a range but the isolated ones."""
        if not kinds:
            return {}
        options = {**self.source.options(topic_range), "columns": ",".join((*kinds, *PLACE_COLUMNS))}
        if self.source.has_few(topic_range):
            return self.source.read_here(
                topic_range,
                options,
                lambda batches: survey_here(
                    (_without(batch, topic_range.isolated) for batch in batches),
                    kinds,
                    with_timestamps=self._reading.json_timestamps,
                ),
            )
        records = session.read.format("pykafka-wire").options(**options).load()
        if topic_range.isolated:
            isolated = _places(session, topic_range.isolated)
            records = records.join(F.broadcast(isolated), ["partition", "offset"], "left_anti")
        return survey(records, kinds, with_timestamps=self._reading.json_timestamps)

    def _held(self, known: KnownTable | None) -> dict[str, DataType | None]:
        """Return the types that a table already has for values and keys."""
        if known is None:
            return {"value": None, "key": None}
        prefix = self._settings.prefix
        columns = self.mode.held_columns(known)
        # A field of the topic may begin as Kafka's columns do.
        of_kafka = {prefix + name for name in (*KAFKA_COLUMNS, "headers")}
        topic_columns = [column for column in columns if column.name not in of_kafka]
        keys = [column.dataType for column in columns if column.name == prefix + "key"]
        # Selected columns are not the columns of the values.
        return {
            "value": StructType(topic_columns) if topic_columns and not self.contract.settings.select else None,
            "key": keys[0] if keys else None,
        }

    # Rows

    def read(
        self,
        session: SparkSession,
        topic_range: TopicRange,
        schema: ValueSchema,
        known: KnownTable | None,
        *,
        is_landed: bool = False,
        with_headers: bool = False,
    ) -> DataFrame:
        """Plan a read and return :meth:`changes`.

        Args:
            known, is_landed: as in :meth:`plan`.
        """
        read = self.plan(session, topic_range, schema, known, is_landed=is_landed)
        return self.changes(session, read, schema, with_headers=with_headers)

    def changes(
        self,
        session: SparkSession,
        read: Read,
        schema: ValueSchema,
        *,
        with_headers: bool = False,
    ) -> DataFrame:
        """Return :meth:`rows`, with Kafka's headers if requested; as changes of rows unless the mode is append.

        In mode append, records that the table does not take are removed; see :class:`.contracts.Contract`.
        """
        rows = self.rows(session, read, with_headers=with_headers)
        return self.mode.rows(rows, self.contract, self._reading, is_json=schema.format == "json")

    def warn_of_other_keys(self, changes: DataFrame, known: KnownTable) -> None:
        """Warn if keys have other columns than the keys of the table, and may belong to the same rows."""
        key, value = (changes.schema[name].dataType for name in ("key", "value"))
        if isinstance(key, StructType):
            self.keys.warn_of_others(self.topic, [tuple(key.names)], self._held(known)["key"], value)

    def records(self, rows: DataFrame) -> DataFrame:
        """Return the rows that match the table's contract, in mode append."""
        return self.contract.records(self.contract.unwrapped(rows))

    def rows(self, session: SparkSession, read: Read, *, with_headers: bool = False) -> DataFrame:
        """Return the typed columns ``value`` and ``key``, Kafka's columns, and the reject reason :data:`REASON`."""
        readings = read.readings
        errors: list[Column] = [F.col(name) for name in read.errors]
        more = {"includeHeaders": "true"} if with_headers else {}
        rows = session.read.format("pykafka-wire").options(**{**read.options, **more}).load()
        for name, read_as in readings.items():
            value, reason = read_as.row(name)
            if read.kinds.get(name) == "change":
                value = changed_row(name, read_as.field, value)
            rows = rows.withColumn(f"{name}Value", value)
            if reason is not None:
                errors.append(F.when(F.col(name).isNotNull(), reason))
        if read.refused:
            is_refused = F.col("valueSchemaId").isin(*sorted(read.refused))
            errors.append(F.when(is_refused, F.concat(F.lit(_NEWER), F.col("valueSchemaId"))))
        reason = F.coalesce(*errors) if errors else F.lit(None).cast("string")
        rows = rows.withColumn(REASON, reason).drop(*UNSEEN)
        for name in readings:
            rows = rows.withColumn(name, F.col(f"{name}Value")).drop(f"{name}Value")
        return _with_isolated(session, rows, read.isolated) if read.isolated else rows

    # In tasks

    def task_contract(self, session: SparkSession, read: StructType) -> TaskContract | None:
        """Return the table's contract for tasks; None if Spark has to evaluate the contract or report its mistakes.

        Args:
            read: the columns of the source.
        """
        key = read.json()
        if key not in self._task_contracts:
            try:
                self._task_contracts[key] = self.contract.in_tasks(session, read)
            except (AnalysisException, ParseException, IngestError):  # Spark's evaluation reports the error
                return None
            except Exception as error:  # some platforms do not let Python access Spark's expression trees
                _log.debug("Spark evaluates the expressions of table %s: %r", self.name, error)
                self._task_contracts[key] = None
        return self._task_contracts[key]

    def needs_spark(self, session: SparkSession, read: Read) -> bool:
        """Return whether Spark has to compute the table's rows of a read."""
        if read.by_spark:
            return True
        return self.task_contract(session, self.source.opened(read.options).schema) is None


def _documents(known: KnownTable | None) -> Documents | None:
    """Return the kind of a table's documents; None if the table does not record it."""
    noted = None if known is None else known.properties().get(DOCUMENTS_PROPERTY)
    return "objects" if noted == "objects" else "values" if noted == "values" else None


def _without(batch: pa.RecordBatch, isolated: Mapping[tuple[int, int], str]) -> pa.RecordBatch:
    """Return the records of a batch that are not isolated."""
    if not isolated:
        return batch
    places = zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    return batch.filter(pa.array([place not in isolated for place in places], pa.bool_()))


def _places(session: SparkSession, isolated: Mapping[tuple[int, int], str]) -> DataFrame:
    """Return ``partition``, ``offset`` and the reason :data:`_ISOLATED` of isolated records."""
    rows = [(partition, offset, reason) for (partition, offset), reason in isolated.items()]
    return session.createDataFrame(rows, f"partition INT, offset BIGINT, {_ISOLATED} STRING")


def _with_isolated(session: SparkSession, rows: DataFrame, isolated: Mapping[tuple[int, int], str]) -> DataFrame:
    """Return rows in which isolated records have their reason, and no value, as records that cannot be read."""
    joined = rows.join(F.broadcast(_places(session, isolated)), ["partition", "offset"], "left")
    reason = F.col(_ISOLATED)
    columns = {"value": F.when(reason.isNull(), F.col("value")), REASON: F.coalesce(reason, REASON)}
    return joined.select(*(columns.get(name, F.col(name)).alias(name) for name in rows.columns))


def _options_of(name: str, read_as: JsonReading) -> dict[str, str]:
    """Return the options of the source by which a surveyed JSON column is read."""
    # Numbers that share a place with texts are read as VARIANT, and keep their digits.
    options = {f"{name}Schema": read_as.ddl, "variantNumbers": "binary"}
    return options | ({f"{name}ConnectSchemas": json.dumps(read_as.schemas)} if read_as.schemas else {})


@lru_cache(maxsize=256)  # Spark parses the columns
def _has_room_for_payload(columns: str) -> bool:
    """Return whether declared columns may be inside Connect's envelope: they are fields, and none is named payload."""
    return is_of_fields(columns) and "payload" not in names_of(columns)
