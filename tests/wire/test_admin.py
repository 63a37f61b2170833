"""Offsets by time and by epoch, and the life of topics, on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListedOffset,
    create_partitions,
    create_topics,
    delete_topics,
    describe_broker_configs,
    describe_topic_configs,
    list_offsets,
    list_topics,
    offsets_for_leader_epoch,
)
from pykafka_wire.wire.errors import BrokerError, UnknownTopicError, UnsupportedVersionError
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.broker_features import lacking
from tests.wire.fake_broker import VERSIONS, FakeBroker, versions_response

DAY_MS = 86_400_000


@pytest.fixture
def name(cluster: Cluster) -> Iterator[str]:
    """A name that no topic has yet."""
    name = f"admin-{uuid.uuid4().hex[:12]}"
    yield name
    delete_topics(cluster, [name], missing_ok=True)


@pytest.mark.broker
def test_offsets_are_found_by_time_and_at_the_ends(kafka: Any, topic: Any, cluster: Cluster) -> None:
    name = topic(partitions=2)
    now_ms = time.time_ns() // 1_000_000
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for age in (30_000, 10_000, 20_000):  # the highest timestamp is not the last record's
        producer.produce(name, b"v", partition=0, timestamp=now_ms - age)
        assert producer.flush(30) == 0
    full, empty = TopicPartition(name, 0), TopicPartition(name, 1)

    def offsets(timestamp: int) -> dict[TopicPartition, ListedOffset]:
        return list_offsets(cluster, {full: timestamp, empty: timestamp})

    assert {tp: found[:2] for tp, found in offsets(EARLIEST).items()} == {full: (0, -1), empty: (0, -1)}
    assert offsets(LATEST)[full][:2] == (3, -1)
    assert offsets(LATEST)[empty][:2] == (0, -1)
    assert offsets(now_ms - 25_000)[full] == ListedOffset(1, now_ms - 10_000, 0)
    assert offsets(now_ms - 25_000)[empty][:2] == (-1, -1)
    assert offsets(now_ms + DAY_MS)[full][:2] == (-1, -1)
    if not lacking(["a highest timestamp"]):
        assert offsets(MAX_TIMESTAMP)[full] == ListedOffset(1, now_ms - 10_000, 0)
    assert list_offsets(cluster, {full: EARLIEST, empty: LATEST})[full].offset == 0
    assert list_offsets(cluster, {}) == {}


@pytest.mark.broker
def test_a_committed_read_ends_before_an_open_transaction(kafka: Any, topic: Any, cluster: Cluster) -> None:
    tp = TopicPartition(topic(), 0)
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
    producer = confluent_kafka.Producer(config)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(tp.topic, b"open", partition=0)
    assert producer.flush(30) == 0
    ends = [
        list_offsets(cluster, {tp: LATEST}, isolation_level=level)[tp].offset
        for level in ("read_uncommitted", "read_committed")
    ]
    assert ends == [1, 0]
    producer.commit_transaction(30)


@pytest.mark.broker
def test_the_end_of_a_leader_epoch_is_found(kafka: Any, topic: Any, cluster: Cluster) -> None:
    tp = TopicPartition(topic(), 0)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(tp.topic, b"v", partition=0)
    assert producer.flush(30) == 0
    assert offsets_for_leader_epoch(cluster, {tp: 0}) == {tp: (0, 1)}


@pytest.mark.broker
def test_a_topic_is_created_described_grown_and_deleted(cluster: Cluster, name: str) -> None:
    create_topics(cluster, {name: (2, 1)}, configs={"retention.ms": "123456789"})
    assert name in list_topics(cluster)
    assert len(cluster.metadata.topics([name])[name].partitions) == 2
    assert describe_topic_configs(cluster, [name], ["retention.ms"]) == {name: {"retention.ms": "123456789"}}
    assert len(describe_topic_configs(cluster, [name])[name]) > 10
    create_partitions(cluster, {name: 5})
    assert cluster.metadata.leader(TopicPartition(name, 4))[0] in cluster.metadata.brokers()
    delete_topics(cluster, [name])
    deadline = time.monotonic() + 30
    while name in list_topics(cluster):  # the controller has deleted it, a broker hears of it a moment later
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.broker
def test_refusals_are_raised_with_their_reason(cluster: Cluster, name: str) -> None:
    create_topics(cluster, {name: (1, 1)})
    create_topics(cluster, {name: (1, 1)}, exist_ok=True)
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS") as raised:
        create_topics(cluster, {name: (1, 1)})
    assert (raised.value.topic, raised.value.api) == (name, "CreateTopics")
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        create_topics(cluster, {f"{name}-x": (1, 99)})
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        create_partitions(cluster, {name: 1})
    with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
        create_topics(cluster, {"no/slash": (1, 1)})


@pytest.mark.broker
def test_a_topic_that_is_not_there_cannot_be_deleted_and_is_not_waited_for(cluster: Cluster) -> None:
    cluster.metadata.brokers()
    started = time.monotonic()
    delete_topics(cluster, ["never-was"], missing_ok=True)
    with pytest.raises(UnknownTopicError):
        delete_topics(cluster, ["never-was"])
    assert time.monotonic() - started < 5


@pytest.mark.broker
def test_internal_topics_are_listed_only_when_asked_for(kafka: Any, topic: Any, cluster: Cluster) -> None:
    tp = TopicPartition(topic(), 0)
    commit_offsets(cluster, f"g-{tp.topic}", {tp: CommittedOffset(0)})
    assert "__consumer_offsets" in list_topics(cluster, internal=True)
    assert "__consumer_offsets" not in list_topics(cluster)


@pytest.mark.broker
def test_a_brokers_settings_are_read(cluster: Cluster) -> None:
    node = next(iter(cluster.metadata.brokers()))
    found = describe_broker_configs(cluster, node, ["auto.create.topics.enable"])
    assert found == {"auto.create.topics.enable": "false"}


@pytest.mark.parametrize(
    ("special", "last_version", "what"),
    [
        (MAX_TIMESTAMP, 6, "highest timestamp"),
        (EARLIEST_LOCAL, 7, "tiered storage"),
        (LATEST_TIERED, 8, "tiered storage"),
    ],
)
def test_no_special_offset_is_asked_of_a_broker_that_would_misread_it(
    special: int, last_version: int, what: str
) -> None:
    """Before ListOffsets version 7 (KIP-734) -3 is a time like any other; so are -4 before 8 (KIP-405), -5 before 9 (KIP-1005)."""
    with FakeBroker(1) as old:
        old.topics = {"t": {0: (1, 0)}}
        old.on[ApiVersionsRequest] = lambda request, version: versions_response({**VERSIONS, 2: (1, last_version)})
        settings = ClientSettings(bootstrap_servers=(("127.0.0.1", old.port),))
        with Cluster(settings) as cluster, pytest.raises(UnsupportedVersionError, match=what):
            list_offsets(cluster, {TopicPartition("t", 0): special})
