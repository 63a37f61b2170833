"""Counts of the last quarter of an hour, as rates; kept in memory of fixed size."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterable
from typing import Final

from pykafka_wire.page.snapshots import IngestSnapshot

#: The time between two samples, in seconds.
STEP_S: Final = 15
#: The number of samples: a quarter of an hour.
N_SAMPLES: Final = 60
#: The number of samples for the current rate: more than half a minute.
_RECENT: Final = 3
#: The significant digits of a rate.
_DIGITS: Final = 4


class Series:
    """Samples of one count or gauge; NaN if unknown."""

    def __init__(self, n_missed: int, before: float) -> None:
        """Start with ``before`` as the value in the samples that were missed."""
        self._values = array("d", [before] * n_missed)
        self._rates: list[float | None] | None = None

    def add(self, value: float | None) -> None:
        self._rates = None
        self._values.append(float("nan") if value is None else value)
        if len(self._values) > N_SAMPLES + 1:
            del self._values[0]

    def values(self) -> list[float | None]:
        return [None if value != value else value for value in self._values][-N_SAMPLES:]

    def rates(self, steps: array[float]) -> list[float | None]:
        """Return the growth per second between successive samples, computed once for each sample; 0 if a count was reset.

        Args:
            steps: the seconds before each sample.
        """
        if self._rates is None:
            self._rates = self._growths(steps)
        return self._rates

    def _growths(self, steps: array[float]) -> list[float | None]:
        rates: list[float | None] = []
        for number in range(max(1, len(self._values) - N_SAMPLES), len(self._values)):
            growth = self._values[number] - self._values[number - 1]
            rates.append(None if growth != growth else short(max(0.0, growth) / steps[number]))
        return rates


class Samples:
    """Samples of an ingest and its tables. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sampled_at: float | None = None
        self._steps = array("d")
        self._series: dict[tuple[str, str], Series] = {}

    def is_due(self) -> bool:
        """Return whether the next sample is due."""
        return self._sampled_at is None or self._clock() - self._sampled_at >= STEP_S

    def add(self, snapshot: IngestSnapshot) -> None:
        """Take a sample of every count."""
        tables = {table.key: table for table in snapshot.tables}
        values: dict[tuple[str, str], float | None] = {
            ("records", ""): sum(table.n_records for table in snapshot.tables),
            ("bytes", ""): snapshot.bytes_written,
            ("bytes read", ""): snapshot.bytes_read,
        }
        for topic, table in tables.items():
            values["records", topic] = table.n_records
            values["lag", topic] = table.lag
        for name, figures in snapshot.processes.items():
            values["cpu", name] = figures.cpu
            values["memory", name] = figures.memory_bytes
        now = self._clock()
        with self._lock:
            self._steps.append(now - self._sampled_at if self._sampled_at is not None else float(STEP_S))
            if len(self._steps) > N_SAMPLES + 1:
                del self._steps[0]
            self._sampled_at = now
            n_before = len(self._steps) - 1
            for key, value in values.items():
                if key not in self._series:
                    # The records of a table are counted from the start of the ingest, so this count started at 0. Other counts may
                    # not have.
                    self._series[key] = Series(n_before, 0.0 if key[0] == "records" else float("nan"))
                self._series[key].add(value)
            for key in self._series.keys() - values.keys():  # a topic that no longer exists
                del self._series[key]

    def rates(self, kind: str, name: str) -> list[float | None]:
        """Return the growth per second of one count, oldest first, at most :data:`N_SAMPLES` values."""
        with self._lock:
            series = self._series.get((kind, name))
            return [] if series is None else series.rates(self._steps)

    def values(self, kind: str, name: str) -> list[float | None]:
        """Return the samples of one gauge, oldest first, at most :data:`N_SAMPLES` values."""
        with self._lock:
            series = self._series.get((kind, name))
            return [] if series is None else series.values()


def short(value: float) -> float:
    """Return a rate rounded to as many digits as people read."""
    return float(f"{value:.{_DIGITS}g}")


def recent(rates: Iterable[float | None]) -> float | None:
    """Return the mean of the last rates; None if none is known."""
    known = [rate for rate in list(rates)[-_RECENT:] if rate is not None]
    return sum(known) / len(known) if known else None
