"""Whether a broker can be sent a request now, or how long to wait: for a connection, or while it throttles us (KIP-219).

Owns the threads that wait for a broker's handshake, and the ends of throttles. A broker that accepts connections and responds to
nothing (stopped, overloaded) takes up to ``socket.connection.setup.timeout.ms``, in which a reader or writer of many brokers must
go on with the rest.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from pykafka_wire.wire.cluster.cluster import Cluster

#: Most handshakes take less: those are waited for, which costs no more than one after the other on the caller's thread.
_SOON_S: Final = 0.25
#: How often to see whether a connection has been opened that takes longer than usual.
CHECK_S: Final = 0.05


class BrokerReadiness:
    """The brokers of one purpose that can be sent a request. Opens each connection in a thread of its own. Not thread-safe."""

    def __init__(self, cluster: Cluster, purpose: str) -> None:
        self._cluster = cluster
        self._purpose = purpose
        self._opening: dict[int, _Opening] = {}
        #: Node id -> when it reads requests again, on the monotonic clock.
        self._throttled_until: dict[int, float] = {}

    def throttle(self, node_id: int, throttle_time_ms: int) -> None:
        """Note a response's throttle time: for so long the broker reads no requests of this client."""
        if throttle_time_ms > 0:
            self._throttled_until[node_id] = time.monotonic() + throttle_time_ms / 1000

    def throttled_s(self, node_id: int) -> float:
        """Seconds until the broker's throttle ends, 0 if it does not throttle."""
        until = self._throttled_until.get(node_id)
        return 0.0 if until is None else max(0.0, until - time.monotonic())

    def ready(self, node_id: int) -> bool:
        """Whether a request to a broker need not wait for a connection; begins to open one if there is none.

        Raises:
            WireError: the broker could not be reached, or refused us; the next call tries again.
        """
        if self._cluster.is_connected(node_id, purpose=self._purpose):
            self._opening.pop(node_id, None)
            return True
        opening = self._opening.get(node_id)
        if opening is None:
            opening = self._opening[node_id] = _Opening(self._cluster, node_id, self._purpose)
            opening.start()
            opening.join(_SOON_S)
        if opening.is_alive():
            return False
        del self._opening[node_id]
        if opening.error is not None:
            raise opening.error
        return True


class _Opening(threading.Thread):
    """One connection being opened."""

    def __init__(self, cluster: Cluster, node_id: int, purpose: str) -> None:
        super().__init__(name=f"connect to broker {node_id}", daemon=True)
        self._cluster = cluster
        self._node_id = node_id
        self._purpose = purpose
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._cluster.connect(self._node_id, purpose=self._purpose)
        except Exception as error:  # raised again where the connection was asked for
            self.error = error
