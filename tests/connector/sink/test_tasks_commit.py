"""What the driver does with transactions that tasks have left open: commits, replays, changes of the way, records that are lost."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once.claim import Claim, claim_micro_batch
from pykafka_wire.sink.exactly_once.commit import MicroBatchCommit
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.marker import Marker, marker_group
from pykafka_wire.sink.exactly_once.marker_offsets import read_marker
from pykafka_wire.sink.exactly_once.open_task import OpenTask
from pykafka_wire.sink.exactly_once.task import EncodedTask
from pykafka_wire.sink.exactly_once.task_ids import TaskIds, task_prefix
from pykafka_wire.sink.exactly_once.tasks_commit import MarkerWriter, TasksCommit, abandon
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.many import abort_all, list_open
from tests.connector.sink.tasks_process import write_task

pytestmark = pytest.mark.broker

LIMIT_S = 60


class Query:
    """A query whose tasks are run here, in any order and as often as a test likes."""

    def __init__(self, cluster: Cluster, servers: str, topic: str) -> None:
        self.cluster = cluster
        self.servers = servers
        self.topic = topic
        self.options = ExactlyOnceOptions(
            transactional_id=f"q-{uuid.uuid4().hex[:8]}", marker_topic=topic, through_tasks=True
        )

    def claim(self) -> Claim:
        return claim_micro_batch(self.cluster, self.options)

    def task(self, claim: Claim, number: int, *values: bytes, batch_id: int = 0, digest: int | None = None) -> OpenTask:
        records = [(self.topic, 0, value) for value in values]
        digest = sum(values[0]) * 1000 + len(values) if digest is None and values else digest
        name = self.options.transactional_id
        return write_task(self.cluster, name, claim, batch_id, number, records, digest=digest)

    def commit(self, *tasks: OpenTask | None, batch_id: int = 0, **options: bool) -> Decision:
        return TasksCommit(self.cluster, replace(self.options, **options), batch_id).run(tasks)  # type: ignore[arg-type]

    def commit_by_driver(self, *tasks: EncodedTask, batch_id: int = 0, **options: Any) -> Decision:
        return MicroBatchCommit(self.cluster, replace(self.options, **options), batch_id, max_bytes=10_000).run(tasks)

    def decide_and_crash(self, *tasks: OpenTask, batch_id: int = 0) -> None:
        """What a driver does that dies between its decision and its end."""
        commit = TasksCommit(self.cluster, self.options, batch_id)
        collected, marker = commit._collect(tasks)
        MarkerWriter(self.cluster, self.options, collected[0].claim).write(marker)

    def time_out(self, *tasks: OpenTask) -> None:
        """What an administrator's abort leaves is what a time-out leaves, without the wait."""
        abort_all(self.cluster, [task.transaction for task in tasks if task.transaction is not None])

    def marker(self) -> Any:
        return read_marker(self.cluster, self.options.transactional_id, self.topic)

    def open(self) -> int:
        """How many transactions of tasks are open, once those that are being ended have ended."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            states = [each.state for each in list_open(self.cluster, task_prefix(self.options.transactional_id))]
            if set(states) <= {"Ongoing"}:
                return len(states)
            assert time.monotonic() < deadline
            time.sleep(0.02)


def encoded(number: int, task: OpenTask, topic: str, *values: bytes) -> EncodedTask:
    """The same task as the driver's way has it."""
    batches = encode_batches(
        key=None,
        value=pa.array(values, pa.binary()),
        headers=None,
        timestamp=np.zeros(len(values), np.int64),
        codec=Codec.NONE,
        max_batch_bytes=16_384,
    )
    return EncodedTask(
        query_id=task.query_id,
        batch_id=task.batch_id,
        task=number,
        batches={TopicPartition(topic, 0): batches},
        n_records=task.n_records,
        n_bytes=0,
        digest=task.digest,
    )


