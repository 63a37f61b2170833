"""The brokers' limits on an exactly-once query: how long its transactions may be open, and how long its marker lives.

A transaction is open from its task's first record to the end of its micro-batch, and none is open between micro-batches: the
interval of the trigger does not count for ``transaction.timeout.ms``. It counts for ``offsets.retention.minutes``, the life of a
marker after its micro-batch.
"""

from __future__ import annotations

import logging
from typing import Final

from pykafka_wire.options.logged_once import is_first
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import describe_broker_configs
from pykafka_wire.wire.errors import WireError

_log = logging.getLogger(__name__)

MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
_RETENTION: Final = "offsets.retention.minutes"
#: Kafka's default of it. Up to there the marker's expiry is a warning.
_DEFAULT_RETENTION_MINUTES: Final = 7 * 24 * 60


def max_timeout_ms(cluster: Cluster) -> int | None:
    """Return the largest ``transaction.timeout.ms`` that the brokers allow; None where their settings may not be read."""
    try:
        config = describe_broker_configs(cluster, next(iter(cluster.metadata.brokers())), [MAX_TIMEOUT]).get(
            MAX_TIMEOUT
        )
        return int(config) if config else None
    except WireError:
        return None


def warn_of_timeout(cluster: Cluster, batch_id: int, took_s: float) -> None:
    """Warn where a micro-batch comes near the time-out of its transactions."""
    timeout_s = cluster.settings.transaction_timeout_ms / 1000
    if took_s > timeout_s / 2:
        cap_ms = max_timeout_ms(cluster)
        _log.warning(
            "Micro-batch %d took %.0f s from its start to its decision. After kafka.transaction.timeout.ms (%.0f s) the brokers "
            "abort its transactions, and it fails. Raise that setting (the brokers allow up to %s), or make micro-batches smaller",
            batch_id,
            took_s,
            timeout_s,
            "an unknown value" if cap_ms is None else f"{cap_ms / 1000:.0f} s",
        )


def warn_of_expiry(cluster: Cluster, transactional_id: str) -> None:
    """Log, once for a query, how long the marker outlives the last micro-batch."""
    if not is_first(transactional_id, "marker"):
        return
    try:
        minutes = int(
            describe_broker_configs(cluster, next(iter(cluster.metadata.brokers())), [_RETENTION])[_RETENTION] or 0
        )
    except (WireError, KeyError):
        _log.info("%s is unknown: a query that is idle for longer loses its marker, and fails", _RETENTION)
        return
    level = logging.WARNING if 0 < minutes <= _DEFAULT_RETENTION_MINUTES else logging.INFO
    _log.log(
        level,
        "The marker of %r expires %.1f days after the last micro-batch (%s=%d): a query that is idle for longer fails at its "
        "next micro-batch. If this query may be idle for so long, raise the brokers' setting",
        transactional_id,
        minutes / (24 * 60),
        _RETENTION,
        minutes,
    )
