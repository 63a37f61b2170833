"""Byte streams to brokers: names resolved, TCP and TLS connected, bytes out and in, with a deadline on all of it.

Owns sockets and what their failures mean. It knows no message: a :mod:`~pykafka_wire.wire.connection.connection` has a transport,
which its :class:`Network` has opened. Tests replace the network by one in memory.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
import ssl
import sys
from typing import Any, Final, Protocol

from pykafka_wire.wire.deadline import CANCEL_CHECK_MS, Deadline
from pykafka_wire.wire.errors import AuthenticationError, DeadlineExceededError, TransportError
from pykafka_wire.wire.protocol.primitives import Segment
from pykafka_wire.wire.settings import ClientSettings

#: Segments of one sendmsg: IOV_MAX is 1024 on Linux and macOS.
_MAX_SEGMENTS: Final = 1024
#: Idle time before TCP asks whether the peer is still there, so that a half-open connection is found out while it idles.
#: The kernel's default is two hours.
_KEEPALIVE_S: Final = 60
#: The largest receive low-water mark: the socket becomes readable once so many bytes of a large response have arrived. 100-byte
#: records are then read with 20 ns less of CPU each than if every packet wakes the reader (155 before). 2 MiB gain nothing more,
#: 256 KiB half as much.
_MAX_LOW_WATER_BYTES: Final = 1024 * 1024
#: Where SO_RCVLOWAT has the kernel enlarge the receive buffer too, and where a full buffer makes a socket readable.
HAS_LOW_WATER_MARK: Final = sys.platform == "linux"


class Transport(Protocol):
    """An open byte stream to one broker. One thread reads or writes at a time; others may wake it up or close the stream."""

    @property
    def readable_at(self) -> int | None:
        """Return the descriptor that becomes readable with the next bytes; None if there are bytes already."""

    def write(self, segments: list[Segment], deadline: Deadline) -> None:
        """Send all bytes. Raises DeadlineExceededError and OSError; then it is unknown how many have left."""

    def read_into(self, buffer: memoryview, deadline: Deadline) -> int:
        """Read what is there, at least a byte; the number of bytes, 0 if the peer has closed the stream.

        After the deadline this reads what has arrived by now, without waiting: a response that is here is not lost.

        Raises:
            DeadlineExceededError: nothing came in time.
            AuthenticationError: the peer refuses us.
            OSError: the stream broke.
        """

    def set_low_water_mark(self, n_bytes: int) -> None:
        """Have the descriptor become readable once ``n_bytes`` have arrived, or fewer; 0 and 1 are the next byte.

        ``n_bytes`` must not exceed what the broker still sends, or a wait would not end.
        """

    def peer_closed(self) -> bool:
        """Return whether the broker has closed a stream on which nothing is due."""

    def wake_up(self) -> None:
        """End the wait of a thread that reads or writes."""

    def close(self) -> None:
        """Close the stream; not a byte goes out for it, since it may be a forked child's copy of its parent's."""


class Network(Protocol):
    """Opens byte streams."""

    def addresses(self, host: str, port: int) -> list[Address]:
        """Return the addresses of a name. Raises TransportError where it has none."""

    def connect(self, host: str, port: int, address: Address, deadline: Deadline) -> Transport:
        """Return a stream to one address of a host, TLS included. Raises TransportError, AuthenticationError and OSError."""


#: An address family, and an address of it as sockets have it.
Address = tuple[int, Any]


class Sockets:
    """The network of this machine, as a client's settings have it."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings

    def addresses(self, host: str, port: int) -> list[Address]:
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # a name with an empty label, or with one that is too long
            raise TransportError(f"the name {host} cannot be resolved ({reason_of(error)})") from error
        return list(dict.fromkeys((int(family), address) for family, _, _, _, address in addresses))

    def connect(self, host: str, port: int, address: Address, deadline: Deadline) -> SocketTransport:
        family, where = address
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            for size, option in (
                (self._settings.receive_buffer_bytes, socket.SO_RCVBUF),
                (self._settings.send_buffer_bytes, socket.SO_SNDBUF),
            ):
                if size is not None and size > 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_KEEPIDLE"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
            sock.setblocking(False)
            code = sock.connect_ex(where)
            if code == errno.EINPROGRESS:
                _wait_until_ready(sock, select.POLLOUT, deadline)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            if self._settings.uses_tls:
                from pykafka_wire.wire.security import tls

                context = tls.context(self._settings)
                sock = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
                _shake_hands(sock, f"{host}:{port}", deadline)
        except BaseException:
            sock.close()
            raise
        return SocketTransport(sock, f"{host}:{port}")


def _shake_hands(sock: ssl.SSLSocket, address: str, deadline: Deadline) -> None:
    """Go through the TLS handshake of a socket that does not block. Raises AuthenticationError, TransportError and OSError."""
    try:
        while True:
            try:
                return sock.do_handshake()
            except ssl.SSLWantReadError:
                awaited = select.POLLIN
            except ssl.SSLWantWriteError:
                awaited = select.POLLOUT
            _wait_until_ready(sock, awaited, deadline)
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationError(
            f"the certificate of {address} was not accepted: {error.verify_message}",
            remedy="Check {ssl.truststore.certificates} (or .location), the certificate's expiry, and that it names this host.",
        ) from error
    except (ssl.SSLError, ConnectionError) as error:
        raise _refused_by_alert(error, address) or TransportError(
            f"the TLS handshake failed ({tls_failure(error)})",
            remedy="Use the port of a TLS listener, or set {security.protocol} to PLAINTEXT or SASL_PLAINTEXT for this one.",
        ) from error


