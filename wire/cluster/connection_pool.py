"""The open connections of one client: at most one for each broker and purpose, opened when needed.

Owns which connection serves whom, which brokers failed lately and when they may be tried again, and what a forked child does with
its parent's sockets. It knows no API and retries nothing. Each purpose has a connection of its own to the same broker: a broker
responds to the requests of one connection in order, so what may wait for long must not stand before what may not.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypeAlias

from pykafka_wire.wire.cluster.metadata_cache import Broker
from pykafka_wire.wire.cluster.retries import Backoff
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.connection.state_machine import BrokerIdentity
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.connection.transport import Network
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError, MisroutedConnectionError, SettingsError, TransportError
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

#: The purpose of requests whose responses come soon: metadata, offsets, administration.
GENERAL: Final = "general"

#: A broker's node id, host and port.
_Address: TypeAlias = tuple[int, str, int]


class _ConnectFailure(NamedTuple):
    """The last failed attempt: how many failed in a row, when the next one may be made, and why it failed."""

    in_a_row: int
    retry_at: float
    error: TransportError


class Reconnects:
    """When a broker may be connected to again after attempts that failed (KIP-144): the failures by host and port. Threads may
    share it.

    A call to a broker in its pause fails at once, so that others are asked meanwhile; only the threads of
    :class:`~pykafka_wire.wire.cluster.leader_requests.LeaderRequests` wait.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._backoff = Backoff.of_connections(settings)
        self._failures: dict[tuple[str, int], _ConnectFailure] = {}

    def require_due(self, host: str, port: int) -> None:
        """Raise TransportError, with the reason of the last attempt, where it is too early for another one.

        It says nothing of the pause: that has a second at most by default, and who retries meets its end.
        """
        failure = self._failures.get((host, port))
        if failure is not None and failure.retry_at > time.monotonic():
            last = failure.error
            raise TransportError(last.message, broker=last.broker or f"{host}:{port}", remedy=last.remedy) from last

    def wait_until_due(self, host: str, port: int, deadline: Deadline) -> None:
        """Return when another attempt may be made, at the latest at the deadline."""
        failure = self._failures.get((host, port))
        if failure is not None:
            deadline.sleep(max(0.0, failure.retry_at - time.monotonic()) * 1000)

    def record_failure(self, host: str, port: int, error: TransportError) -> None:
        """Note that an attempt has failed: the next one has to wait longer."""
        before = self._failures.get((host, port))
        in_a_row = 1 if before is None else before.in_a_row + 1
        retry_at = time.monotonic() + self._backoff.delay_ms(in_a_row) / 1000
        self._failures[host, port] = _ConnectFailure(in_a_row, retry_at, error)

    def record_success(self, host: str, port: int) -> None:
        """Note that a connection was opened: the next attempt need not wait."""
        self._failures.pop((host, port), None)


