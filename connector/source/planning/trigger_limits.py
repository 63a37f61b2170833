"""How much a micro-batch takes: maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger with maxTriggerDelay, and
minOffsetsPerTopic.

Spark has no limit that combines a minimum, a maximum and a delay: the maximum comes through Spark
(:meth:`~pykafka_wire.source.stream_reader.KafkaStreamReader.getDefaultReadLimit`), the other two are ours. Asks nothing of
brokers or of Spark.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pykafka_wire.options.option import TopicMinimum
from pykafka_wire.wire.topic_partitions import TopicPartition

Offsets = Mapping[TopicPartition, int]


class MinimumOffsets:
    """``minOffsetsPerTrigger``: a micro-batch waits for so many offsets, at most ``maxTriggerDelay``. The first never waits."""

    def __init__(
        self, *, min_offsets: int | None, max_delay_ms: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_ms / 1000
        self._clock = clock
        self._last_batch_at: float | None = None

    def required(self) -> int:
        """Return how many new offsets a micro-batch must have to go now."""
        if self._last_batch_at is None or self._clock() - self._last_batch_at >= self._max_delay_s:
            return 0
        return self._min_offsets or 0

    def restart(self) -> None:
        """Begin the delay of the next micro-batch: one with new offsets goes."""
        self._last_batch_at = self._clock()


class MinimumsOfTopics:
    """``minOffsetsPerTopic``: which topics wait, and since when."""

    def __init__(self, minimums: Sequence[TopicMinimum], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._minimums = [(re.compile(minimum.pattern), minimum) for minimum in minimums]
        self._clock = clock
        self._waiting_since: dict[str, float] = {}

    def required(self, topics: Iterable[str]) -> dict[str, int]:
        """Return how many new offsets each topic must have to be read now; topics without a minimum are left out."""
        if not self._minimums:
            return {}
        now, required = self._clock(), {}
        for topic in topics:
            minimum = next((minimum for pattern, minimum in self._minimums if pattern.fullmatch(topic)), None)
            if minimum is not None:
                since = self._waiting_since.get(topic, now)
                required[topic] = minimum.min_offsets if now - since < minimum.max_delay_ms / 1000 else 0
        return required

    def remember(self, waiting: Collection[str]) -> None:
        """Remember that these topics have been left out; the others have been read, or have nothing new."""
        now = self._clock()
        self._waiting_since = {topic: self._waiting_since.get(topic, now) for topic in waiting}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a micro-batch may take.

    Attributes:
        last_offsets: where AvailableNow ends; None for other triggers. Logs that it does not name are not read.
        min_offsets: with fewer new offsets there is no micro-batch yet (``minOffsetsPerTrigger``).
        min_by_topic: with fewer new offsets a topic is left out yet (``minOffsetsPerTopic``).
        max_offsets: ``maxOffsetsPerTrigger``.
        max_bytes: ``maxBytesPerTrigger``; holds where ``bytes_per_offset`` is known.
        bytes_per_offset: estimated for each topic.
    """

    last_offsets: Offsets | None = None
    min_offsets: int = 0
    min_by_topic: Mapping[str, int] = field(default_factory=dict)
    max_offsets: int | None = None
    max_bytes: int | None = None
    bytes_per_offset: Mapping[str, float] = field(default_factory=dict)


def apply_limits(starts: Offsets, ends: dict[TopicPartition, int], limits: Limits) -> dict[TopicPartition, int]:
    """End of a micro-batch within the limits; its starts where it must wait."""
    waiting = waiting_topics(starts, ends, limits)
    ends = {tp: starts[tp] if tp.topic in waiting else end for tp, end in ends.items()}
    if sum(end - starts[tp] for tp, end in ends.items()) < limits.min_offsets:
        return dict(starts)
    if limits.max_offsets is not None:
        ends = share_offsets(starts, ends, limits.max_offsets)
    if limits.max_bytes is not None and limits.bytes_per_offset:
        ends = share_bytes(starts, ends, limits.max_bytes, limits.bytes_per_offset)
    return ends


def waiting_topics(starts: Offsets, ends: Offsets, limits: Limits) -> frozenset[str]:
    """Return topics with new offsets that are fewer than their minimums."""
    new = dict.fromkeys(limits.min_by_topic, 0)
    for tp, end in ends.items():
        if tp.topic in new:
            new[tp.topic] += end - starts[tp]
    return frozenset(topic for topic, n_offsets in new.items() if 0 < n_offsets < limits.min_by_topic[topic])


def share_offsets(start: Offsets, latest: Offsets, max_offsets: int) -> dict[TopicPartition, int]:
    """End of a micro-batch of about ``max_offsets`` offsets, shared out by each topic-partition's lag.

    A share below one offset is rounded up, so that a small topic-partition never starves beside a large one
    (SPARK-26718); the batch can exceed the limit by at most one offset per topic-partition.
    """
    lags = {tp: end - start[tp] for tp, end in latest.items() if end > start[tp]}
    total = sum(lags.values())
    if total <= max_offsets:
        return dict(latest)
    ends = {}
    for tp, end in latest.items():
        share = max_offsets * (lags.get(tp, 0) / total)
        ends[tp] = min(end, start[tp] + (math.ceil(share) if share < 1 else math.floor(share)))
    return ends


def share_bytes(
    start: Offsets, ends: Offsets, max_bytes: int, bytes_per_offset: Mapping[str, float]
) -> dict[TopicPartition, int]:
    """End of a micro-batch of about ``max_bytes``, none beyond ``ends``; as :func:`share_offsets`, in estimated bytes.

    Each topic-partition with a lag gives at least one offset, so that a record larger than the limit is read, too.
    """
    total = total_bytes(start, ends, bytes_per_offset)
    if total <= max_bytes:
        return dict(ends)
    share = max_bytes / total
    return {tp: min(end, start[tp] + max(1, math.floor((end - start[tp]) * share))) for tp, end in ends.items()}


def total_bytes(start: Offsets, ends: Offsets, bytes_per_offset: Mapping[str, float]) -> float:
    """Return the estimated size of a micro-batch."""
    return sum((end - start[tp]) * bytes_per_offset[tp.topic] for tp, end in ends.items())
