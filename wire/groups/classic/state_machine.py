"""A member of a classic consumer group, without I/O: the next request, and what its response changes.

The rules on one page (https://kafka.apache.org/protocol#The_Messages_JoinGroup and below):

===========  ========================================  ==============================================================
state        what to do                                what ends it
===========  ========================================  ==============================================================
UNJOINED     send a JoinGroup                          its response; MEMBER_ID_REQUIRED: JoinGroup with that id (KIP-394)
ASSIGNING    :meth:`~MemberStateMachine.assign`, as    the call, with the partition counts of
             the leader                                :attr:`~MemberStateMachine.group_topics`
SYNCING      send a SyncGroup                          its response, which has the assignment
STABLE       send heartbeats                           REBALANCE_IN_PROGRESS, or a topic has new partitions: REBALANCING;
                                                       the place in the group is lost: UNJOINED
REBALANCING  send heartbeats, give up what it must,    the response to JoinGroup; the place in the group is lost: UNJOINED
             then send a JoinGroup
LEFT         nothing                                   it left, or another member took its instance id (KIP-345)
===========  ========================================  ==============================================================

A REBALANCING member has its old generation and may commit under it. The coordinator waits for its JoinGroup for the rebalance
timeout, and drops it after the session timeout unless heartbeats arrive.

In the eager protocol a member gives up its whole assignment before it joins again. In the cooperative one (KIP-429) its JoinGroup
names what it owns, :attr:`~MemberStateMachine.owned`, and it gives up what the next assignment lacks. Errors that concern the
coordinator rather than the member (it moved, it is loading) never come here: the sender retries them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, NoReturn

from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import ProtocolError, broker_error
from pykafka_wire.wire.groups.classic.strategies import (
    ASSIGNORS,
    Subscriber,
    decode_assignment,
    decode_subscriber,
    encode_assignment,
    encode_subscription,
)
from pykafka_wire.wire.groups.membership import MemberIdentity
from pykafka_wire.wire.protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from pykafka_wire.wire.topic_partitions import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
#: The coordinator does not know the member. Brokers that are not Apache's may return the second.
_UNKNOWN_MEMBER: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


class MemberState(Enum):
    """The state of a member; see the module's table."""

    UNJOINED = "unjoined"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"
    REBALANCING = "rebalancing"
    LEFT = "left"


