"""The main job, end to end: a Kafka topic through Spark into Delta, with SQL over the topic and the group's lag.

    make demo                                        starts a real Kafka of two brokers and does everything
    make demo BOOTSTRAP=host:9092 TOPIC=orders       reads a topic of your own cluster, writes nothing to it

Exits 0 only when what was written, what is in Kafka and what is in Delta agree: by distinct (topic, partition, offset)
and by a digest over keys and values.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import pykafka_wire.cli
from pykafka_wire.cli.spark_output import WithoutChatter
from pykafka_wire.local import (
    KafkaTools,
    LocalCluster,
    NamedCluster,
    delta_jars,
    ensure_java,
    export_java_home,
    kafka_jars,
)
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import create_topics
from pykafka_wire.wire.settings import ClientSettings

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
N_RECORDS = 1_000_000
N_PARTITIONS = 6
#: The newest Kafka whose command-line tools are published with it, so that one download has both.
KAFKA_VERSION = "4.3.1"
LOG_SETTINGS = Path(pykafka_wire.cli.__file__).with_name("log4j2.properties")
#: Takes the first write, so that what is measured is not the start of Spark's processes.
WARM_UP = "warm-up"
TRICKLE_SECONDS = 8
START_SECONDS = 120
TRICKLE_ROWS_PER_SECOND = 500

#: Lines are as long as they are: a terminal breaks them, and a file or a pipe keeps paths whole.
console = Console(soft_wrap=True)


@dataclass
class Digest:
    """A set of records: their number, the number of distinct positions, and a hash over keys and values."""

    records: int
    places: int
    content: int

    @classmethod
    def of(cls, records: DataFrame) -> Digest:
        row = records.selectExpr(
            "count(*) AS records",
            "count(DISTINCT topic, partition, offset) AS places",
            "coalesce(sum(CAST(xxhash64(key, value) AS DECIMAL(38, 0))), 0) AS content",
        ).first()
        assert row is not None
        return cls(int(row.records), int(row.places), int(row.content))


@contextmanager
def step(title: str) -> Iterator[Progress]:
    """Shows a bar, or a spinner where the length is unknown, while a step runs, and its time when it is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(title, total=None)
        started = time.monotonic()
        yield progress
    console.print(f"  [green]✓[/] {title} [dim]{time.monotonic() - started:.1f} s[/]")


def start_spark() -> SparkSession:
    # Otherwise Spark's workers run python3 from the PATH, which may lack this package. This command starts them sooner, and ends
    # them quietly. The log settings are those of pykafka-wire's own commands: errors alone.
    python = str(Path(sys.executable).with_name("pykafka-wire-python"))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pykafka-wire demo")
        .config("spark.jars", ",".join(str(jar) for jar in delta_jars()))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "4")
        # Delta reads a table's log with 50 tasks by default: on two cores, most of a small micro-batch.
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def write_orders(spark: SparkSession, bootstrap: str, topic: str, n_records: int) -> float:
    """Writes orders through the sink; returns records per second."""
    started = time.monotonic()
    rows = spark.range(0, n_records, 1, 4).selectExpr(
        "CAST(id AS STRING) AS key", "concat('{\"order\":', id, ',\"pad\":\"', repeat('x', 64), '\"}') AS value"
    )
    (
        rows.write.format("pykafka-wire")
        .mode("append")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.compression.type", "lz4")
        .option("topic", topic)
        .save()
    )
    return n_records / (time.monotonic() - started)


def read_stream(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def trickle(spark: SparkSession, bootstrap: str, topic: str, checkpoint: Path) -> Any:
    """A second stream that writes a few rows a second to the topic, through the streaming sink."""
    return (
        spark.readStream.format("rate")
        .option("rowsPerSecond", TRICKLE_ROWS_PER_SECOND)
        .load()
        .selectExpr("CAST(value AS STRING) AS key", "CAST(timestamp AS STRING) AS value")
        .writeStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="500 milliseconds")
        .start()
    )


def micro_batches(query: Any) -> list[dict[str, Any]]:
    """The progress of the micro-batches that had records."""
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def last_offset(query: Any) -> dict[str, Any]:
    """A query's position, from its checkpoint: with offsets, and with the consumer group that it commits to."""
    for progress in reversed(query.recentProgress):
        for source in progress["sources"]:
            if '"group"' in (source["endOffset"] or ""):
                return dict(json.loads(source["endOffset"]))
    raise RuntimeError("the query has made no progress that names its group")


def first_offsets(query: Any) -> dict[str, dict[str, int]]:
    """The start of a query's first batch: its start, and that of each partition that came later."""
    lags: dict[str, dict[str, int]] = {}
    for progress in query.recentProgress:
        for source in progress["sources"]:
            for topic, starts in json.loads(source["endOffset"] or "{}").get("starts", {}).items():
                lags[topic] = {**starts, **lags.get(topic, {})}
    return lags


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="brokers of your own; the local Kafka is not started then")
    parser.add_argument("--topic", help="the topic of your own to read")
    arguments = parser.parse_args()
    if bool(arguments.bootstrap) != bool(arguments.topic):
        parser.error(
            "BOOTSTRAP and TOPIC go together: brokers of your own need a topic to read, and a topic its brokers"
        )
    is_given = bool(arguments.bootstrap)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pykafka-wire-demo-")))
        with step("Java, and Delta's two jars from Maven Central"):
            export_java_home(ensure_java())
            delta_jars()
        kafka: KafkaTools
        if is_given:
            kafka, topic = NamedCluster(arguments.bootstrap), arguments.topic
        else:
            with step(f"Kafka {KAFKA_VERSION} from Maven Central"):
                kafka_jars(KAFKA_VERSION)
            with step("Kafka: two brokers and a controller"):
                kafka, topic = stack.enter_context(LocalCluster(nodes=2, version=KAFKA_VERSION)), "orders"
                client = Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers}))
                stack.callback(client.close)
                create_topics(client, {topic: (N_PARTITIONS, 2), WARM_UP: (1, 1)})
        stack.enter_context(WithoutChatter())
        with step("Spark session with Delta"):
            spark = start_spark()
            stack.callback(spark.stop)
        return run(spark, kafka, topic, folder, is_given)


