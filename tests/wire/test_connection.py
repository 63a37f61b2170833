"""Sockets: nothing takes longer than its deadline, and whatever breaks says how."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.connection.response_future import ResponseFuture, first_to_arrive
from pykafka_wire.wire.connection.state_machine import Sent, State
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import CorrelationError, DeadlineExceededError, ProtocolError, TransportError, WireError
from pykafka_wire.wire.protocol.messages.api_versions import ApiVersionsRequest
from pykafka_wire.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykafka_wire.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import CLOSE, FakeBroker, frame_of, versions_response
from tests.wire.scripted_server import script

ASK = MetadataRequest(topics=[])


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def connection_to() -> Iterator[Callable[..., Connection]]:
    """Makes connections, and closes them in the end."""
    made: list[Connection] = []

    def make(port: int, host: str = "127.0.0.1", **settings: Any) -> Connection:
        chosen = ClientSettings(bootstrap_servers=((host, port),), **settings)
        made.append(Connection(host, port, chosen, Trace(""), f"{host}:{port}"))
        return made[-1]

    yield make
    for connection in made:
        connection.close()


def soon(ms: float = 20_000) -> Deadline:
    return Deadline.after_ms(ms)


def produce_of(n_bytes: int) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=b"r" * n_bytes)]
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])


def test_requests_in_flight_are_answered_in_order(broker: FakeBroker, connection_to: Callable[..., Connection]) -> None:
    connection = connection_to(broker.port).open(soon())
    pendings = [connection.send(ASK) for _ in range(5)]
    assert pendings[4].result(soon()).controller_id == 1  # the last one first: the others are there by then
    assert all(pending.done for pending in pendings)
    assert [pending.version for pending in pendings] == [12] * 5


def test_many_segments_go_out_and_arrive_whole(broker: FakeBroker, connection_to: Callable[..., Connection]) -> None:
    broker.on[ProduceRequest] = lambda request, version: ProduceResponse()
    connection = connection_to(broker.port).open(soon())
    data = [PartitionProduceData(index=p, records=os.urandom(3_000)) for p in range(3_000)]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    connection.send(request).result(soon(20_000))
    (arrived,) = broker.requests
    assert arrived == request


def test_every_address_of_a_name_is_tried(
    broker: FakeBroker, connection_to: Callable[..., Connection], monkeypatch: Any
) -> None:
    addresses = [("127.0.0.3", 1), ("127.0.0.2", broker.port), ("127.0.0.1", broker.port)]
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *a, **k: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in addresses]
    )
    connection = connection_to(broker.port, host="kafka.example").open(soon())
    assert connection.send(ASK).result(soon()).controller_id == 1
    broker.close()
    with pytest.raises(TransportError) as raised:
        connection_to(broker.port, host="kafka.example").open(soon())
    assert str(raised.value).count("connection refused") == 3
    assert all(address in str(raised.value) for address, _ in addresses)


def test_a_name_that_does_not_resolve_is_named(connection_to: Callable[..., Connection]) -> None:
    with pytest.raises(TransportError, match=r"the name no-such-host\.invalid cannot be resolved"):
        connection_to(9092, host="no-such-host.invalid").open(soon())


@pytest.mark.parametrize("host", ["broker1..example.com", "b" * 64 + ".example.com"])
def test_a_name_that_can_be_none_is_named(host: str, connection_to: Callable[..., Connection]) -> None:
    with pytest.raises(TransportError, match=rf"the name {host} cannot be resolved"):
        connection_to(9092, host).open(soon())


def test_a_stopped_broker_costs_its_share_of_the_deadline_only(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    broker.silent = True
    started = time.monotonic()
    with pytest.raises(TransportError, match="did not answer in time"):
        connection_to(broker.port, socket_connection_setup_timeout_ms=200).open(soon(10_000))
    assert time.monotonic() - started < 5


def test_an_answer_that_does_not_come_ends_in_time_and_ends_the_connection(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    connection = connection_to(broker.port).open(soon())
    broker.silent = True
    first, second = connection.send(ASK), connection.send(ASK)
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError, match="did not answer in time") as raised:
        first.result(soon(150))
    assert time.monotonic() - started < 5
    assert (raised.value.api, raised.value.broker) == ("Metadata", connection.label)
    assert second.done
    assert not connection.usable
    assert connection.failed_at is not None


def test_one_byte_now_and_then_does_not_put_the_deadline_off(connection_to: Callable[..., Connection]) -> None:
    whole = frame_of(ApiVersionsRequest, 4, 0, versions_response())

    def drip(connection: socket.socket) -> None:
        for i in range(len(whole)):
            connection.sendall(whole[i : i + 1])
            time.sleep(0.02)

    with script(drip) as port:
        started = time.monotonic()
        with pytest.raises(TransportError, match="did not answer in time"):
            connection_to(port, socket_connection_setup_timeout_ms=300).open(soon())
        assert time.monotonic() - started < 5


def test_a_broker_that_takes_a_byte_now_and_then_does_not_put_the_deadline_off(
    connection_to: Callable[..., Connection],
) -> None:
    def sip(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(frame_of(ApiVersionsRequest, 4, 0, versions_response()))
        while connection.recv(4096):
            time.sleep(0.02)

    with script(sip) as port:
        connection = connection_to(port, request_timeout_ms=400, send_buffer_bytes=4096).open(soon())
        started = time.monotonic()
        with pytest.raises(DeadlineExceededError, match="did not accept the request in time"):
            connection.send(produce_of(50_000_000))
        assert time.monotonic() - started < 5
        assert not connection.usable


def test_whatever_point_the_connection_is_cut_at_ends_in_a_typed_error(
    connection_to: Callable[..., Connection],
) -> None:
    session = [
        frame_of(ApiVersionsRequest, 4, 0, versions_response({3: (0, 12)})),
        frame_of(MetadataRequest, 12, 1, MetadataResponse(controller_id=7)),
    ]
    n_handshake = len(session[0])

    def cut_after(n_bytes: int) -> Callable[[socket.socket], None]:
        def serve(connection: socket.socket) -> None:
            connection.recv(4096)
            connection.sendall(session[0][:n_bytes])
            if n_bytes >= n_handshake:
                connection.recv(4096)
                connection.sendall(session[1][: n_bytes - n_handshake])

        return serve

    outcomes = []
    for n_bytes in range(sum(map(len, session)) + 1):
        with script(cut_after(n_bytes)) as port:
            started = time.monotonic()
            try:
                outcomes.append(str(connection_to(port).open(soon()).send(ASK).result(soon()).controller_id))
            except WireError as error:
                outcomes.append(type(error).__name__)
            assert time.monotonic() - started < 5
    assert outcomes[-1] == "7"
    assert set(outcomes[:-1]) == {"TransportError"}


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (b"\xff\xff\xff\xff", ProtocolError, "a frame of -1 bytes"),
        (b"\x7f\xff\xff\xff", ProtocolError, "a frame of 2147483647 bytes"),
        (frame_of(MetadataRequest, 12, 99, MetadataResponse()), CorrelationError, "request 99, where 1 is expected"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", ProtocolError, "is incomplete"),
        (CLOSE, TransportError, "closed the connection"),
    ],
    ids=["negative length", "oversize length", "wrong correlation id", "truncated", "closed"],
)
def test_a_broken_answer_ends_the_connection(
    broker: FakeBroker, connection_to: Callable[..., Connection], answer: Any, error: type[WireError], message: str
) -> None:
    broker.on[MetadataRequest] = lambda request, version: answer
    connection = connection_to(broker.port).open(soon())
    with pytest.raises(error, match=message):
        connection.send(ASK).result(soon())
    assert connection.state_machine.state is State.CLOSED
    with pytest.raises(TransportError):
        connection.send(ASK)


def test_a_reset_under_a_large_request_names_the_brokers_limit(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    broker.on[ProduceRequest] = lambda request, version: CLOSE
    connection = connection_to(broker.port).open(soon())
    with pytest.raises(
        TransportError, match=r"socket\.request\.max\.bytes; the largest unanswered request had 2000\d\d\d"
    ):
        connection.send(produce_of(2_000_000)).result(soon())


def test_a_throttled_client_waits_before_its_next_request(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    broker.on[MetadataRequest] = lambda request, version: MetadataResponse(throttle_time_ms=300)
    connection = connection_to(broker.port).open(soon())
    connection.send(ASK).result(soon())
    started = time.monotonic()
    connection.send(ASK)
    assert 0.25 < time.monotonic() - started < 5


def test_an_absurd_throttle_time_ends_at_the_deadline(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    broker.on[MetadataRequest] = lambda request, version: MetadataResponse(throttle_time_ms=2**31 - 1)
    connection = connection_to(broker.port).open(soon())
    connection.send(ASK).result(soon())
    with pytest.raises(DeadlineExceededError, match="throttles this client"):
        connection.send(ASK, deadline=soon(100))


def test_closing_does_not_wait_for_the_end_of_a_throttle(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    broker.on[MetadataRequest] = lambda request, version: MetadataResponse(throttle_time_ms=60_000)
    connection = connection_to(broker.port).open(soon())
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


def test_time_throttled_does_not_count_against_a_request_in_flight(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    def throttle(request: Any, version: int) -> MetadataResponse:
        if broker.count(MetadataRequest) > 1:
            time.sleep(2)  # the broker does not read what came after while it throttles
        return MetadataResponse(throttle_time_ms=2_000)

    broker.on[MetadataRequest] = throttle
    connection = connection_to(broker.port).open(soon())
    first, second = connection.send(ASK), connection.send(ASK)
    first.result(soon())
    assert second.result(soon(1_000), soon(20_000)).throttle_time_ms == 2_000


def test_a_connection_that_the_broker_closed_meanwhile_is_not_usable(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    connection = connection_to(broker.port).open(soon())
    assert connection.usable
    broker.drop()
    until = time.monotonic() + 5
    while connection.usable and time.monotonic() < until:
        time.sleep(0.005)
    assert not connection.usable


def test_a_connection_idle_for_too_long_is_not_usable(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    connection = connection_to(broker.port, connections_max_idle_ms=50).open(soon())
    assert connection.usable
    time.sleep(0.06)
    assert not connection.usable
    assert connection_to(broker.port, connections_max_idle_ms=-1).open(soon()).usable


def test_two_threads_share_a_connection(broker: FakeBroker, connection_to: Callable[..., Connection]) -> None:
    broker.on[FindCoordinatorRequest] = lambda request, version: FindCoordinatorRequest.response(throttle_time_ms=0)
    connection = connection_to(broker.port).open(soon())
    failures: list[BaseException] = []

    def ask(request: Any, kind: type) -> None:
        try:
            for _ in range(200):
                assert isinstance(connection.send(request).result(soon(20_000)), kind)
        except BaseException as error:
            failures.append(error)

    kinds: list[tuple[Any, Any]] = [
        (ASK, MetadataResponse),
        (FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorRequest.response),
    ] * 2
    threads = [threading.Thread(target=ask, args=each) for each in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []


def test_an_answer_that_another_thread_has_read_is_there_at_once(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    """The other thread goes on to wait for an answer of its own, which does not come."""
    reading, over = threading.Event(), threading.Event()

    def late(request: MetadataRequest, version: int) -> MetadataResponse:
        assert reading.wait(30)
        return broker.metadata(request, version)

    def never(request: Any, version: int) -> Any:
        over.wait(60)
        return CLOSE

    def wait_for(pending: Any) -> None:
        reading.set()
        with contextlib.suppress(WireError):
            pending.result(soon(60_000))

    broker.on.update({MetadataRequest: late, FindCoordinatorRequest: never})
    connection = connection_to(broker.port).open(soon())
    mine, others = connection.send(ASK), connection.send(FindCoordinatorRequest(coordinator_keys=["g"]))
    other = threading.Thread(target=wait_for, args=(others,))
    other.start()
    try:
        assert mine.result(soon(10_000)).brokers
    finally:
        over.set()
        other.join(60)


def test_an_answer_that_has_arrived_is_not_lost_when_its_deadline_has_passed(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    connection = connection_to(broker.port).open(soon())
    first, second = connection.send(ASK), connection.send(ASK)
    until = time.monotonic() + 30
    size = len(frame_of(MetadataRequest, second.version, 0, broker.metadata(ASK, second.version)))
    while len(connection._socket.recv(3 * size, socket.MSG_PEEK)) < 2 * size and time.monotonic() < until:  # type: ignore[union-attr]
        time.sleep(0.01)
    assert second.result(Deadline.after_ms(0)).controller_id == 1
    assert first.done
    with pytest.raises(DeadlineExceededError):
        broker.silent = True
        connection.send(ASK).result(Deadline.after_ms(0))


def test_the_first_to_arrive_may_be_read_by_another_thread() -> None:
    """Its descriptor does not become readable then; before, the wait went on to the deadline."""
    ours, peer = socket.socketpair()

    class Shared:
        readable_at = ours.fileno()
        counters = ClientCounters()

        def wait_for(self, *_: Any) -> None: ...
        def stop_gathering(self) -> None: ...

    with ours, peer:
        idle, shared = (ResponseFuture[Any](Shared(), Sent(n, ASK, 12, 10), 0.0) for n in range(2))
        reader = threading.Timer(0.2, lambda: shared.set_response(MetadataResponse()))
        reader.start()
        started = time.monotonic()
        assert first_to_arrive([idle, shared], Deadline.after_ms(60_000)) is shared
        assert time.monotonic() - started < 30
        reader.join()


def test_a_thread_does_not_wait_past_its_deadline_for_another(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    connection = connection_to(broker.port).open(soon())
    broker.silent = True
    pending = connection.send(ASK)
    waiter = threading.Thread(target=_swallow, args=(pending,))
    waiter.start()
    time.sleep(0.1)
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError):
        connection.send(ASK, deadline=soon(100))
    assert time.monotonic() - started < 5
    waiter.join(5)


def _swallow(pending: Any) -> None:
    with contextlib.suppress(WireError):
        pending.result(soon(1_000))


# Python 3.12 warns of forks beside threads, as the fake broker's.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_childs_copy_goes_without_a_trace(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    connection = connection_to(broker.port).open(soon())
    pid = os.fork()
    if pid == 0:
        connection.abandon()
        os._exit(0)
    os.waitpid(pid, 0)
    assert connection.send(ASK).result(soon()).controller_id == 1
    assert broker.n_connections == 1
