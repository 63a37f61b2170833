"""Writing while brokers and the network misbehave: each batch once and in order, or one error, and never a silent gap.

What a real broker can be made to do is in test_producer.py; here a scripted one keeps a log as a real one would.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.errors import BrokerError, DeadlineExceededError, ProtocolError, WireError
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.produce.response_handler import rejection_error
from pykafka_wire.wire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykafka_wire.wire.records.batches import read_header
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import CLOSE, FakeBroker, Mangled, Reply
from tests.wire.oracle import decode_batches
from tests.wire.test_producer import encode, numbered, read, settings_of

DUPLICATE, OUT_OF_ORDER, UNKNOWN_PRODUCER = 46, 45, 59
NOT_LEADER, NOT_ENOUGH_REPLICAS = 6, 19
THROTTLED_MS = 300


class Partition:
    """The log of t-0, with the sequences that a broker minds.

    Attributes:
        faults: for the next requests, in turn: what to do instead of answering well, before or after appending.
    """

    def __init__(self, fake: FakeBroker) -> None:
        self.values: list[bytes | None] = []
        self.producers: list[int] = []
        self.faults: list[Callable[[Callable[[], ProduceResponse]], Reply] | None] = []
        fake.speak({0: (3, 12), 22: (0, 4)})
        fake.topics = {"t": {0: (1, 0)}}
        fake.on[ProduceRequest] = self.produce
        fake.on[InitProducerIdRequest] = self.init_producer_id

    def init_producer_id(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        self.producers.append(len(self.producers))
        return InitProducerIdResponse(producer_id=self.producers[-1])

    def produce(self, request: ProduceRequest, version: int) -> Reply:
        fault = self.faults.pop(0) if self.faults else None
        data = bytes(request.topic_data[0].partition_data[0].records)
        return self.append(data) if fault is None else fault(lambda: self.append(data))

    def append(self, data: bytes) -> ProduceResponse:
        sequence, offset = read_header(memoryview(data)).base_sequence, len(self.values)
        code = 0 if sequence == offset else DUPLICATE if sequence < offset else OUT_OF_ORDER
        if not code:
            self.values += [record.value for record in decode_batches(data)]
        return answer(code, -1 if code else offset)


def answer(code: int, base_offset: int = -1, **more: Any) -> ProduceResponse:
    partition = PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset)
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])], **more)


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        yield fake


@pytest.fixture
def log(fake: FakeBroker) -> Partition:
    return Partition(fake)


@pytest.fixture
def producer(fake: FakeBroker) -> Iterator[Producer]:
    # One request holds one batch of ten records and no more.
    options = {"retry.backoff.ms": "1", "request.timeout.ms": "2000", "max.request.size": "1300"}
    with Cluster(ClientSettings.from_options({"bootstrap.servers": fake.address, **options})) as cluster:
        yield Producer(cluster)


def write(producer: Producer, start: int, end: int) -> None:
    for first in range(start, end, 10):
        producer.append("t", 0, encode(numbered(first, first + 10)))


def mangled(mangle: Callable[[bytes], bytes]) -> Callable[[Callable[[], ProduceResponse]], Reply]:
    return lambda append: Mangled(append(), mangle)


def with_length(frame: bytes, length: int) -> bytes:
    return struct.pack(">i", length) + frame[4:]


LOST = {
    "closed before it is written": lambda append: CLOSE,
    "closed after it is written": lambda append: (append(), CLOSE)[1],
    "another request's answer": mangled(lambda frame: frame[:4] + struct.pack(">i", 4711) + frame[8:]),
    "a negative length": mangled(lambda frame: with_length(frame, -5)),
    "an oversize length": mangled(lambda frame: with_length(frame, 2**31 - 1)),
    "cut short": mangled(lambda frame: with_length(frame[:-6], len(frame) - 10)),
    "bytes too many": mangled(lambda frame: with_length(frame, len(frame) + 2) + b"\0" * 6),
    "no answer in time": lambda append: (append(), None)[1],
    "an answer that leaves the partition out": lambda append: (append(), ProduceResponse())[1],
}


@pytest.mark.parametrize("fault", LOST.values(), ids=LOST)
def test_a_batch_whose_answer_is_lost_is_in_the_log_once(fault: Any, producer: Producer, log: Partition) -> None:
    """Faults 4, 7, 8, 9 and 34: the same bytes go again, under the same sequence."""
    write(producer, 0, 10)
    producer.flush()
    log.faults = [None, fault]
    write(producer, 10, 100)
    producer.flush()
    assert log.values == numbered(0, 100)
    assert producer.counters.n_retries > 0
    assert log.producers == [0]


def test_without_a_producer_id_the_producer_has_failed(producer: Producer, fake: FakeBroker, log: Partition) -> None:
    fake.on[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(error_code=31)
    write(producer, 0, 10)
    for _ in range(2):
        with pytest.raises(BrokerError, match="Grant IdempotentWrite"):
            producer.flush()
    assert fake.count(InitProducerIdRequest) == 1
    assert not producer.clean
    fake.on[InitProducerIdRequest] = log.init_producer_id
    producer.reset()
    write(producer, 0, 10)
    producer.flush()
    assert log.values == numbered(0, 10)


def test_an_answer_that_never_makes_sense_ends_in_one_error(producer: Producer, log: Partition) -> None:
    log.faults = [LOST["bytes too many"]] * 5
    write(producer, 0, 10)
    with pytest.raises(ProtocolError):
        producer.flush()
    assert log.values == numbered(0, 10)


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN_PRODUCER], ids=["out of order", "unknown producer"])
def test_acknowledged_records_that_the_broker_lost_are_an_error_and_nothing_follows_the_gap(
    code: int, producer: Producer, log: Partition
) -> None:
    """Fault 33: the first unacknowledged batch is out of sequence, so what is missing was acknowledged."""
    write(producer, 0, 50)
    producer.flush()
    log.faults = [None, *[lambda append: answer(code)] * 20]
    write(producer, 50, 100)
    with pytest.raises(BrokerError) as caught:
        producer.flush()
    assert (caught.value.code, caught.value.topic, caught.value.partition) == (code, "t", 0)
    assert "Acknowledged records of this producer are missing" in str(caught.value)
    assert "Nothing was written after the gap" in str(caught.value)
    assert log.values == numbered(0, 60)
    # Whoever goes on does so as another producer.
    producer.reset()
    log.values, log.faults = [], []
    write(producer, 60, 100)
    producer.flush()
    assert log.values == numbered(60, 100)
    assert log.producers == [0, 1]


def test_batches_out_of_order_only_because_one_before_them_failed_are_sent_again(
    producer: Producer, log: Partition
) -> None:
    """Not fault 33: a full disk turns one batch away, and those in flight behind it have no place."""
    write(producer, 0, 10)
    producer.flush()
    log.faults = [lambda append: answer(56)]  # KAFKA_STORAGE_ERROR
    write(producer, 10, 100)
    producer.flush()
    assert log.values == numbered(0, 100)


def test_the_throttle_that_comes_with_an_answer_is_waited_out(producer: Producer, log: Partition) -> None:
    log.faults = [lambda append: throttled(append())]
    write(producer, 0, 10)
    producer.flush()
    started = time.monotonic()
    write(producer, 10, 20)
    producer.flush()
    assert time.monotonic() - started > THROTTLED_MS / 1000 * 0.9
    assert log.values == numbered(0, 20)


def throttled(response: ProduceResponse) -> ProduceResponse:
    return ProduceResponse(responses=response.responses, throttle_time_ms=THROTTLED_MS)


def test_retries_are_counted_and_bounded(fake: FakeBroker, log: Partition) -> None:
    log.faults = [lambda append: answer(19)] * 10
    options = {"bootstrap.servers": fake.address, "retries": "3", "retry.backoff.ms": "1"}
    with Cluster(ClientSettings.from_options(options)) as cluster:
        producer = Producer(cluster)
        write(producer, 0, 10)
        with pytest.raises(WireError, match="NOT_ENOUGH_REPLICAS"):
            producer.flush()
    assert fake.count(ProduceRequest) == 4
    assert log.values == []


@pytest.mark.long
@pytest.mark.broker
def test_batches_appended_with_too_few_replicas_are_not_appended_again(
    kafka_cluster: Any, place_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 32 as brokers before 4 have it: NOT_ENOUGH_REPLICAS_AFTER_APPEND once the follower falls out of sync, then
    NOT_ENOUGH_REPLICAS until it is back."""
    properties = {"replica.lag.time.max.ms": "3000", "zookeeper.session.timeout.ms": "60000"}
    brokers = kafka_cluster(2, properties, version="2.5.1")
    place_topic(brokers, "after-append", {0: [1, 2]}, **{"min.insync.replicas": "2"})
    codes: list[int] = []

    def noted(tp: Any, encoded: Any, answer: PartitionProduceResponse, **where: Any) -> BrokerError:
        codes.append(answer.error_code)
        return rejection_error(tp, encoded, answer, **where)

    monkeypatch.setattr("pykafka_wire.wire.produce.response_handler.rejection_error", noted)
    with Cluster(settings_of(brokers, delivery_timeout_ms=240_000)) as cluster:
        producer = Producer(cluster)
        producer.append("after-append", 0, encode(numbered(0, 100)))
        producer.flush()
        brokers.nodes[1].pause()
        try:
            producer.append("after-append", 0, encode(numbered(100, 200)))
            ends = time.monotonic() + 60
            while not {19, 20} <= set(codes):
                assert time.monotonic() < ends, codes
                with pytest.raises(DeadlineExceededError):
                    producer.flush(Deadline.after_ms(500))
        finally:
            brokers.nodes[1].resume()
        producer.flush()
        assert read(cluster, "after-append") == numbered(0, 200)


