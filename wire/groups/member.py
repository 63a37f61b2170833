"""A member of a consumer group on the network: sends the state machine's requests to the group's coordinator.

One step at a time, in the caller's thread; :mod:`~pykafka_wire.wire.groups.heartbeat` keeps a member alive in a thread of its
own. The content of the requests belongs to :mod:`~pykafka_wire.wire.groups.member_state`, retries while the coordinator moves
or loads to :mod:`~pykafka_wire.wire.cluster.cluster`.
"""

from __future__ import annotations

import itertools
import threading
from typing import Final, TypeVar

from pykafka_wire.wire.backoff import Backoff
from pykafka_wire.wire.cluster.cluster import COORDINATION, Cluster, CoordinatorKind, Deadline
from pykafka_wire.wire.cluster.rack import rack_of
from pykafka_wire.wire.deadline import CancellableDeadline
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.groups.member_state import MemberState, MemberStateMachine
from pykafka_wire.wire.groups.member_thread import LEAVE_TIMEOUT_MS, leave_group
from pykafka_wire.wire.groups.subscription import Subscription
from pykafka_wire.wire.protocol.message import Request
from pykafka_wire.wire.protocol.messages.group import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupResponse,
)
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

#: The time for a response to JoinGroup on top of the rebalance timeout, as in Java's client.
_JOIN_EXTRA_MS: Final = 5_000
_FIRST_BATCHED_LEAVE: Final = 3
ResponseT = TypeVar("ResponseT", JoinGroupResponse, SyncGroupResponse, HeartbeatResponse)
_numbers = itertools.count(1)


def member_state_machine(settings: ClientSettings, group_id: str, topics: tuple[str, ...]) -> MemberStateMachine:
    """A member as the settings describe it, which has not joined yet.

    Raises SettingsError where this client implements none of the assignment strategies."""
    if not settings.partition_assignment_strategy:
        raise SettingsError(
            "partition.assignment.strategy names no strategy that this client implements.",
            setting="partition.assignment.strategy",
            remedy="Use range, roundrobin or cooperative-sticky, here and in the other members of the group.",
        )
    return MemberStateMachine(
        group_id,
        topics,
        strategies=settings.partition_assignment_strategy,
        instance_id=settings.group_instance_id,
        rack_id=rack_of(settings) or None,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
    )


class GroupMember:
    """Sends the requests of a :class:`MemberStateMachine`, on a connection of its own: the response to a JoinGroup waits until the
    other members have joined as well. Not thread-safe, but :meth:`close` may be called from another thread, and ends a
    :meth:`join`.
    """

    def __init__(
        self, cluster: Cluster, state_machine: MemberStateMachine, *, subscription: Subscription | None = None
    ) -> None:
        """A member that has not joined yet.

        Args:
            subscription: with a pattern, the state machine's topics become those that match it before each join.
        """
        self.state_machine = state_machine
        self._subscription = subscription or Subscription(names=state_machine.topics)
        self._cluster = cluster
        self._purpose = f"member-{next(_numbers)}"
        self._closed = threading.Event()
        self._backoff = Backoff(cluster.settings)

    def join(self) -> tuple[TopicPartition, ...]:
        """The partitions that the group assigns to this member, after as many rounds as it takes; none if it left meanwhile.

        Raises:
            BrokerError: the group refuses the member.
            DeadlineExceededError: no coordinator responded within the rebalance timeout.
        """
        n_tries = 0
        while self.state_machine.state not in (MemberState.STABLE, MemberState.LEFT):
            if self.state_machine.state is MemberState.UNJOINED:
                n_tries += 1
                # The first two tries take a member id, or find that the old one is gone.
                if n_tries > 2:
                    self._closed.wait(self._backoff.delay_ms(n_tries - 2) / 1000)
            self.step()
        return self.state_machine.assignment

    def step(self) -> None:
        """One step of :meth:`join`: a JoinGroup, the assignment if this member leads, or a SyncGroup."""
        machine = self.state_machine
        if machine.state in (MemberState.UNJOINED, MemberState.REBALANCING):
            self._match_topics()
        request = machine.next_request()
        if machine.state is MemberState.ASSIGNING:
            machine.assign(self._n_partitions(machine.group_topics))
        elif isinstance(request, JoinGroupRequest):
            timeout_ms = machine.rebalance_timeout_ms + _JOIN_EXTRA_MS
            machine.handle_join(self._request(request, timeout_ms=timeout_ms))
        elif request is not None:
            machine.handle_sync(self._request(request))

    def heartbeat(self) -> bool:
        """Whether the member is still STABLE after one heartbeat; if not, it must join again.

        Raises:
            BrokerError: another member has its instance id, or the group refuses it for another reason.
            DeadlineExceededError: no coordinator responded within ``default.api.timeout.ms``.
        """
        self.state_machine.handle_heartbeat(self._request(self.state_machine.heartbeat_request()))
        return self.state_machine.state is MemberState.STABLE

    def topics_have_changed(self) -> bool:
        """Whether other topics match the pattern than in the last join, or this leader's assignment no longer covers the
        partitions of all topics."""
        machine = self.state_machine
        # The next heartbeat is due within the session timeout.
        timeout_ms = min(self._cluster.settings.default_api_timeout_ms, machine.session_timeout_ms // 3)
        if self._subscription.pattern is not None and self._matching(timeout_ms) != machine.topics:
            return True
        if not (machine.is_leader and machine.assigned_counts):
            return False
        return self._n_partitions(machine.group_topics, timeout_ms) != machine.assigned_counts

    def _match_topics(self) -> None:
        if self._subscription.pattern is not None:
            self.state_machine.topics = self._matching()

    def _matching(self, timeout_ms: int | None = None) -> tuple[str, ...]:
        return self._subscription.matches(self._cluster.metadata.topics(None, deadline=self._deadline(timeout_ms)))

    def leave(self) -> None:
        """Leave the group, so that the others need not wait for the session timeout. A failure is logged, never raised."""
        machine = self.state_machine
        is_member = machine.identity.member_id and machine.state is not MemberState.LEFT
        machine.state = MemberState.LEFT
        if not is_member:
            return
        deadline = Deadline.after_ms(LEAVE_TIMEOUT_MS)

        def build(node: int) -> LeaveGroupRequest:
            batched = self._cluster.supports(
                node, LeaveGroupRequest, _FIRST_BATCHED_LEAVE, purpose=COORDINATION, deadline=deadline
            )
            return machine.leave_request(batched=batched)

        leave_group(self._cluster, machine.group_id, build, machine.handle_leave, deadline)

    def close(self) -> None:
        """Close the member's connection, and end the requests of another thread on it."""
        self._closed.set()
        self._cluster.close_connections(self._purpose)

    def _request(self, request: Request[ResponseT], *, timeout_ms: int | None = None) -> ResponseT:
        return self._cluster.coordinator_request(
            CoordinatorKind.GROUP,
            self.state_machine.group_id,
            lambda _: request,
            purpose=self._purpose,
            request_timeout_ms=timeout_ms,
            deadline=self._deadline(timeout_ms),
        )

    def _deadline(self, timeout_ms: int | None = None) -> Deadline:
        if timeout_ms is None:
            timeout_ms = self._cluster.settings.default_api_timeout_ms
        return CancellableDeadline(Deadline.after_ms(timeout_ms).at, self._closed)

    def _n_partitions(self, topics: frozenset[str], timeout_ms: int | None = None) -> dict[str, int]:
        # Metadata of all topics: a request for one that does not exist (yet) would wait for it.
        known = self._cluster.metadata.topics(None, deadline=self._deadline(timeout_ms))
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}
