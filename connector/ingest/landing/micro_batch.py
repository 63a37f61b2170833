"""The micro-batch that is being landed, and how far each table is in it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykafka_wire.ingest.ranges import TopicRange


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One that is being landed.

    Attributes:
        parts: what each table's topic has in it, by the table's key (:attr:`TableStatus.key`).
        positions: where each table stood when it began, by its key.
        begun_at: by the clock of :func:`time.monotonic`.
    """

    number: int
    parts: Mapping[str, TopicRange]
    positions: Mapping[str, Mapping[int, int]]
    begun_at: float = field(default_factory=time.monotonic)

    def n_planned(self, key: str) -> int:
        """Return records that a table had still to get when the micro-batch began."""
        return self._n_until(key, self.parts[key].end)

    def n_landed(self, key: str, position: Mapping[int, int] | None) -> int:
        """Return those of them that a table has that stands at ``position``."""
        return 0 if position is None else self._n_until(key, position)

    def _n_until(self, key: str, position: Mapping[int, int]) -> int:
        part, before = self.parts[key], self.positions.get(key, {})
        starts = {p: before.get(p, part.start[p]) for p in part.end}
        return sum(max(0, min(position.get(p, starts[p]), part.end[p]) - starts[p]) for p in part.end)
