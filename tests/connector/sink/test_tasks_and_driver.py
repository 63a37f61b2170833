"""A query that changes between transactions=driver and transactions=tasks, also in the middle of a micro-batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.marker import marker_group
from tests.connector.sink.tasks_query import Query, encoded

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("times_out", [False, True])
def test_from_tasks_to_the_driver_in_the_middle_of_a_micro_batch(query: Query, visible: Any, times_out: bool) -> None:
    token = query.fence()
    tasks = [query.task(token, 0, b"a"), query.task(token, 1, b"b")]
    query.decide_and_crash(*tasks)
    query.task(token, 2, b"lost attempt")
    if times_out:
        query.time_out(tasks[1])
    replay = [encoded(0, tasks[0], query.topic, b"a"), encoded(1, tasks[1], query.topic, b"b")]
    assert query.commit_by_driver(*replay) is Decision.SKIP
    assert query.open() == 0
    assert visible(query) == [b"a", b"b"]
    assert query.marker().pending == ()
    assert query.commit_by_driver(*replay) is Decision.SKIP


@pytest.mark.parametrize("lost", ["another markerTopic", "its group deleted"])
def test_from_tasks_to_the_driver_without_the_marker_aborts_nothing_that_may_be_decided(
    query: Query, visible: Any, outside_of: Any, lost: str
) -> None:
    query.commit(query.task(query.fence(), 0, b"a"))
    tasks = [query.task(query.fence(), 0, b"b", batch_id=1)]
    query.decide_and_crash(*tasks, batch_id=1)
    replay = encoded(0, tasks[0], query.topic, b"b")
    marker_topic, text = query.topic, "at micro-batch 1, and there is no marker"
    if lost == "its group deleted":
        group = marker_group(query.options.transactional_id)
        outside = outside_of(query.servers)
        outside.admin.delete_consumer_groups([group])[group].result(30)
    else:
        marker_topic, text = f"{query.topic}-other", f"is under the topic {query.topic}: set markerTopic={query.topic}"
    with pytest.raises(ExactlyOnceError, match=text):
        query.commit_by_driver(replay, batch_id=1, marker_topic=marker_topic)
    assert query.open() == 1
    if lost == "its group deleted":  # the way on: what is open is not known to be decided, and is written anew
        assert query.commit_by_driver(replay, batch_id=1, fail_on_missing_marker=False) is Decision.WRITE
    else:
        assert query.commit_by_driver(replay, batch_id=1) is Decision.SKIP
    assert query.open() == 0
    assert visible(query) == [b"a", b"b"]


def test_from_tasks_to_the_driver_with_other_rows_what_is_decided_is_ended_before_the_refusal(
    query: Query, visible: Any
) -> None:
    task = query.task(query.fence(), 0, b"a")
    query.decide_and_crash(task)
    other = replace(encoded(0, task, query.topic, b"x"), digest=task.digest + 1)
    with pytest.raises(ExactlyOnceError, match="micro-batch 0 is in Kafka already"):
        query.commit_by_driver(other)
    assert visible(query) == [b"a"]
    assert query.marker().pending == ()
    assert query.commit_by_driver(other, keep_on_marker_mismatch=True) is Decision.KEEP
    assert visible(query) == [b"a"]


def test_from_the_driver_to_tasks_and_orphans_for_the_driver(query: Query, visible: Any) -> None:
    token = query.fence()
    left = query.task(token, 0, b"a")
    assert query.commit_by_driver(encoded(0, left, query.topic, b"a")) is Decision.WRITE
    assert query.open() == 0
    assert query.commit(query.task(query.fence(), 0, b"a")) is Decision.SKIP
    assert visible(query) == [b"a"]
