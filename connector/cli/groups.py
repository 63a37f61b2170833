"""``groups``, ``commit`` and ``reset``: consumer groups and their committed offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.lag import GENERATED, generated_with, lag_of_groups
from pykafka_wire.cli.offsets import offsets_at, parse_position, partitions_of, require_leaders, resolve_position
from pykafka_wire.cli.output import counted
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST
from pykafka_wire.wire.cluster.describe import describe_group, list_groups
from pykafka_wire.wire.groups.committed_offsets import (
    CommittedOffset,
    commit_offsets,
    fetch_offsets,
    fetch_offsets_of_groups,
)
from pykafka_wire.wire.topic_partitions import TopicPartition

#: States of a group without members: only then its offsets can be changed from outside, as Kafka's own tool has it.
_INACTIVE: Final = ("Empty", "Dead")


@command()
@click.argument("text", required=False)
@click.option("--lag", "with_lag", is_flag=True, help="Also show the lag of each group.")
def groups(text: str | None, with_lag: bool) -> None:
    """List the groups that you may describe, of consumers and of streaming queries; with TEXT, those whose names contain it.

    A query without kafka.group.id commits to a group PREFIX-UUID, where PREFIX is its groupIdPrefix. A query is not a member of
    its group, whose state is therefore Empty, unless it has groupMembership=static.
    """
    with connected() as cluster:
        matching = [group for group in list_groups(cluster) if text is None or text in group.name]
        reports = lag_of_groups(cluster, fetch_offsets_of_groups(cluster, matching)) if with_lag else {}
        rows: list[dict[str, Any]] = []
        for group in matching:
            generated = GENERATED.fullmatch(group.name)
            row = {
                "group": group.name,
                "state": group.state or None,
                "type": group.kind or None,
                "protocol": group.protocol_type or None,
                "prefix": generated["prefix"] if generated is not None else None,
            }
            if with_lag:
                report = reports.get(group.name)
                row["lag"] = None if report is None else report.lag
            rows.append(row)
    named = f" with {text!r} in its name" if text is not None else ""
    output().rows(rows, empty=f"There is no group{named} that you may describe.", only_if_wide=("prefix", "protocol"))
    if unknown := sorted({name for report in reports.values() for name in report.unknown}):
        click.echo(f"The lag of groups that read these is unknown: {', '.join(unknown)}.", err=True)


@command()
@click.argument("group")
@click.argument("places", metavar="TOPIC:PARTITION=OFFSET…", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be committed, and commit nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def commit(group: str, places: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Commit offsets to GROUP, which must have no active member, after asking for confirmation.

    A Spark query does not read them back: it continues from its checkpoint. They apply to consumers, to lag, and to a new
    query with startingOffsets=group. The groups of an exactly-once query's marker are refused.
    """
    wanted = dict(_parse_place(place) for place in places)
    with connected() as cluster:
        for tp in wanted:
            if tp not in partitions_of(cluster, tp.topic):
                raise click.UsageError(f"Topic {tp.topic} has no partition {tp.partition}.")
        require_leaders(cluster, wanted)
        latest = offsets_at(cluster, wanted, LATEST)
        for tp, offset in wanted.items():
            if offset > latest[tp]:
                raise click.UsageError(f"{tp} ends at offset {latest[tp]}, before {offset}.")
        _commit(cluster, group, wanted, dry_run=dry_run, yes=yes)


def _parse_place(place: str) -> tuple[TopicPartition, int]:
    where, _, offset = place.rpartition("=")
    topic, _, partition = where.rpartition(":")
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise click.UsageError(f"{place} is not TOPIC:PARTITION=OFFSET, as in orders:0=42.")
    return TopicPartition(topic, int(partition)), int(offset)


@command(context_settings={"ignore_unknown_options": True})
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
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def reset(group: str, topics: tuple[str, ...], place: str, dry_run: bool, yes: bool) -> None:
    """Move the offsets of GROUP, which must have no active member, in every partition of a topic, after asking for confirmation.

    An offset outside the log becomes its nearer end. A time after the last record becomes the end of the log. As with commit, a
    Spark query continues from its checkpoint, and the groups of a marker are refused.
    """
    position = parse_position(place)
    with connected() as cluster:
        partitions = [tp for topic in topics for tp in partitions_of(cluster, topic)]
        require_leaders(cluster, partitions)
        moved = _fetch_committed(cluster, group, partitions) if position[0] == "shift" else None
        wanted = resolve_position(cluster, partitions, position, moved)
        _commit(cluster, group, wanted, dry_run=dry_run, yes=yes)


def _fetch_committed(cluster: Cluster, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the group's offset for each partition. Raises click.UsageError where it has none."""
    committed = fetch_offsets(cluster, group, partitions)
    missing = [str(tp) for tp in partitions if tp not in committed]
    if missing:
        raise click.UsageError(
            f"Group {group} has no committed offset for {', '.join(missing)}, so +N and -N have no start."
        )
    return {tp: committed[tp].offset for tp in partitions}


def _commit(cluster: Cluster, group: str, wanted: Mapping[TopicPartition, int], *, dry_run: bool, yes: bool) -> None:
    before = fetch_offsets(cluster, group, None)
    _refuse_marker(group, before)
    described = describe_group(cluster, group)
    if described.state not in _INACTIVE and not dry_run:
        members = f", with the members {', '.join(described.members)}" if described.members else ""
        raise click.ClickException(
            f"Group {group} is in use: its state is {described.state}{members}. Its commits would overwrite this. Stop its members "
            "first."
        )
    if described.state == "Dead":
        _refuse_prefix(cluster, group)
    rows = [
        {**tp._asdict(), "before": before[tp].offset if tp in before else None, "after": offset}
        for tp, offset in sorted(wanted.items())
    ]
    output().rows(rows)
    if dry_run:
        output().message("Dry run: nothing was committed.")
        return
    if not yes:
        question = (
            f"Commit {counted(len(wanted), 'offset')} to group {group}? A Spark query does not read them: it continues from its "
            "checkpoint."
        )
        click.confirm(question, abort=True, err=True)
    commit_offsets(cluster, group, {tp: CommittedOffset(offset) for tp, offset in wanted.items()})
    output().message(f"Committed to group {group}. A Spark query does not read it: it continues from its checkpoint.")


def _refuse_marker(group: str, committed: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Raise click.ClickException for a group that holds the marker of an exactly-once query, or a part of it."""
    from pykafka_wire.sink.exactly_once.marker import is_marker  # loads NumPy

    markers = [str(tp) for tp, offset in sorted(committed.items()) if is_marker(offset.metadata)]
    if markers:
        raise click.ClickException(
            f"Group {group} holds the marker of an exactly-once query ({', '.join(markers)}): its offset is the number of the last "
            "micro-batch, and no consumer reads it. Changed, the query fails, or writes a micro-batch twice. Run pykafka-wire "
            "marker ID to see it; docs/write-exactly-once.md says how to continue without a marker."
        )


def _refuse_prefix(cluster: Cluster, group: str) -> None:
    """Raise click.ClickException where ``lag`` takes a name for that of a generated group: a new group would hide it."""
    generated = generated_with(group, (group.name for group in list_groups(cluster)))
    if generated:
        raise click.ClickException(
            f"There is no group {group}; it is the prefix of {', '.join(generated)}. Name the group that is to be changed."
        )
