"""Many topics with few records: how long the command takes to land all of them, and what a small commit costs.

    python benchmarks/breadth.py --topics 100                      # 500 JSON documents each, then one each five seconds
    python benchmarks/breadth.py --topics 1000 --between 60 --format iceberg

Each topic has one partition, and its table's columns are declared. CPU is that of the command with all of its processes, among
them Spark's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from processes import CpuTime

from pykafka_wire.local import LocalCluster
from pykafka_wire.local.java import ensure_java, export_java_home

_N_RECORDS: Final = 500
_COLUMNS: Final = "id BIGINT, name STRING, amount DOUBLE, n INT"
#: How long a producer writes before commits are counted.
_WARM_UP_S: Final = 15.0
_TOPICS_AT_ONCE: Final = 200
#: The number of tables to which deltalake commits alone.
_N_ALONE: Final = 30


def own_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def megabytes(command: psutil.Process) -> int:
    n_bytes = 0
    for process in (command, *command.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            n_bytes += process.memory_info().rss
    return int(n_bytes >> 20)


def document(number: int) -> bytes:
    row = {"id": number, "name": f"customer-{number % 100}", "amount": number / 4, "n": number % 7}
    return json.dumps(row).encode()


def make_topics(servers: str, n_topics: int) -> list[str]:
    names, admin = [f"t{number:05}" for number in range(n_topics)], AdminClient({"bootstrap.servers": servers})
    for first in range(0, n_topics, _TOPICS_AT_ONCE):
        asked = [NewTopic(name, 1, 1) for name in names[first : first + _TOPICS_AT_ONCE]]
        for made in admin.create_topics(asked).values():
            made.result()
    producer = Producer({"bootstrap.servers": servers})
    for name in names:
        for number in range(_N_RECORDS):
            producer.produce(name, document(number), key=str(number))
        producer.flush()
        producer.poll(0)
    producer.flush()
    return names


def write_settings(folder: Path, servers: str, names: list[str], asked: argparse.Namespace) -> Path:
    lines = [f'checkpoint = "{folder}/checkpoint"', 'topics = "t[0-9]+"', f'every = "{asked.every}"', *asked.setting]
    lines += (
        [f'into = "{folder}/lake"'] if asked.format == "delta" else ['into = "lake.shop"', 'table_format = "iceberg"']
    )
    lines += ["[kafka]", f'"bootstrap.servers" = "{servers}"']
    if asked.format == "iceberg":
        lines += [
            "[catalog]",
            'type = "sql"',
            f'uri = "sqlite:///{folder}/catalog.db"',
            f'warehouse = "file://{folder}/lake"',
        ]
    tables = [f'[[table]]\ntopic = "{name}"\nformat = "json"\nschema = "{_COLUMNS}"\n' for name in names]
    place = folder / "ingest.toml"
    place.write_text("\n".join([*lines, *tables]))
    return place


def n_commits(folder: Path, table_format: str) -> int:
    pattern = "t*/_delta_log/*.json" if table_format == "delta" else "shop/t*/metadata/*.metadata.json"
    return sum(1 for _ in (folder / "lake").glob(pattern))


def n_landed(folder: Path, table_format: str) -> int:
    lake = folder / "lake" if table_format == "delta" else folder / "lake" / "shop"
    return len({file.relative_to(lake).parts[0] for file in lake.glob("t*/**/*.parquet")})


@contextlib.contextmanager
def records_each(seconds: float, servers: str, names: list[str]) -> Iterator[None]:
    """Write a record to each topic in turn, each topic once in so many seconds."""
    ended = threading.Event()

    def produce() -> None:
        producer, number = Producer({"bootstrap.servers": servers, "linger.ms": 5}), _N_RECORDS
        begun = time.monotonic()
        while not ended.is_set():
            until = begun + (number - _N_RECORDS) * seconds / len(names)
            ended.wait(max(0.0, until - time.monotonic()))
            producer.produce(names[number % len(names)], document(number), key=str(number))
            producer.poll(0)
            number += 1
        producer.flush()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def milliseconds_of_deltalake(folder: Path, n_commits: int) -> float:
    """Return the CPU of a commit of one row by the library deltalake alone, in tables that stay open, without Kafka or Spark."""
    import deltalake
    import pyarrow as pa

    row = pa.table(
        {"id": [1], "name": ["customer-1"], "amount": [0.25], "n": [1], "_kafka_partition": [0], "_kafka_offset": [1]}
    )
    tables = [deltalake.DeltaTable.create(str(folder / f"alone{nth}"), row.schema) for nth in range(_N_ALONE)]
    before = time.process_time()
    for _ in range(n_commits):
        for table in tables:
            deltalake.write_deltalake(table, row, mode="append")
    return 1000 * (time.process_time() - before) / (n_commits * len(tables))


def measure(asked: argparse.Namespace, folder: Path, servers: str) -> None:
    names = make_topics(servers, asked.topics)
    place = write_settings(folder, servers, names, asked)
    begun = time.monotonic()
    with (folder / "output").open("w") as output:
        command = subprocess.Popen(
            [sys.executable, "-m", "pykafka_wire.cli", "ingest", str(place)], stdout=output, stderr=subprocess.STDOUT
        )
    process = psutil.Process(command.pid)
    try:
        with CpuTime(command.pid) as cpu:
            while n_landed(folder, asked.format) < asked.topics:
                time.sleep(0.5)
                if command.poll() is not None:
                    sys.exit(f"the ingest has ended:\n{(folder / 'output').read_text()[-3000:]}")
            seconds = time.monotonic() - begun
        print(
            f"{asked.topics} tables of {asked.format}: landed after {seconds:.1f} s, {cpu.seconds:.1f} s of CPU, "
            f"{megabytes(process)} MB",
            flush=True,
        )
        with records_each(asked.between, servers, names):
            time.sleep(max(_WARM_UP_S, asked.between))
            n_before, own, begun = n_commits(folder, asked.format), own_seconds(process), time.monotonic()
            with CpuTime(command.pid) as cpu:
                time.sleep(asked.seconds)
            n, own, seconds = (
                n_commits(folder, asked.format) - n_before,
                own_seconds(process) - own,
                time.monotonic() - begun,
            )
        each = [1000 * used / max(1, n) for used in (own, cpu.seconds - cpu.python_seconds, cpu.python_seconds - own)]
        print(
            f"a record per topic each {asked.between:g} s: {n} commits in {seconds:.0f} s, {cpu.seconds / seconds:.2f} cores, "
            f"{sum(each):.1f} ms of CPU for a commit (command {each[0]:.1f}, Java {each[1]:.1f}, Spark's Python {each[2]:.1f}), "
            f"{megabytes(process)} MB; load {os.getloadavg()[0]:.1f}"
        )
        if asked.format == "delta":
            alone = milliseconds_of_deltalake(folder, max(1, n // asked.topics))
            print(
                f"deltalake alone, a commit of one row: {alone:.1f} ms of CPU; the ingest takes {sum(each) / alone:.1f} times that"
            )
    finally:
        command.terminate()
        command.wait(120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--between", type=float, default=5.0, help="seconds between two records of a topic")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long commits are counted")
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--every", default="10s")
    parser.add_argument(
        "--setting", action="append", default=[], help="a line of the settings file, such as 'max_delay = \"60s\"'"
    )
    asked = parser.parse_args()
    export_java_home(ensure_java())
    with tempfile.TemporaryDirectory(prefix="pykafka-wire-breadth-") as folder, LocalCluster(1) as cluster:
        measure(asked, Path(folder), cluster.bootstrap_servers)


if __name__ == "__main__":
    main()
