"""Transactions on real brokers, in both versions: all or nothing for others, and nobody else's under the same id."""

from __future__ import annotations

import pickle
import re
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire.cluster.describe import describe_transaction, open_producers
from pykafka_wire.wire.errors import (
    BrokerError,
    ProducerFencedError,
    RecordTooLargeError,
    UnknownTopicError,
)
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, fetch_offsets
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.coordinator import TransactionRequests
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.broker_features import lacking
from tests.wire.transaction_records import DESCRIBED, ClusterOf, committed_values, described, encode


@pytest.fixture
def own_id() -> str:
    return f"tx-{uuid.uuid4().hex[:12]}"


def test_committed_is_seen_and_aborted_is_not_and_versions_do_not_mix(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, own_id: str, tmp_path: Path
) -> None:
    name, brokers = transaction_version_brokers
    out, trace = topic(2, cluster=brokers), tmp_path / "trace"
    cluster = cluster_of(brokers, trace=trace)
    zero, one = TopicPartition(out, 0), TopicPartition(out, 1)
    for turn, end in enumerate([Transaction.commit, Transaction.abort, Transaction.commit]):
        transaction = Transaction.begin(cluster, own_id)
        assert transaction.version.name == name
        values = [b"%d-%d" % (turn, i) for i in range(5)]
        delivered = transaction.produce({zero: encode(*values), one: encode(*values)})
        assert {tp: found.n_records for tp, found in delivered.items()} == {zero: 5, one: 5}
        transaction.commit_offsets(own_id, {zero: CommittedOffset(turn, metadata=f"turn {turn}")})
        end(transaction)
        assert not transaction.in_doubt
    expected = [b"%d-%d" % (turn, i) for turn in (0, 2) for i in range(5)]
    assert committed_values(brokers, out, 2) == [expected, expected]
    assert fetch_offsets(cluster, own_id, [zero], require_stable=True)[zero].metadata == "turn 2"

    cluster.close()
    spoken = set(re.findall(r"-> (\w+) v(\d+)", trace.read_text()))
    versions = {api: {int(v) for found, v in spoken if found == api} for api, _ in spoken}
    if name == "TV1":
        caps = {"AddPartitionsToTxn": 3, "AddOffsetsToTxn": 4, "Produce": 11, "TxnOffsetCommit": 4, "EndTxn": 4}
        assert all(max(versions[api]) <= cap for api, cap in caps.items())
        if not lacking(["second transaction protocol"]):  # whose versions are to be kept out of
            assert all(versions[api] == {caps[api]} for api in caps.keys() - {"AddOffsetsToTxn"})
    else:
        assert not versions.keys() & {"AddPartitionsToTxn", "AddOffsetsToTxn"}
        assert min(versions["Produce"]) >= 12
        assert (versions["TxnOffsetCommit"], versions["EndTxn"]) == ({5}, {5})


def test_each_transaction_has_an_epoch_of_its_own(
    transaction_version_brokers: tuple[str, Any], cluster_of: ClusterOf, own_id: str
) -> None:
    cluster = cluster_of(transaction_version_brokers[1])
    first, second = (Transaction.begin(cluster, own_id).identity for _ in range(2))
    assert first.producer_id == second.producer_id
    assert first.producer_epoch < second.producer_epoch


def test_a_transaction_of_nothing_is_committed(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, own_id: str
) -> None:
    cluster, out = cluster_of(transaction_version_brokers[1]), topic(cluster=transaction_version_brokers[1])
    empty = Transaction.begin(cluster, own_id)
    assert empty.produce({}) == {}
    empty.commit()
    assert not empty.in_doubt
    with Transaction.begin(cluster, own_id) as transaction:
        transaction.produce({TopicPartition(out, 0): encode(b"next")})
        transaction.commit()
    assert committed_values(transaction_version_brokers[1], out) == [[b"next"]]


@pytest.mark.parametrize("fenced_at", ["produce", "commit_offsets", "commit"])
def test_the_older_of_two_producers_is_fenced_with_the_reason(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, own_id: str, fenced_at: str
) -> None:
    """Fault 36."""
    brokers = transaction_version_brokers[1]
    out = topic(cluster=brokers)
    tp = TopicPartition(out, 0)
    older, newer = (cluster_of(brokers) for _ in range(2))
    zombie = Transaction.begin(older, own_id)
    steps = {
        "produce": lambda: zombie.produce({tp: encode(b"zombie")}),
        "commit_offsets": lambda: zombie.commit_offsets(own_id, {tp: CommittedOffset(1)}),
        "commit": lambda: zombie.commit(),
    }
    for step, act in steps.items():
        if step == fenced_at:
            break
        act()
    with Transaction.begin(newer, own_id) as heir:
        heir.produce({tp: encode(b"heir")})
        heir.commit_offsets(own_id, {tp: CommittedOffset(2)})
        with pytest.raises(ProducerFencedError) as fenced:
            act()
        epoch = zombie.identity.producer_epoch
        assert (
            f"taken over the transactional id '{own_id}' from producer {zombie.identity.producer_id}, epoch {epoch}"
            in (str(fenced.value))
        )
        assert not DESCRIBED or f"epoch {heir.identity.producer_epoch}, state Ongoing" in str(fenced.value)
        zombie.abort()  # what is the heir's by now stays
        heir.commit()
    assert committed_values(brokers, out) == [[b"heir"]]
    assert fetch_offsets(newer, own_id, [tp])[tp].offset == 2


