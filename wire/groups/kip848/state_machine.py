"""A member of a group of the consumer protocol (KIP-848), without I/O: the next heartbeat, and what its response changes.

One request does everything: ConsumerGroupHeartbeat joins, keeps the place, tells the coordinator what the member owns, and
brings the assignment. https://kafka.apache.org/protocol#The_Messages_ConsumerGroupHeartbeat

========  ==============================================  ================================================================
state     what to do                                      what ends it
========  ==============================================  ================================================================
UNJOINED  send a heartbeat with member epoch 0            its response: MEMBER
MEMBER    send a heartbeat every ``heartbeat_interval``,  FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, or it
          and at once when what it owns has changed       left for an idle caller: FENCED
FENCED    give up all that is owned, without a commit,    the call
          then :meth:`~ConsumerMemberStateMachine.rejoin`
LEFT      nothing                                         it left, or the group refuses it for good
========  ==============================================  ================================================================

The coordinator names a target. A partition that another member still owns is not in it before that member has acknowledged, by
a heartbeat without the partition, that it gave it up. So a member first gives up what is not in its target, acknowledges, and
gets the rest by a later response.

A heartbeat leaves out what the coordinator knows already. One that joins, and each one after a failure, has all fields: the
coordinator may not have processed the last one, or its response was lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple, NoReturn

from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError, broker_error
from pykafka_wire.wire.groups.membership import MemberIdentity, TopicSubscription
from pykafka_wire.wire.protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pykafka_wire.wire.topic_partitions import partitions_by_topic

JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
#: Of a static member that is to come back (KIP-848, "static membership").
_LEAVE_FOR_A_WHILE_EPOCH: Final = -2
#: Error codes of a heartbeat after which the same member goes on: it joins again, from epoch 0.
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
#: What to do about the error codes that end the membership.
_REMEDIES: Final[dict[int, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: "The consumer protocol needs Kafka 4.0 or newer with the feature group.version at 1: upgrade "
    "the brokers, or set {group.protocol}=classic.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group has members of the classic protocol that it cannot convert: stop them, choose another "
    "{group.id}, or set {group.protocol}=classic.",
    ErrorCode.FENCED_INSTANCE_ID: "Give each member a {group.instance.id} of its own.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Wait until the member that has it has left, or its session has timed out (the broker's "
    "group.consumer.session.timeout.ms), or choose another {group.instance.id}.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "Set {group.remote.assignor} to one of the broker's group.consumer.assignors, such as "
    "uniform or range, or leave it out.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "A SubscriptionPattern is in RE2's syntax.",
}


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id, as this protocol names it."""

    topic_id: uuid.UUID
    partition: int


class ConsumerMemberState(Enum):
    """The state of a member; see the module's table."""

    UNJOINED = "unjoined"
    MEMBER = "member"
    FENCED = "fenced"
    LEFT = "left"


