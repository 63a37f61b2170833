"""A listener with a SASL mechanism that Apache's brokers do not have, before a real broker's plaintext listener.

It responds to SaslHandshake and SaslAuthenticate itself, by a function of the test's, and passes everything else on. In the
broker's responses it replaces the broker's address by its own.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pykafka_wire.wire.protocol.message import Message
from pykafka_wire.wire.protocol.messages.handshake import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.wire.fake_broker import frame_of

_REFUSED = 58
_UNSUPPORTED_MECHANISM = 33


class Verdict(NamedTuple):
    """What the broker says of a token: an error, or a response and how long the session lives."""

    error: str = ""
    response: bytes = b""
    session_ms: int = 0


class SaslFront:
    """Attributes:
    mechanism: the one that it offers.
    tokens: what clients have sent, in order.
    """

    def __init__(self, broker: str, mechanism: str, judge: Callable[[bytes], Verdict]) -> None:
        host, _, port = broker.rpartition(":")
        self.mechanism = mechanism
        self.tokens: list[bytes] = []
        self._broker = (host, int(port))
        self._judge = judge
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def address(self) -> str:
        return f"{self._broker[0]}:{self.port}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[SaslFront]:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            thread.join(5)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
                self._sockets += [client, broker]
                threading.Thread(target=self._responses, args=(broker, client), daemon=True).start()
                threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        authenticated = False
        with contextlib.suppress(OSError, EOFError), client, broker:
            while True:
                frame = _frame(client)
                key, version, correlation_id, at = *struct.unpack_from(">hhi", frame), 8
                (n_client_id,) = struct.unpack_from(">h", frame, at)
                body = frame[at + 2 + max(0, n_client_id) :]
                if key == SaslHandshakeRequest.api_key:
                    (offered,) = struct.unpack_from(">h", body)
                    right = body[2 : 2 + offered].decode() == self.mechanism
                    response: Message = SaslHandshakeResponse(
                        error_code=0 if right else _UNSUPPORTED_MECHANISM, mechanisms=[self.mechanism]
                    )
                    client.sendall(frame_of(SaslHandshakeRequest, version, correlation_id, response))
                elif key == SaslAuthenticateRequest.api_key:
                    # From version 2 on the header ends with tagged fields, of which there are none.
                    request = SaslAuthenticateRequest.decode(body[1:] if version >= 2 else body, version)
                    self.tokens.append(bytes(request.auth_bytes))
                    verdict = self._judge(bytes(request.auth_bytes))
                    authenticated = not verdict.error
                    response = SaslAuthenticateResponse(
                        error_code=_REFUSED if verdict.error else 0,
                        error_message=verdict.error or None,
                        auth_bytes=verdict.response,
                        session_lifetime_ms=verdict.session_ms,
                    )
                    client.sendall(frame_of(SaslAuthenticateRequest, version, correlation_id, response))
                else:
                    assert authenticated or key == 18, "a request before authentication"
                    broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _responses(self, broker: socket.socket, client: socket.socket) -> None:
        host = self._broker[0].encode()
        real, own = (host + struct.pack(">i", port) for port in (self._broker[1], self.port))
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _frame(broker).replace(real, own)
                client.sendall(struct.pack(">i", len(frame)) + frame)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def _frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, n_bytes: int) -> bytes:
    received = b""
    while len(received) < n_bytes:
        piece = connection.recv(n_bytes - len(received))
        if not piece:
            raise EOFError
        received += piece
    return received