@pytest.fixture
def query(transaction_version_brokers: tuple[str, Any], topic: Any) -> Iterator[Query]:
    brokers = transaction_version_brokers[1]
    settings = {"bootstrap.servers": brokers.bootstrap_servers, "retry.backoff.ms": "20"}
    with Cluster(ClientSettings.from_options(settings)) as cluster:
        yield Query(cluster, brokers.bootstrap_servers, topic(1, cluster=brokers))


@pytest.fixture
def visible(outside_of: Any) -> Callable[[Query], list[bytes]]:
    """What a read_committed reader sees, in order of values."""

    def read(query: Query) -> list[bytes]:
        return sorted(r.value for r in outside_of(query.servers).consume(query.topic, isolation_level="read_committed"))

    return read


def test_tasks_are_visible_after_the_commit_and_the_marker_is_settled(query: Query, visible: Any) -> None:
    claim = query.claim()
    tasks = [query.task(claim, 0, b"a", b"b"), query.task(claim, 1, b"c"), query.task(claim, 2)]
    assert tasks[2].transaction is None
    assert visible(query) == []
    assert query.commit(*reversed(tasks)) is Decision.WRITE
    assert visible(query) == [b"a", b"b", b"c"]
    assert query.marker() == Marker(query_id="query", batch_id=0, n_records=3, digest=query.marker().digest)
    assert query.open() == 0


def test_a_replay_of_a_settled_micro_batch_is_skipped_and_its_transactions_aborted(query: Query, visible: Any) -> None:
    first = query.claim()
    query.commit(query.task(first, 0, b"a"))
    again = query.claim()
    assert query.commit(query.task(again, 0, b"a")) is Decision.SKIP
    with pytest.raises(ExactlyOnceError, match="the query does not return the same rows"):
        query.commit(query.task(query.claim(), 0, b"x"))
    other = query.claim()
    assert query.commit(query.task(other, 0, b"x"), keep_on_marker_mismatch=True) is Decision.KEEP
    assert query.commit(query.task(query.claim(), 0, b"b", batch_id=1), batch_id=1) is Decision.WRITE
    assert visible(query) == [b"a", b"b"]
    assert query.open() == 0


def test_attempts_that_lost_are_aborted_with_the_commit(query: Query, visible: Any) -> None:
    claim = query.claim()
    query.task(claim, 0, b"speculative")
    kept = query.task(claim, 0, b"a")
    query.commit(kept)
    assert query.open() == 0
    assert visible(query) == [b"a"]


def test_leftovers_of_a_killed_run_are_aborted_before_the_next_tasks_start(query: Query, visible: Any) -> None:
    query.task(query.claim(), 0, b"left")
    assert query.open() == 1
    claim = query.claim()
    assert query.open() == 0
    query.commit(query.task(claim, 0, b"a"))
    assert visible(query) == [b"a"]


def test_what_is_not_of_the_querys_own_tasks_is_left_alone(query: Query) -> None:
    """Another query may be named as this one's tasks are."""
    other = Query(query.cluster, query.servers, query.topic)
    other.options = replace(query.options, transactional_id=task_prefix(query.options.transactional_id) + "7")
    task = other.task(other.claim(), 0, b"a")
    query.claim()
    assert query.open() == 1
    assert other.commit(task) is Decision.WRITE


@pytest.mark.parametrize("marker", ['{"version": 3}', "a note"])
def test_nothing_is_aborted_where_the_marker_cannot_be_read(query: Query, marker: str) -> None:
    tasks = [query.task(query.claim(), 0, b"a")]
    group, place = marker_group(query.options.transactional_id), TopicPartition(query.topic, 0)
    commit_offsets(query.cluster, group, {place: CommittedOffset(1, metadata=marker)})
    abandon(query.cluster, query.options, tasks)
    query.claim()
    assert query.open() == 1, "it may be decided"
    query.time_out(*tasks)


