"""The micro-batch that is being landed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest_status import PlannedRange, TableFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """A micro-batch that is being landed.

    Attributes:
        ranges: the range of each table's topic in the micro-batch, by the table's key (:attr:`TableStatus.key`).
        positions: the position of each table at the micro-batch's begin, by the table's key; only tables that were opened.
        is_repeated: whether an earlier run has landed the micro-batch. Then only tables that did not reach its end get rows.
        begun_at: the start, in seconds of :func:`time.monotonic`.
    """

    number: int
    ranges: Mapping[str, TopicRange]
    positions: Mapping[str, Mapping[int, int]]
    is_repeated: bool = False
    begun_at: float = field(default_factory=time.monotonic)

    def planned(self, key: str, figures: TableFigures) -> PlannedRange | None:
        """Return the range that a table still lacked when the micro-batch began.

        None if the micro-batch has no range for the table, or if the table was not opened yet, so that its range is unknown.
        """
        topic_range = self.ranges.get(key)
        position = self.positions.get(key, figures.first_position)
        if topic_range is None or (position is None and self.is_repeated):
            return None
        known = {} if position is None else position
        return PlannedRange({p: known.get(p, topic_range.start[p]) for p in topic_range.end}, topic_range.end)
