"""One connection to one broker: requests out, responses in, with a deadline on everything that can take time.

Owns the exchange: the handshake, the futures of responses, who reads whose response where threads share the connection, which of
many connections has one first, throttling, and what breaks a connection. It has a
:class:`~pykafka_wire.wire.connection.transport.Transport` for the bytes, and a
:class:`~pykafka_wire.wire.connection.state_machine.StateMachine` for their meaning. It knows no API and retries nothing: a failure
ends the connection, and :mod:`~pykafka_wire.wire.cluster.client` decides what is next.
"""

from __future__ import annotations

import contextlib
import logging
import re
import select
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar, cast

from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.connection.state_machine import BrokerIdentity, Received, Sent, State, StateMachine
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.connection.transport import Address, Network, Sockets, Transport, reason_of
from pykafka_wire.wire.deadline import CANCEL_CHECK_MS, Deadline
from pykafka_wire.wire.errors import (
    AuthenticationError,
    DeadlineExceededError,
    MisroutedConnectionError,
    ProtocolError,
    TransportError,
    WireError,
)
from pykafka_wire.wire.protocol.message import Message, Request
from pykafka_wire.wire.security.token import SaslMechanism
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.version import VERSION

logger = logging.getLogger(__name__)

#: How often a thread checks whether another one has read the response that it waits for.
_CHECK_MS: Final = 20
#: From this size of a request without a response on, the error for a reset names the broker's limit: the smallest
#: socket.request.max.bytes in common use; the default is 100 MiB.
_LARGE_REQUEST_BYTES: Final = 1024 * 1024
#: The share of a SASL session's lifetime after which it is renewed (KIP-368; Java draws from 0.85 to 0.95).
_SESSION_SHARE: Final = 0.85


def software_version(installed: str) -> str:
    """Return a version as ApiVersions may name it (KIP-511): letters, digits, and in between dots and hyphens. Brokers refuse a
    request with anything else, such as the ``+`` of a local version."""
    return re.sub("[^a-zA-Z0-9.-]", "-", installed).strip("-.") or "0"


_SOFTWARE_VERSION: Final = software_version(VERSION)
ResponseT_co = TypeVar("ResponseT_co", bound=Message, covariant=True)


