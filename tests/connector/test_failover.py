"""A broker dies under a running query: the query continues, and Delta has every record once. A broker that only hangs
delays no query that starts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.spark]

N_PARTITIONS = 4
#: Records a second of the producer; it runs from before the kill until well after the new leaders are known.
RATE = 2000


class Writer(threading.Thread):
    """Writes numbered records with an independent idempotent client while its block runs."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._topic = topic
        self._stop_asked = threading.Event()
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.errors: list[Any] = []

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 10})
        number = 0
        started = time.monotonic()

        def delivered(error: Any, message: Any) -> None:
            if error:
                self.errors.append(error)
            else:
                self.acknowledged.append((message.partition(), message.offset(), message.value()))

        while not self._stop_asked.is_set():
            for _ in range(RATE // 20):
                value = b"record-%d" % number
                producer.produce(self._topic, value=value, partition=number % N_PARTITIONS, on_delivery=delivered)
                number += 1
            producer.poll(0)
            self._stop_asked.wait(max(0.0, started + number / RATE - time.monotonic()))
        if producer.flush(60):
            self.errors.append("not all records were acknowledged")

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_asked.set()
        self.join(90)

    def finish(self) -> None:
        self.__exit__()
        assert not self.is_alive() and not self.errors, self.errors


def test_a_leader_killed_in_mid_stream_costs_and_doubles_nothing(
    kafka_cluster: Any, topic: Any, queries_of: Any, outside_of: Any, until: Any, spark: Any
) -> None:
    cluster = kafka_cluster(nodes=2)
    servers = cluster.bootstrap_servers
    name = topic(N_PARTITIONS, cluster=cluster)
    queries, outside = queries_of(servers), outside_of(servers)
    group = "failover"
    with Writer(servers, name) as writer:
        query = (
            queries.stream(subscribe=name, maxOffsetsPerTrigger="20000", **{"kafka.group.id": group})
            .select("topic", "partition", "offset", "value")
            .writeStream.format("delta")
            .option("checkpointLocation", str(queries.checkpoint))
            .trigger(processingTime="100 milliseconds")
            .start(str(queries.table))
        )

        def read_so_far() -> int:
            assert query.exception() is None, query.exception()
            return sum(queries.committed_offsets().get(name, {}).values())

        try:
            before = until(lambda: read_so_far() > RATE and read_so_far(), what="the first batches")
            leaders = Counter(
                p.leader for p in outside.admin.list_topics(name, timeout=10).topics[name].partitions.values()
            )
            victim, led = leaders.most_common(1)[0]
            assert led >= 1
            cluster.nodes[victim - 1].kill()
            at_kill = len(writer.acknowledged)
            # On from the new leaders, for some seconds' worth of records.
            until(lambda: len(writer.acknowledged) > at_kill + 4 * RATE, what="records of the new leaders")
            until(lambda: read_so_far() > before + 2 * RATE, what="batches after the kill")
            writer.finish()
            expected = sorted(writer.acknowledged)
            until(lambda: read_so_far() >= len(expected), what="the end of the topic")
        finally:
            query.stop()
    assert query.exception() is None
    rows = queries.rows("delta")
    assert len(rows) == len(expected)
    assert rows == expected
    assert Counter(p for p, _, _ in rows).keys() == set(range(N_PARTITIONS))


@pytest.mark.long
def test_a_query_starts_while_the_first_of_three_bootstrap_servers_hangs(
    kafka_cluster: Any, topic: Any, queries_of: Any, outside_of: Any, until: Any
) -> None:
    """SIGSTOP: its port takes connections, and nothing responds."""
    cluster = kafka_cluster(nodes=3, properties={"broker.session.timeout.ms": "3000"})
    name = topic(3, cluster=cluster)
    outside = outside_of(cluster.bootstrap_servers)
    outside.fill(name, [5, 5, 5])

    def run(checkpoint: str) -> float:
        started = time.monotonic()
        query = (
            queries_of(cluster.bootstrap_servers)
            # Another client.id: nothing that a worker remembers of the brokers may help.
            .stream(subscribe=name, **{"kafka.client.id": checkpoint})
            .writeStream.format("noop")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120), "the query did not end"
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == 15
        return time.monotonic() - started

    unhindered_s = run("before")
    stopped = cluster.nodes[0]
    stopped.pause()
    others = outside_of(",".join(cluster.bootstrap_servers.split(",")[1:])).admin

    def leaders() -> set[int]:
        return {each.leader for each in others.list_topics(name, timeout=10).topics[name].partitions.values()}

    until(lambda: leaders() == {2, 3}, what="leaders for the stopped broker's partitions")
    # 10 s is what is promised; only a machine on which a query takes long anyway is given more.
    assert run("after") < max(10, 4 * unhindered_s)
    stopped.resume()
