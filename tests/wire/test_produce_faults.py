"""Writing while brokers and the network misbehave: each batch once and in order, or one error, and never a silent gap.

What a real broker can be made to do is in test_producer.py; here a scripted one keeps a log as a real one would.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.leader_requests import LeaderRequests
from pykafka_wire.wire.connection.connection import ResponseFuture
from pykafka_wire.wire.connection.transport import SocketTransport
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    ProtocolError,
    RecordsNotWrittenError,
    TransportError,
    WireError,
)
from pykafka_wire.wire.produce.partition_queue import PartitionQueue
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.produce.response_handler import rejection_error
from pykafka_wire.wire.produce.write_results import ProducerCounters, WriteResults
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.protocol.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykafka_wire.wire.record_producer import RecordProducer
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import CLOSE, FakeBroker, Mangled, Reply
from tests.wire.scripted_log import (
    OUT_OF_ORDER,
    THROTTLED_MS,
    Partition,
    response,
    write,
)
from tests.wire.test_producer import encode, numbered, read, settings_of


def mangled(mangle: Callable[[bytes], bytes]) -> Callable[[Callable[[], ProduceResponse]], Reply]:
    return lambda append: Mangled(append(), mangle)


def with_length(frame: bytes, length: int) -> bytes:
    return struct.pack(">i", length) + frame[4:]


LOST = {
    "closed before it is written": lambda append: CLOSE,
    "closed after it is written": lambda append: (append(), CLOSE)[1],
    "another request's response": mangled(lambda frame: frame[:4] + struct.pack(">i", 4711) + frame[8:]),
    "a negative length": mangled(lambda frame: with_length(frame, -5)),
    "an oversize length": mangled(lambda frame: with_length(frame, 2**31 - 1)),
    "cut short": mangled(lambda frame: with_length(frame[:-6], len(frame) - 10)),
    "bytes too many": mangled(lambda frame: with_length(frame, len(frame) + 2) + b"\0" * 6),
    "no response in time": lambda append: (append(), None)[1],
    "a response that leaves the partition out": lambda append: (append(), ProduceResponse())[1],
}


@pytest.mark.parametrize("fault", LOST.values(), ids=LOST)
def test_a_batch_whose_response_is_lost_is_in_the_log_once(fault: Any, producer: Producer, log: Partition) -> None:
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
        with pytest.raises(BrokerError, match=r"Grant the principal Write on the topics .* need IdempotentWrite"):
            producer.flush()
    assert fake.count(InitProducerIdRequest) == 1
    assert not producer.clean
    fake.on[InitProducerIdRequest] = log.init_producer_id
    producer.reset()
    write(producer, 0, 10)
    producer.flush()
    assert log.values == numbered(0, 10)


def test_a_response_that_never_makes_sense_ends_in_one_error(producer: Producer, log: Partition) -> None:
    log.faults = [LOST["bytes too many"]] * 5
    write(producer, 0, 10)
    with pytest.raises(ProtocolError):
        producer.flush()
    assert log.values == numbered(0, 10)


def test_acknowledged_records_that_the_broker_lost_are_an_error_and_nothing_follows_the_gap(
    producer: Producer, log: Partition
) -> None:
    """Fault 33: the first unacknowledged batch is out of sequence, so what is missing was acknowledged."""
    write(producer, 0, 50)
    producer.flush()
    log.faults = [None, *[lambda append: response(OUT_OF_ORDER)] * 20]
    write(producer, 50, 100)
    with pytest.raises(BrokerError) as caught:
        producer.flush()
    assert (caught.value.code, caught.value.topic, caught.value.partition) == (OUT_OF_ORDER, "t", 0)
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
    """A full disk turns one batch away, and those in flight behind it have no place."""
    write(producer, 0, 10)
    producer.flush()
    log.faults = [lambda append: response(56)]  # KAFKA_STORAGE_ERROR
    write(producer, 10, 100)
    producer.flush()
    assert log.values == numbered(0, 100)


def test_the_throttle_that_comes_with_a_response_is_waited_out(producer: Producer, log: Partition) -> None:
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
    log.faults = [lambda append: response(19)] * 10
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

    def noted(tp: Any, encoded: Any, response: PartitionProduceResponse, **where: Any) -> BrokerError:
        codes.append(response.error_code)
        return rejection_error(tp, encoded, response, **where)

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
        responses = [PartitionProduceResponse(index=index, base_offset=0) for index in partitions]
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=responses)])

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


def test_without_acknowledgements_brokers_may_be_away_for_a_while(fake: FakeBroker) -> None:
    """No request has ever had a response, yet the addresses are right."""
    log = Partition(fake)

    def append(request: ProduceRequest, version: int) -> None:
        log.produce(request, version)

    fake.on[ProduceRequest] = append
    options = {"acks": "0", "enable.idempotence": "false", "metadata.max.age.ms": "1", "default.api.timeout.ms": "1200"}
    with Cluster(ClientSettings.from_options({"bootstrap.servers": fake.address, **options})) as cluster:
        producer = Producer(cluster)
        write(producer, 0, 10)
        producer.flush()
        fake.silent = True
        write(producer, 10, 20)
        with pytest.raises(DeadlineExceededError):
            producer.flush(Deadline.after_ms(1_500))
        fake.silent = False
        fake.drop()
        assert producer.flush()[TopicPartition("t", 0)].n_records == 10


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (SocketTransport, "write"),
        (ResponseFuture, "set_response"),
        (PartitionQueue, "take"),
        (PartitionQueue, "acknowledge"),
        (PartitionQueue, "_return"),
        (ProducerCounters, "count"),
        (WriteResults, "add"),
        (LeaderRequests, "add"),
        (LeaderRequests, "remove"),
    ],
    ids=lambda of: of if isinstance(of, str) else of.__name__,
)
def test_an_interruption_at_any_step_is_repaired_or_reported(
    where: Any, name: str, producer: Producer, log: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C right after the step: the next flush must neither wait for what never comes nor count less than is written."""
    write(producer, 0, 10)
    producer.flush()
    producer.append("t", 0, encode(numbered(10, 20)))
    step = getattr(where, name)

    def then_interrupted(*args: Any, **named: Any) -> None:
        step(*args, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(where, name, then_interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
    try:
        assert producer.flush(Deadline.after_ms(30_000))[TopicPartition("t", 0)].n_records == 10
    except RecordsNotWrittenError:
        producer.reset()
        assert producer.clean
    else:
        assert log.values == numbered(0, 20)


def test_a_record_whose_send_failed_is_not_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions of its topic cannot be asked for when there are enough records to encode."""
    monkeypatch.setattr("pykafka_wire.wire.produce.record_sender._COLLECT_RECORDS", 2)
    with FakeBroker() as fake:
        log = Partition(fake)
        settings = {"bootstrap.servers": fake.address, "default.api.timeout.ms": "500", "request.timeout.ms": "300"}
        producer = RecordProducer(settings)
        fake.silent = True
        producer.send("t", b"0")
        producer.send("t", b"1")
        for _ in range(2):
            with pytest.raises(TransportError):
                producer.send("t", b"2")
        fake.silent = False
        fake.drop()
        with producer:
            producer.send("t", b"2")
    assert log.values == [b"0", b"1", b"2"]
