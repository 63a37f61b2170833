"""The metrics: names, types, labels, meanings. One table, which the exporters, the documentation and the tests share.

Three origins of names: ``kafka_consumergroup_…`` and ``kafka_topic_partition_…`` are kafka_exporter's, ``kafka_consumer_…`` are
those of Kafka's Java client as Micrometer and KIP-714 write them, and all others begin with ``pykafka_wire_``. Knows no exporter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]

#: Labels of a figure of one source of a query.
SOURCE: Final = ("query", "source")
#: Of a table of an ingest.
TABLE: Final = ("query", "topic", "table")
#: ``process`` is driver or tasks.
PROCESS: Final = (*SOURCE, "process")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name in Prometheus, meaning (a sentence without its full stop), and where the figure comes from.

    Attributes:
        keys: the figures in the source's report that add up to it; of one with :data:`PROCESS`, in the figures of each process.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    source: str = ""
    keys: tuple[str, ...] = ()


_SPARK: Final = "Spark's progress, "
_INGEST: Final = "`Ingest.statuses`, "
#: Upper bounds in seconds; a micro-batch of an idle machine takes some 0.1 s, a backlog's minutes.
DURATION_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

DURATION: Final = "pykafka_wire_micro_batch_duration_seconds"
PHASES: Final = "pykafka_wire_micro_batch_phase_seconds_total"
LAST_BATCH: Final = "pykafka_wire_last_batch_id"
LAST_PROGRESS: Final = "pykafka_wire_last_progress_timestamp_seconds"
ACTIVE: Final = "pykafka_wire_query_active"
GROUP_LAG: Final = "kafka_consumergroup_lag"
GROUP_OFFSET: Final = "kafka_consumergroup_current_offset"
LOG_END: Final = "kafka_topic_partition_current_offset"
TABLE_ROWS: Final = "pykafka_wire_ingest_rows_total"
TABLE_REJECTS: Final = "pykafka_wire_ingest_rejects_total"
TABLE_COMMITS: Final = "pykafka_wire_ingest_commits_total"
TABLE_LAG: Final = "pykafka_wire_ingest_lag"
TABLE_SCHEMA: Final = "pykafka_wire_ingest_schema_id"
TABLE_STOPPED: Final = "pykafka_wire_ingest_stopped"
TABLE_RETRYING: Final = "pykafka_wire_ingest_retrying"
TABLE_HELD_REJECTS: Final = "pykafka_wire_ingest_held_rejects"
TABLE_NEWEST: Final = "pykafka_wire_ingest_newest_record_timestamp_seconds"

METRICS: Final[tuple[Metric, ...]] = (
    Metric(GROUP_LAG, "gauge", ("consumergroup", "topic", "partition"), "Offsets from the end of the last micro-batch to the end of the log", "`offsets` less `endOffset`"),
    Metric(GROUP_OFFSET, "gauge", ("consumergroup", "topic", "partition"), "Offset at which the next micro-batch starts", "`endOffset`"),
    Metric(LOG_END, "gauge", ("topic", "partition"), "End of the log when the last micro-batch was planned", "`offsets`"),
    Metric("pykafka_wire_min_offsets_behind_latest", "gauge", SOURCE, "Smallest lag of a topic-partition after the last micro-batch", keys=("minOffsetsBehindLatest",)),
    Metric("pykafka_wire_max_offsets_behind_latest", "gauge", SOURCE, "Largest lag of a topic-partition after the last micro-batch", keys=("maxOffsetsBehindLatest",)),
    Metric("pykafka_wire_avg_offsets_behind_latest", "gauge", SOURCE, "Average lag of a topic-partition after the last micro-batch", keys=("avgOffsetsBehindLatest",)),
    Metric("pykafka_wire_offsets_behind_latest", "gauge", SOURCE, "Lag of all topic-partitions together after the last micro-batch", keys=("totalOffsetsBehindLatest",)),
    Metric("pykafka_wire_estimated_total_bytes_behind_latest", "gauge", SOURCE, "Estimated size of the records that are still to be read, as stored in the logs", keys=("estimatedTotalBytesBehindLatest",)),
    Metric("pykafka_wire_input_rows_per_second", "gauge", SOURCE, "Rows that arrived per second, in the last micro-batch", _SPARK + "`inputRowsPerSecond`"),
    Metric("pykafka_wire_processed_rows_per_second", "gauge", SOURCE, "Rows that were processed per second, in the last micro-batch", _SPARK + "`processedRowsPerSecond`"),
    Metric("pykafka_wire_input_rows_total", "counter", SOURCE, "Rows that the query has read from this source", _SPARK + "`numInputRows`"),
    Metric("pykafka_wire_commits_total", "counter", SOURCE, "Commits of offsets to the consumer group that succeeded", keys=("commitSuccesses",)),
    Metric("pykafka_wire_commit_failures_total", "counter", SOURCE, "Commits of offsets to the consumer group that failed; the query continues", keys=("commitFailures",)),
    Metric("pykafka_wire_lost_ranges_total", "counter", SOURCE, "Ranges of offsets that were lost before they could be read, and skipped (failOnDataLoss=false); without taskMetrics=driver those that the planner has found", keys=("lostRanges", "tasks.lostRanges")),
    Metric("pykafka_wire_lost_offsets_total", "counter", SOURCE, "Offsets in lost ranges whose length is known", keys=("lostOffsets", "tasks.lostOffsets")),
    Metric("pykafka_wire_planned_tasks_total", "counter", SOURCE, "Tasks that were planned to read from Kafka", keys=("plannedTasks",)),
    Metric("pykafka_wire_reported_tasks_total", "counter", SOURCE, "Tasks that have reported their figures", keys=("tasks.tasks",)),
    Metric("kafka_consumer_request_total", "counter", PROCESS, "Requests sent to brokers", keys=("requests",)),
    Metric("kafka_consumer_response_total", "counter", SOURCE, "Responses received from brokers by the query's process on the driver", keys=("client.responses",)),
    Metric("kafka_consumer_outgoing_byte_total", "counter", PROCESS, "Bytes sent to brokers", keys=("bytesSent",)),
    Metric("kafka_consumer_incoming_byte_total", "counter", PROCESS, "Bytes received from brokers", keys=("bytesReceived",)),
    Metric("kafka_consumer_connection_creation_total", "counter", PROCESS, "Connections opened to brokers", keys=("connectionsOpened",)),
    Metric("kafka_consumer_fetch_manager_fetch_total", "counter", SOURCE, "Responses to Fetch requests that tasks have received", keys=("tasks.fetches",)),
    Metric("kafka_consumer_fetch_manager_bytes_consumed_total", "counter", SOURCE, 'Bytes of the records that tasks have read, as fetched; received is what they cost, `kafka_consumer_incoming_byte_total` with `process="tasks"`', keys=("tasks.bytesConsumed",)),
    Metric("kafka_consumer_fetch_manager_records_consumed_total", "counter", SOURCE, "Records that tasks have read", keys=("tasks.recordsConsumed",)),
    Metric("pykafka_wire_client_retries_total", "counter", PROCESS, "Requests that were repeated after a retriable error", keys=("retries",)),
    Metric("pykafka_wire_client_wait_seconds_total", "counter", PROCESS, "Time spent waiting for brokers: for connections, and for responses to begin", keys=("waitMs",)),
    Metric("pykafka_wire_client_throttle_seconds_total", "counter", PROCESS, "Time for which brokers have throttled the client because of a quota", keys=("throttleMs",)),
    Metric(DURATION, "histogram", ("query",), "Duration of a micro-batch, from planning to the commit", _SPARK + "`durationMs.triggerExecution`"),
    Metric(PHASES, "counter", ("query", "phase"), "Time spent in each phase of micro-batches", _SPARK + "`durationMs` without `triggerExecution`"),
    Metric(LAST_BATCH, "gauge", ("query",), "Number of the last micro-batch that was finished", _SPARK + "`batchId`"),
    Metric(LAST_PROGRESS, "gauge", ("query",), "When the query last reported progress, or that it is idle", "the listener's clock"),
    Metric(ACTIVE, "gauge", ("query",), "1 while the query runs, 0 after it has ended", "Spark's events"),
    Metric(TABLE_ROWS, "counter", TABLE, "Records that an ingest has landed in a table", _INGEST + "`rows`"),
    Metric(TABLE_REJECTS, "counter", TABLE, "Records that could not be read, and are in the table of rejects", _INGEST + "`rejects`"),
    Metric(TABLE_COMMITS, "counter", TABLE, "Commits to a table", _INGEST + "`commits`"),
    Metric(TABLE_LAG, "gauge", TABLE, "Offsets from a table's position to the ends of its topic's logs, as the last micro-batch has them", _INGEST + "`position`"),
    Metric(TABLE_SCHEMA, "gauge", TABLE, "The registry's id of the newest schema that a table was written with", _INGEST + "`schema_id`"),
    Metric(TABLE_STOPPED, "gauge", (*TABLE, "error"), "1 for a table that an error has stopped, with the error's code", _INGEST + "`state`"),
    Metric(TABLE_RETRYING, "gauge", (*TABLE, "error"), "1 for a table that is tried again after an error, with the error's code", _INGEST + "`state`"),
    Metric(TABLE_HELD_REJECTS, "gauge", TABLE, "Records that the table of rejects holds of a table, those of earlier runs among them", _INGEST + "`held_rejects`"),
    Metric(TABLE_NEWEST, "gauge", TABLE, "The timestamp of the newest record that was landed; what is newer is not visible yet", _INGEST + "`newest_ms`"),
)  # fmt: skip

BY_NAME: Final = {metric.name: metric for metric in METRICS}


def metrics_table() -> str:
    """Return the metrics as a Markdown table, the one that docs/metrics.md shows."""
    lines = ["| Metric | Type | Labels | Meaning | From |", "|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        source = metric.source or ", ".join(f"`{key}`" for key in metric.keys)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} | {source} |")
    return "\n".join(lines) + "\n"
