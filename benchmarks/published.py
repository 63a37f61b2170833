"""The workload that others publish for Kafka into tables: JSON values of 1,200 bytes of high entropy, 16 partitions, exactly once.

    python benchmarks/published.py            # Delta and Iceberg, on one core and on two

One core is the ingest's alone: the driver, Spark's JVM and its Python workers are pinned to it, and the broker to another one. On
two cores nothing is pinned, and the broker takes its share of both. Published are: Kafka Connect's Iceberg sink 56,500 records
a second on one vCPU and 88,500 on eight; Redpanda Connect 15,500 and 178,000, at least once. Tables have no partitions. The rate is
that of the time in which the table was written, after the query has started and has planned a micro-batch; the rest is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from processes import CpuTime
from rich.console import Console
from rig import Rig

from pykafka_wire.ingest import Ingest, Table

PARTITIONS = 16
VALUE_BYTES = 1200
TOPIC = "published.events"
COLUMNS = "id BIGINT, at TIMESTAMP, source STRING, payload STRING"
#: A document of 1,200 bytes: what is not its fields is text of random letters and digits.
VALUE = (
    'concat(\'{"id":\', lpad(cast(id + 1000000000 AS string), 10, \'0\'), \',"at":"2026-01-01T00:00:00.000Z","source":"sensor-\', '
    "lpad(cast(id % 1000 AS string), 3, '0'), '\",\"payload\":\"', randstr(N_RANDOM), '\"}')"
)
console = Console()


def run(cores: int, formats: list[str], n_records: int, n_runs: int) -> None:
    """Measure in this process, whose children have its cores."""
    if cores == 1:
        os.sched_setaffinity(0, {1})  # the broker's
    with Rig() as rig:
        if cores == 1:
            os.sched_setaffinity(0, {0})
        spark = rig.session({"spark.master": f"local[{cores}]", "spark.databricks.delta.snapshotPartitions": "2"})
        rig.create_topic(TOPIC, PARTITIONS)
        n_fixed = len(spark.range(1).selectExpr(VALUE.replace("N_RANDOM", "1")).first()[0]) - 1
        value = VALUE.replace("N_RANDOM", str(VALUE_BYTES - n_fixed))
        (
            spark.range(0, n_records, 1, PARTITIONS)
            .selectExpr(f"{value} AS value", f"cast(id % {PARTITIONS} AS int) AS partition")
            .write.format("pykafka-wire")
            .mode("append")
            .options(
                **{"kafka.bootstrap.servers": rig.bootstrap_servers, "kafka.compression.type": "lz4", "topic": TOPIC}
            )
            .save()
        )
        for table_format in formats:
            rates, cpus = [], []
            for number in range(n_runs + 1):
                started = time.monotonic()
                with CpuTime(rig.jvm_pid) as cpu:
                    used = time.process_time()
                    seconds = _land(rig, table_format, n_records)
                    used = time.process_time() - used
                if number:  # the first one warms up
                    rates.append(n_records / seconds)
                    cpus.append((cpu.seconds + used - cpu.sampler_seconds) / n_records * 1e6)
                    rest = time.monotonic() - started - seconds
                    console.print(
                        f"  {table_format}: {rates[-1]:,.0f} records/s, {cpus[-1]:.1f} µs of CPU a record; {seconds:.1f} s, and "
                        f"{rest:.1f} s to start and end"
                    )
            console.print(
                f"{table_format}, {cores} core{'s' if cores > 1 else ''}: {statistics.median(rates):,.0f} records/s, "
                f"{statistics.median(rates) * VALUE_BYTES / 1e6:.0f} MB/s, {statistics.median(cpus):.1f} µs of CPU a record"
            )


def _land(rig: Rig, table_format: str, n_records: int) -> float:
    """Land the topic in a new table; the seconds in which it was written."""
    folder = rig.fresh_dir("lake")
    place: dict[str, Any] = {"into": str(folder)}
    if table_format == "iceberg":
        from pyiceberg.catalog import load_catalog

        folder.mkdir()
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        load_catalog("lake", **catalog).create_namespace(folder.name.replace("-", "_"))
        place = {"into": f"lake.{folder.name.replace('-', '_')}", "table_format": "iceberg", "catalog": catalog}
    ingest = Ingest(
        checkpoint=str(rig.fresh_dir("checkpoint")), kafka={"bootstrap.servers": rig.bootstrap_servers}, topics=TOPIC,
        defaults=Table(topic=".*", format="json", schema=COLUMNS), **place,
    )  # fmt: skip
    query = ingest.start(rig.spark, once=True)
    query.awaitTermination()
    (status,) = ingest.statuses.values()
    assert (status.error, status.rows, status.rejects) == (None, n_records, 0), status
    return status.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, choices=[1, 2], help="one of the two alone")
    parser.add_argument("--format", choices=["delta", "iceberg"], help="one of the two alone")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    formats = [given.format] if given.format else ["delta", "iceberg"]
    if given.cores:
        run(given.cores, formats, given.records, given.runs)
        return
    for cores in (1, 2):  # a process for each: what is pinned stays so
        asked = ["--cores", str(cores), "--records", str(given.records), "--runs", str(given.runs)]
        subprocess.run(
            [sys.executable, __file__, *asked, *(["--format", given.format] if given.format else [])], check=True
        )


if __name__ == "__main__":
    main()
