"""The next micro-batch, as a pure function of the checkpoint, a snapshot of the logs, and limits.

Owns the rules of planning a micro-batch: where each topic-partition goes on, what was lost since the checkpoint, how much is
taken under the limits, and the offset that Spark logs for it. The snapshot and its comparison with the checkpoint are
:mod:`~pykafka_wire.source.planning.log_snapshot`'s, reporting a loss is :mod:`~pykafka_wire.source.progress.data_loss`'s.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final, NamedTuple

from pykafka_wire.checkpoints.query_offsets import DroppedTopic, QueryOffsets
from pykafka_wire.errors import Loss
from pykafka_wire.source.planning.log_snapshot import ComparedLogs, LogSnapshot, recreated_topics
from pykafka_wire.source.planning.trigger_limits import Limits, Offsets, apply_limits, waiting_topics
from pykafka_wire.source.progress.data_loss import LostRange

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
        end: the offset for Spark to log, None where nothing is new.
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
    """The micro-batch after ``checkpoint``; ``group`` is the consumer group of its offset, the checkpoint's by default."""
    snapshot, known, shortened = logs.snapshot, logs.known, logs.shortened
    starts = {tp: known[tp] if tp in known else snapshot.earliest[tp] for tp in snapshot.latest} | dict(shortened)
    ends = {tp: max(found.offset, starts[tp]) for tp, found in snapshot.latest.items()}
    last = limits.last_offsets
    if last is not None:
        ends = {tp: max(starts[tp], min(end, last.get(tp, 0))) for tp, end in ends.items()}
    is_waiting, waiting = ends == starts, waiting_topics(starts, ends, limits)
    ends = apply_limits(starts, ends, limits)
    plan_end = None
    # A shortened log is remembered at once: it may grow past the checkpoint's offset again.
    if ends != starts or shortened:
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
    """What of the logs is lost since the checkpoint."""
    snapshot, known, truncated = logs.snapshot, logs.known, logs.truncated
    recreated = recreated_topics(checkpoint, snapshot.topic_ids)
    deleted = sorted(
        tp
        for tp in checkpoint.offsets
        if tp.topic not in recreated and tp.topic not in snapshot.hidden and tp not in snapshot.latest
    )
    topics = {tp.topic for tp in snapshot.latest}
    missing = ", ".join(sorted({tp.topic for tp in deleted} - topics))
    found = [
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
    return [each for each in found if each.ranges]


def _end_of(
    checkpoint: QueryOffsets, snapshot: LogSnapshot, starts: Offsets, ends: Offsets, group: str
) -> QueryOffsets:
    """The offset at the end of a micro-batch. A new log is in it from its first records on."""
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
    """What the checkpoint remembers of topics that it no longer reads, the latest last."""
    dropped: dict[tuple[str, uuid.UUID], dict[int, int]] = {
        (each.topic, each.topic_id): {
            partition: offset
            for partition, offset in each.offsets.items()
            if snapshot.topic_ids.get(each.topic) != each.topic_id or (each.topic, partition) not in offsets
        }
        for each in checkpoint.dropped
    }
    for tp, offset in checkpoint.offsets.items():
        topic_id = checkpoint.topic_ids.get(tp.topic)
        is_read = tp in offsets and snapshot.topic_ids.get(tp.topic) == topic_id
        if topic_id is not None and not is_read and tp.topic not in snapshot.hidden:
            dropped.setdefault((tp.topic, topic_id), {})[tp.partition] = offset
    kept: list[DroppedTopic] = []
    n_kept = 0
    for (topic, topic_id), by_partition in reversed(dropped.items()):
        n_kept += len(by_partition)
        if kept and n_kept > _MAX_DROPPED:
            break
        if by_partition:
            kept.append(DroppedTopic(topic=topic, topic_id=topic_id, offsets=by_partition))
    return tuple(reversed(kept))
