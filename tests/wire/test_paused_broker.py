"""One of two brokers is paused for some seconds: reads and writes of the other one's partitions keep their pace.

The long form, with three brokers, pauses of 20 s and a Spark stream, is tests/soak/test_paused.py (`make paused`).
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import confluent_kafka
import pytest

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire import Consumer, TopicPartition
from tests.wire.pace import Loads, compare, paused

pytestmark = pytest.mark.broker

PAUSE_S = 5.0
BEFORE_S = 3.0
N_STORED = 40_000
#: Node id -> the partitions that it leads.
LED = {1: [0, 1], 2: [2, 3]}


def test_the_partitions_of_other_brokers_keep_their_pace(two_brokers: LocalCluster, place_topic: Any) -> None:
    fed, stored, produced = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("fed", "stored", "produced"))
    for name in (fed, stored, produced):
        place_topic(two_brokers, name, {partition: [node] for node, led in LED.items() for partition in led})
    with Loads(two_brokers, 4) as loads:
        filler = confluent_kafka.Producer(loads.settings)
        for nth in range(N_STORED):
            filler.produce(stored, bytes(500), partition=nth % 4)
            filler.poll(0)
        assert filler.flush(60) == 0
        feed = loads.feed(fed)
        consumed = loads.consume(fed)
        loads.read_ranges(stored, N_STORED // 4)
        loads.produce(produced)
        loads.wait_until(lambda: all(pace.n_records([p]) for pace in loads.paces for p in loads.partitions))
        # Twice at most: once in a while something else stalls the whole machine, and not on each pause.
        for _ in range(2):
            began = time.monotonic()
            time.sleep(BEFORE_S)
            paused_at = time.monotonic()
            with paused(two_brokers, 2):
                time.sleep(PAUSE_S)
                ended = time.monotonic()
            seen = compare(loads.paces, LED[1], (began, paused_at), (paused_at, ended))
            print(*(f"{name}: rate x {ratio:.2f}, longest gap {gap:.1f} s" for name, ratio, gap in seen), sep="\n")
            keep_pace = all(ratio > 0.5 and gap < 3 for _, ratio, gap in seen)
            if keep_pace:
                break
            loads.wait_until(lambda since=ended: all(pace.n_records(LED[2], since=since) for pace in loads.paces))
        after = time.monotonic()
        loads.wait_until(lambda: all(pace.n_records(LED[2], since=after) for pace in loads.paces))
        n_fed = feed.n_records(loads.partitions)
        loads.wait_until(lambda: consumed.n_records(loads.partitions) >= n_fed)
        loads.stop()
        assert keep_pace, seen


def test_a_poll_ends_in_time_though_no_broker_responds_when_reading_begins_anew(
    two_brokers: LocalCluster, place_topic: Any
) -> None:
    """The topic's id and its leader are asked for then, each for default.api.timeout.ms at most."""
    name = f"silent-{uuid.uuid4().hex[:8]}"
    place_topic(two_brokers, name, {0: [1]})
    tp, servers = TopicPartition(name, 0), two_brokers.bootstrap_servers
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for _ in range(10):
        producer.produce(name, b"", partition=0)
    assert producer.flush(60) == 0
    with Consumer({"bootstrap.servers": servers, "metadata.max.age.ms": "100"}) as consumer:

        def poll_all() -> None:
            deadline = time.monotonic() + 60
            while consumer.position(tp) < 10:
                assert time.monotonic() < deadline
                consumer.poll(200)

        consumer.assign({tp: 0})
        poll_all()
        with paused(two_brokers, 1), paused(two_brokers, 2):
            for begin_anew in (lambda: (consumer.pause([tp]), consumer.resume([tp])), lambda: consumer.seek(tp, 0)):
                time.sleep(0.2)  # metadata are too old
                begin_anew()
                began = time.monotonic()
                assert not consumer.poll(200)
                assert time.monotonic() - began < 10
        poll_all()