def _wait_until_ready(sock: socket.socket, awaited: int, deadline: Deadline) -> None:
    """Wait for an event of a socket. Raises TimeoutError at the deadline, and soon after it was cancelled."""
    poll = select.poll()
    if (descriptor := sock.fileno()) < 0:
        raise OSError(errno.EBADF, "the socket was closed by another thread")
    poll.register(descriptor, awaited)
    longest_ms = math.inf if deadline.cancelled is None else CANCEL_CHECK_MS
    while not poll.poll(min(deadline.remaining_ms(), longest_ms)):
        if deadline.expired:
            raise TimeoutError


class SocketTransport:
    """A socket as a byte stream."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self._socket = sock
        self._address = address
        self._low_water_bytes = 1
        self._has_read = False

    @property
    def readable_at(self) -> int | None:
        sock = self._socket
        return None if isinstance(sock, ssl.SSLSocket) and sock.pending() else sock.fileno()

    def write(self, segments: list[Segment], deadline: Deadline) -> None:
        sock = self._socket
        try:
            if isinstance(sock, ssl.SSLSocket):
                for segment in segments:
                    sock.settimeout(timeout_s(deadline))
                    sock.sendall(segment)
                return
            views = [memoryview(segment) for segment in segments if len(segment)]
            while views:
                # A peer that takes a byte now and then must not put the deadline off with each.
                sock.settimeout(timeout_s(deadline))
                n_bytes = sock.sendmsg(views[:_MAX_SEGMENTS])
                while views and n_bytes >= len(views[0]):
                    n_bytes -= len(views.pop(0))
                if n_bytes:
                    views[0] = views[0][n_bytes:]
        except TimeoutError as error:
            raise DeadlineExceededError("the broker did not accept the request in time") from error

    def read_into(self, buffer: memoryview, deadline: Deadline) -> int:
        sock = self._socket
        if deadline.cancelled is not None and self.readable_at is not None:
            with contextlib.suppress(TimeoutError):
                _wait_until_ready(sock, select.POLLIN, deadline)
        sock.settimeout(deadline.remaining_ms() / 1000)
        try:
            n_bytes = sock.recv_into(buffer)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError) as error:
            raise DeadlineExceededError("the broker did not respond in time") from error
        except ssl.SSLError as error:
            # With TLS 1.3 a client learns only now that its certificate was refused.
            refused = None if self._has_read else _refused_by_alert(error, self._address)
            if refused is None:
                raise
            raise refused from error
        self._has_read = True
        return n_bytes

    def set_low_water_mark(self, n_bytes: int) -> None:
        sock = self._socket
        n_bytes = max(1, min(n_bytes, _MAX_LOW_WATER_BYTES))
        # With TLS the kernel counts encrypted bytes, and a part of them may be in OpenSSL's buffer.
        if n_bytes == self._low_water_bytes or not HAS_LOW_WATER_MARK or isinstance(sock, ssl.SSLSocket):
            return
        with contextlib.suppress(OSError):  # a sandbox may not have the option: then each packet wakes the reader
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, n_bytes)
            self._low_water_bytes = n_bytes

    def peer_closed(self) -> bool:
        sock = self._socket
        if isinstance(sock, ssl.SSLSocket):
            sock.settimeout(0)
            try:
                sock.recv(1)
            except ssl.SSLWantReadError:
                return False
            except OSError:
                return True
            return True  # end of file, or bytes without a request
        poll = select.poll()  # select() refuses descriptors above 1023
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))

    def wake_up(self) -> None:
        # An SSLSocket's own shutdown would take the TLS session away from the thread that reads.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


def _refused_by_alert(error: OSError, address: str) -> AuthenticationError | None:
    """Return the error for a TLS alert by which the peer refuses us; None for any other failure."""
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if not reason or "ALERT" not in reason:
        return None
    return AuthenticationError(
        f"{address} refused the TLS handshake: {reason.replace('_', ' ').lower()}",
        remedy="Check the client's certificate and key ({ssl.keystore.*}), which this listener may demand.",
    )


def timeout_s(deadline: Deadline) -> float:
    """Return what is left until a deadline as a socket's timeout, never 0."""
    # A timeout of 0 would make the socket non-blocking.
    return max(0.001, deadline.remaining_ms() / 1000)


def tls_failure(error: ssl.SSLError | ConnectionError) -> str:
    """Return why a TLS handshake failed, apart from certificates."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if isinstance(error, ssl.SSLEOFError | ConnectionError) or "EOF" in reason:
        return "the peer closed the connection at the first TLS message, as a plaintext listener does"
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "the peer does not speak TLS: it may be a plaintext listener"
    return reason.replace("_", " ").lower() or str(error)


def reason_of(error: OSError | UnicodeError) -> str:
    """Return what the operating system says of a failure."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    said = error.strerror if isinstance(error, OSError) else None
    return (said or str(error) or type(error).__name__).lower()
