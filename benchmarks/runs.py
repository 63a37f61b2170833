"""Alternating runs and their results: medians, and ratios pair by pair.

Owns the arithmetic of a comparison. Knows nothing of Kafka or Spark: a contender is a name and a function.

Two contenders that run in turn meet the same page cache, the same JVM and the same noise, so their k-th runs form a
pair. The ratio reported is the median of the ratios within pairs, which a slow minute of the machine does not move.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Unit(Enum):
    """What is measured: its label, whether more is better, and what to divide by for display."""

    RATE = ("million records/s", True, 1e6)
    CORE_RATE = ("million records per CPU second", True, 1e6)
    LATENCY = ("ms", False, 1.0)
    SECONDS = ("s", False, 1.0)
    MEMORY = ("MB", False, 1e6)
    REQUESTS = ("requests/s", False, 1.0)

    def __init__(self, label: str, more_is_better: bool, scale: float) -> None:
        self.label = label
        self.more_is_better = more_is_better
        self.scale = scale


class DisagreementError(RuntimeError):
    """Contenders read or wrote different data: their figures cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: its figure in the item's unit (unscaled), the data it saw, and figures to record beside it."""

    value: float
    result: object = None
    beside: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One of the compared connectors or clients.

    Attributes:
        run: runs once and measures itself.
        check: what it reads, computed outside of any measurement; must be equal for all contenders.
    """

    name: str
    run: Callable[[], Run]
    check: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Median and extremes."""

    median: float
    low: float
    high: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        return cls(median=statistics.median(values), low=min(values), high=max(values), values=tuple(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One contender's outcome; ``ratio`` is the first contender's figure divided by this one's, pair by pair."""

    name: str
    figure: Summary
    ratio: Summary | None
    beside: Mapping[str, float]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value that at least `share` of all values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def alternate(
    contenders: Sequence[Contender],
    *,
    runs: int,
    warmups: int | None = None,
    told: Callable[[str, int, Run | None], None] = lambda name, turn, run: None,
) -> list[Compared]:
    """The results of `runs` counted turns, after `warmups` uncounted ones: A B C, A B C, …; the first contender is ours.

    By default one turn is uncounted, and none where contenders are checked: a check has read everything once.

    `told` hears of every run before it starts (None) and after it; turns below 0 are warm-ups.

    Raises:
        DisagreementError: results or checks differ.
    """
    checks = {contender.name: contender.check() for contender in contenders if contender.check is not None}
    _agree(checks)
    measured: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    if warmups is None:
        warmups = 0 if checks else 1
    for turn in range(-warmups, runs):
        for contender in contenders:
            told(contender.name, turn, None)
            gc.collect()
            run = contender.run()
            told(contender.name, turn, run)
            if turn >= 0:
                measured[contender.name].append(run)
    _agree({f"{name} #{i}": run.result for name, done in measured.items() for i, run in enumerate(done)})
    return compare(measured)


def compare(measured: Mapping[str, Sequence[Run]]) -> list[Compared]:
    """Summaries of the runs of each contender, compared with the first contender."""
    first = next(iter(measured))
    compared = []
    for name, done in measured.items():
        ratios = [ours.value / theirs.value for ours, theirs in zip(measured[first], done, strict=True)]
        names = done[0].beside
        compared.append(
            Compared(
                name=name,
                figure=Summary.of([run.value for run in done]),
                ratio=None if name == first else Summary.of(ratios),
                beside={key: statistics.median(run.beside[key] for run in done) for key in names},
            )
        )
    return compared


def _agree(results: Mapping[str, object]) -> None:
    given = {name: result for name, result in results.items() if result is not None}
    if len(set(map(repr, given.values()))) > 1:
        told = "; ".join(f"{name}: {result}" for name, result in given.items())
        raise DisagreementError(f"contenders saw different data: {told}")
