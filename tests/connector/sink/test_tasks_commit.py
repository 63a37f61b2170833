"""What the driver does with transactions that tasks have left open: commits, replays, and what else is open."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.marker import Marker
from pykafka_wire.sink.exactly_once.task_ids import task_prefix
from pykafka_wire.sink.exactly_once.task_transactions import abandon
from pykafka_wire.sink.exactly_once.tasks import OpenTask
from tests.connector.sink.tasks_query import Query

pytestmark = pytest.mark.broker


def test_tasks_are_visible_after_the_commit_and_the_marker_is_settled(query: Query, visible: Any) -> None:
    token = query.fence()
    tasks = [query.task(token, 0, b"a", b"b"), query.task(token, 1, b"c"), query.task(token, 2)]
    assert tasks[2].transaction is None
    assert visible(query) == []
    assert query.commit(*reversed(tasks)) is Decision.WRITE
    assert visible(query) == [b"a", b"b", b"c"]
    assert query.marker() == Marker(query_id="query", batch_id=0, n_records=3, digest=query.marker().digest)
    assert query.open() == 0


def test_the_brokers_limits_are_named_at_the_start(query: Query, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    query.fence()
    query.fence()
    assert caplog.text.count("within kafka.transaction.timeout.ms=60000 of its start; the brokers allow up to") == 1
    expiry = f"marker of {query.options.transactional_id!r} expires 7.0 days after the last micro-batch"
    assert caplog.text.count(expiry) == 1


def test_a_replay_of_a_settled_micro_batch_is_skipped_and_its_transactions_aborted(query: Query, visible: Any) -> None:
    first = query.fence()
    query.commit(query.task(first, 0, b"a"))
    again = query.fence()
    assert query.commit(query.task(again, 0, b"a")) is Decision.SKIP
    with pytest.raises(ExactlyOnceError, match="the query does not return the same rows"):
        query.commit(query.task(query.fence(), 0, b"x"))
    other = query.fence()
    assert query.commit(query.task(other, 0, b"x"), keep_on_marker_mismatch=True) is Decision.KEEP
    assert query.commit(query.task(query.fence(), 0, b"b", batch_id=1), batch_id=1) is Decision.WRITE
    assert visible(query) == [b"a", b"b"]
    assert query.open() == 0


def test_attempts_that_lost_are_aborted_with_the_commit(query: Query, visible: Any) -> None:
    token = query.fence()
    query.task(token, 0, b"speculative")
    kept = query.task(token, 0, b"a")
    query.commit(kept)
    assert query.open() == 0
    assert visible(query) == [b"a"]


def test_orphans_of_a_killed_run_are_aborted_before_the_next_tasks_start(query: Query, visible: Any) -> None:
    query.task(query.fence(), 0, b"left")
    assert query.open() == 1
    token = query.fence()
    assert query.open() == 0
    query.commit(query.task(token, 0, b"a"))
    assert visible(query) == [b"a"]


def test_what_is_not_of_the_querys_own_tasks_is_left_alone(query: Query) -> None:
    """Another query may be named as this one's tasks are."""
    other = Query(query.cluster, query.servers, query.topic)
    other.options = replace(query.options, transactional_id=task_prefix(query.options.transactional_id) + "7")
    task = other.task(other.fence(), 0, b"a")
    query.fence()
    assert query.open() == 1
    assert other.commit(task) is Decision.WRITE


def test_a_decision_is_carried_out_before_the_next_tasks_start_and_settled_by_the_replay(
    query: Query, visible: Any
) -> None:
    first = query.fence()
    query.decide_and_crash(query.task(first, 0, b"a"), query.task(first, 1, b"b"))
    query.task(first, 2, b"lost attempt")
    token = query.fence()
    assert visible(query) == [b"a", b"b"]
    assert query.open() == 0
    assert len(query.marker().pending) == 2
    assert query.commit(query.task(token, 0, b"b"), query.task(token, 1, b"a")) is Decision.SKIP
    assert query.marker().pending == ()
    assert visible(query) == [b"a", b"b"]


def test_a_second_driver_fences_the_first_ones_decision(query: Query, visible: Any) -> None:
    first = query.fence()
    tasks = [query.task(first, 0, b"a")]
    second = query.fence()  # it aborts what it finds open: nobody can decide it any more
    with pytest.raises(
        ExactlyOnceError, match=r"micro-batch 0 was not written \(deciding the micro-batch\): .*taken over"
    ):
        query.commit(*tasks)
    query.commit(query.task(second, 0, b"a"))
    assert visible(query) == [b"a"]


def test_a_failed_micro_batch_is_aborted_unless_it_is_decided(query: Query, visible: Any) -> None:
    token = query.fence()
    tasks = [query.task(token, 0, b"a"), query.task(token, 1, b"b")]
    abandon(query.cluster, query.options, [tasks[0], None])
    assert query.open() == 1
    again = query.fence()
    decided = [query.task(again, 0, b"a")]
    query.decide_and_crash(*decided)
    abandon(query.cluster, query.options, decided)
    assert query.open() == 1
    query.commit(query.task(query.fence(), 0, b"a"))
    assert visible(query) == [b"a"]


def test_a_decision_of_hundreds_of_tasks_is_in_several_groups(query: Query, visible: Any) -> None:
    token = query.fence()
    tasks = [query.task(token, i, b"%03d" % i) for i in range(150)]
    query.decide_and_crash(*tasks)
    found = query.marker()
    assert [each.transaction for each in found.pending] == [task.transaction for task in tasks]
    again = query.fence()
    replay = [query.task(again, i, b"%03d" % i) for i in range(150)]
    assert query.commit(*replay) is Decision.SKIP
    assert visible(query) == [b"%03d" % i for i in range(150)]


@pytest.mark.parametrize("wrong", ["none", "a task failed", "a task is missing", "two tokens"])
def test_messages_that_are_no_micro_batch(query: Query, wrong: str) -> None:
    token = query.fence()
    task = query.task(token, 0)
    messages: dict[str, list[OpenTask | None]] = {
        "none": [],
        "a task failed": [task, None],
        "a task is missing": [replace(task, task=1)],
        "two tokens": [task, replace(task, task=1, token=replace(token, made_at=0.0))],
    }
    with pytest.raises(ExactlyOnceError, match=r"micro-batch 0 was not written: .* one of each task"):
        query.commit(*messages[wrong])
