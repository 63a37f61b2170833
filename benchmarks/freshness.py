"""How soon a record is a row: an ingest into Delta or Iceberg while a producer writes at a steady rate.

    python benchmarks/freshness.py                                # one Avro topic, 10,000 records/s, every 0 s
    python benchmarks/freshness.py --topics 10                    # the same rate over ten topics
    python benchmarks/freshness.py --every 10 --format iceberg

A record's freshness is the time from its timestamp, which the producer sets when it hands the record over, to the moment at which
the commit with it is there for every reader: the time at which the commit's file was made. All records count that are written after
the warm-up. The producer is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from ingest import SCHEMA
from processes import CpuTime
from rich.console import Console
from rig import Rig

from pykafka_wire.ingest import Ingest, Table

PARTITIONS = 4
#: The producer writes so often.
_TICK_S = 0.02
console = Console()


def produce(servers: str, registry: str, topics: list[str], rate: int, seconds: float) -> None:
    """Write at a steady rate, in turn to all partitions; a record's timestamp is the moment at which it is handed over."""
    from pykafka_wire.wire.record_producer import RecordProducer

    write = AvroSerializer(SchemaRegistryClient({"url": registry}), json.dumps(SCHEMA))
    rows = [
        {"id": n, "customer": f"customer-{n % 1000}", "amount": n / 4, "quantity": n % 7, "note": None, "at": 1_700_000_000_000 + n,
         "paid": True, "country": "NO"} for n in range(1000)
    ]  # fmt: skip
    for topic in topics:  # each topic's subject gets the schema
        values = [write(row, SerializationContext(topic, MessageField.VALUE)) or b"" for row in rows]
    producer = RecordProducer({"bootstrap.servers": servers, "compression.type": "lz4", "linger.ms": "0"})
    begun, n_sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - begun) < seconds:
        for number in range(n_sent, int(elapsed * rate)):
            topic = topics[number // PARTITIONS % len(topics)]
            now_ms = int(time.time() * 1000)
            producer.send(topic, values[number % 1000], partition=number % PARTITIONS, timestamp_ms=now_ms)
        n_sent = max(n_sent, int(elapsed * rate))
        producer.flush()
        time.sleep(max(0.0, _TICK_S - (time.monotonic() - begun - elapsed)))
    print(n_sent)


class Landed:
    """When each commit of a table was there, and what it holds."""

    def __init__(self, commits: list[tuple[float, dict[int, int], dict[int, int]]], n_files: list[int]) -> None:
        """``commits``: the time in ms since the epoch, and the offsets by partition, from and to. ``n_files``: how many files the
        table had after each commit of any program."""
        self.commits = commits
        self.n_files = n_files

    @classmethod
    def of_delta(cls, folder: Path) -> Landed:
        logged, n_files = [], [0]
        for entry in sorted((folder / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
            logged += [(entry.stat().st_mtime * 1000, info.get("userMetadata")) for info in infos]
            n_files.append(n_files[-1] + sum(("add" in action) - ("remove" in action) for action in actions))
        return cls([(timestamp, *_offsets(text)) for timestamp, text in logged if _has_offsets(text)], n_files)

    @classmethod
    def of_iceberg(cls, table: Any) -> Landed:  # Any: pyiceberg's
        """pyiceberg keeps the time at which it has made a snapshot, shortly before the catalog has it."""
        snapshots = table.metadata.snapshots
        logged = [(snapshot.timestamp_ms, snapshot.summary.get("pykafka-wire")) for snapshot in snapshots]
        n_files = [int(snapshot.summary.get("total-data-files") or 0) for snapshot in snapshots]
        return cls([(timestamp, *_offsets(text)) for timestamp, text in logged if text], n_files)

    def freshness_ms(self, rows: Any, since_ms: float) -> Any:
        """float64[n]: of each row, given as pyarrow's table of partition, offset and timestamp, that was written since then."""
        partition, offset = (rows.column(i).to_numpy() for i in range(2))
        written = rows.column(2).cast("int64").to_numpy() / 1000
        committed_ms = np.full(len(partition), np.nan)
        for number in {number for _, _, end in self.commits for number in end}:
            of_number = [(end[number], start[number], at) for at, start, end in self.commits if number in end]
            ends, starts, times = (np.array(column) for column in zip(*sorted(of_number), strict=True))
            rows_of_number = np.flatnonzero(partition == number)
            place = np.searchsorted(ends, offset[rows_of_number], side="right")
            assert (offset[rows_of_number] >= starts[place]).all(), "each row is a commit's"
            committed_ms[rows_of_number] = times[place] - written[rows_of_number]
        assert not np.isnan(committed_ms).any(), "each row is a commit's"
        return committed_ms[written >= since_ms]


def _has_offsets(text: str | None) -> bool:
    return "pykafka-wire" in json.loads(text or "{}")


def _offsets(text: str) -> tuple[dict[int, int], dict[int, int]]:
    landed = json.loads(text)["pykafka-wire"]
    start, end = ({int(p): offset for p, offset in landed[name].items()} for name in ("start", "end"))
    return start, end


def measure(given: argparse.Namespace) -> None:
    """Run the ingest and the producer, and print the figures."""
    with Rig() as rig:
        topics = [f"fresh.t{number}" for number in range(given.topics)]
        for topic in topics:
            rig.create_topic(topic, PARTITIONS)
            SchemaRegistryClient({"url": rig.registry_url}).register_schema(
                f"{topic}-value", Schema(json.dumps(SCHEMA), "AVRO")
            )
        folder = rig.fresh_dir("lake")
        place: dict[str, Any] = {"into": str(folder)}
        properties: dict[str, str] = {}
        if given.format == "iceberg":
            from pyiceberg.catalog import load_catalog

            catalog = {"type": "sql", "uri": f"sqlite:///{rig.work_dir}/catalog.db", "warehouse": f"file://{folder}"}
            load_catalog("lake", **catalog).create_namespace("fresh")
            place = {"into": "lake.fresh", "table_format": "iceberg", "catalog": catalog}
            # Each snapshot is looked at below.
            properties = {"history.expire.max-snapshot-age-ms": str(24 * 3600 * 1000)}
        spark = rig.session({"spark.databricks.delta.snapshotPartitions": "2"})
        ingest = Ingest(
            checkpoint=str(rig.fresh_dir("checkpoint")), kafka={"bootstrap.servers": rig.bootstrap_servers}, topics=r"fresh\..*",
            registry=rig.registry_url, **place,
            defaults=Table(topic=".*", write=given.write, compact=given.compact, properties=properties),
        )  # fmt: skip
        producer = subprocess.Popen(
            [sys.executable, __file__, "--produce", rig.bootstrap_servers, rig.registry_url, "--topics", str(given.topics),
             "--rate", str(given.rate), "--seconds", str(given.seconds + given.warm_up)], stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(2.0)  # the first records
        query = ingest.start(spark, every=f"{given.every} seconds")
        time.sleep(given.warm_up)
        since_ms = time.time() * 1000
        with CpuTime(rig.jvm_pid) as cpu:
            n_sent = int(producer.communicate()[0])
        query.processAllAvailable()
        durations = [
            progress["durationMs"] for progress in query.recentProgress if progress["durationMs"].get("addBatch")
        ]
        query.stop()
        assert all(status.error is None for status in ingest.statuses.values()), ingest.statuses
        fresh, n_files = [], list[int]()
        for topic in topics:
            name = topic.replace(".", "_")
            if given.format == "iceberg":
                stored = load_catalog("lake", **catalog).load_table(f"fresh.{name}")
                columns = ("_kafka_partition", "_kafka_offset", "_kafka_timestamp")
                rows, landed = stored.scan(selected_fields=columns).to_arrow(), Landed.of_iceberg(stored)
            else:
                from deltalake import DeltaTable

                rows = DeltaTable(folder / name).to_pyarrow_table(
                    columns=["_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
                )
                landed = Landed.of_delta(folder / name)
            fresh.append(landed.freshness_ms(rows, since_ms))
            n_files += [max(landed.n_files), landed.n_files[-1]]
        every = np.concatenate(fresh)
    named = {name for durations_of in durations for name in durations_of}
    phases = {name: float(np.median([duration.get(name, 0) for duration in durations])) for name in sorted(named)}
    mean, median, p99, most = (
        value / 1000 for value in (every.mean(), np.median(every), np.percentile(every, 99), every.max())
    )
    console.print(
        f"{given.topics} topics, {given.rate:,} records/s, every {given.every} s, {given.format}, write {given.write}: freshness "
        f"on average {mean:.2f} s, median {median:.2f}, p99 {p99:.2f}, most {most:.2f}; of {len(every):,} of {n_sent:,} records; "
        f"{len(durations)} micro-batches; files of a table: {max(n_files[::2])} at most, {max(n_files[1::2])} in the end; "
        f"CPU {cpu.seconds / given.seconds:.2f} of a core\n  median of each phase, ms: {phases}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, default=15.0, metavar="SECONDS", help="longer on a busy machine")
    parser.add_argument("--every", type=int, default=0, metavar="SECONDS")
    parser.add_argument("--format", choices=["delta", "iceberg"], default="delta")
    parser.add_argument("--compact", default="often", help="the setting of that name")
    parser.add_argument("--write", choices=["auto", "spark"], default="auto")
    parser.add_argument("--produce", nargs=2, metavar=("SERVERS", "REGISTRY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.produce:
        topics = [f"fresh.t{number}" for number in range(given.topics)]
        produce(*given.produce, topics, given.rate, given.seconds)
    else:
        measure(given)


if __name__ == "__main__":
    main()
