"""Writing to several scripted brokers, with responses that come late, and with interrupted requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import FakeBroker
from tests.wire.scripted_log import NOT_ENOUGH_REPLICAS, NOT_LEADER, Partition, write
from tests.wire.test_producer import encode, numbered

# --- several brokers, and responses that come late ----------------------------------------------------------------------


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Responses that wait for this event wait for no longer than the test."""
    held = threading.Event()
    yield held
    held.set()


def test_a_metadata_look_up_does_not_wait_behind_a_slow_acknowledgement(
    fake: FakeBroker, log: Partition, held: threading.Event
) -> None:
    def slow(request: ProduceRequest, version: int) -> ProduceResponse:
        held.wait(60)
        return responses(request)

    fake.on[ProduceRequest] = slow
    options = {"bootstrap.servers": fake.address, "enable.idempotence": "false", "request.timeout.ms": "2000"}
    with Cluster(ClientSettings.from_options(options)) as cluster:
        cluster.metadata.topics(["t"])
        producer = Producer(cluster, ClientSettings.from_options({**options, "request.timeout.ms": "60000"}))
        write(producer, 0, 10)
        with pytest.raises(DeadlineExceededError):
            producer.flush(Deadline.after_ms(50))
        assert cluster.metadata.topics(["t"], deadline=Deadline.after_ms(2_000))["t"].partitions
        held.set()
        producer.flush()
    assert fake.count(ProduceRequest) == 1


@pytest.fixture
def second(fake: FakeBroker) -> Iterator[FakeBroker]:
    """A second broker, of the same cluster as `fake`."""
    with FakeBroker(2) as second:
        fake.speak({0: (3, 12)})
        second.speak({0: (3, 12)})
        fake.peers = second.peers = {1: fake, 2: second}
        fake.topics = second.topics = {"t": {0: (1, 5), 1: (2, 5)}}
        yield second


