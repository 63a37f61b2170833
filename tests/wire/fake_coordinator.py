"""A fake broker that coordinates a group of one member."""

from __future__ import annotations

from pykafka_wire.wire.groups.member_state import encode_assignment
from pykafka_wire.wire.protocol.messages.api_versions import ApiVersionsRequest
from pykafka_wire.wire.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, encode_versioned
from pykafka_wire.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykafka_wire.wire.protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_broker import CLOSE, VERSIONS, FakeBroker, versions_response


class GroupCoordinator(FakeBroker):
    """A broker that coordinates a group of one member, which leads and so looks at the topic now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"t": {0: (1, 0)}}
        self.on[FindCoordinatorRequest] = lambda request, _: FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.port, error_code=0)
                for key in request.coordinator_keys
            ]
        )
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
        """Close connections that ask for metadata; members are still answered."""
        self.on[MetadataRequest] = lambda *_: CLOSE
