"""An administrator aborts a transaction in a partition, with Kafka's own tool, and its coordinator does not get to know.

EndTxn still responds that it is committed, while its records stay aborted: nothing may be lost for that.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.errors import ExactlyOnceError
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.driver_transaction import DriverTransaction
from pykafka_wire.sink.exactly_once.task_ids import next_task_id
from pykafka_wire.sink.exactly_once.task_transactions import abandon
from pykafka_wire.sink.exactly_once.tasks import OpenTask, ranges_of
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.connector.sink.tasks_process import write_task
from tests.connector.sink.tasks_query import Query, abort_in_partition, encoded

pytestmark = pytest.mark.broker


@pytest.fixture
def brokers(transaction_version_brokers: tuple[str, Any]) -> Any:
    return transaction_version_brokers[1]


@pytest.mark.parametrize("named", ["with its offsets", "without offsets, as in a long list"])
@pytest.mark.parametrize("way", ["tasks", "driver"])
def test_after_the_decision_it_is_replaced_by_the_replay(
    brokers: Any, query: Query, visible: Any, caplog: pytest.LogCaptureFixture, named: str, way: str
) -> None:
    token = query.fence()
    tasks = [query.task(token, 0, b"a"), query.task(token, 1, b"b"), query.task(token, 2, b"c")]
    query.decide_and_crash(*(tasks if named == "with its offsets" else [replace(each, ranges=()) for each in tasks]))
    abort_in_partition(brokers, tasks[1])
    caplog.set_level(logging.WARNING)
    if way == "tasks":
        second = query.fence()
        replay = [query.task(second, 0, b"a"), query.task(second, 1, b"b"), query.task(second, 2, b"c")]
        assert query.commit(*replay) is Decision.SKIP
    else:
        replayed = [encoded(i, task, query.topic, b"abc"[i : i + 1]) for i, task in enumerate(tasks)]
        assert query.commit_by_driver(*replayed) is Decision.SKIP
    assert "1 of its transactions were aborted in a partition" in caplog.text
    assert visible(query) == [b"a", b"b", b"c"]
    assert query.marker().pending == ()
    assert query.open() == 0


def test_aborted_in_one_of_its_partitions_it_is_replaced_in_all(
    brokers: Any, query: Query, visible: Any, topic: Any
) -> None:
    query.topic = topic(2, cluster=brokers)
    query.options = replace(query.options, marker_topic=query.topic)
    records = [(query.topic, 0, b"a"), (query.topic, 1, b"b")]
    first = write_task(query.cluster, query.options.transactional_id, query.fence(), 0, 0, records)
    query.decide_and_crash(first)
    abort_in_partition(brokers, first, 1)
    second = write_task(query.cluster, query.options.transactional_id, query.fence(), 0, 0, records)
    assert query.commit(second) is Decision.SKIP
    assert visible(query) == [b"a", b"b"]


def test_before_the_decision_nothing_is_decided(brokers: Any, query: Query, visible: Any) -> None:
    token = query.fence()
    tasks = [query.task(token, 0, b"a"), query.task(token, 1, b"b")]
    abort_in_partition(brokers, tasks[0])
    with pytest.raises(
        ExactlyOnceError, match=r"was not written: 1 of its 2 transactions are no longer open, .*: task 0 \(1 records"
    ):
        query.commit(*tasks)
    abandon(query.cluster, query.options, tasks)
    again = query.fence()
    # Other rows may come: nothing is bound to the ones before.
    assert query.commit(query.task(again, 0, b"x"), query.task(again, 1, b"y")) is Decision.WRITE
    assert visible(query) == [b"x", b"y"]


def test_while_its_task_still_writes_to_the_partition(brokers: Any, query: Query, visible: Any) -> None:
    """The transaction is open there again, from a later offset on."""
    name, token = query.options.transactional_id, query.fence()
    transaction = Transaction.begin(query.cluster, next_task_id(name, "query", 0))

    def write(value: bytes) -> OpenTask:
        first = encoded(0, query.task(token, 0), query.topic, value)
        transaction.append(query.topic, 0, first.batches[TopicPartition(query.topic, 0)])
        ranges = ranges_of(transaction.flush())
        content = {"n_records": 1, "n_bytes": 1, "digest": 1}
        return OpenTask(query_id="query", batch_id=0, task=0, token=token, transaction=None, ranges=ranges, **content)

    first = write(b"a")
    abort_in_partition(brokers, first)
    second = write(b"b")
    ranges = (first.ranges[0]._replace(last_offset=second.ranges[0].last_offset),)
    task = replace(second, transaction=transaction.leave_open(), ranges=ranges, n_records=2)
    assert query.open() == 1
    with pytest.raises(ExactlyOnceError, match="was not written: 1 of its 1 transactions are no longer open"):
        query.commit(task)
    assert visible(query) == []


def test_while_the_driver_writes(brokers: Any, query: Query, visible: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = DriverTransaction._mark

    def abort_then_mark(self: DriverTransaction, batch: Any) -> None:
        where = ["--topic", query.topic, "--partition", "0", "--start-offset", "0"]
        brokers.tool("org.apache.kafka.tools.TransactionsCommand", "abort", *where)
        mark(self, batch)

    task = encoded(0, query.task(query.fence(), 0), query.topic, b"a")
    task = replace(task, n_records=1, digest=1)
    with monkeypatch.context() as patched:
        patched.setattr(DriverTransaction, "_mark", abort_then_mark)
        with pytest.raises(
            ExactlyOnceError, match=r"was not written: its transaction is no longer open in a partition"
        ):
            query.commit_by_driver(task)
    assert query.marker() is None
    assert query.commit_by_driver(task) is Decision.WRITE
    assert visible(query) == [b"a"]


def test_without_read_on_the_topic_it_is_not_checked_and_a_restart_in_the_middle_of_an_end_is_refused(
    guarded_kafka: Any, topic: Any, visible: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name, markers = topic(cluster=guarded_kafka), topic(cluster=guarded_kafka)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "bootstrap.servers": guarded_kafka.bootstrap("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{login} username="alice" password="alice-secret";',
    }
    with Cluster(ClientSettings.from_options(settings)) as cluster:
        query = Query(cluster, guarded_kafka.bootstrap_servers, name)
        query.options = replace(query.options, marker_topic=markers)
        prefixed = ["--resource-pattern-type", "prefixed"]

        def allow(*operations: str) -> None:
            acls = ["--add", "--allow-principal", "User:alice", *operations]
            guarded_kafka.tool("org.apache.kafka.tools.AclCommand", *acls)

        allow(
            "--operation",
            "Write",
            "--operation",
            "Describe",
            "--transactional-id",
            query.options.transactional_id,
            *prefixed,
        )
        allow("--operation", "Read", "--group", query.options.transactional_id, *prefixed)
        allow("--operation", "Read", "--topic", markers)  # which its commit needs
        allow("--operation", "Write", "--topic", name)
        caplog.set_level(logging.WARNING)
        assert query.commit(query.task(query.fence(), 0, b"a")) is Decision.WRITE
        assert "cannot be checked" in caplog.text and "--operation Read --topic" in caplog.text
        query.decide_and_crash(query.task(query.fence(), 0, b"b", batch_id=1), batch_id=1)
        second = query.fence()
        with pytest.raises(
            ExactlyOnceError, match=r"micro-batch 1 is decided, and it is unknown whether .*needs Read on the topics"
        ):
            query.commit(query.task(second, 0, b"b", batch_id=1), batch_id=1)
        allow("--operation", "Read", "--topic", name)
        assert query.commit(query.task(query.fence(), 0, b"b", batch_id=1), batch_id=1) is Decision.SKIP
        assert visible(query) == [b"a", b"b"]
        assert query.open() == 0
