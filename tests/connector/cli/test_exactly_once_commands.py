"""``marker`` and ``transactions --of``: what a query through tasks has decided, and what it has left open."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykafka_wire.sink.exactly_once.marker import DecidedTask, Marker, WrittenRange, encode_marker, marker_group
from pykafka_wire.sink.exactly_once.task_ids import task_id
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.bulk import End, commit_all, list_open
from pykafka_wire.wire.transactions.coordinator import TransactionHandle
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.wire.transaction_records import encode

pytestmark = pytest.mark.broker


@pytest.fixture
def cluster(kafka: Any) -> Iterator[Cluster]:
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as opened:
        yield opened


def left_open(cluster: Cluster, name: str, tp: TopicPartition) -> TransactionHandle:
    transaction = Transaction.begin(cluster, name)
    transaction.produce({tp: encode(b"x")})
    handle = transaction.leave_open()
    assert handle is not None
    return handle


def test_a_decision_is_shown_and_abandoned_transactions_are_aborted_after_a_question(
    command: Callable[..., Any], kafka: Any, cluster: Cluster, topic: Any
) -> None:
    query, tp, at = f"q-{uuid.uuid4().hex[:8]}", TopicPartition(topic(), 0), ["-b", kafka.bootstrap_servers]
    assert "has no marker" in command("marker", *at, query, code=1).stdout
    assert "No task of" in command("transactions", *at, "--of", query).stdout
    decided, abandoned = (left_open(cluster, task_id(query, f"3f2a1b9c5d7e.{i}"), tp) for i in range(2))
    listed = DecidedTask(
        task=3, transaction=decided, n_records=1, digest="0f", ranges=(WrittenRange(tp.topic, 0, 0, 0),)
    )
    marker = Marker(query_id="the-query", batch_id=7, n_records=1, digest="0f", pending=(listed,))
    for number, offset in enumerate(encode_marker(marker, query)):
        commit_offsets(cluster, marker_group(query, number), {tp: offset})

    shown = command("marker", *at, query).stdout
    assert "decided" in shown and "Decided transactions of micro-batch 7" in shown
    (found,) = json.loads(command("marker", *at, "--json", query).stdout)
    assert (found["query"], found["micro-batch"], found["state"], found["records"]) == ("the-query", 7, "decided", 1)
    assert found["tasks"] == [
        {
            "task": 3,
            "transactional id": decided.transactional_id,
            "producer id": decided.identity.producer_id,
            "epoch": decided.identity.producer_epoch,
            "records": 1,
            "digest": "0f",
            "written": [f"{tp.topic}-0 0 to 0"],
        }
    ]

    def decisions() -> dict[str, str]:
        rows = json.loads(command("transactions", *at, "--json", "--of", query).stdout)
        return {row["transactional id"]: row["decision"] for row in rows}

    assert decisions() == {decided.transactional_id: "decided", abandoned.transactional_id: "abandoned"}
    refused = command("transactions", *at, "--of", query, "--abort", stdin="n\n", code=130)
    assert f"Abort 1 transaction of {query}?" in refused.stderr
    assert len(decisions()) == 2
    assert "1 aborted." in command("transactions", *at, "--of", query, "--abort", "--yes").stdout
    assert [each.transactional_id for each in list_open(cluster, query) if each.state == "Ongoing"] == [
        decided.transactional_id
    ]
    Transaction.begin(cluster, decided.transactional_id)  # ends it


def test_what_is_decided_while_the_question_is_open_is_not_aborted(
    command: Callable[..., Any], kafka: Any, cluster: Cluster, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, tp, at = f"q-{uuid.uuid4().hex[:8]}", TopicPartition(topic(), 0), ["-b", kafka.bootstrap_servers]
    handles = [left_open(cluster, task_id(query, f"3f2a1b9c5d7e.{i}"), tp) for i in range(2)]
    listed = DecidedTask(task=0, transaction=handles[0], n_records=1, digest="0f")
    marker = Marker(query_id="the-query", batch_id=7, n_records=1, digest="0f", pending=(listed,))
    driver = Transaction.begin(cluster, query)
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        driver.commit_offsets(marker_group(query), {tp: encode_marker(marker, query)[0]})
        driver.commit()
        return True

    monkeypatch.setattr("click.confirm", confirm)
    assert (
        "1 aborted, 1 had ended meanwhile, or were decided."
        in command("transactions", *at, "--of", query, "--abort").stdout
    )
    assert "Abort 2 transactions" in asked[0]
    assert commit_all(cluster, handles) == {handles[0]: End.COMMITTED, handles[1]: End.ABORTED}


def test_nothing_is_aborted_where_the_marker_cannot_be_read(
    command: Callable[..., Any], kafka: Any, cluster: Cluster, topic: Any
) -> None:
    query, tp, at = f"q-{uuid.uuid4().hex[:8]}", TopicPartition(topic(), 0), ["-b", kafka.bootstrap_servers]
    handle = left_open(cluster, task_id(query, "3f2a1b9c5d7e.0"), tp)
    commit_offsets(cluster, marker_group(query), {tp: CommittedOffset(8, metadata='{"version": 3}')})
    shown = command("transactions", *at, "--of", query, "--abort", "--yes").stdout
    assert "unknown" in shown and "The marker is lost or cannot be read, so each of them may be decided" in shown
    assert commit_all(cluster, [handle]) == {handle: End.COMMITTED}


def test_nothing_is_aborted_where_the_marker_is_lost(
    command: Callable[..., Any], kafka: Any, cluster: Cluster, topic: Any
) -> None:
    query, tp, at = f"q-{uuid.uuid4().hex[:8]}", TopicPartition(topic(), 0), ["-b", kafka.bootstrap_servers]
    handles = [left_open(cluster, task_id(query, f"3f2a1b9c5d7e.{i}"), tp) for i in range(2)]
    commit_all(cluster, handles[:1])
    shown = command("transactions", *at, "--of", query, "--abort", "--yes").stdout
    assert "unknown" in shown and "The marker is lost or cannot be read" in shown
    assert commit_all(cluster, handles[1:]) == {handles[1]: End.COMMITTED}


def test_options_that_do_not_go_together(command: Callable[..., Any], kafka: Any) -> None:
    at = ["-b", kafka.bootstrap_servers]
    assert "--abort needs --of ID" in command("transactions", *at, "--abort", code=2).stderr
    assert "leave out --topic and --all" in command("transactions", *at, "--of", "q", "--all", code=2).stderr
