"""Deadlines and pauses."""

from __future__ import annotations

import threading
import time

import pytest

from pykafka_wire.wire.cluster.retries import Backoff
from pykafka_wire.wire.deadline import Deadline, WorkingClock
from pykafka_wire.wire.settings import ClientSettings

SETTINGS = ClientSettings(bootstrap_servers=(("h", 1),), retry_backoff_ms=100, retry_backoff_max_ms=1000)


def test_a_deadline_runs_on_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = Deadline.after_ms(10_000)
    monkeypatch.setattr(time, "time", lambda: 4e9)  # the wall clock jumps by decades
    assert 9_000 < deadline.remaining_ms() <= 10_000
    assert not deadline.expired


@pytest.mark.parametrize("ms", [2**63 - 1, float("inf")])
def test_a_deadline_that_never_comes_can_be_waited_for(ms: float) -> None:
    """select.poll takes an int32 of milliseconds, a lock some 292 years."""
    deadline = Deadline.after_ms(ms)
    assert not deadline.expired
    assert deadline.remaining_ms() == deadline.at_most_ms(ms).remaining_ms() == 2**31 - 1
    woken = threading.Event()
    woken.set()
    assert woken.wait(deadline.remaining_ms() / 1000)
    assert Deadline.after_ms(10).at_most_ms(ms).remaining_ms() <= 10


def test_a_past_deadline_has_nothing_left() -> None:
    deadline = Deadline(time.monotonic() - 1)
    assert deadline.expired
    assert deadline.remaining_ms() == 0


def test_the_sooner_of_two_deadlines_counts() -> None:
    deadline = Deadline.after_ms(10_000)
    assert deadline.at_most_ms(60_000) == deadline
    assert deadline.at_most_ms(50).remaining_ms() <= 50


@pytest.mark.parametrize(
    ("n_failures", "middle_ms"), [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (10_000, 1000)]
)
def test_pauses_double_up_to_a_limit_with_a_fifth_of_jitter(n_failures: int, middle_ms: float) -> None:
    pauses = [Backoff(SETTINGS).delay_ms(n_failures) for _ in range(200)]
    assert 0.8 * middle_ms <= min(pauses)
    assert max(pauses) <= 1.2 * middle_ms
    assert max(pauses) - min(pauses) > 0.2 * middle_ms


def test_a_working_clock_stops_while_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = WorkingClock()
    begun = clock.now()
    now[0] += 5
    clock.pause()
    now[0] += 60
    clock.pause()  # once is enough
    assert clock.now() - begun == 5
    clock.resume()
    clock.resume()
    now[0] += 2
    assert clock.now() - begun == 7
    assert clock.deadline(begun + 10).remaining_ms() == 3_000


def test_a_wait_ends_when_its_deadline_is_cancelled() -> None:
    cancelled, lock = threading.Event(), threading.Lock()
    deadline = Deadline.after_ms(60_000, cancelled=cancelled)
    began = time.monotonic()
    with lock:
        threading.Timer(0.05, cancelled.set).start()
        assert not deadline.acquire(lock)
        deadline.sleep(60_000)
    assert time.monotonic() - began < 30


def test_a_lock_is_acquired_once_it_is_free_and_at_the_deadline_only_if_it_is() -> None:
    lock = threading.Lock()
    assert Deadline(0.0).acquire(lock)
    assert not Deadline(0.0).acquire(lock)
    threading.Timer(0.05, lock.release).start()
    assert Deadline.after_ms(60_000).acquire(lock)
