"""Topics into Delta tables: an ingest beside a plain stream, a query for each topic, and the JVM connector's usual way.

    python benchmarks/ingest.py one --records 4000000
    python benchmarks/ingest.py many --topics 50 --records 200000
    python benchmarks/ingest.py streams --topics 50 --records 200000
    python benchmarks/ingest.py few --topics 50
    python benchmarks/ingest.py parts --records 2000000
    python benchmarks/ingest.py parts --records 2000000 --by-spark
    python benchmarks/ingest.py part --records 2000000

All in one Spark session on a local Kafka, one after the other, each from empty tables: what is written is counted afterwards. The
JVM connector's way is what its users write: one query over all topics, ``foreachBatch``, ``persist``, a filter for each topic, and
``from_avro``. CPU is that of Spark's JVM, of its Python processes and of this one; the broker's is not counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from processes import CpuTime
from rich.console import Console
from rig import Rig

from pykafka_wire.ingest import Ingest, Table

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "quantity", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": "boolean"},
        {"name": "country", "type": "string"},
    ],
}
ROW = (
    "named_struct('id', id, 'customer', concat('customer-', id % 1000), 'amount', id * 0.25D, 'quantity', cast(id % 7 as int), "
    "'note', if(id % 3 = 0, 'note', null), 'at', timestamp_millis(1700000000000 + id), 'paid', id % 2 = 0, 'country', 'NO')"
)
#: Conditions that part a topic's records into three tables; and the same as tasks do not evaluate them.
PARTS = {"small": "quantity < 2", "middle": "quantity IN (2, 3)", "large": "quantity > 3"}
BY_SPARK = {part: where.replace("quantity", "abs(quantity)") for part, where in PARTS.items()}
console = Console()


class Bench:
    """A session, brokers, a registry, and folders of tables."""

    def __init__(self, rig: Rig) -> None:
        self.spark = rig.session({"spark.databricks.delta.snapshotPartitions": "2"})
        self.jvm_pid = rig.jvm_pid
        self.servers = rig.bootstrap_servers
        self.registry = rig.registry_url
        self.folder = Path(tempfile.mkdtemp(prefix="ingest-bench-"))
        self._rig = rig

    def fill(self, topic: str, n_records: int, n_partitions: int) -> None:
        self._rig.create_topic(topic, n_partitions)
        self.send([topic], n_records)

    def fill_all(self, topics: Sequence[str], n_records: int) -> None:
        """New topics of one partition with ``n_records`` each."""
        for topic in topics:
            self._rig.create_topic(topic, 1)
        self.send(topics, n_records)

    def send(self, topics: Sequence[str], n_records: int) -> None:
        """``n_records`` to each topic by one write."""
        of_topic = "element_at(array({}), cast(id % {} as int) + 1)".format(
            ", ".join(map("'{}'".format, topics)), len(topics)
        )
        registry = SchemaRegistryClient({"url": self.registry})
        for topic in topics:
            registry.register_schema(f"{topic}-value", Schema(json.dumps(SCHEMA), "AVRO"))
        (
            self.spark.range(0, n_records * len(topics), 1, 2)
            .selectExpr(f"{of_topic} AS topic", "CAST(id AS STRING) AS key", f"{ROW} AS value")
            .write.format("pykafka-wire")
            .mode("append")
            .options(**{"kafka.bootstrap.servers": self.servers, "kafka.compression.type": "lz4"})
            .options(valueFormat="avro", valueSubject=f"{topics[0]}-value")
            .options(**{"schema.registry.url": self.registry})
            .save()
        )

    def new(self, name: str) -> str:
        """An empty folder."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        return str(folder)

    def ingest(self, topics: str, name: str, *, write: str = "auto") -> Callable[[], None]:
        """``write`` is the setting: ``auto`` or ``spark``."""

        def run() -> None:
            place = self.new(name)
            given = Ingest(
                checkpoint=f"{place}/checkpoint", kafka={"bootstrap.servers": self.servers}, topics=topics, into=f"{place}/lake",
                registry=self.registry, defaults=Table(topic=".*", write=write),
            )  # fmt: skip
            query = given.start(self.spark, once=True)
            query.awaitTermination()
            assert query.exception() is None
            assert all(status.error is None for status in given.statuses.values()), given.statuses

        return run

    def rows(self, topic: str) -> Any:
        return (
            self.spark.readStream.format("pykafka-wire")
            .options(**{"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest"})
            .options(
                **{"valueFormat": "avro", "schema.registry.url": self.registry, "maxOffsetsPerTrigger": "10000000"}
            )
            .load()
            .selectExpr("value.*", "key", "topic", "partition", "offset", "timestamp")
        )

    def start_stream(self, topic: str, place: str) -> Any:
        return self.start(self.rows(topic), topic.replace(".", "_"), place)

    def start(self, rows: Any, table: str, place: str) -> Any:
        return (
            rows.writeStream.format("delta")
            .option("checkpointLocation", f"{place}/checkpoint/{table}")
            .trigger(availableNow=True)
            .start(f"{place}/lake/{table}")
        )

    def parts_by_ingest(self, topic: str, name: str, parts: dict[str, str]) -> Callable[[], None]:
        def run() -> None:
            place = self.new(name)
            tables = [Table(topic=topic, name=part, where=where) for part, where in parts.items()]
            given = Ingest(
                checkpoint=f"{place}/checkpoint", kafka={"bootstrap.servers": self.servers}, topics=topic, into=f"{place}/lake",
                registry=self.registry, tables=tables,
            )  # fmt: skip
            given.start(self.spark, once=True).awaitTermination()
            problems = [(status.error, status.rejects) for status in given.statuses.values()]
            assert problems == [(None, 0)] * len(parts), problems

        return run

    def parts_by_streams(self, topic: str, name: str, parts: dict[str, str]) -> Callable[[], None]:
        def run() -> None:
            place = self.new(name)
            for query in [self.start(self.rows(topic).where(where), part, place) for part, where in parts.items()]:
                query.awaitTermination()

        return run

    def parts_by_batches(self, topic: str, name: str, parts: dict[str, str]) -> Callable[[], None]:
        def run() -> None:
            place = self.new(name)

            def land(batch: Any, number: int) -> None:
                batch.persist()
                for part, where in parts.items():
                    writer = batch.where(where).write.format("delta").mode("append")
                    writer.options(txnAppId=f"{topic}-{part}", txnVersion=number).save(f"{place}/lake/{part}")
                batch.unpersist()

            writer = self.rows(topic).writeStream.foreachBatch(land)
            writer = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True)
            writer.start().awaitTermination()

        return run

    def streams(self, topics: list[str], name: str, *, at_once: int) -> Callable[[], None]:
        def run() -> None:
            place, waiting, running = self.new(name), list(topics), []
            while waiting or running:
                while waiting and len(running) < at_once:
                    running.append(self.start_stream(waiting.pop(), place))
                running = [query for query in running if not query.awaitTermination(0.05)]

        return run

    def jvm(self, pattern: str, topics: list[str], name: str) -> Callable[[], None]:
        from pyspark.sql.avro.functions import from_avro
        from pyspark.sql.functions import col, expr

        def run() -> None:
            place = self.new(name)

            def land(batch: Any, _: int) -> None:
                batch.persist()
                for topic in topics:
                    rows = batch.where(col("topic") == topic).withColumn(
                        "value", from_avro(expr("substring(value, 6)"), json.dumps(SCHEMA))
                    )
                    columns = ("value.*", "key", "topic", "partition", "offset", "timestamp")
                    rows.select(*columns).write.format("delta").mode("append").save(
                        f"{place}/lake/{topic.replace('.', '_')}"
                    )
                batch.unpersist()

            stream = (
                self.spark.readStream.format("kafka")
                .options(**{"kafka.bootstrap.servers": self.servers, "subscribePattern": pattern})
                .options(startingOffsets="earliest", maxOffsetsPerTrigger="10000000")
                .load()
            )
            query = (
                stream.writeStream.foreachBatch(land)
                .option("checkpointLocation", f"{place}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        return run

    def count(self, name: str) -> int:
        lake = self.folder / name / "lake"
        tables = [folder for folder in lake.iterdir() if not folder.name.startswith("_")]
        return sum(self.spark.read.format("delta").load(str(table)).count() for table in tables)

    def commits(self, names: list[str], name: str) -> Callable[[], None]:
        """Delta's own part: a commit of one row to a new table for each topic, one after the other."""

        def run() -> None:
            place = self.new(name)
            for contender in names:
                row = self.spark.range(1).selectExpr(f"inline(array({ROW}))")
                row.write.format("delta").mode("append").save(f"{place}/lake/{contender.replace('.', '_')}")

        return run


@dataclass(frozen=True)
class Used:
    """What a run took."""

    seconds: float
    cpu_seconds: float


def measured(bench: Bench, title: str, run: Callable[[], None], name: str, expected: int) -> Used:
    started, of_this = time.monotonic(), time.process_time()
    with CpuTime(bench.jvm_pid) as cpu:
        run()
        seconds = time.monotonic() - started
    cpu.seconds += time.process_time() - of_this - cpu.sampler_seconds
    counted = bench.count(name)
    assert counted == expected, f"{title}: {counted} rows and not {expected}"
    shutil.rmtree(bench.folder / name)
    console.print(
        f"  {title}: {seconds:.1f} s, {expected / seconds:,.0f} records/s, {cpu.seconds:.1f} s of CPU, "
        f"{cpu.python_seconds:.1f} of them Python"
    )
    return Used(seconds, cpu.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["one", "many", "streams", "few", "parts", "part"])
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--records", type=int, default=200_000, help="of each topic")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--by-spark", action="store_true", help="conditions of parts that Spark has to evaluate")
    given = parser.parse_args()
    with Rig() as rig:
        bench = Bench(rig)
        try:
            if given.what == "one":
                one_topic(bench, given.records, given.pairs)
            elif given.what == "few":
                few_of_many(bench, given.topics, given.pairs)
            elif given.what == "parts":
                parts_of_one(bench, given.records, given.pairs, BY_SPARK if given.by_spark else PARTS)
            elif given.what == "part":
                part_of_one(bench, given.records, given.pairs)
            else:
                many_topics(bench, given.topics, given.records, beside_jvm=given.what == "many")
        finally:
            shutil.rmtree(bench.folder, ignore_errors=True)


def one_topic(bench: Bench, n_records: int, pairs: int) -> None:
    console.print(f"one Avro topic of {n_records:,} records in 4 partitions")
    bench.fill("one.orders", n_records, 4)
    ways = {
        "a typed stream into Delta": bench.streams(["one.orders"], "one", at_once=1),
        "ingest, files by Spark": bench.ingest(r"one\..*", "one", write="spark"),
        "ingest, files by tasks": bench.ingest(r"one\..*", "one"),
    }
    compare(bench, ways, "ingest, files by tasks", "one", n_records, pairs)


def compare(
    bench: Bench, ways: dict[str, Callable[[], None]], ours: str, name: str, n_records: int, pairs: int
) -> None:
    """Run all ways in turn, and print the time and CPU of each over those of ``ours``, one of them."""
    used: dict[str, list[Used]] = {title: [] for title in ways}
    for pair in range(pairs + 1):
        for title, run in ways.items():
            run_used = measured(bench, title, run, name, n_records)
            if pair:  # the first one warms up
                used[title].append(run_used)
    of_ours = used.pop(ours)
    for title, others in used.items():
        for what, attribute in (("time", "seconds"), ("CPU", "cpu_seconds")):
            pairs_used = zip(others, of_ours, strict=True)
            ratios = [getattr(other, attribute) / getattr(ours, attribute) for other, ours in pairs_used]
            listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            console.print(f"{what} of {title}, over {ours}: {statistics.median(ratios):.2f} ({listed})")


def parts_of_one(bench: Bench, n_records: int, pairs: int, parts: dict[str, str]) -> None:
    conditions = ", ".join(parts.values())
    console.print(f"one Avro topic of {n_records:,} records in 4 partitions, into three tables: {conditions}")
    bench.fill("parts.orders", n_records, 4)
    ways = {
        "ingest": bench.parts_by_ingest("parts.orders", "parts", parts),
        "three typed streams with filters": bench.parts_by_streams("parts.orders", "parts", parts),
        "foreachBatch, persist, three filters": bench.parts_by_batches("parts.orders", "parts", parts),
    }
    compare(bench, ways, "ingest", "parts", n_records, pairs)


def part_of_one(bench: Bench, n_records: int, pairs: int) -> None:
    console.print(f"one Avro topic of {n_records:,} records in 4 partitions, three of seven of them into one table")
    bench.fill("part.orders", n_records, 4)
    part = {"large": PARTS["large"]}
    ways = {
        "ingest": bench.parts_by_ingest("part.orders", "part", part),
        "a typed stream with a filter": bench.parts_by_streams("part.orders", "part", part),
    }
    compare(bench, ways, "ingest", "part", sum(number % 7 > 3 for number in range(n_records)), pairs)


def many_topics(bench: Bench, n_topics: int, n_records: int, *, beside_jvm: bool) -> None:
    """Ingest beside the JVM connector's usual way, or beside a query of ours for each topic."""
    console.print(f"{n_topics} Avro topics of {n_records:,} records in one partition each")
    topics = [f"many.orders{number}" for number in range(n_topics)]
    warm = ["warm.orders0", "warm.orders1"]
    bench.fill_all(topics, n_records)
    bench.fill_all(warm, 1000)
    if beside_jvm:
        other, title = bench.jvm, "the JVM connector, foreachBatch and from_avro"
        runs = bench.jvm(r"^many\.", topics, "many"), bench.jvm(r"^warm\.", warm, "warm")
    else:
        title = "a query for each topic, 4 at once"
        runs = bench.streams(topics, "many", at_once=4), bench.streams(warm, "warm", at_once=2)
    measured(bench, "warming up", bench.ingest(r"warm\..*", "warm"), "warm", 2000)
    measured(bench, "warming up", runs[1], "warm", 2000)
    measured(bench, "a commit by Spark of one row for each topic", bench.commits(topics, "many"), "many", n_topics)
    total = n_topics * n_records
    ours = measured(bench, "ingest", bench.ingest(r"many\..*", "many"), "many", total)
    other = measured(bench, title, runs[0], "many", total)
    console.print(
        f"rate of ingest beside {title}: {other.seconds / ours.seconds:.2f}, "
        f"with {ours.cpu_seconds / other.cpu_seconds:.2f} of its CPU"
    )


def few_of_many(bench: Bench, n_topics: int, rounds: int) -> None:
    """The time of one micro-batch in which 3 of many topics have new records, beside that of a single topic."""
    console.print(f"a micro-batch with 1,000 new records of 3 of {n_topics} topics each, beside one of a single topic")
    names = {"few": [f"few.t{number}" for number in range(n_topics)], "single": ["single.t0"]}
    for topics in names.values():
        bench.fill_all(topics, 100)
    running = {}
    for name in names:
        place = bench.new(name)
        ingest = Ingest(
            checkpoint=f"{place}/checkpoint", kafka={"bootstrap.servers": bench.servers}, topics=rf"{name}\..*",
            into=f"{place}/lake", registry=bench.registry,
        )  # fmt: skip
        running[name] = ingest.start(bench.spark, every="0 seconds")
        running[name].processAllAvailable()
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(3 * rounds + 2):
        for name, query in running.items():
            bench.send(names[name][:3], 1000)
            query.processAllAvailable()
            batches = [
                progress["durationMs"] for progress in query.recentProgress if progress["durationMs"].get("addBatch")
            ]
            if number > 1:  # the first ones warm up
                times[name].append(float(batches[-1]["triggerExecution"]))
    for query in running.values():
        query.stop()
    medians = {name: statistics.median(values) for name, values in times.items()}
    console.print(f"  {times}\n  {medians}, ratio {medians['few'] / medians['single']:.2f}")


if __name__ == "__main__":
    main()
