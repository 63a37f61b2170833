"""``groups``, ``lag``, ``commit`` and ``reset``: consumer groups, their lag, and their committed offsets."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from pykafka_wire.cli.connection import connected, connection_options, output
from pykafka_wire.cli.lag_rates import LagHistory, Look, outlook
from pykafka_wire.cli.offsets import partitions_of
from pykafka_wire.cli.output import console, sparkline, table_of
from pykafka_wire.cli.times import parse_position
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.cluster.groups import describe_group, list_groups
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets, fetch_offsets
from pykafka_wire.wire.groups.offsets_of_groups import fetch_offsets_of_groups
from pykafka_wire.wire.topic_partitions import TopicPartition, similar_names

#: What a query's reader appends to ``groupIdPrefix``.
_GENERATED: Final = re.compile(r"(?P<prefix>.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: States of a group without members: only then its offsets can be changed from outside, as Kafka's own tool has it.
_INACTIVE: Final = ("Empty", "Dead")
#: Looks that the sparkline shows: a terminal is 80 columns wide.
_HISTORY: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class _LagReport:
    """A row for each topic-partition with a committed offset. ``unknown`` are those whose ends are unknown, and topics that were
    asked for and have no committed offset."""

    rows: list[dict[str, Any]]
    unknown: list[str]

    @property
    def lag(self) -> int:
        return sum(row["lag"] for row in self.rows)


@click.command(short_help="List the consumer groups.")
@connection_options
@click.argument("text", required=False)
@click.option("--lag", "with_lag", is_flag=True, help="Also the lag of each group.")
def groups(text: str | None, with_lag: bool) -> None:
    """List the groups that you may describe, of consumers and of streaming queries; with TEXT those that have it in their names.

    A query without kafka.group.id commits to a group PREFIX-UUID, where PREFIX is its groupIdPrefix. A query is no member of its
    group, which is therefore Empty, unless it has groupMembership=static.
    """
    with connected() as cluster:
        found = [group for group in list_groups(cluster) if text is None or text in group.name]
        reports = _lag_of_groups(cluster, fetch_offsets_of_groups(cluster, found), ()) if with_lag else {}
        rows: list[dict[str, Any]] = []
        for group in found:
            generated = _GENERATED.fullmatch(group.name)
            row = {
                "group": group.name,
                "state": group.state or None,
                "type": group.kind or None,
                "protocol": group.protocol_type or None,
                "prefix": generated["prefix"] if generated is not None else None,
            }
            if with_lag:
                report = reports.get(group.name)
                row["lag"] = report.lag if report is not None and report.rows and not report.unknown else None
            rows.append(row)
    named = f" with {text!r} in its name" if text is not None else ""
    output().rows(rows, empty=f"There is no group{named} that you may describe.", only_if_wide=("prefix", "protocol"))


@click.command(short_help="Show a group's lag.")
@connection_options
@click.argument("group")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--every", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between repetitions."
)
@click.option("--count", type=click.IntRange(1), help="With --watch: end after so many repetitions.")
@click.option(
    "--fail-above",
    type=click.IntRange(0),
    metavar="N",
    help="End with code 1 if the total lag is above N, or unknown.",
)
def lag(
    group: str, topics: tuple[str, ...], watch: bool, every: float, count: int | None, fail_above: int | None
) -> None:
    """Show the lag of GROUP: how far its committed offsets are behind the ends of the logs.

    GROUP may also be the groupIdPrefix of a query whose group was generated, if it has one such group. With --watch it also
    shows when the group will have caught up, at the rates of the last minute.
    """
    if watch and fail_above is not None and count is None:
        raise click.UsageError("--watch with --fail-above checks the last repetition: give --count, too.")
    with connected() as cluster:
        group = _generated_group(cluster, group)
        if not watch:
            report = _lag_report(cluster, group, topics)
            output().rows(report.rows, empty=f"Group {group} has committed no offset.")
        elif output().json:
            history = LagHistory()
            for report in _lag_reports(cluster, group, topics, every, count):
                rates = history.add(Look.at(report.rows))
                document = {"time_ms": int(time.time() * 1000), "lag": report.lag, **asdict(rates)}
                output().document(document | {"partitions": report.rows})
        else:
            report = _watch(_lag_reports(cluster, group, topics, every, count), group)
    if fail_above is not None and (problem := _lag_problem(group, report, fail_above)) is not None:
        click.echo(problem, err=True)
        sys.exit(1)


def _generated_group(cluster: Cluster, name: str) -> str:
    """The group of this name; else the one that a query generated with this prefix; else the name itself.

    Raises:
        click.UsageError: several were generated with it.
    """
    if fetch_offsets(cluster, name, None):
        return name
    names = [group.name for group in list_groups(cluster)]
    if name in names:
        return name
    generated = [
        each for each in names if (found := _GENERATED.fullmatch(each)) is not None and found["prefix"] == name
    ]
    if len(generated) > 1:
        raise click.UsageError(
            f"{len(generated)} groups were generated with the prefix {name}, one for each checkpoint: {', '.join(generated)}. "
            "Name one; pykafka-wire checkpoint PATH shows the group of a query."
        )
    if generated:
        click.echo(f"The group of this prefix is {generated[0]}.", err=True)
        return generated[0]
    near = similar_names(name, names)
    if near:
        click.echo(f"There is no group {name}. Did you mean {' or '.join(near)}?", err=True)
    return name


def _lag_problem(group: str, report: _LagReport, fail_above: int) -> str | None:
    """Why a check of the lag fails; None if the lag is known and small enough."""
    if report.unknown or not report.rows:
        where = f" for {', '.join(report.unknown)}" if report.unknown else ""
        return (
            f"The lag of group {group} is unknown{where}. Check the group's name, that it has committed offsets which have not "
            "expired, that each topic exists, and your permission to describe it."
        )
    return f"The lag of {report.lag} is above {fail_above}." if report.lag > fail_above else None


def _watch(reports: Iterable[_LagReport], group: str) -> _LagReport:
    """Show each repetition in place of the one before, or below it without a terminal; returns the last one."""
    lags: deque[int] = deque(maxlen=_HISTORY)
    history = LagHistory()
    to = console()
    with Live(console=to, auto_refresh=False) if to.is_terminal else nullcontext() as live:
        for report in reports:
            lags.append(report.lag)
            future = outlook(report.lag, history.add(Look.at(report.rows))) if report.rows else ""
            line = Text(f"lag {report.lag}  {sparkline(lags)}  {future}".rstrip())
            shown = Lines(table_of(report.rows, title=f"group {group}"), line) if report.rows else line
            if live is None:
                to.print(shown)
            else:
                live.update(shown, refresh=True)
    return report


def _lag_reports(
    cluster: Cluster, group: str, topics: tuple[str, ...], every: float, count: int | None
) -> Iterator[_LagReport]:
    n_reports = 0
    while True:
        yield _lag_report(cluster, group, topics)
        n_reports += 1
        if n_reports == count:
            return
        time.sleep(every)


def _lag_report(cluster: Cluster, group: str, topics: tuple[str, ...]) -> _LagReport:
    return _lag_of_groups(cluster, {group: fetch_offsets(cluster, group, None)}, topics)[group]


def _lag_of_groups(
    cluster: Cluster, committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]], topics: tuple[str, ...]
) -> dict[str, _LagReport]:
    """The lag of each group, of these topics or of all: the ends of all groups' logs are looked up at once."""
    known = cluster.topics(None)
    chosen = {
        group: sorted(tp for tp in offsets if not topics or tp.topic in topics) for group, offsets in committed.items()
    }
    there = {
        tp for tps in chosen.values() for tp in tps if tp.topic in known and tp.partition in known[tp.topic].partitions
    }
    isolation = cluster.settings.isolation_level
    ends = list_offsets(cluster, dict.fromkeys(there, LATEST), isolation_level=isolation) if there else {}
    reports: dict[str, _LagReport] = {}
    for group, partitions in chosen.items():
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": committed[group][tp].offset,
                "latest": ends[tp].offset,
                "lag": max(0, ends[tp].offset - committed[group][tp].offset),
            }
            for tp in partitions
            if tp in ends
        ]
        unnoticed = [topic for topic in topics if topic not in {tp.topic for tp in partitions}]
        reports[group] = _LagReport(rows=rows, unknown=[*(str(tp) for tp in partitions if tp not in ends), *unnoticed])
    return reports


