"""Three brokers, of which one after the other is paused (SIGSTOP) for 20 s: `make paused`; `make test` has a small form.

Clients without Spark keep the pace of the partitions that other brokers lead. A Spark stream cannot: a micro-batch is one
unit, which is finished when its last range is read. It must wait for the broker, not fail, and be up to date soon after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pykafka_wire.local import LocalCluster
from tests.wire.pace import Loads, Pace, compare, paused

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(1200)]

PAUSE_S = 20.0
BEFORE_S = 10.0
N_STORED = 300_000
#: Node id -> the partitions that it leads.
LED = {1: [0, 1], 2: [2, 3], 3: [4, 5]}
PARTITIONS = range(6)


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalCluster]:
    """Three brokers; internal topics have three replicas, so that coordinators move away from a paused one."""
    with LocalCluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topics(brokers: LocalCluster) -> list[str]:
    """Topics of one replica, whose partitions can be nowhere else."""
    names = ["fed", "stored", "produced"]
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    replicas = [[node] for node, led in LED.items() for _ in led]
    for future in admin.create_topics(
        [NewTopic(n, len(replicas), replica_assignment=replicas) for n in names]
    ).values():
        future.result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap_servers})
    for nth in range(N_STORED):
        producer.produce("stored", bytes(500), partition=nth % 6)
        if nth % 10_000 == 0:  # librdkafka queues 100,000
            producer.flush(60)
    assert producer.flush(120) == 0
    return names


def healthy(node_id: int) -> list[int]:
    return [partition for node, led in LED.items() if node != node_id for partition in led]


def pause_each(loads: Loads, paces: list[Pace]) -> list[tuple[str, float, float]]:
    """Pauses one broker after the other; of each load and pause, the ratio of rates and the longest gap."""
    seen = []
    for node_id, led in LED.items():
        settled = time.monotonic()
        loads.wait_until(
            lambda since=settled: all(pace.n_records([p], since) for pace in paces for p in PARTITIONS), 120
        )
        began = time.monotonic()
        time.sleep(BEFORE_S)
        paused_at = time.monotonic()
        with paused(loads.brokers, node_id):
            time.sleep(PAUSE_S)
            ended = time.monotonic()
        for name, ratio, gap in compare(paces, healthy(node_id), (began, paused_at), (paused_at, ended)):
            seen.append((f"{name}, broker {node_id} paused", ratio, gap))
            print(f"{seen[-1][0]}: rate x {ratio:.2f}, longest gap {gap:.1f} s", flush=True)
        loads.wait_until(lambda led=led, since=ended: all(pace.n_records(led, since) for pace in paces), 120)
    return seen


def test_healthy_partitions_keep_their_pace(brokers: LocalCluster, topics: list[str]) -> None:
    fed, stored, produced = topics
    with Loads(brokers, len(PARTITIONS)) as loads:
        feed = loads.feed(fed)
        consumed = [loads.consume(fed), loads.consume(fed, group="members")]
        loads.read_ranges(stored, N_STORED // len(PARTITIONS))
        loads.produce(produced)
        seen = pause_each(loads, loads.paces)
        n_fed = feed.n_records(PARTITIONS)
        loads.wait_until(lambda: all(pace.n_records(PARTITIONS) >= n_fed for pace in consumed), 120)
        loads.stop()
        assert all(ratio > 0.5 and gap < 5 for _, ratio, gap in seen), seen


@pytest.mark.spark
def test_a_stream_waits_for_a_paused_broker_and_catches_up(
    brokers: LocalCluster, topics: list[str], spark: Any, tmp_path: Path
) -> None:
    with Loads(brokers, len(PARTITIONS)) as loads:
        feed = loads.feed(topics[0])
        pace = Pace("stream")

        def count(frame: Any, batch_id: int) -> None:
            for row in frame.groupBy("partition").count().collect():
                pace.add(row["partition"], row["count"])

        query = (
            spark.readStream.format("pykafka-wire")
            .options(**{"kafka.bootstrap.servers": brokers.bootstrap_servers, "subscribe": topics[0]})
            .option("startingOffsets", "latest")
            .load()
            .writeStream.foreachBatch(count)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            loads.wait_until(lambda: all(pace.n_records([p]) for p in PARTITIONS), 120)
            seen = pause_each(loads, [pace])
            n_fed = feed.n_records(PARTITIONS)
            loads.wait_until(lambda: pace.n_records(PARTITIONS) > 0.9 * n_fed, 120)
            assert query.isActive, query.exception()
        finally:
            query.stop()
            loads.stop()
        assert all(gap < PAUSE_S + 10 for _, _, gap in seen), seen
