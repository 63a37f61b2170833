"""Successive samples of lag: the rates at which a group reads and its topics grow, and the time until the group has caught up."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import click

from pykafka_wire.wire.errors import BrokerError, TransportError

ResultT = TypeVar("ResultT")

#: The time over which rates are computed: a query commits once in each micro-batch, which may take seconds.
_WINDOW_S: Final = 60.0
#: Lower rates are shown as 0: less than one record in a minute and a half.
_LOWEST_RATE: Final = 0.01
#: The shortest time between two samples, in seconds.
_LEAST_S: Final = 0.1
#: The most samples of log ends; with a sample every two seconds, half of them cover the last four minutes.
_MOST_SAMPLES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSample:
    """The offsets of a group at one moment, summed over the topic-partitions with a committed offset.

    Attributes:
        at_s: the time on the monotonic clock.
        partitions: the partitions included in the sums.
    """

    at_s: float
    committed: int
    latest: int
    lag: int
    partitions: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> LagSample:
        """Return a sample of the current time. Rows have topic, partition, committed, latest and lag; rows with unknown lag are
        ignored."""
        known = [row for row in rows if row["lag"] is not None]
        return cls(
            at_s=time.monotonic(),
            committed=sum(row["committed"] for row in known),
            latest=sum(row["latest"] for row in known),
            lag=sum(row["lag"] for row in known),
            partitions=frozenset((row["topic"], row["partition"]) for row in known),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRates:
    """Offsets per second, None after a single sample. ``caught_up_s`` is the number of seconds until the lag is 0 at these rates;
    None if the lag does not fall."""

    read_per_s: float | None = None
    written_per_s: float | None = None
    caught_up_s: float | None = None


@dataclass(slots=True)
class LagHistory:
    """The samples of one group in the last minute."""

    samples: deque[LagSample] = field(default_factory=deque)

    def add(self, sample: LagSample) -> LagRates:
        """Add a sample; return the rates over the last minute."""
        if self.samples:
            last = self.samples[-1]
            if sample.partitions != last.partitions or sample.committed < last.committed or sample.latest < last.latest:
                self.samples.clear()  # other partitions, or reset offsets: the difference would be no rate
        self.samples.append(sample)
        while len(self.samples) > 2 and sample.at_s - self.samples[0].at_s > _WINDOW_S:
            self.samples.popleft()
        first = self.samples[0]
        elapsed_s = sample.at_s - first.at_s
        caught_up_s = 0.0 if sample.lag == 0 else None
        if elapsed_s <= 0:
            return LagRates(caught_up_s=caught_up_s)
        read, written = (sample.committed - first.committed) / elapsed_s, (sample.latest - first.latest) / elapsed_s
        if sample.lag and read - written >= _LOWEST_RATE:
            caught_up_s = sample.lag / (read - written)
        return LagRates(read_per_s=read, written_per_s=written, caught_up_s=caught_up_s)


@dataclass(slots=True)
class Freshness:
    """How long ago a group had reached the ends of all its topics' logs, by the samples so far.

    The samples cover at least an hour; older samples are thinned out.
    """

    _ends: deque[tuple[float, dict[tuple[str, int], int]]] = field(default_factory=deque)

    def add(self, rows: Iterable[Mapping[str, Any]], at_s: float | None = None) -> float | None:
        """Add a sample, as in :meth:`LagSample.of`; return the seconds, None if no sample is old enough."""
        now = time.monotonic() if at_s is None else at_s
        known = [row for row in rows if row["lag"] is not None]
        committed = {(row["topic"], row["partition"]): row["committed"] for row in known}
        self._ends.append((now, {(row["topic"], row["partition"]): row["latest"] for row in known}))
        if len(self._ends) > _MOST_SAMPLES:
            self._ends = deque([*list(self._ends)[: _MOST_SAMPLES // 2 : 2], *list(self._ends)[_MOST_SAMPLES // 2 :]])
        for seen_at, ends in reversed(self._ends):
            if all(committed.get(place, 0) >= end for place, end in ends.items()):
                return now - seen_at
        return None


def poll(
    sample: Callable[[], ResultT], *, count: int | None = None, every_s: float = 0.0
) -> Iterator[tuple[ResultT, str]]:
    """Call ``sample`` repeatedly, and yield each result with an empty text. After a failed call, yield the last result again with
    the reason, so that a broker's restart does not end the command.

    Args:
        count: the number of calls, None for no limit.
        every_s: the pause between two calls.

    Raises:
        WireError: the first call fails.
    """
    last, failure = sample(), ""
    for n_polled in itertools.count(1):
        yield last, failure
        if n_polled == count:
            return
        time.sleep(every_s)
        failure = ""
        try:
            last = sample()
        except (TransportError, BrokerError) as error:
            failure = f"The update at {datetime.now():%H:%M:%S} failed: {error}"


def outlook(lag: int, rates: LagRates, now: datetime | None = None, *, is_short: bool = False) -> str:
    """Return a phrase about the development of a lag: ``caught up``, ``caught up in 10m 00s, at 14:03:12``, ``grows by 12/s``.

    ``is_short`` omits the time of day.
    """
    if lag == 0:
        return "caught up"
    if rates.read_per_s is None or rates.written_per_s is None:
        return ""
    if rates.caught_up_s is not None:
        caught_up_at = (now or datetime.now()) + timedelta(seconds=min(rates.caught_up_s, 1e8))
        moment = caught_up_at.strftime("%H:%M:%S" if rates.caught_up_s < 86_400 else "%Y-%m-%d")
        return f"caught up in {duration(rates.caught_up_s)}" + ("" if is_short else f", at {moment}")
    growth = rates.written_per_s - rates.read_per_s
    return f"grows by {rate(growth)}/s" if growth >= _LOWEST_RATE else "does not fall"


class _Interval(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """A parameter: a duration with a unit, or a number of seconds, at least 0.1. The value is in seconds."""

    name = "duration"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> float:  # Any: click's
        from pykafka_wire.errors import OptionError
        from pykafka_wire.options.option import duration_ms

        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = duration_ms(value, "--every") / 1000
            except OptionError as error:
                self.fail(error.message, parameter, context)
        if seconds < _LEAST_S:
            self.fail(f"{value} is too short: give at least {_LEAST_S} s.", parameter, context)
        return seconds


INTERVAL: Final = _Interval()


def duration(seconds: float) -> str:
    """Return ``8s``, ``1m 20s``, ``2h 05m``, ``3d 04h``."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600:02}h"


def rate(per_second: float) -> str:
    """Return ``0``, ``0.25``, ``12``, ``3,400``: a number that fits into a column."""
    if per_second < _LOWEST_RATE:
        return "0"
    return f"{per_second:.2g}" if per_second < 1 else f"{per_second:,.0f}"
