"""A topic copied through Spark while brokers, executors and the driver are killed in turn. `make chaos-kafka` runs it.

At least once loses nothing; exactly once, by the driver and through the tasks, doubles nothing and keeps the order either. Ten
million records and twenty kills, unless PYKAFKA_WIRE_CHAOS_RECORDS and PYKAFKA_WIRE_CHAOS_KILLS say otherwise. With
PYKAFKA_WIRE_CHAOS_STANDALONE=1 Spark is a standalone cluster of two workers, which are killed in place of executors.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from pykafka_wire.local import LocalCluster
from tests.connector.sink.drivers import Driver, Drivers, StandaloneCluster, fill
from tests.connector.sink.query_process import Job

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(4 * 3600)]

N_RECORDS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_RECORDS", "10_000_000"))
N_KILLS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_KILLS", "20"))
STANDALONE = os.environ.get("PYKAFKA_WIRE_CHAOS_STANDALONE") == "1"
N_PARTITIONS = 4
#: Micro-batches from one kill to the next.
PACE = 3
PROGRESS_S = 600.0


@pytest.fixture
def brokers() -> Iterator[LocalCluster]:
    properties = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2", "broker.session.timeout.ms": "3000"}
    with LocalCluster(2, properties) as cluster:
        yield cluster


@pytest.fixture
def drivers(tmp_path: Path, java: None) -> Iterator[Drivers]:
    running = Drivers(tmp_path)
    yield running
    running.close()


def committed(job: Job) -> int:
    """How many micro-batches are done."""
    commits = Path(job.folder) / "checkpoint" / "commits"
    done = [int(file.name) for file in commits.iterdir() if file.name.isdigit()] if commits.exists() else []
    return max(done, default=-1) + 1


@pytest.fixture
def workers(java: None, tmp_path: Path) -> Iterator[StandaloneCluster | None]:
    if not STANDALONE:
        yield None
        return
    folder = tmp_path / "standalone"
    folder.mkdir()
    cluster = StandaloneCluster(folder)
    yield cluster
    cluster.close()


def kill(what: str, brokers: LocalCluster, driver: Driver, workers: StandaloneCluster | None, turn: int) -> bool:
    """Whether there was something to kill: a driver that has just ended has no executor."""
    if what == "executor" and workers is not None:
        workers.restart_worker(turn // 3)
        return True
    if what == "broker":
        node = brokers.nodes[turn % len(brokers.nodes)]
        node.kill()
        node.start()
        return True
    if what == "driver":
        alive = driver.process.poll() is None
        driver.kill()
        return alive
    for process in driver.processes():
        try:
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                process.kill()
                return True
        except psutil.NoSuchProcess:
            continue
    return False


def read(servers: str, topic: str) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """The numbers in a topic, by partition, as a read_committed reader of another client sees them."""
    settings = {"bootstrap.servers": servers, "group.id": "outside", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(N_PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(N_PARTITIONS)]
    at_end: set[int] = set()
    deadline = time.monotonic() + PROGRESS_S
    try:
        while len(at_end) < N_PARTITIONS:
            assert time.monotonic() < deadline, "the copy could not be read to its end"
            for message in consumer.consume(10_000, timeout=1.0):
                deadline = time.monotonic() + PROGRESS_S
                if message.error():
                    at_end.add(message.partition())
                else:
                    found[message.partition()].append(int(message.value()))
    finally:
        consumer.close()
    return [np.array(numbers, dtype=np.int64) for numbers in found]


@pytest.mark.parametrize("way", ["", "driver", "tasks"], ids=["at least once", "driver", "tasks"])
def test_copied_while_everything_is_killed_in_turn(
    way: str,
    brokers: LocalCluster,
    topic: Any,
    drivers: Drivers,
    workers: StandaloneCluster | None,
    tmp_path: Path,
) -> None:
    guarantee = "exactly-once" if way else "at-least-once"
    servers = brokers.bootstrap_servers
    source, target = topic(N_PARTITIONS, cluster=brokers), topic(N_PARTITIONS, cluster=brokers)
    fill(servers, source, N_RECORDS, N_PARTITIONS)
    options = {"topic": target, "deliveryGuarantee": guarantee, "kafka.compression.type": "lz4"}
    if guarantee == "exactly-once":
        options |= {"kafka.transactional.id": f"chaos-{uuid.uuid4().hex[:8]}", "transactions": way}
    job = Job(
        master="local-cluster[2,1,1024]" if workers is None else workers.url,
        servers=servers,
        source=source,
        columns=["value", "partition"],
        options=options,
        folder=str(tmp_path),
        max_offsets=max(4, N_RECORDS // (PACE * (N_KILLS + 1))),
    )
    driver = drivers.start(job)
    n_restarts = 0
    for turn in range(N_KILLS):
        due = committed(job) + PACE - 1
        deadline = time.monotonic() + PROGRESS_S
        what = ("broker", "executor", "driver")[turn % 3]
        while committed(job) < due or not kill(what, brokers, driver, workers, turn):
            assert time.monotonic() < deadline, driver.output
            ended = driver.process.poll()
            assert ended != 0, f"all was copied after {turn} kills: more records are needed"
            if ended is not None:  # what a kill did to it
                n_restarts += 1
                assert n_restarts <= N_KILLS, driver.output
                driver = drivers.start(job)
            time.sleep(0.1)
    while driver.process.wait(PROGRESS_S) != 0:
        n_restarts += 1
        assert n_restarts <= 2 * N_KILLS, driver.output
        driver = drivers.start(job)

    n_doubled = 0
    for partition, numbers in enumerate(read(servers, target)):
        wanted = np.arange(partition, N_RECORDS, N_PARTITIONS)
        assert np.array_equal(np.unique(numbers), wanted), "records are lost"
        n_doubled += len(numbers) - len(wanted)
        if guarantee == "exactly-once":
            assert np.array_equal(numbers, wanted), "records are doubled, or out of order"
    print(
        f"{guarantee} {way}: {N_RECORDS} records, {N_KILLS} kills, {n_restarts} restarts of the driver, 0 lost, {n_doubled} doubled"
    )
