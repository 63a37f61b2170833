"""What an item is: the work, the unit, and the target ratio."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from datasets import Filled
from rig import Rig
from runs import Contender, Unit


class Work(Protocol):
    """Work that the contenders do in turn."""

    def datasets(self) -> tuple[Filled, ...]:
        """The topics that it reads."""

    def contenders(self, rig: Rig) -> contextlib.AbstractContextManager[Sequence[Contender]]:
        """The contenders, ours first; their resources exist while the context is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One comparison.

    Attributes:
        goals: by contender, the ratio ours / theirs aimed at: a floor where more is better, else a ceiling.
        limit: an absolute ceiling of our own figure, in the unit as displayed.
        default: whether it runs when none is named.
        conf: Spark settings that differ from the rig's.
        growth: its place in the plots of growth: a number of partitions, of bytes a record, of executors.
        warmups: uncounted turns, where it does not depend on the command line: runs that leave out their own first
            batches, or start cold.
        seconds: about how long it takes at its full size, with 5 runs and a warm-up, on two cores.
    """

    name: str
    title: str
    unit: Unit
    work: Work
    goals: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None
    default: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    growth: Mapping[str, int] = field(default_factory=dict)
    warmups: int | None = None
    seconds: float = 60
