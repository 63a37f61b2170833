"""What exactly-once writes through the tasks promise in figures: small micro-batches, large ones, many tasks. `make exactly-once`.

The rate beside at-least-once writes is `make bench BENCH_ARGS='--items write-exactly-once-tasks'`.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once.commit import MicroBatchCommit
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.fencing import fence_micro_batch
from pykafka_wire.sink.exactly_once.task_transactions import TaskTransactions
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST, list_offsets
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.connector.sink.drivers import Drivers, fill
from tests.connector.sink.query_process import Job
from tests.connector.sink.tasks_process import write_task

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(3600)]

N_MICRO_BATCHES = 40


@pytest.fixture
def drivers(tmp_path: Path, java: None) -> Iterator[Drivers]:
    running = Drivers(tmp_path)
    yield running
    running.close()


def test_small_micro_batches_take_at_most_half_as_long_again_as_by_the_driver(
    spark: Any, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    source = topic(4)
    fill(kafka.bootstrap_servers, source, 1000 * N_MICRO_BATCHES, 4)
    medians: dict[str, list[float]] = {"driver": [], "tasks": []}
    for turn in range(4):
        for way, found in medians.items():
            query = (
                spark.readStream.format("pykafka-wire")
                .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
                .option("subscribe", source)
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", "1000")
                .option("minPartitions", "4")
                .option("maxRecordsPerPartition", "250")
                .load()
                .selectExpr("key", "value", "partition")
                .writeStream.format("pykafka-wire")
                .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
                .option("topic", topic(4))
                .option("deliveryGuarantee", "exactly-once")
                .option("transactions", way)
                .option("kafka.transactional.id", f"small-{uuid.uuid4().hex[:8]}")
                .option("checkpointLocation", str(tmp_path / f"{way}-{turn}"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(600)
            took = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress[5:]]
            found.append(statistics.median(took))
    best = {way: min(found) for way, found in medians.items()}
    ratio = best["tasks"] / best["driver"]
    print(f"1,000 records over 4 tasks: {medians} ms, best of each {ratio:.2f} x")
    assert ratio <= 1.5


@pytest.mark.parametrize("n_tasks", [1000])
def test_a_thousand_tasks_are_decided_and_ended_in_under_three_seconds(kafka: Any, topic: Any, n_tasks: int) -> None:
    name = topic(4)
    options = ExactlyOnceOptions(transactional_id=f"q-{uuid.uuid4().hex[:8]}", marker_topic=name, through_tasks=True)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        took = []
        for batch_id in range(3):
            token = fence_micro_batch(cluster, options)
            tasks = [
                write_task(cluster, options.transactional_id, token, batch_id, i, [(name, i % 4, b"%d" % i)])
                for i in range(n_tasks)
            ]
            begun = time.monotonic()
            strategy = TaskTransactions(cluster, options)
            assert MicroBatchCommit(cluster, options, batch_id, strategy).run(tasks) is Decision.WRITE
            took.append(time.monotonic() - begun)
    print(f"{n_tasks} tasks decided and ended in {', '.join(f'{s:.2f}' for s in took)} s")
    assert min(took) < 3.0


def test_four_gigabytes_in_one_micro_batch_through_a_driver_of_512_mb(
    kafka: Any, topic: Any, drivers: Drivers, tmp_path: Path
) -> None:
    n_records = 4300
    source, target = topic(4), topic(4)
    fill(kafka.bootstrap_servers, source, n_records, 4)
    job = Job(
        master="local-cluster[2,1,1024]",
        servers=kafka.bootstrap_servers,
        source=source,
        columns=["repeat('x', 1000000) AS value", "partition"],
        options={
            "topic": target,
            "deliveryGuarantee": "exactly-once",
            "transactions": "tasks",
            "kafka.transactional.id": f"large-{uuid.uuid4().hex[:8]}",
            "kafka.transaction.timeout.ms": "900000",
        },
        folder=str(tmp_path),
        max_offsets=n_records,
        conf={"spark.driver.memory": "512m", "spark.sql.execution.arrow.maxRecordsPerBatch": "20"},
    )
    begun = time.monotonic()
    driver = drivers.start(job)
    assert driver.process.wait(3000) == 0, driver.output
    took = time.monotonic() - begun
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        ends = list_offsets(
            cluster, {TopicPartition(target, p): LATEST for p in range(4)}, isolation_level="read_committed"
        )
    # A record that ends each transaction takes an offset, too.
    assert n_records <= sum(found.offset for found in ends.values()) <= n_records + 100
    print(f"4.3 GB in one micro-batch, 512 MB of heap: {took:.0f} s with the driver's start")