def responses(request: ProduceRequest, code: int = 0, leader: tuple[int, int] = (-1, -1)) -> ProduceResponse:
    """The same response for each partition of a request."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=each.index,
                        error_code=code,
                        base_offset=0,
                        current_leader=LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
                    )
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def two_brokers(fake: FakeBroker, **options: object) -> Cluster:
    named = {name.replace("_", "."): str(value) for name, value in options.items()}
    return Cluster(
        ClientSettings.from_options(
            {"bootstrap.servers": fake.address, "enable.idempotence": "false", "retry.backoff.ms": "50", **named}
        )
    )


def test_a_retry_that_is_due_does_not_wait_for_another_brokers_slow_response(
    fake: FakeBroker, second: FakeBroker, held: threading.Event
) -> None:
    retried: list[float] = []

    def slow(request: ProduceRequest, version: int) -> ProduceResponse:
        held.wait(60)
        return responses(request)

    def refuses_once(request: ProduceRequest, version: int) -> ProduceResponse:
        retried.append(time.monotonic())
        if len(retried) == 2:
            held.set()
        return responses(request, 0 if len(retried) > 1 else NOT_ENOUGH_REPLICAS)

    fake.on[ProduceRequest], second.on[ProduceRequest] = slow, refuses_once
    with two_brokers(fake, request_timeout_ms=20_000) as cluster:
        producer = Producer(cluster)
        for partition in (0, 1):
            producer.append("t", partition, encode(numbered(0, 10)))
        producer.flush()
    assert retried[1] - retried[0] < 10
    assert fake.count(ProduceRequest) == 1


def test_a_response_that_has_arrived_counts_after_its_deadline(fake: FakeBroker, second: FakeBroker) -> None:
    """The broker of one partition responds at once; the other's response comes after the first one's deadline."""
    both = threading.Barrier(2)

    def at_once(request: ProduceRequest, version: int) -> ProduceResponse:
        both.wait(30)
        return responses(request)

    fake.on[ProduceRequest] = second.on[ProduceRequest] = at_once
    with two_brokers(fake, request_timeout_ms=500, acks=1) as cluster:
        producer = Producer(cluster)
        for partition in (0, 1):
            producer.append("t", partition, encode(numbered(0, 10)))
        producer._clock.resume()
        producer._send(everything=True)
        flights = producer._requests.oldest()
        ends = time.monotonic() + 30
        while not all(flight.future.arrived for flight in flights):
            assert time.monotonic() < ends
        # Busy for longer than the request timeout, as with a look-up that hangs.
        left_s = max(flight.expires_at for flight in flights) - producer._clock.now()
        time.sleep(max(0.0, left_s + 0.01))
        producer.flush()
    assert (fake.count(ProduceRequest), second.count(ProduceRequest)) == (1, 1)


def test_a_leader_hint_that_is_newer_is_followed_at_once(fake: FakeBroker, second: FakeBroker) -> None:
    fake.on[ProduceRequest] = lambda request, version: responses(request, NOT_LEADER, leader=(2, 6))
    second.on[ProduceRequest] = lambda request, version: responses(request)
    with two_brokers(fake, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as cluster:
        producer = Producer(cluster)
        producer.append("t", 0, encode(numbered(0, 10)))
        started = time.monotonic()
        producer.flush()
    assert time.monotonic() - started < 30
    assert (fake.count(ProduceRequest), second.count(ProduceRequest)) == (1, 1)


def test_a_request_whose_wait_was_interrupted_is_not_forgotten(
    fake: FakeBroker, second: FakeBroker, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a response is awaited: what was sent may still be written, and is sent again by whoever goes on."""

    def slow(request: ProduceRequest, version: int) -> ProduceResponse:
        held.wait(60)
        return responses(request)

    fake.on[ProduceRequest] = slow
    with two_brokers(fake) as cluster:
        producer = Producer(cluster)
        producer.append("t", 0, encode(numbered(0, 10)))
        with pytest.raises(DeadlineExceededError):
            producer.flush(Deadline.after_ms(100))
        for wait in (lambda: producer.all_responded(Deadline.after_ms(30_000)), producer.flush):
            with monkeypatch.context() as patched:
                patched.setattr(Connection, "_fill", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    wait()
        assert not producer.all_responded(Deadline.after_ms(100))
        held.set()
        assert producer.flush()[TopicPartition("t", 0)].n_records == 10


def test_a_request_whose_sending_was_interrupted_is_sent_again(
    fake: FakeBroker, second: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.on[ProduceRequest] = lambda request, version: responses(request)
    with two_brokers(fake) as cluster:
        producer = Producer(cluster)
        producer.append("t", 0, encode(numbered(0, 10)))
        cluster.metadata.topics(["t"])
        with monkeypatch.context() as patched:
            patched.setattr(Cluster, "send", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.flush()
        assert not producer.all_responded(Deadline.after_ms(100))
        assert producer.flush(Deadline.after_ms(30_000))[TopicPartition("t", 0)].n_records == 10


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_a_broker_that_does_not_respond_to_the_handshake_delays_no_other(fake: FakeBroker, second: FakeBroker) -> None:
    """A stopped broker accepts connections: to open one takes ``socket.connection.setup.timeout.ms``."""
    served: list[float] = []

    def serve(request: ProduceRequest, version: int) -> ProduceResponse:
        served.append(time.monotonic())
        return responses(request)

    fake.on[ProduceRequest] = second.on[ProduceRequest] = serve
    with two_brokers(fake, socket_connection_setup_timeout_ms=10_000) as cluster:
        producer = Producer(cluster)
        producer.append("t", 0, encode(numbered(0, 10)))
        producer.flush()
        second.silent = True
        producer.append("t", 1, encode(numbered(0, 10)))
        began = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            producer.flush(Deadline.after_ms(1_000))
        producer.append("t", 0, encode(numbered(10, 20)))
        with pytest.raises(DeadlineExceededError):
            producer.flush(Deadline.after_ms(1_000))
        assert len(served) == 2
        assert time.monotonic() - began < 9
        second.silent = False
        second.drop()
        assert producer.flush(Deadline.after_ms(30_000))[TopicPartition("t", 1)].n_records == 10
    assert len(served) == 3


def test_a_throttled_broker_delays_no_other_and_no_deadline(fake: FakeBroker, second: FakeBroker) -> None:
    fake.on[ProduceRequest] = lambda request, version: ProduceResponse(
        responses=responses(request).responses, throttle_time_ms=15_000
    )
    second.on[ProduceRequest] = lambda request, version: responses(request)
    with two_brokers(fake) as cluster:
        producer = Producer(cluster)
        for partition in (0, 1):
            producer.append("t", partition, encode(numbered(0, 10)))
        producer.flush()
        began = time.monotonic()
        for partition in (0, 1):
            producer.append("t", partition, encode(numbered(10, 20)))
        with pytest.raises(DeadlineExceededError):
            producer.flush(Deadline.after_ms(1_000))
        assert time.monotonic() - began < 10
        assert (fake.count(ProduceRequest), second.count(ProduceRequest)) == (1, 2)
