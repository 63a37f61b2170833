"""A topic streamed into Delta while its leaders move and its brokers are killed. `make chaos` runs it.

Ten million records, 100 leader moves and 100 kills, unless PYKAFKA_WIRE_CHAOS_RECORDS, …_MOVES and …_KILLS say otherwise. What is
in Delta is compared with what was sent by count, by place and by a digest that Spark computes over records it makes itself.
A line for each event goes to artifacts/chaos.log.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pykafka_wire.local import LocalCluster

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(8 * 3600)]

N_RECORDS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_RECORDS", "10_000_000"))
N_MOVES = int(os.environ.get("PYKAFKA_WIRE_CHAOS_MOVES", "100"))
N_KILLS = int(os.environ.get("PYKAFKA_WIRE_CHAOS_KILLS", "100"))
LOG = Path(__file__).resolve().parents[2] / "artifacts" / "chaos.log"
N_PARTITIONS = 4
#: How long anything may take to go on after an event.
PATIENCE_S = 300.0


class Writer(threading.Thread):
    """Writes the numbers from 0 on, as far as it is allowed, so that records arrive during every event."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
            | {"delivery.timeout.ms": 600_000, "queue.buffering.max.messages": 200_000}
        )
        self._topic = topic
        self._allowed = threading.Condition()
        self._limit = 0
        self.n_sent = 0
        self.errors: list[Any] = []

    def allow(self, limit: int) -> None:
        with self._allowed:
            self._limit = limit
            self._allowed.notify()

    def run(self) -> None:
        while self.n_sent < N_RECORDS:
            with self._allowed:
                self._allowed.wait_for(lambda: self._limit > self.n_sent)
                limit = self._limit
            while self.n_sent < limit:
                try:
                    number = b"%d" % self.n_sent
                    self._producer.produce(
                        self._topic, b"record " + number, number, self.n_sent % N_PARTITIONS, self._delivered
                    )
                except BufferError:
                    self._producer.poll(0.1)
                    continue
                self.n_sent += 1
                if self.n_sent % 1000 == 0:
                    self._producer.poll(0)
        if self._producer.flush(600):
            self.errors.append("not all records were acknowledged")

    def _delivered(self, error: Any, _: Any) -> None:
        if error:
            self.errors.append(error)


class Brokers:
    """Two brokers, and what befalls them."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def state(self) -> dict[int, Any]:
        return dict(self._admin.list_topics(self._topic, timeout=30).topics[self._topic].partitions)

    def wait(self, what: str, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true"
            time.sleep(0.05)

    def await_in_sync(self) -> None:
        """All replicas in sync: only then does a kill lose nothing."""
        self.wait(
            "all replicas in sync",
            lambda: len(found := self.state()) == N_PARTITIONS and all(len(p.isrs) == 2 for p in found.values()),
        )

    def move(self, turn: int) -> str:
        """Make the other broker the leader of one partition."""
        from kafka import TopicPartition as Place
        from kafka.admin import KafkaAdminClient

        partition = turn % N_PARTITIONS
        (target,) = {1, 2} - {self.state()[partition].leader}
        client = KafkaAdminClient(bootstrap_servers=self._cluster.bootstrap_servers)
        try:
            client.alter_partition_reassignments({Place(self._topic, partition): [target, 3 - target]})
        finally:
            client.close()
        self.wait("the new order", lambda: self.state()[partition].replicas == [target, 3 - target])
        self._admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(self._topic, partition)]).result(60)
        self.wait("the new leader", lambda: self.state()[partition].leader == target)
        return f"leader of partition {partition} moved to broker {target}"

    def kill(self, turn: int) -> str:
        """Kill a broker in mid-stream, see the other one lead, and start it again."""
        victim = self._cluster.nodes[turn % 2]
        led = sum(p.leader == victim.node_id for p in self.state().values())
        victim.kill()
        self.wait("other leaders", lambda: all(p.leader not in (-1, victim.node_id) for p in self.state().values()))
        victim.start()
        return f"broker {victim.node_id} killed, which led {led} partitions, and started again"


def digest(frame: Any) -> tuple[int, int, int]:
    """Records, distinct places, and a sum over a hash of keys and values."""
    row = frame.selectExpr(
        "count(*) AS records",
        "count(DISTINCT partition, offset) AS places",
        "coalesce(sum(CAST(xxhash64(key, value) AS DECIMAL(38, 0))), 0) AS content",
    ).first()
    return int(row.records), int(row.places), int(row.content)


def test_nothing_is_lost_or_doubled_into_delta(spark: Any, topic: Any, tmp_path: Path) -> None:
    LOG.parent.mkdir(exist_ok=True)
    started = time.monotonic()
    with (
        LOG.open("w", encoding="utf-8") as log,
        LocalCluster(2, {"broker.session.timeout.ms": "3000", "replica.lag.time.max.ms": "5000"}) as cluster,
    ):

        def say(text: str) -> None:
            line = f"{time.monotonic() - started:8.1f} s  {text}"
            print(line, flush=True)
            log.write(line + "\n")
            log.flush()

        name = topic(N_PARTITIONS, cluster=cluster)
        brokers, writer = Brokers(cluster, name), Writer(cluster.bootstrap_servers, name)
        say(f"{N_RECORDS} records, {N_MOVES} leader moves, {N_KILLS} broker kills")
        query = (
            spark.readStream.format("pykafka-wire")
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", max(1000, N_RECORDS // (2 * (N_MOVES + N_KILLS + 1))))
            .load()
            .select("partition", "offset", "key", "value")
            .writeStream.format("delta")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(str(tmp_path / "table"))
        )

        def n_read() -> int:
            assert query.exception() is None, query.exception()
            progress = query.lastProgress
            if not progress or not progress["sources"][0]["endOffset"]:
                return 0
            return sum(_offsets(progress["sources"][0]["endOffset"]).get(name, {}).values())

        writer.start()
        events = [kind for turn in range(max(N_MOVES, N_KILLS)) for kind in _due(turn)]
        for i, kind in enumerate(events):
            before = n_read()
            writer.allow(N_RECORDS * (i + 1) // (len(events) + 1))
            brokers.wait("records that are read", lambda before=before: n_read() > before)
            brokers.await_in_sync()
            turn = events[:i].count(kind)
            what = brokers.move(turn) if kind == "move" else brokers.kill(turn)
            say(f"{i + 1}/{len(events)} {what}; {writer.n_sent} sent, {n_read()} read")
        writer.allow(N_RECORDS)
        writer.join(3600)
        assert not writer.is_alive() and not writer.errors, writer.errors[:3]
        while (before := n_read()) < N_RECORDS:
            brokers.wait("records that are read", lambda before=before: n_read() > before)
        query.stop()
        sent = spark.range(N_RECORDS).selectExpr(
            f"CAST(id % {N_PARTITIONS} AS INT) AS partition",
            "id AS offset",
            "CAST(CAST(id AS STRING) AS BINARY) AS key",
            "CAST(concat('record ', id) AS BINARY) AS value",
        )
        found, expected = digest(spark.read.format("delta").load(str(tmp_path / "table"))), digest(sent)
        say(f"in Delta (records, distinct places, digest) {found}, expected {expected}")
        assert found == expected
        say("0 lost, 0 doubled")


def _due(turn: int) -> list[str]:
    return ["move"] * (turn < N_MOVES) + ["kill"] * (turn < N_KILLS)


def _offsets(text: str) -> dict[str, dict[str, int]]:
    return json.loads(text)["offsets"]  # type: ignore[no-any-return]
