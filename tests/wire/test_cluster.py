"""Routing and retries on scripted brokers: what real ones cannot be made to do. Real ones: test_cluster_on_brokers.py."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pykafka_wire.wire import error_codes
from pykafka_wire.wire.cluster import ANY, CONTROLLER, Cluster, CoordinatorKind
from pykafka_wire.wire.cluster.connection_pool import ConnectionPool
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    SettingsError,
    TransportError,
    WireError,
)
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetCommitRequest,
)
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest, FinalizedFeatureKey
from pykafka_wire.wire.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from pykafka_wire.wire.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
)
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import FakeBroker, frame_of, versions_response
from tests.wire.scripted_pair import T0, T1, T2, cluster_of, commit, coordinate, ends, offsets_of, scripted_pair


@pytest.fixture
def socket_pair() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    """For tests of threads, forks and time that passes."""
    with scripted_pair() as brokers:
        yield brokers


@pytest.fixture
def socket_cluster(socket_pair: tuple[FakeBroker, FakeBroker]) -> Iterator[Cluster]:
    with cluster_of(socket_pair) as cluster:
        yield cluster


@pytest.fixture
def cluster(pair: tuple[FakeBroker, FakeBroker]) -> Iterator[Cluster]:
    with cluster_of(pair) as cluster:
        yield cluster


# --- requests by leader -----------------------------------------------------------------------------------------------


def test_each_leader_gets_one_request_for_all_of_its_partitions(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    assert ends(cluster, T0, T1, T2) == {T0: 10, T1: 20, T2: 10}
    assert [broker.count(ListOffsetsRequest) for broker in pair] == [1, 1]


def test_all_leaders_are_asked_at_the_same_time(
    socket_pair: tuple[FakeBroker, FakeBroker], socket_cluster: Cluster
) -> None:
    both_asked = threading.Barrier(2)
    for broker in socket_pair:
        response = offsets_of(broker, {})
        broker.on[ListOffsetsRequest] = lambda r, v, response=response: both_asked.wait(5) >= 0 and response(r, v)
    assert ends(socket_cluster, T0, T1) == {T0: 10, T1: 20}


@pytest.mark.parametrize("code", [5, 6, 74, 75, 78, 7, 56], ids=lambda code: error_codes.error_info(code).name)
def test_a_retriable_partition_is_asked_for_again_and_only_that_one(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster, code: int
) -> None:
    one, _ = pair
    one.on[ListOffsetsRequest] = offsets_of(one, {0: [code, code]})
    assert ends(cluster, T0, T1, T2) == {T0: 10, T1: 20, T2: 10}
    asked = [
        [p.partition_index for p in r.topics[0].partitions] for r in one.requests if isinstance(r, ListOffsetsRequest)
    ]
    assert asked == [[0, 2], [0], [0]]


def test_a_leader_that_moved_is_found_by_new_metadata(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    one, _ = pair
    ends(cluster, T0)
    one.topics["t"][0] = (2, 5)
    one.on[ListOffsetsRequest] = offsets_of(one, {0: [6] * 100})
    assert ends(cluster, T0) == {T0: 20}


def test_a_fatal_code_is_raised_at_once_with_its_place(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    one, _ = pair
    one.on[ListOffsetsRequest] = offsets_of(one, {2: [29]})
    with pytest.raises(BrokerError) as raised:
        ends(cluster, T0, T1, T2)
    error = raised.value
    assert (error.name, error.topic, error.partition) == ("TOPIC_AUTHORIZATION_FAILED", "t", 2)
    assert (error.broker, error.api, error.version) == (1, "ListOffsets", 9)
    assert one.count(ListOffsetsRequest) == 1
    assert ends(cluster, T0, T1) == {T0: 10, T1: 20}  # the response left unread by the failure is no one else's


def test_a_partition_left_out_of_a_response_is_asked_for_again(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    one, _ = pair
    one.on[ListOffsetsRequest] = offsets_of(one, {0: [-99]})
    assert ends(cluster, T0, T2) == {T0: 10, T2: 10}


def test_a_code_that_does_not_go_away_ends_at_the_deadline(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    one, _ = pair
    one.on[ListOffsetsRequest] = offsets_of(one, {0: [6] * 10_000})
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError) as raised:
        ends(cluster, T0, T1, ms=300)
    assert time.monotonic() - started < 5
    assert (raised.value.topic, raised.value.partition) == ("t", 0)
    assert isinstance(raised.value.__cause__, BrokerError)
    # Pauses grow: hundreds of requests would be a storm.
    assert one.count(ListOffsetsRequest) < 60


def test_a_broken_connection_is_made_again(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    assert ends(cluster, T0) == {T0: 10}
    pair[0].drop()
    assert ends(cluster, T0, T1) == {T0: 10, T1: 20}


def test_a_wrong_correlation_id_closes_the_connection_and_is_retried(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    one, _ = pair
    assert ends(cluster, T0) == {T0: 10}
    n_before = one.n_connections
    good = offsets_of(one, {})
    responses = iter([frame_of(ListOffsetsRequest, 9, 4711, ListOffsetsResponse())])
    one.on[ListOffsetsRequest] = lambda request, version: next(responses, None) or good(request, version)
    assert ends(cluster, T0) == {T0: 10}
    assert one.n_connections == n_before + 1


@pytest.mark.parametrize("patterns", [("*.example.com",), ("*.example.com", "127.0.0.*")])
def test_brokers_of_hosts_that_the_user_did_not_allow_are_not_connected_to(
    pair: tuple[FakeBroker, FakeBroker], patterns: tuple[str, ...]
) -> None:
    one, two = pair
    with cluster_of([one], allowed_hosts=patterns) as cluster:
        assert ends(cluster, T0) == {T0: 10}  # the bootstrap servers are the user's own words
        if "127.0.0.*" in patterns:
            assert ends(cluster, T1) == {T1: 20}
        else:
            started = time.monotonic()
            with pytest.raises(SettingsError, match=f"broker 2 is advertised as 127.0.0.1:{two.port}, which allowed"):
                ends(cluster, T1)
            assert time.monotonic() - started < 8
            assert two.n_connections == 0


def test_a_leader_that_stops_is_given_up_for_its_successor(pair: tuple[FakeBroker, FakeBroker]) -> None:
    one, _ = pair
    with cluster_of(pair, request_timeout_ms=200, socket_connection_setup_timeout_ms=200) as cluster:
        ends(cluster, T0, T1)
        one.silent = True
        one.topics["t"][0] = (2, 5)
        assert ends(cluster, T0, T1) == {T0: 20, T1: 20}


# --- any broker, the controller, coordinators -------------------------------------------------------------------------


def test_any_broker_will_do_and_a_stopped_one_is_not_asked_twice(pair: tuple[FakeBroker, FakeBroker]) -> None:
    one, two = pair
    with cluster_of((two,), request_timeout_ms=200, socket_connection_setup_timeout_ms=200) as cluster:
        cluster.metadata.brokers()
        one.silent = True
        two.drop()
        for _ in range(5):
            assert cluster.request(ANY, MetadataRequest(topics=[])).controller_id == 1
        assert one.n_connections <= 1


def test_a_request_timeout_is_followed_by_another_try(pair: tuple[FakeBroker, FakeBroker]) -> None:
    _, two = pair
    silences = iter([None])
    response = two.metadata
    with cluster_of((two,), request_timeout_ms=150) as cluster:
        cluster.metadata.brokers()
        two.on[MetadataRequest] = lambda request, version: next(silences, response(request, version))
        assert cluster.request(2, MetadataRequest(topics=[])).controller_id == 1


def test_retriable_codes_in_a_response_are_retried(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    one, _ = pair
    cluster.metadata.topics(["t"])
    codes = [41, 7]
    one.on[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
        coordinators=[Coordinator(key="k", error_code=codes.pop(0) if codes else 0, node_id=2)]
    )
    response = cluster.request(CONTROLLER, FindCoordinatorRequest(coordinator_keys=["k"]))
    assert response.coordinators[0].node_id == 2
    assert one.count(FindCoordinatorRequest) == 3


def test_a_node_that_is_gone_is_named(cluster: Cluster) -> None:
    with pytest.raises(TransportError, match="no broker 7"):
        cluster.send(7, MetadataRequest(topics=[]))


def test_a_client_whose_brokers_are_all_gone_asks_the_bootstrap_servers_again(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    one, two = pair
    with FakeBroker(3) as seed:
        seed.peers, seed.topics = {1: one, 2: two}, one.topics
        with cluster_of((seed,)) as cluster:
            cluster.metadata.topics(["t"])
            one.close()
            two.close()
            with FakeBroker(4) as four:
                seed.peers = four.peers = {4: four}
                coordinate((four,), [1], {})
                four.on[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
                    coordinators=[Coordinator(key="g", node_id=4, host="127.0.0.1", port=four.port)]
                )
                commit(cluster)
                assert four.count(OffsetCommitRequest) == 1


def test_a_feature_is_asked_of_another_broker_where_one_is_gone(pair: tuple[FakeBroker, FakeBroker]) -> None:
    one, two = pair
    features = [FinalizedFeatureKey(name="transaction.version", max_version_level=2)]
    two.on[ApiVersionsRequest] = lambda request, version: versions_response(finalized_features=features)
    with cluster_of((one,)) as cluster:
        cluster.metadata.brokers()
        one.close()
        assert cluster.finalized_feature("transaction.version") == 2


def test_the_connection_of_a_purpose_is_closed_and_wakes_who_waits_on_it(
    socket_pair: tuple[FakeBroker, FakeBroker], socket_cluster: Cluster
) -> None:
    one, _ = socket_pair
    one.on[FindCoordinatorRequest] = lambda request, version: None
    waiting = socket_cluster.send(1, FindCoordinatorRequest(coordinator_keys=["g"]), purpose="member-1")
    errors: list[WireError] = []

    def wait() -> None:
        with pytest.raises(WireError) as raised:
            waiting.result(Deadline.after_ms(60_000))
        errors.append(raised.value)

    thread = threading.Thread(target=wait)
    thread.start()
    started = time.monotonic()
    socket_cluster.close_connections("member-1")
    thread.join(60)
    assert time.monotonic() - started < 30
    assert "the client was closed" in str(errors[0])
    assert socket_cluster.request(1, MetadataRequest(topics=[])).controller_id == 1


def test_a_connection_that_another_thread_opens_meanwhile_does_not_outlive_close(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.metadata.brokers()
    asked, closed = threading.Event(), threading.Event()
    seed = ConnectionPool.seed

    def slow(pool: ConnectionPool, *where: Any) -> Connection:
        asked.set()
        closed.wait(30)
        return seed(pool, *where)

    monkeypatch.setattr(ConnectionPool, "seed", slow)
    errors: list[WireError] = []

    def connect() -> None:
        with pytest.raises(WireError) as raised:
            cluster.send(1, MetadataRequest(topics=[]), purpose="late")
        errors.append(raised.value)

    thread = threading.Thread(target=connect)
    thread.start()
    asked.wait(30)
    cluster.close()
    closed.set()
    thread.join(30)
    assert len(errors) == 1


def test_finding_a_coordinator_ends_in_time_though_brokers_do_not_respond_to_the_handshake(
    socket_pair: tuple[FakeBroker, FakeBroker],
) -> None:
    settings = ClientSettings.from_options(
        {"bootstrap.servers": socket_pair[0].address, "socket.connection.setup.timeout.ms": "20000"}
    )
    with Cluster(settings) as socket_cluster:
        socket_cluster.metadata.brokers()
        for broker in socket_pair:
            broker.silent = True
            broker.drop()
        started = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            socket_cluster.coordinator(CoordinatorKind.GROUP, "g", deadline=Deadline.after_ms(500))
        assert time.monotonic() - started < 15


def test_a_coordinator_has_a_connection_of_its_own(pair: tuple[FakeBroker, FakeBroker]) -> None:
    coordinate(pair, [2], {})
    with cluster_of((pair[1],)) as cluster:
        cluster.metadata.brokers()
        assert pair[1].n_connections == 1
        commit(cluster)
        assert pair[1].n_connections == 2


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_opens_connections_of_its_own(
    socket_pair: tuple[FakeBroker, FakeBroker], socket_cluster: Cluster
) -> None:
    assert ends(socket_cluster, T0) == {T0: 10}
    n_before = socket_pair[0].n_connections
    out, into = os.pipe()
    # Whatever thread holds a lock at the fork, the child does not have it.
    with socket_cluster.metadata._lock, socket_cluster._connections._lock:
        pid = os.fork()
        if pid == 0:
            ok = ends(socket_cluster, T0, ms=5_000) == {T0: 10}
            os.write(into, b"1" if ok else b"0")
            os._exit(0)
    assert os.read(out, 1) == b"1"
    os.waitpid(pid, 0)
    os.close(out)
    os.close(into)
    assert socket_pair[0].n_connections == n_before + 1
    assert ends(socket_cluster, T0) == {T0: 10}
    assert socket_pair[0].n_connections == n_before + 1


def test_threads_use_one_cluster(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(60):
                assert ends(cluster, T0, T1) == {T0: 10, T1: 20}
                if number == 0 and turn % 20 == 10:
                    pair[0].drop()
                if number == 1:
                    cluster.metadata.topics(["t"])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
