"""A socket to one broker: names resolved, TCP and TLS connected, bytes out and in, with a deadline on all of it.

Owns the socket and what its failures mean. It knows no message; :mod:`~pykafka_wire.wire.connection.connection` builds on it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import sys
from typing import Any, Final

from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import AuthenticationError, DeadlineExceededError, TransportError
from pykafka_wire.wire.protocol.primitives import Piece
from pykafka_wire.wire.settings import ClientSettings

#: Segments of one sendmsg: IOV_MAX is 1024 on Linux and macOS.
_MAX_SEGMENTS: Final = 1024
#: Idle time before TCP asks whether the peer is still there, so that a half-open connection is found out while it idles.
#: The kernel's default is two hours.
_KEEPALIVE_S: Final = 60
#: The socket becomes readable once so many bytes of a large answer have arrived. 100-byte records are then read with 20 ns less of
#: CPU each than if every packet wakes the reader (155 before). 2 MiB gain nothing more, 256 KiB half as much.
_GATHERED_BYTES: Final = 1024 * 1024
#: Where SO_RCVLOWAT has the kernel enlarge the receive buffer too, and where a full buffer makes a socket readable.
CAN_GATHER: Final = sys.platform == "linux"


class Transport:
    """The socket of a connection; not open at first."""

    def __init__(self, host: str, port: int, settings: ClientSettings, label: str) -> None:
        self.address = f"{host}:{port}"
        #: How the broker is called in errors, logs and the trace.
        self.label = label
        self._host = host
        self._port = port
        self._settings = settings
        self._socket: socket.socket | None = None
        #: How many bytes make the socket readable.
        self._readable_from = 1

    def abandon(self) -> None:
        """Give up a copy that a forked child has: the connection stays the parent's, and not a byte goes out on it.

        Takes no lock, for a thread that the child does not have may have held it.
        """
        self._close_socket()

    @property
    def readable_at(self) -> int | None:
        """The socket's descriptor; None if there are bytes already, or there is no socket to give any."""
        sock = self._socket
        if sock is None or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            return None
        return sock.fileno()

    def _addresses(self) -> list[tuple[int, Any]]:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # a name with an empty label, or with one that is too long
            raise TransportError(
                f"the name {self._host} cannot be resolved ({reason_of(error)})", broker=self.label
            ) from error
        return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))

    def _connect(self, family: int, address: Any, deadline: Deadline) -> None:
        """Open the socket to one address, TLS included."""
        sock = socket.socket(family, socket.SOCK_STREAM)
        self._socket = sock
        self._readable_from = 1
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
        sock.settimeout(timeout_s(deadline))
        sock.connect(address)
        if self._settings.uses_tls:
            sock.settimeout(timeout_s(deadline))
            self._socket = self._wrap(sock)

    def _wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        from pykafka_wire.wire.security import tls

        try:
            return tls.context(self._settings).wrap_socket(sock, server_hostname=self._host)
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(
                f"the certificate of {self.address} was not accepted: {error.verify_message}",
                broker=self.label,
                remedy="Check ssl.truststore.certificates (or .location), the certificate's expiry, and that it names this host.",
            ) from error
        except (ssl.SSLError, ConnectionError) as error:
            raise self._refused_by_alert(error) or TransportError(
                f"the TLS handshake failed ({tls_failure(error)})",
                broker=self.label,
                remedy="Use the port of a TLS listener, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT for this one.",
            ) from error

    def _refused_by_alert(self, error: OSError) -> AuthenticationError | None:
        """The error for a TLS alert by which the peer refuses us; None for any other failure."""
        reason = error.reason if isinstance(error, ssl.SSLError) else None
        if not reason or "ALERT" not in reason:
            return None
        return AuthenticationError(
            f"{self.address} refused the TLS handshake: {reason.replace('_', ' ').lower()}",
            broker=self.label,
            remedy="Check the client's certificate and key (ssl.keystore.*), which this listener may demand.",
        )

    def _write(self, pieces: list[Piece], deadline: Deadline) -> None:
        sock = self._open_socket()
        try:
            if isinstance(sock, ssl.SSLSocket):
                for piece in pieces:
                    sock.settimeout(timeout_s(deadline))
                    sock.sendall(piece)
                return
            views = [memoryview(piece) for piece in pieces if len(piece)]
            while views:
                # A peer that takes a byte now and then must not put the deadline off with each.
                sock.settimeout(timeout_s(deadline))
                n_bytes = sock.sendmsg(views[:_MAX_SEGMENTS])
                while views and n_bytes >= len(views[0]):
                    n_bytes -= len(views.pop(0))
                if n_bytes:
                    views[0] = views[0][n_bytes:]
        except TimeoutError as error:
            raise DeadlineExceededError("the broker did not accept the request in time", broker=self.label) from error

    def _read_into(self, buffer: memoryview, deadline: Deadline) -> int:
        """Read what is there, at least a byte; the number of bytes, 0 if the peer has closed the connection."""
        sock = self._open_socket()
        # After the deadline this reads what has arrived by now, without waiting: an answer that is here is not lost.
        sock.settimeout(deadline.remaining_ms() / 1000)
        try:
            return sock.recv_into(buffer)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError) as error:
            raise DeadlineExceededError("the broker did not answer in time", broker=self.label) from error

    def _gather(self, n_bytes: int) -> None:
        """Have the socket become readable once `n_bytes`, at most `_GATHERED_BYTES`, have arrived; 0 and 1 are the next byte.

        `n_bytes` must not exceed what the broker still sends, or a wait would not end.
        """
        sock = self._socket
        readable_from = max(1, min(n_bytes, _GATHERED_BYTES))
        # With TLS the kernel counts encrypted bytes, and a part of them may be in OpenSSL's buffer.
        if readable_from == self._readable_from or not CAN_GATHER or sock is None or isinstance(sock, ssl.SSLSocket):
            return
        with contextlib.suppress(OSError):  # a sandbox may not have the option: then each packet wakes the reader
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, readable_from)
            self._readable_from = readable_from

    def _wake_up(self) -> None:
        """End the wait of a thread that reads or writes."""
        sock = self._socket
        if sock is not None:
            # An SSLSocket's own shutdown would take the TLS session away from the thread that reads.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _close_socket(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise TransportError("the connection is closed", broker=self.label)
        return self._socket

    def _peer_closed(self) -> bool:
        """Whether the broker has closed a connection on which nothing is due."""
        sock = self._open_socket()
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


def timeout_s(deadline: Deadline) -> float:
    """What is left until a deadline as a socket's timeout, never 0."""
    # A timeout of 0 would make the socket non-blocking.
    return max(0.001, deadline.remaining_ms() / 1000)


def tls_failure(error: ssl.SSLError | ConnectionError) -> str:
    """Why a TLS handshake failed, apart from certificates."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if isinstance(error, ssl.SSLEOFError | ConnectionError) or "EOF" in reason:
        return "the peer closed the connection at the first TLS message, as a plaintext listener does"
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "the peer does not speak TLS: it may be a plaintext listener"
    return reason.replace("_", " ").lower() or str(error)


def reason_of(error: OSError | UnicodeError) -> str:
    """What the operating system says of a failure."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    said = error.strerror if isinstance(error, OSError) else None
    return (said or str(error) or type(error).__name__).lower()
