"""Changes the committed offsets of a group without members, for ``commit`` and ``reset``."""

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

#: The states of a group without members. Another client may change a group's offsets only in these states, as in Kafka's own tool.
_INACTIVE: Final = ("Empty", "Dead")


def change_offsets(
    cluster: Cluster, group: str, wanted: Mapping[TopicPartition, int], *, dry_run: bool, yes: bool
) -> None:
    """Show the current and the new offsets of a group, and commit the new ones after asking for confirmation.

    Raises:
        click.ClickException: the group has members, holds a marker, or its name is the prefix of generated groups.
    """
    before = fetch_offsets(cluster, group, None)
    _refuse_marker(group, before)
    described = describe_group(cluster, group)
    if described.state not in _INACTIVE and not dry_run:
        members = f", with the members {', '.join(described.members)}" if described.members else ""
        raise click.ClickException(
            f"Group {group} is in use: its state is {described.state}{members}. Its members would overwrite the new offsets: stop "
            "them first."
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
    """Raise click.ClickException if a group holds the marker of an exactly-once query, or a part of it."""
    from pykafka_wire.sink.exactly_once.marker import is_marker  # loads NumPy

    markers = [str(tp) for tp, offset in sorted(committed.items()) if is_marker(offset.metadata)]
    if markers:
        raise click.ClickException(
            f"Group {group} holds the marker of an exactly-once query ({', '.join(markers)}): its offset is the number of the last "
            "micro-batch, and no consumer reads it. If you change it, the query fails, or writes a micro-batch twice. Run "
            "pykafka-wire marker ID to see the marker; docs/write-exactly-once.md explains how to continue without a marker."
        )


def _refuse_prefix(cluster: Cluster, group: str) -> None:
    """Raise click.ClickException if the name is the prefix of generated groups: a new group of this name would hide them in
    ``lag``."""
    generated = generated_with(group, (group.name for group in list_groups(cluster)))
    if generated:
        raise click.ClickException(
            f"There is no group {group}, but it is the prefix of {', '.join(generated)}. Give the full name of the group to change."
        )
