"""A large response wakes its reader when much of it is there, and never keeps it from bytes that are all that will come."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pykafka_wire.wire.connection.connection import Connection, ResponseFuture, first_to_arrive
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.connection.transport import HAS_LOW_WATER_MARK
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import frame_of, versions_response
from tests.wire.scripted_server import script

ASK = FetchRequest(topics=[])
RECORDS = os.urandom(4_000_000)
LARGE = frame_of(
    FetchRequest,
    12,
    1,
    FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t", partitions=[PartitionData(partition_index=0, records=memoryview(RECORDS))]
            ),
        ]
    ),
)
SMALL = frame_of(FetchRequest, 12, 2, FetchResponse())


class Peer:
    """A broker that sends pieces of its responses when it is asked to; an empty piece ends the connection."""

    def __init__(self) -> None:
        self._steps = threading.Semaphore(0)
        self._pieces: list[bytes] = []

    def send(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._steps.release()

    def serve(self, connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(frame_of(ApiVersionsRequest, 4, 0, versions_response({1: (4, 12)})))
        while self._steps.acquire(timeout=30) and (piece := self._pieces.pop(0)):
            connection.sendall(piece)


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def connection(peer: Peer) -> Iterator[Connection]:
    with script(peer.serve) as port:
        settings = ClientSettings(bootstrap_servers=(("127.0.0.1", port),))
        connection = Connection("127.0.0.1", port, settings, Trace(""), "1")
        connection.open(soon())
        yield connection
        connection.close()
        peer.send(b"")


def soon(ms: float = 20_000) -> Deadline:
    return Deadline.after_ms(ms)


def await_bytes(pending: ResponseFuture[FetchResponse], n_bytes: int) -> None:
    """Wait until the kernel holds so many bytes that were not read."""
    until = time.monotonic() + 20
    assert pending.readable_at is not None
    while time.monotonic() < until:
        (held,) = struct.unpack("i", fcntl.ioctl(pending.readable_at, termios.FIONREAD, b"\0" * 4))
        if held >= n_bytes:
            return
        time.sleep(0.005)
    raise AssertionError(f"{held} of {n_bytes} bytes came")


def test_a_large_response_wakes_its_reader_when_much_of_it_is_there(peer: Peer, connection: Connection) -> None:
    large, small = connection.send(ASK), connection.send(ASK)
    peer.send(LARGE[:100_000])
    await_bytes(large, 100_000)
    assert large.arrived
    assert not large.read_arrived()
    peer.send(LARGE[100_000:200_000])
    await_bytes(large, 100_000)
    assert large.arrived is not HAS_LOW_WATER_MARK
    # A wait does not depend on more bytes than have come.
    assert first_to_arrive([large], soon()) is large
    assert large.arrived
    assert not large.read_arrived()
    peer.send(LARGE[200_000:])
    while not large.read_arrived():
        first_to_arrive([large], soon())
    assert bytes(large.result(soon()).responses[0].partitions[0].records) == RECORDS
    # Nothing is left of it for the next response.
    peer.send(SMALL)
    await_bytes(small, len(SMALL))
    assert small.arrived
    assert small.read_arrived()


def test_a_blocking_read_takes_the_rest_of_a_response_as_it_comes(peer: Peer, connection: Connection) -> None:
    large, small = connection.send(ASK), connection.send(ASK)
    peer.send(LARGE[:100_000])
    await_bytes(large, 100_000)
    assert not large.read_arrived()
    started = time.monotonic()
    peer.send(LARGE[100_000:])
    assert bytes(large.result(soon()).responses[0].partitions[0].records) == RECORDS
    peer.send(SMALL)
    assert small.result(soon()).responses == []
    assert time.monotonic() - started < 15


def test_other_threads_can_read_after_an_interrupt(
    peer: Peer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(n_bytes: int) -> None:
        raise KeyboardInterrupt

    small = connection.send(ASK)
    with monkeypatch.context() as patched:
        patched.setattr(connection, "_set_low_water_mark", interrupt)
        with pytest.raises(KeyboardInterrupt):
            small.clear_low_water_mark()
    peer.send(frame_of(FetchRequest, 12, 1, FetchResponse()))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(small.result, soon()).result().responses == []