class MemberStateMachine:
    """One member of one group.

    Attributes:
        state: see the module's table.
        identity: member id, generation and instance id.
        assignment: the partitions that the group assigned to this member, sorted; empty unless STABLE or REBALANCING.
        owned: what the caller still owns when it joins, from before; nothing in the eager protocol, nor once the place is lost.
        lost_error_code: the error code by which the place in the group was lost, 0 if it was not.
        times_lost: how often it was lost.
        protocol: the assignment strategy that the group has agreed on.
        is_leader: whether this member assigns the partitions in this generation.
        lacks_assigned_counts: whether this leader has come back to a group that keeps its assignment (KIP-814), and has not been
            told what that is.
        assigned_counts: partitions by topic, as they are assigned, or as they are since it is unknown what is assigned; None where
            this member does not lead, or has not asked yet. Other counts mean that a topic has grown, or was created or deleted.
    """

    def __init__(
        self,
        group_id: str,
        topics: Sequence[str],
        *,
        strategies: Sequence[str] = ("range",),
        instance_id: str | None = None,
        rack_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        self.group_id = group_id
        self.topics = tuple(topics)
        self.state = MemberState.UNJOINED
        self.identity = MemberIdentity(instance_id=instance_id)
        self.assignment: tuple[TopicPartition, ...] = ()
        self.owned: tuple[TopicPartition, ...] = ()
        self.lost_error_code = 0
        self.times_lost = 0
        self.protocol = ""
        self.is_leader = False
        self.lacks_assigned_counts = False
        self.assigned_counts: Mapping[str, int] | None = None
        self.strategies = tuple(strategies)
        self._rack_id = rack_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self._members: list[Subscriber] = []
        self._assignments: list[SyncGroupRequestAssignment] = []

    @property
    def has_generation(self) -> bool:
        """Return whether heartbeats keep the member's place in the group."""
        return self.state in (MemberState.STABLE, MemberState.REBALANCING)

    @property
    def lost(self) -> bool:
        """Return whether the place in the group was lost: another member may own the partitions already."""
        return bool(self.lost_error_code)

    @property
    def is_only_member(self) -> bool:
        """Return whether the group has no other member in this generation."""
        return self.is_leader and len(self._members) == 1

    @property
    def group_topics(self) -> frozenset[str]:
        """Return all topics that members of the group have subscribed to; only the leader knows them."""
        return frozenset(topic for member in self._members for topic in member.topics)

    @property
    def lacks_topics(self) -> bool:
        """Return whether this leader has assigned nothing of a topic, since it did not exist."""
        return self.assigned_counts is not None and not self.group_topics <= self.assigned_counts.keys()

    def next_request(self) -> JoinGroupRequest | SyncGroupRequest | None:
        """Return the JoinGroup or SyncGroup to send now; None if there is none."""
        if self.state in (MemberState.UNJOINED, MemberState.REBALANCING):
            return JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=self.session_timeout_ms,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                member_id=self.identity.member_id,
                group_instance_id=self.identity.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(name=strategy, metadata=self._subscription(strategy))
                    for strategy in self.strategies
                ],
            )
        if self.state is MemberState.SYNCING:
            return SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.identity.generation,
                member_id=self.identity.member_id,
                group_instance_id=self.identity.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=self.protocol,
                assignments=self._assignments,
            )
        return None

    def handle_join(self, response: JoinGroupResponse) -> None:
        """Take JoinGroup's response.

        Raises:
            BrokerError: the group refuses this member.
            ProtocolError: the response names a strategy that this member has not offered.
        """
        if self.state is MemberState.LEFT:
            return
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.identity = replace(self.identity, member_id=response.member_id, generation=-1)
            return
        if response.error_code:
            self.handle_error(response.error_code, "JoinGroup")
            return
        if response.protocol_name not in self.strategies:
            raise ProtocolError(
                f"the group agreed on {response.protocol_name!r}, which this member did not offer", api="JoinGroup"
            )
        self.protocol = response.protocol_name
        self.identity = replace(self.identity, member_id=response.member_id, generation=response.generation_id)
        self.is_leader = response.leader == response.member_id
        self._assignments = []
        self._members = [decode_subscriber(member) for member in response.members] if self.is_leader else []
        self.assigned_counts = None
        self.assignment = ()
        # KIP-814: a static leader that came back gets the members, but must not assign partitions anew.
        self.lacks_assigned_counts = self.is_leader and response.skip_assignment
        assigns = self.is_leader and not response.skip_assignment
        self.state = MemberState.ASSIGNING if assigns else MemberState.SYNCING

    def assign(self, n_partitions: Mapping[str, int]) -> None:
        """Assign the partitions to the members, as the leader.

        Args:
            n_partitions: the partition counts of those :attr:`group_topics` that exist.
        """
        if self.state is not MemberState.ASSIGNING:
            return
        self.assigned_counts = {topic: n for topic, n in n_partitions.items() if topic in self.group_topics}
        assigned = ASSIGNORS[self.protocol](self._members, self.assigned_counts)
        self._assignments = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in assigned.items()
        ]
        self.state = MemberState.SYNCING

    def handle_sync(self, response: SyncGroupResponse) -> None:
        """Take SyncGroup's response, and with it the assignment.

        Raises:
            BrokerError, ProtocolError: as :meth:`handle_join`.
        """
        if self.state is MemberState.LEFT:
            return
        if response.error_code:
            self.handle_error(response.error_code, "SyncGroup")
            return
        if response.protocol_name not in (None, "", self.protocol):  # in the response from version 5 on
            raise broker_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, api="SyncGroup")
        self.assignment = decode_assignment(response.assignment)
        self.lost_error_code = 0
        self.state = MemberState.STABLE

    def heartbeat_request(self) -> HeartbeatRequest:
        """Return the request that keeps a STABLE or REBALANCING member in its group."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.identity.generation,
            member_id=self.identity.member_id,
            group_instance_id=self.identity.instance_id,
        )

    def handle_heartbeat(self, response: HeartbeatResponse) -> None:
        """Take Heartbeat's response. Raises BrokerError where the group refuses this member."""
        if response.error_code and self.has_generation:
            self.handle_error(response.error_code, "Heartbeat")

    def leave_request(self, *, batched: bool) -> LeaveGroupRequest:
        """Return the request to leave the group; the member is LEFT from here on.

        Args:
            batched: whether the coordinator supports version 3, which names members, static ones with their instance id.
        """
        self.state = MemberState.LEFT
        self.assignment = ()
        if not batched:
            return LeaveGroupRequest(group_id=self.group_id, member_id=self.identity.member_id)
        # Both ids: with the instance id alone a fenced member would remove the one that has fenced it.
        identity = self.identity
        member = LeaveGroupRequestMember(
            member_id=identity.member_id, group_instance_id=identity.instance_id, reason="the consumer is being closed"
        )
        return LeaveGroupRequest(group_id=self.group_id, members=[member])

    def handle_leave(self, response: LeaveGroupResponse) -> None:
        """Take LeaveGroup's response. Raises BrokerError where the coordinator refuses; a member that it does not know has
        left already."""
        for code in response.error_codes():
            if code not in (ErrorCode.NONE, *_UNKNOWN_MEMBER, ErrorCode.FENCED_INSTANCE_ID):
                raise broker_error(code, api="LeaveGroup", detail=f"(group {self.group_id!r})")

    def rejoin(self) -> None:
        """Join again under the same member id: the group rebalances, or topics have changed or grown."""
        if self.has_generation:
            self.state = MemberState.REBALANCING
        elif self.state is not MemberState.LEFT:
            self.state = MemberState.UNJOINED

    def handle_error(self, code: int, api: str) -> None:
        """Act on an error code that concerns this member.

        Raises:
            BrokerError: joining again would not help. The member is LEFT.
        """
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()
        elif code in _UNKNOWN_MEMBER:
            self._lose(code, "")
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._lose(code, self.identity.member_id)
        else:
            self._fail(code, api)

    def drop_out(self) -> None:
        """Leave for a caller that does not poll: the member joins again when the caller does."""
        self._lose(ErrorCode.ILLEGAL_GENERATION, self.identity.member_id)
        self.state = MemberState.UNJOINED

    def start_over(self) -> None:
        """Start over as a new member, since the group has refused this one, which is LEFT."""
        self._lose(self.lost_error_code, "")
        self.state = MemberState.UNJOINED

    def _subscription(self, strategy: str) -> bytes:
        return encode_subscription(
            strategy, self.topics, self.owned, generation=self.identity.generation, rack_id=self._rack_id
        )

    def _lose(self, code: int, member_id: str) -> None:
        """Lose the place in the group: the member joins again without the old generation."""
        self.times_lost += 1
        self.identity = replace(self.identity, member_id=member_id, generation=-1, times_lost=self.times_lost)
        self.lost_error_code = code
        self.assignment = self.owned = ()
        if self.state is not MemberState.LEFT:
            self.state = MemberState.UNJOINED

    def _fail(self, code: int, api: str) -> NoReturn:
        self.state = MemberState.LEFT
        self.assignment = ()
        self.lost_error_code = code
        error = broker_error(code, api=api, detail=f"(group {self.group_id!r})")
        if code == ErrorCode.FENCED_INSTANCE_ID:
            error.remedy = (
                f"Give each member a {{group.instance.id}} of its own; {self.identity.instance_id!r} is in use."
            )
        raise error
