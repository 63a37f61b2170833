"""The logs that a streaming query reads: which there are, where each ends, and what of them is lost since its checkpoint.

Owns the comparison of a checkpoint with what brokers say now. How much of it a micro-batch takes is
:mod:`~pykafka_wire.source.driver`'s, what becomes of a loss is :mod:`~pykafka_wire.source.progress.data_loss`'s.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pykafka_wire.errors import DataLossError, Loss
from pykafka_wire.offsets import QueryOffsets
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.planning.resolve import earliest_offsets, find_topics, latest_offsets, topic_partitions
from pykafka_wire.source.progress.data_loss import Losses, LostRange
from pykafka_wire.wire.cluster.admin import ListedOffset, offsets_for_leader_epoch
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.errors import UnknownTopicError, WireError
from pykafka_wire.wire.topics import ZERO_UUID, TopicPartition

#: New partitions and topics are looked for this often at most; a refresh that takes long is done less often still.
_METADATA_AGE_MS = 1_000
_METADATA_COST_FACTOR = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What lies ahead of a query in the logs.

    Attributes:
        topic_ids: ids of the topics by name, as far as brokers give them.
        latest: the end of each log, with its leader epoch.
        begins: offset of each topic-partition that is read next.
        ends: offset up to which each can be read, never below where it begins.
        starts: those of ``begins`` that the checkpoint does not say.
        cut: whether logs lost what the query has read of them; it goes on where they were cut.
    """

    topic_ids: dict[str, uuid.UUID]
    latest: dict[TopicPartition, ListedOffset]
    begins: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    starts: dict[TopicPartition, int]
    cut: bool


