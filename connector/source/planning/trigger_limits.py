"""How much a micro-batch takes: maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger with maxTriggerDelay.

Spark has no limit that combines a minimum, a maximum and a delay: the maximum comes through Spark
(:mod:`~pykafka_wire.source.planning.spark_read_limits`), the other two are ours. Asks nothing of brokers or of Spark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
        """How many new offsets a micro-batch must have to go now."""
        if self._last_batch_at is None or self._clock() - self._last_batch_at >= self._max_delay_s:
            return 0
        return self._min_offsets or 0

    def restart(self) -> None:
        """A micro-batch with new offsets goes: the delay of the next one begins."""
        self._last_batch_at = self._clock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a micro-batch may take.

    Attributes:
        last_offsets: where AvailableNow ends; None for other triggers. Logs that it does not name are not read.
        min_offsets: with fewer new offsets there is no micro-batch yet (``minOffsetsPerTrigger``).
        max_offsets: ``maxOffsetsPerTrigger``.
        max_bytes: ``maxBytesPerTrigger``, by ``bytes_per_offset``.
        bytes_per_offset: estimated for each topic.
    """

    last_offsets: Offsets | None = None
    min_offsets: int = 0
    max_offsets: int | None = None
    max_bytes: int | None = None
    bytes_per_offset: Mapping[str, float] = field(default_factory=dict)


def apply_limits(starts: Offsets, ends: dict[TopicPartition, int], limits: Limits) -> dict[TopicPartition, int]:
    """Ends of a micro-batch within the limits; its starts where it must wait."""
    if sum(end - starts[tp] for tp, end in ends.items()) < limits.min_offsets:
        return dict(starts)
    if limits.max_offsets is not None:
        ends = share_offsets(starts, ends, limits.max_offsets)
    if limits.max_bytes is not None:
        ends = share_bytes(starts, ends, limits.max_bytes, limits.bytes_per_offset)
    return ends


def share_offsets(start: Offsets, latest: Offsets, max_offsets: int) -> dict[TopicPartition, int]:
    """Ends of a micro-batch of about ``max_offsets`` offsets, shared out by each topic-partition's lag.

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
    """Ends of a micro-batch of about ``max_bytes``, none beyond ``ends``; as :func:`share_offsets`, in estimated bytes.

    Each topic-partition with a lag gives at least one offset, so that a record larger than the limit is read, too.
    """
    total = total_bytes(start, ends, bytes_per_offset)
    if total <= max_bytes:
        return dict(ends)
    share = max_bytes / total
    return {tp: min(end, start[tp] + max(1, math.floor((end - start[tp]) * share))) for tp, end in ends.items()}


def total_bytes(start: Offsets, ends: Offsets, bytes_per_offset: Mapping[str, float]) -> float:
    """The estimated size of a micro-batch."""
    return sum((end - start[tp]) * bytes_per_offset[tp.topic] for tp, end in ends.items())
