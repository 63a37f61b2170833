"""Writing to real brokers: every batch once, in order, within bounds, or one clear error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST, list_offsets
from pykafka_wire.wire.errors import (
    DeadlineExceededError,
    RecordTooLargeError,
    TransportError,
    UnknownTopicError,
    WireError,
)
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.protocol.messages.produce import ProduceRequest
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition
from tests.wire.cutting_proxy import CuttingProxy

pytestmark = pytest.mark.broker

VALUE_ONLY = Columns(key=False, value=True, headers=False, timestamp=False, timestamp_type=False)


def settings_of(brokers: Any, **options: object) -> ClientSettings:
    named = {name.replace("_", "."): str(value) for name, value in options.items()}
    return ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers, **named})


def encode(values: list[bytes], max_batch_bytes: int = 16_384) -> list[EncodedBatch]:
    return encode_batches(
        key=None,
        value=pa.array(values, pa.binary()),
        headers=None,
        # Now: retention goes by it, and would take old records away in the middle of a test.
        timestamp=np.full(len(values), int(time.time() * 1000), np.int64),
        codec=Codec.NONE,
        max_batch_bytes=max_batch_bytes,
    )


def numbered(start: int, end: int, size: int = 100) -> list[bytes]:
    return [str(i).encode().ljust(size, b".") for i in range(start, end)]


def read(cluster: Cluster, topic: str, partition: int = 0, start_offset: int = 0) -> list[bytes]:
    tp = TopicPartition(topic, partition)
    end = list_offsets(cluster, {tp: LATEST})[tp].offset
    range_ = OffsetRange(topic=topic, partition=partition, start_offset=start_offset, end_offset=end)
    values: list[bytes] = []
    for fetched in fetch_ranges(cluster, [range_], columns=VALUE_ONLY):
        values += fetched.records.value.to_pylist()
    return values


def test_many_partitions_are_written_in_order_and_counted(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=16)
    producer = Producer(cluster)
    assert producer.partitions_for(name) == 16
    for round_ in range(3):
        for partition in range(16):
            producer.append(name, partition, encode(numbered(round_ * 1_000, (round_ + 1) * 1_000)))
    delivered = producer.flush()
    assert {tp: (d.n_records, d.first_offset, d.last_offset) for tp, d in delivered.items()} == {
        TopicPartition(name, p): (3_000, 0, 2_999) for p in range(16)
    }
    for partition in (0, 7, 15):
        assert read(cluster, name, partition) == numbered(0, 3_000)
    assert producer.counters.n_records == 48_000
    # 16 partitions of 7 batches and 3 rounds: far fewer requests than batches.
    assert producer.counters.n_requests < producer.counters.n_batches / 8
    assert producer.flush() == {}


def test_sequences_run_on_from_flush_to_flush(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    producer = Producer(cluster)
    for i in range(20):
        producer.append(name, 0, encode(numbered(i * 10, (i + 1) * 10)))
        producer.flush()
    assert read(cluster, name) == numbered(0, 200)
    assert producer.counters.n_retries == 0


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("more", [{}, {"enable_idempotence": "false"}], ids=["default", "not idempotent"])
def test_every_kind_of_acknowledgement_delivers(
    kafka: Any, topic: Any, cluster: Cluster, acks: str, more: dict[str, str]
) -> None:
    name = topic(partitions=2)
    writer = Cluster(settings_of(kafka, acks=acks, **more))
    producer = Producer(writer)
    for partition in range(2):
        producer.append(name, partition, encode(numbered(0, 2_000)))
    producer.flush()
    deadline = time.monotonic() + 10
    while read(cluster, name, 1) != numbered(0, 2_000):  # without a response nobody says when it has arrived
        assert acks == "0"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert read(cluster, name, 0) == numbered(0, 2_000)
    writer.close()


def test_memory_is_bounded_whatever_is_appended(kafka: Any, topic: Any) -> None:
    name = topic(partitions=2)
    writer = Cluster(settings_of(kafka, buffer_memory=500_000))
    producer = Producer(writer)
    most = 0
    for i in range(100):
        producer.append(name, i % 2, encode(numbered(i * 1_000, (i + 1) * 1_000)))
        most = max(most, producer.buffered_bytes)
    assert most <= 500_000
    producer.flush()
    assert producer.buffered_bytes == 0
    assert len(read(writer, name, 0)) == 50_000
    writer.close()


def test_a_batch_larger_than_a_request_may_be_is_refused_before_it_is_sent(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1)
    producer = Producer(cluster)
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.append(name, 0, encode([b"x" * 1_100_000], max_batch_bytes=2_000_000))
    assert producer.clean
    producer.append(name, 0, encode([b"ok"]))
    producer.flush()
    assert read(cluster, name) == [b"ok"]


def test_an_unknown_topic_fails_within_seconds(cluster: Cluster) -> None:
    producer = Producer(cluster)
    started = time.monotonic()
    producer.append("never-made", 0, encode([b"x"]))
    with pytest.raises(UnknownTopicError):
        producer.flush()
    assert time.monotonic() - started < 12
    with pytest.raises(UnknownTopicError):
        producer.partitions_for("never-made")


def test_a_record_without_key_for_a_compacted_topic_names_the_record(topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=1, config={"cleanup.policy": "compact"})
    producer = Producer(cluster)
    producer.append(name, 0, encode(numbered(0, 3)))
    with pytest.raises(WireError, match="Record 0 of the batch"):
        producer.flush()


@pytest.mark.parametrize("passed_bytes", [0, 3, 20])
def test_a_lost_acknowledgement_leaves_one_copy(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch, passed_bytes: int
) -> None:
    """The broker has the batch, its response is cut off: the same bytes go again under the same sequence."""
    name = topic(partitions=2)
    host, _, port = kafka.bootstrap_servers.split(",")[0].rpartition(":")
    with CuttingProxy(host, int(port)) as proxy:
        proxy.stand_between(monkeypatch)
        cluster = Cluster(settings_of(kafka, retry_backoff_ms=10))
        producer = Producer(cluster)
        for i in range(10):
            for partition in range(2):
                producer.append(name, partition, encode(numbered(i * 50, (i + 1) * 50)))
            if i:  # the first round connects, and asks for a producer id
                proxy.cut_response_after(passed_bytes)
            producer.flush()
        assert proxy.n_cuts == 9
        assert producer.counters.n_retries >= 9
        for partition in range(2):
            assert read(cluster, name, partition) == numbered(0, 500)
        cluster.close()


def test_too_few_replicas_are_waited_for_and_each_batch_is_written_once(two_brokers: Any, place_topic: Any) -> None:
    place_topic(two_brokers, "replicated", {0: [1, 2], 1: [1, 2]}, **{"min.insync.replicas": "2"})
    # A leader holds a request for as long while its dead follower counts as in sync.
    cluster = Cluster(settings_of(two_brokers, request_timeout_ms=3_000))
    producer = Producer(cluster)
    for partition in range(2):
        producer.append("replicated", partition, encode(numbered(0, 100)))
    producer.flush()
    two_brokers.nodes[1].kill()
    back = threading.Timer(6, two_brokers.nodes[1].start)
    back.start()
    for i in range(1, 5):
        for partition in range(2):
            producer.append("replicated", partition, encode(numbered(i * 100, (i + 1) * 100)))
    producer.flush()
    back.join()
    assert producer.counters.n_retries > 0
    for partition in range(2):
        assert read(cluster, "replicated", partition) == numbered(0, 500)
    cluster.close()


def test_leaders_that_die_while_batches_are_in_flight_cost_none_and_double_none(
    two_brokers: Any, place_topic: Any
) -> None:
    place_topic(two_brokers, "killed-produce", {0: [1, 2], 1: [1, 2], 2: [2, 1], 3: [2, 1]})
    cluster = Cluster(settings_of(two_brokers))
    producer = Producer(cluster)
    n = write_rounds(producer, "killed-produce", 4, at_half=two_brokers.nodes[0].kill)
    # Whether a request was on its way at that moment is chance; that the other broker leads is not.
    leaders = cluster.metadata.leaders(TopicPartition("killed-produce", partition) for partition in range(4)).leaders
    assert {node for node, _ in leaders.values()} == {2}
    for partition in range(4):
        assert read(cluster, "killed-produce", partition) == numbered(0, n * 200)
    cluster.close()


def test_a_connection_lost_while_sending_leaves_the_other_leaders_batches_alone(
    two_brokers: Any, place_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests to all leaders are planned together; that one cannot be sent must not touch what the next one needs."""
    place_topic(two_brokers, "lost-between", {0: [1, 2], 1: [2, 1]})
    cluster = Cluster(settings_of(two_brokers))
    producer = Producer(cluster)
    for partition in range(2):
        producer.append("lost-between", partition, encode(numbered(0, 200)))
    producer.flush()
    send, lost = cluster.send, []

    def lose_the_first(node: int, request: Any, **options: Any) -> Any:
        if isinstance(request, ProduceRequest) and not lost:
            lost.append(node)
            raise TransportError("connection lost", broker=node)
        return send(node, request, **options)

    monkeypatch.setattr(cluster, "send", lose_the_first)
    for partition in range(2):
        producer.append("lost-between", partition, encode(numbered(200, 400)))
    producer.flush()
    assert lost
    for partition in range(2):
        assert read(cluster, "lost-between", partition) == numbered(0, 400)
    cluster.close()


