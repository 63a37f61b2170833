"""Offset ranges of a topic, by partition, half-open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.checkpoints.positions import QueryPosition
from pykafka_wire.checkpoints.query_offsets import QueryOffsets, decode_uuid
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange, TopicPartition

#: Later than every timestamp, also one in microseconds by mistake.
_LAST_MS: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange:
    """Offsets of a topic by partition, half-open: what one or several micro-batches add to the topic's table.

    Attributes:
        topic_id: the topic's id as text; empty if the brokers have no topic ids.
        epochs: the leader epochs when the range was planned, by partition, as far as brokers have named them. No record of the
            range has a higher one (KIP-101).
        isolated: the reasons of records that could not be landed among the others, by partition and offset. In a read of the range
            they are rejects, and decide no type.
    """

    topic: str
    topic_id: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)
    isolated: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def n_offsets(self) -> int:
        return sum(self.end[partition] - self.start[partition] for partition in self.end)

    def halves(self, middle: Mapping[int, int] | None = None) -> tuple[TopicRange, TopicRange]:
        """Return two non-empty ranges in the order of offsets. The range must have two offsets or more.

        Args:
            middle: where the second range begins; None for half of the offsets of each partition.
        """
        middle = middle_of(self.start, self.end) if middle is None else middle
        return replace(self, end=middle), replace(self, start=middle)

    @property
    def of_partitions(self) -> list[OffsetRange]:
        """Return the non-empty range of each partition."""
        topic_id = decode_uuid(self.topic_id) if self.topic_id else ZERO_UUID
        return [
            OffsetRange(
                topic=self.topic, partition=p, start_offset=self.start[p], end_offset=end, topic_id=topic_id,
                leader_epoch=self.epochs.get(p, -1),
            )
            for p, end in self.end.items()
            if end > self.start[p]
        ]  # fmt: skip

    def options(self, checkpoint: str) -> dict[str, str]:
        """Return the range as options of a batch read. The read detects a topic that was deleted or created again, and a log that
        was truncated since the range was planned."""
        return {
            "subscribe": self.topic,
            "startingOffsets": f"checkpoint:{self._position(self.start, checkpoint)}",
            "endingOffsets": f"checkpoint:{self._position(self.end, checkpoint)}",
        }

    def _position(self, offsets: Mapping[int, int], checkpoint: str) -> str:
        ids = {self.topic: decode_uuid(self.topic_id)} if self.topic_id else {}
        by_partition = {TopicPartition(self.topic, partition): offset for partition, offset in offsets.items()}
        epochs = {tp: self.epochs[tp.partition] for tp in by_partition if tp.partition in self.epochs}
        position = QueryPosition(
            batch_id=None,
            is_committed=True,
            offsets=QueryOffsets(offsets=by_partition, epochs=epochs, topic_ids=ids),
            topics=frozenset((self.topic,)),
        )
        return position.to_json(checkpoint)


def middle_of(start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
    """Return the middle offset of each partition. If every partition has one record, only the first partition is before the
    middle."""
    middle = {partition: first + (end[partition] - first) // 2 for partition, first in start.items()}
    if middle == dict(start):
        partition = next(partition for partition, last in end.items() if last > start[partition])
        middle[partition] += 1
    return middle


def middle_in_time(topic_range: TopicRange, offsets_at: Callable[[int], Mapping[int, int]]) -> Mapping[int, int] | None:
    """Return where a moment divides a range, by partition, so that about half of the offsets are before the moment.

    None if no moment divides the range, or if all offsets are of one partition, whose offsets have the order of its records.

    Args:
        offsets_at: returns the first offset of each partition whose record is at or after a time, in ms since the epoch; no offset
            for a partition without such a record.
    """
    if len(topic_range.of_partitions) < 2:
        return None
    start, end, n_offsets = topic_range.start, topic_range.end, topic_range.n_offsets
    best: dict[int, int] | None = None
    best_distance = n_offsets
    earliest, latest = 0, _LAST_MS
    while earliest < latest and best_distance > n_offsets // 4:
        moment = (earliest + latest) // 2
        found = offsets_at(moment)
        middle = {p: min(max(found.get(p, end[p]), start[p]), end[p]) for p in end}
        n_before = sum(middle[p] - start[p] for p in end)
        distance = abs(2 * n_before - n_offsets)
        if distance < best_distance:  # neither part is empty
            best, best_distance = middle, distance
        if 2 * n_before < n_offsets:
            earliest = moment + 1
        else:
            latest = moment
    return best


def before(offsets: Mapping[int, int]) -> Column:
    """Return a column: whether a row is before the offset of its partition. False for partitions without an offset."""
    if not offsets:
        return F.lit(False)
    bounds = F.create_map(
        *(part for p, end in offsets.items() for part in (F.lit(p).cast("bigint"), F.lit(end).cast("bigint")))
    )
    return F.coalesce(F.col("offset") < F.try_element_at(bounds, F.col("partition").cast("bigint")), F.lit(False))
