"""Orphaned transactions: those that tasks have left open, and that no driver will commit. They hold read_committed readers back.

They are aborted under the driver's fencing token: from then on no earlier driver can decide anything, so what the marker does not
list will never be committed. A later driver's transactions are safe: they begin after it has fenced this one, and nothing is ended
unless this driver is still the latest after all that is open was listed (docs/exactly-once.md).

What the coordinators know of a query's ids also tells whether a query without a marker has committed before: then its marker is
lost, and it is unknown what is in Kafka. InitProducerId resets the state of the query's own id; the ids of its tasks keep theirs
until a later micro-batch uses them again, so those of a committed micro-batch 0 keep it while that one can be replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.marker import FoundMarker, Marker, UnreadableMarker, read_markers
from pykafka_wire.sink.exactly_once.recovery import commit_decided
from pykafka_wire.sink.exactly_once.task_ids import is_task_id, task_prefix
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import DescribedTransaction, describe_transaction, last_known_state
from pykafka_wire.wire.errors import UnsupportedVersionError, WireError
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.transactions.bulk import abort_all, describe_all, list_in_states, list_open
from pykafka_wire.wire.transactions.coordinator import TransactionHandle

if TYPE_CHECKING:  # the command line needs no options
    from pykafka_wire.options.sink import ExactlyOnceOptions

_log = logging.getLogger(__name__)

#: States of a transaction that is committed, or is going to be: the coordinator has decided.
_COMMITTED: Final = ("PrepareCommit", "CompleteCommit")


def clean_up(cluster: Cluster, options: ExactlyOnceOptions, handle: TransactionHandle) -> None:
    """Commit the open transactions of tasks that the marker lists, and abort the others. Never raises a broker's error: what stays
    open ends by its time-out.

    Args:
        handle: the driver's, with the epoch that the coordinator has now.
    """
    try:
        committed, aborted = _clean_up(cluster, options, handle)
    except UnsupportedVersionError:
        _log.info("Transactions that were left open end by their time-out: brokers before Kafka 3.0 do not list them")
        return
    except WireError as error:
        _log.warning("Transactions that were left open may not have been found, and end by their time-out: %s", error)
        return
    if committed or aborted:
        _log.info(
            "%r: ended transactions that had been left open: %d committed because the marker lists them, and %d aborted",
            options.transactional_id,
            committed,
            aborted,
        )


def _clean_up(cluster: Cluster, options: ExactlyOnceOptions, handle: TransactionHandle) -> tuple[int, int]:
    """Return how many were committed, and aborted."""
    orphans = [
        TransactionHandle(
            transactional_id=transaction.transactional_id,
            identity=ProducerIdentity(transaction.producer_id, transaction.producer_epoch),
            version=handle.version,
        )
        for transaction in open_transactions(cluster, options.transactional_id)
        if transaction.state == "Ongoing"
    ]
    if not orphans:
        return 0, 0
    markers = read_markers(cluster, options.transactional_id, options.marker_topic)
    if not is_latest(cluster, handle):
        _log.warning(
            "Another driver has taken over %r: that driver ends the open transactions", options.transactional_id
        )
        return 0, 0
    n_committed = sum(
        _commit_listed(cluster, options, marker, {orphan.identity for orphan in orphans})
        for marker in markers.values()
        if isinstance(marker, Marker)
    )
    listed = find_decided(markers.values())
    is_lost = (
        options.marker_topic not in markers
        and options.fail_on_missing_marker
        and tasks_have_committed(cluster, options.transactional_id)
    )
    if listed is None or is_lost:
        _log.warning(
            "Transactions that were left open, up to %d, end by their time-out: the marker, which may list them, %s",
            len(orphans) - n_committed,
            "is lost" if is_lost else f"or a part of its list, cannot be read under the topic {' or '.join(markers)}",
        )
        return n_committed, 0
    abandoned = [orphan for orphan in orphans if orphan.identity not in listed]
    abort_all(cluster, abandoned)
    return n_committed, len(abandoned)


def _commit_listed(
    cluster: Cluster, options: ExactlyOnceOptions, marker: Marker, is_open: Set[ProducerIdentity]
) -> int:
    """Commit those of a marker's list that are open; how many. What cannot be committed is left to the replay, which reports it."""
    listed = tuple(task for task in marker.pending if task.transaction.identity in is_open)
    if not listed:
        return 0
    try:
        decided = replace(marker, pending=listed)
        return len(listed) - len(commit_decided(cluster, decided, fail_on_unknown=options.fail_on_missing_marker))
    except ExactlyOnceError as error:
        _log.warning("Decided transactions stay open until the micro-batch is committed again: %s", error)
        return 0


def open_transactions(cluster: Cluster, transactional_id: str) -> list[DescribedTransaction]:
    """Return the transactions of a query's tasks that have not ended, by name.

    Raises:
        UnsupportedVersionError: the brokers are older than Kafka 3.0.
    """
    listed = [transaction.transactional_id for transaction in list_open(cluster, task_prefix(transactional_id))]
    return list(describe_all(cluster, [name for name in listed if is_task_id(transactional_id, name)]).values())


def find_decided(markers: Iterable[FoundMarker]) -> set[ProducerIdentity] | None:
    """Return the transactions that markers list; None where one, or a part of its list, cannot be read, so that any may be
    decided."""
    decided: set[ProducerIdentity] = set()
    for marker in markers:
        if isinstance(marker, UnreadableMarker) or (marker is not None and marker.missing_parts):
            return None
        decided |= {task.transaction.identity for task in marker.pending} if marker is not None else set()
    return decided


def is_latest(cluster: Cluster, handle: TransactionHandle) -> bool:
    """Return whether no other driver has taken over the id since: its epoch would be higher."""
    described = describe_transaction(cluster, handle.transactional_id)
    return (
        described is not None and ProducerIdentity(described.producer_id, described.producer_epoch) == handle.identity
    )


def own_id_has_committed(cluster: Cluster, transactional_id: str) -> bool:
    """Return whether the last transaction of a query's own id was committed, as far as is known. An InitProducerId since then
    hides it."""
    state = last_known_state(cluster, transactional_id)
    return state is not None and state.state in _COMMITTED


def tasks_have_committed(cluster: Cluster, transactional_id: str) -> bool:
    """Return whether a transaction of a query's tasks was committed, as far as is known: brokers before Kafka 3.0 do not list them.

    Raises:
        WireError: a broker does not respond.
    """
    try:
        committed = list_in_states(cluster, task_prefix(transactional_id), _COMMITTED)
    except UnsupportedVersionError:
        return False
    return any(is_task_id(transactional_id, transaction.transactional_id) for transaction in committed)
