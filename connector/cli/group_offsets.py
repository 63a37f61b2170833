"""Changes the committed offsets of a group that has no members, for ``commit`` and ``reset``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from pykafka_wire.cli.connection import output
from pykafka_wire.cli.lag import generated_with
from pykafka_wire.cli.output import counted
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import describe_group, list_groups
from pykafka_wire.wire.groups.committed_offsets import (
    CommittedOffset,
    commit_offsets,
    fetch_offsets,
)
from pykafka_wire.wire.topic_partitions import TopicPartition

#: States of a group without members: only then its offsets can be changed from outside, as Kafka's own tool has it.
_INACTIVE: Final = ("Empty", "Dead")


def change_offsets(
    cluster: Cluster, group: str, wanted: Mapping[TopicPartition, int], *, dry_run: bool, yes: bool
) -> None:
    """Show what a group's offsets are and will be, and commit them after asking for confirmation.

    Raises:
        click.ClickException: the group has members, is a marker's, or is the prefix of others.
    """
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
