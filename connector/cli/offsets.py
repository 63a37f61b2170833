"""``offsets``: the offsets of a topic's records."""

from __future__ import annotations

from typing import Any

import click

from pykafka_wire.cli.connection import connected, connection_options, output
from pykafka_wire.cli.log_ends import explained, find_leaders
from pykafka_wire.cli.times import format_timestamp, parse_time
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.topic_partitions import TopicPartition


@click.command(short_help="Show the first and the next offsets of a topic.")
@connection_options
@click.argument("topic")
@click.option(
    "--at",
    metavar="TIME",
    help="Also show the first offset at or after this time: ms, ISO-8601, or relative as in -10m.",
)
def offsets(topic: str, at: str | None) -> None:
    """Show the first and the next offset of each partition of TOPIC.

    The next offset is the end of the log; with -X isolation.level=read_committed it is the last stable offset.
    """
    with connected() as cluster:
        partitions = partitions_of(cluster, topic)
        led, unknown = find_leaders(cluster, partitions)
        isolation = cluster.settings.isolation_level
        earliest = list_offsets(cluster, dict.fromkeys(led, EARLIEST))
        latest = list_offsets(cluster, dict.fromkeys(led, LATEST), isolation_level=isolation)
        rows: list[dict[str, Any]] = [
            {
                "topic": topic,
                "partition": tp.partition,
                "earliest": earliest[tp].offset if tp in earliest else None,
                "latest": latest[tp].offset if tp in latest else None,
                "offsets": latest[tp].offset - earliest[tp].offset if tp in latest else None,
            }
            for tp in partitions
        ]
        if at is not None:
            asked = dict.fromkeys(led, parse_time(at))
            found = list_offsets(cluster, asked, isolation_level=isolation)
            for tp, row in zip(partitions, rows, strict=True):
                here = found.get(tp)
                row["at"] = here.offset if here is not None and here.offset >= 0 else None
                row["time"] = None if here is None else format_timestamp(here.timestamp)
    output().rows(rows)
    if unknown:
        click.echo(f"The offsets of {', '.join(explained(unknown))} are unknown.", err=True)


def partitions_of(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """The topic-partitions of a topic, in order; raises UnknownTopicError where there is no such topic."""
    return [TopicPartition(topic, p) for p in cluster.metadata.topics([topic])[topic].partitions]
