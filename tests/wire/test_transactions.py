"""Transactions on real brokers, in both versions: all or nothing for others, and nobody else's under the same id."""

from __future__ import annotations

import pickle
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire.cluster.cluster import Cluster, CoordinatorKind, Deadline
from pykafka_wire.wire.cluster.describe import describe_transaction, open_producers
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    ProducerFencedError,
    RecordTooLargeError,
    UnknownTopicError,
    WireError,
)
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, fetch_offsets
from pykafka_wire.wire.protocol.messages.api_versions import ApiVersionsRequest
from pykafka_wire.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykafka_wire.wire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykafka_wire.wire.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.coordinator import TransactionRequests
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.broker_features import lacking
from tests.wire.cutting_proxy import CuttingProxy
from tests.wire.fake_broker import VERSIONS, FakeBroker, versions_response

ClusterOf = Callable[..., Cluster]
DESCRIBED = not lacking(["transactions that are described"])
described = pytest.mark.needs("transactions that are described")


@pytest.fixture
def cluster_of() -> Iterator[ClusterOf]:
    """Makes a client of brokers: ``cluster_of(brokers, transaction_timeout_ms=1000)``."""
    opened: list[Cluster] = []

    def make(brokers: Any, **options: object) -> Cluster:
        named = {name.replace("_", "."): str(value) for name, value in options.items()}
        opened.append(Cluster(ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers, **named})))
        return opened[-1]

    yield make
    for cluster in opened:
        cluster.close()


@pytest.fixture
def own_id() -> str:
    return f"tx-{uuid.uuid4().hex[:12]}"


def encode(*values: bytes, max_records: int = 2) -> list[EncodedBatch]:
    return encode_batches(
        key=None,
        value=pa.array(values, pa.binary()),
        headers=None,
        timestamp=np.full(len(values), int(time.time() * 1000), np.int64),
        codec=Codec.NONE,
        max_batch_bytes=16_384,
        max_records=max_records,
    )


def committed_values(brokers: Any, topic: str, partitions: int = 1) -> list[list[bytes]]:
    """What a read_committed reader of another client sees, by partition; fails where it cannot get to the end."""
    settings = {
        "bootstrap.servers": brokers.bootstrap_servers,
        "group.id": "outside",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(settings)
    start = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, p, start) for p in range(partitions)])
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    deadline = time.monotonic() + 60
    try:
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, "an open transaction holds the reader up"
            message = consumer.poll(1.0)
            if message is not None and message.error() is not None:
                at_end.add(message.partition())
            elif message is not None:
                values[message.partition()].append(message.value())
    finally:
        consumer.close()
    return values


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
def test_the_older_of_two_producers_is_fenced_and_told_why(
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


@pytest.mark.parametrize("passed_bytes", [0, 5])
def test_an_end_whose_answer_is_lost_is_asked_for_again_as_it_was(
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
                proxy.cut_answer_after(passed_bytes)
                transaction.commit()
        assert proxy.n_cuts == 5
        cluster.close()
    assert committed_values(brokers, out) == [[b"%d" % i for i in range(5)]]


@described
def test_one_that_timed_out_is_told_so(
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
    # The second protocol's answer tells more: aborted, not only taken over.
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
def test_a_transactional_id_that_nobody_used(kafka: Any, cluster_of: ClusterOf, own_id: str) -> None:
    assert describe_transaction(cluster_of(kafka), own_id) is None


def test_a_timeout_that_brokers_do_not_allow(kafka: Any, cluster_of: ClusterOf, own_id: str) -> None:
    cluster = cluster_of(kafka, transaction_timeout_ms=10**9)
    with pytest.raises(BrokerError, match=r"INVALID_TRANSACTION_TIMEOUT.*transaction\.max\.timeout\.ms"):
        Transaction.begin(cluster, own_id)


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
            transaction._requests.add_partitions([tp])  # so that the next answer to be lost is the Produce's
            proxy.cut_answer_after(0)
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
    """The next try was answered, and then the offset refused; but the first one might arrive behind the abort."""
    tp = TopicPartition(topic(cluster=kafka_tv1), 0)
    host, _, port = kafka_tv1.bootstrap_servers.split(",")[0].rpartition(":")
    with CuttingProxy(host, int(port)) as proxy, monkeypatch.context() as patched:
        proxy.stand_between(patched)
        cluster = cluster_of(kafka_tv1, retry_backoff_ms=10)
        with pytest.raises(BrokerError, match="OFFSET_METADATA"), Transaction.begin(cluster, own_id) as transaction:
            transaction.produce({tp: encode(b"left")})
            proxy.cut_answer_after(0)
            transaction.commit_offsets(own_id, {tp: CommittedOffset(1, metadata="x" * 5_000)})
        assert proxy.n_cuts == 1
        found = describe_transaction(cluster, own_id)
        assert found is not None and found.state == "Ongoing"
        cluster.close()


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
    """A broker that coordinates transactions and answers what a test makes it answer."""
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
            TransactionState(
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
