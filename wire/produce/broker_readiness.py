"""Whether a broker can be sent a Produce request now, or how long to wait: for a connection, or while it throttles us (KIP-219).

Owns the connections that are being opened and the ends of throttles. It knows nothing of batches.
"""

from __future__ import annotations

import time
from typing import Final

from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.cluster.connection_opener import CHECK_S, ConnectionOpener

#: Produce has a connection of its own: a broker answers one connection's requests in order, and the answer to acks=all may
#: take as long as replication does. A look-up behind it would time out, and close the connection.
PURPOSE: Final = "produce"


class BrokerReadiness:
    """The brokers that can be sent a Produce request. Not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._opener = ConnectionOpener(cluster, PURPOSE)
        #: Node id -> when it reads requests again, on the monotonic clock.
        self._throttled_until: dict[int, float] = {}

    def throttle(self, node: int, throttle_time_ms: int) -> None:
        """Notes an answer's throttle time: for so long the broker reads no requests of this client."""
        if throttle_time_ms > 0:
            self._throttled_until[node] = time.monotonic() + throttle_time_ms / 1000

    def throttled_s(self, node: int) -> float:
        """Seconds until the broker's throttle ends, 0 if it does not throttle."""
        return max(0.0, self._throttled_until[node] - time.monotonic()) if node in self._throttled_until else 0.0

    def connecting_s(self, node: int) -> float:
        """0 if there is a connection, else the seconds after which to ask again; begins to open one if there is none.

        Raises:
            WireError: the broker could not be reached, or refused us; the next call tries again.
        """
        return 0.0 if self._opener.ready(node) else CHECK_S
