"""The next micro-batch, as a pure function of the checkpoint, a snapshot of the logs, and limits.

Owns the rules of planning a micro-batch: what has become of the logs since the checkpoint, where each topic-partition goes on, what
was lost, how much is taken under the limits, and the offset that Spark logs for it. Asks nothing of brokers:
:mod:`~pykafka_wire.source.planning.subscribed_logs` takes the snapshot, and a loss is reported by
:mod:`~pykafka_wire.source.data_loss`.

If a log was truncated and has grown again, its offsets look valid. So the checkpoint has the leader epoch of each offset; where the
log's newest one differs, OffsetForLeaderEpoch tells where the logs diverge (KIP-320), once for each change of the leader.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykafka_wire.checkpoints.query_offsets import DroppedTopic, QueryOffsets
from pykafka_wire.errors import Loss
from pykafka_wire.source.data_loss import LostRange
from pykafka_wire.source.planning.trigger_limits import Limits, Offsets, apply_limits, waiting_topics
from pykafka_wire.wire.cluster.admin import ListedOffset
from pykafka_wire.wire.topic_partitions import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """What brokers respond about the logs that a query reads, at one moment.

    Attributes:
        latest: the end of each log, with its leader epoch; with ``read_committed`` its last stable offset.
        topic_ids: ids of the topics by name, as far as brokers have them.
        earliest: the first offset of each log that the checkpoint does not hold.
        epoch_ends: where the leader's log ends for the leader epoch in the checkpoint, for logs whose leader has changed
            (KIP-320); -1 where the leader does not know that epoch.
        high_watermarks: the end of each log whose last stable offset is below the checkpoint's offset.
        hidden: topics that may not be described now. They may well exist.
        vanished: new topic-partitions that were deleted before their first offset was known.
    """

    latest: Mapping[TopicPartition, ListedOffset]
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    earliest: Offsets = field(default_factory=dict)
    epoch_ends: Offsets = field(default_factory=dict)
    high_watermarks: Offsets = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    vanished: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLogs:
    """A snapshot of the logs beside what the query has read of them.

    Attributes:
        known: offsets at which the query goes on, as :func:`known_offsets` finds them.
        truncated: logs that were truncated below what the query has read, and where: from there on the leader's log differs from
            what was read.
        shortened: logs that end before what the query has read, and where it goes on: truncated ones among them. One that only an
            open transaction holds back has lost nothing: its high watermark reaches what was read.
    """

    snapshot: LogSnapshot
    known: Offsets
    truncated: Offsets
    shortened: Offsets


def compare_logs(known: Offsets, snapshot: LogSnapshot) -> ComparedLogs:
    """Return what has become of the logs since the query was at ``known``."""
    truncated = {
        tp: min(end, snapshot.latest[tp].offset)
        for tp, end in snapshot.epoch_ends.items()
        if tp in known and 0 <= end < known[tp]
    }
    shorter = {
        tp: listed.offset
        for tp, listed in snapshot.latest.items()
        if tp in known and listed.offset < known[tp] and snapshot.high_watermarks.get(tp, -1) < known[tp]
    }
    return ComparedLogs(snapshot=snapshot, known=known, truncated=truncated, shortened=shorter | truncated)


def known_offsets(checkpoint: QueryOffsets, topic_ids: Mapping[str, uuid.UUID]) -> dict[TopicPartition, int]:
    """Return offsets at which a query goes on: the checkpoint's, except those of a topic that now has another id, and those of a
    dropped topic that is back under its id."""
    recreated = recreated_topics(checkpoint, topic_ids)
    if not recreated and not checkpoint.dropped:
        return dict(checkpoint.offsets)
    known = {
        TopicPartition(topic.topic, partition): offset
        for topic in checkpoint.dropped
        if topic_ids.get(topic.topic) == topic.topic_id
        for partition, offset in topic.offsets.items()
    }
    known |= {tp: offset for tp, offset in checkpoint.offsets.items() if tp.topic not in recreated}
    return known


def known_epochs(checkpoint: QueryOffsets, topic_ids: Mapping[str, uuid.UUID]) -> dict[TopicPartition, int]:
    """Return the leader epochs of :func:`known_offsets`, as far as the checkpoint has them."""
    recreated = recreated_topics(checkpoint, topic_ids)
    epochs = {
        TopicPartition(topic.topic, partition): epoch
        for topic in checkpoint.dropped
        if topic_ids.get(topic.topic) == topic.topic_id
        for partition, epoch in topic.epochs.items()
    }
    read = {tp for tp in checkpoint.offsets if tp.topic not in recreated}
    return {tp: epoch for tp, epoch in epochs.items() if tp not in read} | {
        tp: epoch for tp, epoch in checkpoint.epochs.items() if tp in read
    }


def recreated_topics(checkpoint: QueryOffsets, topic_ids: Mapping[str, uuid.UUID]) -> set[str]:
    """Return topics of the checkpoint that now have another id."""
    return {topic for topic, known in checkpoint.topic_ids.items() if topic in topic_ids and topic_ids[topic] != known}


#: Topic-partitions of dropped topics that a checkpoint remembers, the latest ones: each takes some 20 bytes of every offset
#: file. A topic that is dropped although a second broker did not know it either is rare. The last one is remembered whatever
#: its size: the checkpoint had room for it before.
_MAX_DROPPED: Final = 1_000


class FoundLoss(NamedTuple):
    """Records that are lost since the checkpoint, for one cause."""

    loss: Loss
    ranges: list[LostRange]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchPlan:
    """The next micro-batch.

    Attributes:
        start_offsets: where each log goes on.
        end_offsets: up to where each log is read.
        end: the offset for Spark to log, None where nothing is new after the first micro-batch.
        losses: what was lost since the checkpoint.
        is_waiting: every log is read as far as it can be.
        waiting_topics: topics with new offsets that are left out, for they have too few.
        resumed: dropped topics that are back under their topic ids.
    """

    start_offsets: Offsets
    end_offsets: Offsets
    end: QueryOffsets | None
    losses: list[FoundLoss]
    is_waiting: bool
    waiting_topics: frozenset[str]
    resumed: frozenset[str]


def plan_micro_batch(
    checkpoint: QueryOffsets, logs: ComparedLogs, limits: Limits, *, group: str | None = None
) -> MicroBatchPlan:
    """Return the micro-batch after ``checkpoint``; ``group`` is the consumer group of its offset, the checkpoint's by default."""
    snapshot, known, shortened = logs.snapshot, logs.known, logs.shortened
    starts = {tp: known[tp] if tp in known else snapshot.earliest[tp] for tp in snapshot.latest} | dict(shortened)
    ends = {tp: max(listed.offset, starts[tp]) for tp, listed in snapshot.latest.items()}
    last = limits.last_offsets
    if last is not None:
        ends = {tp: max(starts[tp], min(end, last.get(tp, 0))) for tp, end in ends.items()}
    is_waiting, waiting = ends == starts, waiting_topics(starts, ends, limits)
    ends = apply_limits(starts, ends, limits)
    plan_end = None
    # A shortened log is remembered at once: it may grow past the checkpoint's offset again. Spark runs micro-batch 0 even over
    # nothing, and logs its end: its replay must find its start in it, and the next plan the leader epochs.
    if ends != starts or shortened or checkpoint.initial:
        plan_end = _end_of(checkpoint, snapshot, starts, ends, group or checkpoint.group)
    resumed = {tp.topic for tp in known if tp in snapshot.latest and tp not in checkpoint.offsets}
    return MicroBatchPlan(
        start_offsets=starts,
        end_offsets=ends,
        end=plan_end,
        losses=_find_losses(checkpoint, logs),
        is_waiting=is_waiting,
        waiting_topics=waiting,
        resumed=frozenset(resumed),
    )


