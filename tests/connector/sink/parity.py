"""What the sink and Spark's JVM sink are compared in: scenarios as data, and the table that docs/ shows of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: Of the JVM connector's own suites: KafkaSinkStreamingSuite, KafkaSinkBatchSuite. "" is a scenario of ours.
_STREAM: Final = "streaming - "
_BATCH: Final = "batch - "
_HEADERS: Final = (
    "array(named_struct('key', 'h', 'value', X'6869'), named_struct('key', 'h', 'value', CAST(NULL AS BINARY)))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One write, done by both sinks.

    Attributes:
        suite: the test of the JVM connector's suites that has this behaviour.
        sql: the rows; {t} and {u} are topics of the sink's own, of `partitions` partitions each.
        options: the same for both sinks, besides the brokers.
        stream: written by a streaming query in this output mode, None for a batch write.
        mode: a batch write's mode.
        refused: what our refusal says; None where both write.
        differs: the reason why both are not the same.
    """

    title: str
    sql: str
    suite: str = ""
    options: dict[str, str] = field(default_factory=dict)
    partitions: int = 1
    config: dict[str, str] = field(default_factory=dict)
    stream: str | None = None
    mode: str = "append"
    refused: str | None = None
    differs: str = ""


_TO_T: Final = {"topic": "{t}"}
_VALUES: Final = "SELECT CAST(id AS STRING) AS value FROM range(5)"

