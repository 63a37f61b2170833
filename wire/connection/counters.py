"""What one client has sent, received and waited for, counted per request and never per record.

Owns the counts of a :class:`~pykafka_wire.wire.cluster.cluster.Cluster`; its connections and its retries add to them. Nothing here
knows who reads them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTotals:
    """The counts of one client at a moment, since it was made. Requests of a connection's handshake are not counted.

    Attributes:
        connections_opened: connections whose handshake succeeded.
        retries: requests that were repeated after a retriable error, and record batches that were sent again. Ranges that a
            read asks for again are in that read's own counts.
        wait_s: seconds in which a thread waited for a broker: for a connection, or for a response to begin.
        throttle_s: seconds for which brokers have throttled the client because of a quota (KIP-219).
    """

    requests: int = 0
    responses: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    connections_opened: int = 0
    retries: int = 0
    wait_s: float = 0.0
    throttle_s: float = 0.0

    def since(self, earlier: ClientTotals) -> ClientTotals:
        """What was added after an earlier moment."""
        return ClientTotals(**{name: getattr(self, name) - getattr(earlier, name) for name in _NAMES})


_NAMES: Final = tuple(each.name for each in fields(ClientTotals))


class ClientCounters:
    """Counts what a client does. Threads share it; each call takes a fraction of a microsecond."""

    __slots__ = ("_lock", *_NAMES)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = self.responses = self.bytes_sent = self.bytes_received = 0
        self.connections_opened = self.retries = 0
        self.wait_s = self.throttle_s = 0.0

    def count_request(self, n_bytes: int) -> None:
        with self._lock:
            self.requests += 1
            self.bytes_sent += n_bytes

    def count_response(self, n_bytes: int, throttle_s: float) -> None:
        with self._lock:
            self.responses += 1
            self.bytes_received += n_bytes
            self.throttle_s += throttle_s

    def count_connection(self) -> None:
        with self._lock:
            self.connections_opened += 1

    def count_retries(self, n: int = 1) -> None:
        with self._lock:
            self.retries += n

    def count_wait(self, seconds: float) -> None:
        with self._lock:
            self.wait_s += seconds

    def totals(self) -> ClientTotals:
        """All counts, of one moment."""
        with self._lock:
            return ClientTotals(**{name: getattr(self, name) for name in _NAMES})

    def after_fork(self) -> None:
        """In a forked child: a thread that it does not have may have held the lock."""
        self._lock = threading.Lock()
