"""A broker that says what a test tells it to: for what no real broker can be made to do.

It speaks Kafka's framing, on a loopback socket or in memory (:mod:`tests.wire.memory_network`), and responds to each request by a
function of the test's. Requests are decoded by our own messages, whose bytes are held to Kafka's own serializers elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final
from weakref import WeakValueDictionary

from pykafka_wire.wire.connection.state_machine import request_header_version, response_header_version
from pykafka_wire.wire.protocol.message import Message, Request
from pykafka_wire.wire.protocol.messages import api
from pykafka_wire.wire.protocol.messages.handshake import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RequestHeader,
    ResponseHeader,
)
from pykafka_wire.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykafka_wire.wire.topic_partitions import ZERO_UUID

#: What the fakes speak unless told otherwise: API key -> versions.
VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    0: (3, 12),
    1: (4, 12),
    2: (1, 9),
    3: (0, 12),
    8: (2, 9),
    9: (1, 9),
    10: (0, 6),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    36: (0, 2),
}


_PORTS: Final = itertools.count(1)
#: Brokers in memory by port.
IN_MEMORY: Final[WeakValueDictionary[int, FakeBroker]] = WeakValueDictionary()


class Close:
    """Instead of a response: close the connection."""


CLOSE: Final = Close()


@dataclass(frozen=True, slots=True)
class Mangled:
    """A response whose frame, its length included, is changed on its way."""

    response: Message
    mangle: Callable[[bytes], bytes]


#: A message is sent in its frame, bytes as they are, None is no response at all.
Reply = Message | Mangled | bytes | Close | None
Handler = Callable[[Any, int], Reply]


def frame_of(request: type[Request[Any]], version: int, correlation_id: int, response: Message) -> bytes:
    """The frame of a response, its length first."""
    header = ResponseHeader(correlation_id=correlation_id).encode(response_header_version(request, version))
    body = b"".join([*map(bytes, header), *map(bytes, response.encode(version))])
    return struct.pack(">i", len(body)) + body


def versions_response(versions: Mapping[int, tuple[int, int]] = VERSIONS, **fields: Any) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items()]
    return ApiVersionsResponse(api_keys=keys, **fields)


class FakeBroker:
    """Listens on a free port of 127.0.0.1 while it is open; with ``in_memory`` it only has a port's number.

    Attributes:
        on: request class -> function of (request, version) that returns the response.
        requests: what came in, without the handshakes.
        peers: the brokers that its metadata names, by node id; itself unless set.
        topics: topic -> partition -> (leader, epoch), for its metadata; topic_ids: their ids, where they have any.
        cluster_id: in its metadata.
        silent: accept connections and respond to nothing, as a stopped process does.
    """

    def __init__(self, node_id: int = 1, *, in_memory: bool = False) -> None:
        self.node_id = node_id
        self.on: dict[type[Request[Any]], Handler] = {
            ApiVersionsRequest: lambda request, version: versions_response(),
            MetadataRequest: self.metadata,
        }
        self.requests: list[Request[Any]] = []
        self.n_connections = 0
        self.peers: dict[int, FakeBroker] = {node_id: self}
        self.topics: dict[str, dict[int, tuple[int, int]]] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.cluster_id: str | None = None
        self.silent = False
        self._connections: list[socket.socket] = []
        self.in_memory = in_memory
        self.is_open = True
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.port: int = next(_PORTS)
        if in_memory:
            IN_MEMORY[self.port] = self
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.port = self._listener.getsockname()[1]
            self._threads = [threading.Thread(target=self._accept, args=(self._listener,), daemon=True)]
            self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def speak(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """Speak these versions of these APIs, the others as before."""
        self.on[ApiVersionsRequest] = lambda request, version: versions_response({**VERSIONS, **versions})

    def close(self) -> None:
        """Close the port and every connection."""
        self.is_open = False
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join(5)

    def drop(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def count(self, request: type[Request[Any]]) -> int:
        return sum(isinstance(each, request) for each in self.requests)

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        wanted = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=broker.port)
                for node_id, broker in self.peers.items()
            ],
            cluster_id=self.cluster_id,
            controller_id=min(self.peers, default=-1),
            topics=[
                MetadataResponseTopic(
                    error_code=0 if name in self.topics else 3,
                    name=name,
                    topic_id=self.topic_ids.get(name, ZERO_UUID),
                    partitions=[
                        MetadataResponsePartition(
                            error_code=0 if leader >= 0 else 5,
                            partition_index=partition,
                            leader_id=leader,
                            leader_epoch=epoch,
                        )
                        for partition, (leader, epoch) in self.topics.get(name, {}).items()
                    ],
                )
                for name in wanted
            ],
        )

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.n_connections += 1
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def reply(self, frame: bytes) -> bytes | Close | None:
        """What the broker does with a request, whose length is stripped: the bytes that it sends, or None for nothing."""
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        request_class = api(key)
        _, position = RequestHeader.read(frame, request_header_version(request_class, version))
        request, _ = request_class.read(frame, version, position)
        if key not in (17, 18, 36):
            self.requests.append(request)
        reply = None if self.silent else self.on[request_class](request, version)
        if isinstance(reply, Mangled):
            return reply.mangle(frame_of(request_class, version, correlation_id, reply.response))
        if isinstance(reply, Message):
            # KIP-511: the response to a version that the broker does not have is in version 0.
            unknown = key == 18 and getattr(reply, "error_code", 0) == 35
            return frame_of(request_class, 0 if unknown else version, correlation_id, reply)
        return reply

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while (head := self._read(connection, 4)) is not None:
                (size,) = struct.unpack(">i", head)
                frame = self._read(connection, size)
                if frame is None:
                    return
                reply = self.reply(frame)
                if isinstance(reply, Close):
                    return
                if reply is not None:
                    connection.sendall(reply)

    @staticmethod
    def _read(connection: socket.socket, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            piece = connection.recv(size - len(data))
            if not piece:
                return None
            data += piece
        return data
