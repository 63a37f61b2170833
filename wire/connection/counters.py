"""What one client has sent, received and waited for, counted per request and never per record.

Owns the counts of a :class:`~pykafka_wire.wire.cluster.client.Cluster`; its connections and its retries add to them. Nothing here
knows who reads them.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any


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
        """Return what was added after an earlier moment."""
        return ClientTotals(**{name: count - getattr(earlier, name) for name, count in asdict(self).items()})


class ClientCounters:
    """Counts what a client does. Threads share it; each call takes some microseconds, a few for each request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Any] = asdict(ClientTotals())  # Any: some are whole numbers

    def count(self, **added: float) -> None:
        """Add to the counts of these names, as :class:`ClientTotals` has them."""
        with self._lock:
            for name, amount in added.items():
                self._counts[name] += amount

    def totals(self) -> ClientTotals:
        """Return all counts, of one moment."""
        with self._lock:
            return ClientTotals(**self._counts)

    def after_fork(self) -> None:
        """Begin anew in a forked child: a thread that it does not have may have held the lock."""
        self._lock = threading.Lock()
