"""What brokers tell of themselves and of topics: plain values, and the reading of a Metadata response into them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykafka_wire.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from pykafka_wire.wire.topics import ZERO_UUID


class Node(NamedTuple):
    """A broker: its id, and the address that it advertises on the listener we came in by."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.node_id} ({self.host}:{self.port})"


class PartitionMetadata(NamedTuple):
    """One topic-partition: the leader's node id (-1 while there is none) and epoch (-1 if unknown), and its replicas."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic; ``topic_id`` is :data:`ZERO_UUID` where brokers have none (before Kafka 2.8)."""

    name: str
    topic_id: uuid.UUID = ZERO_UUID
    is_internal: bool = False
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)


#: Leader epochs of older Metadata versions may lag behind and are not to be trusted (KAFKA-9212).
_FIRST_TRUSTED_EPOCH_VERSION: Final = 9


def brokers_of(response: MetadataResponse) -> dict[int, Node]:
    """The brokers of a response by node id."""
    return {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}


def topic_of(topic: MetadataResponseTopic, version: int) -> TopicMetadata:
    """One topic of a response."""
    trusted = version >= _FIRST_TRUSTED_EPOCH_VERSION
    return TopicMetadata(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions={
            p.partition_index: PartitionMetadata(
                p.leader_id,
                p.leader_epoch if trusted else -1,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
            )
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        },
    )
