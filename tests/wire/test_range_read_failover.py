"""Bounded reads while leaders move, brokers stop and connections break, and reads from followers."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from pykafka_wire.wire import LATEST, Consumer, TopicPartition
from pykafka_wire.wire.fetch.range_read import FetchCounters, fetch_ranges
from tests.wire.cutting_proxy import CuttingProxy
from tests.wire.range_reads import KEY_AND_VALUE, cluster_of, expected, numbered, produce, read, rows_of, whole

pytestmark = pytest.mark.broker


def test_a_leader_that_moves_in_mid_fetch_is_followed(two_brokers: Any, place_topic: Any, move_leaders: Any) -> None:
    cluster = cluster_of(two_brokers)
    nodes = [1, 2]
    place_topic(two_brokers, "moving", {0: nodes, 1: nodes})
    produce(two_brokers, "moving", numbered(60_000, 2, size=100), **{"batch.size": 20_000})
    ranges = whole(cluster, "moving")
    counters = FetchCounters()
    rows: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    moves = 0
    for n, chunk in enumerate(
        fetch_ranges(cluster, ranges, columns=KEY_AND_VALUE, max_bytes=100_000, counters=counters)
    ):
        for index, pairs in rows_of([chunk]).items():
            rows[index] += pairs
        if n % 10 == 3 and moves < 4:
            nodes.reverse()
            move_leaders(two_brokers, "moving", nodes)
            moves += 1
    assert moves == 4
    assert counters.n_retries > 0
    assert dict(rows) == {p: expected(30_000, size=100) for p in range(2)}
    cluster.close()


def test_a_leader_that_wrote_nothing_truncates_nothing(two_brokers: Any, place_topic: Any, move_leaders: Any) -> None:
    """A broker responds to LATEST with its own leader epoch, which the next leader does not know if nothing was written in it."""
    place_topic(two_brokers, "epochs", {0: [1, 2]})
    tp, servers = TopicPartition("epochs", 0), {"bootstrap.servers": two_brokers.bootstrap_servers}
    producer = confluent_kafka.Producer(servers | {"transactional.id": "epochs"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(10):
        producer.produce("epochs", b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    move_leaders(two_brokers, "epochs", [2, 1])
    with Consumer(servers | {"isolation.level": "read_committed"}) as consumer:
        consumer.assign({tp: LATEST})
        assert consumer.position(tp) == 0  # the last stable offset
        move_leaders(two_brokers, "epochs", [1, 2])
        producer.commit_transaction(30)
        values: list[bytes | None] = []
        deadline = time.monotonic() + 30
        while len(values) < 10:
            values += [record.value for record in consumer.poll(500)]
            assert time.monotonic() < deadline
    assert values == [b"%d" % number for number in range(10)]


def test_a_broker_killed_in_mid_fetch_costs_no_record(two_brokers: Any, place_topic: Any) -> None:
    cluster = cluster_of(two_brokers)
    place_topic(two_brokers, "killed-fetch", {0: [1, 2], 1: [2, 1]})
    produce(two_brokers, "killed-fetch", numbered(40_000, 2, size=100), **{"batch.size": 20_000})
    ranges = whole(cluster, "killed-fetch")
    rows: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for n, chunk in enumerate(fetch_ranges(cluster, ranges, columns=KEY_AND_VALUE, max_bytes=100_000)):
        for index, pairs in rows_of([chunk]).items():
            rows[index] += pairs
        if n == 5:
            two_brokers.nodes[0].kill()
    assert dict(rows) == {p: expected(20_000, size=100) for p in range(2)}
    cluster.close()


def test_a_response_that_is_cut_anywhere_is_fetched_again(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(partitions=2)
    produce(kafka, name, numbered(8_000, 2, size=100), **{"batch.size": 20_000})
    host, _, port = kafka.bootstrap_servers.split(",")[0].rpartition(":")
    with CuttingProxy(host, int(port)) as proxy:
        proxy.stand_between(monkeypatch)
        cluster = cluster_of(kafka, **{"retry.backoff.ms": "10"})
        ranges = whole(cluster, name)
        read(cluster, ranges)  # connects
        cuts = [0, 1, 4, 5, 30, 100, 5_000, 70_000, 99_000]
        for cut in cuts:
            proxy.cut_response_after(cut)
            counters = FetchCounters()
            rows = read(cluster, ranges, max_bytes=100_000, counters=counters)
            assert rows == {p: expected(4_000, size=100) for p in range(2)}
            assert counters.n_retries > 0
        assert proxy.n_cuts == len(cuts)
        cluster.close()


def test_a_follower_in_the_rack_of_this_process_is_read_from(
    two_brokers: Any, place_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-392: broker n stands in rack rn; the leader of everything is broker 1."""
    monkeypatch.setenv("NODE_RACK", "r2")
    place_topic(two_brokers, "racks", {0: [1, 2], 1: [1, 2]})
    produce(two_brokers, "racks", numbered(20_000, 2, size=100), **{"batch.size": 20_000})
    trace = tmp_path / "trace"
    cluster = cluster_of(two_brokers, **{"client.rack": "env:NODE_RACK", "trace": str(trace)})
    rows = read(cluster, whole(cluster, "racks"), max_bytes=200_000)
    assert rows == {p: expected(10_000, size=100) for p in range(2)}
    cluster.close()
    responses = [line for line in trace.read_text().splitlines() if " <- Fetch " in line]
    by_broker = {node: sum(f" {node} (" in line.partition("<-")[0] for line in responses) for node in (1, 2)}
    assert by_broker[1] == 1
    assert by_broker[2] > 5


def test_a_consumer_of_a_follower_asks_seldom_for_records_that_come_one_by_one(
    two_brokers: Any, place_topic: Any, tmp_path: Path
) -> None:
    """Up to half a second after a write the follower does not know that it may serve the record."""
    place_topic(two_brokers, "rack-live", {0: [1, 2]})
    tp, trace = TopicPartition("rack-live", 0), tmp_path / "trace"
    settings = {"bootstrap.servers": two_brokers.bootstrap_servers, "client.rack": "r2", "trace": str(trace)}

    def n_fetches() -> int:
        return trace.read_text().count(" -> Fetch ")

    with Consumer(settings) as consumer:
        consumer.assign({tp: 0})
        deadline = time.monotonic() + 30
        while not consumer.poll(500).ended:
            assert time.monotonic() < deadline
        before = n_fetches()
        for n_records in range(1, 6):
            produce(two_brokers, "rack-live", numbered(1, 1), acks="all")
            while consumer.position(tp) < n_records:
                consumer.poll(500)
                assert time.monotonic() < deadline
        assert n_fetches() - before <= 5 * 5


def test_a_consumer_of_a_follower_reads_to_the_leaders_end_and_on(two_brokers: Any, place_topic: Any) -> None:
    """KIP-392: a follower's high watermark trails, so that right after a write it ends early."""
    place_topic(two_brokers, "rack-ends", {0: [1, 2]})
    tp = TopicPartition("rack-ends", 0)
    settings = {"bootstrap.servers": two_brokers.bootstrap_servers, "client.rack": "r2"}
    with Consumer(settings) as consumer:
        consumer.assign({tp: 0})
        n_records = 0
        for turn in range(1, 21):
            produce(two_brokers, "rack-ends", numbered(100, 1, size=100), acks="all")
            consumer.seek(tp, n_records)
            deadline = time.monotonic() + 30
            while n_records < 100 * turn:
                polled = consumer.poll(500)
                n_records += len(polled)
                assert not polled.ended or n_records == 100 * turn
                assert time.monotonic() < deadline
