"""The connector's own options: each with its name, what it applies to, its parser, its default and its meaning.

:mod:`pykafka_wire.options.names` checks names by it, :mod:`pykafka_wire.options.parsing` reads values by it, and docs/options.md
shows it.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import Final

from pykafka_wire.checkpoints.reference import parse_reference
from pykafka_wire.columns.value_formats import ValueFormat
from pykafka_wire.field_selection import WHOLE, parse_columns
from pykafka_wire.options.option import (
    FieldChoices,
    Option,
    Section,
    TopicMinimum,
    boolean,
    by_field,
    cache_ttl_ms,
    choice,
    column_format,
    duration_ms,
    positive,
    regular_expression,
    schema_id,
    schema_texts,
    task_metrics,
    text,
    topic_minimums,
    topic_names,
    type_names,
)
from pykafka_wire.options.starting_offsets import (
    OffsetSpec,
    parse_offset_spec,
    parse_partitions,
    parse_timestamp,
    parse_timestamp_spec,
)
from pykafka_wire.registry_settings import REGISTRY_SETTINGS
from pykafka_wire.wire.settings.documentation import mark_experimental
from pykafka_wire.wire.topic_partitions import TopicPartition

# fmt: off

_TOPICS = Section("Brokers and topics")
KAFKA_BOOTSTRAP_SERVERS = _TOPICS.option("kafka.bootstrap.servers", "SBW", text, None, "`host:port,host:port`; tried in turn until one responds", unset="required")
SUBSCRIBE: Option[tuple[str, ...]] = _TOPICS.option("subscribe", "SB", topic_names, (), "topics, separated by commas", unset="one of three")
SUBSCRIBE_PATTERN = _TOPICS.option("subscribePattern", "SB", regular_expression, "", "a regular expression that a part of a topic's name must match; internal topics never match", unset="one of three")
ASSIGN: Option[tuple[TopicPartition, ...]] = _TOPICS.option("assign", "SB", parse_partitions, (), 'topic-partitions as JSON, `{"topic":[0,1]}`', unset="one of three")

_BOUNDS = Section("Start and end")
STARTING_OFFSETS = _BOUNDS.option("startingOffsets", "SB", parse_offset_spec, OffsetSpec(kind="latest"), '`earliest`, `latest` (stream only), `group` (the committed offsets of `kafka.group.id`), `checkpoint:PATH` (where another query\'s checkpoint stands, see [checkpoints](checkpoints.md)), `table:PATH` or `table_position(spark, TABLE)` ([where a table ends](checkpoints.md#start-where-a-table-ends)), or JSON `{"topic":{"0":23,"1":-2}}` naming every partition (-2 earliest, -1 latest); used at a query\'s first start only', in_batch=OffsetSpec(kind="earliest"))
STARTING_OFFSETS_BY_TIMESTAMP = _BOUNDS.option("startingOffsetsByTimestamp", "SB", parse_timestamp_spec, None, 'JSON `{"topic":{"0":1700000000000,"1":"-10m"}}` naming every partition, each time as in `startingTimestamp`; overrides `startingOffsets`')
STARTING_TIMESTAMP = _BOUNDS.option("startingTimestamp", "SB", parse_timestamp, None, "one timestamp for all: ms since the epoch, ISO-8601, or relative such as `-10m`; overrides the two above")
STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY = _BOUNDS.option("startingOffsetsByTimestampStrategy", "SB", choice("error", "latest"), "error", "`error` or `latest`: where to start if a partition has no record at or after the timestamp")
STARTING_OFFSETS_BY_GROUP_STRATEGY = _BOUNDS.option("startingOffsetsByGroupStrategy", "SB", choice("error", "earliest", "latest"), "error", "`error`, `earliest` or `latest`: where to start if the group has committed no offset")
ENDING_OFFSETS = _BOUNDS.option("endingOffsets", "B", partial(parse_offset_spec, words=("latest",)), OffsetSpec(kind="latest"), "`latest`, `checkpoint:PATH`, or JSON as in `startingOffsets` (-1 latest)")
ENDING_OFFSETS_BY_TIMESTAMP = _BOUNDS.option("endingOffsetsByTimestamp", "B", parse_timestamp_spec, None, "as `startingOffsetsByTimestamp`; latest if no record matches")
ENDING_TIMESTAMP = _BOUNDS.option("endingTimestamp", "B", parse_timestamp, None, "as `startingTimestamp`; latest if no record matches")
MICRO_BATCH = _BOUNDS.option("microBatch", "B", partial(parse_reference, needs_batch=True), None, "`PATH#12`: read what micro-batch 12 of the query with the checkpoint in PATH has read, of `subscribe`'s topics or of all; see [checkpoints](checkpoints.md#one-micro-batch)")

_COLUMNS = Section("Columns and rows")
INCLUDE_HEADERS = _COLUMNS.option("includeHeaders", "SB", boolean, False, "adds the column `headers`")
COLUMNS = _COLUMNS.option("columns", "SB", parse_columns, WHOLE, "the columns to read, and fields of them, such as `value.id, value.country, offset`: nothing else is decoded; `headers` needs no `includeHeaders` then. `.schema(…)` does the same with types", unset="all")
FILTER_PUSHDOWN = _COLUMNS.option("filterPushdown", "B", boolean, False, "read only what filters on topic, partition, offset and timestamp allow; also needs `spark.sql.python.filterPushdown.enabled`; see [Filters](read.md#filters)", experimental=True)

_VALUES = Section("Keys and values")
VALUE_FORMAT: Option[ValueFormat] = _VALUES.option("valueFormat", "SBW", column_format, "binary", "`binary`, `string` (UTF-8), `json`, `avro` or `protobuf`: what the column `value` is decoded from, or encoded as")
VALUE_SCHEMA = _VALUES.option("valueSchema", "SBW", text, None, "for `json` a Spark DDL such as `id BIGINT, at TIMESTAMP`, or `VARIANT`, needed where neither `.schema(…)` nor a registry gives the type; for `avro` and `protobuf` the reader's schema, or without a registry the schema of the values themselves; for a write the schema to write with, which the subject must have", unset="the subject's newest version")
VALUE_READER_SCHEMA_ID: Option[int | uuid.UUID | None] = _VALUES.option("valueReaderSchemaId", "SB", schema_id, None, "for `avro` and `protobuf` with a registry: the registry's id of the reader's schema: a number, or a GUID or UUID", unset="the subject's newest version")
VALUE_SUBJECT = _VALUES.option("valueSubject", "SBW", text, None, "the registry's subject that has the schema", unset="by `value.subject.name.strategy`")
VALUE_MESSAGE = _VALUES.option("valueMessage", "SBW", text, None, "for `protobuf`: the message's name, where the schema has several", unset="the first one")
ON_VALUE_ERROR = _VALUES.option("onValueError", "SB", choice("fail", "null", "divert"), "fail", "what to do with a value that cannot be decoded: `fail`, `null`, or `divert`, which adds a string column `valueError` with the reason")
VALUE_TYPES: Option[tuple[str, ...]] = _VALUES.option("valueTypes", "SB", type_names, (), "for topics of several record types: their full names, separated by commas, or `*` for all that the registry names; `value` is a struct with a field for each, see [several types](typed-topics.md#several-types-in-one-topic)")
ON_OTHER_VALUE_TYPE = _VALUES.option("onOtherValueType", "SB", choice("error", "null", "skip"), "error", "what to do with a value of a type that `valueTypes` does not name: `error`, on which `onValueError` decides, `null`, or `skip`, which leaves the record out")
INCLUDE_VALUE_SCHEMA = _VALUES.option("includeValueSchema", "SB", boolean, False, "for `avro` and `protobuf` with a registry: adds the string columns `valueSchemaId`, the id, GUID or UUID in the value's frame, and `valueSchemaName`, the full name of its record or message")
VALUE_TIME_UNIT: Option[FieldChoices] = _VALUES.option("valueTimeUnit", "SB", by_field("days", "seconds", "milliseconds", "microseconds", "nanoseconds"), (), "for `json`: what numbers count that stand under `TIMESTAMP`, `TIMESTAMP_NTZ` or `DATE`: `seconds`, `milliseconds`, `microseconds`, `nanoseconds` or `days`; for all fields, and for some by name, as in `days, microseconds, created=milliseconds` ([numbers as times](json-types.md#numbers-as-times))", unset="such a number is an error")
VALUE_DECIMAL_FORMAT: Option[FieldChoices] = _VALUES.option("valueDecimalFormat", "SB", by_field("numeric", "base64"), (), "for `json`: what texts under `DECIMAL` are: `numeric`, digits, or `base64`, as Kafka Connect and Debezium write decimals; for all fields, and for some by name, as in `base64, price=numeric`", unset="a text that may be both is an error")
VALUE_CONNECT_ENVELOPE = _VALUES.option("valueConnectEnvelope", "SB", choice("keep", "unwrap"), "keep", "for `json`: what to do with documents in the envelope of Kafka Connect's converter, `{\"schema\": …, \"payload\": …}`: `keep` reads them as they are; `unwrap` reads the payload in place of the document, and all other documents as they are ([Connect's envelope](json-types.md#connects-envelope))", experimental=True)
VALUE_CONNECT_SCHEMAS: Option[tuple[str | None, ...]] = _VALUES.option("valueConnectSchemas", "SB", schema_texts, (), "for `json`: a JSON array of the texts of Connect's schemas, and of null: payloads of each schema have a field of their own: the type is `STRUCT<document: …, schema_0: STRUCT<payload: …>, schema_1: …>`, of which one field is not null ([Connect's envelope](json-types.md#connects-envelope))", experimental=True)
KEY_FORMAT: Option[ValueFormat] = _VALUES.option("keyFormat", "SBW", column_format, "binary", "as `valueFormat`, for the column `key`")
KEY_SCHEMA = _VALUES.option("keySchema", "SBW", text, None, "as `valueSchema`", unset="the subject's newest version")
KEY_READER_SCHEMA_ID: Option[int | uuid.UUID | None] = _VALUES.option("keyReaderSchemaId", "SB", schema_id, None, "as `valueReaderSchemaId`", unset="the subject's newest version")
KEY_SUBJECT = _VALUES.option("keySubject", "SBW", text, None, "as `valueSubject`", unset="by `key.subject.name.strategy`")
KEY_MESSAGE = _VALUES.option("keyMessage", "SBW", text, None, "as `valueMessage`", unset="the first one")
ON_KEY_ERROR = _VALUES.option("onKeyError", "SB", choice("fail", "null", "divert"), "fail", "as `onValueError`; `divert` adds the column `keyError`")
KEY_TYPES: Option[tuple[str, ...]] = _VALUES.option("keyTypes", "SB", type_names, (), "as `valueTypes`")
ON_OTHER_KEY_TYPE = _VALUES.option("onOtherKeyType", "SB", choice("error", "null", "skip"), "error", "as `onOtherValueType`")
KEY_TIME_UNIT: Option[FieldChoices] = _VALUES.option("keyTimeUnit", "SB", VALUE_TIME_UNIT.parse, (), "as `valueTimeUnit`", unset="such a number is an error")
KEY_DECIMAL_FORMAT: Option[FieldChoices] = _VALUES.option("keyDecimalFormat", "SB", VALUE_DECIMAL_FORMAT.parse, (), "as `valueDecimalFormat`", unset="a text that may be both is an error")
KEY_CONNECT_ENVELOPE = _VALUES.option("keyConnectEnvelope", "SB", choice("keep", "unwrap"), "keep", "as `valueConnectEnvelope`", experimental=True)
KEY_CONNECT_SCHEMAS: Option[tuple[str | None, ...]] = _VALUES.option("keyConnectSchemas", "SB", schema_texts, (), "as `valueConnectSchemas`", experimental=True)
CONNECT_TYPES = _VALUES.option("connectTypes", "SB", choice("false", "true", "variant"), "false", "`true`: keys and values of Kafka Connect's and Debezium's converters have the types that a schema's `connect.name` says, such as `DATE` and `TIMESTAMP_NTZ` ([the table](avro-types.md#types-of-kafka-connect-and-debezium)), for `avro`, and for `json` of a registry's JSON Schema; `variant`: and Debezium's JSON is `VARIANT`")
AVRO_UNION_FIELDS = _VALUES.option("avroUnionFields", "SB", choice("type", "number"), "type", "the fields for the branches of an Avro union: `type`, named by their types (`member_string`), which stay what they are when a branch is added; or `number`, as `from_avro` names them by default (`member0`)")
LARGE_DECIMALS = _VALUES.option("largeDecimals", "SB", choice("decimal", "string"), "decimal", "for `avro`: decimals of more than 38 digits in the schema are `DECIMAL(38, scale)`, and a number that does not fit is an error of its value; or `STRING`")
VARIANT_NUMBERS = _VALUES.option("variantNumbers", "SB", choice("double", "binary"), "double", "for `json`: what becomes of a number under `VARIANT` that the decimals of `VARIANT` cannot hold, of which a `DOUBLE` may lose digits: a `DOUBLE`, as with `parse_json`, and an error beyond its range; or a `BINARY`, the number's text", experimental=True)
TIMES_AS_NUMBERS = _VALUES.option("timesAsNumbers", "SB", boolean, False, "what would be `TIME` or `INTERVAL` is `BIGINT`, its microseconds: a Delta table stores neither")
READER_SCHEMA = _VALUES.option("readerSchema", "S", choice("checkpoint", "latest"), "checkpoint", "the registry's schema that a restarted query reads with: `checkpoint`, the one that it started with, or `latest`, the newest version, from the next micro-batch on")

_REGISTRY = Section("Schema registry")
SCHEMA_REGISTRY_URL = _REGISTRY.option("schema.registry.url", "SBW", text, None, "`https://host:port`, with the path of Apicurio or a proxy behind it; several, separated by commas, are tried in turn; or `glue://region/name`, a registry of AWS Glue (experimental); see [A registry's settings](registry.md)")
VALUE_SUBJECT_NAME_STRATEGY = _REGISTRY.option("value.subject.name.strategy", "SBW", text, "TopicNameStrategy", "`TopicNameStrategy` (the subject is `<topic>-value`), `RecordNameStrategy` or `TopicRecordNameStrategy`")
KEY_SUBJECT_NAME_STRATEGY = _REGISTRY.option("key.subject.name.strategy", "SBW", text, "TopicNameStrategy", "the same for keys")
SCHEMA_REGISTRY_AUTO_REGISTER = _REGISTRY.option("schema.registry.auto.register", "W", boolean, False, "register a schema that the subject does not have: `valueSchema`, or one derived from the column; Confluent's name `auto.register.schemas` means the same")
for _setting in REGISTRY_SETTINGS.values():
    _REGISTRY.option(_setting.name, "SBW", text, _setting.default, _setting.meaning, unset=_setting.unset, experimental=_setting.is_experimental)
SCHEMA_REGISTRY_SSL = _REGISTRY.option("schema.registry.ssl.*", "SBW", text, None, "TLS to the registry, under the names of `kafka.ssl.*`", unset="Kafka's own")

_LOSSES = Section("Lost records")
FAIL_ON_DATA_LOSS = _LOSSES.option("failOnDataLoss", "SB", boolean, True, "fail if records were lost before they were read; `false` skips them and logs the range")
DATA_LOSS_LEDGER = _LOSSES.option("dataLossLedger", "SB", text, None, "with `failOnDataLoss=false`: a folder, or a URI that pyarrow supports; each lost range is written there as a Parquet file", experimental=True)

_TASKS = Section("Micro-batches and tasks")
MAX_OFFSETS_PER_TRIGGER = _TASKS.option("maxOffsetsPerTrigger", "S", positive, None, "maximum of offsets per micro-batch, divided in proportion to each partition's lag (Spark 4.2+)")
MAX_BYTES_PER_TRIGGER = _TASKS.option("maxBytesPerTrigger", "S", positive, None, "approximate maximum of bytes per micro-batch, as stored in the log, estimated from the first and last records; if `maxOffsetsPerTrigger` is set, too, the smaller limit applies (Spark 4.2+)")
MIN_OFFSETS_PER_TRIGGER = _TASKS.option("minOffsetsPerTrigger", "S", positive, None, "wait until so many new offsets exist, at most for `maxTriggerDelay` (Spark 4.2+)")
MAX_TRIGGER_DELAY = _TASKS.option("maxTriggerDelay", "S", duration_ms, 900_000, "see `minOffsetsPerTrigger`; a number with ms, s, m, h or d")
MIN_OFFSETS_PER_TOPIC: Option[tuple[TopicMinimum, ...]] = _TASKS.option("minOffsetsPerTopic", "S", topic_minimums, (), 'leave a topic out of micro-batches until it has so many new offsets, or for so long: JSON `{"orders-.*": {"offsets": 1000, "delay": "5m"}}`, either also `"auto"` (as [`min_rows`](ingest-maintenance.md#few-files)), each name a regular expression that matches the whole topic; the first that matches counts (Spark 4.2+)', experimental=True)
MIN_PARTITIONS = _TASKS.option("minPartitions", "SB", positive, None, "minimum of Spark input partitions; large ranges are split")
MAX_RECORDS_PER_PARTITION = _TASKS.option("maxRecordsPerPartition", "SB", positive, None, "maximum of offsets in one Spark input partition")
PARTITION_METADATA_CACHE_TTL_MS = _TASKS.option("partition.metadata.cache.ttl.ms", "SB", cache_ttl_ms, None, "how long a stream uses the topics and partitions that it has found before it asks for new ones, in ms; -1: for 1 s, or 20 times as long as the request takes. A lost topic or partition is found at once. Without effect in a batch, which asks once", unset="-1")
KAFKA_CONSUMER_POLL_TIMEOUT_MS = _TASKS.option("kafkaConsumer.pollTimeoutMs", "SB", positive, 120_000, "how long a task waits for a broker to make progress")
FETCH_OFFSET_NUM_RETRIES = _TASKS.option("fetchOffset.numRetries", "SB", text, "3", "accepted, without effect: offsets are retried within `kafka.default.api.timeout.ms`")
FETCH_OFFSET_RETRY_INTERVAL_MS = _TASKS.option("fetchOffset.retryIntervalMs", "SB", text, "1000", "accepted, without effect: see `kafka.retry.backoff.ms`")
TASK_METRICS = _TASKS.option("taskMetrics", "SBW", task_metrics, None, "`driver` (streaming reads, Spark 4.2+): each task sends its figures to the query's process on the driver, for the progress and the exporters; `statsd://host:port`: to a StatsD agent that understands tags; see [Metrics](metrics.md#from-tasks)", experimental=True)

_GROUP = Section("Consumer group")
KAFKA_GROUP_ID = _GROUP.option("kafka.group.id", "SB", text, None, "the consumer group to which the query commits its progress", unset="generated")
GROUP_ID_PREFIX = _GROUP.option("groupIdPrefix", "SB", text, "pykafka-wire", "prefix of the generated group")
COMMIT_OFFSETS = _GROUP.option("commitOffsets", "S", boolean, True, "commit the query's progress to its consumer group, for lag tools")
GROUP_MEMBERSHIP = _GROUP.option("groupMembership", "S", choice("none", "static"), "none", "`static`: the query is a member of its group, visible to tools, and stays a member through long micro-batches; `none`: it only commits", experimental=True)

_WRITES = Section("Writes")
TOPIC = _WRITES.option("topic", "W", text, None, "the topic to write to; overrides a `topic` column")
ON_RECORD_ERROR = _WRITES.option("onRecordError", "W", choice("fail", "divert"), "fail", "what to do with a record that a broker rejects as too large or invalid: `fail`, or `divert` it to `deadLetterTopic` with headers that name the reason")
DEAD_LETTER_TOPIC = _WRITES.option("deadLetterTopic", "W", text, None, "see `onRecordError`")

_EXACTLY_ONCE = Section("Exactly-once writes")
DELIVERY_GUARANTEE = _EXACTLY_ONCE.option("deliveryGuarantee", "W", choice("at-least-once", "exactly-once"), "at-least-once", "`exactly-once` writes each micro-batch in a transaction that contains a marker; streaming writes only, needs `kafka.transactional.id`")
KAFKA_TRANSACTIONAL_ID = _EXACTLY_ONCE.option("kafka.transactional.id", "W", text, None, "for `exactly-once`: a name that only this query uses, the same after every restart")
TRANSACTIONS = _EXACTLY_ONCE.option("transactions", "W", choice("driver", "tasks"), "driver", "for `exactly-once`: with `driver` all of a micro-batch passes through the driver, in one transaction; with `tasks` each task writes in a transaction of its own and the driver commits them all, for large micro-batches; see [Through the tasks](write-exactly-once.md#through-the-tasks)")
MARKER_TOPIC = _EXACTLY_ONCE.option("markerTopic", "W", text, None, "for `exactly-once`: the topic under whose name the marker is stored, best an empty one; nothing is written to it", unset="`topic`")
FAIL_ON_MISSING_MARKER = _EXACTLY_ONCE.option("failOnMissingMarker", "W", boolean, True, "for `exactly-once`: fail if the marker of the query's last micro-batch is missing, or another query's is in its place; `false` continues, and may write that micro-batch twice")
ON_MARKER_MISMATCH = _EXACTLY_ONCE.option("onMarkerMismatch", "W", choice("fail", "skip"), "fail", "for `exactly-once`: what to do if a micro-batch is in Kafka with other rows than a repeated run computes: `fail`, or `skip` it and keep what is in Kafka", experimental=True)
MAX_TRANSACTION_BYTES = _EXACTLY_ONCE.option("maxTransactionBytes", "W", positive, None, "for `exactly-once`: with `transactions=driver`, maximum of bytes in a micro-batch, encoded and compressed", unset="1/8 of the driver's heap; 128 MiB if the heap is unknown (no /proc)")

_CLIENT = Section("Kafka's settings and clouds")
KAFKA_ISOLATION_LEVEL = _CLIENT.option("kafka.isolation.level", "SB", text, "read_uncommitted", "`read_committed` leaves out records of aborted and open transactions")
KAFKA_SETTINGS = _CLIENT.option("kafka.*", "SBW", text, None, "client settings under Kafka's names", unset="Kafka's own")
DATABRICKS_SERVICE_CREDENTIAL = _CLIENT.option("databricks.serviceCredential", "SBW", text, None, "a service credential of Unity Catalog, as for Databricks' own connector; the same as `kafka.auth=databricks:NAME` (see [Clouds](clouds.md))", experimental=True)
DATABRICKS_SERVICE_CREDENTIAL_SCOPE = _CLIENT.option("databricks.serviceCredential.scope", "SBW", text, None, "the scope of its tokens; the same as `kafka.sasl.oauthbearer.scope`", unset="the service's", experimental=True)

SECTIONS: Final = (
    _TOPICS, _BOUNDS, _COLUMNS, _VALUES, _REGISTRY, _LOSSES, _TASKS, _GROUP, _WRITES, _EXACTLY_ONCE, _CLIENT,
)
# fmt: on
OPTIONS: Final = tuple(option for section in SECTIONS for option in section.options)
#: Options that select brokers, records or columns.
CHOOSING_RECORDS: Final = (*_TOPICS.options, *_BOUNDS.options, COLUMNS, FILTER_PUSHDOWN, KAFKA_ISOLATION_LEVEL)


def options_tables() -> str:
    """Return the options as Markdown, the sections that docs/options.md shows; an option's anchor is its name in lower case."""
    lines: list[str] = []
    for section in SECTIONS:
        lines += [f"## {section.title}", "", "| Option | Default | Where | Meaning |", "|---|---|---|---|"]
        for option in section.options:
            meaning = mark_experimental(option.meaning, option.is_experimental).replace("|", "\\|")
            name = f'<span id="{option.name.lower()}"></span>`{option.name}`'
            lines.append(f"| {name} | {option.default_text} | {option.where} | {meaning} |")
        lines.append("")
    return "\n".join(lines)
