"""The connector's own options in one table: it drives the refusal of unknown names and renders the README's table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option: name, default as a user would write it, where it counts (S stream, B batch, W sink), meaning."""

    name: str
    default: str
    where: str
    meaning: str


OPTIONS: Final[tuple[OptionSpec, ...]] = (
    OptionSpec("kafka.bootstrap.servers", "required", "SBW", "`host:port,host:port`; tried in turn until one answers"),
    OptionSpec("subscribe", "one of three", "SB", "topics, separated by commas"),
    OptionSpec("subscribePattern", "one of three", "SB", "a regular expression searched for in topic names; internal topics never match"),
    OptionSpec("assign", "one of three", "SB", 'topic-partitions as JSON, `{"topic":[0,1]}`'),
    OptionSpec("startingOffsets", "S latest, B earliest", "SB", "`earliest`, `latest` (stream only), `group` (the committed offsets of `kafka.group.id`), or JSON `{\"topic\":{\"0\":23,\"1\":-2}}` naming every partition (-2 earliest, -1 latest); counts for a query's first start only"),
    OptionSpec("startingOffsetsByTimestamp", "none", "SB", 'JSON `{"topic":{"0":1700000000000,"1":"-10m"}}` naming every partition, each time as in `startingTimestamp`; goes before `startingOffsets`'),
    OptionSpec("startingTimestamp", "none", "SB", "one timestamp for all: ms since the epoch, ISO-8601, or relative such as `-10m`; goes before the two above"),
    OptionSpec("startingOffsetsByTimestampStrategy", "error", "SB", "`error` or `latest`: what to do where no record is as late as the timestamp"),
    OptionSpec("startingOffsetsByGroupStrategy", "error", "SB", "`error`, `earliest` or `latest`: what to do where the group has committed nothing"),
    OptionSpec("endingOffsets", "latest", "B", "`latest`, or JSON as in `startingOffsets` (-1 latest)"),
    OptionSpec("endingOffsetsByTimestamp", "none", "B", "as `startingOffsetsByTimestamp`; where no record matches: latest"),
    OptionSpec("endingTimestamp", "none", "B", "as `startingTimestamp`; where no record matches: latest"),
    OptionSpec("includeHeaders", "false", "SB", "adds the column `headers`"),
    OptionSpec("filterPushdown", "false", "B", "leave out what filters on topic, partition, offset and timestamp rule out, where `spark.sql.python.filterPushdown.enabled` is true; see [Filters](#filters)"),
    OptionSpec("failOnDataLoss", "true", "SB", "fail when records were lost before they were read; `false` skips them and logs the range"),
    OptionSpec("dataLossLedger", "none", "SB", "with `failOnDataLoss=false`: a folder, or a URI that pyarrow knows, into which each lost range is written as a Parquet file"),
    OptionSpec("maxOffsetsPerTrigger", "none", "S", "offsets per micro-batch, shared out by each partition's lag (Spark 4.2+)"),
    OptionSpec("maxBytesPerTrigger", "none", "S", "about so many bytes per micro-batch, as stored in the log, estimated from the batch's first and last records; together with `maxOffsetsPerTrigger` the smaller counts (Spark 4.2+)"),
    OptionSpec("minOffsetsPerTrigger", "none", "S", "wait until so many offsets are there, at most `maxTriggerDelay` (Spark 4.2+)"),
    OptionSpec("maxTriggerDelay", "15m", "S", "see `minOffsetsPerTrigger`; a number with ms, s, m, h or d"),
    OptionSpec("minPartitions", "none", "SB", "at least so many Spark input partitions, by splitting large ranges"),
    OptionSpec("maxRecordsPerPartition", "none", "SB", "at most so many offsets in one Spark input partition"),
    OptionSpec("kafka.group.id", "generated", "SB", "the consumer group that progress is committed to"),
    OptionSpec("groupIdPrefix", "pykafka-wire", "SB", "prefix of the generated group"),
    OptionSpec("commitOffsets", "true", "S", "commit the query's progress to its consumer group, for lag tools"),
    OptionSpec("groupMembership", "none", "S", "`static`: the query is a member of its group, seen by tools and kept alive through long batches; `none`: it only commits"),
    OptionSpec("kafka.isolation.level", "read_uncommitted", "SB", "`read_committed` leaves out aborted and open transactions"),
    OptionSpec("kafkaConsumer.pollTimeoutMs", "120000", "SB", "how long a task waits for a broker to make progress"),
    OptionSpec("fetchOffset.numRetries", "3", "SB", "accepted; offsets are retried within `kafka.default.api.timeout.ms`"),
    OptionSpec("fetchOffset.retryIntervalMs", "1000", "SB", "accepted; see `kafka.retry.backoff.ms`"),
    OptionSpec("topic", "none", "W", "the topic to write to; goes before a `topic` column"),
    OptionSpec("deliveryGuarantee", "at-least-once", "W", "`exactly-once` writes each micro-batch in a transaction, with a marker of it; streaming writes only, needs `kafka.transactional.id`"),
    OptionSpec("kafka.transactional.id", "none", "W", "for `exactly-once`: the query's own name among the cluster's producers, the same after every restart"),
    OptionSpec("markerTopic", "`topic`", "W", "for `exactly-once`: the topic under whose name the marker is kept; nothing is written to it"),
    OptionSpec("failOnMissingMarker", "true", "W", "for `exactly-once`: fail when a query that is not new has no marker of its last micro-batch; `false` goes on, and may write that micro-batch twice"),
    OptionSpec("maxTransactionBytes", "1/8 of the driver's heap; 128 MiB where it cannot be known (no /proc)", "W", "for `exactly-once`: most bytes of a micro-batch, encoded and compressed; all of it passes through the driver"),
    OptionSpec("onRecordError", "fail", "W", "what to do with a record that a broker refuses for what it is (too large, invalid): `fail`, or `divert` it to `deadLetterTopic` with headers that say why"),
    OptionSpec("deadLetterTopic", "none", "W", "see `onRecordError`"),
    OptionSpec("kafka.*", "Kafka's own", "SBW", "client settings under Kafka's names"),
)  # fmt: skip


def options_table() -> str:
    """The options as a Markdown table, the one that README shows."""
    lines = ["| Option | Default | Where | Meaning |", "|---|---|---|---|"]
    for spec in OPTIONS:
        meaning = spec.meaning.replace("|", "\\|")
        lines.append(f"| `{spec.name}` | {spec.default} | {spec.where} | {meaning} |")
    return "\n".join(lines) + "\n"
