"""Routing and retries on real brokers that are new, stopped or killed."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import pytest

from pykafka_wire.local import LocalCluster
from pykafka_wire.local.jars import release
from pykafka_wire.wire.cluster import ANY
from pykafka_wire.wire.cluster.describe import list_groups
from pykafka_wire.wire.connection.connection import software_version
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import UnknownTopicError
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets, fetch_offsets
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest, likely_release
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition
from tests.broker_features import BROKERS, lacking
from tests.wire.both_brokers import await_brokers, real
from tests.wire.scripted_pair import ends


@pytest.mark.broker
def test_a_real_topic_is_found_with_its_id_and_leaders(kafka: Any, topic: Any) -> None:
    name = topic(partitions=3)
    with real(kafka) as cluster:
        found = cluster.metadata.topics([name])[name]
        assert (found.topic_id == ZERO_UUID) == bool(lacking(["topic ids"]))
        assert list(found.partitions) == [0, 1, 2]
        assert cluster.metadata.topic_id(name) == found.topic_id
        assert cluster.metadata.topic_name(found.topic_id) == (name if found.topic_id != ZERO_UUID else None)
        assert cluster.metadata.leader(TopicPartition(name, 2))[0] in cluster.metadata.brokers()
        assert cluster.metadata.controller().node_id in cluster.metadata.brokers()
        assert (cluster.finalized_feature("metadata.version") > 0) == (not lacking(["finalized features"]))
        assert cluster.finalized_feature("no.such.feature") == 0
        assert cluster.supports(ANY, MetadataRequest, 9)
        assert name in cluster.metadata.topics(None)


@pytest.mark.broker
@pytest.mark.parametrize("installed", ["0.1.0+acme.1", "0.1.0.dev3+g054a7dd1.d20261126", "1!2.0_rc-", "+"])
def test_a_broker_accepts_whatever_version_is_installed(
    kafka: Any, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-511 allows few characters: ApiVersions would be refused."""
    monkeypatch.setattr("pykafka_wire.wire.connection.connection._SOFTWARE_VERSION", software_version(installed))
    with real(kafka) as cluster:
        assert cluster.metadata.brokers()


@pytest.mark.broker
def test_a_real_brokers_release_is_known_by_its_apis(kafka: Any) -> None:
    with real(kafka) as cluster:
        asked = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        declared = cluster.request(ANY, asked).api_keys
    found = likely_release({each.api_key: (each.min_version, each.max_version) for each in declared})
    major_minor = ".".join(BROKERS.split(".")[:2])
    newest = "Kafka 4.4 or newer" if release(BROKERS) >= (4, 4) else "Kafka 4.0 to 4.3"
    assert found == (newest if release(BROKERS) >= (4,) else f"Kafka {major_minor}")


@pytest.mark.broker
@pytest.mark.needs("misrouted connections are found")
def test_a_real_broker_refuses_a_client_that_means_another_one(
    two_brokers: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-1242: what a load balancer does that sends one broker's connections to another one."""
    caplog.set_level(logging.INFO)
    with real(two_brokers) as cluster:
        nodes = cluster.metadata.brokers()
        cluster.metadata._cache.nodes[1] = nodes[1]._replace(port=nodes[2].port)
        cluster._connections.close()
        cluster.request(1, MetadataRequest(topics=[]))
        assert cluster.metadata.brokers() == nodes
    (started_over,) = (each.message for each in caplog.records if "starting over" in each.message)
    assert "this is not broker 1 of cluster" in started_over


@pytest.mark.broker
def test_an_unknown_real_topic_fails_within_seconds_and_is_not_made(kafka: Any) -> None:
    with real(kafka) as cluster:
        started = time.monotonic()
        with pytest.raises(UnknownTopicError):
            cluster.metadata.topics(["never-was"])
        assert time.monotonic() - started < 10
        assert "never-was" not in cluster.metadata.topics(None)


@pytest.mark.broker
def test_all_continues_while_one_of_two_real_brokers_is_stopped(two_brokers: LocalCluster, place_topic: Any) -> None:
    name = f"stopped-{os.getpid()}-{time.monotonic_ns()}"
    place_topic(two_brokers, name, {0: [1, 2], 1: [2, 1]})
    partitions = [TopicPartition(name, 0), TopicPartition(name, 1)]
    with real(two_brokers) as cluster:
        fetch_offsets(cluster, name, None)  # the groups' topic is not made while a broker is away
    two_brokers.nodes[0].pause()
    try:
        started = time.monotonic()
        with real(two_brokers) as cluster:
            assert 2 in cluster.metadata.brokers()
            assert time.monotonic() - started < 10
            assert ends(cluster, *partitions, ms=60_000) == dict.fromkeys(partitions, 0)
            assert all(cluster.metadata.leader(tp)[0] == 2 for tp in partitions)
            group = f"g-{name}"
            commit_offsets(cluster, group, {partitions[0]: CommittedOffset(0)})
            assert fetch_offsets(cluster, group, None) == {partitions[0]: CommittedOffset(0, -1, "")}
    finally:
        two_brokers.nodes[0].resume()
        await_brokers(two_brokers)


@pytest.mark.broker
def test_all_continues_after_one_of_two_real_brokers_is_killed(two_brokers: LocalCluster, place_topic: Any) -> None:
    name = f"killed-{os.getpid()}-{time.monotonic_ns()}"
    place_topic(two_brokers, name, {0: [1, 2], 1: [2, 1]})
    partitions = [TopicPartition(name, 0), TopicPartition(name, 1)]
    with real(two_brokers) as cluster:
        assert ends(cluster, *partitions) == dict.fromkeys(partitions, 0)
        two_brokers.nodes[1].kill()
        list_groups(
            cluster, deadline=Deadline.after_ms(60_000)
        )  # of the brokers that are left, once the cluster has dropped it
        assert list(cluster.metadata.brokers()) == [1]
        assert ends(cluster, *partitions, ms=60_000) == dict.fromkeys(partitions, 0)
        two_brokers.nodes[1].start()
        await_brokers(two_brokers)
        assert ends(cluster, *partitions, ms=60_000) == dict.fromkeys(partitions, 0)