class Logs:
    """All logs of one query's subscription."""

    def __init__(self, cluster: Cluster, options: SourceOptions, losses: Losses) -> None:
        self._cluster = cluster
        self._options = options
        self._losses = losses
        #: When topics were looked for last, and how long that holds.
        self._looked_at, self._metadata_age_ms = float("-inf"), 0.0
        self._missing: UnknownTopicError | None = None
        #: (leader epoch in the checkpoint, leader epoch now) of logs that were found whole.
        self._whole: dict[TopicPartition, tuple[int, int]] = {}

    def subscribed(
        self, *, may_be_missing: bool = False, afresh: bool = False
    ) -> tuple[dict[str, Any], list[TopicPartition]]:
        """Topics and topic-partitions that the query reads, as known for a moment or ``afresh``.

        Raises:
            UnknownTopicError: a topic that was named does not exist, and none ``may_be_missing``.
        """
        started = time.monotonic()
        due = afresh or (started - self._looked_at) * 1000 >= self._metadata_age_ms
        try:
            topics = find_topics(
                self._cluster,
                self._options.subscription,
                max_age_ms=0 if due else self._metadata_age_ms,
                may_be_missing=self._missing is not None,
            )
        except UnknownTopicError as error:
            if not may_be_missing:
                raise
            # From now on one look at all topics: asking for a missing one waits some seconds, each time.
            self._missing = error
            return self.subscribed(may_be_missing=True, afresh=afresh)
        if self._missing is not None and self._missing.topic in topics:
            self._missing = None
        elif self._missing is not None and not may_be_missing:
            raise self._missing
        if due:
            took_ms = (time.monotonic() - started) * 1000
            self._looked_at, self._metadata_age_ms = started, max(_METADATA_AGE_MS, took_ms * _METADATA_COST_FACTOR)
        return topics, topic_partitions(self._options.subscription, topics)

    def look(self, start: QueryOffsets, *, afresh: bool = False) -> Ahead:
        """What lies ahead of ``start``.

        What looks like a loss is judged by metadata had ``afresh``: a topic may have gone, or be another one, since the last.

        Raises:
            DataLossError: records are lost, and ``failOnDataLoss`` is true.
            UnknownTopicError: a topic that a new query names does not exist.
        """
        try:
            goes_on = not start.initial and not self._options.fail_on_data_loss
            topics, partitions = self.subscribed(may_be_missing=goes_on, afresh=afresh)
        except UnknownTopicError as error:
            gone = [(tp, offset, -1) for tp, offset in start.offsets.items() if tp.topic == error.topic]
            if start.initial or not gone:
                raise
            raise DataLossError(Loss.PARTITIONS_DELETED, gone, error.text) from error
        ids = topic_ids(topics)
        ids_ever = ids | dict(start.topic_ids)

        def lost(loss: Loss, ranges: list[LostRange], detail: str = "") -> None:
            self._losses.report(loss, ranges, detail=detail, query=start.query, topic_ids=ids_ever)

        recreated = {t for t, known in start.topic_ids.items() if t in ids and ids[t] != known}
        begins = {tp: offset for tp, offset in start.offsets.items() if tp.topic not in recreated}
        lost(
            Loss.TOPIC_RECREATED,
            [(tp, start.offsets[tp], -1) for tp in sorted(tp for tp in start.offsets if tp.topic in recreated)],
        )
        strangers = ", ".join(sorted({tp.topic for tp in begins if tp.topic not in topics}))
        why = f"the query reads no topic {strangers} now; was it deleted, or is the checkpoint another query's?"
        current = set(partitions)
        deleted = [(tp, begins[tp], -1) for tp in sorted(begins.keys() - current)]
        lost(Loss.PARTITIONS_DELETED, deleted, why if strangers else "")
        added = [tp for tp in partitions if tp not in begins]
        try:
            latest = latest_offsets(self._cluster, partitions, self._options.client.isolation_level)
            earliest = earliest_offsets(self._cluster, added) if added else {}
            begins = {tp: begins[tp] if tp in begins else earliest[tp] for tp in partitions}
            truncated = self._truncated(start, begins, latest)
            ends = {tp: latest[tp].offset for tp in partitions}
            ends |= self._open_transactions(
                {tp: begins[tp] for tp in partitions if ends[tp] < begins[tp] and tp not in truncated}
            )
        except UnknownTopicError as error:
            if afresh:
                raise
            if not self._options.subscription.pattern:
                self._missing = error  # its grace is over: from now on one look at all topics
            never_seen = [(tp, 0, -1) for tp in added if tp.topic == error.topic]
            try:
                ahead = self.look(start, afresh=True)
            except WireError:
                lost(Loss.INITIAL_OFFSET_NOT_FOUND, never_seen)
                raise
            lost(Loss.INITIAL_OFFSET_NOT_FOUND, [each for each in never_seen if each[0] not in ahead.latest])
            return ahead
        shorter = {tp: end for tp, end in ends.items() if end < begins[tp] and tp not in truncated}
        cut = truncated | shorter
        if cut and not afresh:
            return self.look(start, afresh=True)
        lost(
            Loss.ADDED_PARTITION_DOES_NOT_START_FROM_ZERO,
            [(tp, 0, offset) for tp, offset in earliest.items() if offset > 0 and tp.topic not in recreated],
        )
        lost(Loss.LOG_TRUNCATED, [(tp, end, begins[tp]) for tp, end in truncated.items()])
        lost(Loss.OFFSETS_CHANGED, [(tp, end, begins[tp]) for tp, end in shorter.items()])
        begins |= cut
        return Ahead(
            topic_ids=ids,
            latest=latest,
            begins=begins,
            ends={tp: max(end, begins[tp]) for tp, end in ends.items()},
            starts=(dict(start.offsets) if start.initial else {}) | earliest | cut,
            cut=bool(cut),
        )

    def _truncated(
        self, start: QueryOffsets, begins: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, ListedOffset]
    ) -> dict[TopicPartition, int]:
        """Where logs were cut below what this query has read: their present leaders' logs part from it there (KIP-320)."""
        asked = {
            tp: epoch
            for tp, epoch in start.epochs.items()
            if tp in latest and begins.get(tp) == start.offsets.get(tp)
            and latest[tp].leader_epoch not in (-1, epoch)
            and self._whole.get(tp) != (epoch, latest[tp].leader_epoch)
        }  # fmt: skip
        cut = {}
        for tp, (_, end_offset) in (offsets_for_leader_epoch(self._cluster, asked) if asked else {}).items():
            if 0 <= end_offset < begins[tp]:
                cut[tp] = min(end_offset, latest[tp].offset)
            else:
                self._whole[tp] = (asked[tp], latest[tp].leader_epoch)
        return cut

    def _open_transactions(self, begins: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of topic-partitions that were read beyond their last stable offset, before the query was ``read_committed``,
        those whose logs hold what was read: nothing is lost, and nothing new."""
        if not begins or self._options.client.isolation_level != "read_committed":
            return {}
        written = latest_offsets(self._cluster, begins, "read_uncommitted")
        return {tp: offset for tp, offset in begins.items() if written[tp].offset >= offset}


def topic_ids(topics: Mapping[str, Any]) -> dict[str, uuid.UUID]:
    """Ids of topics by name; old brokers give none."""
    return {name: topic.topic_id for name, topic in topics.items() if topic.topic_id != ZERO_UUID}
