"""``transactions``: open transactions, how long they have been open, and which of them hang.

A transaction hangs if it is open in a partition but unknown to every coordinator. No timeout ends it, and read_committed consumers
wait for it forever (KIP-664). A coordinator is the leader of a partition of ``__transaction_state``. While such a partition has no
leader, its transactions are unknown, too, but they do not hang.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import click

from pykafka_wire.cli.abandoned_transactions import show_own, transaction_row
from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.offsets import explain, find_leaders, partitions_of
from pykafka_wire.cli.output import FAILED, format_timestamp
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import list_topics
from pykafka_wire.wire.cluster.describe import DescribedTransaction, OpenProducer, list_transactions, open_producers
from pykafka_wire.wire.topic_partitions import TopicPartition

#: The leaders of this topic's partitions are the coordinators of transactions.
_STATE_TOPIC: Final = "__transaction_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transactions:
    """Transactions of a cluster.

    Attributes:
        known: transactions that a coordinator knows.
        uncoordinated: transactions that are open in a partition but that no coordinator knows.
        without_leader: the partitions of ``__transaction_state`` without a leader, such as ``__transaction_state-3 (no leader)``.
            If there are any, it is unknown whether the uncoordinated transactions hang.
        not_searched: the partitions that could not be searched, such as ``orders-1 (no leader)``.
    """

    known: list[DescribedTransaction]
    uncoordinated: list[OpenProducer]
    without_leader: list[str]
    not_searched: list[str]


@command()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Look for hanging transactions only in this topic; may be repeated [default: all topics].",
)
@click.option("--all", "every", is_flag=True, help="Include transactional ids without an open transaction.")
@click.option(
    "--of",
    "query",
    metavar="ID",
    help="Only the transactions of the tasks of this exactly-once query, decided or abandoned.",
)
@click.option(
    "--abort", is_flag=True, help="With --of: abort the abandoned transactions, after asking for confirmation."
)
@click.option("--yes", is_flag=True, help="With --abort: do not ask for confirmation.")
def transactions(topics: tuple[str, ...], every: bool, query: str | None, abort: bool, yes: bool) -> None:
    """Show open and hanging transactions. The exit code is 1 if a transaction hangs or may hang.

    A transaction hangs if no coordinator knows it. While a partition of __transaction_state has no leader, the
    state of such a transaction is UNKNOWN.
    """
    if query is None and (abort or yes):
        raise click.UsageError("--abort needs --of ID: it aborts the transactions of one query's tasks.")
    if query is not None:
        if topics or every:
            raise click.UsageError("--of shows the open transactions of one query: leave out --topic and --all.")
        with connected() as cluster:
            show_own(cluster, query, abort=abort, yes=yes)
        return
    with connected() as cluster:
        listed = _find(cluster, topics)
    rows = _rows(listed)
    shown = [row for row in rows if every or row["state"] not in ("Empty", "CompleteCommit", "CompleteAbort")]
    output().rows(shown, empty="No transaction is open.", only_if_wide=("producer id", "epoch", "since"))
    if listed.not_searched:
        click.echo(f"Not searched for hanging transactions: {', '.join(listed.not_searched)}.", err=True)
    if not listed.uncoordinated:
        return
    if listed.without_leader:
        click.echo(
            f"It is unknown whether transactions in state UNKNOWN hang. The leaders of {_STATE_TOPIC} coordinate transactions, "
            f"and these partitions have no leader: {', '.join(listed.without_leader)}. Abort nothing. Check the brokers "
            f"that have their replicas (pykafka-wire topics describe {_STATE_TOPIC} lists them), then run this command again.",
            err=True,
        )
    else:
        output().message(
            "No coordinator that you may ask knows the transactions in state HUNG. If you may describe all transactional ids, and "
            "kafka-transactions.sh find-hanging lists these transactions, too, abort them: kafka-transactions.sh abort --topic "
            "TOPIC --partition N --start-offset OFFSET. Abort no other transaction with that command: its coordinator would not "
            "notice, and records that its producer commits would be lost."
        )
    sys.exit(FAILED)


def _find(cluster: Cluster, topics: tuple[str, ...]) -> _Transactions:
    chosen = [tp for topic in topics or list_topics(cluster) for tp in partitions_of(cluster, topic)]
    partitions, unknown = find_leaders(cluster, chosen)
    not_searched = explain(unknown)
    # Ask partitions, coordinators, and partitions again: a transaction that begins or ends meanwhile must not count as hanging.
    in_partitions = open_producers(cluster, partitions) if partitions else []
    known = list_transactions(cluster)
    suspects = _unknown_to(known, in_partitions)
    if not suspects:
        return _Transactions(known=known, uncoordinated=[], without_leader=[], not_searched=not_searched)
    without_leader = _coordinators_without_leader(cluster)
    # Ask again after the wait for elections: a coordinator without a leader in the first list may have one now.
    again = list_transactions(cluster, sorted({suspect.producer_id for suspect in suspects}))
    known = list({transaction.transactional_id: transaction for transaction in (*known, *again)}.values())
    suspects = _unknown_to(known, suspects)
    still = open_producers(cluster, {suspect.topic_partition for suspect in suspects}) if suspects else []
    places = {(transaction.topic_partition, transaction.producer_id, transaction.start_offset) for transaction in still}
    uncoordinated = [
        suspect
        for suspect in suspects
        if (suspect.topic_partition, suspect.producer_id, suspect.start_offset) in places
    ]
    return _Transactions(
        known=known, uncoordinated=uncoordinated, without_leader=without_leader, not_searched=not_searched
    )


def _unknown_to(known: Iterable[DescribedTransaction], producers: Iterable[OpenProducer]) -> list[OpenProducer]:
    """Return the producers whose transactions are not among the open ones in ``known``."""
    coordinated = {transaction.producer_id for transaction in known if transaction.is_open}
    return [producer for producer in producers if producer.producer_id not in coordinated]


def _coordinators_without_leader(cluster: Cluster) -> list[str]:
    """Return the partitions of ``__transaction_state`` that have no leader even after an election; empty if the topic is not
    visible."""
    topic = cluster.metadata.topics(None).get(_STATE_TOPIC)
    if topic is None:
        return []
    _, unknown = find_leaders(cluster, [TopicPartition(_STATE_TOPIC, number) for number in topic.partitions])
    return explain(unknown)


def _rows(listed: _Transactions) -> list[dict[str, Any]]:
    now_ms = int(time.time() * 1000)
    rows = [transaction_row(transaction) for transaction in listed.known]
    rows += [
        {
            "transactional id": None,
            "state": "UNKNOWN" if listed.without_leader else "HUNG",
            "producer id": transaction.producer_id,
            "epoch": transaction.producer_epoch,
            "since": format_timestamp(transaction.last_timestamp_ms),
            "open for s": (now_ms - transaction.last_timestamp_ms) // 1000,
            "timeout s": None,
            "partitions": [f"{transaction.topic_partition} from offset {transaction.start_offset}"],
        }
        for transaction in listed.uncoordinated
    ]
    return rows
