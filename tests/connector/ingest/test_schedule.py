"""When tables are landed, without Spark, threads or a clock: every move, the retries, the looks at causes, and the end of a run."""

from __future__ import annotations

import itertools

import pytest

from pykafka_wire.ingest.failures import Failure, Remedy
from pykafka_wire.ingest.landing.isolation import SearchPausedError
from pykafka_wire.ingest.landing.schedule import (
    FIRST_LOOK_S,
    LONGEST_LOOK_S,
    PATIENCE_S,
    Event,
    Phase,
    Schedule,
    TableTurn,
)

ALLOWED = {
    (Phase.IDLE, Event.BEGIN): Phase.RUNNING,
    (Phase.IDLE, Event.WITHHOLD): Phase.WITHHELD,
    (Phase.RUNNING, Event.END): Phase.IDLE,
    (Phase.WITHHELD, Event.RELEASE): Phase.IDLE,
}


def failure(remedy: Remedy = Remedy.WAIT, code: str = "E") -> Failure:
    return Failure(code=code, sentence="it failed", remedy=remedy)


def attempt(schedule: Schedule, turn: TableTurn, failed: Failure | None, now: float, cause: str = "v1") -> None:
    """Run one attempt, as a landing does."""
    turn.move(Event.BEGIN)
    if failed is None:
        turn.succeed()
    else:
        schedule.note_failure(turn.fail(failed, (cause,), now), now)
    turn.move(Event.END)


@pytest.mark.parametrize(("phase", "event"), [*itertools.product(Phase, Event)])
def test_a_table_has_one_attempt_or_maintenance_at_a_time(phase: Phase, event: Event) -> None:
    turn = TableTurn()
    turn.phase = phase
    if (phase, event) in ALLOWED:
        turn.move(event)
        assert turn.phase is ALLOWED[phase, event]
    else:
        with pytest.raises(ValueError, match=phase.name):
            turn.move(event)
        assert turn.phase is phase


def test_a_table_is_landed_with_micro_batches_until_it_fails_and_again_once_it_succeeds() -> None:
    schedule = Schedule(parallel=1, is_once=False)
    turn = schedule.new_turn()
    assert turn.is_with_micro_batches
    attempt(schedule, turn, failure(), 10.0)
    assert not turn.is_with_micro_batches
    attempt(schedule, turn, None, 11.0)
    assert turn.is_with_micro_batches and not turn.is_due(1e9)


def test_pauses_between_retries_grow_and_another_program_s_commits_are_repeated_at_once() -> None:
    for remedy, expected in ((Remedy.WAIT, [1, 2, 4, 8, 16, 32, 60, 60]), (Remedy.REPEAT, [0, 0, 0, 0, 0, 1, 2, 4])):
        schedule, now, pauses = Schedule(parallel=1, is_once=False), 100.0, []
        turn = schedule.new_turn()
        for _ in expected:
            attempt(schedule, turn, failure(remedy), now)
            assert turn.trouble is not None
            pauses.append(turn.trouble.next_attempt - now)
            assert schedule.may_retry(turn, now + pauses[-1])
            assert not pauses[-1] or not schedule.may_retry(turn, now + pauses[-1] - 0.01)
            now += pauses[-1]
        assert pauses == expected


def test_a_stopped_table_is_tried_when_its_cause_has_changed_and_after_five_minutes() -> None:
    schedule = Schedule(parallel=1, is_once=False)
    turn = schedule.new_turn()
    attempt(schedule, turn, failure(Remedy.CHANGE), 0.0)
    now, looks = 0.0, []
    for _ in range(6):
        pause = next(s for s in range(1000) if turn.is_to_look_at(now + s))
        looks.append(float(pause))
        now += pause
        turn.look(("v1",), now)
        assert not schedule.may_retry(turn, now)
    assert looks == [FIRST_LOOK_S, 5.0, 10.0, 20.0, 40.0, LONGEST_LOOK_S]
    turn.look(("v2",), now)
    assert schedule.may_retry(turn, now)
    attempt(schedule, turn, failure(Remedy.CHANGE), 1000.0)
    assert not schedule.may_retry(turn, 1299.0) and schedule.may_retry(turn, 1300.0)


