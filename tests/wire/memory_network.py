"""A network without sockets, for tests of connections: the response to what is written to a peer comes within the same call.

Nothing comes later than that, so a wait for bytes that are not there ends at once, as if its deadline had passed.
"""

from __future__ import annotations

import errno
import socket
import struct

from pykafka_wire.wire.connection.transport import Address
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError
from tests.wire.fake_broker import IN_MEMORY, Close, FakeBroker


class MemoryTransport:
    """A byte stream to a scripted broker. ``ends_after`` cuts it after so many bytes in all have come back."""

    def __init__(self, broker: FakeBroker, ends_after: int | None = None) -> None:
        self.low_water_bytes = 1
        #: What has come back and was not read.
        self.arrived = bytearray()
        self._broker = broker
        self._left = ends_after
        self._written = bytearray()
        self._dropped = False
        self._idle: tuple[socket.socket, socket.socket] | None = None

    @property
    def readable_at(self) -> int | None:
        if self.arrived or self._closed_by_peer:
            return None
        self._idle = self._idle or socket.socketpair()
        return self._idle[0].fileno()

    def write(self, segments: list[bytes | memoryview], deadline: Deadline) -> None:
        if self._closed_by_peer:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        self._written += b"".join(segments)
        while len(self._written) >= 4:
            (size,) = struct.unpack_from(">i", self._written)
            if len(self._written) < 4 + size:
                return
            frame = bytes(self._written[4 : 4 + size])
            del self._written[: 4 + size]
            reply = self._broker.reply(frame)
            if isinstance(reply, Close):
                self.drop()
            elif reply is not None:
                self._arrive(reply)

    def read_into(self, buffer: memoryview, deadline: Deadline) -> int:
        if not self.arrived and not self._closed_by_peer:
            raise DeadlineExceededError("the broker did not respond in time")
        n_bytes = min(len(buffer), len(self.arrived))
        buffer[:n_bytes] = self.arrived[:n_bytes]
        del self.arrived[:n_bytes]
        return n_bytes

    def set_low_water_mark(self, n_bytes: int) -> None:
        self.low_water_bytes = max(1, n_bytes)

    def peer_closed(self) -> bool:
        return self._closed_by_peer or bool(self.arrived)

    def wake_up(self) -> None:
        self.drop()

    def close(self) -> None:
        for end in self._idle or ():
            end.close()

    def drop(self) -> None:
        """The peer closes the stream, behind what it has sent."""
        self._dropped = True

    @property
    def _closed_by_peer(self) -> bool:
        return self._dropped or not self._broker.is_open

    def _arrive(self, data: bytes) -> None:
        self.arrived += data if self._left is None else data[: self._left]
        if self._left is not None:
            self._left -= min(self._left, len(data))
            if not self._left:
                self.drop()


class MemoryNetwork:
    """Reaches the scripted brokers in memory by their ports. ``opened`` has the streams, in order."""

    def __init__(self, ends_after: int | None = None) -> None:
        self.opened: list[MemoryTransport] = []
        self._ends_after = ends_after

    def addresses(self, host: str, port: int) -> list[Address]:
        return [(int(socket.AF_INET), (host, port))]

    def connect(self, host: str, port: int, address: Address, deadline: Deadline) -> MemoryTransport:
        broker = IN_MEMORY.get(port)
        if broker is None or not broker.is_open:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        broker.n_connections += 1
        self.opened.append(MemoryTransport(broker, self._ends_after))
        return self.opened[-1]
