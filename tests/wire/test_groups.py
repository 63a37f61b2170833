"""Groups as coordinators list and describe them, of both protocols, on real brokers."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import ListedGroup, describe_group, list_groups
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets
from pykafka_wire.wire.topic_partitions import TopicPartition

pytestmark = pytest.mark.broker


@pytest.mark.needs("consumer protocol of KIP-848")
def test_groups_of_both_protocols_are_listed_and_described(cluster: Cluster, kafka: Any, topic: Any) -> None:
    name, suffix = topic(), uuid.uuid4().hex[:8]
    commit_offsets(cluster, f"offsets-{suffix}", {TopicPartition(name, 0): CommittedOffset(0)})
    consumers = {}
    try:
        for protocol in ("classic", "consumer"):
            group = f"{protocol}-{suffix}"
            consumers[protocol] = Consumer(
                {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "client.id": "me", "log_level": 0}
                | {"group.protocol": protocol}
            )
            consumers[protocol].subscribe([name])
        deadline = time.monotonic() + 60
        for consumer in consumers.values():
            while not consumer.assignment():
                assert time.monotonic() < deadline, "no assignment"
                consumer.poll(0.1)
        listed = {group.name: group for group in list_groups(cluster) if group.name.endswith(suffix)}
        (node,) = cluster.metadata.brokers()
        assert listed == {
            f"{kind.lower()}-{suffix}": ListedGroup(
                name=f"{kind.lower()}-{suffix}", protocol_type="consumer", state="Stable", kind=kind, coordinator=node
            )
            for kind in ("Classic", "Consumer")
        } | {
            f"offsets-{suffix}": ListedGroup(
                name=f"offsets-{suffix}", protocol_type="", state="Empty", kind="Classic", coordinator=node
            )
        }
        for protocol in ("classic", "consumer"):
            found = describe_group(cluster, f"{protocol}-{suffix}")
            assert found.state == "Stable"
            assert [member.partition(" at ")[0] for member in found.members] == ["me"]
            assert found.operations
        assert describe_group(cluster, f"none-{suffix}").state == "Dead"
    finally:
        for consumer in consumers.values():
            consumer.close()
