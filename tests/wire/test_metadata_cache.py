"""The cache of a cluster: what responses and hints add up to."""

from __future__ import annotations

import time
import uuid

import pytest

from pykafka_wire.wire.cluster.metadata_cache import Broker, MetadataCache
from pykafka_wire.wire.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition

ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def topic(
    name: str = "t",
    leaders: dict[int, tuple[int, int]] | None = None,
    *,
    topic_id: uuid.UUID = ID,
    error: int = 0,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        error_code=error,
        partitions=[
            MetadataResponsePartition(partition_index=p, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2])
            for p, (leader, epoch) in (leaders or {}).items()
        ],
    )


def response(*topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=n, host=f"h{n}", port=9092, rack=f"r{n}") for n in nodes]
    return MetadataResponse(brokers=brokers, controller_id=1, cluster_id="c", topics=list(topics))


def cache_of(*topics: MetadataResponseTopic, version: int = 12) -> MetadataCache:
    cache = MetadataCache()
    assert cache.apply(response(*topics), version, 100.0, everything=False) == {}
    return cache


def test_a_response_names_brokers_topics_and_leaders() -> None:
    cache = cache_of(topic(leaders={1: (2, 5), 0: (1, 4)}))
    assert cache.nodes == {1: Broker(1, "h1", 9092, "r1"), 2: Broker(2, "h2", 9092, "r2")}
    assert (cache.controller, cache.cluster_id) == (1, "c")
    assert list(cache.topics["t"].partitions) == [0, 1]
    assert (cache.leader(T0), cache.leader(T1)) == ((1, 4), (2, 5))
    assert cache.topic_name(ID) == "t"
    assert cache.topic_name(ZERO_UUID) is None


def test_leader_epochs_of_old_versions_are_not_trusted() -> None:
    assert cache_of(topic(leaders={0: (1, 4)}), version=8).leader(T0) == (1, -1)


def test_metadata_grows_old() -> None:
    cache = cache_of(topic(leaders={0: (1, 4)}))
    assert cache.leader(T0, oldest=100.0) is not None
    assert cache.leader(T0, oldest=100.1) is None
    assert cache.is_fresh("t", 100.0)
    assert not cache.is_fresh("t", 100.1)
    assert not cache.is_fresh("other", 0.0)


def test_a_partition_without_a_leader_has_none() -> None:
    cache = cache_of(topic(leaders={0: (-1, 4), 1: (9, 4)}))
    assert cache.leader(T0) is None
    assert cache.leader(T1) is None  # its leader is no broker that we know of
    assert cache.topics["t"].partitions[0].leader == -1


def test_an_invalid_partition_leaves_its_neighbours_alone() -> None:
    cache = cache_of(topic(leaders={0: (1, 4), 1: (2, 4)}))
    cache.invalidate("t", 0)
    assert cache.leader(T0) is None
    assert cache.leader(T1) == (2, 4)
    assert cache.stale_topics() == ["t"]
    assert not cache.is_fresh("t", 0.0)
    cache.apply(response(topic(leaders={0: (1, 4), 1: (2, 4)})), 12, 101.0, everything=False)
    assert cache.leader(T0) == (1, 4)
    assert cache.stale_topics() == []


def test_an_invalid_topic_is_invalid_as_a_whole() -> None:
    cache = cache_of(topic(leaders={0: (1, 4), 1: (2, 4)}))
    cache.invalidate("t", 0)
    cache.invalidate("t")
    cache.invalidate("t", 1)
    assert cache.leader(T1) is None
    cache.update_leader(T0, 2, 5)
    assert cache.leader(T0) is None


def test_an_unreachable_broker_makes_what_it_leads_invalid() -> None:
    cache = cache_of(topic(leaders={0: (1, 4), 1: (2, 4)}))
    cache.invalidate_node(2)
    assert cache.leader(T0) == (1, 4)
    assert cache.leader(T1) is None


@pytest.mark.parametrize(("epoch", "counts"), [(3, False), (4, False), (5, True)])
def test_a_hint_counts_only_with_a_newer_epoch(epoch: int, counts: bool) -> None:
    cache = cache_of(topic(leaders={0: (1, 4)}))
    assert cache.update_leader(T0, 2, epoch) is counts
    assert cache.leader(T0) == ((2, 5) if counts else (1, 4))