SCENARIOS: Final[tuple[Scenario, ...]] = (
    # --- rows
    Scenario(
        title="headers: several, doubled, with null values, none",
        suite=_BATCH + "write to kafka",
        sql=f"SELECT '{{t}}' AS topic, CAST(id AS STRING) AS value, IF(id % 2 = 0, {_HEADERS}, NULL) AS headers FROM range(5)",
        options=_TO_T,
    ),
    Scenario(
        title="topic column",
        suite=_STREAM + "write to kafka with topic field",
        sql="SELECT IF(id < 3, '{t}', '{u}') AS topic, CAST(id AS STRING) AS value FROM range(5)",
        stream="append",
    ),
    Scenario(
        title="topic option",
        suite=_STREAM + "write w/o topic field, with topic option",
        sql=_VALUES,
        options=_TO_T,
        stream="append",
    ),
    Scenario(
        title="topic option and topic column: the option wins",
        suite=_STREAM + "topic field and topic option",
        sql="SELECT 'foo' AS topic, CAST(id AS STRING) AS value FROM range(5)",
        options=_TO_T,
        stream="append",
    ),
    Scenario(
        title="rows of to_json",
        suite="SPARK-20496: batch - enforce analyzed plans",
        sql="SELECT to_json(struct(*)) AS value FROM range(1, 1000)",
        options=_TO_T,
    ),
    Scenario(
        title="keys: strings and their bytes, empty, null",
        sql="SELECT * FROM VALUES ('a', 'v'), ('', 'v'), (NULL, 'v'), ('grün', 'v') AS (key, value)",
        options=_TO_T,
    ),
    Scenario(title="binary key and value, any bytes", sql="SELECT X'00ff80' AS key, X'c328' AS value", options=_TO_T),
    Scenario(
        title="null and empty values", sql="SELECT * FROM VALUES ('k', NULL), ('l', '') AS (key, value)", options=_TO_T
    ),
    Scenario(title="no rows", sql="SELECT 'v' AS value WHERE 1 = 0", options=_TO_T),
    Scenario(
        title="columns that the sink does not use",
        sql="SELECT 1 AS offset, 'v' AS value, 2.5 AS extra",
        options=_TO_T,
    ),
    Scenario(
        title="timestamp column",
        sql="SELECT 'v' AS value, timestamp_millis(1700000000123) AS timestamp",
        options=_TO_T,
        config={"retention.ms": "-1"},
        differs="it sets the record's timestamp; the JVM sink ignores it (SPARK-50160)",
    ),
    # --- partitions
    Scenario(
        title="keys go where Java's producer sends them",
        suite=_BATCH + "partition column and partitioner priorities",
        sql="SELECT CAST(id AS STRING) AS key, 'v' AS value FROM range(200)",
        options=_TO_T,
        partitions=7,
    ),
    Scenario(
        title="a partition column overrides the key; null leaves the choice to the key",
        suite=_BATCH + "partition column and partitioner priorities",
        sql="SELECT 'same' AS key, IF(id < 4, CAST(id AS INT), NULL) AS partition, CAST(id AS STRING) AS value FROM range(6)",
        options=_TO_T,
        partitions=4,
    ),
    Scenario(
        title="a partition column overrides a custom partitioner",
        suite=_BATCH + "partition column and partitioner priorities",
        sql="SELECT CAST(id AS STRING) AS key, 2 AS partition, 'v' AS value FROM range(5)",
        options=_TO_T | {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
        partitions=4,
    ),
    Scenario(
        title="RoundRobinPartitioner distributes rows whatever their key",
        suite=_BATCH + "partition column and partitioner priorities",
        sql="SELECT 'same' AS key, 'v' AS value FROM range(1000)",
        options=_TO_T | {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
        partitions=4,
    ),
    # --- settings
    *(
        Scenario(
            title=f"compression.type={codec}",
            sql="SELECT CAST(id AS STRING) AS key, repeat(CAST(id AS STRING), 50) AS value FROM range(500)",
            options=_TO_T | {"kafka.compression.type": codec},
            partitions=2,
        )
        for codec in ("snappy", "zstd")
    ),
    Scenario(
        title="more rows than buffer.memory holds",
        suite="generic - write big data with small producer buffer",
        sql="SELECT CAST(id AS STRING) AS key, repeat('x', 15000) AS value FROM range(1000)",
        options=_TO_T | {"kafka.buffer.memory": "16384"},
    ),
    Scenario(
        title="batch.size above the topic's max.message.bytes",
        sql="SELECT CAST(id AS STRING) AS key, repeat(CAST(id AS STRING), 100) AS value FROM range(200)",
        options=_TO_T
        | {"kafka.batch.size": "8000", "kafka.delivery.timeout.ms": "6000", "kafka.request.timeout.ms": "3000"},
        config={"max.message.bytes": "5000"},
        differs="written: batches are split down to the topic's limit; Java's producer splits them down to batch.size only, "
        "and fails at its delivery timeout",
    ),
    # --- refusals
    Scenario(
        title="no topic at all",
        suite=_STREAM + "write data with bad schema",
        sql="SELECT 'k' AS key, 'v' AS value",
        stream="append",
        refused="no topic to write to",
    ),
    Scenario(
        title="no value",
        suite=_STREAM + "write data with bad schema",
        sql="SELECT '{t}' AS topic, 'k' AS key",
        stream="append",
        refused="no column 'value'",
    ),
    *(
        Scenario(
            title=f"{name} of the wrong type",
            suite=_STREAM + "write data with valid schema but wrong types",
            sql=sql,
            stream="append",
            refused=f"column '{name}' is ",
        )
        for name, sql in {
            "topic": "SELECT 1 AS topic, 'v' AS value",
            "value": "SELECT '{t}' AS topic, 1 AS value",
            "key": "SELECT '{t}' AS topic, 1 AS key, 'v' AS value",
            "partition": "SELECT '{t}' AS topic, 'v' AS value, 'v' AS partition",
        }.items()
    ),
    Scenario(
        title="headers of the wrong type",
        sql="SELECT 'v' AS value, array('h') AS headers",
        options=_TO_T,
        refused="column 'headers' is ",
    ),
    Scenario(
        title="a topic that does not exist",
        suite=_STREAM + "write to non-existing topic",
        sql=_VALUES,
        options={"topic": "never-made"},
        stream="append",
        refused="UNKNOWN_TOPIC_OR_PARTITION",
    ),
    *(
        Scenario(
            title=f"kafka.{name} set",
            suite=_STREAM + "exception on config serializer",
            sql=_VALUES,
            options=_TO_T | {f"kafka.{name}": "foo"},
            stream="append",
            refused=f"kafka.{name} cannot be set here",
        )
        for name in ("key.serializer", "value.serializer")
    ),
    Scenario(
        title="a null topic in a row",
        suite=_BATCH + "null topic field value, and no topic option",
        sql="SELECT CAST(NULL AS STRING) AS topic, 'v' AS value",
        refused="a row has a null topic",
    ),
    Scenario(
        title="save modes overwrite",
        suite=_BATCH + "unsupported save modes",
        sql=_VALUES,
        options=_TO_T,
        mode="overwrite",
        refused='.mode("append")',
    ),
    Scenario(
        title="save mode ignore",
        suite=_BATCH + "unsupported save modes",
        sql=_VALUES,
        options=_TO_T,
        mode="ignore",
        refused="Ignore",
    ),
    Scenario(
        title="a partition that the topic does not have",
        sql="SELECT 7 AS partition, 'v' AS value",
        options=_TO_T,
        refused="names partition 7 of topic",
    ),
    Scenario(
        title="a negative partition",
        sql="SELECT -1 AS partition, 'v' AS value",
        options=_TO_T,
        refused="names partition -1 of topic",
    ),
    Scenario(
        title="a header with a null key",
        sql="SELECT 'v' AS value, array(named_struct('key', CAST(NULL AS STRING), 'value', X'00')) AS headers",
        options=_TO_T,
        refused="a null key",
    ),
    Scenario(
        title="a record larger than max.message.bytes",
        sql="SELECT repeat('x', 9000) AS value",
        options=_TO_T,
        config={"max.message.bytes": "5000"},
        refused="more than max.message.bytes allows",
    ),
    Scenario(
        title="a record larger than max.request.size",
        sql="SELECT repeat('x', 9000) AS value",
        options=_TO_T | {"kafka.max.request.size": "5000"},
        refused="more than max.request.size (5000) allows",
    ),
    Scenario(
        title="a record that only compression brings below max.request.size",
        sql="SELECT repeat('x', 9000) AS value",
        options=_TO_T | {"kafka.max.request.size": "5000", "kafka.compression.type": "lz4"},
        differs="written: the limit applies to the compressed batch; Java's producer checks the record before compression",
    ),
    Scenario(title="an unknown acks", sql=_VALUES, options=_TO_T | {"kafka.acks": "2"}, refused="acks is '2'"),
    *(
        Scenario(
            title=f"enable.idempotence=true with {name}={value}",
            sql=_VALUES,
            options=_TO_T | {"kafka.enable.idempotence": "true", f"kafka.{name}": value},
            refused=f"kafka.enable.idempotence=true needs kafka.{name}",
        )
        for name, value in (("acks", "1"), ("retries", "0"))
    ),
    Scenario(
        title="delivery.timeout.ms below request.timeout.ms",
        sql=_VALUES,
        options=_TO_T | {"kafka.delivery.timeout.ms": "10000", "kafka.request.timeout.ms": "20000"},
        differs="written: a request waits no longer than the rest of the delivery timeout; Java rejects the combination",
    ),
    Scenario(
        title="an unknown codec",
        sql=_VALUES,
        options=_TO_T | {"kafka.compression.type": "brotli"},
        refused="compression.type is 'brotli'",
    ),
    # --- what Spark makes of Python sinks
    Scenario(
        title="output mode update",
        suite=_STREAM + "sink progress is produced",
        sql=_VALUES,
        options=_TO_T,
        stream="update",
        refused="Update mode",
        differs="rejected by Spark for every Python sink; append and complete are accepted",
    ),
    Scenario(
        title="save mode errorifexists, Spark's default",
        sql=_VALUES,
        options=_TO_T,
        mode="errorifexists",
        refused="ErrorIfExists",
        differs='refused by Spark for every Python sink: .mode("append")',
    ),
)


def table() -> str:
    """The scenarios as a page of Markdown."""
    lines = [
        "# The sink beside Spark's JVM sink",
        "",
        "Each row is a write that tests do with both sinks in one session, `spark-sql-kafka-0-10` 4.2.0 and this one, and",
        "compare as an independent client (librdkafka) reads it: keys, values, headers, and partitions where the row or its",
        "key says them. This page is made of [the scenarios](../tests/connector/sink/parity.py), and checked against them.",
        "",
        "| Write | Outcome | Same | In the JVM connector's suites |",
        "|---|---|---|---|",
    ]
    for each in SCENARIOS:
        outcome = "written" if each.refused is None else "refused"
        same = f"differs: {each.differs}" if each.differs else "same"
        how = f"{'stream' if each.stream else 'batch'}: {each.title}"
        lines.append(f"| {how} | {outcome} | {same} | {each.suite} |")
    return "\n".join(lines) + "\n"
