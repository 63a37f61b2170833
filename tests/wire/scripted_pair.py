"""Two scripted brokers that lead the partitions of one topic, and a client of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST, list_offsets
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from pykafka_wire.wire.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
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
from tests.wire.fake_coordinator import commit_response
from tests.wire.memory_network import MemoryNetwork

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))
QUICK = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20}


@contextmanager
def scripted_pair(*, in_memory: bool = False) -> Iterator[tuple[FakeBroker, FakeBroker]]:
    """Two scripted brokers; 1 leads t-0 and t-2, 2 leads t-1, all respond to ListOffsets with 10 x node id."""
    with FakeBroker(1, in_memory=in_memory) as one, FakeBroker(2, in_memory=in_memory) as two:
        topics = {"t": {0: (1, 4), 1: (2, 4), 2: (1, 4)}}
        for broker in (one, two):
            broker.peers = {1: one, 2: two}
            broker.topics = topics
            broker.on[ListOffsetsRequest] = offsets_of(broker, {})
        yield one, two


def cluster_of(brokers: Sequence[FakeBroker], **settings: Any) -> Cluster:
    pairs = tuple(("127.0.0.1", broker.port) for broker in brokers)
    network = MemoryNetwork() if brokers[0].in_memory else None
    return Cluster(ClientSettings(bootstrap_servers=pairs, **QUICK, **settings), network=network)


def offsets_of(broker: FakeBroker, codes: dict[int, list[int]]) -> Callable[[ListOffsetsRequest, int], Any]:
    """A ListOffsets handler: each partition's codes one after the other, then offsets. A code of -99 leaves it out."""

    def response(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            partitions = []
            for p in topic.partitions:
                code = codes[p.partition_index].pop(0) if codes.get(p.partition_index) else 0
                if code != -99:
                    partitions.append(
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index,
                            error_code=code,
                            offset=10 * broker.node_id,
                            leader_epoch=p.current_leader_epoch,
                        )
                    )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(topics=topics)

    return response


def ends(cluster: Cluster, *partitions: TopicPartition, ms: float = 10_000) -> dict[TopicPartition, int]:
    found = list_offsets(cluster, dict.fromkeys(partitions, LATEST), deadline=Deadline.after_ms(ms))
    return {tp: listed.offset for tp, listed in found.items()}


def asked_for(broker: FakeBroker) -> list[list[str]]:
    """The topics of the Metadata requests that reached a broker."""
    return [
        [topic.name or "" for topic in request.topics or []]
        for request in broker.requests
        if isinstance(request, MetadataRequest)
    ]


def coordinate(pair: tuple[FakeBroker, FakeBroker], nodes: list[int], codes: dict[int, list[int]]) -> None:
    """FindCoordinator names `nodes` one after the other; commits to a node meet its codes one after the other."""
    remaining = list(nodes)

    def find(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        node = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if node < 0:
            return FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=15, node_id=-1)])
        port = pair[node - 1].port
        return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=node, host="127.0.0.1", port=port)])

    def commit(node: int) -> Callable[[OffsetCommitRequest, int], OffsetCommitResponse]:
        def response(request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
            code = codes[node].pop(0) if codes.get(node) else 0
            return commit_response(request, code=code)

        return response

    for broker in pair:
        broker.on[FindCoordinatorRequest] = find
        broker.on[OffsetCommitRequest] = commit(broker.node_id)


def commit(cluster: Cluster, ms: float = 10_000) -> None:
    commit_offsets(cluster, "g", {T0: CommittedOffset(5)}, deadline=Deadline.after_ms(ms))
