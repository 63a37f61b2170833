"""``lag``, ``commit`` and ``reset``: how far a consumer group is, and where it is to go on."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from pykafka_wire.cli.connection import connected, connection_options, output
from pykafka_wire.cli.output import console, sparkline, table_of
from pykafka_wire.cli.times import place_of
from pykafka_wire.cli.topics import partitions_of
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.cluster.describe import describe_group
from pykafka_wire.wire.groups.offsets import CommittedOffset, commit_offsets, fetch_offsets
from pykafka_wire.wire.topics import TopicPartition

#: Looks that the sparkline shows: a terminal is 80 columns wide.
_HISTORY: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A row for each topic-partition with a committed offset. ``unknown`` are those whose ends cannot be seen, and topics that
    were asked for and have no such offset."""

    rows: list[dict[str, Any]]
    unknown: list[str]

    @property
    def lag(self) -> int:
        return sum(row["lag"] for row in self.rows)


@click.command(short_help="Show how far a group is behind.")
@connection_options
@click.argument("group")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--count", type=click.IntRange(1), help="With --watch: end after so many looks.")
@click.option(
    "--fail-above",
    type=click.IntRange(0),
    metavar="N",
    help="End with code 1 where the whole lag is above N, or not known.",
)
def lag(
    group: str, topics: tuple[str, ...], watch: bool, every: float, count: int | None, fail_above: int | None
) -> None:
    """Show how far GROUP is behind the ends of its topics."""
    if watch and fail_above is not None and count is None:
        raise click.UsageError("--watch with --fail-above judges the last look: say with --count which that is.")
    with connected() as cluster:
        if not watch:
            look = _look(cluster, group, topics)
            output().rows(look.rows, empty=f"Group {group} has committed no offset.")
        elif output().json:
            for look in _looks(cluster, group, topics, every, count):
                output().document({"time_ms": int(time.time() * 1000), "lag": look.lag, "partitions": look.rows})
        else:
            look = _watch(_looks(cluster, group, topics, every, count), group)
    if fail_above is not None and (alarm := _alarm(group, look, fail_above)) is not None:
        click.echo(alarm, err=True)
        sys.exit(1)


def _alarm(group: str, look: _Look, fail_above: int) -> str | None:
    """Why a check of the lag fails; None where it is known, and small enough."""
    if look.unknown or not look.rows:
        where = f" for {', '.join(look.unknown)}" if look.unknown else ""
        return (
            f"The lag of group {group} is not known{where}. Is the name right, has the group committed offsets that have not "
            "expired, is each topic there, and may you describe it?"
        )
    return f"The lag of {look.lag} is above {fail_above}." if look.lag > fail_above else None


def _watch(looks: Iterable[_Look], group: str) -> _Look:
    """Shows each look in the place of the one before, or below it where there is no terminal; returns the last one."""
    history: deque[int] = deque(maxlen=_HISTORY)
    to = console()
    with Live(console=to, auto_refresh=False) if to.is_terminal else nullcontext() as live:
        for look in looks:
            history.append(look.lag)
            line = Text(f"lag {history[-1]}  {sparkline(history)}")
            shown = Lines(table_of(look.rows, title=f"group {group}"), line) if look.rows else line
            if live is None:
                to.print(shown)
            else:
                live.update(shown, refresh=True)
    return look


def _looks(cluster: Cluster, group: str, topics: tuple[str, ...], every: float, count: int | None) -> Iterator[_Look]:
    n_looks = 0
    while True:
        yield _look(cluster, group, topics)
        n_looks += 1
        if n_looks == count:
            return
        time.sleep(every)


def _look(cluster: Cluster, group: str, topics: tuple[str, ...]) -> _Look:
    committed = fetch_offsets(cluster, group, None)
    chosen = sorted(tp for tp in committed if not topics or tp.topic in topics)
    known = cluster.topics(None)
    there = [tp for tp in chosen if tp.topic in known and tp.partition in known[tp.topic].partitions]
    isolation = cluster.settings.isolation_level
    ends = list_offsets(cluster, dict.fromkeys(there, LATEST), isolation_level=isolation) if there else {}
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "committed": committed[tp].offset,
            "latest": ends[tp].offset,
            "lag": max(0, ends[tp].offset - committed[tp].offset),
        }
        for tp in there
    ]
    unnoticed = [topic for topic in topics if topic not in {tp.topic for tp in chosen}]
    return _Look(rows=rows, unknown=[*(str(tp) for tp in chosen if tp not in ends), *unnoticed])


@click.command(short_help="Commit offsets to a group.")
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
        latest = list_offsets(cluster, dict.fromkeys(wanted, LATEST))
        for tp, offset in wanted.items():
            if offset > latest[tp].offset:
                raise click.UsageError(f"{tp} ends at offset {latest[tp].offset}, before {offset}.")
        _move(cluster, group, wanted, dry_run)


def _parse_place(place: str) -> tuple[TopicPartition, int]:
    where, _, offset = place.rpartition("=")
    topic, _, partition = where.rpartition(":")
    if not topic or not partition.isdigit() or not offset.isdigit():
        raise click.UsageError(f"{place} is not TOPIC:PARTITION=OFFSET, as in orders:0=42.")
    return TopicPartition(topic, int(partition)), int(offset)


@click.command(
    context_settings={"ignore_unknown_options": True}, short_help="Move a group's offsets, by place or time."
)
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
