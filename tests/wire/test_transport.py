"""Connections on sockets: names, addresses, deadlines of the kernel, threads and forks. Others: test_connection.py."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykafka_wire.wire.connection.connection import Connection, ResponseFuture, first_to_arrive
from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.connection.state_machine import Sent
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError, TransportError, WireError
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest, ApiVersionsResponse
from pykafka_wire.wire.protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataResponse
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


@contextlib.contextmanager
def named(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> Iterator[None]:
    """While this goes on, every name has these addresses."""
    with monkeypatch.context() as patch:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in addresses]
        patch.setattr(socket, "getaddrinfo", lambda *a, **k: found)
        yield


def test_each_address_of_a_name_has_the_whole_time_for_its_handshake(
    broker: FakeBroker, connection_to: Callable[..., Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share for each of six would be too little for any of them."""

    def slow(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        time.sleep(0.4)
        return versions_response()

    broker.on[ApiVersionsRequest] = slow
    with named(monkeypatch, *((f"127.0.0.{last}", broker.port) for last in range(1, 7))):
        connection_to(broker.port, "kafka.example").open(soon(2_000))


def test_silent_addresses_of_a_name_leave_the_next_one_its_time(
    broker: FakeBroker, connection_to: Callable[..., Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as another:
        addresses = [silent.getsockname(), another.getsockname(), ("127.0.0.1", broker.port)]
        with named(monkeypatch, *addresses):
            started = time.monotonic()
            connection_to(broker.port, "kafka.example", socket_connection_setup_timeout_ms=500).open(soon())
            assert 1.0 <= time.monotonic() - started < 5
            # Where the deadline is shorter than that, each leaves half of it.
            connection_to(broker.port, "kafka.example").open(soon(2_000))


@pytest.mark.parametrize("security", ["PLAINTEXT", "SSL"])
def test_an_attempt_ends_soon_after_its_deadline_was_cancelled(
    connection_to: Callable[..., Connection], security: str
) -> None:
    cancelled = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = connection_to(silent.getsockname()[1], security_protocol=security)
        timer = threading.Timer(0.2, cancelled.set)
        timer.start()
        started = time.monotonic()
        with pytest.raises(TransportError):
            connection.open(Deadline.after_ms(8_000, cancelled=cancelled))
        assert time.monotonic() - started < 3
        timer.join()


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
    with pytest.raises(TransportError, match="did not respond in time"):
        connection_to(broker.port, socket_connection_setup_timeout_ms=200).open(soon(10_000))
    assert time.monotonic() - started < 5


def test_one_byte_now_and_then_does_not_put_the_deadline_off(connection_to: Callable[..., Connection]) -> None:
    whole = frame_of(ApiVersionsRequest, 4, 0, versions_response())

    def drip(connection: socket.socket) -> None:
        for i in range(len(whole)):
            connection.sendall(whole[i : i + 1])
            time.sleep(0.02)

    with script(drip) as port:
        started = time.monotonic()
        with pytest.raises(TransportError, match="did not respond in time"):
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


def test_a_response_that_another_thread_has_read_is_there_at_once(
    broker: FakeBroker, connection_to: Callable[..., Connection]
) -> None:
    """The other thread goes on to wait for a response of its own, which does not come."""
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


def test_the_first_to_arrive_may_be_read_by_another_thread() -> None:
    """Its descriptor does not become readable then; before, the wait went on to the deadline."""
    ours, peer = socket.socketpair()

    class Shared:
        readable_at = ours.fileno()
        counters = ClientCounters()

        def wait_for(self, *_: Any) -> None: ...
        def clear_low_water_mark(self) -> None: ...

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
