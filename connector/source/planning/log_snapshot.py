"""The logs that a streaming query reads, at one moment, and what has become of them since its checkpoint.

If a log was truncated and has grown again, its offsets look valid. So the checkpoint has the leader epoch of each offset; where the
log's newest one differs, OffsetForLeaderEpoch tells where the logs diverge (KIP-320), once for each change of the leader.

Every function here is pure. :mod:`~pykafka_wire.source.planning.subscribed_logs` asks brokers for the snapshot.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.source.planning.trigger_limits import Offsets
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
    """What has become of the logs since the query was at ``known``."""
    truncated = {
        tp: min(end, snapshot.latest[tp].offset)
        for tp, end in snapshot.epoch_ends.items()
        if tp in known and 0 <= end < known[tp]
    }
    shorter = {
        tp: found.offset
        for tp, found in snapshot.latest.items()
        if tp in known and found.offset < known[tp] and snapshot.high_watermarks.get(tp, -1) < known[tp]
    }
    return ComparedLogs(snapshot=snapshot, known=known, truncated=truncated, shortened=shorter | truncated)


def known_offsets(checkpoint: QueryOffsets, topic_ids: Mapping[str, uuid.UUID]) -> dict[TopicPartition, int]:
    """Offsets at which a query goes on: the checkpoint's, except those of a topic that now has another id, and those of a
    dropped topic that is back under its id."""
    recreated = recreated_topics(checkpoint, topic_ids)
    if not recreated and not checkpoint.dropped:
        return dict(checkpoint.offsets)
    known = {
        TopicPartition(each.topic, partition): offset
        for each in checkpoint.dropped
        if topic_ids.get(each.topic) == each.topic_id
        for partition, offset in each.offsets.items()
    }
    known |= {tp: offset for tp, offset in checkpoint.offsets.items() if tp.topic not in recreated}
    return known


def recreated_topics(checkpoint: QueryOffsets, topic_ids: Mapping[str, uuid.UUID]) -> set[str]:
    """Topics of the checkpoint that now have another id."""
    return {topic for topic, known in checkpoint.topic_ids.items() if topic in topic_ids and topic_ids[topic] != known}