def _find_losses(checkpoint: QueryOffsets, logs: ComparedLogs) -> list[FoundLoss]:
    """Return what of the logs is lost since the checkpoint."""
    snapshot, known, truncated = logs.snapshot, logs.known, logs.truncated
    recreated = recreated_topics(checkpoint, snapshot.topic_ids)
    deleted = sorted(
        tp
        for tp in checkpoint.offsets
        if tp.topic not in recreated and tp.topic not in snapshot.hidden and tp not in snapshot.latest
    )
    topics = {tp.topic for tp in snapshot.latest}
    missing = ", ".join(sorted({tp.topic for tp in deleted} - topics))
    losses = [
        FoundLoss(
            Loss.TOPIC_RECREATED,
            [(tp, checkpoint.offsets[tp], -1) for tp in sorted(checkpoint.offsets) if tp.topic in recreated],
        ),
        FoundLoss(
            Loss.PARTITIONS_DELETED,
            [(tp, checkpoint.offsets[tp], -1) for tp in deleted],
            f"{missing} is no longer among the topics of the query: was it deleted, or is the checkpoint another query's?"
            if missing
            else "",
        ),
        FoundLoss(Loss.INITIAL_OFFSET_NOT_FOUND, [(tp, 0, -1) for tp in snapshot.vanished]),
        FoundLoss(
            Loss.ADDED_PARTITION_DOES_NOT_START_FROM_ZERO,
            [
                (tp, 0, offset)
                for tp, offset in snapshot.earliest.items()
                if offset > 0 and tp not in known and tp.topic not in recreated
            ],
        ),
        FoundLoss(Loss.LOG_TRUNCATED, [(tp, end, known[tp]) for tp, end in truncated.items()]),
        FoundLoss(
            Loss.OFFSETS_CHANGED, [(tp, end, known[tp]) for tp, end in logs.shortened.items() if tp not in truncated]
        ),
    ]
    return [loss for loss in losses if loss.ranges]


