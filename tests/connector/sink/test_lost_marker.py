"""Markers that are lost, cannot be read, or are another query's, while transactions of tasks may be decided by them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once import marker as marker_module
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.fencing import FencingToken, fence_micro_batch
from pykafka_wire.sink.exactly_once.marker import marker_group
from pykafka_wire.sink.exactly_once.task_transactions import TaskTransactions, abandon
from pykafka_wire.sink.exactly_once.tasks import OpenTask
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.bulk import commit_all
from pykafka_wire.wire.transactions.coordinator import init_transaction
from tests.connector.sink.tasks_query import Query, encoded

pytestmark = pytest.mark.broker


def delete_marker(query: Query, outside_of: Any, part: int = 0) -> None:
    group = marker_group(query.options.transactional_id, part)
    outside = outside_of(query.servers)  # its client lives as long as it does
    outside.admin.delete_consumer_groups([group])[group].result(30)


@pytest.mark.parametrize("marker", ['{"version": 3}', "a note"])
def test_nothing_is_aborted_where_the_marker_cannot_be_read(query: Query, marker: str) -> None:
    tasks = [query.task(query.fence(), 0, b"a")]
    group, place = marker_group(query.options.transactional_id), TopicPartition(query.topic, 0)
    commit_offsets(query.cluster, group, {place: CommittedOffset(1, metadata=marker)})
    abandon(query.cluster, query.options, tasks)
    query.fence()
    assert query.open() == 1, "it may be decided"
    query.time_out(*tasks)


def test_a_lost_marker_is_refused_before_the_tasks_start(query: Query, outside_of: Any) -> None:
    query.commit(query.task(query.fence(), 0, b"a"))
    delete_marker(query, outside_of)
    with Cluster(query.cluster.settings) as restarted:
        for _ in range(2):
            with pytest.raises(ExactlyOnceError, match="has committed a transaction, and there is no marker"):
                fence_micro_batch(restarted, query.options)
        fence_micro_batch(restarted, replace(query.options, fail_on_missing_marker=False))


def test_a_lost_marker_is_found_by_what_the_tasks_have_committed_where_fencing_hides_the_querys_own_commit(
    query: Query, outside_of: Any, visible: Any
) -> None:
    done = query.task(query.fence(), 0, b"a")
    query.commit(done)
    left = query.task(query.fence(), 0, b"a")
    delete_marker(query, outside_of)
    replay = query.task(query.fence(), 0, b"a")
    assert query.open() == 2, "either may be decided, by a marker that is lost"
    for commit in (lambda: query.commit(replay), lambda: query.commit_by_driver(encoded(0, done, query.topic, b"a"))):
        with pytest.raises(ExactlyOnceError, match="at micro-batch 0, and there is no marker, though"):
            commit()
    assert visible(query) == [b"a"]
    query.time_out(left, replay)
    # The way on, where the topic turns out not to have it.
    query.options = replace(query.options, fail_on_missing_marker=False)
    query.task(query.fence(), 0, b"left")
    assert query.commit(query.task(query.fence(), 0, b"b")) is Decision.WRITE
    assert query.open() == 0
    assert visible(query) == [b"a", b"b"]


def micro_batch_7(query: Query, way: str) -> Callable[..., Decision]:
    """Commits micro-batch 7, the row ``n``, of a driver that has fenced the one before, and could not end then what that one had
    decided.
    """
    token = FencingToken(handle=init_transaction(query.cluster, query.options.transactional_id), made_at=time.time())
    # Of another process: under an id that no older task has used.
    new = replace(query.task(token, 0, b"n"), batch_id=7)

    def commit(**options: bool) -> Decision:
        if way == "tasks":
            return query.commit(new, batch_id=7, **options)
        return query.commit_by_driver(encoded(0, new, query.topic, b"n"), batch_id=7, **options)

    return commit


@pytest.mark.parametrize("way", ["tasks", "driver"])
@pytest.mark.parametrize(("query_id", "batch_id"), [("another", 9), ("query", 3)])
def test_what_another_marker_decides_is_committed_before_that_marker_is_replaced(
    query: Query, visible: Any, caplog: pytest.LogCaptureFixture, way: str, query_id: str, batch_id: int
) -> None:
    first = query.fence()
    tasks = [
        replace(query.task(first, number, value, batch_id=batch_id), query_id=query_id)
        for number, value in enumerate([b"a", b"b"])
    ]
    query.decide_and_crash(*tasks, batch_id=batch_id)
    query.time_out(tasks[1])
    commit = micro_batch_7(query, way)
    with pytest.raises(ExactlyOnceError, match=r"lists 2 decided transactions.*failOnMissingMarker=false commits them"):
        commit()
    assert visible(query) == []
    assert commit(fail_on_missing_marker=False) is Decision.WRITE
    assert visible(query) == [b"a", b"n"]
    assert query.open() == 0
    assert (query.marker().query_id, query.marker().batch_id, query.marker().pending) == ("query", 7, ())
    assert f"micro-batch {batch_id} of query {query_id}, and lists 2 decided transactions" in caplog.text
    assert "task 1 (1 records" in caplog.text and "are missing from the topic" in caplog.text


def test_what_another_query_has_lost_is_not_replaced_by_the_same_rows_of_this_one(
    query: Query, visible: Any, caplog: pytest.LogCaptureFixture
) -> None:
    decided = replace(query.task(query.fence(), 0, b"a"), query_id="another")
    query.decide_and_crash(decided)
    query.time_out(decided)
    assert query.commit(query.task(query.fence(), 0, b"a"), fail_on_missing_marker=False) is Decision.WRITE
    assert visible(query) == [b"a"]
    assert "1 records are missing from the topic" in caplog.text


@pytest.fixture
def incomplete(query: Query, outside_of: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[OpenTask]]:
    """A decided micro-batch of the rows a, b and c: a is committed, b is still open, and the part of the list that has c is
    deleted."""

    def decide(query_id: str = "query", batch_id: int = 0) -> list[OpenTask]:
        token = query.fence()
        tasks = [
            replace(query.task(token, number, value, batch_id=batch_id), query_id=query_id)
            for number, value in enumerate([b"a", b"b", b"c"])
        ]
        monkeypatch.setattr(marker_module, "_MAX_CHARACTERS", 300)  # as if there were hundreds of tasks
        query.decide_and_crash(*tasks, batch_id=batch_id)
        assert [len(parts) for parts in (query.marker().pending[:2], query.marker().pending[2:])] == [2, 1]
        delete_marker(query, outside_of, part=1)
        assert tasks[0].transaction is not None
        commit_all(query.cluster, [tasks[0].transaction])
        return tasks

    return decide


WAYS = pytest.mark.parametrize("way", ["tasks", "driver"])


@WAYS
def test_where_a_part_of_its_list_is_lost_a_micro_batch_is_refused_and_the_rest_of_the_list_is_committed(
    query: Query, incomplete: Any, visible: Any, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    incomplete()
    token = query.fence()
    assert visible(query) == [b"a", b"b"]
    replay = [query.task(token, number, value) for number, value in enumerate([b"a", b"b", b"c"])]

    def commit(**options: bool) -> Decision:
        if way == "tasks":
            return query.commit(*replay, **options)
        tasks = [encoded(task.task, task, query.topic, b"abc"[n : n + 1]) for n, task in enumerate(replay)]
        return query.commit_by_driver(*tasks, **options)

    text = r"part 1 of the list .*2 transactions .* are ended.* 1 records .*failOnMissingMarker=false.*onMarkerMismatch=skip"
    with pytest.raises(ExactlyOnceError, match=text):
        commit()
    assert query.open() == 4, "the one of the lost part, and those of this run"
    assert commit(fail_on_missing_marker=False) is Decision.SKIP
    assert visible(query) == [b"a", b"b", b"c"]
    assert query.open() == 0
    assert query.marker().is_settled
    assert "part 1 of the list" in caplog.text


@WAYS
def test_where_a_part_of_its_list_is_lost_what_is_in_kafka_may_be_kept(
    query: Query, incomplete: Any, visible: Any, way: str
) -> None:
    lost = incomplete()[2].transaction
    commit_all(query.cluster, [lost])
    token = query.fence()
    replay = [query.task(token, number, value) for number, value in enumerate([b"a", b"b", b"c"])]
    if way == "tasks":
        query.commit(*replay, keep_on_marker_mismatch=True)
    else:
        tasks = [encoded(task.task, task, query.topic, b"abc"[n : n + 1]) for n, task in enumerate(replay)]
        query.commit_by_driver(*tasks, keep_on_marker_mismatch=True)
    assert visible(query) == [b"a", b"b", b"c"]
    assert query.open() == 0
    assert query.marker().is_settled


@WAYS
def test_where_a_part_of_a_replays_list_is_lost_what_the_decision_before_it_committed_is_not_written_again(
    query: Query, outside_of: Any, visible: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    values = [b"a", b"b", b"c"]

    def run() -> list[OpenTask]:
        token = query.fence()
        return [query.task(token, number, value) for number, value in enumerate(values)]

    def crash(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(marker_module, "_MAX_CHARACTERS", 1)  # a part for each task
    tasks = run()
    query.decide_and_crash(*tasks)
    query.time_out(*tasks[1:])
    with monkeypatch.context() as patched, pytest.raises(InterruptedError):
        patched.setattr(TaskTransactions, "_end", crash)
        query.commit(*run())
    delete_marker(query, outside_of, part=1)  # c's
    replay = run()

    def commit(**options: bool) -> Decision:
        if way == "tasks":
            return query.commit(*replay, **options)
        by_driver = [encoded(n, task, query.topic, values[n]) for n, task in enumerate(replay)]
        return query.commit_by_driver(*by_driver, **options)

    with pytest.raises(ExactlyOnceError, match=r"It is unknown whether 1 records of the others are in the topic"):
        commit()
    assert commit(fail_on_missing_marker=False) is Decision.SKIP
    assert visible(query) == values
    assert query.open() == 0
    assert query.marker().is_settled


@WAYS
def test_what_is_left_of_another_querys_list_is_committed_before_its_marker_is_replaced(
    query: Query, incomplete: Any, visible: Any, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    incomplete(query_id="another", batch_id=9)
    commit = micro_batch_7(query, way)
    with pytest.raises(
        ExactlyOnceError, match=r"marker is of query another, micro-batch 9.*without part 1 of the list"
    ):
        commit()
    assert visible(query) == [b"a"]
    assert commit(fail_on_missing_marker=False) is Decision.WRITE
    assert visible(query) == [b"a", b"b", b"n"]
    assert query.open() == 0
    assert "part 1 of the list" in caplog.text and "1 records" in caplog.text


@WAYS
@pytest.mark.parametrize("batch_id", [0, 7])
def test_under_another_marker_topic_a_micro_batch_is_refused_also_if_the_marker_may_be_missing(
    query: Query, visible: Any, topic: Any, transaction_version_brokers: Any, way: str, batch_id: int
) -> None:
    token = query.fence()
    done = query.task(token, 0, b"a", batch_id=batch_id)
    if way == "tasks":
        query.decide_and_crash(done, batch_id=batch_id)
    else:
        query.commit_by_driver(encoded(0, done, query.topic, b"a"), batch_id=batch_id, fail_on_missing_marker=False)
    init_transaction(
        query.cluster, query.options.transactional_id
    )  # a run that dies early hides the query's last commit
    other, own = topic(1, cluster=transaction_version_brokers[1]), query.topic
    for strict in (True, False):
        query.options = replace(query.options, marker_topic=other, fail_on_missing_marker=strict)
        replay = query.task(query.fence(), 0, b"a", batch_id=batch_id)
        with pytest.raises(
            ExactlyOnceError, match=f"markerTopic is {other}, and the marker .* {own}.*markerTopic={own}"
        ):
            if way == "tasks":
                query.commit(replay, batch_id=batch_id)
            else:
                query.commit_by_driver(encoded(0, replay, own, b"a"), batch_id=batch_id)
        abandon(query.cluster, query.options, [replay])
        assert visible(query) == [b"a"], "decided transactions are committed, whichever place lists them"
    query.options = replace(query.options, marker_topic=own, fail_on_missing_marker=True)
    replay = query.task(query.fence(), 0, b"a", batch_id=batch_id)
    assert query.commit(replay, batch_id=batch_id) is Decision.SKIP
    assert visible(query) == [b"a"]
    assert query.open() == 0
