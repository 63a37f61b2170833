"""Topics into Delta tables: an ingest beside a plain stream, a query for each topic, and the JVM connector's usual way.

    python benchmarks/ingest.py --topics 50 --records 200000 --one 2000000

All in one Spark session on a local Kafka, one after the other, each from an empty table: what is written is counted afterwards. The
JVM connector's way is what its users write: one query over all topics, ``foreachBatch``, ``persist``, a filter for each topic, and
``from_avro``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rig import Rig

from pykafka_wire.ingest import Ingest

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
console = Console()


class Bench:
    """A session, brokers, a registry, and folders of tables."""

    def __init__(self, rig: Rig) -> None:
        self.spark = rig.session({"spark.databricks.delta.snapshotPartitions": "2"})
        self.servers = rig.bootstrap_servers
        self.registry = rig.registry_url
        self.folder = Path(tempfile.mkdtemp(prefix="ingest-bench-"))
        self._rig = rig

    def fill(self, topic: str, n_records: int, n_partitions: int) -> None:
        self._rig.create_topic(topic, n_partitions)
        self.send(topic, n_records)

    def send(self, topic: str, n_records: int) -> None:
        (
            self.spark.range(0, n_records, 1, 2)
            .selectExpr("CAST(id AS STRING) AS key", f"{ROW} AS value")
            .write.format("pykafka-wire")
            .mode("append")
            .options(**{"kafka.bootstrap.servers": self.servers, "kafka.compression.type": "lz4", "topic": topic})
            .options(valueFormat="avro", valueSchema=json.dumps(SCHEMA))
            .options(**{"schema.registry.url": self.registry, "schema.registry.auto.register": "true"})
            .save()
        )

    def new(self, name: str) -> str:
        """An empty folder."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        return str(folder)

    def ingest(self, topics: str, name: str) -> Callable[[], None]:
        def run() -> None:
            place = self.new(name)
            given = Ingest(
                checkpoint=f"{place}/checkpoint", kafka={"bootstrap.servers": self.servers}, topics=topics, into=f"{place}/lake",
                registry=self.registry,
            )  # fmt: skip
            query = given.start(self.spark, once=True)
            query.awaitTermination()
            assert query.exception() is None
            assert all(each.error is None for each in given.statuses.values()), given.statuses

        return run

    def start_stream(self, topic: str, place: str) -> Any:
        stream = (
            self.spark.readStream.format("pykafka-wire")
            .options(**{"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest"})
            .options(
                **{"valueFormat": "avro", "schema.registry.url": self.registry, "maxOffsetsPerTrigger": "10000000"}
            )
            .load()
            .selectExpr("value.*", "key", "topic", "partition", "offset", "timestamp")
        )
        return (
            stream.writeStream.format("delta")
            .option("checkpointLocation", f"{place}/checkpoint/{topic}")
            .trigger(availableNow=True)
            .start(f"{place}/lake/{topic.replace('.', '_')}")
        )

    def streams(self, topics: list[str], name: str, *, at_once: int) -> Callable[[], None]:
        def run() -> None:
            place, waiting, running = self.new(name), list(topics), []
            while waiting or running:
                while waiting and len(running) < at_once:
                    running.append(self.start_stream(waiting.pop(), place))
                running = [each for each in running if not each.awaitTermination(0.05)]

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
        tables = [each for each in lake.iterdir() if not each.name.startswith("_")]
        return sum(self.spark.read.format("delta").load(str(each)).count() for each in tables)