class Connection:
    """One connection, not open at first: requests out, responses in, in order. Threads may share it.

    Args:
        label: how the broker is called in errors, logs and the trace.
        network: opens the byte stream, by default a socket.
        meant: the broker that is to respond, None for any.
    """

    def __init__(
        self,
        host: str,
        port: int,
        settings: ClientSettings,
        trace: Trace,
        label: str,
        counters: ClientCounters | None = None,
        network: Network | None = None,
        meant: BrokerIdentity | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self.label = label
        self._host = host
        self._port = port
        self._settings = settings
        self._meant = meant
        self._network: Network = network or Sockets(settings)
        self._transport: Transport | None = None
        self._trace = trace
        self.counters = counters if counters is not None else ClientCounters()
        self._lock = threading.RLock()
        self._pending: deque[ResponseFuture[Any]] = deque()
        self._muted_until = 0.0
        self._throttled_s = 0.0
        #: When the connection broke or could not be opened, on the monotonic clock; None while it is well.
        self.failed_at: float | None = None
        self._last_used = time.monotonic()
        self._opened_at = self._last_used
        #: Why another thread has closed the connection while this one waits on it.
        self._closed_by: WireError | None = None
        self._closing = threading.Event()
        # Stands in until an address is tried: each gets a conversation of its own, and its mechanism a new exchange.
        self.state_machine = StateMachine(client_id=settings.client_id, software_version=_SOFTWARE_VERSION)

    # --- opening and closing ------------------------------------------------------------------------------------------

    def open(self, deadline: Deadline, *, attempt_ms: float | None = None) -> Connection:
        """Connect to the first address that responds, and go through the handshake.

        Args:
            attempt_ms: the time for each address, by default ``socket.connection.setup.timeout.ms``. Where less is left, an
                address leaves half of it to the next ones.

        Raises:
            TransportError: no address could be reached, or the handshake failed; names each address and why.
            MisroutedConnectionError: another broker responds.
            AuthenticationError: the broker refused us, or its certificate does not hold.
        """
        failures, remedies = [], []
        started = time.monotonic()
        mechanism = self._new_mechanism()
        # A token endpoint's time is not the broker's.
        deadline = replace(deadline, at=deadline.at + time.monotonic() - started)
        attempt_ms = self._settings.socket_connection_setup_timeout_ms if attempt_ms is None else attempt_ms
        started = time.monotonic()
        try:
            addresses = self._network.addresses(self._host, self._port)
        except TransportError as error:
            error.broker = self.label
            raise
        for n_tried, address in enumerate(addresses):
            left_ms = deadline.remaining_ms()
            is_short = left_ms < attempt_ms and n_tried < len(addresses) - 1
            try:
                self._open_address(address, deadline.at_most_ms(left_ms / 2 if is_short else attempt_ms), mechanism)
            except BaseException as error:
                self.close()
                if isinstance(error, MisroutedConnectionError):
                    self.failed_at, error.broker = time.monotonic(), self.label
                elif isinstance(error, AuthenticationError):
                    error.broker = error.broker if error.broker is not None else self.label
                elif isinstance(error, TransportError | ProtocolError | OSError):
                    reason = error.message if isinstance(error, WireError) else reason_of(error)
                    failures.append(f"{address[1][0]}: {reason}")
                    remedies.append(error.remedy if isinstance(error, WireError) else "")
                    if deadline.expired:
                        break
                    continue
                raise
            else:
                self.failed_at = None
                self.counters.count(connections_opened=1, wait_s=time.monotonic() - started)
                return self
        self.failed_at = time.monotonic()
        self.counters.count(wait_s=self.failed_at - started)
        remedy = " ".join(filter(None, dict.fromkeys(remedies)))
        raise TransportError("; ".join(failures) or "no address", broker=self.label, remedy=remedy)

    def _open_address(self, address: Address, deadline: Deadline, mechanism: SaslMechanism | None) -> None:
        for is_last in (False, True):
            self.state_machine = self._new_state_machine(mechanism)
            self._transport = self._network.connect(self._host, self._port, address, deadline)
            try:
                self._handshake(deadline)
                return
            except TransportError as error:
                # A broker that dies does this, and so does one that rejects credentials without a response, with GSSAPI
                # or a token that it cannot read. A second attempt distinguishes the two; more would lock an account.
                if not self.state_machine.cut_off:
                    raise
                if is_last:
                    raise AuthenticationError(
                        f"{self.address} closed the connection twice after it received the credentials, without a reason",
                        broker=self.label,
                        remedy="Check {sasl.mechanism} and the credentials; the broker's log has the reason.",
                    ) from error
                self.close()

    def close(self, error: WireError | None = None) -> None:
        """Close the connection; futures without a response fail with ``error``.

        A thread that waits for a response is woken up, rather than waited for.
        """
        error = error or TransportError("the connection was closed", broker=self.label)
        if not self._lock.acquire(blocking=False):
            self._closed_by = error
            self._closing.set()
            if (transport := self._transport) is not None:
                transport.wake_up()
            self._lock.acquire()
        try:
            self._close_transport()
            self.state_machine.state = State.CLOSED
            waiting, self._pending = self._pending, deque()
            for pending in waiting:
                pending.set_error(error)
        finally:
            self._lock.release()

    @property
    def usable(self) -> bool:
        """Return whether a request may be sent: open, not idle for too long, and not closed by the broker meanwhile.

        A connection whose SASL session is about to expire is not: its successor authenticates anew (KIP-368), once
        nothing is in flight here.
        """
        if not self._lock.acquire(blocking=False):
            return self.state_machine.state is State.READY  # another thread is at it
        try:
            if self._transport is None or self.state_machine.state is not State.READY:
                return False
            if self._pending:
                return True
            idle_ms = self._settings.connections_max_idle_ms
            if 0 <= idle_ms < (time.monotonic() - self._last_used) * 1000:
                return False
            return not self.session_ends and not self._transport.peer_closed()
        finally:
            self._lock.release()

    @property
    def session_ends(self) -> bool:
        """Return whether the SASL session has run most of its life."""
        lifetime_ms = self.state_machine.session_lifetime_ms
        return lifetime_ms > 0 and (time.monotonic() - self._opened_at) * 1000 > lifetime_ms * _SESSION_SHARE

    @property
    def muted_s(self) -> float:
        """Return for how many seconds the broker reads nothing, because it throttles us (KIP-219)."""
        return max(0.0, self._muted_until - time.monotonic())

    def abandon(self) -> None:
        """Give up a copy that a forked child has: the connection stays the parent's, and not a byte goes out on it.

        Takes no lock, for a thread that the child does not have may have held it.
        """
        self._close_transport()

    def after_fork(self) -> None:
        """Give up in a forked child: give the connection up, and fail the futures that the child has copies of."""
        self.abandon()
        self._lock = threading.RLock()
        self.state_machine.state = State.CLOSED
        error = TransportError("this process was forked, and the connection is its parent's", broker=self.label)
        for pending in self._pending:
            pending.set_error(error)
        self._pending.clear()

    @property
    def readable_at(self) -> int | None:
        """Return the descriptor that becomes readable with the next bytes; None if there are some, or there is no stream to
        give any."""
        return None if (transport := self._transport) is None else transport.readable_at

    def drain(self, deadline: Deadline) -> None:
        """Wait for every response that is due."""
        with self._hold(deadline):
            while self._pending:
                self._receive(deadline)

    def _new_state_machine(self, mechanism: SaslMechanism | None = None) -> StateMachine:
        return StateMachine(
            client_id=self._settings.client_id,
            software_version=_SOFTWARE_VERSION,
            meant=self._meant,
            mechanism=mechanism,
        )

    def _new_mechanism(self) -> SaslMechanism | None:
        """Return the SASL mechanism with its credentials, read anew for each connection."""
        if not self._settings.uses_sasl:
            return None
        from pykafka_wire.wire.security import sasl

        return sasl.mechanism(self._settings, self._host)

    def _handshake(self, deadline: Deadline) -> None:
        started = time.monotonic()
        try:
            while True:
                segments = self.state_machine.outgoing()
                self._trace.handshake(self.label, self.state_machine.handshake_log())
                if segments:
                    self._open_transport().write(segments, deadline)
                if self.state_machine.state is State.READY:
                    break
                self._fill(deadline)
        finally:
            self._trace.handshake(self.label, self.state_machine.handshake_log())
        self._opened_at = self._last_used = time.monotonic()
        self._trace.opened(self.label, self.address, self.state_machine, self._opened_at - started)

    # --- requests and responses ---------------------------------------------------------------------------------------

    def send(
        self,
        request: Request[Any],
        *,
        cap: int | None = None,
        deadline: Deadline | None = None,
    ) -> ResponseFuture[Any]:
        """Send a request; the future that this returns has its response.

        Waits first while the broker throttles us (KIP-219: it has responded already, and reads nothing for that time), but
        not past ``deadline``, by default ``default.api.timeout.ms`` from now.

        Raises:
            DeadlineExceededError: throttled for longer than that.
            TransportError: the connection broke before all of the request had left, so the broker does not act on it.
            UnsupportedVersionError, ProtocolError: the request cannot be expressed.
        """
        deadline = deadline or Deadline.of_call(self._settings)
        with self._hold(deadline):
            self._wait_out_throttle(deadline)
            try:
                sent = self.state_machine.send(request, cap)
                pending: ResponseFuture[Any] = ResponseFuture(self, sent, self._throttled_s)
                if sent.expects_response:
                    self._pending.append(pending)
                self._trace.sent(self.label, sent)
                request_deadline = Deadline.after_ms(self._settings.request_timeout_ms)
                self._open_transport().write(self.state_machine.outgoing(), request_deadline)
                self.counters.count(requests=1, bytes_sent=sent.size)
            except (TransportError, OSError) as error:
                raise self._broke(error) from error
            except WireError:
                raise  # the request cannot be expressed: nothing of it was queued
            except BaseException:
                self.close()  # interrupted in the middle of a frame, or before it
                raise
            self._last_used = pending.sent_at
            return pending

    def wait_for(self, pending: ResponseFuture[Any], deadline: Deadline, total: Deadline | None = None) -> None:
        """Read responses until ``pending`` has its own, which may be an error and may be read by another thread."""
        total = total or Deadline.of_call(self._settings)
        started = time.monotonic()
        try:
            with self._hold(deadline, pending):
                while not pending.done:
                    try:
                        self._receive(pending.extend_deadline(deadline, total, self._throttled_s))
                    except WireError as error:
                        if not pending.done:
                            pending.set_error(error)
        finally:
            self.counters.count(wait_s=time.monotonic() - started)

    def _receive(self, deadline: Deadline) -> None:
        """Read until one response is complete, and resolve its future."""
        try:
            received = None
            self._open_transport().set_low_water_mark(1)
            while received is None:
                received = self._fill(deadline)
        except (WireError, OSError) as error:
            raise self._broke(error) from error
        except BaseException:
            self.close()  # interrupted: bytes may have been read that the frame lacks
            raise
        self._deliver(received)

    def read_arrived(self, pending: ResponseFuture[Any]) -> None:
        """Read what has arrived, without waiting: ``pending`` is done if that completes its response.

        While the response is incomplete, the socket then becomes readable only once many more bytes have arrived, until
        :meth:`clear_low_water_mark`.
        """
        if not self._lock.acquire(blocking=False):
            return  # another thread reads
        try:
            while not pending.done:
                received = self._fill(Deadline(0.0))
                if received is not None:
                    self._deliver(received)
            self._set_low_water_mark(1)
        except DeadlineExceededError:
            self._set_low_water_mark(self.state_machine.n_missing)  # that was all
        except (WireError, OSError) as error:
            broken = self._broke(error)
            if not pending.done:
                pending.set_error(broken)
        except BaseException:
            self.close()  # interrupted: bytes may have been read that the frame lacks
            raise
        finally:
            self._lock.release()

    def clear_low_water_mark(self) -> None:
        """Have the descriptor become readable with the next byte again."""
        if not self._lock.acquire(blocking=False):
            return  # another thread reads
        try:
            self._set_low_water_mark(1)
        finally:  # Ctrl-C may come in between
            self._lock.release()

    def _deliver(self, received: Received) -> None:
        """Resolve the oldest future with a response: responses come in the order of the requests."""
        pending = self._pending[0]
        now = time.monotonic()
        self._last_used = now
        throttle_s = max(0, getattr(received.response, "throttle_time_ms", 0)) / 1000
        longer_s = max(0.0, now + throttle_s - max(now, self._muted_until))
        if throttle_s:
            self._throttled_s += longer_s
            self._muted_until = max(self._muted_until, now + throttle_s)
        self.counters.count(responses=1, bytes_received=received.size, throttle_s=longer_s)
        try:
            self._trace.received(self.label, received, (now - pending.sent_at) * 1000)
            pending.set_response(received.response)
            self._pending.popleft()
        except BaseException:
            self.close()  # interrupted: the next response would go to the wrong request
            raise

    def _wait_out_throttle(self, deadline: Deadline) -> None:
        if muted_s := self.muted_s:
            logger.debug("broker %s throttles this client for another %.0f ms", self.label, muted_s * 1000)
        while muted_s := self.muted_s:
            if muted_s * 1000 > deadline.remaining_ms():
                raise DeadlineExceededError(
                    f"the broker throttles this client for another {muted_s:.1f} s",
                    broker=self.label,
                    remedy="See the quotas of this user and client id on the brokers.",
                )
            if self._closing.wait(min(muted_s, CANCEL_CHECK_MS / 1000)) and self._closed_by is not None:
                raise self._closed_by

    @contextlib.contextmanager
    def _hold(self, deadline: Deadline, pending: ResponseFuture[Any] | None = None) -> Iterator[None]:
        """Hold the connection for this thread alone; another one that waits for a response holds it until that has come.

        What it reads meanwhile may be what ``pending`` waits for: then there is nothing to hold the connection for.
        """
        limit = deadline if pending is None else deadline.at_most_ms(_CHECK_MS)
        while not limit.acquire(self._lock):
            if pending is not None and pending.done:
                yield
                return
            if deadline.expired:
                raise DeadlineExceededError("another thread waits for a response on this connection", broker=self.label)
            limit = deadline.at_most_ms(_CHECK_MS)
        try:
            yield
        finally:
            self._lock.release()

    def _open_transport(self) -> Transport:
        if self._transport is None:
            raise TransportError("the connection is closed", broker=self.label)
        return self._transport

    def _close_transport(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def _set_low_water_mark(self, n_bytes: int) -> None:
        if self._transport is not None:
            self._transport.set_low_water_mark(n_bytes)

    def _fill(self, deadline: Deadline) -> Received | None:
        """Read what is there; the response that it completes."""
        n_bytes = self._open_transport().read_into(self.state_machine.buffer(), deadline)
        if n_bytes == 0:
            raise self.state_machine.closed()
        return self.state_machine.received(n_bytes)

    def _broke(self, error: WireError | OSError) -> WireError:
        """Close the broken connection; the error for its futures."""
        if self._closed_by is not None:
            self.close(self._closed_by)
            return self._closed_by
        if isinstance(error, WireError):
            broken = error
            broken.broker = broken.broker if broken.broker is not None else self.label
        else:
            broken = TransportError(f"the connection broke ({reason_of(error)})", broker=self.label)
        if self._pending:
            broken.api = broken.api or type(self._pending[0].sent.request).name
            largest = max(pending.sent.size for pending in self._pending)
            if largest >= _LARGE_REQUEST_BYTES and not isinstance(broken, DeadlineExceededError):
                broken.remedy = broken.remedy or (
                    f"A broker closes the connection without a response if a request is larger than its socket.request.max.bytes; "
                    f"the largest request without a response had {largest} bytes."
                )
        self.failed_at = time.monotonic()
        self._trace.closed(self.label, broken)
        self.close(broken)
        return broken


class ResponseFuture(Generic[ResponseT_co]):
    """The response to a request that was sent, once it comes. Made by :meth:`Connection.send`."""

    def __init__(self, connection: Connection, sent: Sent, throttled_s: float) -> None:
        self._connection = connection
        self._throttled_s = throttled_s
        self._response: Message | None = None
        self._error: WireError | None = None
        self.sent = sent
        self.sent_at = time.monotonic()

    @property
    def version(self) -> int:
        """Return the version that the request was sent in."""
        return self.sent.version

    @property
    def done(self) -> bool:
        return self._response is not None or self._error is not None

    def result(self, deadline: Deadline, total: Deadline | None = None) -> ResponseT_co:
        """Return the response; waits for it until ``deadline``.

        Time for which the broker throttles the connection does not count against ``deadline`` (KIP-219), but only up to
        ``total``, by default ``default.api.timeout.ms`` from now.

        Raises:
            DeadlineExceededError: no response in time; the connection is closed, because its next response would be this one.
            TransportError, ProtocolError: the connection broke.
        """
        if not self.done:
            self._connection.wait_for(self, deadline, total)
        if self._error is not None:
            raise self._error
        return cast("ResponseT_co", self._response)

    def extend_deadline(self, deadline: Deadline, total: Deadline, throttled_s: float) -> Deadline:
        """Return ``deadline``, extended up to ``total`` by the time that the connection was throttled since the request."""
        expires_at = max(deadline.at, min(deadline.at + throttled_s - self._throttled_s, total.at))
        return Deadline(expires_at, setting=deadline.setting, cancelled=deadline.cancelled)

    def set_response(self, response: Message) -> None:
        """Set the response that has arrived; called by the connection."""
        self._response = response

    def set_error(self, error: WireError) -> None:
        """Set the error for which no response will arrive; called by the connection."""
        self._error = error

    @property
    def readable_at(self) -> int | None:
        """Return the descriptor that is readable once the response begins to arrive; None if there is no need to wait for it."""
        return None if self.done else self._connection.readable_at

    def read_arrived(self) -> bool:
        """Return whether the response, or an error, is complete; reads what has arrived of it, and waits for nothing."""
        if not self.done:
            self._connection.read_arrived(self)
        return self.done

    def clear_low_water_mark(self) -> None:
        """Have the descriptor become readable with the next byte again: :meth:`read_arrived` has it wait for many."""
        self._connection.clear_low_water_mark()

    def count_wait(self, seconds: float) -> None:
        """Count time that was spent waiting for this response and others of the same client."""
        self._connection.counters.count(wait_s=seconds)

    @property
    def arrived(self) -> bool:
        """Return whether there is no need to wait: the response has begun to arrive, or its fate is known."""
        descriptor = self.readable_at
        if descriptor is None:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))


def first_to_arrive(
    pending: Sequence[ResponseFuture[ResponseT_co]], deadline: Deadline
) -> ResponseFuture[ResponseT_co]:
    """Return the first of `pending` whose response has begun to arrive, or that is done; the very first if none is when
    `deadline` passes. At least one must be given; connections stay as they are.
    """
    started = time.monotonic()
    try:
        while True:
            poll = select.poll()
            waiting: dict[int, ResponseFuture[ResponseT_co]] = {}
            for future in pending:
                descriptor = future.readable_at
                if descriptor is None:
                    return future
                if descriptor not in waiting:  # a connection's responses come in order
                    waiting[descriptor] = future
                    poll.register(descriptor, select.POLLIN)
            # Another thread that waits on the same connection may read the response: then the descriptor does not become readable.
            ready = poll.poll(min(_CHECK_MS, deadline.remaining_ms()))
            if ready:
                return waiting[ready[0][0]]
            for future in waiting.values():  # bytes arrive slowly: those that are there are read now
                future.clear_low_water_mark()
            if deadline.expired:
                return pending[0]
    finally:
        pending[0].count_wait(time.monotonic() - started)
