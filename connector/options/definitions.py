"""The connector's own options: names, defaults, meanings.

:mod:`pykafka_wire.options.names` checks names by it, :mod:`pykafka_wire.options.parsing` takes defaults from it, and docs/options.md shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option: name, default as a user would write it, what it applies to (S stream, B batch, W sink), meaning."""

    name: str
    default: str
    where: str
    meaning: str


OPTIONS: Final[tuple[OptionSpec, ...]] = (
    OptionSpec("kafka.bootstrap.servers", "required", "SBW", "`host:port,host:port`; tried in turn until one answers"),
    OptionSpec("subscribe", "one of three", "SB", "topics, separated by commas"),
    OptionSpec("subscribePattern", "one of three", "SB", "a regular expression that a part of a topic's name must match; internal topics never match"),
    OptionSpec("assign", "one of three", "SB", 'topic-partitions as JSON, `{"topic":[0,1]}`'),
    OptionSpec("startingOffsets", "S latest, B earliest", "SB", "`earliest`, `latest` (stream only), `group` (the committed offsets of `kafka.group.id`), `checkpoint:PATH` (where another query's checkpoint stands, see [checkpoints](checkpoints.md)), or JSON `{\"topic\":{\"0\":23,\"1\":-2}}` naming every partition (-2 earliest, -1 latest); used at a query's first start only"),
    OptionSpec("startingOffsetsByTimestamp", "none", "SB", 'JSON `{"topic":{"0":1700000000000,"1":"-10m"}}` naming every partition, each time as in `startingTimestamp`; overrides `startingOffsets`'),
    OptionSpec("startingTimestamp", "none", "SB", "one timestamp for all: ms since the epoch, ISO-8601, or relative such as `-10m`; overrides the two above"),
    OptionSpec("startingOffsetsByTimestampStrategy", "error", "SB", "`error` or `latest`: where to start if a partition has no record at or after the timestamp"),
    OptionSpec("startingOffsetsByGroupStrategy", "error", "SB", "`error`, `earliest` or `latest`: where to start if the group has committed no offset"),
    OptionSpec("endingOffsets", "latest", "B", "`latest`, `checkpoint:PATH`, or JSON as in `startingOffsets` (-1 latest)"),
    OptionSpec("endingOffsetsByTimestamp", "none", "B", "as `startingOffsetsByTimestamp`; latest if no record matches"),
    OptionSpec("endingTimestamp", "none", "B", "as `startingTimestamp`; latest if no record matches"),
    OptionSpec("microBatch", "none", "B", "`PATH#12`: read what micro-batch 12 of the query with the checkpoint in PATH has read, of `subscribe`'s topics or of all; see [checkpoints](checkpoints.md#one-micro-batch)"),
    OptionSpec("includeHeaders", "false", "SB", "adds the column `headers`"),
    OptionSpec("columns", "all", "SB", "the columns to read, and fields of them, such as `value.id, value.country, offset`: nothing else is decoded; `headers` needs no `includeHeaders` then. `.schema(…)` does the same with types"),
    OptionSpec("valueFormat", "binary", "SBW", "`binary`, `string` (UTF-8), `json`, `avro` or `protobuf`: what the column `value` is decoded from, or encoded as"),
    OptionSpec("valueSchema", "the subject's newest version", "SBW", "for `json` a Spark DDL such as `id BIGINT, at TIMESTAMP`, needed where `.schema(…)` does not give the type; for `avro` and `protobuf` the reader's schema, or without a registry the schema of the values themselves; for a write the schema to write with, which the subject must have"),
    OptionSpec("valueSubject", "by `value.subject.name.strategy`", "SBW", "the registry's subject that has the schema"),
    OptionSpec("valueMessage", "the first one", "SBW", "for `protobuf`: the message's name, where the schema has several"),
    OptionSpec("onValueError", "fail", "SB", "what to do with a value that cannot be decoded: `fail`, `null`, or `divert`, which adds a string column `valueError` with the reason"),
    OptionSpec("keyFormat", "binary", "SBW", "as `valueFormat`, for the column `key`"),
    OptionSpec("keySchema", "the subject's newest version", "SBW", "as `valueSchema`"),
    OptionSpec("keySubject", "by `key.subject.name.strategy`", "SBW", "as `valueSubject`"),
    OptionSpec("keyMessage", "the first one", "SBW", "as `valueMessage`"),
    OptionSpec("onKeyError", "fail", "SB", "as `onValueError`; `divert` adds the column `keyError`"),
    OptionSpec("readerSchema", "checkpoint", "S", "the registry's schema that a restarted query reads with: `checkpoint`, the one that it started with, or `latest`, the newest version, from the next micro-batch on"),
    OptionSpec("schema.registry.url", "none", "SBW", "`https://host:port`, with the path of Apicurio or a proxy behind it; several, separated by commas, are tried in turn; see [A registry's settings](registry.md)"),
    OptionSpec("basic.auth.user.info", "none", "SBW", "`user:password` for the registry, or a reference to it, such as `env:NAME`; this and the next ones may have the prefix `schema.registry.`"),
    OptionSpec("basic.auth.credentials.source", "`USER_INFO`", "SBW", "`USER_INFO`, `URL` (`https://user:password@host`) or `SASL_INHERIT` (the user of `kafka.sasl.*`)"),
    OptionSpec("bearer.auth.token", "none", "SBW", "a token for the registry, or a reference to it"),
    OptionSpec("bearer.auth.credentials.source", "`STATIC_TOKEN`", "SBW", "`STATIC_TOKEN`, `OAUTHBEARER` (with `bearer.auth.issuer.endpoint.url`, `.client.id`, `.client.secret`, `.scope`) or `SASL_OAUTHBEARER_INHERIT`; Confluent Cloud also wants `bearer.auth.logical.cluster` and `bearer.auth.identity.pool.id`"),
    OptionSpec("proxy.host", "of the environment", "SBW", "with `proxy.port`: the HTTP proxy to the registry; without them the environment's `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` apply"),
    OptionSpec("schema.registry.ssl.*", "Kafka's own", "SBW", "TLS to the registry, under the names of `kafka.ssl.*`"),
    OptionSpec("databricks.serviceCredential", "none", "SBW", "a service credential of Unity Catalog, as for Databricks' own connector; the same as `kafka.auth=databricks:NAME` (see [Clouds](clouds.md))"),
    OptionSpec("databricks.serviceCredential.scope", "the service's", "SBW", "the scope of its tokens; the same as `kafka.sasl.oauthbearer.scope`"),
    OptionSpec("value.subject.name.strategy", "TopicNameStrategy", "SBW", "`TopicNameStrategy` (the subject is `<topic>-value`), `RecordNameStrategy` or `TopicRecordNameStrategy`"),
    OptionSpec("key.subject.name.strategy", "TopicNameStrategy", "SBW", "the same for keys"),
    OptionSpec("schema.registry.auto.register", "false", "W", "register a schema that the subject does not have: `valueSchema`, or one derived from the column; Confluent's name `auto.register.schemas` means the same"),
    OptionSpec("filterPushdown", "false", "B", "read only what filters on topic, partition, offset and timestamp allow; also needs `spark.sql.python.filterPushdown.enabled`; see [Filters](read.md#filters)"),
    OptionSpec("failOnDataLoss", "true", "SB", "fail if records were lost before they were read; `false` skips them and logs the range"),
    OptionSpec("dataLossLedger", "none", "SB", "with `failOnDataLoss=false`: a folder, or a URI that pyarrow supports; each lost range is written there as a Parquet file"),
    OptionSpec("maxOffsetsPerTrigger", "none", "S", "maximum of offsets per micro-batch, divided in proportion to each partition's lag (Spark 4.2+)"),
    OptionSpec("maxBytesPerTrigger", "none", "S", "approximate maximum of bytes per micro-batch, as stored in the log, estimated from the first and last records; if `maxOffsetsPerTrigger` is set, too, the smaller limit applies (Spark 4.2+)"),
    OptionSpec("minOffsetsPerTrigger", "none", "S", "wait until so many new offsets exist, at most for `maxTriggerDelay` (Spark 4.2+)"),
    OptionSpec("maxTriggerDelay", "15m", "S", "see `minOffsetsPerTrigger`; a number with ms, s, m, h or d"),
    OptionSpec("minPartitions", "none", "SB", "minimum of Spark input partitions; large ranges are split"),
    OptionSpec("maxRecordsPerPartition", "none", "SB", "maximum of offsets in one Spark input partition"),
    OptionSpec("kafka.group.id", "generated", "SB", "the consumer group to which the query commits its progress"),
    OptionSpec("groupIdPrefix", "pykafka-wire", "SB", "prefix of the generated group"),
    OptionSpec("commitOffsets", "true", "S", "commit the query's progress to its consumer group, for lag tools"),
    OptionSpec("groupMembership", "none", "S", "`static`: the query is a member of its group, visible to tools, and stays a member through long micro-batches; `none`: it only commits"),
    OptionSpec("kafka.isolation.level", "read_uncommitted", "SB", "`read_committed` leaves out records of aborted and open transactions"),
    OptionSpec("kafkaConsumer.pollTimeoutMs", "120000", "SB", "how long a task waits for a broker to make progress"),
    OptionSpec("fetchOffset.numRetries", "3", "SB", "accepted, without effect: offsets are retried within `kafka.default.api.timeout.ms`"),
    OptionSpec("fetchOffset.retryIntervalMs", "1000", "SB", "accepted, without effect: see `kafka.retry.backoff.ms`"),
    OptionSpec("taskMetrics", "none", "SBW", "`driver` (streaming reads, Spark 4.2+): each task sends its figures to the query's process on the driver, for the progress and the exporters; `statsd://host:port`: to a StatsD agent that understands tags; see [Metrics](metrics.md#from-tasks)"),
    OptionSpec("topic", "none", "W", "the topic to write to; overrides a `topic` column"),
    OptionSpec("deliveryGuarantee", "at-least-once", "W", "`exactly-once` writes each micro-batch in a transaction that contains a marker; streaming writes only, needs `kafka.transactional.id`"),
    OptionSpec("kafka.transactional.id", "none", "W", "for `exactly-once`: a name that only this query uses, the same after every restart"),
    OptionSpec("transactions", "driver", "W", "for `exactly-once`: with `driver` all of a micro-batch passes through the driver, in one transaction; with `tasks` each task writes in a transaction of its own and the driver commits them all, for large micro-batches; see [Through the tasks](write-exactly-once.md#through-the-tasks)"),
    OptionSpec("markerTopic", "`topic`", "W", "for `exactly-once`: the topic under whose name the marker is stored, best an empty one; nothing is written to it"),
    OptionSpec("failOnMissingMarker", "true", "W", "for `exactly-once`: fail if the marker of the query's last micro-batch is missing, or another query's is in its place; `false` continues, and may write that micro-batch twice"),
    OptionSpec("onMarkerMismatch", "fail", "W", "for `exactly-once`: what to do if a micro-batch is in Kafka with other rows than a repeated run computes: `fail`, or `skip` it and keep what is in Kafka"),
    OptionSpec("maxTransactionBytes", "1/8 of the driver's heap; 128 MiB if the heap is unknown (no /proc)", "W", "for `exactly-once`: with `transactions=driver`, maximum of bytes in a micro-batch, encoded and compressed"),
    OptionSpec("onRecordError", "fail", "W", "what to do with a record that a broker rejects as too large or invalid: `fail`, or `divert` it to `deadLetterTopic` with headers that name the reason"),
    OptionSpec("deadLetterTopic", "none", "W", "see `onRecordError`"),
    OptionSpec("kafka.*", "Kafka's own", "SBW", "client settings under Kafka's names"),
)  # fmt: skip


_DEFAULTS: Final = {spec.name: spec.default for spec in OPTIONS}


def default_of(name: str) -> str:
    """The default of an option, as a user would write it. Raises KeyError for a name that is not in :data:`OPTIONS`."""
    return _DEFAULTS[name]


def options_table() -> str:
    """The options as a Markdown table, the one that docs/options.md shows."""
    lines = ["| Option | Default | Where | Meaning |", "|---|---|---|---|"]
    for spec in OPTIONS:
        meaning = spec.meaning.replace("|", "\\|")
        lines.append(f"| `{spec.name}` | {spec.default} | {spec.where} | {meaning} |")
    return "\n".join(lines) + "\n"
