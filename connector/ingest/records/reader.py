"""The records of one topic between two offsets, as rows of its table.

Owns the formats of a topic's values and keys, the type that values are read with, and the columns of a table: the value's fields
first, then Kafka's columns under a prefix. What cannot be read has a reason, and is a row of the rejects.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import BinaryType, BooleanType, DataType, StringType, StructField, StructType

from pykafka_wire.arrow_reader import read_topic
from pykafka_wire.columns.value_formats import NEED_SCHEMA, format_of_kind
from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.errors import DecodeError, IngestError, RegistryError, UnfitRecordsError
from pykafka_wire.ingest.changes.newest import (
    ENVELOPE_FIELDS,
    REASON,
    TAKEN,
    UNTYPED,
    changed_row,
    changes,
    envelope_ddl,
    is_of_fields,
    names_of,
    with_flattened,
    without_flattened,
)
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.contracts import KAFKA_COLUMNS, Census, Contract, TaskContract, read_alike, untaken
from pykafka_wire.ingest.records.json.columns import (
    JsonReading,
    declared_payload,
    is_enveloped,
    reading,
    row_type,
    without_absent,
)
from pykafka_wire.ingest.records.json.storable_types import places_of_nothing, storable, storable_type
from pykafka_wire.ingest.records.json.survey import PLACE_COLUMNS, JsonSurvey, Kind, key_names, survey, survey_here
from pykafka_wire.ingest.records.json.types import column_ddl
from pykafka_wire.ingest.records.key_runs import parts_of_runs
from pykafka_wire.ingest.records.reader_schemas import FRAME_BYTES, KeySchemas, key_schemas, schema_text, symbols_text
from pykafka_wire.ingest.settings.model import Destination, Settings, Table
from pykafka_wire.ingest.sql import clash, quoted
from pykafka_wire.ingest.tables.definition import CONNECT_TYPES_PROPERTY, connect_types
from pykafka_wire.ingest.tables.files_table import KnownTable
from pykafka_wire.ingest.tables.merging import DELETE
from pykafka_wire.ingest.tables.topic_table import COLUMNS_PROPERTY
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.registered_schema import RegistryId, Schema
from pykafka_wire.values.registry.schemas import subject_of
from pykafka_wire.values.registry.settings import registry_of

_log = logging.getLogger(__name__)

#: Options of a table that need the registry, as they begin in lower case.
_OF_REGISTRY: Final = ("valuesubject", "keysubject", "schema.registry.", "basic.auth.", "bearer.auth.", "proxy.")
#: Options of values alone, as they begin in lower case.
_OF_VALUES: Final = ("value", "onvalue", "onothervalue", "includevalueschema")
#: So many times more records are looked at where none of the first ones has a document.
_MORE_DOCUMENTS: Final = 32
#: What says which schema a key has: a header of newer serializers, or the key's first bytes.
_KEY_FRAME: Final = (
    f"coalesce(get(filter(headers, each -> each.key = '__key_schema_id'), 0).value, substring(key, 1, {FRAME_BYTES}))"
)
#: More schemas than keys of a range have. Damaged keys begin with anything.
_MAX_FRAMES: Final = 1000
#: Types of so few records are looked for in this process.
_FEW_RECORDS: Final = 1000
#: So many changes of keys' columns are fetched at once. A range with more of them is cut in halves first, as micro-batches cut it.
_MAX_RUNS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSchema:
    """How one column of a topic is read: its format and, where the registry has it, the schema.

    Attributes:
        schema_id: the registry's, None where the settings have the schema or the format has none.
        schema: the schema of that id.
    """

    format: str
    schema_id: RegistryId | None = None
    schema: Schema | None = None


def _row_in(envelope: DataType, topic: str) -> DataType:
    """Return the type of the database's row in Debezium's envelope.

    Raises:
        IngestError: it is not Debezium's.
    """
    payload = envelope["payload"].dataType if isinstance(envelope, StructType) and "payload" in envelope.names else None
    for path in (payload, envelope):
        if isinstance(path, StructType) and {"op", "after"} <= set(path.names):
            return path["after"].dataType
    raise IngestError(
        f"mode cdc reads Debezium's envelopes, and the values of topic {topic} have no fields op and after: use mode upsert or "
        "append for it."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A read of typed columns.

    Attributes:
        options: of the source.
        errors: columns with the reason why a record cannot be read.
        readings: what JSON's columns become after the read, by ``value`` and ``key``.
        kinds: of JSON's columns whose types are found in the records.
    """

    options: Mapping[str, str]
    errors: tuple[str, ...]
    readings: Mapping[str, JsonReading]
    kinds: Mapping[str, Kind]

    def with_option(self, name: str, value: str) -> Read:
        """Return the read with an option of the source, in whatever case it was given before."""
        others = {key: text for key, text in self.options.items() if key.lower() != name.lower()}
        return replace(self, options={**others, name: value})


