"""How a client looks up topics, leaders and coordinators, on scripted brokers. Real ones: test_cluster_on_brokers.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from pykafka_wire.wire import error_codes
from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    NoBrokerAvailableError,
    ProtocolError,
    UnknownTopicError,
    WireError,
)
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetCommitRequest,
)
from pykafka_wire.wire.protocol.messages.list_offsets import (
    ListOffsetsRequest,
)
from pykafka_wire.wire.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
)
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import FakeBroker
from tests.wire.memory_network import MemoryNetwork
from tests.wire.scripted_pair import T0, T1, asked_for, cluster_of, commit, coordinate, ends, offsets_of


@pytest.fixture
def cluster(pair: tuple[FakeBroker, FakeBroker]) -> Iterator[Cluster]:
    with cluster_of(pair) as cluster:
        yield cluster


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_metadata_is_asked_for_needed_topics_only_and_creates_none(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    one, two = pair
    one.topics["u"] = {0: (1, 0)}
    cluster.metadata.topics(["t"])
    cluster.metadata.topics(["t"], max_age_ms=60_000)
    cluster.metadata.leader(T1)
    assert asked_for(one) + asked_for(two) == [["t"]]
    assert all(not r.allow_auto_topic_creation for r in one.requests if isinstance(r, MetadataRequest))
    cluster.metadata.topics(["t"])
    assert len(asked_for(one) + asked_for(two)) == 2


def test_a_topic_that_never_was_fails_after_a_grace(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(error_codes.ERRORS, 3, error_codes.ERRORS[3]._replace(grace_ms=200))
    started = time.monotonic()
    with pytest.raises(UnknownTopicError) as raised:
        cluster.metadata.topics(["t", "nope"])
    assert 0.15 < time.monotonic() - started < 5
    assert (raised.value.topic, raised.value.api) == ("nope", "Metadata")


def test_a_topic_that_appears_within_its_grace_is_found(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    cluster.metadata.brokers()
    timer = threading.Timer(0.2, lambda: pair[0].topics.update(new={0: (1, 0)}))
    timer.start()
    assert list(cluster.metadata.topics(["new"])) == ["new"]
    timer.join()


def test_a_deleted_topic_is_unknown_even_if_it_was_known(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(error_codes.ERRORS, 3, error_codes.ERRORS[3]._replace(grace_ms=0))
    cluster.metadata.topics(["t"])
    del pair[0].topics["t"]
    assert cluster.metadata.topics(None) == {}
    with pytest.raises(UnknownTopicError):
        cluster.metadata.topics(["t"], max_age_ms=60_000)


def test_a_leader_is_waited_for(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    topic = pair[0].topics["t"]
    topic[0] = (-1, 4)
    timer = threading.Timer(0.2, lambda: topic.update({0: (2, 5)}))
    timer.start()
    assert cluster.metadata.leader(T0) == (2, 5)
    timer.join()


def test_a_partition_that_stays_without_a_leader_is_named(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    pair[0].topics["t"][0] = (-1, 4)
    with pytest.raises(DeadlineExceededError, match="no leader") as raised:
        cluster.metadata.leader(T0, deadline=Deadline.after_ms(150))
    assert (raised.value.topic, raised.value.partition) == ("t", 0)


def test_a_partition_that_never_was_fails_after_a_grace(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(error_codes.ERRORS, 3, error_codes.ERRORS[3]._replace(grace_ms=100))
    with pytest.raises(UnknownTopicError, match="has 3 partitions") as raised:
        cluster.metadata.leader(TopicPartition("t", 7))
    assert raised.value.partition == 7


def test_leaders_are_looked_up_again_once_metadata_is_old(pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(pair, metadata_max_age_ms=50) as cluster:
        assert cluster.metadata.leader(T0) == (1, 4)
        pair[0].topics["t"][0] = (2, 5)
        time.sleep(0.06)
        assert cluster.metadata.leader(T0) == (2, 5)


def test_topics_out_of_date_are_asked_for_together(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    one, two = pair
    one.topics["u"] = {0: (1, 0)}
    cluster.metadata.topics(["t", "u"])
    cluster.metadata.invalidate(T0)
    cluster.metadata.invalidate(TopicPartition("u", 0))
    cluster.metadata.leader(T0)
    cluster.metadata.leader(TopicPartition("u", 0))
    assert [sorted(each) for each in asked_for(one) + asked_for(two)] == [["t", "u"], ["t", "u"]]


def test_a_hint_redirects_at_once_and_brings_its_endpoint(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    with FakeBroker(3, in_memory=True) as three:
        three.on[ListOffsetsRequest] = offsets_of(three, {})
        cluster.metadata.topics(["t"])
        assert cluster.metadata.redirect(T0, 1, hint=(3, 5), endpoint=("127.0.0.1", three.port))
        assert ends(cluster, T0) == {T0: 30}


@pytest.mark.parametrize("hint", [(-1, -1), (2, 4), (2, 3), (9, 5)], ids=["none", "as old", "older", "unknown address"])
def test_without_a_newer_hint_the_leader_is_looked_up_after_a_pause(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster, hint: tuple[int, int]
) -> None:
    assert cluster.metadata.leader(T0) == (1, 4)
    assert not cluster.metadata.redirect(T0, 1, hint=hint)
    pair[0].topics["t"][0] = (2, 5)
    assert cluster.metadata.leader(T0) == (2, 5)
    # What an earlier response told is not looked up again for a later one that says the same.
    n_asked = len(asked_for(pair[0]) + asked_for(pair[1]))
    assert cluster.metadata.redirect(T0, 1, hint=(2, 5))
    assert cluster.metadata.redirect(T0, 1)
    assert cluster.metadata.redirect(T0, 2, epoch=4)
    assert cluster.metadata.leader(T0) == (2, 5)
    assert len(asked_for(pair[0]) + asked_for(pair[1])) == n_asked


def test_leaders_are_looked_up_in_one_request_and_each_failure_is_reported_by_itself(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    pair[0].topics["t"][1] = (-1, 4)
    unheard, unknown = TopicPartition("t", 9), TopicPartition("nope", 0)
    found = cluster.metadata.leaders([T0, T1, unheard, unknown])
    assert found.leaders == {T0: (1, 4)}
    assert set(found.topic_ids) == {"t"}
    assert {tp: (type(error), error.partition) for tp, error in found.errors.items()} == {
        T1: (BrokerError, 1),
        unheard: (UnknownTopicError, 9),
        unknown: (UnknownTopicError, 0),
    }
    assert [sorted(each) for each in asked_for(pair[0]) + asked_for(pair[1])] == [["nope", "t"]]


def test_a_fresh_leader_of_a_topic_that_the_refresh_finds_deleted_is_an_error_too(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    assert set(cluster.metadata.leaders([T0, T1]).leaders) == {T0, T1}
    for broker in pair:
        broker.topics = {}
    cluster.metadata.invalidate(T1)
    time.sleep(0.01)  # a topic is not asked for again at once
    found = cluster.metadata.leaders([T0, T1])
    assert (found.leaders, found.topic_ids) == ({}, {})
    assert {tp: type(error) for tp, error in found.errors.items()} == {T0: UnknownTopicError, T1: UnknownTopicError}


def silent_for_long(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster, trigger_ms: int) -> None:
    """Metadata of topic t is known, and then no broker responds for as long as brings a new bootstrap."""
    cluster.metadata.topics(["t"])
    for broker in pair:
        broker.topics["u"] = {0: (1, 0)}
        broker.silent = True
    began = time.monotonic()
    with pytest.raises(NoBrokerAvailableError):
        cluster.metadata.topics(["u"], deadline=Deadline.after_ms(50))
    time.sleep(max(0.0, trigger_ms / 1000 - (time.monotonic() - began)) + 0.01)
    for broker in pair:
        broker.silent = False


def test_a_new_bootstrap_in_the_middle_of_a_look_up_loses_no_topic(pair: tuple[FakeBroker, FakeBroker]) -> None:
    """What was fresh a moment ago is asked for again, and neither missing nor said to be unknown."""
    limits = {"metadata_recovery_rebootstrap_trigger_ms": 100, "socket_connection_setup_timeout_ms": 50}
    with cluster_of(pair, **limits) as cluster:
        silent_for_long(pair, cluster, 100)
        found = cluster.metadata.leaders([T0, TopicPartition("u", 0)])
        assert found.errors == {}
        assert set(found.topic_ids) == {"t", "u"}
    with cluster_of(pair, **limits) as cluster:
        silent_for_long(pair, cluster, 100)
        assert set(cluster.metadata.topics(["t", "u"], max_age_ms=60_000)) == {"t", "u"}


def test_partitions_without_a_leader_are_not_looked_up_more_often_than_retries_are_due(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    pair[0].topics["t"][1] = (-1, 4)
    address = (("127.0.0.1", pair[0].port),)
    with Cluster(
        ClientSettings(bootstrap_servers=address, retry_backoff_ms=60_000), network=MemoryNetwork()
    ) as cluster:
        for _ in range(100):
            assert set(cluster.metadata.leaders([T0, T1]).errors) == {T1}
    assert len(asked_for(pair[0]) + asked_for(pair[1])) == 1


def test_a_coordinator_that_moved_is_found_again(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    coordinate(pair, [-1, 1, 2], {1: [16]})
    commit(cluster)
    assert [broker.count(OffsetCommitRequest) for broker in pair] == [1, 1]
    commit(cluster)
    assert [broker.count(OffsetCommitRequest) for broker in pair] == [1, 2]
    assert sum(broker.count(FindCoordinatorRequest) for broker in pair) == 3


def test_a_coordinator_that_moved_under_its_node_id_is_found_again(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster
) -> None:
    """As when it is started again elsewhere: FindCoordinator names its new address, metadata is not asked for."""
    one, two = pair
    coordinate(pair, [2], {})
    commit(cluster)
    two.close()
    with FakeBroker(2, in_memory=True) as elsewhere:
        coordinate((one, elsewhere), [2], {})
        commit(cluster)
        assert elsewhere.count(OffsetCommitRequest) == 1


def test_a_coordinator_that_is_loading_is_asked_again(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    coordinate(pair, [1], {1: [14, 14]})
    commit(cluster)
    assert pair[0].count(OffsetCommitRequest) == 3
    assert sum(broker.count(FindCoordinatorRequest) for broker in pair) == 1


def test_a_coordinator_that_died_is_found_again(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    coordinate(pair, [1, 2], {})
    commit(cluster)
    pair[0].close()
    commit(cluster)
    assert pair[1].count(OffsetCommitRequest) == 1


def test_a_refused_commit_is_raised_at_once(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    coordinate(pair, [1], {1: [30]})
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED") as raised:
        commit(cluster)
    assert (raised.value.topic, raised.value.partition) == ("t", 0)
    assert pair[0].count(OffsetCommitRequest) == 1


def test_a_commit_for_a_deleted_topic_fails_after_a_grace(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(error_codes.ERRORS, 3, error_codes.ERRORS[3]._replace(grace_ms=100))
    coordinate(pair, [1], {1: [3] * 10_000})
    started = time.monotonic()
    with pytest.raises(UnknownTopicError):
        commit(cluster)
    assert time.monotonic() - started < 5


def test_no_coordinator_until_the_deadline_is_said(pair: tuple[FakeBroker, FakeBroker], cluster: Cluster) -> None:
    coordinate(pair, [-1], {})
    with pytest.raises(DeadlineExceededError, match="COORDINATOR_NOT_AVAILABLE"):
        commit(cluster, ms=200)


@pytest.mark.parametrize("code", [15, 30])
def test_of_many_keys_the_one_without_a_coordinator_is_named_with_its_broker(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster, code: int
) -> None:
    for broker in pair:
        broker.on[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
            coordinators=[
                Coordinator(key="g", node_id=1, host="127.0.0.1", port=pair[0].port),
                Coordinator(key="i", error_code=code),
            ]
        )
    with pytest.raises(WireError, match="for 'i'") as raised:
        cluster.coordinators(CoordinatorKind.GROUP, ["g", "i"], deadline=Deadline.after_ms(200))
    assert raised.value.api == "FindCoordinator" and raised.value.broker in (1, 2) and raised.value.version is not None
    assert cluster.metadata.coordinator(CoordinatorKind.GROUP, "g") == 1


@pytest.mark.parametrize("named", [[], ["h"], ["g", "g"]], ids=["none", "another", "one twice"])
def test_a_response_that_lacks_a_coordinator_is_an_error_and_not_asked_for_without_end(
    pair: tuple[FakeBroker, FakeBroker], cluster: Cluster, named: list[str]
) -> None:
    """A broker that leaves keys out was asked for them again and again, without a pause; without any, broker 0 was made up."""
    for broker in pair:
        broker.on[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, node_id=1, host="127.0.0.1", port=pair[0].port) for key in named]
        )
    with pytest.raises(ProtocolError, match=r"names no coordinator of '[gi]'"):
        cluster.coordinators(CoordinatorKind.GROUP, ["g", "i"], deadline=Deadline.after_ms(2_000))
    assert sum(broker.count(FindCoordinatorRequest) for broker in pair) == 1
    assert set(cluster.metadata.brokers()) == {1, 2}
