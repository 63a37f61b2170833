"""The micro-batch that is being landed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest_status import PlannedRange, TableFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One that is being landed.

    Attributes:
        parts: what each table's topic has in it, by the table's key (:attr:`TableStatus.key`).
        positions: where each table ended when it began, by the table's key; tables that were looked at alone.
        is_repeated: it was landed by an earlier run: only tables that have ended before get anything.
        begun_at: by the clock of :func:`time.monotonic`.
    """

    number: int
    parts: Mapping[str, TopicRange]
    positions: Mapping[str, Mapping[int, int]]
    is_repeated: bool = False
    begun_at: float = field(default_factory=time.monotonic)

    def planned(self, key: str, figures: TableFigures) -> PlannedRange | None:
        """Return what a table had still to get when the micro-batch began.

        None where the table has no part in it, or was not looked at yet, so that its part is unknown.
        """
        part = self.parts.get(key)
        position = self.positions.get(key, figures.first_position)
        if part is None or (position is None and self.is_repeated):
            return None
        known = {} if position is None else position
        return PlannedRange({p: known.get(p, part.start[p]) for p in part.end}, part.end)