class KeysDifferError(IngestError):
    """Changes of a range have keys of different columns, which are to be landed one after the other."""


class TableColumn(NamedTuple):
    """A column of a table, and what of a typed read it is: a column, or the path of a field in it.

    Attributes:
        type: the part of ``read_type`` that the table stores.
    """

    name: str
    path: tuple[str, ...]
    type: DataType
    read_type: DataType

    @property
    def sql(self) -> str:
        """Return the path as Spark's expression."""
        return ".".join(map(quoted, self.path))


class TopicReader:
    """Reads the topics of an ingest; asks the registry for the newest schema of each read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._registry: Registry | None = registry_of(settings.source_registry_options | settings.kafka_options)
        #: The newest schema of each topic's keys, as the registry has said last; None where it has none.
        self._newest_keys: dict[str, Schema | None] = {}
        #: What has been resolved of contracts, None of those that are Spark's to evaluate.
        self._task_contracts: dict[object, TaskContract | None] = {}
        #: Topics of which a table's condition has failed while another table counted what no table takes.
        self.failed_censuses: set[str] = set()

    def value_schema(self, topic: str, table: Table, schema_id: RegistryId | None = None) -> ValueSchema:
        """Return how values are read from now on: by the subject's newest schema, or by the one of ``schema_id``.

        Raises:
            IngestError: the format is to be the registry's, and the registry has no schema for the topic.
            RegistryError: the registry does not respond.
        """
        if table.format == "registry" and not self._registry:
            raise IngestError(
                f"topic {topic} has no format, and there is no registry: give a registry, or a format such as json."
            )
        subject = self._subject(topic, table, "value")
        if not self.asks_registry(table):
            return ValueSchema(format=table.format)
        assert self._registry is not None
        try:
            if schema_id is None:
                schema_id, schema = RegistryClient(self._registry).latest(subject)
            else:
                schema = RegistryClient(self._registry).by_id(schema_id)
        except DecodeError as error:
            raise IngestError(
                f"topic {topic} has no subject {subject} in the registry ({error}): register its schema, or give the topic a "
                "format such as json, string or binary, in a [[table]] of the settings."
            ) from error
        value_format = format_of_kind(schema.kind) or schema.kind.lower()
        if value_format == "json" and table.has_sql:  # its types are those of the records
            raise IngestError(
                f"topic {topic} has JSON, and a table with where, select or expect needs its columns' types: set format to json, "
                "and declare the columns by schema."
            )
        if table.format not in ("registry", value_format):
            raise IngestError(
                f"topic {topic} has format {table.format}, and its subject {subject} is {value_format}: change one of them."
            )
        return ValueSchema(format=value_format, schema_id=schema_id, schema=schema)

    def asks_registry(self, table: Table) -> bool:
        """Return whether a table's values have a schema of the registry."""
        is_of_registry = table.format in ("registry", *NEED_SCHEMA) and table.schema is None
        return is_of_registry and self._registry is not None

    def columns_text(self, topic: str, table: Table, schema: ValueSchema) -> str:
        """Return the value's columns as DDL, without a Spark session; a sentence where only the values show them.

        Those of ``select`` are its expressions: what they are is Spark's to say.
        """
        if schema.format == "json" and table.schema is None:
            return f"columns are inferred from the first {'changes' if table.mode == 'cdc' else 'records'}"
        if schema.format == "json":  # its types are checked with the settings: here Spark would have to parse them
            return ", ".join(table.select) or table.schema or ""
        value = self._value_type(topic, table, schema)
        if table.select:
            return ", ".join(table.select)
        return column_ddl(value) if isinstance(value, StructType) else f"value {value.simpleString().upper()}"

    def record_types(self, topic: str, table: Table, schema: ValueSchema) -> StructType:
        """Return the types of what a table's expressions see, without a record; without ``key`` where only records tell its
        type."""
        types = StructType([StructField("value", self._value_type(topic, table, schema))])
        key_format = self._key_format(topic, table, schema.format, None)
        if key_format == "json" and table.key_schema is not None:
            types.add("key", DataType.fromDDL(table.key_schema))
        elif key_format is not None and key_format != "json":
            types.add("key", self._source_type(topic, table, "key", key_format))
        kafka = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, headers ARRAY<STRUCT<key STRING, value BINARY>>"
        columns = DataType.fromDDL(kafka)
        assert isinstance(columns, StructType)
        return StructType([*types, *columns, StructField(REASON, StringType())])

    def sql_mistakes(
        self, session: SparkSession, topic: str, table: Table, schema: ValueSchema
    ) -> list[tuple[str, bool]]:
        """Return what is wrong with a table's expressions; see :meth:`Contract.mistakes`."""
        rows = session.createDataFrame([], self.record_types(topic, table, schema))
        return Contract(table, self._settings.prefix).mistakes(rows)

    def selected_columns(self, session: SparkSession, topic: str, table: Table, schema: ValueSchema) -> str:
        """Return the value's columns in the table as DDL, of expressions without a mistake."""
        rows = session.createDataFrame([], self.record_types(topic, table, schema))
        return column_ddl(Contract(table, self._settings.prefix).columns(rows))

    def _value_type(self, topic: str, table: Table, schema: ValueSchema) -> DataType:
        if schema.format == "json":
            return DataType.fromDDL(table.schema or "")
        value = self._source_type(topic, table, "value", schema.format)
        name = Contract(table, self._settings.prefix).single_type(value)
        if name is not None and isinstance(value, StructType):
            return value[name].dataType
        return _row_in(value, topic) if table.mode == "cdc" else value

    def _source_type(self, topic: str, table: Table, column: str, column_format: str) -> DataType:
        """Return the type that the source gives to a column, by the newest schema."""
        options = {**self._settings.kafka_options, "timesAsNumbers": "true", **_options_of(table)}
        if column_format in NEED_SCHEMA:
            options = self._settings.source_registry_options | options
            options.setdefault("connectTypes", connect_types(table, None, is_new=True))
        options |= {"subscribe": topic, f"{column}Format": column_format, "columns": column}
        text = table.schema if column == "value" else table.key_schema
        if text is not None:
            options[f"{column}Schema"] = text
        if column == "key":  # what is said of values has no effect without their format
            options = {name: text for name, text in options.items() if not name.lower().startswith(_OF_VALUES)}
        schema = PykafkaWireDataSource(options).schema()
        assert isinstance(schema, StructType)
        return schema[column].dataType

    def _key_format(self, topic: str, table: Table, value_format: str, held: DataType | None) -> str | None:
        """Return None for keys that are JSON if they look like it: of a new table of changes in JSON."""
        if table.key_format is not None:
            return table.key_format
        if (registered := self._registered_key_format(topic, table, held)) is not None:
            return registered
        if table.mode == "append" or value_format != "json" or isinstance(held, BinaryType):
            return "binary"
        return None if held is None else "json"

    def _registered_key_format(self, topic: str, table: Table, held: DataType | None) -> str | None:
        """Return the format of the newest schema of keys; None where the registry has none.

        Raises:
            RegistryError: it does not say it, now or earlier, and the table's keys are not bytes.
        """
        # AWS Glue's serializers name the schemas of keys and values alike: a schema of that name says nothing of keys.
        if self._registry is None or self._registry.is_glue:
            return None
        try:
            _, self._newest_keys[topic] = RegistryClient(self._registry).latest(self._subject(topic, table, "key"))
        except DecodeError:
            self._newest_keys[topic] = None
        except RegistryError:  # no trouble of a topic whose values do not need the registry
            if topic not in self._newest_keys and not isinstance(held, BinaryType):
                raise
        schema = self._newest_keys.get(topic)
        return None if schema is None else format_of_kind(schema.kind) or "binary"

    def _subject(self, topic: str, table: Table, column: Any) -> str:
        strategy = table.options.get(f"{column}.subject.name.strategy", "TopicNameStrategy")
        record = table.options.get(f"{column}Message")
        if record is None and column == "value" and table.types and table.types != ("*",):
            record = table.types[0]
        return table.options.get(f"{column}Subject") or subject_of(
            strategy, topic, column, record_name=record, registry=self._registry
        )

    def options(self, part: TopicRange, table: Table) -> dict[str, str]:
        """Return the options of every read of a range; whether lost records fail it is the table's to say."""
        of_table = {name.lower(): value for name, value in table.options.items()}
        return {
            **self._settings.kafka_options,
            "failOnDataLoss": of_table.get("failondataloss", "true"),
            **part.options(self._settings.checkpoint),
        }

    def typed_options(self, part: TopicRange, table: Table, *, value_format: str, key_format: str) -> dict[str, str]:
        """Return the options of a read of typed columns, but for their schemas.

        The registry is among them only where it is used: the source warns of one that has no effect, here in every micro-batch.
        """
        options = self.options(part, table)
        if {value_format, key_format} & NEED_SCHEMA or any(
            option.lower().startswith(_OF_REGISTRY) for option in table.options
        ):
            options |= self._settings.source_registry_options
        # Delta stores neither TIME nor intervals.
        return options | {
            "timesAsNumbers": "true",
            **_options_of(table),
            "valueFormat": value_format,
            "keyFormat": key_format,
        }

    def plan(
        self,
        session: SparkSession,
        part: TopicRange,
        table: Table,
        schema: ValueSchema,
        known: KnownTable | None,
        *,
        is_landed: bool = False,
    ) -> Read:
        """Return how a range is read, typed.

        Args:
            known: the table, None for a new one; an inferred type of JSON only grows from its columns.
            is_landed: the range is to be merged into the table.

        Raises:
            KeysDifferError: the range is to be merged, and its changes have keys of different columns.
        """
        held = self._held(known, table)
        key_format = self._key_format(part.topic, table, schema.format, held["key"])
        formats = {"value": schema.format, "key": key_format or "json"}
        texts = {"value": table.schema, "key": table.key_schema}
        kinds: dict[str, Kind] = {
            name: "change" if name == "value" and table.mode == "cdc" else "row" if name == "value" else "key"
            for name, column_format in formats.items()
            if column_format == "json" and (texts[name] is None or _is_surveyed(table, name))
        }
        surveys = self._surveys(session, part, table, kinds)
        if is_landed and "key" in surveys:
            value = row_type(surveys["value"], kinds["value"], held["value"]) if "value" in surveys else held["value"]
            value = (
                DataType.fromDDL(texts["value"]) if schema.format == "json" and texts["value"] is not None else value
            )
            self._check_keys(surveys["key"].names, part, table, value)
            self._warn_of_other_keys(surveys["key"].names, held["key"], part, table, value)
        if key_format is None and table.key_schema is None and not _are_json_keys(surveys["key"], table):
            formats["key"] = "binary"
            kinds.pop("key")
        options = self.typed_options(part, table, value_format=schema.format, key_format=formats["key"])
        errors: list[str] = []
        readings: dict[str, JsonReading] = {}
        for name, column_format in formats.items():
            if column_format == "binary":
                continue
            options[f"on{name.capitalize()}Error"] = "divert"
            if name == "key" and column_format == "avro" and texts["key"] is None:
                options |= self._key_schema(session, part, table, is_landed=is_landed)
            errors.append(f"{name}Error")
            text = texts[name]
            if name in kinds:
                data_type = row_type(surveys[name], kinds[name], held[name]) if text is None else DataType.fromDDL(text)
                # Of an older version's table nothing says which columns are a user's: only those of the documents are written.
                is_owned = known is None or COLUMNS_PROPERTY in known.properties()
                is_whole = text is not None or (table.mode != "append" and is_owned)
                if kinds[name] == "key" or not is_whole:
                    data_type = without_absent(data_type, surveys[name], kinds[name])
                read_as = reading(surveys[name], kinds[name], data_type, ENVELOPE_FIELDS, is_declared=text is not None)
                options[f"{name}Schema"], readings[name] = read_as.ddl, read_as
            elif text is not None:
                if column_format == "json" and table.mode == "cdc":
                    text = envelope_ddl(text, name)
                elif column_format == "json":
                    text = with_flattened(text) if table.mode == "upsert" and name == "value" else text
                    if _has_room_for_payload(text) and self._is_enveloped(session, part, table, name):
                        text, readings[name] = f"{text}, payload STRUCT<{text}>", declared_payload(text)
                options[f"{name}Schema"] = text
        if schema.schema is not None and schema.format != "json":
            made_with = None if known is None else known.properties().get(CONNECT_TYPES_PROPERTY)
            options = {"connectTypes": connect_types(table, made_with, is_new=known is None)} | options
            # Records of several types are read by the newest schema of each.
            text = None if table.types else self._reader_schema(part.topic, table, schema.schema, held["value"])
            options |= {} if text is None else {"valueSchema": text}
        if self._settings.headers or Contract(table, self._settings.prefix).needs_headers:
            options["includeHeaders"] = "true"
        return Read(options=options, errors=tuple(errors), readings=readings, kinds=kinds)

    def _check_keys(
        self, names: Iterable[tuple[str, ...]], part: TopicRange, table: Table, value: DataType | None
    ) -> None:
        """Raise KeysDifferError: a primary key loses or gets columns in a range, which its rows of the type ``value`` have, too.

        Other keys of different columns are of different rows.
        """
        columns = {*value.names} if isinstance(value, StructType) else set()
        declared = _declared_key(table)
        kept = {tuple(name for name in fields if not declared or name.lower() in declared) for fields in names}
        pairs = [({*one}, {*other}) for one in kept for other in kept if {*one} < {*other}]
        if any(more - less <= columns for less, more in pairs) or (table.mode == "cdc" and len(kept) > 1):
            raise KeysDifferError(f"the keys of topic {part.topic} have different columns: {sorted(kept)[:2]}")

    def _warn_of_other_keys(
        self,
        names: Iterable[tuple[str, ...]],
        held: DataType | None,
        part: TopicRange,
        table: Table,
        value: DataType | None,
    ) -> None:
        """Warn, once for each topic, of keys with columns that neither the table's keys nor its rows have, or without one of
        these: nothing tells whether they are of the same rows."""
        in_rows = {name.lower() for name in value.names} if isinstance(value, StructType) else set()
        declared = _declared_key(table)
        seen = {
            frozenset(name for name in map(str.lower, fields) if not declared or name in declared) for fields in names
        }
        known = (
            [frozenset(map(str.lower, held.names))] if isinstance(held, StructType) else sorted(seen, key=sorted)[:1]
        )
        for fields in sorted(seen, key=sorted):
            if known and (fields ^ known[0]) - in_rows and is_first(self._settings.checkpoint, f"keys of {part.topic}"):
                _log.warning(
                    "Topic %s: keys have the columns %s, and keys before them %s. The rows have no such column, so these are other "
                    "rows to the table: the older ones stay beside them. If they are the same rows, land the topic in a new table, "
                    "or delete the rows under the older keys.",
                    part.topic,
                    ", ".join(sorted(fields)),
                    ", ".join(sorted(known[0])),
                )

    def _key_schemas(self, topic: str, table: Table) -> KeySchemas | None:
        """Return Avro's schemas of a topic's keys; None where keys are of another format, or one schema is enough."""
        if self._registry is None or self._registry.is_glue or table.key_format not in (None, "avro"):
            return None
        return None if table.key_schema is not None else key_schemas(self._registry, self._subject(topic, table, "key"))

    def _key_schema(self, session: SparkSession, part: TopicRange, table: Table, *, is_landed: bool) -> dict[str, str]:
        """Return the option by which a range's keys are read that are not read by the registry's newest schema as it is.

        Raises:
            KeysDifferError: as :meth:`plan`.
        """
        schemas = self._key_schemas(part.topic, table) if table.mode != "append" else None
        if schemas is not None:
            _, by_frame = self._framed_keys(session, part, table, schemas)
            names = sorted({*by_frame.values()})
            if is_landed and len(names) > 1:
                raise KeysDifferError(f"the keys of topic {part.topic} have different columns: {names[:2]}")
            if names:
                return {"keySchema": schemas.whole if len(names) > 1 else schemas.texts[names[0]]}
        newest = self._newest_keys.get(part.topic)
        text = None if newest is None or self._registry is None else symbols_text(self._registry, newest)
        return {} if text is None else {"keySchema": text}

    def _framed_keys(
        self, session: SparkSession, part: TopicRange, table: Table, schemas: KeySchemas
    ) -> tuple[DataFrame, dict[bytes, tuple[str, ...]]]:
        """Return ``partition``, ``offset``, ``timestamp`` and ``frame`` of a range's records, and the names of the fields by
        frame."""
        columns = "partition,offset,timestamp,key,headers"
        rows = session.read.format("pykafka-wire").options(**self.options(part, table), columns=columns).load()
        framed = rows.select("partition", "offset", "timestamp", F.expr(_KEY_FRAME).alias("frame"))
        counted = framed.where("frame IS NOT NULL").groupBy("frame").count().orderBy(F.desc("count"))
        return framed, schemas.names(bytes(row.frame) for row in counted.limit(_MAX_FRAMES).collect())

    def _key_names(self, session: SparkSession, part: TopicRange, table: Table) -> DataFrame:
        """Return ``partition``, ``offset`` and ``timestamp`` of records whose keys have fields, and ``names``, those of the
        fields."""
        schemas = self._key_schemas(part.topic, table)
        if schemas is None:
            named = key_names(session.read.format("pykafka-wire").options(**self.options(part, table)).load())
            declared = _declared_key(table)
            if not declared:
                return named
            return named.withColumn("names", F.filter("names", lambda name: F.lower(name).isin(*declared)))
        framed, by_frame = self._framed_keys(session, part, table, schemas)
        names = F.lit(None).cast("array<string>")
        for frame, columns in by_frame.items():
            names = F.when(F.col("frame") == F.lit(frame), F.array(*map(F.lit, columns))).otherwise(names)
        return framed.select("partition", "offset", "timestamp", names.alias("names")).where("names IS NOT NULL")

    def parts_by_key(self, session: SparkSession, part: TopicRange, table: Table) -> list[TopicRange]:
        """Cut a range so that the keys of each part have the same columns: parts are landed one after the other."""
        in_order = Window.partitionBy("partition").orderBy("offset")
        named = self._key_names(session, part, table).withColumn("before", F.lag("names").over(in_order))
        key_changes = named.where(~F.col("names").eqNullSafe(F.col("before"))).orderBy("partition", "offset")
        runs: list[Any] = key_changes.limit(_MAX_RUNS + 1).collect()
        if len(runs) > _MAX_RUNS and part.n_offsets > 1:
            return [piece for half in part.halves() for piece in self.parts_by_key(session, half, table)]
        return parts_of_runs(part, runs)

    def read(
        self,
        session: SparkSession,
        part: TopicRange,
        table: Table,
        schema: ValueSchema,
        known: KnownTable | None,
        *,
        is_landed: bool = False,
        with_headers: bool = False,
        census: Census | None = None,
    ) -> DataFrame:
        """Return what :meth:`changes` does.

        Args:
            known, is_landed: as :meth:`plan`'s.
        """
        read = self.plan(session, part, table, schema, known, is_landed=is_landed)
        return self.changes(session, read, table, schema, with_headers=with_headers, census=census)

    def changes(
        self,
        session: SparkSession,
        read: Read,
        table: Table,
        schema: ValueSchema,
        *,
        with_headers: bool = False,
        census: Census | None = None,
    ) -> DataFrame:
        """Return what :meth:`rows` does, with Kafka's headers where they are asked for; changes of rows unless the mode is append.

        Without the records that the table does not take, in mode append; see :class:`.contracts.Contract`.
        """
        with_headers = with_headers or (census is not None and self.needs_headers(census.tables))
        contract = Contract(table, self._settings.prefix)
        rows = self.rows(session, read, with_headers=with_headers)
        if table.mode == "append":
            return self.records(rows, table, census)
        changed = changes(contract.unwrapped(rows), table)
        if table.schema is not None and schema.format == "json":
            changed = without_flattened(changed, table.schema)
        return contract.changes(changed, census)

    def needs_headers(self, tables: Iterable[Table]) -> bool:
        """Return whether an expression of one of the tables may name the records' headers."""
        return any(Contract(table, self._settings.prefix).needs_headers for table in tables)

    def census_tables(self, destination: Destination) -> Sequence[Table]:
        """Return the tables of a topic, where this one counts the records that none of them takes, and its own read shows them.

        The first table counts them.
        """
        destinations = self._settings.destinations(destination.topic)
        tables = [other.table for other in destinations]
        is_first = destination.name == destinations[0].name and destination.topic not in self.failed_censuses
        return tables if is_first and tables[0].is_part and read_alike(tables) else ()

    def task_contract(
        self, session: SparkSession, read: StructType, table: Table, census: Sequence[Table]
    ) -> TaskContract | None:
        """Return what a table's contract is in tasks; None where Spark has to evaluate it, or knows what is wrong.

        Args:
            read: the source's columns.
            census: as :meth:`Contract.in_tasks`'.
        """
        texts = [repr((one.where, one.types, one.select, dict(one.expect))) for one in (table, *census)]
        key = (*texts, read.json())
        if key not in self._task_contracts:
            try:
                self._task_contracts[key] = Contract(table, self._settings.prefix).in_tasks(session, read, census)
            except (AnalysisException, ParseException, IngestError):  # which Spark's evaluation reports
                return None
            except Exception as error:  # some platforms do not let Python look at Spark's trees
                _log.debug("Spark evaluates what table %s takes: %r", table.name or table.topic, error)
                self._task_contracts[key] = None
        return self._task_contracts[key]

    def needs_spark(self, session: SparkSession, read: Read, destination: Destination) -> bool:
        """Return whether Spark makes the rows of a table of a read."""
        if read.readings:
            return True
        schema, _ = open_source(read.options)
        return self.task_contract(session, schema, destination.table, self.census_tables(destination)) is None

    def records(self, rows: DataFrame, table: Table, census: Census | None = None) -> DataFrame:
        """Return those of a topic's :meth:`rows` that a table takes, in mode append."""
        contract = Contract(table, self._settings.prefix)
        return contract.records(contract.unwrapped(rows), census)

    def rows(self, session: SparkSession, read: Read, *, with_headers: bool = False) -> DataFrame:
        """Return the typed columns ``value`` and ``key``, Kafka's columns, and :data:`REASON`."""
        readings = read.readings
        errors: list[Column] = [F.col(name) for name in read.errors]
        more = {"includeHeaders": "true"} if with_headers else {}
        rows = session.read.format("pykafka-wire").options(**{**read.options, **more}).load()
        for name, read_as in readings.items():
            value, reason = read_as.row(name)
            if read.kinds.get(name) == "change":
                value = changed_row(name, rows.schema[name].dataType, value)
            rows = rows.withColumn(f"{name}Value", value)
            if reason is not None:
                errors.append(F.when(F.col(name).isNotNull(), reason))
        reason = F.coalesce(*errors) if errors else F.lit(None).cast("string")
        rows = rows.withColumn(REASON, reason).drop("valueError", "keyError")
        for name in readings:
            rows = rows.withColumn(name, F.col(f"{name}Value")).drop(f"{name}Value")
        return rows

    def untaken(self, session: SparkSession, part: TopicRange, destinations: Sequence[Destination]) -> DataFrame:
        """Return ``partition`` and ``offset`` of the records of a range that none of a topic's tables takes."""
        taken = []
        for destination in destinations:
            rows = self.read(session, part, destination.table, self.value_schema(part.topic, destination.table), None)
            taken.append(rows if destination.table.mode == "append" or TAKEN not in rows.columns else rows.where(TAKEN))
        return untaken(self.raw(session, part, destinations[0].table), taken)

    def _is_enveloped(self, session: SparkSession, part: TopicRange, table: Table, column: str) -> bool:
        """Return whether a document of a range is in Kafka Connect's envelope.

        All are looked at where rows replace each other. A converter's setting is that of all its records: where rows are added, the
        first and the last document of each partition show it.
        """
        if table.mode == "append":
            return any(
                is_enveloped(document)
                for at_end in (False, True)
                for document in self._documents(part, table, column, at_end=at_end)
            )
        kind: Kind = "row" if column == "value" else "key"
        columns = ",".join((column, *PLACE_COLUMNS))
        rows = session.read.format("pykafka-wire").options(**self.options(part, table), columns=columns).load()
        rows = rows.where(F.expr(f"contains(CAST({column} AS STRING), '\"payload\"')"))
        return survey(rows, {column: kind})[column].n_enveloped > 0

    def _documents(self, part: TopicRange, table: Table, column: str, *, at_end: bool) -> Iterator[bytes]:
        """Yield some documents of each partition from one end of a range on: tombstones and offsets without a record have none."""
        unread, n = {p for p, end in part.end.items() if end > part.start[p]}, 1
        while unread:
            start = {p: max(part.start[p], part.end[p] - n) if at_end else part.start[p] for p in unread}
            end = {p: part.end[p] if at_end else min(part.end[p], part.start[p] + n) for p in unread}
            options = self.options(replace(part, start=start, end=end), table)
            for batch in read_topic(options, columns=["partition", column]):
                for partition, document in zip(*(batch.column(i).to_pylist() for i in range(2)), strict=True):
                    if document is not None:
                        unread.discard(partition)
                        yield document
            unread = {p for p in unread if part.end[p] - part.start[p] > n}
            n *= _MORE_DOCUMENTS

    def _surveys(
        self, session: SparkSession, part: TopicRange, table: Table, kinds: dict[str, Kind]
    ) -> dict[str, JsonSurvey]:
        """Return what the JSON texts of all records of a range are."""
        if not kinds:
            return {}
        options = {**self.options(part, table), "columns": ",".join((*kinds, *PLACE_COLUMNS))}
        if part.n_offsets <= _FEW_RECORDS:  # a Spark job takes longer
            return survey_here(_read_here(options), kinds)
        return survey(session.read.format("pykafka-wire").options(**options).load(), kinds)

    def _held(self, known: KnownTable | None, table: Table) -> dict[str, DataType | None]:
        """Return the types that a table has already of values and keys."""
        if known is None:
            return {"value": None, "key": None}
        prefix = self._settings.prefix
        columns = known.schema.fields if table.mode == "append" else known.topic_columns()
        topic_columns = [column for column in columns if not column.name.startswith(prefix)]
        keys = [column.dataType for column in columns if column.name == prefix + "key"]
        # Selected columns are not those of the values.
        return {
            "value": StructType(topic_columns) if topic_columns and not table.select else None,
            "key": keys[0] if keys else None,
        }

    def _reader_schema(self, topic: str, table: Table, schema: Schema, held: DataType | None) -> str | None:
        """Return the text of the schema that values are read by, with the removed fields that the table has."""
        assert self._registry is not None, "the schema is the registry's"
        subject = self._subject(topic, table, "value")
        return schema_text(self._registry, subject, schema, table, held if isinstance(held, StructType) else None)

    def raw(self, session: SparkSession, part: TopicRange, table: Table) -> DataFrame:
        """Return the records as bytes, with their headers."""
        options = {**self.options(part, table), "includeHeaders": "true"}
        return session.read.format("pykafka-wire").options(**options).load()

    def table_columns(self, rows: StructType) -> list[TableColumn]:
        """Return the columns of a table, of typed rows; not those that hold nothing, such as records without fields.

        Raises:
            UnfitRecordsError: two columns would have one name.
        """
        value, prefix = rows["value"].dataType, self._settings.prefix
        names = (*KAFKA_COLUMNS, *(("headers",) if self._settings.headers else ()))
        read: list[tuple[str, tuple[str, ...], DataType]] = [("value", ("value",), value)]
        if isinstance(value, StructType):
            read = [(field.name, ("value", field.name), field.dataType) for field in value]
        columns = []
        for name, path, data_type in (*read, *((prefix + name, (name,), rows[name].dataType) for name in names)):
            stored = storable_type(data_type)
            if stored != data_type and data_type != UNTYPED:
                self._warn_of_nothing(name, data_type)
            if stored is not None:
                columns.append(TableColumn(name, path, stored, data_type))
        fields = [StructField(column.name, column.type) for column in columns]
        two = clash(StructType([*fields, StructField(DELETE, BooleanType())]))
        if two is not None:
            raise UnfitRecordsError(
                f"columns {two} of the table would have one name, since Delta does not tell upper from lower case. Kafka's columns "
                f"begin with {prefix!r}, which prefix changes; the fields of JSON values are chosen by schema."
            )
        return columns

    def table_rows(self, rows: DataFrame, *others: str) -> DataFrame:
        """Return the columns of a table, of rows that could be read, and other columns as they are.

        Raises:
            UnfitRecordsError: two columns would have one name.
        """
        return rows.select(
            *(
                storable(F.col(column.sql), column.read_type).alias(column.name)
                for column in self.table_columns(rows.schema)
            ),
            *others,
        )

    def _warn_of_nothing(self, name: str, data_type: DataType) -> None:
        for place in places_of_nothing(data_type, name):
            if is_first(self._settings.checkpoint, f"{place} holds nothing"):
                _log.warning(
                    "Field %s has records without fields: no table stores these, and it is left out. It lands as soon as its type "
                    "has a field.",
                    place,
                )

    def empty_table(self) -> str:
        """Return the columns of a table of which no value is known yet, as DDL."""
        prefix = self._settings.prefix
        types = {"topic": "string", "partition": "int", "offset": "bigint", "timestamp": "timestamp"}
        return ", ".join(f"{quoted(prefix + name)} {kind}" for name, kind in types.items())


