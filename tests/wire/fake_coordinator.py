"""Fake brokers that coordinate a group of one member, in either group protocol."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from pykafka_wire.wire import Consumer
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.groups.classic.strategies import encode_assignment
from pykafka_wire.wire.protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
    TopicPartitions,
)
from pykafka_wire.wire.protocol.messages.group import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    encode_versioned,
)
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from pykafka_wire.wire.protocol.messages.handshake import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from pykafka_wire.wire.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
)
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import CLOSE, VERSIONS, FakeBroker, versions_response

#: A client of a broker that :func:`takes_passwords`.
SASL: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret",
}


def takes_passwords(broker: FakeBroker, *, refuses: bool = False) -> None:
    """Let a broker authenticate its clients by SASL/PLAIN, or refuse all of them; open connections stay."""
    broker.on[SaslHandshakeRequest] = lambda *_: SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
    response = SaslAuthenticateResponse(error_code=58 if refuses else 0, error_message="no" if refuses else None)
    broker.on[SaslAuthenticateRequest] = lambda *_: response


class GroupCoordinator(FakeBroker):
    """A broker that coordinates a group of one member, which leads and so looks at the topic now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"t": {0: (1, 0)}}
        self.on[FindCoordinatorRequest] = lambda request, _: itself(self, request)
        self.on[JoinGroupRequest] = lambda request, _: JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            leader="me",
            member_id="me",
            members=[
                JoinGroupResponseMember(
                    member_id="me", metadata=encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 1)
                )
            ],
        )
        self.on[SyncGroupRequest] = lambda request, _: SyncGroupResponse(
            assignment=encode_assignment([TopicPartition("t", 0)])
        )
        self.on[HeartbeatRequest] = lambda request, _: HeartbeatResponse(error_code=0)
        self.on[LeaveGroupRequest] = lambda request, _: LeaveGroupResponse(error_code=0)
        self.go_on()

    def go_on(self) -> None:
        versions = versions_response(VERSIONS | {11: (2, 7), 12: (0, 4), 13: (0, 4), 14: (0, 5)})
        self.on[ApiVersionsRequest] = lambda *_: versions
        self.on[MetadataRequest] = self.metadata

    def go_away(self) -> None:
        """Take connections, and close them at the first word."""
        self.on[ApiVersionsRequest] = lambda *_: CLOSE
        self.drop()

    def know_nothing(self) -> None:
        """Close connections that ask for metadata; members still get responses."""
        self.on[MetadataRequest] = lambda *_: CLOSE


#: The id of the topic "t" of a ConsumerGroupCoordinator.
TOPIC_ID: Final = uuid.UUID(int=7)


class ConsumerGroupCoordinator(FakeBroker):
    """A broker that coordinates a group of the consumer protocol (KIP-848) with one member, which gets what is assigned.

    Attributes:
        epoch: the member epoch of the next response.
        assigned: the partitions of topic "t" that a response assigns where the heartbeat had all fields, or they changed.
        errors: the error codes of the next heartbeats, before the coordinator goes on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"t": {0: (1, 0), 1: (1, 0)}}
        self.topic_ids = {"t": TOPIC_ID}
        self.epoch = 1
        self.assigned = [0]
        self.errors: list[int] = []
        self._told: tuple[uuid.UUID, list[int]] | None = None
        self.speak({8: (2, 9), 9: (1, 9), 68: (0, 1)})
        self.on[FindCoordinatorRequest] = lambda request, _: itself(self, request)
        self.on[ConsumerGroupHeartbeatRequest] = self.heartbeat

    @property
    def heartbeats(self) -> list[ConsumerGroupHeartbeatRequest]:
        return [request for request in self.requests if isinstance(request, ConsumerGroupHeartbeatRequest)]

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, _: int) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch >= 0 and self.errors:
            return ConsumerGroupHeartbeatResponse(error_code=self.errors.pop(0), error_message="as the test wants it")
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=request.member_epoch)
        is_full = request.rebalance_timeout_ms >= 0
        topic_id, assigned = self.topic_ids.get("t", TOPIC_ID), list(self.assigned)
        brings = is_full or self._told != (topic_id, assigned)
        self._told = topic_id, assigned
        topics = [TopicPartitions(topic_id=topic_id, partitions=assigned)] if assigned else []
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=20,
            assignment=MemberAssignment(topic_partitions=topics) if brings else None,
        )


def itself(broker: FakeBroker, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """The broker coordinates whatever is asked for."""
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=1, host="127.0.0.1", port=broker.port, error_code=0)
            for key in request.coordinator_keys
        ]
    )


def commit_response(request: OffsetCommitRequest, version: int = 0, *, code: int = 0) -> OffsetCommitResponse:
    """The response to a commit: the same code for each topic-partition."""

    def results(topic: OffsetCommitRequestTopic) -> list[OffsetCommitResponsePartition]:
        indexes = (p.partition_index for p in topic.partitions)
        return [OffsetCommitResponsePartition(partition_index=index, error_code=code) for index in indexes]

    topics = [OffsetCommitResponseTopic(name=topic.name, partitions=results(topic)) for topic in request.topics]
    return OffsetCommitResponse(topics=topics)


@contextmanager
def offsets_coordinator(
    highest: int, response: Callable[[OffsetFetchRequest, int], OffsetFetchResponse]
) -> Iterator[tuple[FakeBroker, Cluster]]:
    """A coordinator that responds to OffsetFetch up to version `highest`, and a client of it."""
    with FakeBroker(1) as fake:
        fake.speak({9: (1, highest), 10: (0, 2)})
        fake.on[OffsetFetchRequest] = response
        fake.on[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
            node_id=1, host="127.0.0.1", port=fake.port
        )
        with Cluster(ClientSettings(bootstrap_servers=(("127.0.0.1", fake.port),))) as cluster:
            yield fake, cluster


class _EndedEarlyError(Exception):
    """Ends a `with` block."""


def end_early(consumer: Consumer) -> None:
    """Close it as a `with` block does that ends by an exception: it neither commits nor calls `on_revoked`."""
    with suppress(_EndedEarlyError), consumer:
        raise _EndedEarlyError