def measured(title: str, run: Callable[[], None], count: Callable[[], int], expected: int) -> float:
    """Seconds of one run."""
    cpu, started = os.times(), time.monotonic()
    run()
    seconds = time.monotonic() - started
    assert count() == expected, f"{title}: {count()} rows and not {expected}"
    used = os.times()
    children = used.children_user + used.children_system - cpu.children_user - cpu.children_system
    console.print(
        f"  {title}: {seconds:.1f} s, {expected / seconds:,.0f} records/s",
        f"(children {children:.0f} s)" if children else "",
    )
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--records", type=int, default=200_000, help="of each topic")
    parser.add_argument("--one", type=int, default=2_000_000, help="records of the single topic")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--without", nargs="*", default=[], choices=["one", "many", "streams", "few"])
    given = parser.parse_args()
    with Rig() as rig:
        bench = Bench(rig)
        try:
            if "one" not in given.without:
                one_topic(bench, given.one, given.pairs)
            if "many" not in given.without:
                many_topics(bench, given)
            if "few" not in given.without:
                few_of_many(bench, given.topics)
        finally:
            shutil.rmtree(bench.folder, ignore_errors=True)


def one_topic(bench: Bench, n_records: int, pairs: int) -> None:
    console.print(f"one Avro topic of {n_records:,} records")
    bench.fill("one.orders", n_records, 4)
    ratios = []
    for pair in range(pairs + 1):
        name = f"one-{pair}"
        plain = measured(
            "a typed stream into Delta",
            bench.streams(["one.orders"], name, at_once=1),
            lambda n=name: bench.count(n),
            n_records,
        )
        name = f"one-ingest-{pair}"
        ours = measured("ingest", bench.ingest(r"one\..*", name), lambda n=name: bench.count(n), n_records)
        if pair:  # the first one warms up
            ratios.append(plain / ours)
    console.print(f"rate of ingest beside the stream: {', '.join(f'{each:.2f}' for each in ratios)}")


def many_topics(bench: Bench, given: argparse.Namespace) -> None:
    console.print(f"{given.topics} Avro topics of {given.records:,} records each")
    topics = [f"many.orders{number}" for number in range(given.topics)]
    for topic in topics:
        bench.fill(topic, given.records, 1)
    total = given.topics * given.records
    ours = measured("ingest", bench.ingest(r"many\..*", "many"), lambda: bench.count("many"), total)
    jvm = measured(
        "the JVM connector, foreachBatch and from_avro",
        bench.jvm(r"^many\.", topics, "jvm"),
        lambda: bench.count("jvm"),
        total,
    )
    console.print(f"rate of ingest beside the JVM connector's way: {jvm / ours:.2f}")
    if "streams" not in given.without:
        streams = measured(
            "a query for each topic, 4 at once",
            bench.streams(topics, "streams", at_once=4),
            lambda: bench.count("streams"),
            total,
        )
        console.print(f"rate of ingest beside a query for each topic: {streams / ours:.2f}")


def few_of_many(bench: Bench, n_topics: int) -> None:
    """The time of one micro-batch in which 3 of many topics have new records, beside that of a single topic."""
    console.print(f"a micro-batch with records of 3 of {n_topics} topics, beside one of a single topic")
    times: dict[str, list[float]] = {"few": [], "single": []}
    for topic in [f"few.t{number}" for number in range(n_topics)] + ["single.t0"]:
        bench.fill(topic, 100, 1)
    for name in times:
        place = bench.new(name)
        ingest = Ingest(
            checkpoint=f"{place}/checkpoint", kafka={"bootstrap.servers": bench.servers}, topics=rf"{name}\..*",
            into=f"{place}/lake", registry=bench.registry,
        )  # fmt: skip
        for number in range(7):
            n_new = 1 if name == "single" else 3 if number else n_topics
            for topic in [f"{name}.t{each}" for each in range(n_new)]:
                bench.send(topic, 100)
            query = ingest.start(bench.spark, once=True)
            query.awaitTermination()
            if number:  # the first one makes the tables
                times[name] += [
                    float(each["durationMs"]["addBatch"])
                    for each in query.recentProgress
                    if each["durationMs"].get("addBatch")
                ]
    medians = {name: sorted(each)[len(each) // 2] for name, each in times.items()}
    console.print(f"  {medians}, ratio {medians['few'] / medians['single']:.2f}")


if __name__ == "__main__":
    main()
