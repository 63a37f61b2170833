"""When tables are landed, without Spark, threads or a clock: every move, the retries, the looks at causes, and the end of a run."""

from __future__ import annotations

import itertools

import pytest

from pykafka_wire.ingest.landing.isolation import SearchPausedError
from pykafka_wire.ingest.landing.remedies import Failure, Remedy
from pykafka_wire.ingest.landing.schedule import (
    FIRST_CHECK_S,
    LONGEST_CHECK_S,
    PATIENCE_S,
    Event,
    Phase,
    Schedule,
    TableSchedule,
)

ALLOWED = {
    (Phase.IDLE, Event.BEGIN_ATTEMPT): Phase.RUNNING,
    (Phase.IDLE, Event.BEGIN_MAINTENANCE): Phase.IN_MAINTENANCE,
    (Phase.RUNNING, Event.END_ATTEMPT): Phase.IDLE,
    (Phase.IN_MAINTENANCE, Event.END_MAINTENANCE): Phase.IDLE,
}


def failure(remedy: Remedy = Remedy.RETRY_LATER, code: str = "E") -> Failure:
    return Failure(code=code, sentence="it failed", remedy=remedy)


def attempt(schedule: Schedule, table: TableSchedule, failed: Failure | None, now: float, cause: str = "v1") -> None:
    """Run one attempt, as a landing does."""
    table.move(Event.BEGIN_ATTEMPT)
    if failed is None:
        table.succeed()
    else:
        schedule.note_failure(table.fail(failed, (cause,), now), now)
    table.move(Event.END_ATTEMPT)


@pytest.mark.parametrize(("phase", "event"), [*itertools.product(Phase, Event)])
def test_a_table_has_one_attempt_or_maintenance_at_a_time(phase: Phase, event: Event) -> None:
    table = TableSchedule()
    table.phase = phase
    if (phase, event) in ALLOWED:
        table.move(event)
        assert table.phase is ALLOWED[phase, event]
    else:
        with pytest.raises(ValueError, match=phase.name):
            table.move(event)
        assert table.phase is phase


def test_a_table_is_landed_with_micro_batches_until_it_fails_and_again_once_it_succeeds() -> None:
    schedule = Schedule(parallel=1, is_once=False)
    table = schedule.new_table()
    assert table.may_join_micro_batch
    attempt(schedule, table, failure(), 10.0)
    assert not table.may_join_micro_batch
    attempt(schedule, table, None, 11.0)
    assert table.may_join_micro_batch and not table.is_due(1e9)


def test_pauses_between_retries_grow_and_another_program_s_commits_are_repeated_at_once() -> None:
    for remedy, expected in (
        (Remedy.RETRY_LATER, [1, 2, 4, 8, 16, 32, 60, 60]),
        (Remedy.RETRY_NOW, [0, 0, 0, 0, 0, 1, 2, 4]),
    ):
        schedule, now, pauses = Schedule(parallel=1, is_once=False), 100.0, []
        table = schedule.new_table()
        for _ in expected:
            attempt(schedule, table, failure(remedy), now)
            assert table.trouble is not None
            pauses.append(table.trouble.next_attempt - now)
            assert schedule.may_retry(table, now + pauses[-1])
            assert not pauses[-1] or not schedule.may_retry(table, now + pauses[-1] - 0.01)
            now += pauses[-1]
        assert pauses == expected


def test_a_stopped_table_is_tried_when_its_cause_has_changed_and_after_five_minutes() -> None:
    schedule = Schedule(parallel=1, is_once=False)
    table = schedule.new_table()
    attempt(schedule, table, failure(Remedy.CHANGE), 0.0)
    now, looks = 0.0, []
    for _ in range(6):
        pause = next(s for s in range(1000) if table.is_check_due(now + s))
        looks.append(float(pause))
        now += pause
        table.note_cause(("v1",), now)
        assert not schedule.may_retry(table, now)
    assert looks == [FIRST_CHECK_S, 5.0, 10.0, 20.0, 40.0, LONGEST_CHECK_S]
    table.note_cause(("v2",), now)
    assert schedule.may_retry(table, now)
    attempt(schedule, table, failure(Remedy.CHANGE), 1000.0)
    assert not schedule.may_retry(table, 1299.0) and schedule.may_retry(table, 1300.0)