class ConsumerMemberStateMachine:
    """One member of one group.

    Attributes:
        state: see the module's table.
        identity: member id, member epoch (as generation) and instance id; epoch -1 unless MEMBER.
        target: what the coordinator assigns, None before its first response.
        owned: what the caller owns, as it has said by :meth:`own`.
        heartbeat_interval_ms: as the coordinator wants it; 0 before its first response.
        lost_error_code: the error code by which the place in the group was lost, 0 if it was not.
        topics: the names that are subscribed to; with a pattern, those that match it now.
    """

    def __init__(
        self,
        group_id: str,
        subscription: TopicSubscription,
        *,
        member_id: str,
        instance_id: str | None = None,
        rack_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        self.group_id = group_id
        self.subscription = subscription
        self.topics = subscription.names
        self.state = ConsumerMemberState.UNJOINED
        self.identity = MemberIdentity(member_id=member_id, instance_id=instance_id)
        self.target: frozenset[TopicIdPartition] | None = None
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.heartbeat_interval_ms = 0
        self.lost_error_code = 0
        self._rack_id = rack_id
        self._assignor = assignor
        self._rebalance_timeout_ms = rebalance_timeout_ms
        #: The topics and partitions that the coordinator has acknowledged; None where it must hear all again.
        self._known_topics: tuple[str, ...] | None = None
        self._known_owned: frozenset[TopicIdPartition] | None = None

    @property
    def has_news(self) -> bool:
        """Return whether the next heartbeat should not wait: what is owned, or subscribed to, is not what the coordinator
        knows."""
        return self.state is ConsumerMemberState.MEMBER and (
            self._known_owned != self.owned or self._known_topics != self.topics
        )

    def repeat_all(self) -> None:
        """Note that a heartbeat has failed: the next one has all fields."""
        self._known_topics = self._known_owned = None

    def heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that joins, or keeps the place in the group."""
        is_full = self._known_owned is None or self._known_topics is None
        names_topics = self.subscription.server_pattern is None and (is_full or self._known_topics != self.topics)
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.identity.member_id,
            member_epoch=max(self.identity.generation, JOIN_EPOCH),
            instance_id=self.identity.instance_id,
            rack_id=self._rack_id if is_full else None,
            rebalance_timeout_ms=self._rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=list(self.topics) if names_topics else None,
            subscribed_topic_regex=self.subscription.server_pattern if is_full else None,
            server_assignor=self._assignor if is_full else None,
            topic_partitions=_by_topic(self.owned) if is_full or self._known_owned != self.owned else None,
        )

    def handle_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse
    ) -> None:
        """Take the response to a request of :meth:`heartbeat_request`.

        Raises:
            BrokerError: the group refuses this member, which is LEFT; or a topic is forbidden, and it stays what it is.
        """
        if self.state in (ConsumerMemberState.LEFT, ConsumerMemberState.FENCED):
            return
        if response.error_code:
            self._handle_error(response.error_code, response.error_message or "")
            return
        self.state = ConsumerMemberState.MEMBER
        self.lost_error_code = 0
        self.heartbeat_interval_ms = max(0, response.heartbeat_interval_ms)
        member_id = self.identity.member_id if response.member_id is None else response.member_id
        if (response.member_epoch, member_id) != (self.identity.generation, self.identity.member_id):
            self.identity = replace(self.identity, member_id=member_id, generation=response.member_epoch)
        if request.topic_partitions is not None:
            self._known_owned = frozenset(_places(request.topic_partitions))
        if request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None:
            self._known_topics = tuple(request.subscribed_topic_names or ())
        if response.assignment is not None:
            self.target = frozenset(_places(response.assignment.topic_partitions))

    def own(self, places: Iterable[TopicIdPartition]) -> None:
        """Note that the caller owns these partitions now: the next heartbeat reports them."""
        self.owned = frozenset(places)

    def fence(self, code: int) -> None:
        """Note that the place in the group is lost: the caller gives up what it owns, others may own it already."""
        self.identity = replace(self.identity, generation=-1, times_lost=self.identity.times_lost + 1)
        self.lost_error_code = code
        self.target = None
        self.state = ConsumerMemberState.FENCED

    def rejoin(self) -> None:
        """Join again, since the caller of a FENCED member has given up what it owned."""
        if self.state is ConsumerMemberState.FENCED:
            self.owned = frozenset()
            self.repeat_all()
            self.state = ConsumerMemberState.UNJOINED

    def leave_request(self, *, for_a_while: bool = False) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that leaves the group. ``for_a_while``: a static member keeps its partitions until its session
        times out; any other leaves for good. The state stays what it is.
        """
        stays = for_a_while and self.identity.instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.identity.member_id,
            member_epoch=_LEAVE_FOR_A_WHILE_EPOCH if stays else _LEAVE_EPOCH,
            instance_id=self.identity.instance_id,
        )

    def handle_leave(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Take the response to :meth:`leave_request`. Raises BrokerError where the coordinator refuses; a member that it does
        not know has left already."""
        if response.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, *_LOST):
            raise self._error(response.error_code, response.error_message or "")

    def _handle_error(self, code: int, message: str) -> None:
        # A group without members and offsets is deleted. One of another protocol refuses the join that follows.
        is_deleted = code == ErrorCode.GROUP_ID_NOT_FOUND and self.state is ConsumerMemberState.MEMBER
        if code in _LOST or is_deleted:
            self.fence(code)
            return
        self.repeat_all()
        if code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._fail(code, message)
        # As Java's consumer: the member stays what it is, since the missing ACL may be granted.
        raise self._error(code, message)

    def _fail(self, code: int, message: str) -> NoReturn:
        self.state = ConsumerMemberState.LEFT
        self.lost_error_code = code
        self.identity = replace(self.identity, generation=-1)
        raise self._error(code, message)

    def _error(self, code: int, message: str) -> BrokerError:
        detail = f"{message} (group {self.group_id!r})" if message else f"(group {self.group_id!r})"
        error = broker_error(code, api="ConsumerGroupHeartbeat", detail=detail)
        error.remedy = _REMEDIES.get(code, error.remedy)
        return error


def _by_topic(places: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    by_topic = partitions_by_topic(sorted(places))
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic.items()]


def _places(topics: Iterable[TopicPartitions]) -> Iterable[TopicIdPartition]:
    return (TopicIdPartition(topic.topic_id, partition) for topic in topics for partition in topic.partitions)
