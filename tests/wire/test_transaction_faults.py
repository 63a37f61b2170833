"""Transactions whose responses are lost, whose coordinator stops, or whose predecessor does not end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire.cluster import CoordinatorKind
from pykafka_wire.wire.cluster.describe import describe_transaction
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
    WireError,
)
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, GroupMetadata, fetch_offsets
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest, FinalizedFeatureKey
from pykafka_wire.wire.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykafka_wire.wire.protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from pykafka_wire.wire.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseState,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.bulk import commit_all, describe_all
from pykafka_wire.wire.transactions.coordinator import TransactionRequests, TransactionVersion, init_transaction
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.wire.cutting_proxy import CuttingProxy
from tests.wire.fake_broker import VERSIONS, FakeBroker, versions_response
from tests.wire.transaction_records import DESCRIBED, ClusterOf, committed_values, described, encode


@pytest.fixture
def own_id() -> str:
    return f"tx-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize("passed_bytes", [0, 5])
def test_an_end_whose_response_is_lost_is_asked_for_again_as_it_was(
    transaction_version_brokers: tuple[str, Any],
    topic: Any,
    cluster_of: ClusterOf,
    own_id: str,
    monkeypatch: pytest.MonkeyPatch,
    passed_bytes: int,
) -> None:
    brokers = transaction_version_brokers[1]
    out = topic(cluster=brokers)
    tp = TopicPartition(out, 0)
    host, _, port = brokers.bootstrap_servers.split(",")[0].rpartition(":")
    with CuttingProxy(host, int(port)) as proxy, monkeypatch.context() as patched:
        proxy.stand_between(patched)
        cluster = cluster_of(brokers, retry_backoff_ms=10)
        for i in range(5):
            with Transaction.begin(cluster, own_id) as transaction:
                transaction.produce({tp: encode(b"%d" % i)})
                proxy.cut_response_after(passed_bytes)
                transaction.commit()
        assert proxy.n_cuts == 5
        cluster.close()
    assert committed_values(brokers, out) == [[b"%d" % i for i in range(5)]]


def test_in_the_first_protocol_a_lost_produce_is_left_to_the_next_init(
    kafka_tv1: Any, topic: Any, cluster_of: ClusterOf, own_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might arrive behind an abort, under an epoch that still counts."""
    out = topic(cluster=kafka_tv1)
    tp = TopicPartition(out, 0)
    host, _, port = kafka_tv1.bootstrap_servers.split(",")[0].rpartition(":")
    with CuttingProxy(host, int(port)) as proxy, monkeypatch.context() as patched:
        proxy.stand_between(patched)
        cluster = cluster_of(kafka_tv1, retries=0)
        Transaction.begin(cluster, own_id).produce({tp: encode(b"connects")})
        transaction = Transaction.begin(cluster, own_id)
        with pytest.raises(WireError), transaction:
            transaction._requests.add_partitions([tp])  # so that the next response to be lost is the Produce's
            proxy.cut_response_after(0)
            transaction._producer.append(out, 0, encode(b"lost"))
            transaction._producer.flush()
        if DESCRIBED:
            found = describe_transaction(cluster, own_id)
            assert found is not None and found.state == "Ongoing"
        cluster.close()
    with Transaction.begin(cluster_of(kafka_tv1), own_id) as transaction:
        transaction.produce({tp: encode(b"next")})
        transaction.commit()
    assert committed_values(kafka_tv1, out) == [[b"next"]]


