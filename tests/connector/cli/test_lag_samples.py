"""Rates from samples of a group, and how its lag develops."""

from __future__ import annotations

from datetime import datetime

import click
import pytest

from pykafka_wire.cli.lag_samples import INTERVAL, Freshness, LagHistory, LagRates, LagSample, duration, outlook, rate

NOON = datetime(2026, 1, 5, 12, 0, 0)
ORDERS = frozenset({("orders", 0)})


def sample(at_s: float, committed: int, latest: int, partitions: frozenset[tuple[str, int]] = ORDERS) -> LagSample:
    lag = max(0, latest - committed)
    return LagSample(at_s=at_s, committed=committed, latest=latest, lag=lag, partitions=partitions)


def rates_of(*samples: LagSample) -> LagRates:
    history = LagHistory()
    return [history.add(each) for each in samples][-1]


def test_freshness_is_the_age_of_the_last_ends_that_were_reached() -> None:
    freshness = Freshness()

    def add(at_s: float, committed: int, latest: int) -> float | None:
        lag = latest - committed
        return freshness.add(
            [{"topic": "t", "partition": 0, "committed": committed, "latest": latest, "lag": lag}], at_s
        )

    assert add(0.0, 5, 10) is None  # nobody knows for how long
    assert add(10.0, 9, 20) is None
    assert add(20.0, 10, 30) == 20.0  # what was there at 0
    assert add(30.0, 30, 30) == 0.0
    last = [add(30.0 + n, 30, 31) for n in range(1, 500)][-1]
    assert last is not None and 499.0 <= last <= 529.0  # old samples are thinned out


def test_a_lag_that_falls_has_an_end() -> None:
    found = rates_of(sample(0, 0, 1000), sample(10, 400, 1100))
    assert found == LagRates(read_per_s=40, written_per_s=10, caught_up_s=700 / 30)
    assert outlook(700, found, NOON) == "caught up in 23s, at 12:00:23"


def test_a_lag_that_grows_or_stays_has_none() -> None:
    grows = rates_of(sample(0, 0, 1000), sample(10, 100, 1500))
    assert grows == LagRates(read_per_s=10, written_per_s=50, caught_up_s=None)
    assert outlook(1400, grows) == "grows by 40/s"
    assert outlook(1000, rates_of(sample(0, 0, 1000), sample(10, 500, 1500))) == "does not fall"
    assert outlook(1000, rates_of(sample(0, 0, 1000), sample(10, 0, 1000))) == "does not fall"


def test_one_sample_knows_no_rate() -> None:
    assert rates_of(sample(5, 1, 2)) == LagRates()
    assert outlook(1, LagRates()) == ""
    assert rates_of(sample(5, 2, 2)) == LagRates(caught_up_s=0.0)
    assert outlook(0, LagRates()) == "caught up"


def test_rates_are_those_of_the_last_minute() -> None:
    samples = [sample(at, at * 10, 100_000) for at in range(0, 301, 10)]
    stopped = [sample(310 + at, 3000, 100_000) for at in range(0, 121, 10)]
    assert rates_of(*samples).read_per_s == pytest.approx(10)
    assert rates_of(*samples, *stopped).read_per_s == 0
    sparse = rates_of(sample(0, 0, 1000), sample(300, 300, 1000))  # samples further apart than a minute
    assert sparse.read_per_s == 1


@pytest.mark.parametrize(
    "later",
    [sample(10, 100, 2000), sample(10, 600, 900), sample(10, 600, 2000, ORDERS | {("orders", 1)})],
    ids=["offsets were reset", "the topic was recreated", "a partition was added"],
)
def test_offsets_that_were_moved_are_no_rate(later: LagSample) -> None:
    assert rates_of(sample(0, 500, 1000), later).read_per_s is None
    onward = sample(20, later.committed + 50, later.latest, later.partitions)
    assert rates_of(sample(0, 500, 1000), later, onward).read_per_s == 5


def test_long_times_are_days() -> None:
    assert [duration(s) for s in (0.2, 59, 80, 7_500, 273_600)] == ["1s", "59s", "1m 20s", "2h 05m", "3d 04h"]
    assert (
        outlook(1, LagRates(read_per_s=1, written_per_s=0, caught_up_s=273_600), NOON)
        == "caught up in 3d 04h, at 2026-01-08"
    )
    assert outlook(1, LagRates(read_per_s=1, written_per_s=0, caught_up_s=1e18), NOON).startswith("caught up in ")


def test_rates_fit_into_a_column() -> None:
    assert [rate(r) for r in (0, 0.001, 0.25, 12.4, 3_400)] == ["0", "0", "0.25", "12", "3,400"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("2s", 2.0), ("0.1", 0.1), ("500ms", 0.5), ("10 seconds", 10.0), ("30", 30.0)]
)
def test_the_time_between_updates_is_a_duration_or_seconds(text: str, seconds: float) -> None:
    assert INTERVAL.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["0", "50ms", "soon", "2 fortnights"])
def test_other_times_between_updates_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        INTERVAL.convert(text, None, None)