def run(spark: SparkSession, kafka: KafkaTools, topic: str, folder: Path, is_given: bool) -> int:
    bootstrap = kafka.bootstrap_servers
    table, checkpoint = folder / "orders", folder / "orders_checkpoint"
    facts: list[tuple[str, str]] = []

    def into_delta(**trigger: Any) -> Any:
        writer = read_stream(spark, bootstrap, topic).writeStream.format("delta").trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).start(str(table))

    if not is_given:
        with step("Start Spark's Python processes"):
            write_orders(spark, bootstrap, WARM_UP, 1_000)
        with step(f"Write {N_RECORDS:,} records through the sink"):
            rate = write_orders(spark, bootstrap, topic, N_RECORDS)
        facts.append(("written, records per second", f"{rate:,.0f}"))

    with step("Stream the backlog into Delta (AvailableNow)"):
        query = into_delta(availableNow=True)
        query.awaitTermination()
    progress = query.recentProgress
    n_backlog = sum(report["numInputRows"] for report in progress)
    elapsed_s = sum(report["batchDuration"] for report in progress) / 1000
    facts.append(("streamed into Delta, records per second", f"{n_backlog / elapsed_s:,.0f}"))

    if not is_given:
        with step(f"Micro-batches while a writer adds {TRICKLE_ROWS_PER_SECOND} records a second"):
            query = into_delta(processingTime="0 seconds")
            writer = trickle(spark, bootstrap, topic, folder / "trickle_checkpoint")
            deadline = time.monotonic() + START_SECONDS  # the first micro-batches start processes of their own
            while not micro_batches(query) and time.monotonic() < deadline:
                time.sleep(0.1)
            n_first = len(micro_batches(query))
            time.sleep(TRICKLE_SECONDS)
            writer.processAllAvailable()
            writer.stop()
            query.processAllAvailable()
            batches = micro_batches(query)[n_first:]
            time.sleep(1)  # an idle query commits its last batch with its next look at the topic
            query.stop()
        took = sorted(progress["batchDuration"] for progress in batches)
        facts.append(("micro-batches", f"{len(batches)}, median {took[len(took) // 2]} ms" if took else "0"))

    reached = last_offset(query)
    with step("Query the same topic in SQL"):
        within = ""
        if is_given:  # others write to it, and its old records age out: compare what the stream has read
            begun = json.dumps(first_offsets(query))
            within = f", startingOffsets '{begun}', endingOffsets '{json.dumps(reached['offsets'])}'"
        spark.sql(
            f"CREATE TEMPORARY VIEW topic USING `pykafka-wire` "
            f"OPTIONS (`kafka.bootstrap.servers` '{bootstrap}', subscribe '{topic}'{within})"
        )
        per_partition = spark.sql(
            "SELECT partition, count(*) AS records, min(offset) AS first, max(offset) AS last, max(timestamp) AS newest "
            "FROM topic GROUP BY partition ORDER BY partition"
        ).collect()
    with step("Compare Kafka and Delta"):
        in_kafka = Digest.of(spark.table("topic"))
        in_delta = Digest.of(spark.read.format("delta").load(str(table)))
    group = reached["group"]
    with step("Ask Kafka's own tool for the group's lag"):
        lag_report = kafka.tool(CONSUMER_GROUPS, "--describe", "--group", group)

    partitions = Table(
        "partition", "records", "first", "last", "newest", title=f"SQL over {topic}", title_justify="left"
    )
    for row in per_partition:
        partitions.add_row(*(str(value) for value in row))
    console.print(partitions)
    console.print(f"[bold]kafka-consumer-groups --describe --group {group}[/]")
    console.print(lag_report.strip(), highlight=False, soft_wrap=True)

    lags = consumer_lags(lag_report)
    agreed = in_kafka == in_delta and in_delta.records == in_delta.places
    facts += [
        ("records in Kafka", f"{in_kafka.records:,}"),
        ("records in Delta", f"{in_delta.records:,}"),
        ("distinct places, Kafka and Delta", f"{in_kafka.places:,} and {in_delta.places:,}"),
        ("digests over keys and values", "equal" if in_kafka.content == in_delta.content else "NOT EQUAL"),
        ("the group's lag", f"{sum(lags)} over {len(lags)} partitions"),
    ]
    summary = Table(show_header=False, title="Summary", title_justify="left")
    for fact in facts:
        summary.add_row(*fact)
    console.print(summary)
    caught_up = bool(lags) and sum(lags) == 0
    console.print("[bold green]Kafka and Delta agree.[/]" if agreed else "[bold red]Kafka and Delta do not agree.[/]")
    if not caught_up:
        console.print(
            "[bold red]The group is behind the topic.[/]" if not is_given else "The group is behind: the topic grows."
        )
    return 0 if agreed and (caught_up or is_given) else 1


def consumer_lags(report: str) -> list[int]:
    """The LAG column of the tool's report."""
    lines = [line.split() for line in report.splitlines() if line.strip()]
    header = next((i for i, line in enumerate(lines) if "LAG" in line), None)
    if header is None:
        return []
    column = lines[header].index("LAG")
    return [int(line[column]) for line in lines[header + 1 :] if len(line) > column and line[column].isdigit()]


if __name__ == "__main__":
    sys.exit(main())