def test_a_decision_is_carried_out_before_the_next_tasks_start_and_settled_by_the_replay(
    query: Query, visible: Any
) -> None:
    first = query.claim()
    query.decide_and_crash(query.task(first, 0, b"a"), query.task(first, 1, b"b"))
    query.task(first, 2, b"lost attempt")
    claim = query.claim()
    assert visible(query) == [b"a", b"b"]
    assert query.open() == 0
    assert len(query.marker().pending) == 2
    assert query.commit(query.task(claim, 0, b"b"), query.task(claim, 1, b"a")) is Decision.SKIP
    assert query.marker().pending == ()
    assert visible(query) == [b"a", b"b"]


def test_what_timed_out_after_the_decision_is_replaced_by_the_replays_task_with_the_same_rows(
    query: Query, visible: Any
) -> None:
    first = query.claim()
    tasks = [query.task(first, 0, b"a"), query.task(first, 1, b"b"), query.task(first, 2, b"c")]
    query.decide_and_crash(*tasks)
    query.time_out(tasks[1])
    second = query.claim()
    # It may divide the rows among its tasks in another order.
    replay = [query.task(second, 0, b"b"), query.task(second, 1, b"c"), query.task(second, 2, b"a")]
    assert query.commit(*replay) is Decision.SKIP
    assert visible(query) == [b"a", b"b", b"c"]
    assert query.marker().pending == ()
    assert query.open() == 0


def test_a_replacement_that_times_out_is_replaced_too(query: Query, visible: Any) -> None:
    first = query.claim()
    tasks = [query.task(first, 0, b"a"), query.task(first, 1, b"b")]
    query.decide_and_crash(*tasks)
    query.time_out(*tasks)
    second = query.claim()
    replay = [query.task(second, 0, b"a"), query.task(second, 1, b"b")]
    query.decide_and_crash(*replay)
    query.time_out(replay[0])
    third = query.claim()
    assert query.commit(query.task(third, 0, b"a"), query.task(third, 1, b"b")) is Decision.SKIP
    assert visible(query) == [b"a", b"b"]


