"""Sockets: one connection to one broker, with a deadline on everything that can take time.

Owns sockets and TLS handshakes, and moves bytes between them and :mod:`~pykafka_wire.wire.protocol`. It knows no API and
retries nothing: what fails here ends the connection, and :mod:`~pykafka_wire.wire.cluster` decides what comes next.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import threading
import time
from collections import deque
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Generic, TypeVar, cast

from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import AuthenticationError, DeadlineExceededError, TransportError, WireError
from pykafka_wire.wire.primitives import Piece
from pykafka_wire.wire.protocol import Connection, Received, SaslMechanism, Sent, State
from pykafka_wire.wire.schema import Message, Request
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.trace import Trace

logger = logging.getLogger(__name__)

ResponseT_co = TypeVar("ResponseT_co", bound=Message, covariant=True)

#: Segments of one sendmsg: IOV_MAX is 1024 on Linux and macOS.
_MAX_SEGMENTS: Final = 1024
#: A broker closes connections that idle for its connections.max.idle.ms, 10 minutes by default, and ours for 9: in between
#: a request could meet the closing.
_KEEPALIVE_S: Final = 60
#: The share of a SASL session's lifetime after which it is renewed (KIP-368; Java draws from 0.85 to 0.95).
_SESSION_SHARE: Final = 0.85

try:
    _SOFTWARE_VERSION = version("pykafka-wire")
except PackageNotFoundError:  # unpacked on sys.path, as with --py-files
    _SOFTWARE_VERSION = "0"


class Pending(Generic[ResponseT_co]):
    """The answer to a request that was sent, once it comes. Made by :meth:`Channel.send`."""

    def __init__(self, channel: Channel, sent: Sent, delayed_ms: float) -> None:
        self._channel = channel
        self._delayed_ms = delayed_ms
        self._response: Message | None = None
        self._error: WireError | None = None
        self._sent = sent

    @property
    def version(self) -> int:
        """The version that the request was sent in."""
        return self._sent.version

    @property
    def done(self) -> bool:
        return self._response is not None or self._error is not None

    def result(self, deadline: Deadline) -> ResponseT_co:
        """The response; waits for it until ``deadline``, which is put off by what throttling held the request back.

        Raises:
            DeadlineExceededError: it did not come; the connection is closed, for nobody knows what it would bring next.
            TransportError, ProtocolError: the connection broke.
        """
        if not self.done:
            self._channel.wait_for(self, Deadline(deadline.at + self._delayed_ms / 1000))
        if self._error is not None:
            raise self._error
        return cast("ResponseT_co", self._response)

    def settle(self, response: Message | None, error: WireError | None) -> None:
        """What came of it, said by the channel."""
        self._response, self._error = response, error


class Channel:
    """One open connection: requests out, answers in, in order. Threads may share it."""

    def __init__(self, host: str, port: int, settings: ClientSettings, trace: Trace, label: str) -> None:
        self.address = f"{host}:{port}"
        #: How the broker is called in errors, logs and the trace.
        self.label = label
        self._host = host
        self._port = port
        self._settings = settings
        self._trace = trace
        self._lock = threading.RLock()
        self._pending: deque[tuple[Sent, Pending[Any], float]] = deque()
        self._muted_until = 0.0
        self._last_used = time.monotonic()
        self._opened_at = self._last_used
        self._socket: socket.socket | None = None
        self.protocol: Connection = self._new_protocol()

    # --- opening and closing ------------------------------------------------------------------------------------------

    def open(self, deadline: Deadline) -> Channel:
        """Connect to the first address that answers, and go through the handshake.

        Raises:
            TransportError: no address could be reached, or the handshake failed; names each address and why.
            AuthenticationError: the broker refused us, or its certificate does not hold.
        """
        failures = []
        for family, address in self._addresses():
            attempt = deadline.sooner(self._settings.socket_connection_setup_timeout_ms)
            try:
                self._connect(family, address, attempt)
                self._handshake(attempt)
            except (TransportError, OSError) as error:
                self.close()
                reason = error.message if isinstance(error, WireError) else _reason(error)
                remedy = getattr(error, "remedy", "")
                failures.append(f"{address[0]}: {reason}" + (f" {remedy}" if remedy else ""))
                if deadline.expired:
                    break
            except WireError:
                self.close()
                raise
            else:
                return self
        raise TransportError("; ".join(failures) or "no address", broker=self.label)

    def close(self, error: WireError | None = None) -> None:
        """Close the connection; whatever still waits for an answer fails with ``error``."""
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.close()
                self._socket = None
            self.protocol.state = State.CLOSED
            waiting, self._pending = self._pending, deque()
            for _, pending, _ in waiting:
                pending.settle(None, error or TransportError("the connection was closed", broker=self.label))

    @property
    def usable(self) -> bool:
        """Whether a request may be sent: open, not idle for too long, and not closed by the broker meanwhile.

        A connection whose SASL session is about to expire is not: its successor authenticates anew (KIP-368), once
        nothing is in flight here.
        """
        if self._socket is None or self.protocol.state is not State.READY:
            return False
        if self._pending:
            return True
        now = time.monotonic()
        idle_ms = self._settings.connections_max_idle_ms
        if 0 <= idle_ms < (now - self._last_used) * 1000:
            return False
        return not self.session_ends and not self._peer_closed()

    @property
    def session_ends(self) -> bool:
        """Whether the SASL session has run most of its life."""
        lifetime_ms = self.protocol.session_lifetime_ms
        return lifetime_ms > 0 and (time.monotonic() - self._opened_at) * 1000 > lifetime_ms * _SESSION_SHARE

    def drain(self, deadline: Deadline) -> None:
        """Wait for every answer that is due."""
        with self._lock:
            while self._pending:
                self._receive(deadline)

    def _new_protocol(self) -> Connection:
        mechanism: SaslMechanism | None = None
        if self._settings.uses_sasl:
            from pykafka_wire.wire import sasl

            mechanism = sasl.mechanism(self._settings, self._host)
        return Connection(client_id=self._settings.client_id, software_version=_SOFTWARE_VERSION, mechanism=mechanism)

    def _addresses(self) -> list[tuple[int, Any]]:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise TransportError(
                f"the name {self._host} cannot be resolved ({_reason(error)})", broker=self.label
            ) from error
        return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))

    def _connect(self, family: int, address: Any, deadline: Deadline) -> None:
        self.protocol = self._new_protocol()
        connection = socket.socket(family, socket.SOCK_STREAM)
        self._socket = connection
        for size, option in (
            (self._settings.receive_buffer_bytes, socket.SO_RCVBUF),
            (self._settings.send_buffer_bytes, socket.SO_SNDBUF),
        ):
            if size is not None and size > 0:
                connection.setsockopt(socket.SOL_SOCKET, option, size)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        connection.settimeout(_timeout_s(deadline))
        connection.connect(address)
        if self._settings.uses_tls:
            self._socket = self._wrap(connection)

    def _wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        from pykafka_wire.wire import tls

        try:
            return tls.context(self._settings).wrap_socket(connection, server_hostname=self._host)
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(
                f"the certificate of {self.address} was not accepted: {error.verify_message}",
                broker=self.label,
                remedy="Check ssl.truststore.certificates (or .location), the certificate's expiry, and that it names this host.",
            ) from error
        except ssl.SSLError as error:
            if error.reason and "ALERT" in error.reason:
                raise AuthenticationError(
                    f"{self.address} refused the TLS handshake: {error.reason.replace('_', ' ').lower()}",
                    broker=self.label,
                    remedy="Check the client's certificate and key (ssl.keystore.*), which this listener may demand.",
                ) from error
            raise TransportError(
                f"the TLS handshake failed ({error.reason or error})",
                broker=self.label,
                remedy="Check that the port is a TLS listener: security.protocol may not be the one that it speaks.",
            ) from error

    def _handshake(self, deadline: Deadline) -> None:
        started = time.monotonic()
        while True:
            self._transmit(deadline)
            if self.protocol.state is State.READY:
                break
            self._fill(deadline)
        self._opened_at = self._last_used = time.monotonic()
        self._trace.opened(self.label, self.address, self.protocol, self._opened_at - started)

    # --- requests and answers -----------------------------------------------------------------------------------------

    def send(self, request: Request[Any], *, cap: int | None = None, answered: bool = True) -> Pending[Any]:
        """Send a request; its answer is had from what this returns.

        Waits first while the broker throttles us (KIP-219: it has answered already, and reads nothing for that time).

        Raises:
            TransportError: the connection broke.
            UnsupportedVersionError, ProtocolError: the request cannot be expressed.
        """
        with self._lock:
            delay_s = self._muted_until - time.monotonic()
            if delay_s > 0:
                logger.debug("broker %s throttles us for another %.0f ms", self.label, delay_s * 1000)
                time.sleep(delay_s)
            sent = self.protocol.send(request, cap, answered=answered)
            pending: Pending[Any] = Pending(self, sent, max(0.0, delay_s) * 1000)
            now = time.monotonic()
            if answered:
                self._pending.append((sent, pending, now))
            pieces = self.protocol.outgoing()
            self._trace.sent(self.label, sent, pieces)
            try:
                self._write(pieces, Deadline(now + self._settings.request_timeout_ms / 1000))
            except (TransportError, OSError) as error:
                raise self._broke(error) from error
            self._last_used = now
            return pending

    def wait_for(self, pending: Pending[Any], deadline: Deadline) -> None:
        """Read answers until ``pending`` has its own, which may be an error."""
        with self._lock:
            while not pending.done:
                try:
                    self._receive(deadline)
                except WireError as error:
                    if not pending.done:
                        pending.settle(None, error)

    def _receive(self, deadline: Deadline) -> None:
        """Read until one answer is complete, and hand it to whoever waits for it."""
        try:
            received = None
            while received is None:
                received = self._fill(deadline)
        except (WireError, OSError) as error:
            raise self._broke(error) from error
        _, pending, sent_at = self._pending.popleft()
        now = time.monotonic()
        self._last_used = now
        throttle_ms = getattr(received.response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._muted_until = now + throttle_ms / 1000
        self._trace.received(self.label, received, (now - sent_at) * 1000)
        pending.settle(received.response, None)

    def _transmit(self, deadline: Deadline) -> None:
        pieces = self.protocol.outgoing()
        if pieces:
            self._write(pieces, deadline)

    def _write(self, pieces: list[Piece], deadline: Deadline) -> None:
        connection = self._open_socket()
        connection.settimeout(_timeout_s(deadline))
        try:
            if isinstance(connection, ssl.SSLSocket):
                for piece in pieces:
                    connection.sendall(piece)
                return
            views = [memoryview(piece) for piece in pieces if len(piece)]
            while views:
                n_bytes = connection.sendmsg(views[:_MAX_SEGMENTS])
                while views and n_bytes >= len(views[0]):
                    n_bytes -= len(views.pop(0))
                if n_bytes:
                    views[0] = views[0][n_bytes:]
        except TimeoutError as error:
            raise DeadlineExceededError("the broker did not take the request in time", broker=self.label) from error

    def _fill(self, deadline: Deadline) -> Received | None:
        """Read what is there into the protocol's buffer."""
        connection = self._open_socket()
        remaining_s = deadline.remaining_ms() / 1000
        if remaining_s <= 0:
            raise DeadlineExceededError("the broker did not answer in time", broker=self.label)
        connection.settimeout(remaining_s)
        try:
            n_bytes = connection.recv_into(self.protocol.buffer())
        except TimeoutError as error:
            raise DeadlineExceededError("the broker did not answer in time", broker=self.label) from error
        if n_bytes == 0:
            raise self.protocol.closed()
        return self.protocol.received(n_bytes)

    def _broke(self, error: WireError | OSError) -> WireError:
        """The connection is over; the error for whoever waits."""
        if isinstance(error, WireError):
            broken = error
            broken.broker = broken.broker if broken.broker is not None else self.label
        else:
            broken = TransportError(f"the connection broke ({_reason(error)})", broker=self.label)
        if self._pending:
            first = self._pending[0][0]
            broken.api = broken.api or type(first.request).name
        self.close(broken)
        return broken

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise TransportError("the connection is closed", broker=self.label)
        return self._socket

    def _peer_closed(self) -> bool:
        """Whether the broker has closed a connection on which nothing is due."""
        connection = self._open_socket()
        if isinstance(connection, ssl.SSLSocket):
            connection.settimeout(0)
            try:
                connection.recv(1)
            except ssl.SSLWantReadError:
                return False
            except OSError:
                return True
            return True  # end of file, or bytes that nobody asked for
        poll = select.poll()  # select() refuses descriptors above 1023
        poll.register(connection, select.POLLIN)
        return bool(poll.poll(0))


def _timeout_s(deadline: Deadline) -> float:
    # A timeout of 0 would make the socket non-blocking.
    return max(0.001, deadline.remaining_ms() / 1000)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror or str(error) or type(error).__name__).lower()
