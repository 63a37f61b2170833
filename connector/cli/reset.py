"""``reset``: moves a group's offsets, by offset or time."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pykafka_wire.cli.connection import command, connected
from pykafka_wire.cli.group_offsets import change_offsets
from pykafka_wire.cli.offsets import parse_position, partitions_of, require_leaders, resolve_position
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import (
    fetch_offsets,
)
from pykafka_wire.wire.topic_partitions import TopicPartition


@command(context_settings={"ignore_unknown_options": True})
@click.argument("group")
@click.option("--topic", "topics", multiple=True, required=True, help="The topic; may be repeated.")
@click.option(
    "--to",
    "place",
    required=True,
    metavar="PLACE",
    help="earliest, latest, an offset, +N or -N from the committed offset, or a time (ISO-8601, or relative as in -10m).",
)
@click.option("--dry-run", is_flag=True, help="Show what would be committed, and commit nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def reset(group: str, topics: tuple[str, ...], place: str, dry_run: bool, yes: bool) -> None:
    """Move the offsets of GROUP, which must have no active member, in every partition of a topic, after asking for confirmation.

    An offset outside the log becomes the nearer end of the log. A time after the last record becomes the end of the log. As with
    commit, a Spark query continues from its checkpoint, and the group of a marker is refused.
    """
    position = parse_position(place)
    with connected() as cluster:
        partitions = [tp for topic in topics for tp in partitions_of(cluster, topic)]
        require_leaders(cluster, partitions)
        moved = _fetch_committed(cluster, group, partitions) if position[0] == "shift" else None
        wanted = resolve_position(cluster, partitions, position, moved)
        change_offsets(cluster, group, wanted, dry_run=dry_run, yes=yes)


def _fetch_committed(cluster: Cluster, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the group's committed offset for each partition. Raises click.UsageError if one is missing."""
    committed = fetch_offsets(cluster, group, partitions)
    missing = [str(tp) for tp in partitions if tp not in committed]
    if missing:
        raise click.UsageError(
            f"Group {group} has no committed offset for {', '.join(missing)}, so +N and -N have no start."
        )
    return {tp: committed[tp].offset for tp in partitions}
