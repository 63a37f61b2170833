"""``transactions``: open transactions, since when they are open, and which of them hang.

A transaction hangs if it is open in a partition and unknown to every coordinator. No timeout ends it, and read_committed
consumers wait for it for ever (KIP-664).
"""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from pykafka_wire.cli.connection import connected, connection_options, output
from pykafka_wire.cli.exactly_once import show_own
from pykafka_wire.cli.offsets import partitions_of
from pykafka_wire.cli.times import format_timestamp
from pykafka_wire.wire.cluster.admin import list_topics
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.cluster.describe import list_transactions, open_producers


@click.command()
@connection_options
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
    """Show open and hanging transactions. Exits with code 1 if one hangs."""
    if query is None and (abort or yes):
        raise click.UsageError("--abort needs --of ID: it ends the transactions of one query's tasks.")
    if query is not None and (topics or every):
        raise click.UsageError("--of shows the open transactions of one query: leave out --topic and --all.")
    if query is not None:
        with connected() as cluster:
            show_own(cluster, query, abort=abort, yes=yes)
        return
    with connected() as cluster:
        rows = _rows(cluster, topics)
    shown = [row for row in rows if every or row["state"] not in ("Empty", "CompleteCommit", "CompleteAbort")]
    output().rows(shown, empty="No transaction is open.", only_if_wide=("producer id", "epoch", "since"))
    hung = [row for row in shown if row["state"] == "HUNG"]
    if hung:
        output().message(
            "To end a hanging transaction: kafka-transactions.sh abort --topic TOPIC --partition N --start-offset OFFSET."
        )
        sys.exit(1)


def _rows(cluster: Cluster, topics: tuple[str, ...]) -> list[dict[str, Any]]:
    partitions = [tp for topic in topics or list_topics(cluster) for tp in partitions_of(cluster, topic)]
    # Partitions, coordinators, partitions again: a transaction that begins or ends meanwhile must not count as hanging.
    in_partitions = open_producers(cluster, partitions) if partitions else []
    known = list_transactions(cluster)
    coordinated = {each.producer_id for each in known if each.is_open}
    suspects = [each for each in in_partitions if each.producer_id not in coordinated]
    still = open_producers(cluster, {each.topic_partition for each in suspects}) if suspects else []
    places = {(each.topic_partition, each.producer_id, each.start_offset) for each in still}
    hung = [each for each in suspects if (each.topic_partition, each.producer_id, each.start_offset) in places]
    now_ms = int(time.time() * 1000)
    rows: list[dict[str, Any]] = [
        {
            "transactional id": each.transactional_id,
            "state": each.state,
            "producer id": each.producer_id,
            "epoch": each.producer_epoch,
            "since": format_timestamp(each.started_ms) if each.is_open else None,
            "open for s": (now_ms - each.started_ms) // 1000 if each.is_open and each.started_ms >= 0 else None,
            "timeout s": each.timeout_ms // 1000,
            "partitions": [str(tp) for tp in each.partitions],
        }
        for each in known
    ]
    rows += [
        {
            "transactional id": None,
            "state": "HUNG",
            "producer id": each.producer_id,
            "epoch": each.producer_epoch,
            "since": format_timestamp(each.last_timestamp_ms),
            "open for s": (now_ms - each.last_timestamp_ms) // 1000,
            "timeout s": None,
            "partitions": [f"{each.topic_partition} from offset {each.start_offset}"],
        }
        for each in hung
    ]
    return rows
