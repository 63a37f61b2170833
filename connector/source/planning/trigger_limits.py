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
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pykafka_wire.options.option import MOST_AUTO_OFFSETS, TopicMinimum
from pykafka_wire.wire.topic_partitions import TopicPartition

Offsets = Mapping[TopicPartition, int]
#: A rate is taken over so long, of samples so far apart, and is unknown for so long at first.
_RATE_WITHIN_S: Final = 600.0
_RATE_EVERY_S: Final = 10.0
_RATE_AFTER_S: Final = 60.0
#: By its own rate a topic waits so long at most.
_LONGEST_AUTO_S: Final = 600.0


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


class TopicRates:
    """How many new offsets each topic gets a second, within the last ten minutes."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque()

    def observe(self, now: float, ends: Mapping[str, int]) -> None:
        """Note where topics end: the sum of the ends of their logs."""
        if not self._samples or now - self._samples[-1][0] >= _RATE_EVERY_S:
            self._samples.append((now, dict(ends)))
        while len(self._samples) > 1 and now - self._samples[1][0] >= _RATE_WITHIN_S:
            self._samples.popleft()

    def rate(self, topic: str, now: float, end: int) -> float | None:
        """Return a topic's rate; None while it was not seen for a minute, and where it was made anew."""
        first = next(((seen_at, ends[topic]) for seen_at, ends in self._samples if topic in ends), None)
        if first is None or now - first[0] < _RATE_AFTER_S or end < first[1]:
            return None
        return (end - first[1]) / (now - first[0])


class MinimumsOfTopics:
    """``minOffsetsPerTopic``: which topics wait, and since when."""

    def __init__(self, minimums: Sequence[TopicMinimum], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._minimums = [(re.compile(minimum.pattern), minimum) for minimum in minimums]
        self._clock = clock
        self._rates = TopicRates()
        self._waiting_since: dict[str, float] = {}

    def required(self, latest: Offsets) -> dict[str, int]:
        """Return how many new offsets each topic of these logs must have to be read now; topics without a minimum are left out."""
        if not self._minimums:
            return {}
        now, required = self._clock(), dict[str, int]()
        ends: dict[str, int] = {}
        for tp, end in latest.items():
            ends[tp.topic] = ends.get(tp.topic, 0) + end
        self._rates.observe(now, ends)
        for topic, end in ends.items():
            minimum = next((minimum for pattern, minimum in self._minimums if pattern.fullmatch(topic)), None)
            if minimum is not None:
                since = self._waiting_since.get(topic, now)
                offsets, delay_s = _wait_of(minimum, self._rates.rate(topic, now, end))
                required[topic] = offsets if now - since < delay_s else 0
        return required

    def remember(self, waiting: Collection[str]) -> None:
        """Remember that these topics have been left out; the others have been read, or have nothing new."""
        now = self._clock()
        self._waiting_since = {topic: self._waiting_since.get(topic, now) for topic in waiting}


def _wait_of(minimum: TopicMinimum, rate: float | None) -> tuple[int, float]:
    """Return how many new offsets a topic of this rate waits for, and how many seconds; 0 where the rate is asked for and unknown.

    A number by the rate is what the topic gets within the longest wait, so that nothing waits for records that do not come; a time
    by the rate is that in which the topic gets the number.
    """
    offsets, delay_ms = minimum.min_offsets, minimum.max_delay_ms
    if offsets is not None and delay_ms is not None:
        return offsets, delay_ms / 1000
    if rate is None:
        return 0, 0.0
    longest_s = _LONGEST_AUTO_S if delay_ms is None else delay_ms / 1000
    offsets = min(MOST_AUTO_OFFSETS, int(rate * longest_s)) if offsets is None else offsets
    return offsets, min(longest_s, offsets / rate) if delay_ms is None and rate else longest_s


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