class _Slot:
    """The place of one connection. Its lock is held while one is being opened, so that threads open one, not two."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: Connection | None = None
        self.node: Broker | None = None


class ConnectionPool:
    """Connections by node id and purpose. Threads may share it."""

    def __init__(
        self, settings: ClientSettings, trace: Trace, counters: ClientCounters, network: Network | None = None
    ) -> None:
        self._settings = settings
        self._network = network
        self._trace = trace
        self._counters = counters
        self._lock = threading.Lock()
        self._slots: dict[tuple[int, str], _Slot] = {}
        self._reconnects = Reconnects(settings)
        #: The cluster that brokers are to be of, None where it is not known. It is set by who asks for metadata.
        self.cluster_id: str | None = None
        #: Is called with the error when another broker has responded than the one that is meant.
        self.on_misrouted: Callable[[MisroutedConnectionError], None] = lambda error: None

    def get(self, node: Broker, purpose: str, deadline: Deadline, *, attempt_ms: float | None = None) -> Connection:
        """Return the open connection to a broker; opens one where there is none, or none that may still be used.

        Args:
            attempt_ms: the time for each address of the broker's name, by default ``socket.connection.setup.timeout.ms``.

        Raises:
            TransportError: the broker cannot be reached, or could not be within ``reconnect.backoff.ms``.
            AuthenticationError: it refused us.
            MisroutedConnectionError: another broker responds at its address.
            SettingsError: ``allowed.hosts`` does not cover the host that it is advertised as.
        """
        with self._lock:
            slot = self._slots.setdefault((node.node_id, purpose), _Slot())
        soon = deadline if attempt_ms is None else deadline.at_most_ms(attempt_ms)
        if not soon.acquire(slot.lock):
            raise DeadlineExceededError("another thread is connecting", broker=str(node))
        try:
            connection = slot.connection
            if connection is not None and slot.node is not None and slot.node[:3] == node[:3]:
                if connection.session_ends:
                    connection.drain(soon)
                if connection.usable:
                    return connection
            if connection is not None:
                # Broken, idle for too long, or the broker has moved to another address.
                connection.close()
            self._require_allowed(node)
            self._reconnects.require_due(node.host, node.port)
            connection = self.seed(node.host, node.port, str(node), self._identity(node))
            slot.connection, slot.node = connection, node
            try:
                self._open(connection, node.host, node.port, deadline, attempt_ms)
            except MisroutedConnectionError as error:
                self.on_misrouted(error)
                raise
            self._require_open(slot, node, purpose)
            logger.debug("connected to broker %s for purpose %s", node, purpose)
            return connection
        finally:
            slot.lock.release()

    def _require_open(self, slot: _Slot, node: Broker, purpose: str) -> None:
        """Close a connection that was opened while the pool was closed; no later close would reach it."""
        with self._lock:
            is_kept = self._slots.get((node.node_id, purpose)) is slot
        if not is_kept and slot.connection is not None:
            error = TransportError("the client was closed", broker=str(node))
            slot.connection.close(error)
            raise error

    def wait_until_due(self, node: Broker, deadline: Deadline) -> None:
        """Return when a broker may be connected to: after a failed attempt once ``reconnect.backoff.ms`` is over."""
        self._reconnects.wait_until_due(node.host, node.port, deadline)

    def find_open(self, node: Broker, purpose: str) -> Connection | None:
        """Return the connection that :meth:`get` would return at once, None if there is none. Never waits itself."""
        with self._lock:
            slot = self._slots.get((node.node_id, purpose))
        if slot is None or not slot.lock.acquire(blocking=False):
            return None  # none, or one that is being opened
        try:
            connection = slot.connection
            is_current = slot.node is not None and slot.node[:3] == node[:3]
            is_open = connection is not None and is_current and connection.usable and not connection.session_ends
            return connection if is_open else None
        finally:
            slot.lock.release()

    def _identity(self, node: Broker) -> BrokerIdentity | None:
        """Return what a broker is to compare itself with (KIP-1242)."""
        settings = self._settings
        is_checked = settings.metadata_cluster_check_enable and settings.metadata_recovery_strategy != "none"
        return BrokerIdentity(self.cluster_id, node.node_id) if is_checked and self.cluster_id is not None else None

    def _require_allowed(self, node: Broker) -> None:
        """Require that a host is allowed. Credentials go wherever metadata points: a user may say where that may be."""
        patterns = self._settings.allowed_hosts
        if not patterns or node[1:3] in self._settings.bootstrap_servers:
            return
        if not any(fnmatchcase(node.host.lower(), pattern.lower()) for pattern in patterns):
            raise SettingsError(
                "broker {broker} is advertised as {address}, which {setting} ({patterns}) does not cover",
                setting="allowed.hosts",
                remedy="Add the host if it is one of yours. Else check {bootstrap.servers}: another cluster may have responded.",
                broker=node.node_id,
                address=f"{node.host}:{node.port}",
                patterns=", ".join(patterns),
            )

    def seed(self, host: str, port: int, label: str | None = None, meant: BrokerIdentity | None = None) -> Connection:
        """Return a connection that is not open yet and belongs to no broker."""
        return Connection(
            host, port, self._settings, self._trace, label or f"{host}:{port}", self._counters, self._network, meant
        )

    def open_seed(self, host: str, port: int, deadline: Deadline, *, attempt_ms: float | None = None) -> Connection:
        """Return a connection to an address that is open, and belongs to no broker yet. Raises as :meth:`get`."""
        self._reconnects.require_due(host, port)
        connection = self.seed(host, port)
        try:
            self._open(connection, host, port, deadline, attempt_ms)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, connection: Connection, host: str, port: int, deadline: Deadline, attempt_ms: float | None) -> None:
        try:
            connection.open(deadline, attempt_ms=attempt_ms)
        except TransportError as error:
            self._reconnects.record_failure(host, port, error)
            raise
        self._reconnects.record_success(host, port)

    def adopt(self, connection: Connection, node: Broker) -> bool:
        """Keep an open connection for the broker that turned out to be behind it; False where it has one already."""
        with self._lock:
            slot = self._slots.setdefault((node.node_id, GENERAL), _Slot())
        if not slot.lock.acquire(blocking=False):
            return False
        try:
            if slot.connection is not None and slot.connection.usable:
                return False
            connection.label = str(node)
            slot.connection, slot.node = connection, node
            return True
        finally:
            slot.lock.release()

    def in_order(self, nodes: Iterable[Broker]) -> list[Broker]:
        """Return brokers, the most promising first: connected ones, others in random order, those that failed last of all.

        The order is random so that many clients do not all turn to the same broker.
        """
        failures, connected = self._health()
        shuffled = list(nodes)
        random.shuffle(shuffled)
        return sorted(shuffled, key=lambda node: (failures.get(node[:3], 0.0), node[:3] not in connected))

    def is_out_of_reach(self, node: Broker) -> bool:
        """Return whether a connection to a broker has failed, and none to it is open."""
        failures, connected = self._health()
        return node[:3] in failures and node[:3] not in connected

    def _health(self) -> tuple[dict[_Address, float], set[_Address]]:
        """Return when each broker failed last, and those that are connected. A broker with another address is another one."""
        with self._lock:
            slots = dict(self._slots)
        failures: dict[_Address, float] = {}
        connected = set()
        for (_, purpose), slot in slots.items():
            connection, node = slot.connection, slot.node
            if connection is None or node is None:
                continue
            if connection.failed_at is not None:
                failures[node[:3]] = max(failures.get(node[:3], 0.0), connection.failed_at)
            elif purpose == GENERAL and connection.usable:
                connected.add(node[:3])
        return failures, connected

    def close(self, purpose: str | None = None) -> None:
        """Close the connections of one purpose, by default all."""
        with self._lock:
            closing = {key: slot for key, slot in self._slots.items() if purpose in (None, key[1])}
            for key in closing:
                del self._slots[key]
        for slot in closing.values():
            if slot.connection is not None:
                slot.connection.close(TransportError("the client was closed", broker=slot.connection.label))

    def abandon(self) -> None:
        """Close all sockets at the process's end, and take no lock: one may be held for as long as a response takes."""
        for connection in self._forget_all():
            connection.abandon()

    def after_fork(self) -> None:
        """Begin anew in a forked child: the connections are the parent's, and a thread that the child lacks may hold a lock."""
        for connection in self._forget_all():
            connection.after_fork()

    def _forget_all(self) -> list[Connection]:
        slots, self._slots = self._slots, {}
        self._lock = threading.Lock()
        self._reconnects = Reconnects(self._settings)
        return [slot.connection for slot in slots.values() if slot.connection is not None]