def test_a_hint_to_an_unknown_broker_does_not_count() -> None:
    cache = cache_of(topic(leaders={0: (1, 4)}))
    assert not cache.update_leader(T0, 9, 5)
    assert cache.update_leader(T0, 9, 5, ("h9", 9099))
    assert cache.nodes[9] == Broker(9, "h9", 9099)
    assert cache.leader(T0) == (9, 5)


def test_a_hint_mends_its_own_partition_only() -> None:
    cache = cache_of(topic(leaders={0: (1, 4), 1: (1, 4)}))
    cache.invalidate("t", 0)
    cache.invalidate("t", 1)
    cache.update_leader(T0, 2, 5)
    assert cache.leader(T0) == (2, 5)
    assert cache.leader(T1) is None


def test_a_broker_that_lags_behind_does_not_bring_an_old_leader_back() -> None:
    cache = cache_of(topic(leaders={0: (1, 4)}))
    cache.update_leader(T0, 2, 5)
    cache.apply(response(topic(leaders={0: (1, 4)})), 12, 101.0, everything=False)
    assert cache.leader(T0) == (2, 5)
    cache.apply(response(topic(leaders={0: (1, 6)})), 12, 102.0, everything=False)
    assert cache.leader(T0) == (1, 6)


@pytest.mark.parametrize(("old", "new"), [(ID, OTHER_ID), (ZERO_UUID, ZERO_UUID), (ZERO_UUID, ID)])
def test_a_recreated_topic_starts_with_new_epochs(old: uuid.UUID, new: uuid.UUID) -> None:
    cache = cache_of(topic(leaders={0: (1, 40), 1: (1, 40)}, topic_id=old))
    cache.apply(response(topic(leaders={0: (2, 0)}, topic_id=new)), 12, 101.0, everything=False)
    assert cache.leader(T0) == (2, 0)
    assert cache.leader(T1) is None
    assert cache.topic_name(ID) == ("t" if new == ID else None)


def test_a_topic_with_an_error_is_dropped_and_its_code_reported() -> None:
    cache = cache_of(topic(leaders={0: (1, 4)}))
    assert cache.apply(response(topic(error=3)), 12, 101.0, everything=False) == {"t": 3}
    assert cache.topics == {}
    assert cache.leader(T0) is None
    assert cache.topic_name(ID) is None


def test_a_topic_that_is_described_in_spite_of_an_election_is_kept() -> None:
    cache = cache_of(topic(leaders={0: (-1, 4), 1: (2, 4)}, error=5))
    assert cache.leader(T1) == (2, 4)


def test_a_response_about_everything_drops_what_it_does_not_name() -> None:
    cache = cache_of(topic(leaders={0: (1, 4)}), topic("gone", {0: (1, 1)}, topic_id=OTHER_ID))
    cache.invalidate("gone")
    assert not cache.all_fresh(0.0)
    cache.apply(response(topic(leaders={0: (1, 4)})), 12, 101.0, everything=True)
    assert list(cache.topics) == ["t"]
    assert cache.leader(TopicPartition("gone", 0)) is None
    assert not cache.is_fresh("gone", 0.0)
    assert cache.all_fresh(101.0)
    cache.invalidate("t", 0)
    assert not cache.all_fresh(101.0)


def test_a_response_about_some_topics_keeps_the_others() -> None:
    cache = cache_of(topic(leaders={0: (1, 4)}))
    cache.apply(response(topic("u", {0: (2, 1)}, topic_id=OTHER_ID)), 12, 101.0, everything=False)
    assert list(cache.topics) == ["t", "u"]


def test_ten_thousand_partitions_are_taken_in_quickly() -> None:
    every = [topic(f"t{i}", {p: (1 + p % 2, 7) for p in range(100)}, topic_id=uuid.UUID(int=i + 1)) for i in range(100)]
    frame = b"".join(map(bytes, response(*every).encode(12)))
    started = time.process_time()
    cache = MetadataCache()
    cache.apply(MetadataResponse.decode(frame, 12), 12, 1.0, everything=True)
    elapsed_s = time.process_time() - started
    assert cache.leader(TopicPartition("t99", 99)) == (2, 7)
    assert elapsed_s < 1.0  # about 0.1 s; the rest is for slow machines
    print(f"10,000 partitions: {elapsed_s * 1000:.0f} ms")
