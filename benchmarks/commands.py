"""How long the commands on a small table take, beside the start of Spark alone.

    python benchmarks/commands.py

A topic of one partition has 500 JSON documents and two values that are none. CPU is that of a command with all of its processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from breadth import make_topics, n_landed, write_settings
from confluent_kafka import Producer
from processes import CpuTime

from pykafka_wire.local import LocalCluster, delta_jars
from pykafka_wire.local.java import ensure_java, export_java_home

_N_RUNS: Final = 3
#: A session as users make it.
_SPARK_ALONE: Final = """
from pyspark.sql import SparkSession

settings = {
    "spark.jars": %r,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SparkSession.builder.config(map=settings).getOrCreate().range(1).count()
"""


def seconds(command: list[str]) -> tuple[float, float]:
    """Run a command to its end, and return its seconds and the seconds of CPU."""
    begun = time.monotonic()
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with CpuTime(running.pid) as cpu:
        os.waitid(
            os.P_PID, running.pid, os.WEXITED | os.WNOWAIT
        )  # its processor time can be read until it is waited for
        ended = time.monotonic()
    running.wait()
    return ended - begun, cpu.seconds


def first_rows(command: list[str], folder: Path) -> tuple[float, float]:
    """Start an ingest, and return the seconds until a file with rows is there, and the seconds of CPU until then."""
    begun = time.monotonic()
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with CpuTime(running.pid) as cpu:
        while n_landed(folder, "delta") == 0:
            time.sleep(0.05)
            assert running.poll() is None, "the ingest runs until it is ended"
        found = time.monotonic() - begun
    running.terminate()
    running.wait(120)
    return found, cpu.seconds


def measure(servers: str, folder: Path) -> None:
    (topic,) = make_topics(servers, 1)
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(2):
        producer.produce(topic, b"{")
    producer.flush()
    asked = argparse.Namespace(format="delta", every="10s", setting=[])
    ours = [sys.executable, "-m", "pykafka_wire.cli"]
    figures: dict[str, list[tuple[float, float]]] = {}
    for number in range(_N_RUNS + 1):
        place = folder / str(number)
        place.mkdir()
        settings = str(write_settings(place, servers, [topic], asked))
        commands = {
            "ingest --verify": [*ours, "ingest", settings, "--verify"],
            "prove": [*ours, "prove", f"{place}/lake/{topic}", "--bootstrap", servers],
            "query": [*ours, "query", settings, f"SELECT sum(amount) FROM {topic}"],
            "ingest --replay-rejects": [*ours, "ingest", settings, "--replay-rejects"],
            "Spark with Delta alone": [sys.executable, "-c", _SPARK_ALONE % ",".join(map(str, delta_jars()))],
        }
        found = {"ingest, until the first rows": first_rows([*ours, "ingest", settings], place)}
        found |= {name: seconds(command) for name, command in commands.items()}
        for name, measured in found.items():
            if number:  # the first run records the classes that Java loads
                figures.setdefault(name, []).append(measured)
    alone = statistics.median(time for time, _ in figures["Spark with Delta alone"])
    for name, measured in figures.items():
        time_s, cpu_s = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"{name}: {time_s:.1f} s, {cpu_s:.1f} s of CPU, {time_s / alone:.2f} of Spark with Delta alone")


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    export_java_home(ensure_java())
    with tempfile.TemporaryDirectory(prefix="pykafka-wire-commands-") as folder, LocalCluster(1) as cluster:
        measure(cluster.bootstrap_servers, Path(folder))


if __name__ == "__main__":
    main()
