"""The driver's fencing token: the producer id and epoch of the query's transactional id, before a micro-batch's tasks start.

From then on no earlier driver can decide anything, so what is open and not in the marker can be aborted: steps FENCE and
RECOVER of docs/exactly-once.md. Spark plans a write in one process and commits it in another one: the token gets to the tasks with
the writer, and to the commit with their messages.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.names import PREFIX
from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once.broker_limits import MAX_TIMEOUT, max_timeout_ms, warn_of_expiry
from pykafka_wire.sink.exactly_once.marker import read_markers
from pykafka_wire.sink.exactly_once.orphaned_transactions import clean_up, own_id_has_committed
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError, WireError
from pykafka_wire.wire.transactions.coordinator import TransactionHandle, init_transaction

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingToken:
    """Fences every driver before this one, and is fenced by the next one.

    Attributes:
        handle: of the transaction in which the micro-batch is decided.
        made_at: in seconds since the epoch, by the driver's clock: before any task of the micro-batch has started.
    """

    handle: TransactionHandle
    made_at: float


def fence_micro_batch(cluster: Cluster, options: ExactlyOnceOptions) -> FencingToken:
    """Fence earlier drivers, and end what they left open, before the next micro-batch.

    Raises:
        ExactlyOnceError: the marker is lost, or the id cannot be used.
    """
    made_at = time.time()
    try:
        once_per_process(cluster, options, _check_at_start)
        handle = init_transaction(cluster, options.transactional_id)
        clean_up(cluster, options, handle)
    except WireError as error:
        raise ExactlyOnceError(f"the micro-batch was not started: {_explain(cluster, error)}") from error
    return FencingToken(handle=handle, made_at=made_at)


def _check_at_start(cluster: Cluster, options: ExactlyOnceOptions) -> None:
    """Check, when a process plans its first micro-batch: refuse to go on without a marker if the id has committed, which this
    query does only together with a marker. InitProducerId changes the id's state, so this is first.
    """
    if options.fail_on_missing_marker and own_id_has_committed(cluster, options.transactional_id):
        markers = read_markers(cluster, options.transactional_id, options.marker_topic)
        if options.marker_topic not in markers:
            under = f" under markerTopic={options.marker_topic}, but under {', '.join(markers)}" if markers else ""
            raise ExactlyOnceError(
                f"kafka.transactional.id {options.transactional_id!r} has committed a transaction, and there is no marker{under} "
                "(is markerTopic another one? was its group deleted? did it expire, offsets.retention.minutes? does another "
                "producer use the id?): it is unknown which micro-batches are in Kafka. Use a kafka.transactional.id of this "
                "query's own, or compare the topic with the source and set failOnMissingMarker=false for one start."
            )
    timeout_ms = cluster.settings.transaction_timeout_ms
    _log.info(
        "Each micro-batch has to be decided within kafka.transaction.timeout.ms=%d of its start; the brokers allow up to %s=%s",
        timeout_ms,
        MAX_TIMEOUT,
        max_timeout_ms(cluster) or "unknown",
    )
    warn_of_expiry(cluster, options.transactional_id)


def _explain(cluster: Cluster, error: WireError) -> str:
    if isinstance(error, BrokerError) and error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        cap_ms = max_timeout_ms(cluster)
        error.remedy = (
            f"{{transaction.timeout.ms}} is {cluster.settings.transaction_timeout_ms}: lower it to the brokers' {MAX_TIMEOUT}"
            + (f" ({cap_ms})." if cap_ms else ".")
        )
    return error.with_prefix(PREFIX).text


#: What processes have done, by the cluster that they did it with: a forked child does it again.
_done: WeakKeyDictionary[Cluster, set[tuple[object, ...]]] = WeakKeyDictionary()


def once_per_process(
    cluster: Cluster, options: ExactlyOnceOptions, act: Callable[..., None], *arguments: object
) -> None:
    """Call `act` with these arguments, unless this process has done so for the query, without an error."""
    key = (os.getpid(), options.transactional_id, act)
    done = _done.setdefault(cluster, set())
    if key not in done:
        act(cluster, options, *arguments)
        done.add(key)
