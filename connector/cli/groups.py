"""``lag``, ``commit`` and ``reset``: how far a consumer group is, and where it is to go on."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from pykafka_wire.cli.connection import connected, connection_options, output
from pykafka_wire.cli.output import console, sparkline, table_of
from pykafka_wire.cli.times import place_of
from pykafka_wire.cli.topics import partitions_of
from pykafka_wire.wire.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.describe import describe_group
from pykafka_wire.wire.group import CommittedOffset, commit_offsets, fetch_offsets
from pykafka_wire.wire.topics import TopicPartition

#: Looks that the sparkline shows: a terminal is 80 columns wide.
_HISTORY: Final = 60


@click.command()
@connection_options
@click.argument("group")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--count", type=click.IntRange(1), help="With --watch: end after so many looks.")
@click.option(
    "--fail-above", type=click.IntRange(0), metavar="N", help="End with code 1 where the whole lag is above N."
)
def lag(
    group: str, topics: tuple[str, ...], watch: bool, every: float, count: int | None, fail_above: int | None
) -> None:
    """Show how far GROUP is behind the ends of its topics."""
    empty = f"Group {group} has committed no offset."
    with connected() as cluster:
        if not watch:
            rows = _lag_rows(cluster, group, topics)
            output().rows(rows, empty=empty)
        elif output().json:
            for rows in _looks(cluster, group, topics, every, count):
                output().document({"time_ms": int(time.time() * 1000), "lag": _total(rows), "partitions": rows})
        else:
            rows = _watch(_looks(cluster, group, topics, every, count), group)
    if fail_above is not None and _total(rows) > fail_above:
        click.echo(f"The lag of {_total(rows)} is above {fail_above}.", err=True)
        sys.exit(1)


def _watch(looks: Iterable[list[dict[str, Any]]], group: str) -> list[dict[str, Any]]:
    """Shows each look in the place of the one before, or below it where there is no terminal; returns the last one."""
    history: deque[int] = deque(maxlen=_HISTORY)
    rows: list[dict[str, Any]] = []
    to = console()
    with Live(console=to, auto_refresh=False) if to.is_terminal else nullcontext() as live:
        for rows in looks:
            history.append(_total(rows))
            line = Text(f"lag {history[-1]}  {sparkline(history)}")
            shown = Lines(table_of(rows, title=f"group {group}"), line) if rows else line
            if live is None:
                to.print(shown)
            else:
                live.update(shown, refresh=True)
    return rows


def _looks(
    cluster: Cluster, group: str, topics: tuple[str, ...], every: float, count: int | None
) -> Iterator[list[dict[str, Any]]]:
    n_looks = 0
    while True:
        yield _lag_rows(cluster, group, topics)
        n_looks += 1
        if n_looks == count:
            return
        time.sleep(every)


def _total(rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(row["lag"] for row in rows)


def _lag_rows(cluster: Cluster, group: str, topics: tuple[str, ...]) -> list[dict[str, Any]]:
    committed = fetch_offsets(cluster, group, None)
    chosen = sorted(tp for tp in committed if not topics or tp.topic in topics)
    known = cluster.topics(None)
    there = [tp for tp in chosen if tp.topic in known and tp.partition in known[tp.topic].partitions]
    isolation = cluster.settings.isolation_level
    ends = list_offsets(cluster, dict.fromkeys(there, LATEST), isolation_level=isolation) if there else {}
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "committed": committed[tp].offset,
            "latest": ends[tp].offset,
            "lag": max(0, ends[tp].offset - committed[tp].offset),
        }
        for tp in there
    ]


@click.command()
@connection_options
@click.argument("group")
@click.argument("places", metavar="TOPIC:PARTITION=OFFSET…", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Say what would be committed, and commit nothing.")
def commit(group: str, places: tuple[str, ...], dry_run: bool) -> None:
    """Commit offsets to GROUP, which must have no member at work.

    A running Spark query does not read them back: its checkpoint says where it goes on. They count for consumers, for lag,
    and for a new query with startingOffsets=group.
    """
    wanted = dict(_parse_place(place) for place in places)
    with connected() as cluster:
        for tp in wanted:
            if tp not in partitions_of(cluster, tp.topic):
                raise click.UsageError(f"Topic {tp.topic} has no partition {tp.partition}.")
        _move(cluster, group, wanted, dry_run)


def _parse_place(place: str) -> tuple[TopicPartition, int]:
    where, _, offset = place.rpartition("=")
    topic, _, partition = where.rpartition(":")
    if not topic or not partition.isdigit() or not offset.isdigit():
        raise click.UsageError(f"{place} is not TOPIC:PARTITION=OFFSET, as in orders:0=42.")
    return TopicPartition(topic, int(partition)), int(offset)


@click.command(context_settings={"ignore_unknown_options": True})
@connection_options
@click.argument("group")
@click.option("--topic", "topics", multiple=True, required=True, help="The topic; may be repeated.")
@click.option(
    "--to",
    "place",
    required=True,
    metavar="PLACE",
    help="earliest, latest, an offset, +N or -N from what is committed, or a time (ISO-8601, or relative as in -10m).",
)
@click.option("--dry-run", is_flag=True, help="Say what would be committed, and commit nothing.")
def reset(group: str, topics: tuple[str, ...], place: str, dry_run: bool) -> None:
    """Move the offsets of GROUP, which must have no member at work, in every partition of a topic.

    Offsets outside of the log are moved to its nearer end; where no record is as late as a time, to the log's end. As with
    commit, a Spark query goes by its checkpoint.
    """
    kind, number = place_of(place)
    with connected() as cluster:
        partitions = [tp for topic in topics for tp in partitions_of(cluster, topic)]
        earliest = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
        latest = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
        if kind == "time":
            found = list_offsets(cluster, dict.fromkeys(partitions, number))
            wanted = {tp: at.offset if at.offset >= 0 else latest[tp].offset for tp, at in found.items()}
        elif kind == "offset":
            wanted = dict.fromkeys(partitions, number)
        else:
            committed = fetch_offsets(cluster, group, partitions)
            missing = [str(tp) for tp in partitions if tp not in committed]
            if missing:
                raise click.UsageError(f"Group {group} has committed nothing for {', '.join(missing)} to move from.")
            wanted = {tp: committed[tp].offset + number for tp in partitions}
        within = {tp: min(max(at, earliest[tp].offset), latest[tp].offset) for tp, at in wanted.items()}
        _move(cluster, group, within, dry_run)


def _move(cluster: Cluster, group: str, wanted: Mapping[TopicPartition, int], dry_run: bool) -> None:
    before = fetch_offsets(cluster, group, wanted)
    described = describe_group(cluster, group)
    if described.members and not dry_run:
        raise click.ClickException(
            f"Group {group} has members at work ({', '.join(described.members)}), whose commits would undo this. "
            "Stop them first."
        )
    if not dry_run:
        commit_offsets(cluster, group, {tp: CommittedOffset(offset) for tp, offset in wanted.items()})
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "before": before[tp].offset if tp in before else None,
            "after": offset,
        }
        for tp, offset in sorted(wanted.items())
    ]
    output().rows(rows)
    output().say("Dry run: nothing was committed." if dry_run else f"Committed to group {group}.")
