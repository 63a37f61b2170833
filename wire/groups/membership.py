"""A member of a classic consumer group, without I/O: what to send next, and what an answer means.

The rules on one page (https://kafka.apache.org/protocol#The_Messages_JoinGroup and below):

=========  ==============================  =====================================================================
state      what is due                     what ends it
=========  ==============================  =====================================================================
UNJOINED   :meth:`Membership.next_request` JoinGroup's answer. MEMBER_ID_REQUIRED: join again with the id (KIP-394)
LEADING    :meth:`Membership.assign`       the caller gives the partition counts of :attr:`Membership.group_topics`
SYNCING    :meth:`Membership.next_request` SyncGroup's answer, which brings the assignment
STABLE     heartbeats                      REBALANCE_IN_PROGRESS, or a topic that has grown: REBALANCING. A lost place in the
                                           group: UNJOINED
REBALANCING heartbeats, until the caller   JoinGroup's answer. Until then the member has its old generation, may commit with it,
           has given up what it owns;      and must send heartbeats: the group waits for it for the rebalance timeout, and drops
           then as UNJOINED                it after the session timeout
GONE       nothing                         it left, or another member took its instance id (KIP-345)
=========  ==============================  =====================================================================

The protocol is the eager one (KIP-429's older half): a member gives up all that it owns before it joins again. Errors that
concern the coordinator rather than the member (it moved, it is loading) never come here: whoever sends retries them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn

from pykafka_wire.wire.errors import ProtocolError, broker_error
from pykafka_wire.wire.groups.assignors import ASSIGNORS, Subscriber
from pykafka_wire.wire.protocol.messages.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)
from pykafka_wire.wire.protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from pykafka_wire.wire.topics import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
#: What Java's consumers write: 3 adds the rack, which this member does not name; all of them read 1.
_PROTOCOL_VERSION: Final = 1
_NONE: Final = 0
ILLEGAL_GENERATION: Final = 22
_INCONSISTENT_PROTOCOL: Final = 23
UNKNOWN_MEMBER_ID: Final = 25
_REBALANCE_IN_PROGRESS: Final = 27
#: What brokers that are not Apache's may answer where Apache's answer UNKNOWN_MEMBER_ID.
_GROUP_ID_NOT_FOUND: Final = 69
_MEMBER_ID_REQUIRED: Final = 79
_FENCED_INSTANCE_ID: Final = 82


class MemberState(Enum):
    """Where a member stands; see the module's table."""

    UNJOINED = "unjoined"
    LEADING = "leading"
    SYNCING = "syncing"
    STABLE = "stable"
    REBALANCING = "rebalancing"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a member is to its coordinator, at present; a commit carries it. Replaced as a whole, so threads may read it."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class Membership:
    """One member of one group.

    Attributes:
        state: what is due.
        identity: member id, generation and instance id.
        assignment: what the group gave this member, sorted; empty unless STABLE or REBALANCING.
        lost_code: the error code that took the last place in the group away, 0 where it was given back.
        protocol: the strategy that the group has agreed on.
        leads: whether this member shares the partitions out in this generation.
    """

    def __init__(
        self,
        group_id: str,
        topics: Sequence[str],
        *,
        strategies: Sequence[str] = ("range",),
        instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        self.group_id = group_id
        self.topics = tuple(topics)
        self.state = MemberState.UNJOINED
        self.identity = Identity(instance_id=instance_id)
        self.assignment: tuple[TopicPartition, ...] = ()
        self.lost_code = 0
        self.protocol = ""
        self.leads = False
        #: What the leader shared out, to see when a topic has got more partitions.
        self.shared_out: dict[str, int] = {}
        self._strategies = tuple(strategies)
        self._session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self._members: list[Subscriber] = []
        self._shares: list[SyncGroupRequestAssignment] = []

    @property
    def has_generation(self) -> bool:
        """Whether heartbeats keep the member's place in the group."""
        return self.state in (MemberState.STABLE, MemberState.REBALANCING)

    @property
    def lost(self) -> bool:
        """Whether the place was lost rather than given back: what was owned may be another's by now."""
        return bool(self.lost_code)

    @property
    def alone(self) -> bool:
        """Whether the group has no other member in this generation."""
        return self.leads and len(self._members) == 1

    @property
    def group_topics(self) -> frozenset[str]:
        """Every topic that a member of the group subscribed to; known to the leader."""
        return frozenset(topic for member in self._members for topic in member.topics)

    def next_request(self) -> JoinGroupRequest | SyncGroupRequest | None:
        """The request that is due; None where none is."""
        if self.state in (MemberState.UNJOINED, MemberState.REBALANCING):
            subscription = encode_versioned(ConsumerProtocolSubscription(topics=list(self.topics)), _PROTOCOL_VERSION)
            return JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                member_id=self.identity.member_id,
                group_instance_id=self.identity.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription) for name in self._strategies],
            )
        if self.state is MemberState.SYNCING:
            return SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.identity.generation,
                member_id=self.identity.member_id,
                group_instance_id=self.identity.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=self.protocol,
                assignments=self._shares,
            )
        return None

    def joined(self, response: JoinGroupResponse) -> None:
        """JoinGroup's answer.

        Raises:
            BrokerError: the group will not have this member.
            ProtocolError: the answer makes no sense.
        """
        if self.state is MemberState.GONE:
            return
        if response.error_code == _MEMBER_ID_REQUIRED:
            self.identity = self._identity(response.member_id)
            return
        if response.error_code:
            self.refused(response.error_code, "JoinGroup")
            return
        if response.protocol_name not in self._strategies:
            raise ProtocolError(
                f"the group agreed on {response.protocol_name!r}, which this member did not offer", api="JoinGroup"
            )
        self.protocol = response.protocol_name
        self.identity = self._identity(response.member_id, response.generation_id)
        self.leads = response.leader == response.member_id
        self._shares = []
        self._members = []
        self.assignment = ()
        self.state = MemberState.SYNCING
        if self.leads:
            self._members = [
                Subscriber(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    topics=frozenset(decode_versioned(ConsumerProtocolSubscription, member.metadata).topics),
                )
                for member in response.members
            ]
            # KIP-814: a static leader that came back is told of its members, yet is not to share out anew.
            if not response.skip_assignment:
                self.state = MemberState.LEADING

    def assign(self, n_partitions: Mapping[str, int]) -> None:
        """Share out, as the leader: ``n_partitions`` has the partition counts of :attr:`group_topics` that exist."""
        if self.state is not MemberState.LEADING:
            return
        self.shared_out = {topic: n for topic, n in n_partitions.items() if topic in self.group_topics}
        shares = ASSIGNORS[self.protocol](self._members, self.shared_out)
        self._shares = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share))
            for member_id, share in shares.items()
        ]
        self.state = MemberState.SYNCING

    def synced(self, response: SyncGroupResponse) -> None:
        """SyncGroup's answer.

        Raises:
            BrokerError, ProtocolError: as :meth:`joined`.
        """
        if self.state is MemberState.GONE:
            return
        if response.error_code:
            self.refused(response.error_code, "SyncGroup")
            return
        if response.protocol_name not in (None, "", self.protocol):  # said from version 5 on
            raise broker_error(_INCONSISTENT_PROTOCOL, api="SyncGroup")
        self.assignment = decode_assignment(response.assignment)
        self.lost_code = 0
        self.state = MemberState.STABLE

    def heartbeat(self) -> HeartbeatRequest:
        """The request that keeps a STABLE or REBALANCING member in its group."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.identity.generation,
            member_id=self.identity.member_id,
            group_instance_id=self.identity.instance_id,
        )

    def heard(self, response: HeartbeatResponse) -> None:
        """Heartbeat's answer. Raises BrokerError where the member is out for good."""
        if response.error_code and self.has_generation:
            self.refused(response.error_code, "Heartbeat")

    def leave(self, *, batched: bool, reason: str = "the consumer is being closed") -> LeaveGroupRequest:
        """The request that gives the place up at once; the member is GONE from here on.

        Args:
            batched: whether the coordinator knows version 3, which takes members, static ones with their instance id.
        """
        self.state = MemberState.GONE
        self.assignment = ()
        if not batched:
            return LeaveGroupRequest(group_id=self.group_id, member_id=self.identity.member_id)
        # Both ids: by the instance id alone a member would give up the place of the one that has taken it over.
        identity = self.identity
        member = MemberIdentity(member_id=identity.member_id, group_instance_id=identity.instance_id, reason=reason)
        return LeaveGroupRequest(group_id=self.group_id, members=[member])

    def left(self, response: LeaveGroupResponse) -> None:
        """LeaveGroup's answer. Raises BrokerError where the coordinator refuses; that the place is gone already is well."""
        for code in (response.error_code, *(member.error_code for member in response.members)):
            if code not in (_NONE, UNKNOWN_MEMBER_ID, _GROUP_ID_NOT_FOUND, _FENCED_INSTANCE_ID):
                raise broker_error(code, api="LeaveGroup", detail=f"(group {self.group_id!r})")

    def rejoin(self) -> None:
        """Join again, under the same member id: the group rebalances, or topics have changed or grown."""
        if self.has_generation:
            self.state = MemberState.REBALANCING
        elif self.state is not MemberState.GONE:
            self.state = MemberState.UNJOINED

    def refused(self, code: int, api: str) -> None:
        """Act on an error code that concerns this member.

        Raises:
            BrokerError: anything but another join is needed. The member is GONE.
        """
        if code == _REBALANCE_IN_PROGRESS:
            self.rejoin()
        elif code in (UNKNOWN_MEMBER_ID, _GROUP_ID_NOT_FOUND):
            self._lose(code, "")
        elif code == ILLEGAL_GENERATION:
            self._lose(code, self.identity.member_id)
        else:
            self._gone(code, api)

    def _lose(self, code: int, member_id: str) -> None:
        """The place in the group is another's by now: join again, as if for the first time."""
        self.identity = self._identity(member_id)
        self.lost_code = code
        self.assignment = ()
        if self.state is not MemberState.GONE:
            self.state = MemberState.UNJOINED

    def _gone(self, code: int, api: str) -> NoReturn:
        self.state = MemberState.GONE
        self.assignment = ()
        self.lost_code = code
        error = broker_error(code, api=api, detail=f"(group {self.group_id!r})")
        if code == _FENCED_INSTANCE_ID:
            error.remedy = f"Give each member a group.instance.id of its own; {self.identity.instance_id!r} is in use."
        raise error

    def _identity(self, member_id: str, generation: int = -1) -> Identity:
        return Identity(member_id=member_id, generation=generation, instance_id=self.identity.instance_id)


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """A member's share, as SyncGroup carries it."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    assigned = [AssignedTopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), _PROTOCOL_VERSION)


def decode_assignment(data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """A member's share, sorted; a member that gets nothing may be sent no bytes at all.

    Raises ProtocolError for malformed bytes."""
    if not len(data):
        return ()
    assigned = decode_versioned(ConsumerProtocolAssignment, data).assigned_partitions
    return tuple(sorted(TopicPartition(each.topic, partition) for each in assigned for partition in each.partitions))