def test_a_transaction_left_open_is_aborted_by_the_next(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, own_id: str
) -> None:
    brokers = transaction_version_brokers[1]
    out = topic(cluster=brokers)
    tp = TopicPartition(out, 0)
    Transaction.begin(cluster_of(brokers), own_id).produce({tp: encode(b"left")})
    cluster = cluster_of(brokers)
    if DESCRIBED:
        found = describe_transaction(cluster, own_id)
        assert found is not None and found.is_open and found.partitions == [tp]
    with Transaction.begin(cluster, own_id) as transaction:
        transaction.produce({tp: encode(b"next")})
        transaction.commit()
    assert committed_values(brokers, out) == [[b"next"]]


def test_what_a_block_does_not_commit_is_aborted_at_once(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, own_id: str
) -> None:
    brokers = transaction_version_brokers[1]
    out = topic(config={"max.message.bytes": "1000"}, cluster=brokers)
    tp = TopicPartition(out, 0)
    cluster = cluster_of(brokers)
    with pytest.raises(RecordTooLargeError), Transaction.begin(cluster, own_id) as transaction:
        transaction.produce({tp: [*encode(b"fits"), *encode(b"x" * 2000)]})
    if DESCRIBED:
        found = describe_transaction(cluster, own_id)
        assert found is not None
        assert found.state in ("PrepareAbort", "CompleteAbort")
    assert committed_values(brokers, out) == [[]]


@described
def test_a_topic_that_is_not_there_leaves_nothing_open(kafka_tv1: Any, cluster_of: ClusterOf, own_id: str) -> None:
    cluster = cluster_of(kafka_tv1)
    with pytest.raises(UnknownTopicError, match="nowhere"), Transaction.begin(cluster, own_id) as transaction:
        transaction.produce({TopicPartition("nowhere", 0): encode(b"x")})
    found = describe_transaction(cluster, own_id)
    assert found is None or not found.is_open


def test_another_process_that_has_the_handle_ends_a_transaction(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, own_id: str
) -> None:
    """As a driver ends what its tasks began; a repetition succeeds, and the opposite is an error."""
    brokers = transaction_version_brokers[1]
    name = topic(cluster=brokers)
    tp = TopicPartition(name, 0)
    transaction = Transaction.begin(cluster_of(brokers), own_id)
    transaction.produce({tp: encode(b"one")})
    handle = pickle.loads(pickle.dumps(transaction.handle))
    elsewhere = TransactionRequests(cluster_of(brokers), handle)
    for _ in range(2):
        elsewhere.end(committed=True)
    with pytest.raises(BrokerError, match="INVALID_TXN_STATE"):
        elsewhere.end(committed=False)
    assert committed_values(brokers, name) == [[b"one"]]


@described
def test_one_that_timed_out_is_reported_as_such(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, own_id: str
) -> None:
    brokers = transaction_version_brokers[1]
    out = topic(cluster=brokers)
    tp = TopicPartition(out, 0)
    cluster = cluster_of(brokers, transaction_timeout_ms=500)
    transaction = Transaction.begin(cluster, own_id)
    transaction.produce({tp: encode(b"late")})
    deadline = time.monotonic() + 60
    while (found := describe_transaction(cluster, own_id)) is None or found.is_open:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(BrokerError, match=r"longer than transaction\.timeout\.ms \(500\)") as caught:
        transaction.commit()
    # The second protocol's response tells more: aborted, not only taken over.
    assert transaction.in_doubt == isinstance(caught.value, ProducerFencedError)
    assert committed_values(brokers, out) == [[]]


@described
def test_an_open_transaction_is_seen_where_it_holds_readers_up(
    kafka: Any, topic: Any, cluster_of: ClusterOf, own_id: str
) -> None:
    name = topic(2)
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
    cluster = cluster_of(kafka)
    assert open_producers(cluster, [zero, one]) == []
    with Transaction.begin(cluster, own_id) as transaction:
        transaction.produce({one: encode(b"a", b"b")})
        (found,) = open_producers(cluster, [zero, one])
        assert (found.topic_partition, found.start_offset) == (one, 0)
        identity = transaction.identity
        assert (found.producer_id, found.producer_epoch) == (identity.producer_id, identity.producer_epoch)
    # The decision is logged when abort() returns; its markers follow.
    deadline = time.monotonic() + 30
    while open_producers(cluster, [one]):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@described
def test_an_unused_transactional_id(kafka: Any, cluster_of: ClusterOf, own_id: str) -> None:
    assert describe_transaction(cluster_of(kafka), own_id) is None


def test_a_timeout_that_brokers_do_not_allow(kafka: Any, cluster_of: ClusterOf, own_id: str) -> None:
    cluster = cluster_of(kafka, transaction_timeout_ms=10**9)
    with pytest.raises(BrokerError, match=r"INVALID_TRANSACTION_TIMEOUT.*transaction\.max\.timeout\.ms"):
        Transaction.begin(cluster, own_id)


def test_an_offset_that_is_refused_leaves_nothing_open(
    transaction_version_brokers: tuple[str, Any], topic: Any, cluster_of: ClusterOf, own_id: str
) -> None:
    brokers = transaction_version_brokers[1]
    tp = TopicPartition(topic(cluster=brokers), 0)
    cluster = cluster_of(brokers)
    with pytest.raises(BrokerError, match="OFFSET_METADATA"), Transaction.begin(cluster, own_id) as transaction:
        transaction.produce({tp: encode(b"aborted")})
        transaction.commit_offsets(own_id, {tp: CommittedOffset(1, metadata="x" * 5_000)})
    if DESCRIBED:
        found = describe_transaction(cluster, own_id)
        assert found is not None
        assert found.state in ("PrepareAbort", "CompleteAbort")
    assert committed_values(brokers, tp.topic) == [[]]
