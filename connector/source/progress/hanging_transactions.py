"""Open transactions that hang: why a ``read_committed`` query finds nothing new.

Owns the check of what holds the last stable offsets back, and the warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from pykafka_wire.wire.cluster.admin import LATEST, ListedOffset, list_offsets
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.cluster.describe import open_transactions
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.topic_partitions import TopicPartition

_log = logging.getLogger(__name__)

#: A transaction that holds a query back for so long is warned of. Kafka's own limit for one is 15 minutes by default, a producer's
#: is 1 (transaction.max.timeout.ms, transaction.timeout.ms).
_HANGING_S = 60.0
#: How long the check may wait for the ends of the logs, and for the transactions' names.
_ENDS_MS: Final = 5_000
_NAMES_MS: Final = 5_000


class HangingTransactionWatch:
    """Checks now and then for transactions that hold a query back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._checked_at = self._tried_at = 0.0
        self._held: dict[TopicPartition, int] = {}

    def check(self, stable: Mapping[TopicPartition, ListedOffset]) -> None:
        """Warn of open transactions that have kept the last ``stable`` offsets where they were at the last check.

        A check that fails is skipped, as where a topic vanishes in that moment: the query's next snapshot of the logs finds
        what is wrong.
        """
        now = time.monotonic()
        if now - self._tried_at < _HANGING_S:
            return
        self._tried_at = now
        try:
            high_watermarks = list_offsets(
                self._cluster, dict.fromkeys(stable, LATEST), deadline=Deadline.after_ms(_ENDS_MS)
            )
        except WireError as error:
            _log.debug("No check for hanging transactions: %s", error)
            return
        held = {tp: found.offset for tp, found in stable.items() if found.offset < high_watermarks[tp].offset}
        hanging = {tp: offset for tp, offset in held.items() if self._held.get(tp) == offset}
        if hanging:
            named = open_transactions(self._cluster, hanging, deadline=Deadline.after_ms(_NAMES_MS))
            _log.warning(
                "Open transactions have held up the query for %.0f s: %s. Their coordinators abort them after their "
                "transaction.timeout.ms; those of an exactly-once query end when it starts again. If one stays open, run "
                "pykafka-wire transactions: it shows those that no coordinator knows. Abort no other one in its partition: "
                "records that its producer commits would be lost",
                now - self._checked_at,
                "; ".join((named or [f"{tp} at {offset}" for tp, offset in hanging.items()])[:20]),
            )
        self._held, self._checked_at = held, now