def test_partitions_without_a_leader_delay_no_other_and_are_looked_up_together(
    fake: FakeBroker, log: Partition
) -> None:
    headless = range(1, 41)
    n_electing: list[int] = []

    def produce(request: ProduceRequest, version: int) -> ProduceResponse:
        partitions = [each.index for each in request.topic_data[0].partition_data]
        if partitions == [0]:
            n_electing.append(fake.count(MetadataRequest))
            fake.topics["t"].update(dict.fromkeys(headless, (1, 1)))
        answers = [PartitionProduceResponse(index=index, base_offset=0) for index in partitions]
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])

    fake.on[ProduceRequest] = produce
    fake.topics["t"] = {0: (1, 0), **dict.fromkeys(headless, (-1, 0))}
    with Cluster(ClientSettings.from_options({"bootstrap.servers": fake.address})) as cluster:
        producer = Producer(cluster)
        for partition in (*headless, 0):
            producer.append("t", partition, encode(numbered(0, 10)))
        assert len(producer.flush()) == len(headless) + 1
    assert n_electing  # the one with a leader did not wait for the others
    assert fake.count(MetadataRequest) < len(headless)


def test_a_leader_hint_that_is_not_newer_is_followed_by_a_pause(fake: FakeBroker, log: Partition) -> None:
    """Two brokers that each name the other in an epoch that is known were asked 3,750 times in 0.7 s."""
    refused_until = time.monotonic() + 1
    fake.peers = {1: fake, 2: fake}

    def not_the_leader(append: Callable[[], ProduceResponse]) -> Reply:
        if time.monotonic() > refused_until:
            return append()
        leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=0)
        partition = PartitionProduceResponse(index=0, error_code=6, base_offset=-1, current_leader=leader)
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])

    log.faults = [not_the_leader] * 10_000
    with Cluster(ClientSettings.from_options({"bootstrap.servers": fake.address})) as cluster:
        producer = Producer(cluster)
        write(producer, 0, 10)
        producer.flush()
    assert log.values == numbered(0, 10)
    assert fake.count(ProduceRequest) < 20


