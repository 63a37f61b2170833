"""CPU and time of another commit and of this working tree, in turn: no change loses 5 % unnoticed.

    python benchmarks/against.py REV [--rounds 5] [--items NAME ...]

Each version runs in a Spark session of its own, with the libraries of this environment, on the same topics. An item that a version
does not have is reported and left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from against_program import FEW_TOPIC, ITEMS, JSON_TOPIC, LARGE_TOPIC, SMALL_TOPIC, WRITTEN_TOPIC, ZSTD_TOPIC
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pykafka_wire.local import LocalCluster
from pykafka_wire.local.java import ensure_java, export_java_home

_ROOT: Final = Path(__file__).parent.parent
_PARTITIONS: Final = 4
#: Topic -> number of records, bytes of a value (None for a JSON document), codec, bytes of a batch.
_TOPICS: Final[dict[str, tuple[int, int | None, str, int]]] = {
    FEW_TOPIC: (100, 92, "none", 16 << 10),  # the cost of a query itself
    SMALL_TOPIC: (1_000_000, 92, "none", 16 << 10),
    LARGE_TOPIC: (300_000, 1016, "none", 64 << 10),
    ZSTD_TOPIC: (1_000_000, 92, "zstd", 256 << 10),
    JSON_TOPIC: (200_000, None, "lz4", 256 << 10),
}


class Version:
    """A version of the packages in a process of its own, which measures the items that it is asked for."""

    def __init__(self, name: str, packages: Path, servers: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("against_program.py")), servers],
            env={**os.environ, "PYTHONPATH": str(packages), "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def measure(self, item: str) -> dict[str, Any]:
        """Return ``seconds`` and ``cpu_seconds`` of one run, or the ``error``."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(item + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        return {"error": "the process has ended"}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def packages_of(revision: str | None, folder: Path) -> Path:
    """Lay out the packages of a commit, or of the working tree, as an installation has them; return the folder."""
    sources = _ROOT
    if revision is not None:
        sources = folder / "sources"
        sources.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "-C", str(_ROOT), "archive", revision, "connector", "wire"], capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(sources)], input=archive.stdout, check=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(sources / "connector", folder / "pykafka_wire", ignore=ignored)
    shutil.copytree(sources / "wire", folder / "pykafka_wire" / "wire", ignore=ignored)
    return folder


def fill(servers: str) -> None:
    """Make the topics, with the same bytes in each run."""
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, _PARTITIONS, 1) for topic in (*_TOPICS, WRITTEN_TOPIC)]).values():
        made.result()
    chance = random.Random(0)
    for topic, (n_records, n_bytes, codec, batch_bytes) in _TOPICS.items():
        producer = Producer({
            "bootstrap.servers": servers, "linger.ms": 50, "batch.size": batch_bytes, "compression.type": codec,
            "queue.buffering.max.messages": 2_000_000,
        })  # fmt: skip
        text = "".join(f'"f{n}":"{chance.randrange(1 << 32):08X}",' for n in range(512)).encode()
        for number in range(n_records):
            value = (
                b'{"id": %d, "name": "customer-%d", "amount": %d.25, "n": %d}'
                % (number, number % 1000, number % 977, number % 7)
                if n_bytes is None
                else text[(start := number * 13 % (len(text) - n_bytes)) : start + n_bytes]
            )
            producer.produce(topic, value, key=b"%08d" % number, partition=number % _PARTITIONS)
            if number % 100_000 == 0:
                producer.flush()
        producer.flush()


@contextlib.contextmanager
def versions(revision: str, folder: Path, servers: str) -> Iterator[tuple[Version, Version]]:
    """Start both, the older one first, and end them."""
    with contextlib.ExitStack() as stack:
        started = [
            Version(name, packages_of(commit, folder / name), servers)
            for name, commit in (("theirs", revision), ("ours", None))
        ]
        for version in started:
            stack.callback(version.close)
        yield started[0], started[1]


def compared(pair: tuple[Version, Version], item: str, n_rounds: int) -> str:
    """Measure an item in turn; return its row of the report."""
    runs: dict[str, list[dict[str, Any]]] = {version.name: [] for version in pair}
    for number in range(n_rounds + 1):
        for version in pair if number % 2 else reversed(pair):
            run = version.measure(item)
            if "error" in run:
                return f"| {item} | {version.name}: {run['error']} | |"
            if number:  # the first one compiles
                runs[version.name].append(run)
    figures = [item]
    for kind in ("cpu_seconds", "seconds"):
        theirs, ours = ([run[kind] for run in runs[version.name]] for version in pair)
        medians = statistics.median(ours), statistics.median(theirs)
        figures.append(
            f"{medians[0] / medians[1]:.2f} ({medians[0]:.2f} / {medians[1]:.2f}; best {min(ours) / min(theirs):.2f})"
        )
    return f"| {' | '.join(figures)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", nargs="+", choices=list(ITEMS), default=list(ITEMS))
    asked = parser.parse_args()
    export_java_home(ensure_java())
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pykafka-wire-against-")))
        cluster = stack.enter_context(LocalCluster(1))
        fill(cluster.bootstrap_servers)
        pair = stack.enter_context(versions(asked.revision, folder, cluster.bootstrap_servers))
        print(f"The working tree over {asked.revision}: medians of {asked.rounds} runs in turn, in seconds.\n")
        print("| item | CPU | time |\n|---|---|---|")
        for item in asked.items:
            print(compared(pair, item, asked.rounds), flush=True)


if __name__ == "__main__":
    main()
