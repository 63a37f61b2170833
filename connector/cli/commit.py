"""``commit``: offsets that a group commits, one by one."""

from __future__ import annotations

import click

from pykafka_wire.cli.connection import command, connected
from pykafka_wire.cli.group_offsets import change_offsets
from pykafka_wire.cli.offsets import offsets_at, partitions_of, require_leaders
from pykafka_wire.wire.cluster.admin import LATEST
from pykafka_wire.wire.topic_partitions import TopicPartition


@command()
@click.argument("group")
@click.argument("places", metavar="TOPIC:PARTITION=OFFSET…", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be committed, and commit nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def commit(group: str, places: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Commit offsets to GROUP, which must have no active member, after asking for confirmation.

    A Spark query does not read these offsets: it continues from its checkpoint. Consumers read them, tools show them as lag, and a
    new query starts from them with startingOffsets=group. The group of an exactly-once query's marker is refused.
    """
    wanted = dict(_parse_place(place) for place in places)
    if len(wanted) < len(places):
        raise click.UsageError("A partition is named more than once: give each one offset.")
    with connected() as cluster:
        for tp in wanted:
            if tp not in partitions_of(cluster, tp.topic):
                raise click.UsageError(f"Topic {tp.topic} has no partition {tp.partition}.")
        require_leaders(cluster, wanted)
        latest = offsets_at(cluster, wanted, LATEST)
        for tp, offset in wanted.items():
            if offset > latest[tp]:
                raise click.UsageError(f"{tp} ends at offset {latest[tp]}, before {offset}.")
        change_offsets(cluster, group, wanted, dry_run=dry_run, yes=yes)


def _parse_place(place: str) -> tuple[TopicPartition, int]:
    where, _, offset = place.rpartition("=")
    topic, _, partition = where.rpartition(":")
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise click.UsageError(f"{place} is not TOPIC:PARTITION=OFFSET, as in orders:0=42.")
    return TopicPartition(topic, int(partition)), int(offset)