# --- several brokers, and answers that come late ----------------------------------------------------------------------


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Answers that wait for this event wait for no longer than the test."""
    held = threading.Event()
    yield held
    held.set()


def test_a_metadata_look_up_does_not_wait_behind_a_slow_acknowledgement(
    fake: FakeBroker, log: Partition, held: threading.Event
) -> None:
    def slow(request: ProduceRequest, version: int) -> ProduceResponse:
        held.wait(60)
        return answers(request)

    fake.on[ProduceRequest] = slow
    options = {"bootstrap.servers": fake.address, "enable.idempotence": "false", "request.timeout.ms": "2000"}
    with Cluster(ClientSettings.from_options(options)) as cluster:
        cluster.topics(["t"])
        producer = Producer(cluster, ClientSettings.from_options({**options, "request.timeout.ms": "60000"}))
        write(producer, 0, 10)
        with pytest.raises(DeadlineExceededError):
            producer.flush(Deadline.after_ms(50))
        assert cluster.topics(["t"], deadline=Deadline.after_ms(2_000))["t"].partitions
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


def answers(request: ProduceRequest, code: int = 0, leader: tuple[int, int] = (-1, -1)) -> ProduceResponse:
    """The same answer for each partition of a request."""
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


def test_a_retry_that_is_due_does_not_wait_for_another_brokers_slow_answer(
    fake: FakeBroker, second: FakeBroker, held: threading.Event
) -> None:
    retried: list[float] = []

    def slow(request: ProduceRequest, version: int) -> ProduceResponse:
        held.wait(60)
        return answers(request)

    def refuses_once(request: ProduceRequest, version: int) -> ProduceResponse:
        retried.append(time.monotonic())
        if len(retried) == 2:
            held.set()
        return answers(request, 0 if len(retried) > 1 else NOT_ENOUGH_REPLICAS)

    fake.on[ProduceRequest], second.on[ProduceRequest] = slow, refuses_once
    with two_brokers(fake, request_timeout_ms=20_000) as cluster:
        producer = Producer(cluster)
        for partition in (0, 1):
            producer.append("t", partition, encode(numbered(0, 10)))
        producer.flush()
    assert retried[1] - retried[0] < 10
    assert fake.count(ProduceRequest) == 1


def test_an_answer_that_has_arrived_counts_after_its_deadline(fake: FakeBroker, second: FakeBroker) -> None:
    """The broker of one partition answers at once; the other's answer comes after the first one's deadline."""
    both = threading.Barrier(2)

    def at_once(request: ProduceRequest, version: int) -> ProduceResponse:
        both.wait(30)
        return answers(request)

    fake.on[ProduceRequest] = second.on[ProduceRequest] = at_once
    with two_brokers(fake, request_timeout_ms=500, acks=1) as cluster:
        producer = Producer(cluster)
        for partition in (0, 1):
            producer.append("t", partition, encode(numbered(0, 10)))
        producer._clock.resume()
        producer._send(everything=True)
        flights = producer._in_flight.oldest()
        ends = time.monotonic() + 30
        while not all(flight.future.arrived for flight in flights):
            assert time.monotonic() < ends
        # Busy for longer than the request timeout, as with a look-up that hangs.
        time.sleep(max(flight.expires_at for flight in flights) - producer._clock.now() + 0.01)
        producer.flush()
    assert (fake.count(ProduceRequest), second.count(ProduceRequest)) == (1, 1)


def test_a_leader_hint_that_is_newer_is_followed_at_once(fake: FakeBroker, second: FakeBroker) -> None:
    fake.on[ProduceRequest] = lambda request, version: answers(request, NOT_LEADER, leader=(2, 6))
    second.on[ProduceRequest] = lambda request, version: answers(request)
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
    """Ctrl-C while an answer is awaited: what was sent may still be written, and is sent again by whoever goes on."""

    def slow(request: ProduceRequest, version: int) -> ProduceResponse:
        held.wait(60)
        return answers(request)

    fake.on[ProduceRequest] = slow
    with two_brokers(fake) as cluster:
        producer = Producer(cluster)
        producer.append("t", 0, encode(numbered(0, 10)))
        with pytest.raises(DeadlineExceededError):
            producer.flush(Deadline.after_ms(100))
        for wait in (lambda: producer.all_answered(Deadline.after_ms(30_000)), producer.flush):
            with monkeypatch.context() as patched:
                patched.setattr(Connection, "_fill", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    wait()
        assert not producer.all_answered(Deadline.after_ms(100))
        held.set()
        assert producer.flush()[TopicPartition("t", 0)].n_records == 10


def test_a_request_whose_sending_was_interrupted_is_sent_again(
    fake: FakeBroker, second: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.on[ProduceRequest] = lambda request, version: answers(request)
    with two_brokers(fake) as cluster:
        producer = Producer(cluster)
        producer.append("t", 0, encode(numbered(0, 10)))
        cluster.topics(["t"])
        with monkeypatch.context() as patched:
            patched.setattr(Cluster, "send", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.flush()
        assert not producer.all_answered(Deadline.after_ms(100))
        assert producer.flush(Deadline.after_ms(30_000))[TopicPartition("t", 0)].n_records == 10


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_a_broker_that_does_not_answer_the_handshake_delays_no_other(fake: FakeBroker, second: FakeBroker) -> None:
    """A stopped broker accepts connections: to open one takes ``socket.connection.setup.timeout.ms``."""
    served: list[float] = []

    def serve(request: ProduceRequest, version: int) -> ProduceResponse:
        served.append(time.monotonic())
        return answers(request)

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
