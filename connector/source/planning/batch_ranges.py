"""The offsets that a batch read reads: between its start and its end, or those of one micro-batch, under its filters, and without
what retention has deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pykafka_wire.errors import Loss, OffsetsError
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.options.starting_offsets import OffsetSpec
from pykafka_wire.source.data_loss import DataLossReporter
from pykafka_wire.source.planning.filter_pushdown import NO_PRUNING, Pruning
from pykafka_wire.source.planning.offset_lookups import (
    diverging_offsets,
    earliest_offsets,
    find_topics,
    latest_offsets,
    resolve_positions,
    skip_aged_out,
    topic_ids_of,
    topic_partitions,
)
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import list_offsets
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition


def plan_ranges(cluster: Cluster, options: SourceOptions, pruning: Pruning = NO_PRUNING) -> list[OffsetRange]:
    """Return the ranges of a batch read that filters leave, as far as they still exist.

    Raises:
        WireError: brokers cannot be reached, or a topic does not exist.
        OptionError, OffsetsError: offsets do not fit the topics, or a checkpoint cannot be read.
        DataLossError: the first offsets have aged out, or what a checkpoint has is lost, and ``failOnDataLoss`` is true.
    """
    losses = DataLossReporter(options)
    ranges = prune_ranges(cluster, find_ranges(cluster, options, losses), pruning, options)
    if options.micro_batch is not None or options.starting_offsets.kind in ("offsets", "group", "checkpoint"):
        ranges = skip_aged_out(cluster, ranges, losses)
    return ranges


def find_ranges(cluster: Cluster, options: SourceOptions, losses: DataLossReporter) -> list[OffsetRange]:
    """Return a range for each topic-partition that the options name.

    Raises:
        WireError: brokers cannot be reached, or a topic does not exist.
        OptionError, OffsetsError: offsets do not fit the topics, or a checkpoint cannot be read.
        DataLossError: what a checkpoint or the group has is lost, and ``failOnDataLoss`` is true.
    """
    if options.micro_batch is not None:
        from pykafka_wire.source.planning.checkpoint_reads import micro_batch_ranges  # hardly any read needs it

        return micro_batch_ranges(cluster, options.micro_batch, options.subscription, losses)
    topics = find_topics(cluster, options.subscription)
    partitions = topic_partitions(options.subscription, topics)
    if not partitions:
        return []

    def resolve(spec: OffsetSpec, option: str, group: str | None = None) -> dict[TopicPartition, int]:
        if spec.checkpoint is None:
            isolation = options.client.isolation_level
            found = resolve_positions(cluster, spec, partitions, option=option, isolation_level=isolation, group=group)
            cut = diverging_offsets(cluster, found)
            lost = [(tp, end, found[tp].offset) for tp, end in sorted(cut.items())]
            losses.report(Loss.LOG_TRUNCATED, lost, topic_ids=topic_ids_of(topics))
            return {tp: cut.get(tp, position.offset) for tp, position in found.items()}
        from pykafka_wire.source.planning.checkpoint_reads import resolve_at_checkpoint  # hardly any read needs it

        return resolve_at_checkpoint(cluster, spec.checkpoint, options.subscription, topics, losses, option=option)

    starts = resolve(options.starting_offsets, "startingOffsets", options.group_id)
    starts |= earliest_offsets(cluster, [tp for tp in partitions if tp not in starts])
    ends = resolve(options.ending_offsets, "endingOffsets")
    # A query whose checkpoint lacks a topic-partition has read nothing of it.
    ends |= {tp: starts[tp] for tp in partitions if tp not in ends}
    _refuse_backwards(starts, ends)
    return [
        OffsetRange(
            topic=tp.topic,
            partition=tp.partition,
            start_offset=starts[tp],
            end_offset=ends[tp],
            topic_id=topics[tp.topic].topic_id,
        )
        for tp in partitions
    ]


def prune_ranges(
    cluster: Cluster, ranges: Sequence[OffsetRange], pruning: Pruning, options: SourceOptions
) -> list[OffsetRange]:
    """Return what filters leave of the ranges."""
    kept = [
        replace(
            r,
            start_offset=max(r.start_offset, pruning.start_offset),
            end_offset=min(r.end_offset, pruning.end_offset),
        )
        for r in ranges
        if pruning.keeps(r.topic_partition)
    ]
    if pruning.timestamp_ms is None:
        return kept
    asked = {r.topic_partition: pruning.timestamp_ms for r in kept if r.n_offsets}
    isolation = options.client.isolation_level
    # Asked for before the timestamps: if no record is at or after the timestamp, there is none below what the leader served then.
    # Above that is what an open transaction holds back, or what replicas do not have yet: the read waits for it.
    served = latest_offsets(cluster, asked, isolation)
    first_offsets = list_offsets(cluster, asked, isolation_level=isolation)
    starts = {tp: first.offset if first.offset >= 0 else served[tp].offset for tp, first in first_offsets.items()}
    return [
        replace(r, start_offset=min(max(r.start_offset, starts[r.topic_partition]), r.end_offset))
        if r.topic_partition in starts
        else r
        for r in kept
    ]


def _refuse_backwards(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    backwards = [f"{tp} starts at {start} and ends at {ends[tp]}" for tp, start in starts.items() if start > ends[tp]]
    if backwards:
        raise OffsetsError(
            f"the read starts after its end: {', '.join(backwards[:10])}. Choose an earlier start or a later end; "
            "where the offsets were right once, the topic was truncated or recreated."
        )