@click.command(short_help="Commit offsets to a group.")
@connection_options
@click.argument("group")
@click.argument("places", metavar="TOPIC:PARTITION=OFFSET…", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be committed, and commit nothing.")
def commit(group: str, places: tuple[str, ...], dry_run: bool) -> None:
    """Commit offsets to GROUP, which must have no active member.

    A running Spark query does not read them back: it continues from its checkpoint. They apply to consumers, to lag,
    and to a new query with startingOffsets=group.
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
        _commit(cluster, group, wanted, dry_run)


def _parse_place(place: str) -> tuple[TopicPartition, int]:
    where, _, offset = place.rpartition("=")
    topic, _, partition = where.rpartition(":")
    if not topic or not partition.isdigit() or not offset.isdigit():
        raise click.UsageError(f"{place} is not TOPIC:PARTITION=OFFSET, as in orders:0=42.")
    return TopicPartition(topic, int(partition)), int(offset)


@click.command(
    context_settings={"ignore_unknown_options": True}, short_help="Move a group's offsets, by offset or time."
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
@click.option("--dry-run", is_flag=True, help="Show what would be committed, and commit nothing.")
def reset(group: str, topics: tuple[str, ...], place: str, dry_run: bool) -> None:
    """Move the offsets of GROUP, which must have no member at work, in every partition of a topic.

    An offset outside the log becomes its nearer end. A time after the last record becomes the end of the log. As with commit, a
    Spark query continues from its checkpoint.
    """
    kind, number = parse_position(place)
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
                raise click.UsageError(
                    f"Group {group} has no committed offset for {', '.join(missing)}, so +N and -N have no start."
                )
            wanted = {tp: committed[tp].offset + number for tp in partitions}
        within = {tp: min(max(at, earliest[tp].offset), latest[tp].offset) for tp, at in wanted.items()}
        _commit(cluster, group, within, dry_run)


def _commit(cluster: Cluster, group: str, wanted: Mapping[TopicPartition, int], dry_run: bool) -> None:
    before = fetch_offsets(cluster, group, wanted)
    described = describe_group(cluster, group)
    if described.state not in _INACTIVE and not dry_run:
        members = f", with the members {', '.join(described.members)}" if described.members else ""
        raise click.ClickException(
            f"Group {group} is in use: its state is {described.state}{members}. Its commits would overwrite this. Stop its members "
            "first."
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
    output().message("Dry run: nothing was committed." if dry_run else f"Committed to group {group}.")
