"""Open transactions: why a ``read_committed`` query stands still.

Owns the look at what holds a last stable offset back, and the warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from pykafka_wire.source.planning.resolve import latest_offsets
from pykafka_wire.wire.cluster.admin import ListedOffset
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.cluster.describe import open_transactions
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.topics import TopicPartition

_log = logging.getLogger(__name__)

#: A transaction that holds a query up for so long is worth a word: Kafka's own limit for one is 15 minutes by default, a
#: producer's is 1 (transaction.max.timeout.ms, transaction.timeout.ms).
_STALL_S = 60.0
#: How long the warning may wait for brokers to name them.
_STALL_NAMES_MS = 5_000


class StallWatch:
    """Looks now and then at what keeps a query from going on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._looked_at = self._tried_at = 0.0
        self._held: dict[TopicPartition, int] = {}

    def look(self, stable: Mapping[TopicPartition, ListedOffset]) -> None:
        """Warn of open transactions that have kept the last ``stable`` offsets where they were at the last look.

        A look that fails is skipped; what is wrong the query's own next look at its logs will say.
        """
        now = time.monotonic()
        if now - self._tried_at < _STALL_S:
            return
        self._tried_at = now
        try:
            written = latest_offsets(self._cluster, stable, "read_uncommitted")
        except WireError as error:
            _log.debug("No look at open transactions: %s", error)
            return
        held = {tp: found.offset for tp, found in stable.items() if found.offset < written[tp].offset}
        stalled = {tp: offset for tp, offset in held.items() if self._held.get(tp) == offset}
        if stalled:
            named = open_transactions(self._cluster, stalled, deadline=Deadline.after_ms(_STALL_NAMES_MS))
            _log.warning(
                "Open transactions have held up the query for %.0f s: %s. Wait for them to end; one whose producer is gone is "
                "aborted by kafka-transactions.sh abort.",
                now - self._looked_at,
                "; ".join((named or [f"{tp} at {offset}" for tp, offset in stalled.items()])[:20]),
            )
        self._held, self._looked_at = held, now
