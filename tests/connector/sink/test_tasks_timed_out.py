"""Transactions of tasks that time out before the decision, or after it: what is replaced, and what is missing."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.marker import Marker
from pykafka_wire.sink.exactly_once.task_transactions import MarkerWriter
from tests.connector.sink.tasks_query import Query, encoded

pytestmark = pytest.mark.broker


def test_what_timed_out_after_the_decision_is_replaced_by_the_replays_task_with_the_same_rows(
    query: Query, visible: Any
) -> None:
    first = query.fence()
    tasks = [query.task(first, 0, b"a"), query.task(first, 1, b"b"), query.task(first, 2, b"c")]
    query.decide_and_crash(*tasks)
    query.time_out(tasks[1])
    second = query.fence()
    # It may divide the rows among its tasks in another order.
    replay = [query.task(second, 0, b"b"), query.task(second, 1, b"c"), query.task(second, 2, b"a")]
    assert query.commit(*replay) is Decision.SKIP
    assert visible(query) == [b"a", b"b", b"c"]
    assert query.marker().pending == ()
    assert query.open() == 0


def test_a_replacement_that_times_out_is_replaced_too(query: Query, visible: Any) -> None:
    first = query.fence()
    tasks = [query.task(first, 0, b"a"), query.task(first, 1, b"b")]
    query.decide_and_crash(*tasks)
    query.time_out(*tasks)
    second = query.fence()
    replay = [query.task(second, 0, b"a"), query.task(second, 1, b"b")]
    query.decide_and_crash(*replay)
    query.time_out(replay[0])
    third = query.fence()
    assert query.commit(query.task(third, 0, b"a"), query.task(third, 1, b"b")) is Decision.SKIP
    assert visible(query) == [b"a", b"b"]


def test_where_no_task_has_the_same_rows_the_error_names_what_is_missing(
    query: Query, visible: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = query.fence()
    tasks = [query.task(first, 0, b"a"), query.task(first, 1, b"b", b"bb")]
    query.decide_and_crash(*tasks)
    query.time_out(tasks[1])
    second = query.fence()
    replay = [query.task(second, 0, b"a"), query.task(second, 1, b"other")]
    handle = tasks[1].transaction
    assert handle is not None
    with pytest.raises(ExactlyOnceError) as raised:
        query.commit(*replay)
    assert (
        "micro-batch 0 was decided, and 1 of its transactions were aborted before they could be committed "
        "(kafka.transaction.timeout.ms, or an administrator): task 1 (2 records, "
        f"{handle.transactional_id!r}, {query.topic}-0 offsets 1 to 2)"
    ) in str(raised.value)
    assert visible(query) == [b"a"]
    # The way on, for one start.
    third = query.fence()
    again = [query.task(third, 0, b"a"), query.task(third, 1, b"b", b"cc", digest=tasks[1].digest + 1)]
    with pytest.raises(ExactlyOnceError, match="does not return the same rows"):
        query.commit(*again, fail_on_missing_marker=False)
    assert "failOnMissingMarker=false" in caplog.text and "task 1 (2 records" in caplog.text
    fourth = query.fence()
    assert query.commit(query.task(fourth, 0, b"n", batch_id=1), batch_id=1) is Decision.WRITE
    assert visible(query) == [b"a", b"n"]


@pytest.mark.parametrize("way", ["tasks", "driver"])
def test_where_all_have_timed_out_the_replay_may_divide_the_rows_among_other_tasks(
    query: Query, visible: Any, way: str
) -> None:
    first = query.fence()
    tasks = [query.task(first, 0, b"a", b"b", digest=11), query.task(first, 1, b"c", digest=2**63)]
    query.decide_and_crash(*tasks)
    query.time_out(*tasks)
    second = query.fence()
    replay = [
        query.task(second, 0, b"a", digest=10),
        query.task(second, 1, b"b", digest=1 + 2**63),
        query.task(second, 2, b"c", digest=2**64),
    ]
    if way == "tasks":
        assert query.commit(*replay) is Decision.SKIP
    else:
        values = [b"a", b"b", b"c"]
        by_driver = [encoded(i, task, query.topic, values[i]) for i, task in enumerate(replay)]
        assert query.commit_by_driver(*by_driver) is Decision.SKIP
    assert visible(query) == [b"a", b"b", b"c"]
    assert query.marker().pending == ()
    assert query.open() == 0


def test_where_some_have_timed_out_what_is_divided_otherwise_must_add_up_without_the_others(
    query: Query, visible: Any
) -> None:
    first = query.fence()
    tasks = [query.task(first, 0, b"a", digest=1), query.task(first, 1, b"b", b"c", digest=5)]
    query.decide_and_crash(*tasks)
    query.time_out(tasks[1])
    second = query.fence()
    moved = [query.task(second, 0, b"a", b"b", digest=3), query.task(second, 1, b"c", digest=3)]
    with pytest.raises(
        ExactlyOnceError,
        match=r"Their 2 records are missing from the topic, and this run divides the same rows among other tasks.* Start the "
        r"query with what it had when the micro-batch was written: minPartitions, maxRecordsPerPartition",
    ):
        query.commit(*moved)
    third = query.fence()
    split = [
        query.task(third, 0, b"a", digest=1),
        query.task(third, 1, b"b", digest=2),
        query.task(third, 2, b"c", digest=3),
    ]
    assert query.commit(*split) is Decision.SKIP
    assert visible(query) == [b"a", b"b", b"c"]


def test_an_end_that_comes_too_late_fails_and_the_replay_makes_it_good(
    query: Query, visible: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = query.fence()
    tasks = [query.task(token, 0, b"a"), query.task(token, 1, b"b")]
    write = MarkerWriter.write

    def write_then_time_out(self: MarkerWriter, marker: Marker) -> None:
        write(self, marker)
        query.time_out(tasks[0])

    with monkeypatch.context() as patched:
        patched.setattr(MarkerWriter, "write", write_then_time_out)
        with pytest.raises(ExactlyOnceError, match=r"is decided, and 1 of its 2 transactions were aborted .*task 0 \("):
            query.commit(*tasks)
    again = query.fence()
    assert query.commit(query.task(again, 0, b"a"), query.task(again, 1, b"b")) is Decision.SKIP
    assert visible(query) == [b"a", b"b"]


def test_a_time_out_before_the_decision_is_noticed(
    query: Query, visible: Any, caplog: pytest.LogCaptureFixture
) -> None:
    token = query.fence()
    tasks = [query.task(token, 0, b"a"), query.task(token, 1, b"b")]
    query.time_out(tasks[1])
    with pytest.raises(
        ExactlyOnceError, match=r"was not written: 1 of its 2 transactions are no longer open.*task 1 \("
    ):
        query.commit(*tasks)
    assert query.marker() is None
    caplog.set_level(logging.WARNING)
    late = replace(query.fence(), made_at=time.time() - 31)
    query.commit(query.task(late, 0, b"a"))
    assert "Micro-batch 0 took 31 s" in caplog.text and "(the brokers allow up to 900 s)" in caplog.text
    assert visible(query) == [b"a"]
