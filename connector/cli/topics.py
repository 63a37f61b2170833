"""``topics`` and ``offsets``: the topics of a cluster, and the offsets of their records."""

from __future__ import annotations

import click

from pykafka_wire.cli.connection import connected, connection_options, output
from pykafka_wire.cli.times import format_timestamp, parse_time
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition, topic_id_text


@click.command()
@connection_options
@click.option("--internal", is_flag=True, help="Also the topics that Kafka keeps for itself.")
def topics(internal: bool) -> None:
    """List the topics that you may describe.

    Partitions without a leader, and those with a replica out of sync, are counted where there are any.
    """
    with connected() as cluster:
        rows = [
            {
                "topic": name,
                "partitions": len(topic.partitions),
                "replicas": max((len(p.replicas) for p in topic.partitions.values()), default=0),
                "without leader": sum(p.leader < 0 for p in topic.partitions.values()),
                "under-replicated": sum(len(p.isr) < len(p.replicas) for p in topic.partitions.values()),
                "id": None if topic.topic_id == ZERO_UUID else topic_id_text(topic.topic_id),
            }
            for name, topic in sorted(cluster.topics(None).items())
            if internal or not topic.is_internal
        ]
    output().rows(
        rows,
        empty="There is no topic that you may describe.",
        only_if_set=("without leader", "under-replicated"),
    )


@click.command(short_help="Show the first and the next offsets of a topic.")
@connection_options
@click.argument("topic")
@click.option("--at", metavar="TIME", help="Also the first offset at this time: ms, ISO-8601, or relative as in -10m.")
def offsets(topic: str, at: str | None) -> None:
    """Show the first and the next offset of each partition of TOPIC.

    The next offset is the end of the log; with -X isolation.level=read_committed it is the last stable offset.
    """
    with connected() as cluster:
        partitions = partitions_of(cluster, topic)
        isolation = cluster.settings.isolation_level
        earliest = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
        latest = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation_level=isolation)
        rows = [
            {
                "topic": topic,
                "partition": tp.partition,
                "earliest": earliest[tp].offset,
                "latest": latest[tp].offset,
                "offsets": latest[tp].offset - earliest[tp].offset,
            }
            for tp in partitions
        ]
        if at is not None:
            asked = dict.fromkeys(partitions, parse_time(at))
            found = list_offsets(cluster, asked, isolation_level=isolation)
            for tp, row in zip(partitions, rows, strict=True):
                here = found[tp]
                row["at"] = here.offset if here.offset >= 0 else None
                row["time"] = format_timestamp(here.timestamp)
    output().rows(rows)


def partitions_of(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """The topic-partitions of a topic, in order; raises UnknownTopicError where there is no such topic."""
    return [TopicPartition(topic, p) for p in cluster.topics([topic])[topic].partitions]