def _end_of(
    checkpoint: QueryOffsets, snapshot: LogSnapshot, starts: Offsets, ends: Offsets, group: str
) -> QueryOffsets:
    """Return the offset at the end of a micro-batch. A new log is in it from its first records on."""
    offsets = {tp: end for tp, end in ends.items() if tp in checkpoint.offsets or end > starts[tp]}
    epochs = {tp: snapshot.latest[tp].leader_epoch for tp in offsets if snapshot.latest[tp].leader_epoch >= 0}
    hidden = [tp for tp in checkpoint.offsets if tp.topic in snapshot.hidden]
    return QueryOffsets(
        offsets=offsets | {tp: checkpoint.offsets[tp] for tp in hidden},
        epochs=epochs | {tp: checkpoint.epochs[tp] for tp in hidden if tp in checkpoint.epochs},
        topic_ids=dict(snapshot.topic_ids)
        | {topic: known for topic, known in checkpoint.topic_ids.items() if topic in snapshot.hidden},
        starts={
            tp: min(starts[tp], end)
            for tp, end in offsets.items()
            if checkpoint.initial or checkpoint.offsets.get(tp) != starts[tp]
        },
        dropped=_dropped(checkpoint, snapshot, offsets),
        reader_schemas=checkpoint.reader_schemas,
        query=checkpoint.query,
        group=group,
    )


def _dropped(checkpoint: QueryOffsets, snapshot: LogSnapshot, offsets: Offsets) -> tuple[DroppedTopic, ...]:
    """Return what the checkpoint remembers of topics that it no longer reads, the latest last."""
    dropped: dict[tuple[str, uuid.UUID], dict[int, int]] = {
        (topic.topic, topic.topic_id): {
            partition: offset
            for partition, offset in topic.offsets.items()
            if snapshot.topic_ids.get(topic.topic) != topic.topic_id or (topic.topic, partition) not in offsets
        }
        for topic in checkpoint.dropped
    }
    for tp, offset in checkpoint.offsets.items():
        topic_id = checkpoint.topic_ids.get(tp.topic)
        is_read = tp in offsets and snapshot.topic_ids.get(tp.topic) == topic_id
        if topic_id is not None and not is_read and tp.topic not in snapshot.hidden:
            dropped.setdefault((tp.topic, topic_id), {})[tp.partition] = offset
    epochs = {
        (topic.topic, topic.topic_id, p): epoch for topic in checkpoint.dropped for p, epoch in topic.epochs.items()
    }
    epochs |= {
        (tp.topic, checkpoint.topic_ids[tp.topic], tp.partition): epoch
        for tp, epoch in checkpoint.epochs.items()
        if tp.topic in checkpoint.topic_ids
    }
    kept: list[DroppedTopic] = []
    n_kept = 0
    for (topic, topic_id), by_partition in reversed(dropped.items()):
        n_kept += len(by_partition)
        if kept and n_kept > _MAX_DROPPED:
            break
        if by_partition:
            known = {p: epochs[topic, topic_id, p] for p in by_partition if (topic, topic_id, p) in epochs}
            kept.append(DroppedTopic(topic=topic, topic_id=topic_id, offsets=by_partition, epochs=known))
    return tuple(reversed(kept))
