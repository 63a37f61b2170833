"""Many transactions that other processes have left open: listed, committed and aborted at a time, in both versions."""

from __future__ import annotations

import pickle
import time
import uuid
from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import ProducerFencedError
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.bulk import End, abort_all, commit_all, list_open
from pykafka_wire.wire.transactions.coordinator import TransactionHandle, TransactionVersion, init_transaction
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.wire.transaction_records import ClusterOf, committed_values, encode

pytestmark = pytest.mark.broker


@pytest.fixture
def prefix() -> str:
    return f"many.{uuid.uuid4().hex[:12]}+"


def left_open(cluster: Cluster, transactional_id: str, tp: TopicPartition, *values: bytes) -> TransactionHandle:
    """Writes in a transaction that another process is to end."""
    transaction = Transaction.begin(cluster, transactional_id)
    for value in values:
        transaction.append(tp.topic, tp.partition, encode(value))
    transaction.flush()
    handle = transaction.leave_open()
    assert handle is not None
    return pickle.loads(pickle.dumps(handle))  # type: ignore[no-any-return]


def ended(cluster: Cluster, prefix: str) -> bool:
    """Waits until no transaction is open."""
    deadline = time.monotonic() + 60
    while list_open(cluster, prefix):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return True


def test_left_open_by_one_process_and_ended_by_another(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, prefix: str
) -> None:
    brokers = transaction_version_brokers[1]
    tp = TopicPartition(topic(1, cluster=brokers), 0)
    writer, driver = cluster_of(brokers), cluster_of(brokers)
    left_open(writer, f"other-{prefix}", tp, b"other")
    handles = [left_open(writer, f"{prefix}{i}", tp, b"%d" % i, b"and %d" % i) for i in range(12)]
    found = list_open(driver, prefix)
    assert {(each.transactional_id, each.producer_id, each.state) for each in found} == {
        (handle.transactional_id, handle.identity.producer_id, "Ongoing") for handle in handles
    }
    kept, dropped = handles[:10], handles[10:]
    assert commit_all(driver, kept) == dict.fromkeys(kept, End.COMMITTED)
    assert commit_all(driver, kept) == dict.fromkeys(kept, End.COMMITTED), "a second time"
    assert abort_all(driver, dropped) == dict.fromkeys(dropped, 0)
    assert commit_all(driver, handles) == {**dict.fromkeys(kept, End.COMMITTED), **dict.fromkeys(dropped, End.ABORTED)}
    assert ended(driver, prefix)
    assert abort_all(driver, [replace(handles[0])])[handles[0]] != 0, "committed is not aborted"
    left = [each.transactional_id for each in list_open(driver, "other-")]
    assert f"other-{prefix}" in left, "nobody asked to end it"
    abort_all(driver, [left_open(writer, f"other-{prefix}", tp, b"again")])
    assert ended(driver, f"other-{prefix}")
    values = [value for i in range(10) for value in (b"%d" % i, b"and %d" % i)]
    assert committed_values(brokers, tp.topic, 1) == [values]


def test_one_that_timed_out_and_one_whose_id_was_used_again(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, prefix: str
) -> None:
    brokers = transaction_version_brokers[1]
    tp = TopicPartition(topic(1, cluster=brokers), 0)
    cluster = cluster_of(brokers, transaction_timeout_ms=1000)
    late, reused = left_open(cluster, f"{prefix}late", tp, b"late"), left_open(cluster, f"{prefix}reused", tp, b"first")
    assert commit_all(cluster, [reused]) == {reused: End.COMMITTED}
    for _ in range(2):  # each raises the epoch
        init_transaction(cluster, f"{prefix}reused")
    assert ended(cluster, prefix)
    assert commit_all(cluster, [late, reused]) == {late: End.ABORTED, reused: End.UNKNOWN}
    assert committed_values(brokers, tp.topic, 1) == [[b"first"]]


def test_an_id_that_has_expired_leaves_it_unknown(
    transaction_version_brokers: tuple[str, Any], cluster_of: ClusterOf, prefix: str
) -> None:
    cluster = cluster_of(transaction_version_brokers[1])
    version = TransactionVersion.of(cluster)
    expired = TransactionHandle(transactional_id=prefix, identity=ProducerIdentity(7, 3), version=version)
    assert commit_all(cluster, [expired]) == {expired: End.UNKNOWN}
    of_another = replace(init_transaction(cluster, f"{prefix}again"), identity=ProducerIdentity(7, 3))
    assert commit_all(cluster, [of_another]) == {of_another: End.UNKNOWN}


def test_open_ones_are_found_under_any_prefix(kafka: Any, topic: Any, cluster_of: ClusterOf, prefix: str) -> None:
    cluster = cluster_of(kafka)
    name = f"{prefix} \u2013\u00e9.*[\\"
    handle = left_open(cluster, f"{name}1", TopicPartition(topic(), 0), b"x")
    assert [each.transactional_id for each in list_open(cluster, name)] == [f"{name}1"]
    abort_all(cluster, [handle])


def test_a_successor_is_refused_where_another_producer_came_between(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, prefix: str
) -> None:
    brokers = transaction_version_brokers[1]
    tp = TopicPartition(topic(1, cluster=brokers), 0)
    cluster = cluster_of(brokers)
    first = Transaction(cluster, init_transaction(cluster, prefix))
    first.produce({tp: encode(b"first")})
    first.commit()
    second = Transaction(cluster, init_transaction(cluster, prefix, successor_of=first.identity))
    second.produce({tp: encode(b"second")})
    second.commit()
    init_transaction(cluster, prefix)
    with pytest.raises(ProducerFencedError):
        init_transaction(cluster, prefix, successor_of=second.identity)
    assert committed_values(brokers, tp.topic, 1) == [[b"first", b"second"]]


def test_nothing_written_leaves_nothing_to_end(kafka: Any, cluster_of: ClusterOf, prefix: str) -> None:
    assert Transaction.begin(cluster_of(kafka), prefix).leave_open() is None


def test_a_thousand_are_committed_in_under_three_seconds(
    kafka: Any, topic: Any, cluster_of: ClusterOf, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tp = TopicPartition(topic(1), 0)
    writer, driver = cluster_of(kafka), cluster_of(kafka)
    handles = [left_open(writer, f"{prefix}{i}", tp, b"%d" % i) for i in range(1000)]
    begun = time.monotonic()
    assert set(commit_all(driver, handles).values()) == {End.COMMITTED}
    took = time.monotonic() - begun
    with capsys.disabled():
        print(f" 1,000 transactions committed in {took:.2f} s ", end="")
    assert took < 3.0 * 4, "four times what it must take, for machines with much else to do"