def test_a_table_that_fails_before_its_first_attempt_is_looked_at_at_once() -> None:
    schedule = Schedule(parallel=1, is_once=False)
    turn = schedule.new_turn()
    turn.begin_failed(failure(Remedy.CHANGE), 50.0)
    assert turn.is_to_look_at(50.0) and schedule.wakes(50.0)
    turn.look(("v1",), 50.0)
    assert schedule.may_retry(turn, 50.0)


def test_the_looks_are_frequent_again_after_a_success() -> None:
    schedule = Schedule(parallel=1, is_once=False)
    turn = schedule.new_turn()
    attempt(schedule, turn, failure(Remedy.CHANGE), 0.0)
    for now in (5.0, 10.0, 20.0):
        turn.look(("v1",), now)
    attempt(schedule, turn, None, 30.0)
    attempt(schedule, turn, failure(Remedy.CHANGE), 100.0)
    assert turn.is_to_look_at(100.0 + FIRST_LOOK_S)


def test_a_table_that_runs_or_is_withheld_is_neither_retried_nor_looked_at() -> None:
    schedule = Schedule(parallel=9, is_once=False)
    turn = schedule.new_turn()
    attempt(schedule, turn, failure(Remedy.CHANGE), 0.0)
    for begin, end in ((Event.BEGIN, Event.END), (Event.WITHHOLD, Event.RELEASE)):
        turn.move(begin)
        assert not (turn.is_due(1e6) or turn.is_to_look_at(1e6) or schedule.may_retry(turn, 1e6) or schedule.wakes(1e6))
        turn.move(end)
        assert turn.is_due(1e6) and turn.is_to_look_at(1e6) and schedule.may_retry(turn, 1e6) and schedule.wakes(1e6)


def test_no_more_tables_are_retried_side_by_side_than_may_be() -> None:
    schedule = Schedule(parallel=2, is_once=False)
    turns = [schedule.new_turn() for _ in range(4)]
    for turn in turns[:3]:
        attempt(schedule, turn, failure(), 0.0)
    turns[3].move(Event.BEGIN)  # with a micro-batch
    assert schedule.may_retry(turns[0], 10.0)
    turns[0].move(Event.BEGIN)
    assert schedule.may_retry(turns[1], 10.0)
    turns[1].move(Event.BEGIN)
    assert not schedule.may_retry(turns[2], 10.0)
    turns[0].move(Event.END)
    assert schedule.may_retry(turns[2], 10.0)


@pytest.mark.parametrize("is_once", [True, False])
def test_a_run_that_ends_by_itself_waits_for_retries_for_a_while(is_once: bool) -> None:
    schedule = Schedule(parallel=1, is_once=is_once)
    turn, other = schedule.new_turn(), schedule.new_turn()
    assert not schedule.waits(0.0)
    attempt(schedule, turn, failure(), 100.0)
    assert schedule.waits(100.0 + PATIENCE_S - 0.1) and not schedule.waits(100.0 + PATIENCE_S)
    attempt(schedule, other, failure(), 120.0)
    assert not schedule.waits(100.0 + PATIENCE_S), "the first failure counts"
    assert schedule.may_retry(turn, 100.0 + PATIENCE_S) is not is_once
    turn.move(Event.BEGIN)
    assert schedule.waits(1e6), "an attempt does not outlive the run"


def test_a_run_that_ends_by_itself_waits_for_no_stopped_table_and_for_every_search() -> None:
    schedule = Schedule(parallel=1, is_once=True)
    stopped, searched = schedule.new_turn(), schedule.new_turn()
    attempt(schedule, stopped, failure(Remedy.CHANGE), 0.0)
    assert not schedule.waits(1.0)
    attempt(schedule, searched, failure(Remedy.REPEAT, SearchPausedError.__name__), 0.0)
    assert schedule.waits(1e6) and schedule.may_retry(searched, 1e6)
