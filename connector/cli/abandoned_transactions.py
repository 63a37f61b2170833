"""The open transactions of an exactly-once query's tasks: decided or abandoned.

With ``transactions=tasks`` a query's tasks leave transactions open, and its driver decides them (docs/exactly-once.md).
"""

from __future__ import annotations

import time
from typing import Any

import click

from pykafka_wire.cli.connection import output
from pykafka_wire.cli.output import counted, format_timestamp
from pykafka_wire.sink.exactly_once.marker import read_markers
from pykafka_wire.sink.exactly_once.orphaned_transactions import (
    find_decided,
    open_transactions,
    own_id_has_committed,
    tasks_have_committed,
)
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import DescribedTransaction
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.transactions.bulk import abort_all
from pykafka_wire.wire.transactions.coordinator import TransactionHandle, TransactionVersion, init_transaction


def show_own(cluster: Cluster, transactional_id: str, *, abort: bool, yes: bool) -> None:
    """Show the open transactions of a query's tasks. With `abort`, abort the undecided ones after asking for confirmation."""
    described = open_transactions(cluster, transactional_id)
    decided = _look_up_decided(cluster, transactional_id)
    rows = [transaction_row(transaction, decision=_decision(transaction, decided)) for transaction in described]
    output().rows(rows, empty=f"No task of {transactional_id} has an open transaction.", only_if_wide=("since",))
    if rows and decided is None:
        output().message(
            "The marker is lost or cannot be read, so each of them may be decided. They end after their timeout. To see "
            f"what was found in its place, run pykafka-wire marker {transactional_id}."
        )
        return
    abandoned = [transaction for transaction in described if _is_abandoned(transaction, decided)]
    if any(row["decision"] == "decided" for row in rows):
        output().message("Decided transactions are committed when the query starts again.")
    if not abandoned:
        return
    if not abort:
        output().message(
            "Abandoned transactions are aborted when the query starts again, or after their timeout; --abort does so now. If the "
            "query is running, they belong to its running micro-batch."
        )
        return
    question = (
        f"Abort {counted(len(abandoned), 'transaction')} of {transactional_id}? If the query is running, its micro-batch fails, "
        "and is written again when the query starts again."
    )
    if not yes:
        click.confirm(question, abort=True, err=True)
    # From here on no driver can decide these transactions. One may have been decided while the question was open.
    init_transaction(cluster, transactional_id)
    decided = _look_up_decided(cluster, transactional_id)
    version = TransactionVersion.of(cluster)
    handles = [
        TransactionHandle(
            transactional_id=transaction.transactional_id, identity=_identity(transaction), version=version
        )
        for transaction in abandoned
        if _is_abandoned(transaction, decided)
    ]
    n_aborted = sum(not code for code in abort_all(cluster, handles).values())
    n_left = len(abandoned) - n_aborted
    rest = f", {n_left} had ended meanwhile, or were decided." if n_left else "."
    output().message(f"{n_aborted} aborted{rest}")


def _look_up_decided(cluster: Cluster, transactional_id: str) -> set[ProducerIdentity] | None:
    """Return the transactions that a marker lists; None if a marker is lost or cannot be read."""
    markers = read_markers(cluster, transactional_id)
    if not markers and (
        own_id_has_committed(cluster, transactional_id) or tasks_have_committed(cluster, transactional_id)
    ):
        return None
    return find_decided(markers.values())


def _is_abandoned(transaction: DescribedTransaction, decided: set[ProducerIdentity] | None) -> bool:
    return decided is not None and _identity(transaction) not in decided and transaction.state == "Ongoing"


def _identity(transaction: DescribedTransaction) -> ProducerIdentity:
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def _decision(transaction: DescribedTransaction, decided: set[ProducerIdentity] | None) -> str:
    return "unknown" if decided is None else "decided" if _identity(transaction) in decided else "abandoned"


def transaction_row(transaction: DescribedTransaction, **more: str) -> dict[str, Any]:
    """Return a row for a transaction; ``more`` adds columns after its state."""
    since_ms = transaction.started_ms if transaction.is_open else -1
    return {
        "transactional id": transaction.transactional_id,
        "state": transaction.state,
        **more,
        "producer id": transaction.producer_id,
        "epoch": transaction.producer_epoch,
        "since": format_timestamp(since_ms),
        "open for s": int(time.time() * 1000 - since_ms) // 1000 if since_ms >= 0 else None,
        "timeout s": transaction.timeout_ms // 1000,
        "partitions": [str(tp) for tp in transaction.partitions],
    }
