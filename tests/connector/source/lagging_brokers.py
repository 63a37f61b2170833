"""Two scripted brokers whose metadata may disagree."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from pykafka_wire.wire.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykafka_wire.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.wire.fake_broker import FakeBroker

UNKNOWN, DENIED = 3, 29
EARLIEST = -2


@dataclass
class View:
    """A topic as one broker knows it."""

    topic_id: uuid.UUID
    n_partitions: int = 1
    denied: bool = False


@dataclass
class Brokers:
    """Two brokers; ``views[broker][topic]`` is what a broker's metadata say of a topic.

    Attributes:
        ends: the end of each log, by topic and partition.
        lag: applied to the view of the broker that is asked next for the list of all topics, once.
        unknown_to_leaders: topics of which leaders say that they do not know them.
    """

    brokers: dict[int, FakeBroker]
    views: dict[int, dict[str, View]] = field(default_factory=lambda: {1: {}, 2: {}})
    ends: dict[str, list[int]] = field(default_factory=dict)
    lag: Any = None
    unknown_to_leaders: set[str] = field(default_factory=set)

    @property
    def servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def create(self, topic: str, *ends: int) -> uuid.UUID:
        topic_id = uuid.uuid4()
        self.ends[topic] = list(ends)
        for view in self.views.values():
            view[topic] = View(topic_id, len(ends))
        return topic_id

    def forget(self, topic: str) -> None:
        for view in self.views.values():
            view.pop(topic, None)

    def is_denied(self, topic: str) -> bool:
        return any(topic in view and view[topic].denied for view in self.views.values())

    def metadata(self, node_id: int, request: MetadataRequest, version: int) -> MetadataResponse:
        view = self.views[node_id]
        if request.topics is None and self.lag is not None:
            lag, self.lag = self.lag, None
            lag(view)
        names = [t.name or "" for t in request.topics] if request.topics is not None else list(view)
        topics = []
        for name in names:
            known = view.get(name)
            if known is not None and known.denied and request.topics is None:
                continue
            if known is None or known.denied:
                topics.append(MetadataResponseTopic(error_code=UNKNOWN if known is None else DENIED, name=name))
                continue
            partitions = [
                MetadataResponsePartition(partition_index=p, leader_id=1 + p % 2, leader_epoch=0)
                for p in range(known.n_partitions)
            ]
            topics.append(MetadataResponseTopic(name=name, topic_id=known.topic_id, partitions=partitions))
        nodes = [MetadataResponseBroker(node_id=n, host="127.0.0.1", port=b.port) for n, b in self.brokers.items()]
        return MetadataResponse(brokers=nodes, controller_id=1, topics=topics)

    def list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        def response(topic: str, partition: int, timestamp: int) -> ListOffsetsPartitionResponse:
            if topic in self.unknown_to_leaders or self.is_denied(topic):
                code = DENIED if self.is_denied(topic) else UNKNOWN
                return ListOffsetsPartitionResponse(partition_index=partition, error_code=code)
            offset = 0 if timestamp == EARLIEST else self.ends[topic][partition]
            return ListOffsetsPartitionResponse(partition_index=partition, offset=offset, leader_epoch=0)

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=t.name, partitions=[response(t.name, p.partition_index, p.timestamp) for p in t.partitions]
                )
                for t in request.topics
            ]
        )