def test_a_table_that_fails_before_its_first_attempt_is_looked_at_at_once() -> None:
    schedule = Schedule(parallel=1, is_once=False)
    table = schedule.new_table()
    table.begin_failed(failure(Remedy.CHANGE), 50.0)
    assert table.is_check_due(50.0) and schedule.has_work(50.0)
    table.note_cause(("v1",), 50.0)
    assert schedule.may_retry(table, 50.0)


def test_the_looks_are_frequent_again_after_a_success() -> None:
    schedule = Schedule(parallel=1, is_once=False)
    table = schedule.new_table()
    attempt(schedule, table, failure(Remedy.CHANGE), 0.0)
    for now in (5.0, 10.0, 20.0):
        table.note_cause(("v1",), now)
    attempt(schedule, table, None, 30.0)
    attempt(schedule, table, failure(Remedy.CHANGE), 100.0)
    assert table.is_check_due(100.0 + FIRST_CHECK_S)


def test_a_table_that_runs_or_is_in_maintenance_is_neither_retried_nor_checked() -> None:
    schedule = Schedule(parallel=9, is_once=False)
    table = schedule.new_table()
    attempt(schedule, table, failure(Remedy.CHANGE), 0.0)
    for begin, end in ((Event.BEGIN_ATTEMPT, Event.END_ATTEMPT), (Event.BEGIN_MAINTENANCE, Event.END_MAINTENANCE)):
        table.move(begin)
        assert not (
            table.is_due(1e6) or table.is_check_due(1e6) or schedule.may_retry(table, 1e6) or schedule.has_work(1e6)
        )
        table.move(end)
        assert (
            table.is_due(1e6) and table.is_check_due(1e6) and schedule.may_retry(table, 1e6) and schedule.has_work(1e6)
        )


def test_no_more_tables_are_retried_side_by_side_than_may_be() -> None:
    schedule = Schedule(parallel=2, is_once=False)
    tables = [schedule.new_table() for _ in range(4)]
    for table in tables[:3]:
        attempt(schedule, table, failure(), 0.0)
    tables[3].move(Event.BEGIN_ATTEMPT)  # with a micro-batch
    assert schedule.may_retry(tables[0], 10.0)
    tables[0].move(Event.BEGIN_ATTEMPT)
    assert schedule.may_retry(tables[1], 10.0)
    tables[1].move(Event.BEGIN_ATTEMPT)
    assert not schedule.may_retry(tables[2], 10.0)
    tables[0].move(Event.END_ATTEMPT)
    assert schedule.may_retry(tables[2], 10.0)


@pytest.mark.parametrize("is_once", [True, False])
def test_a_run_that_ends_by_itself_waits_for_retries_for_a_while(is_once: bool) -> None:
    schedule = Schedule(parallel=1, is_once=is_once)
    table, other = schedule.new_table(), schedule.new_table()
    assert not schedule.is_waiting(0.0)
    attempt(schedule, table, failure(), 100.0)
    assert schedule.is_waiting(100.0 + PATIENCE_S - 0.1) and not schedule.is_waiting(100.0 + PATIENCE_S)
    attempt(schedule, other, failure(), 120.0)
    assert not schedule.is_waiting(100.0 + PATIENCE_S), "the first failure counts"
    assert schedule.may_retry(table, 100.0 + PATIENCE_S) is not is_once
    table.move(Event.BEGIN_ATTEMPT)
    assert schedule.is_waiting(1e6), "an attempt does not outlive the run"


def test_a_run_that_ends_by_itself_waits_for_no_stopped_table_and_for_every_search() -> None:
    schedule = Schedule(parallel=1, is_once=True)
    stopped, searched = schedule.new_table(), schedule.new_table()
    attempt(schedule, stopped, failure(Remedy.CHANGE), 0.0)
    assert not schedule.is_waiting(1.0)
    attempt(schedule, searched, failure(Remedy.RETRY_NOW, SearchPausedError.__name__), 0.0)
    assert schedule.is_waiting(1e6) and schedule.may_retry(searched, 1e6)
