"""The open connections of one client: at most one for each broker and lane, opened when needed.

Owns which connection serves whom, which brokers failed lately, and what a forked child does with its parent's sockets. It
knows no API and retries nothing. A lane is a connection of its own to the same broker: a broker answers the requests of one
connection in order, so what may wait for long must not stand before what may not.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from pykafka_wire.wire.cluster.metadata import Node
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.connection.transport import Channel
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError, SettingsError, TransportError
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

#: The lane of all that is answered soon.
MAIN_LANE: Final = "main"


class _Slot:
    """The place of one connection. Its lock is held while one is being opened, so that threads open one, not two."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.channel: Channel | None = None
        self.node: Node | None = None


class Connections:
    """Channels by node id and lane. Threads may share it."""

    def __init__(self, settings: ClientSettings, trace: Trace) -> None:
        self._settings = settings
        self._trace = trace
        self._lock = threading.Lock()
        self._slots: dict[tuple[int, str], _Slot] = {}

    def get(self, node: Node, lane: str, deadline: Deadline) -> Channel:
        """The open connection to a broker; opens one where there is none, or none that may still be used.

        Raises:
            TransportError: the broker cannot be reached.
            AuthenticationError: it refused us.
            SettingsError: ``allowed.hosts`` does not cover the host that it is advertised as.
        """
        with self._lock:
            slot = self._slots.setdefault((node.node_id, lane), _Slot())
        if not slot.lock.acquire(timeout=deadline.remaining_ms() / 1000 + 0.001):
            raise DeadlineExceededError("another thread is connecting", broker=str(node))
        try:
            channel = slot.channel
            if channel is not None and slot.node is not None and slot.node[:3] == node[:3]:
                if channel.session_ends:
                    channel.drain(deadline)
                if channel.usable:
                    return channel
            if channel is not None:
                # Broken, idle for too long, or the broker has moved to another address.
                channel.close()
            self._require_allowed(node)
            channel = self.seed(node.host, node.port, str(node))
            slot.channel, slot.node = channel, node
            channel.open(deadline)
            logger.debug("connected to broker %s for lane %s", node, lane)
            return channel
        finally:
            slot.lock.release()

    def _require_allowed(self, node: Node) -> None:
        """Credentials go wherever metadata points: a user may say where that may be."""
        patterns = self._settings.allowed_hosts
        if not patterns or node[1:3] in self._settings.bootstrap_servers:
            return
        if not any(fnmatchcase(node.host.lower(), pattern.lower()) for pattern in patterns):
            raise SettingsError(
                f"broker {node.node_id} is advertised as {node.host}:{node.port}, which allowed.hosts "
                f"({', '.join(patterns)}) does not cover",
                setting="allowed.hosts",
                remedy="Add the host if it is one of yours; else whoever answered for the cluster leads you elsewhere.",
            )

    def seed(self, host: str, port: int, label: str | None = None) -> Channel:
        """A connection that is not open yet and belongs to no broker."""
        return Channel(host, port, self._settings, self._trace, label or f"{host}:{port}")

    def adopt(self, channel: Channel, node: Node) -> bool:
        """Keep an open connection for the broker that turned out to be behind it; False where it has one already."""
        with self._lock:
            slot = self._slots.setdefault((node.node_id, MAIN_LANE), _Slot())
        if not slot.lock.acquire(blocking=False):
            return False
        try:
            if slot.channel is not None and slot.channel.usable:
                return False
            channel.label = str(node)
            slot.channel, slot.node = channel, node
            return True
        finally:
            slot.lock.release()

    def in_order(self, nodes: Iterable[Node]) -> list[Node]:
        """Brokers, the most promising first: connected ones, others in random order, those that failed last of all.

        The order is random so that many clients do not all turn to the same broker.
        """
        with self._lock:
            slots = dict(self._slots)
        failures: dict[int, float] = {}
        connected = set()
        for (node_id, lane), slot in slots.items():
            channel = slot.channel
            if channel is None:
                continue
            if channel.failed_at is not None:
                failures[node_id] = max(failures.get(node_id, 0.0), channel.failed_at)
            elif lane == MAIN_LANE and channel.usable:
                connected.add(node_id)
        shuffled = list(nodes)
        random.shuffle(shuffled)
        return sorted(shuffled, key=lambda node: (failures.get(node.node_id, 0.0), node.node_id not in connected))

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            slots, self._slots = self._slots, {}
        for slot in slots.values():
            if slot.channel is not None:
                slot.channel.close(TransportError("the client was closed", broker=slot.channel.label))

    def abandon(self) -> None:
        """Close all sockets of this process and take no lock. In a forked child the connections stay the parent's, and a
        thread that the child lacks may hold a lock; at a process's end one may be held for as long as an answer takes."""
        slots, self._slots = self._slots, {}
        self._lock = threading.Lock()
        for slot in slots.values():
            if slot.channel is not None:
                slot.channel.abandon()
