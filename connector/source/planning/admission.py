"""Trigger limits on every Spark version: the read limits of Spark 4.2 where they exist, and our own minimum.

Spark has no limit that combines a minimum, a maximum and a delay, so the maximum is Spark's and the other two are ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
    )
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as AvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ImportError:  # Spark 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False

    class AvailableNow:  # type: ignore[no-redef]
        """Stands in for the mixin that Spark before 4.2 does not have."""


__all__ = ["HAS_ADMISSION_CONTROL", "AvailableNow", "MinimumOffsets", "read_limit", "reads_all_available"]


def read_limit(max_rows: int | None, max_bytes: int | None = None) -> Any:
    """Spark's read limit for so many rows or bytes a micro-batch; it has none for both, and rows go first."""
    if max_rows is not None:
        return ReadMaxRows(max_rows)
    return ReadAllAvailable() if max_bytes is None else ReadMaxBytes(max_bytes)


def reads_all_available(limit: Any) -> bool:
    """Whether Spark asks for everything whatever the options are, as Trigger.Once does."""
    return isinstance(limit, ReadAllAvailable)


class MinimumOffsets:
    """``minOffsetsPerTrigger``: a micro-batch waits for so many offsets, at most ``maxTriggerDelay``. The first never waits."""

    def __init__(
        self, *, min_offsets: int | None, max_delay_ms: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_ms / 1000
        self._clock = clock
        self._last_batch_at: float | None = None

    def admits(self, n_offsets: int) -> bool:
        """Whether a batch of ``n_offsets`` new offsets may go now; remembers that it did."""
        now = self._clock()
        if (
            self._min_offsets is not None
            and self._last_batch_at is not None
            and n_offsets < self._min_offsets
            and now - self._last_batch_at < self._max_delay_s
        ):
            return False
        if n_offsets:
            self._last_batch_at = now
        return True