@described
def test_in_the_first_protocol_a_lost_try_of_any_request_is_left_to_the_next_init(
    kafka_tv1: Any, topic: Any, cluster_of: ClusterOf, own_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try had a response, and then the offset refused; but the first one might arrive behind the abort."""
    tp = TopicPartition(topic(cluster=kafka_tv1), 0)
    host, _, port = kafka_tv1.bootstrap_servers.split(",")[0].rpartition(":")
    with CuttingProxy(host, int(port)) as proxy, monkeypatch.context() as patched:
        proxy.stand_between(patched)
        cluster = cluster_of(kafka_tv1, retry_backoff_ms=10)
        with pytest.raises(BrokerError, match="OFFSET_METADATA"), Transaction.begin(cluster, own_id) as transaction:
            transaction.produce({tp: encode(b"left")})
            proxy.cut_response_after(0)
            transaction.commit_offsets(own_id, {tp: CommittedOffset(1, metadata="x" * 5_000)})
        assert proxy.n_cuts == 1
        found = describe_transaction(cluster, own_id)
        assert found is not None and found.state == "Ongoing"
        cluster.close()


@described
def test_in_the_first_protocol_none_is_left_open_behind_a_lost_response(
    kafka_tv1: Any, topic: Any, cluster_of: ClusterOf, own_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first AddPartitionsToTxn might arrive behind the commit that another process makes, and begin a transaction."""
    tp = TopicPartition(topic(cluster=kafka_tv1), 0)
    host, _, port = kafka_tv1.bootstrap_servers.split(",")[0].rpartition(":")
    with CuttingProxy(host, int(port)) as proxy, monkeypatch.context() as patched:
        proxy.stand_between(patched)
        cluster = cluster_of(kafka_tv1, retry_backoff_ms=10)
        with (
            pytest.raises(TransportError, match=r"a response .* was lost.*Write it again in a new transaction"),
            Transaction.begin(cluster, own_id) as transaction,
        ):
            proxy.cut_response_after(0)
            transaction.produce({tp: encode(b"acknowledged")})
            assert proxy.n_cuts == 1
            transaction.leave_open()
        found = describe_transaction(cluster, own_id)
        assert found is not None and found.state == "Ongoing"
        cluster.close()


def test_a_transaction_outlives_its_coordinator(
    two_brokers: LocalCluster, place_topic: Any, cluster_of: ClusterOf, own_id: str
) -> None:
    zero, one = TopicPartition(f"topic-of-{own_id}", 0), TopicPartition(f"topic-of-{own_id}", 1)
    place_topic(two_brokers, zero.topic, {0: [1, 2], 1: [2, 1]})
    cluster = cluster_of(two_brokers, default_api_timeout_ms=120_000)
    with Transaction.begin(cluster, own_id) as transaction:
        transaction.produce({zero: encode(b"a"), one: encode(b"b")})
        two_brokers.nodes[cluster.coordinator(CoordinatorKind.TRANSACTION, own_id) - 1].kill()
        transaction.produce({zero: encode(b"c"), one: encode(b"d")})
        transaction.commit_offsets(own_id, {zero: CommittedOffset(7)})
        transaction.commit()
    assert committed_values(two_brokers, zero.topic, partitions=2) == [[b"a", b"c"], [b"b", b"d"]]
    assert fetch_offsets(cluster, own_id, [zero], require_stable=True)[zero].offset == 7


# --- what no real broker can be made to do ------------------------------------------------------------------------------


TRANSACTION_VERSIONS = VERSIONS | {22: (0, 5), 24: (0, 3), 25: (0, 3), 26: (0, 4), 28: (0, 3), 65: (0, 0)}


@pytest.fixture
def coordinator() -> Iterator[FakeBroker]:
    """A broker that coordinates transactions and responds as a test makes it."""
    with FakeBroker() as broker:
        broker.on[FindCoordinatorRequest] = lambda request, _: FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=1, host="127.0.0.1", port=broker.port, error_code=0)
                for key in request.coordinator_keys
            ]
        )
        broker.on[ApiVersionsRequest] = lambda *_: versions_response(TRANSACTION_VERSIONS)
        broker.bootstrap_servers = broker.address  # type: ignore[attr-defined]
        yield broker


def test_a_predecessor_that_does_not_end_is_named(coordinator: FakeBroker, cluster_of: ClusterOf) -> None:
    coordinator.on[InitProducerIdRequest] = lambda *_: InitProducerIdResponse(error_code=51)
    coordinator.on[DescribeTransactionsRequest] = lambda *_: DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsResponseState(
                transactional_id="t",
                transaction_state="PrepareAbort",
                transaction_timeout_ms=60_000,
                transaction_start_time_ms=0,
                producer_id=7,
                producer_epoch=3,
            )
        ]
    )
    with pytest.raises(
        DeadlineExceededError, match=r"CONCURRENT_TRANSACTIONS.*producer 7, epoch 3, state PrepareAbort, begun 1970"
    ):
        Transaction.begin(cluster_of(coordinator), "t", deadline=Deadline.after_ms(500))


@pytest.mark.parametrize("n_described", [0, 2])
def test_a_response_must_describe_the_id_that_was_asked_for(
    coordinator: FakeBroker, cluster_of: ClusterOf, n_described: int
) -> None:
    coordinator.on[DescribeTransactionsRequest] = lambda *_: DescribeTransactionsResponse(
        transaction_states=[DescribeTransactionsResponseState(transactional_id=str(n)) for n in range(n_described)]
    )
    with pytest.raises(ProtocolError, match=f"describes {n_described} transactional ids"):
        describe_all(cluster_of(coordinator), ["t"])
    with pytest.raises(ProtocolError, match=f"describes {n_described} transactional ids"):
        describe_transaction(cluster_of(coordinator), "t")


def test_a_broker_that_is_older_than_the_finalized_version_is_named(
    coordinator: FakeBroker, cluster_of: ClusterOf
) -> None:
    """Kafka finalizes transaction.version=2 only where all brokers have EndTxn 5; this one says otherwise."""
    features = [FinalizedFeatureKey(name="transaction.version", max_version_level=2)]
    coordinator.on[ApiVersionsRequest] = lambda *_: versions_response(
        TRANSACTION_VERSIONS, finalized_features_epoch=1, finalized_features=features
    )
    coordinator.on[InitProducerIdRequest] = lambda *_: InitProducerIdResponse(producer_id=7, producer_epoch=3)
    cluster = cluster_of(coordinator)
    handle = init_transaction(cluster, "t")
    assert handle.version is TransactionVersion.TV2
    too_old = (
        r"the broker does not support EndTxn v5, which TV2 needs \[broker 1, EndTxn\] All brokers must have the version"
    )
    with pytest.raises(UnsupportedVersionError, match=too_old):
        TransactionRequests(cluster, handle).end(committed=True)
    with pytest.raises(UnsupportedVersionError, match=too_old):
        commit_all(cluster, [handle])
    with pytest.raises(
        UnsupportedVersionError, match=r"the broker does not support TxnOffsetCommit v5, which TV2 needs \[broker 1"
    ):
        TransactionRequests(cluster, handle).commit_offsets(
            GroupMetadata(group="g"), {TopicPartition("t", 0): CommittedOffset(1)}
        )
    assert coordinator.count(EndTxnRequest) == coordinator.count(TxnOffsetCommitRequest) == 0