def test_leaders_that_move_while_batches_are_in_flight_are_followed_in_order(
    two_brokers: Any, place_topic: Any, move_leaders: Any
) -> None:
    place_topic(two_brokers, "moved-produce", {0: [1, 2], 1: [1, 2], 2: [1, 2]})
    cluster = Cluster(settings_of(two_brokers))
    producer = Producer(cluster)

    def move() -> None:
        for nodes in ([2, 1], [1, 2], [2, 1]):
            move_leaders(two_brokers, "moved-produce", nodes)

    n = write_rounds(producer, "moved-produce", 3, at_half=move)
    assert producer.counters.n_retries > 0
    for partition in range(3):
        assert read(cluster, "moved-produce", partition) == numbered(0, n * 200)
    cluster.close()


def write_rounds(producer: Producer, topic: str, partitions: int, *, at_half: Callable[[], None]) -> int:
    """Writes for as long as `at_half` takes and some more, 200 records a round; the number of rounds."""
    disturbance = threading.Thread(target=at_half)
    n = 0
    while n < 150 or disturbance.is_alive():
        for partition in range(partitions):
            producer.append(topic, partition, encode(numbered(n * 200, (n + 1) * 200)))
        n += 1
        if n % 5 == 0:
            producer.flush()
        if n == 75:
            disturbance.start()
        time.sleep(0.005)
    disturbance.join()
    producer.flush()
    return n