def open_source(options: Mapping[str, str]) -> tuple[StructType, DataSourceReader]:
    """Return the schema of a read of these options, and what reads it."""
    source = PykafkaWireDataSource(dict(options))
    schema = source.schema()
    assert isinstance(schema, StructType), "the options name columns or formats"
    return schema, source.reader(schema)


def _read_here(options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield what a read has, which this process reads."""
    _, reader = open_source(options)
    for partition in reader.partitions():
        yield from reader.read(partition)


def _declared_key(table: Table) -> list[str]:
    """Return the names of a key's declared columns in lower case; empty where none are declared."""
    text = table.key_schema
    return sorted(names_of(text)) if text is not None and is_of_fields(text) else []


def _is_surveyed(table: Table, column: str) -> bool:
    """Return whether the documents show which of their declared columns they have, and where: keys of changes.

    One column has no place beside another, and nothing can be lacking, unless it has the name of a field of the envelope.
    """
    names = _declared_key(table)
    if table.mode == "append" or column != "key" or not names:
        return False
    return len(names) > 1 or (table.mode == "cdc" and "payload" in names)


def _options_of(table: Table) -> dict[str, str]:
    """Return a table's options of the source; records of types that it does not name are not its own."""
    of_types = {"valueTypes": ", ".join(table.types), "onOtherValueType": "skip"} if table.types else {}
    return {**of_types, **table.options}


def _has_room_for_payload(columns: str) -> bool:
    """Return whether declared columns may stand in Connect's envelope: they are fields, and none of them is its own."""
    return is_of_fields(columns) and "payload" not in names_of(columns)


def _are_json_keys(surveyed: JsonSurvey, table: Table) -> bool:
    """Return whether keys of which nothing is said are JSON: a row's columns of Debezium's, or what Connect has put in its
    envelope."""
    if table.mode != "cdc":
        return surveyed.n_enveloped > 0
    return surveyed.n_objects > 0 or not (surveyed.n_plain or surveyed.n_others)
