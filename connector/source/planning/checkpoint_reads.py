"""Reads that start, end or take place where another query's checkpoint says.

A topic or topic-partition that the checkpoint lacks starts at its first offset, as one that a query finds later; a dropped topic
that is back under its id goes on where it was dropped. Owns what brokers are asked for that, and which of a checkpoint's offsets
are lost; a streaming query finds losses when it plans its first micro-batch.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pykafka_wire.checkpoints.files import StoredFiles
from pykafka_wire.checkpoints.positions import QueryPosition, position_at, ranges_of
from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.checkpoints.reference import CheckpointReference
from pykafka_wire.checkpoints.stored_tables import stored_position
from pykafka_wire.errors import Loss, OffsetsError, OptionError
from pykafka_wire.options.source import Subscription
from pykafka_wire.source.data_loss import DataLossReporter, LostRange
from pykafka_wire.source.planning.micro_batch import known_offsets, recreated_topics
from pykafka_wire.source.planning.offset_lookups import (
    diverging_offsets,
    earliest_offsets,
    find_topics,
    latest_offsets,
    topic_ids_of,
)
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.metadata_cache import TopicMetadata
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange, TopicPartition

_log = logging.getLogger(__name__)


def find_position(
    reference: CheckpointReference,
    subscription: Subscription,
    topics: Mapping[str, TopicMetadata],
    *,
    option: str,
) -> QueryPosition:
    """Return where the query of a checkpoint stands, in the subscribed topics.

    Raises:
        OptionError: the path is of a file system that pyarrow does not know.
        MissingLibraryError: a table's path is given, and the library that reads it is not installed.
        OffsetsError: the checkpoint or the table cannot be read, or has none of the subscribed topics.
    """
    if reference.position is not None:
        position = QueryPosition.from_json(reference.position, subscription.names)
    elif reference.is_table:
        position = stored_position(reference, topics, subscription.names, option)
    else:
        try:
            files = StoredFiles(reference.path, option)
        except OptionError as error:
            raise OptionError(
                f"{error.message} If Spark can read it: from pykafka_wire import checkpoint_position, and set {option} to "
                "checkpoint_position(spark, PATH)."
            ) from error
        position = position_at(QueryLog(files), reference, subscription.names)
    if topics and not (position.offsets.offsets or position.offsets.dropped):
        raise OffsetsError(
            f"{option}: {reference.described} has none of the subscribed topics ({', '.join(sorted(topics)[:10])}). It has "
            f"{', '.join(sorted(position.topics)[:10]) or 'no topic'}. Check the path and the subscription."
        )
    where = "the start of its query" if position.batch_id is None else f"micro-batch {position.batch_id}"
    if reference.is_table:
        _log.info("%s: %s ends at %s", option, reference.described, position.offsets.to_json()["offsets"])
    elif position.is_committed:
        _log.info("%s: the checkpoint %s is at %s", option, reference, where)
    else:
        _log.warning(
            "%s: %s of the checkpoint %s is planned and not committed: its records may not be in that query's sink",
            option, where, reference,
        )  # fmt: skip
    return position


def start_at_checkpoint(
    cluster: Cluster,
    reference: CheckpointReference,
    subscription: Subscription,
    topics: Mapping[str, TopicMetadata],
    partitions: Collection[TopicPartition],
) -> QueryOffsets:
    """Return where a new query starts: at a checkpoint's offsets, with its leader epochs and topic ids, by which losses are
    detected.

    A topic-partition that the checkpoint lacks in one of its topics is left out, and the first micro-batch finds it, unless its
    first records are gone. These are lost only if the checkpoint's query read all partitions of the topic, and that is not in the
    checkpoint: so such a topic-partition starts at its first offset, with a warning.

    Raises:
        OptionError, OffsetsError: as :func:`find_position`.
    """
    offsets = find_position(reference, subscription, topics, option="startingOffsets").offsets
    ids = topic_ids_of(topics)
    known = {tp.topic for tp in offsets.offsets}
    known |= {topic.topic for topic in offsets.dropped if ids.get(topic.topic) == topic.topic_id}
    remembered = known_offsets(offsets, ids).keys() | offsets.offsets.keys()
    recreated = recreated_topics(offsets, ids)
    earliest = earliest_offsets(
        cluster, (tp for tp in partitions if tp not in remembered and tp.topic not in recreated)
    )
    added = {tp: offset for tp, offset in earliest.items() if tp.topic not in known or offset > 0}
    aged = [f"{tp} at {offset}" for tp, offset in added.items() if tp.topic in known]
    if aged:
        _log.warning(
            "startingOffsets: %s does not have these topic-partitions, which start at their first records that are left: %s. "
            "Earlier records were deleted. If the query behind it read all partitions, these were added later and what was deleted "
            "is lost.",
            reference.described, ", ".join(aged[:20]),
        )  # fmt: skip
    if len(added) > len(aged):
        _log.info(
            "startingOffsets: not in %s, read from their first offsets: %s",
            reference.described,
            ", ".join(str(tp) for tp in added if tp.topic not in known),
        )
    return replace(offsets, offsets={**offsets.offsets, **added}, topic_ids=ids | dict(offsets.topic_ids))


def resolve_at_checkpoint(
    cluster: Cluster,
    reference: CheckpointReference,
    subscription: Subscription,
    topics: Mapping[str, TopicMetadata],
    losses: DataLossReporter,
    *,
    option: str,
) -> dict[TopicPartition, int]:
    """Return a checkpoint's offsets of existing topic-partitions, for one end of a batch read; without those that it lacks.

    Raises:
        OptionError, OffsetsError: as :func:`find_position`.
        DataLossError: one no longer exists, or its log ends before that offset, and ``failOnDataLoss`` is true.
    """
    stands = find_position(reference, subscription, topics, option=option).offsets
    ids = topic_ids_of(topics)
    places = [
        (TopicPartition(topic.topic, partition), offset, topic.topic_id, topic.epochs.get(partition, -1))
        for topic in stands.dropped
        if ids.get(topic.topic) == topic.topic_id
        for partition, offset in topic.offsets.items()
    ]
    places += [
        (tp, offset, stands.topic_ids.get(tp.topic, ZERO_UUID), stands.epochs.get(tp, -1))
        for tp, offset in sorted(stands.offsets.items())
    ]
    ranges = [
        OffsetRange(
            topic=tp.topic, partition=tp.partition, start_offset=offset, end_offset=offset, topic_id=topic_id, leader_epoch=epoch
        )
        for tp, offset, topic_id, epoch in places
    ]  # fmt: skip
    return {r.topic_partition: r.end_offset for r in keep_existing(cluster, ranges, topics, losses)}


def micro_batch_ranges(
    cluster: Cluster, reference: CheckpointReference, subscription: Subscription, losses: DataLossReporter
) -> list[OffsetRange]:
    """Return the subscribed ranges of one micro-batch, as far as they exist.

    Raises:
        OptionError: the path is of a file system that pyarrow does not know.
        OffsetsError: the checkpoint cannot be read, or no longer has the micro-batch.
        DataLossError: a part of a range no longer exists, and ``failOnDataLoss`` is true.
    """
    every = ranges_of(QueryLog(StoredFiles(reference.path, "microBatch")), reference, subscription.names)
    ranges = [r for r in every if r.n_offsets]
    names = tuple(dict.fromkeys(r.topic for r in ranges))
    if not names:
        return []
    topics = find_topics(cluster, Subscription(topics=names), may_be_missing=True)
    return keep_existing(cluster, ranges, topics, losses)


def keep_existing(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    topics: Mapping[str, TopicMetadata],
    losses: DataLossReporter,
) -> list[OffsetRange]:
    """Return ranges of a checkpoint without topic-partitions that were deleted or created again, cut where the log ends earlier, or
    where it was truncated since and has other records now.

    A range without a width is a place in the log.

    Raises:
        DataLossError: one is lost or cut, and ``failOnDataLoss`` is true.
    """
    ids = topic_ids_of(topics)
    recreated, deleted, there = list[OffsetRange](), list[OffsetRange](), list[OffsetRange]()
    for r in ranges:
        if r.topic in ids and r.topic_id not in (ZERO_UUID, ids[r.topic]):
            recreated.append(r)
        elif r.topic not in topics or r.partition not in topics[r.topic].partitions:
            deleted.append(r)
        else:
            there.append(r)
    # What a transaction holds back is not lost: the end of the log counts, not its last stable offset.
    latest = latest_offsets(cluster, (r.topic_partition for r in there), "read_uncommitted")
    ends = {r.topic_partition: Position(r.end_offset, r.leader_epoch) for r in there}
    diverging = diverging_offsets(cluster, ends, latest)
    kept = [
        replace(
            r,
            end_offset=min(
                r.end_offset, latest[r.topic_partition].offset, diverging.get(r.topic_partition, r.end_offset)
            ),
        )
        for r in there
    ]
    truncated, cut = list[LostRange](), list[LostRange]()
    for old, new in zip(there, kept, strict=True):
        if new.end_offset < old.end_offset:
            lost = truncated if old.topic_partition in diverging else cut
            lost.append((old.topic_partition, new.end_offset, old.end_offset))
    topic_ids = {r.topic: r.topic_id for r in ranges}
    losses.report(Loss.TOPIC_RECREATED, list(map(_lost, recreated)), topic_ids=topic_ids)
    losses.report(Loss.PARTITIONS_DELETED, list(map(_lost, deleted)), topic_ids=topic_ids)
    losses.report(Loss.LOG_TRUNCATED, truncated, topic_ids=topic_ids)
    losses.report(Loss.OFFSETS_CHANGED, cut, topic_ids=topic_ids)
    return [replace(r, start_offset=min(r.start_offset, r.end_offset)) for r in kept]


def _lost(r: OffsetRange) -> LostRange:
    """Return a range that is gone; one without a width stands for all from there on."""
    return r.topic_partition, r.start_offset, r.end_offset if r.n_offsets else -1