def test_a_delivery_timeout_ends_in_one_error_with_its_cause(kafka_cluster: Any) -> None:
    brokers = kafka_cluster(nodes=1)
    create(brokers, "gone", partitions=1, replicas=1)
    options = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 3_000}
    cluster = Cluster(settings_of(brokers, **options))
    producer = Producer(cluster)
    producer.append("gone", 0, encode(numbered(0, 10)))
    producer.flush()
    brokers.nodes[0].pause()
    try:
        producer.append("gone", 0, encode(numbered(10, 20)))
        started = time.monotonic()
        with pytest.raises(DeadlineExceededError) as caught:
            producer.flush()
        assert 2 < time.monotonic() - started < 8
    finally:
        brokers.nodes[0].resume()
    assert (caught.value.topic, caught.value.partition) == ("gone", 0)
    assert "Last cause" in str(caught.value)
    producer.reset()
    producer.append("gone", 0, encode(numbered(20, 30)))
    producer.flush()
    values = read(cluster, "gone")
    assert values[:10] == numbered(0, 10)
    assert values[-10:] == numbered(20, 30)
    cluster.close()


def create(brokers: Any, topic: str, *, partitions: int, replicas: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    new = confluent_kafka.admin.NewTopic(topic, partitions, replicas, config=config)
    admin.create_topics([new])[topic].result(30)