def test_where_no_task_has_the_same_rows_the_error_names_what_is_missing(
    query: Query, visible: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = query.claim()
    tasks = [query.task(first, 0, b"a"), query.task(first, 1, b"b", b"bb")]
    query.decide_and_crash(*tasks)
    query.time_out(tasks[1])
    second = query.claim()
    replay = [query.task(second, 0, b"a"), query.task(second, 1, b"other")]
    handle = tasks[1].transaction
    assert handle is not None
    with pytest.raises(ExactlyOnceError) as raised:
        query.commit(*replay)
    assert (
        f"micro-batch 0 was decided, and 1 of its transactions were aborted before they could be committed "
        f"(kafka.transaction.timeout.ms): task 1 (2 records, {handle.transactional_id!r}, {query.topic}-0 offsets 1 to 2)"
    ) in str(raised.value)
    assert visible(query) == [b"a"]
    # The way on, for one start.
    third = query.claim()
    again = [query.task(third, 0, b"a"), query.task(third, 1, b"b", b"cc", digest=tasks[1].digest + 1)]
    with pytest.raises(ExactlyOnceError, match="does not return the same rows"):
        query.commit(*again, fail_on_missing_marker=False)
    assert "failOnMissingMarker=false" in caplog.text and "task 1 (2 records" in caplog.text
    fourth = query.claim()
    assert query.commit(query.task(fourth, 0, b"n", batch_id=1), batch_id=1) is Decision.WRITE
    assert visible(query) == [b"a", b"n"]


def test_an_end_that_comes_too_late_fails_and_the_replay_makes_it_good(query: Query, visible: Any) -> None:
    claim = query.claim()
    tasks = [query.task(claim, 0, b"a"), query.task(claim, 1, b"b")]
    query.time_out(tasks[0])
    with pytest.raises(ExactlyOnceError, match=r"is decided, and 1 of its 2 transactions were aborted .*task 0 \("):
        query.commit(*tasks)
    again = query.claim()
    assert query.commit(query.task(again, 0, b"a"), query.task(again, 1, b"b")) is Decision.SKIP
    assert visible(query) == [b"a", b"b"]


def test_a_time_out_before_the_decision_is_noticed_where_much_time_has_passed(
    query: Query, visible: Any, caplog: pytest.LogCaptureFixture
) -> None:
    claim = replace(query.claim(), made_at=time.time() - 31)
    tasks = [query.task(claim, 0, b"a"), query.task(claim, 1, b"b")]
    query.time_out(tasks[1])
    with pytest.raises(
        ExactlyOnceError, match=r"was not written: 1 of its 2 transactions are no longer open.*task 1 \("
    ):
        query.commit(*tasks)
    assert query.marker() is None
    caplog.set_level(logging.WARNING)
    late = replace(query.claim(), made_at=time.time() - 31)
    query.commit(query.task(late, 0, b"a"))
    assert "Micro-batch 0 took 31 s" in caplog.text and "(the brokers allow up to 900 s)" in caplog.text
    assert visible(query) == [b"a"]


def test_a_second_drivers_claim_fences_the_first_ones_decision(query: Query, visible: Any) -> None:
    first = query.claim()
    tasks = [query.task(first, 0, b"a")]
    second = query.claim()  # it aborts what it finds open: nobody can decide it any more
    with pytest.raises(
        ExactlyOnceError, match=r"micro-batch 0 was not written \(deciding the micro-batch\): .*taken over"
    ):
        query.commit(*tasks)
    query.commit(query.task(second, 0, b"a"))
    assert visible(query) == [b"a"]


def test_a_failed_micro_batch_is_aborted_unless_it_is_decided(query: Query, visible: Any) -> None:
    claim = query.claim()
    tasks = [query.task(claim, 0, b"a"), query.task(claim, 1, b"b")]
    abandon(query.cluster, query.options, [tasks[0], None])
    assert query.open() == 1
    again = query.claim()
    decided = [query.task(again, 0, b"a")]
    query.decide_and_crash(*decided)
    abandon(query.cluster, query.options, decided)
    assert query.open() == 1
    query.commit(query.task(query.claim(), 0, b"a"))
    assert visible(query) == [b"a"]


@pytest.mark.parametrize("times_out", [False, True])
def test_from_tasks_to_the_driver_in_the_middle_of_a_micro_batch(query: Query, visible: Any, times_out: bool) -> None:
    claim = query.claim()
    tasks = [query.task(claim, 0, b"a"), query.task(claim, 1, b"b")]
    query.decide_and_crash(*tasks)
    query.task(claim, 2, b"lost attempt")
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
    query.commit(query.task(query.claim(), 0, b"a"))
    tasks = [query.task(query.claim(), 0, b"b", batch_id=1)]
    query.decide_and_crash(*tasks, batch_id=1)
    replay = encoded(0, tasks[0], query.topic, b"b")
    marker_topic = query.topic
    if lost == "its group deleted":
        group = marker_group(query.options.transactional_id)
        outside = outside_of(query.servers)
        outside.admin.delete_consumer_groups([group])[group].result(30)
    else:
        marker_topic += "-other"
    with pytest.raises(ExactlyOnceError, match="at micro-batch 1, and there is no marker"):
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
    task = query.task(query.claim(), 0, b"a")
    query.decide_and_crash(task)
    other = replace(encoded(0, task, query.topic, b"x"), digest=task.digest + 1)
    with pytest.raises(ExactlyOnceError, match="micro-batch 0 is in Kafka already"):
        query.commit_by_driver(other)
    assert visible(query) == [b"a"]
    assert query.marker().pending == ()
    assert query.commit_by_driver(other, keep_on_marker_mismatch=True) is Decision.KEEP
    assert visible(query) == [b"a"]


def test_from_the_driver_to_tasks_and_leftovers_for_the_driver(query: Query, visible: Any) -> None:
    claim = query.claim()
    left = query.task(claim, 0, b"a")
    assert query.commit_by_driver(encoded(0, left, query.topic, b"a")) is Decision.WRITE
    assert query.open() == 0
    assert query.commit(query.task(query.claim(), 0, b"a")) is Decision.SKIP
    assert visible(query) == [b"a"]


def test_a_decision_of_hundreds_of_tasks_is_in_several_groups(query: Query, visible: Any) -> None:
    claim = query.claim()
    tasks = [query.task(claim, i, b"%03d" % i) for i in range(150)]
    query.decide_and_crash(*tasks)
    found = query.marker()
    assert [each.transaction for each in found.pending] == [task.transaction for task in tasks]
    again = query.claim()
    replay = [query.task(again, i, b"%03d" % i) for i in range(150)]
    assert query.commit(*replay) is Decision.SKIP
    assert visible(query) == [b"%03d" % i for i in range(150)]


@pytest.mark.parametrize("wrong", ["none", "a task failed", "a task is missing", "two claims"])
def test_messages_that_are_no_micro_batch(query: Query, wrong: str) -> None:
    claim = query.claim()
    task = query.task(claim, 0)
    messages: dict[str, list[OpenTask | None]] = {
        "none": [],
        "a task failed": [task, None],
        "a task is missing": [replace(task, task=1)],
        "two claims": [task, replace(task, task=1, claim=replace(claim, made_at=0.0))],
    }
    with pytest.raises(ExactlyOnceError, match=r"micro-batch 0 was not written: .* one of each task"):
        query.commit(*messages[wrong])


def test_a_lost_marker_is_refused_before_the_tasks_start(query: Query, outside_of: Any) -> None:
    query.commit(query.task(query.claim(), 0, b"a"))
    group = marker_group(query.options.transactional_id)
    outside = outside_of(query.servers)
    outside.admin.delete_consumer_groups([group])[group].result(30)
    with Cluster(query.cluster.settings) as restarted:
        for _ in range(2):
            with pytest.raises(ExactlyOnceError, match="has committed a transaction, and there is no marker"):
                claim_micro_batch(restarted, query.options)
        claim_micro_batch(restarted, replace(query.options, fail_on_missing_marker=False))


def test_ids_are_used_again_for_later_micro_batches_only() -> None:
    ids = TaskIds()
    first = [ids.next("q", "query", 0) for _ in range(3)]
    assert len(set(first)) == 3 and all(name.startswith("q.task.") for name in first)
    replay = [ids.next("q", "query", 0) for _ in range(2)]
    assert not set(replay) & set(first)
    assert {ids.next("q", "query", 1) for _ in range(5)} == {*first, *replay}
    assert ids.next("q", "another query", 2) not in {*first, *replay}
    assert ids.next("q2", "query", 2) not in {*first, *replay}
    assert not {TaskIds().next("q", "query", 0)} & {*first}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", ["_decide", "_end", "_settle"])
def test_a_broker_that_coordinates_half_of_the_transactions_is_killed_and_comes_back_before_a_step(
    step: str, kafka_cluster: Any, topic: Any, visible: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"transaction.state.log.min.isr": "1", "min.insync.replicas": "1", "broker.session.timeout.ms": "3000"}
    brokers = kafka_cluster(2, properties)
    name = topic(4, cluster=brokers)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers})) as cluster:
        query = Query(cluster, brokers.bootstrap_servers, name)
        claim = query.claim()
        tasks = [query.task(claim, i, b"%03d" % i) for i in range(30)]
        take_step, killed = getattr(TasksCommit, step), []

        def kill_first(self: TasksCommit, *arguments: Any) -> None:
            if not killed:
                killed.append(brokers.nodes[0])
                brokers.nodes[0].kill()
                brokers.nodes[0].start()
            take_step(self, *arguments)

        monkeypatch.setattr(TasksCommit, step, kill_first)
        assert query.commit(*tasks) is Decision.WRITE
        assert killed
        assert visible(query) == [b"%03d" % i for i in range(30)]
        assert query.marker().pending == ()
