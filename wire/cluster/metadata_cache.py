"""Brokers and topics as plain values, and what is known of a cluster, which responses and leader hints add up to.

Owns the reading of Metadata responses and of leader hints (KIP-951). It knows no socket, no clock and no retry: times come
in as arguments, and what an error code asks for is :mod:`~pykafka_wire.wire.cluster.client`'s to decide.
https://kafka.apache.org/protocol#The_Messages_Metadata
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError, broker_error
from pykafka_wire.wire.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition


class Broker(NamedTuple):
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
_NEVER: Final = float("-inf")


def brokers_of(response: MetadataResponse) -> dict[int, Broker]:
    """Return the brokers of a response by node id."""
    return {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}


def topic_of(topic: MetadataResponseTopic, version: int) -> TopicMetadata:
    """Return one topic of a response."""
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


class MetadataCache:
    """A cluster as the last responses and hints describe it. ``now`` and ``oldest`` are seconds of one clock."""

    def __init__(self) -> None:
        self.nodes: dict[int, Broker] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicMetadata] = {}
        #: Node ids by what a coordinator coordinates (FindCoordinator's ``key_type``) and its key.
        self.coordinators: dict[tuple[int, str], int] = {}
        #: When a response last came, whatever it was about.
        self._topic_refreshed_at: dict[str, float] = {}
        #: When a response last described a topic or gave an error code for it, and the code.
        self._described_at: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._all_refreshed_at = _NEVER
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._names: dict[uuid.UUID, str] = {}
        #: Topics of which something is known to be out of date: these partitions, or all of them for None.
        self._stale: dict[str, set[int] | None] = {}

    # --- questions ----------------------------------------------------------------------------------------------------

    def leader(self, tp: TopicPartition, oldest: float = _NEVER) -> tuple[int, int] | None:
        """Return broker id and leader epoch of a leader, None where none is known, or not from ``oldest`` on, or it is stale."""
        if self._topic_refreshed_at.get(tp.topic, _NEVER) < oldest:
            return None
        if tp.topic in self._stale:
            partitions = self._stale[tp.topic]
            if partitions is None or tp.partition in partitions:
                return None
        return self._leaders.get(tp)

    def leaders(
        self, partitions: Iterable[TopicPartition], oldest: float
    ) -> tuple[dict[TopicPartition, tuple[int, int]], list[TopicPartition]]:
        """Return the leaders as :meth:`leader` knows them, and the partitions for which it knows none."""
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        unknown: list[TopicPartition] = []
        for tp in partitions:
            leader = self.leader(tp, oldest)
            if leader is None:
                unknown.append(tp)
            else:
                leaders[tp] = leader
        return leaders, unknown

    def leader_error(self, tp: TopicPartition) -> BrokerError:
        """Return why a partition has no leader, according to the last response."""
        topic = self.topics.get(tp.topic)
        if topic is None:
            code = self._failures.get(tp.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return broker_error(code, **tp._asdict(), api="Metadata")
        if tp.partition not in topic.partitions:
            # A broker may not have heard of new partitions yet.
            detail = f"The topic has {len(topic.partitions)} partitions."
            return broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **tp._asdict(), api="Metadata", detail=detail)
        return broker_error(ErrorCode.LEADER_NOT_AVAILABLE, **tp._asdict(), api="Metadata")

    def topics_described_before(self, topics: Iterable[str], moment: float) -> list[str]:
        """Return those topics of which no response has come since ``moment``."""
        return [topic for topic in topics if self._described_at.get(topic, _NEVER) <= moment]

    def is_fresh(self, topic: str, oldest: float) -> bool:
        """Return whether a topic's metadata came at ``oldest`` or later and nothing has been found to contradict it since."""
        return topic in self.topics and self._topic_refreshed_at[topic] >= oldest and topic not in self._stale

    def all_fresh(self, oldest: float) -> bool:
        """Return whether the list of all topics came at ``oldest`` or later and nothing has been found to contradict it since."""
        return self._all_refreshed_at >= oldest and not self._stale

    def stale_topics(self) -> list[str]:
        """Return topics of which something is known to be out of date."""
        return list(self._stale)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """Return the name of a topic by its id, None where it is not known."""
        return self._names.get(topic_id)

    # --- updates ------------------------------------------------------------------------------------------------------

    def apply(self, response: MetadataResponse, version: int, now: float, *, everything: bool) -> dict[str, int]:
        """Take a response in; the topics that it has an error code for instead of metadata.

        Args:
            everything: the question was for all topics, so one that is not in the response does not exist.
        """
        self.nodes = brokers_of(response)
        self.controller = response.controller_id
        self.cluster_id = response.cluster_id
        failures: dict[str, int] = {}
        for entry in response.topics:
            self._described_at[entry.name or ""] = now
            # A partition without a leader may show as an error of its topic, which is described all the same.
            if entry.error_code and not (entry.error_code == ErrorCode.LEADER_NOT_AVAILABLE and entry.partitions):
                failures[entry.name or ""] = self._failures[entry.name or ""] = entry.error_code
                self._drop(entry.name or "")
            else:
                self._keep(topic_of(entry, version), now)
        if everything:
            named = {entry.name for entry in response.topics}
            for topic in [*self.topics, *self._stale]:
                if topic not in named:
                    self._drop(topic)
            self._all_refreshed_at = now
        return failures

    def invalidate(self, topic: str, partition: int | None = None) -> None:
        """Note that a partition's leader, or for None anything known of the topic, is out of date."""
        if partition is None:
            self._stale[topic] = None
        else:
            partitions = self._stale.setdefault(topic, set())
            if partitions is not None:
                partitions.add(partition)

    def invalidate_node(self, node_id: int) -> None:
        """Note that a broker cannot be reached: whatever it leads may have another leader by now."""
        for tp, (leader, _) in self._leaders.items():
            if leader == node_id:
                self.invalidate(tp.topic, tp.partition)

    def update_node(self, node_id: int, host: str, port: int) -> Broker:
        """Take in where a broker is, from a response that names it: it may have moved since the last metadata."""
        known = self.nodes.get(node_id)
        node = self.nodes[node_id] = Broker(node_id, host, port, rack=known.rack if known else None)
        return node

    def update_leader(
        self, tp: TopicPartition, node_id: int, epoch: int, endpoint: tuple[str, int] | None = None
    ) -> bool:
        """Take a leader hint in (KIP-951); False where it brings nothing new: it counts only with a newer epoch."""
        if epoch <= self._leaders.get(tp, (-1, -1))[1]:
            return False
        if endpoint is not None:
            self.update_node(node_id, *endpoint)
        if node_id not in self.nodes:
            return False
        self._leaders[tp] = (node_id, epoch)
        stale = self._stale.get(tp.topic)
        if stale is not None:
            stale.discard(tp.partition)
            if not stale:
                del self._stale[tp.topic]
        return True

    def _drop(self, name: str) -> None:
        old = self.topics.pop(name, None)
        self._topic_refreshed_at.pop(name, None)
        self._stale.pop(name, None)
        if old is not None:
            self._names.pop(old.topic_id, None)
            self._forget_leaders(name, old.partitions)

    def _forget_leaders(self, topic: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._leaders.pop(TopicPartition(topic, partition), None)

    def _keep(self, topic: TopicMetadata, now: float) -> None:
        old = self.topics.get(topic.name)
        if old is not None and old.topic_id != topic.topic_id:
            self._drop(topic.name)  # made anew under its name: epochs start over
        elif old is not None:
            self._forget_leaders(topic.name, old.partitions.keys() - topic.partitions.keys())
        self.topics[topic.name] = topic
        self._failures.pop(topic.name, None)
        self._topic_refreshed_at[topic.name] = now
        self._stale.pop(topic.name, None)
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = topic.name
        leaders, nodes = self._leaders, self.nodes
        # A broker that lags behind must not send us back to an old leader (KIP-320). Without topic ids a lower epoch may
        # as well mean that the topic was made anew.
        keep_newer = topic.topic_id != ZERO_UUID
        for partition, metadata in topic.partitions.items():
            tp = TopicPartition(topic.name, partition)
            if keep_newer and 0 <= metadata.leader_epoch < leaders.get(tp, (-1, -1))[1]:
                continue
            if metadata.leader in nodes:
                leaders[tp] = (metadata.leader, metadata.leader_epoch)
            else:
                leaders.pop(tp, None)
