"""Long runs that must not grow: an idle query, and many micro-batches. `make soak` runs them; `make test` does not.

Every process of the query is watched: the driver, its JVM, the reader's process and the workers. Kafka's own brokers are
not ours to judge.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(3600)]

IDLE_SECONDS = float(os.environ.get("PYKAFKA_WIRE_SOAK_IDLE_S", "600"))
N_BATCHES = int(os.environ.get("PYKAFKA_WIRE_SOAK_BATCHES", "1000"))


@dataclass
class Watch:
    """Samples of memory, descriptors and connections of each process below this one, brokers left out."""

    samples: dict[tuple[int, str], list[tuple[float, int, int]]] = field(default_factory=lambda: defaultdict(list))
    heap_mb: list[float] = field(default_factory=list)

    def sample(self, heap_used: Callable[[], float]) -> None:
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            try:
                command = " ".join(process.cmdline())
                if "kafka.Kafka" in command or "pykafka_wire.local" in command:
                    continue
                kind = "jvm" if "java" in process.name() else ("test" if process == me else "python")
                memory_mb = process.memory_info().rss / 2**20
                key = (process.pid, kind)
                self.samples[key].append((memory_mb, process.num_fds(), len(process.net_connections())))
            except psutil.Error:
                continue  # it ended meanwhile
        self.heap_mb.append(heap_used())

    def check(self) -> str:
        """Assert that nothing grows from the second fifth to the last; returns a report, one line a process."""
        lines = []
        growing = []
        for (pid, kind), samples in self.samples.items():
            if len(samples) < 10:
                continue  # Spark ends idle workers and starts new ones
            fifth = len(samples) // 5
            early, late = samples[fifth : 2 * fifth], samples[-fifth:]
            for name, index, slack in (("MB", 0, 12.0), ("descriptors", 1, 4), ("connections", 2, 2)):
                before = statistics.median(s[index] for s in early)
                after = statistics.median(s[index] for s in late)
                lines.append(f"{kind} {pid} {name}: {before:.0f} -> {after:.0f} over {len(samples)} samples")
                if kind == "jvm" and name == "MB":
                    continue  # its heap is judged after a collection, below
                if after > before * 1.05 + slack:
                    growing.append(lines[-1])
        fifth = max(1, len(self.heap_mb) // 5)
        before, after = statistics.median(self.heap_mb[fifth : 2 * fifth]), statistics.median(self.heap_mb[-fifth:])
        lines.append(f"JVM heap after collection, MB: {before:.0f} -> {after:.0f}")
        if after > before * 1.1 + 10:
            growing.append(lines[-1])
        report = "\n".join(lines)
        assert not growing, f"these grow: {growing}\n{report}"
        return report


def heap_used_after_collection(spark) -> float:
    jvm = spark._jvm
    jvm.java.lang.System.gc()
    memory = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    return float(memory.getUsed()) / 2**20


@pytest.fixture
def producer(kafka) -> Iterator[Producer]:
    cluster = Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers}))
    producer = Producer(cluster, cluster.settings)
    yield producer
    cluster.close()


def write_one(producer: Producer, topic: str, partition: int) -> None:
    import numpy as np
    import pyarrow as pa

    from pykafka_wire.wire.records.compression import Codec

    batches = encode_batches(
        key=None,
        value=pa.array([b"x" * 100], pa.binary()),
        headers=None,
        timestamp=np.array([int(time.time() * 1000)], dtype=np.int64),
        codec=Codec.NONE,
        max_batch_bytes=2**20,
    )
    producer.append(topic, partition, batches)
    producer.flush()


def start(spark, kafka, topic_name: str, folder: Path):
    return (
        spark.readStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic_name)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def test_an_idle_query_stays_flat(spark, kafka, topic, producer, tmp_path):
    name = topic(partitions=4)
    write_one(producer, name, 0)
    query = start(spark, kafka, name, tmp_path)
    query.processAllAvailable()
    watch = Watch()
    until = time.monotonic() + IDLE_SECONDS
    while time.monotonic() < until:
        assert query.isActive, query.exception()
        watch.sample(lambda: heap_used_after_collection(spark))
        time.sleep(min(5.0, IDLE_SECONDS / 50))
    assert len([p for p in query.recentProgress if p["numInputRows"]]) == 1
    query.stop()
    print(watch.check())


def test_many_micro_batches_stay_flat(spark, kafka, topic, producer, tmp_path):
    name = topic(partitions=4)
    write_one(producer, name, 0)
    query = start(spark, kafka, name, tmp_path)
    query.processAllAvailable()
    watch = Watch()
    every = max(1, N_BATCHES // 60)
    written = 0
    while (query.lastProgress or {"batchId": 0})["batchId"] < N_BATCHES:
        assert query.isActive, query.exception()
        write_one(producer, name, written % 4)
        written += 1
        if written % every == 0:
            watch.sample(lambda: heap_used_after_collection(spark))
        query.processAllAvailable()
    query.stop()
    print(watch.check())
