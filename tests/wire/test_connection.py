"""The exchange of a connection, on a network in memory: what breaks ends it, and says how. On sockets: test_transport.py."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.connection.state_machine import State
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import CorrelationError, DeadlineExceededError, ProtocolError, TransportError, WireError
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykafka_wire.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import CLOSE, FakeBroker, frame_of, versions_response
from tests.wire.memory_network import MemoryNetwork

ASK = MetadataRequest(topics=[])


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker(in_memory=True)


def connection_to(broker: FakeBroker, ends_after: int | None = None, **settings: Any) -> Connection:
    chosen = ClientSettings(bootstrap_servers=(("memory", broker.port),), **settings)
    network = MemoryNetwork(ends_after)
    return Connection("memory", broker.port, chosen, Trace(""), f"memory:{broker.port}", network=network)


def soon(ms: float = 20_000) -> Deadline:
    return Deadline.after_ms(ms)


def produce_of(n_bytes: int) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=b"r" * n_bytes)]
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])


def test_requests_in_flight_get_their_responses_in_order(broker: FakeBroker) -> None:
    connection = connection_to(broker).open(soon())
    pendings = [connection.send(ASK) for _ in range(5)]
    assert pendings[4].result(soon()).controller_id == 1  # the last one first: the others are there by then
    assert all(pending.done for pending in pendings)
    assert [pending.version for pending in pendings] == [12] * 5


def test_a_response_that_does_not_come_ends_in_time_and_ends_the_connection(broker: FakeBroker) -> None:
    connection = connection_to(broker).open(soon())
    broker.silent = True
    first, second = connection.send(ASK), connection.send(ASK)
    with pytest.raises(DeadlineExceededError, match="did not respond in time") as raised:
        first.result(soon(150))
    assert (raised.value.api, raised.value.broker) == ("Metadata", connection.label)
    assert second.done
    assert not connection.usable
    assert connection.failed_at is not None


def test_a_wait_for_a_response_ends_soon_after_its_deadline_is_cancelled() -> None:
    cancelled = threading.Event()
    with FakeBroker() as silent:
        settings = ClientSettings(bootstrap_servers=(("127.0.0.1", silent.port),))
        connection = Connection("127.0.0.1", silent.port, settings, Trace(""), silent.address).open(soon())
        silent.silent = True
        future = connection.send(ASK)
        threading.Timer(0.1, cancelled.set).start()
        started = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            future.result(Deadline.after_ms(20_000, cancelled=cancelled))
    assert time.monotonic() - started < 5


def test_whatever_point_the_connection_is_cut_at_ends_in_a_typed_error(broker: FakeBroker) -> None:
    broker.on[MetadataRequest] = lambda request, version: MetadataResponse(controller_id=7)
    whole = len(frame_of(ApiVersionsRequest, 4, 0, versions_response()))
    whole += len(frame_of(MetadataRequest, 12, 1, MetadataResponse(controller_id=7)))
    outcomes = []
    for n_bytes in range(1, whole + 1):
        try:
            connection = connection_to(broker, ends_after=n_bytes).open(soon())
            outcomes.append(str(connection.send(ASK).result(soon()).controller_id))
        except WireError as error:
            outcomes.append(type(error).__name__)
    assert outcomes[-1] == "7"
    assert set(outcomes[:-1]) == {"TransportError"}


@pytest.mark.parametrize(
    ("response", "error", "message"),
    [
        (b"\xff\xff\xff\xff", ProtocolError, "a frame of -1 bytes"),
        (b"\x7f\xff\xff\xff", ProtocolError, "a frame of 2147483647 bytes"),
        (frame_of(MetadataRequest, 12, 99, MetadataResponse()), CorrelationError, "request 99, where 1 is expected"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", ProtocolError, "is incomplete"),
        (CLOSE, TransportError, "closed the connection"),
    ],
    ids=["negative length", "oversize length", "wrong correlation id", "truncated", "closed"],
)
def test_a_broken_response_ends_the_connection(
    broker: FakeBroker, response: Any, error: type[WireError], message: str
) -> None:
    broker.on[MetadataRequest] = lambda request, version: response
    connection = connection_to(broker).open(soon())
    with pytest.raises(error, match=message):
        connection.send(ASK).result(soon())
    assert connection.state_machine.state is State.CLOSED
    with pytest.raises(TransportError):
        connection.send(ASK)


def test_a_reset_under_a_large_request_names_the_brokers_limit(broker: FakeBroker) -> None:
    broker.on[ProduceRequest] = lambda request, version: CLOSE
    connection = connection_to(broker).open(soon())
    with pytest.raises(
        TransportError, match=r"socket\.request\.max\.bytes; the largest request without a response had 2000\d\d\d"
    ):
        connection.send(produce_of(2_000_000)).result(soon())


def test_a_throttled_client_waits_before_its_next_request(broker: FakeBroker) -> None:
    broker.on[MetadataRequest] = lambda request, version: MetadataResponse(throttle_time_ms=300)
    connection = connection_to(broker).open(soon())
    connection.send(ASK).result(soon())
    started = time.monotonic()
    connection.send(ASK)
    assert 0.25 < time.monotonic() - started < 5


def test_an_absurd_throttle_time_ends_at_the_deadline(broker: FakeBroker) -> None:
    broker.on[MetadataRequest] = lambda request, version: MetadataResponse(throttle_time_ms=2**31 - 1)
    connection = connection_to(broker).open(soon())
    connection.send(ASK).result(soon())
    with pytest.raises(DeadlineExceededError, match="throttles this client"):
        connection.send(ASK, deadline=soon(100))


def test_closing_does_not_wait_for_the_end_of_a_throttle(broker: FakeBroker) -> None:
    broker.on[MetadataRequest] = lambda request, version: MetadataResponse(throttle_time_ms=60_000)
    connection = connection_to(broker).open(soon())
    connection.send(ASK).result(soon())

    def send() -> None:
        with pytest.raises(TransportError, match="the connection was closed"):
            connection.send(ASK, deadline=soon(90_000))
        refused.set()

    refused = threading.Event()
    sending = threading.Thread(target=send)
    sending.start()
    deadline = soon(30_000)
    while connection._lock.acquire(blocking=False):
        connection._lock.release()
        assert not deadline.expired
        time.sleep(0.001)
    started = time.monotonic()
    connection.close()
    assert refused.wait(60)
    assert time.monotonic() - started < 30


def test_a_connection_that_the_broker_closed_meanwhile_is_not_usable(broker: FakeBroker) -> None:
    connection = connection_to(broker).open(soon())
    assert connection.usable
    connection._network.opened[-1].drop()
    assert not connection.usable


def test_a_connection_idle_for_too_long_is_not_usable(broker: FakeBroker) -> None:
    connection = connection_to(broker, connections_max_idle_ms=50).open(soon())
    assert connection.usable
    time.sleep(0.06)
    assert not connection.usable
    assert connection_to(broker, connections_max_idle_ms=-1).open(soon()).usable


def test_a_response_that_has_arrived_is_not_lost_when_its_deadline_has_passed(broker: FakeBroker) -> None:
    connection = connection_to(broker).open(soon())
    first, second = connection.send(ASK), connection.send(ASK)
    assert second.result(Deadline.after_ms(0)).controller_id == 1
    assert first.done
    with pytest.raises(DeadlineExceededError):
        broker.silent = True
        connection.send(ASK).result(Deadline.after_ms(0))
