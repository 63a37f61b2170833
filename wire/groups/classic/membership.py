"""A consumer's place in a group of the classic protocol: the requests, step by step, the thread that joins and sends heartbeats,
and when the consumer joins again, what it gives up before or after.

The content of the requests belongs to :mod:`~pykafka_wire.wire.groups.classic.state_machine`, retries while the coordinator moves
or loads to :mod:`~pykafka_wire.wire.cluster.client`, the thread to :mod:`~pykafka_wire.wire.groups.member_thread`.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeVar

from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.cluster.rack import rack_of
from pykafka_wire.wire.cluster.retries import Backoff
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError, ProtocolError, SettingsError, TransportError, WireError, broker_error
from pykafka_wire.wire.groups.classic.state_machine import (
    MemberState,
    MemberStateMachine,
)
from pykafka_wire.wire.groups.classic.strategies import are_cooperative, decode_assignment
from pykafka_wire.wire.groups.member_thread import LEAVE_TIMEOUT_MS, MemberThread, leave_group, longer_pause_s
from pykafka_wire.wire.groups.membership import MemberIdentity, TopicSubscription
from pykafka_wire.wire.protocol.message import ByVersion, Request
from pykafka_wire.wire.protocol.messages.group import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupResponse,
)
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

#: The time for a response to JoinGroup on top of the rebalance timeout, as in Java's client.
_JOIN_EXTRA_MS: Final = 5_000
_FIRST_BATCHED_LEAVE: Final = 3
ResponseT = TypeVar("ResponseT", JoinGroupResponse, SyncGroupResponse, HeartbeatResponse, DescribeGroupsResponse)
_numbers = itertools.count(1)


def member_state_machine(settings: ClientSettings, group_id: str, topics: tuple[str, ...]) -> MemberStateMachine:
    """Return a member as the settings describe it, which has not joined yet.

    Raises SettingsError where this client implements none of the assignment strategies."""
    if not settings.partition_assignment_strategy:
        raise SettingsError(
            "{setting} names no strategy that this client implements.",
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
        self, cluster: Cluster, state_machine: MemberStateMachine, *, subscription: TopicSubscription | None = None
    ) -> None:
        """Begin as a member that has not joined yet.

        Args:
            subscription: with a pattern, the state machine's topics become those that match it before each join.
        """
        self.state_machine = state_machine
        self._subscription = subscription or TopicSubscription(names=state_machine.topics)
        self._cluster = cluster
        self._purpose = f"member-{next(_numbers)}"
        self._closed = threading.Event()
        self._backoff = Backoff(cluster.settings)

    def join(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that the group assigns to this member, after as many rounds as it takes; none if it left
        meanwhile.

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
        """Take one step of :meth:`join`: a JoinGroup, the assignment if this member leads, or a SyncGroup."""
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
        """Return whether the member is still STABLE after one heartbeat; if not, it must join again.

        Raises:
            BrokerError: another member has its instance id, or the group refuses it for another reason.
            DeadlineExceededError: no coordinator responded within ``default.api.timeout.ms``.
        """
        self.state_machine.handle_heartbeat(self._request(self.state_machine.heartbeat_request()))
        return self.state_machine.state is MemberState.STABLE

    def topics_have_changed(self) -> bool:
        """Return whether other topics match the pattern than in the last join, or this leader's assignment no longer covers the
        partitions of all topics."""
        if self._subscription.pattern is not None and self._matching(self._check_ms) != self.state_machine.topics:
            return True
        if self.state_machine.lacks_assigned_counts:
            self._describe_assigned()
        return self.counts_have_changed()

    def counts_have_changed(self) -> bool:
        """Return whether this leader's assignment no longer covers the partitions of all topics that members have subscribed
        to.
        """
        machine = self.state_machine
        return (
            machine.assigned_counts is not None
            and self._n_partitions(machine.group_topics, self._check_ms) != machine.assigned_counts
        )

    @property
    def _check_ms(self) -> int:
        """Return the time for metadata between two heartbeats: the next one is due within the session timeout."""
        return min(self._cluster.settings.default_api_timeout_ms, self.state_machine.session_timeout_ms // 3)

    def _describe_assigned(self) -> None:
        """Ask the coordinator what the group has assigned: topics may have grown while their leader was away. Where it does not
        say, a topic that grows from now on is noticed, and the next check asks again.

        Raises TransportError where it cannot be asked."""
        machine, group_id = self.state_machine, self.state_machine.group_id
        try:
            groups = self._request(DescribeGroupsRequest(groups=[group_id]), timeout_ms=self._check_ms).groups
            if not groups:
                raise ProtocolError("the response describes no group", api="DescribeGroups")
            if groups[0].error_code:
                raise broker_error(groups[0].error_code, api="DescribeGroups", detail=f"(group {group_id!r})")
            assigned = {tp for member in groups[0].members for tp in decode_assignment(member.member_assignment)}
        except TransportError:
            raise
        except WireError as error:
            if machine.assigned_counts is None:
                logger.warning("group %s: what it has assigned is unknown, and is asked again: %s", group_id, error)
                machine.assigned_counts = self._n_partitions(machine.group_topics, self._check_ms)
            return
        machine.assigned_counts = dict(Counter(tp.topic for tp in assigned))
        machine.lacks_assigned_counts = False

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
        leave = ByVersion(
            LeaveGroupRequest, lambda version: machine.leave_request(batched=version >= _FIRST_BATCHED_LEAVE)
        )
        leave_group(self._cluster, machine.group_id, leave, machine.handle_leave, deadline)

    def close(self) -> None:
        """Close the member's connection, and end the requests of another thread on it."""
        self._closed.set()
        self._cluster.close_connections(self._purpose)

    def _request(self, request: Request[ResponseT], *, timeout_ms: int | None = None) -> ResponseT:
        group_id = self.state_machine.group_id
        return self._cluster.by_coordinator(
            CoordinatorKind.GROUP,
            {group_id: request},
            purpose=self._purpose,
            request_timeout_ms=timeout_ms,
            deadline=self._deadline(timeout_ms),
        )[group_id]

    def _deadline(self, timeout_ms: int | None = None) -> Deadline:
        if timeout_ms is None:
            timeout_ms = self._cluster.settings.default_api_timeout_ms
        return Deadline.after_ms(timeout_ms, cancelled=self._closed)

    def _n_partitions(self, topics: frozenset[str], timeout_ms: int | None = None) -> dict[str, int]:
        known = self._cluster.metadata.existing_topics(topics, deadline=self._deadline(timeout_ms))
        return {name: len(topic.partitions) for name, topic in known.items()}


#: How often a wait looks whether its deadline was cancelled, or whether a member that leaves has left.
_POLL_S: Final = 0.02


class ClassicMembership:
    """A member of a group, and the thread that joins and sends its heartbeats. A consumer uses it as
    :class:`~pykafka_wire.wire.groups.membership.Membership`.

    In the eager protocol the consumer gives everything up before each join. In the cooperative one (KIP-429) it goes on reading
    while it joins, gives up what the new assignment lacks, and joins once more, so that the group can assign what it gave up.

    The rebalance protocol of the caller: while :attr:`state` is STABLE it owns what the group has assigned. In any other state it
    gives up what it owns (it may commit before, as long as the place in the group is not lost), and calls :meth:`request_join`.
    Until then heartbeats go on under the old generation.

    After an error that ends the membership, :attr:`error` holds it and the thread has ended. No error ends it where the member
    joins again by itself, unless another member has taken its instance id.
    """

    def __init__(
        self, member: GroupMember, settings: ClientSettings, *, max_idle_ms: float | None = None, rejoins: bool = False
    ) -> None:
        """Begin as a member that has not joined yet.

        Args:
            max_idle_ms: the member leaves the group when :meth:`record_poll` was not called for so long
                (``max.poll.interval.ms``).
            rejoins: join again without :meth:`request_join`, for a caller that does not use the assignment: at once after a
                rebalance or a loss of the place, after a pause where the group refuses the member. The membership ends where
                another member has taken the instance id.
        """
        self.member = member
        self.state_machine = member.state_machine
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._refresh_s = settings.metadata_max_age_ms / 1000
        self._refreshed_at = time.monotonic()
        self._rejoins = rejoins
        self._joining = False
        self._thread = MemberThread(self, member.state_machine.group_id, settings, max_idle_ms=max_idle_ms)
        self._changed = self._thread.changed
        self._is_cooperative = are_cooperative(self.state_machine.strategies)
        self._owned: frozenset[TopicPartition] = frozenset()
        #: The last target, whether it was this generation's assignment, and whether the consumer has taken that up.
        self._offered: frozenset[TopicPartition] = frozenset()
        self._offers_assignment = False
        self._is_applied = False
        #: Of the machine's ``times_lost``, those after which the consumer gave everything up, and as the last target saw it.
        self._losses_handled = 0
        self._losses_seen = 0

    @classmethod
    def of(cls, cluster: Cluster, group: str, subscription: TopicSubscription) -> ClassicMembership:
        """Return a member as the cluster's settings describe it, which has not joined yet.

        Raises SettingsError where this client implements none of the assignment strategies, or nobody matches the pattern."""
        subscription.require_client_side()
        settings = cluster.settings
        machine = member_state_machine(settings, group, subscription.names)
        member = GroupMember(cluster, machine, subscription=subscription)
        return cls(member, settings, max_idle_ms=settings.max_poll_interval_ms)

    @property
    def error(self) -> WireError | None:
        """Return the error that has ended the membership."""
        return self._thread.error

    @property
    def state(self) -> MemberState:
        """Return the member's state; UNJOINED also from :meth:`request_join` until it has joined, and after an error."""
        with self._changed:
            return MemberState.UNJOINED if self.joining or self.error is not None else self.state_machine.state

    @property
    def joining(self) -> bool:
        """Return whether a join is under way."""
        return self._joining and self.error is None

    @property
    def needs_join(self) -> bool:
        """Return whether the member is to join, or join again, and :meth:`request_join` was not called for it yet."""
        with self._changed:
            ended = self.error is not None or self.state_machine.state is MemberState.LEFT
            return not (self._joining or ended) and self.state_machine.state is not MemberState.STABLE

    def request_join(self) -> None:
        """Join, or join again, in the background."""
        with self._changed:
            self._joining = True
            self._changed.notify_all()
            self._thread.start()

    def wait_until_stable(self, deadline: Deadline) -> bool:
        """Return whether the member is STABLE; waits for it until ``deadline``.

        Raises:
            NoBrokerAvailableError: no broker responds, nor ever did: the addresses may be wrong. The thread keeps trying.
            WireError: the error that has ended the membership; one of credentials, once for each try; or the one after which a
                member that joins by itself tries again.
        """
        with self._changed:
            while not deadline.expired and self.error is None:
                if self._joining and not self._thread.has_failed:
                    self._changed.wait(deadline.remaining_ms() / 1000)
                elif self.state_machine.state is MemberState.LEFT and not self._thread.is_closing:
                    self._changed.wait(min(_POLL_S, deadline.remaining_ms() / 1000))  # as for an idle caller
                else:
                    break
            if self._joining or self.error is not None:
                self._thread.raise_failure(keep=self._rejoins)
            return not self._joining and self.state_machine.state is MemberState.STABLE

    def wait_for_join(self, deadline: Deadline) -> bool:
        """Return whether a join was under way and has succeeded; waits for its end until ``deadline``."""
        with self._changed:
            was_joining = self.joining
            while self.joining and not (self._thread.is_closing or deadline.expired):
                self._changed.wait(min(_POLL_S, deadline.remaining_ms() / 1000))  # a deadline may be cancelled
            return was_joining and not self._joining and self.error is None

    def record_poll(self) -> None:
        """Note that the caller polls: ``max.poll.interval.ms`` begins anew."""
        self._thread.record_poll()

    def close(self, *, leave: bool = True) -> None:
        """End the thread, and leave the group; ``leave=False`` for a static member that is to come back soon. May be called
        twice."""
        self._thread.close(leave=leave)

    # --- as a consumer sees it: see Membership ------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        return self.state_machine.times_lost != self._losses_handled

    @property
    def identity(self) -> MemberIdentity:
        identity = self.state_machine.identity
        # A commit without a generation counts as one from outside the group, and could rewind it. In the cooperative protocol
        # a member that was lost while it joined has joined again since, but what it owned may be another member's.
        if identity.generation < 0 or (self._owned and self.lost):
            code = self.state_machine.lost_error_code or ErrorCode.UNKNOWN_MEMBER_ID
            raise broker_error(code, api="OffsetCommit", detail=f"(group {self.state_machine.group_id!r})")
        return identity

    def newer_identity(self, identity: MemberIdentity, deadline: Deadline) -> MemberIdentity | None:
        if not self._is_cooperative:
            return None  # what the old generation owned may be another member's in the new one
        # The consumer keeps what it owns while the member joins: it commits for that under the group's new generation.
        has_joined = self.wait_for_join(deadline)
        newer = self.state_machine.identity
        # After a loss others may own the partitions, even where the consumer has given them up and taken others up since.
        is_same_place = newer.times_lost == identity.times_lost and newer.generation >= 0
        return newer if is_same_place and (has_joined or newer != identity) else None

    def target(self) -> frozenset[TopicPartition] | None:
        self._losses_seen = self.state_machine.times_lost
        if not self._owned:
            self._losses_handled = self._losses_seen
        elif self._losses_seen != self._losses_handled:
            return self._offer(frozenset(), is_assignment=False)
        if self.needs_join:
            if not self._is_cooperative:
                return self._offer(frozenset(), is_assignment=False)
            self._join()
        if self._is_applied or self.state is not MemberState.STABLE:
            return None
        return self._offer(frozenset(self.state_machine.assignment), is_assignment=True)

    def _offer(self, partitions: frozenset[TopicPartition], *, is_assignment: bool) -> frozenset[TopicPartition]:
        self._offered, self._offers_assignment = partitions, is_assignment
        return partitions

    def topic_ids(self) -> Mapping[TopicPartition, uuid.UUID]:
        return {}

    def recreated(self) -> frozenset[TopicPartition]:
        return frozenset()

    def acknowledge(self) -> None:
        gave_up = self._owned - self._offered
        self._owned = self._offered
        if self._offers_assignment:
            self._is_applied = True
            if gave_up and self._is_cooperative:
                self.state_machine.rejoin()
                self._join()
        else:
            self._losses_handled = self._losses_seen
            if self.needs_join:
                self._join()

    def may_read(self, deadline: Deadline) -> bool:
        with self._changed:
            self._thread.raise_failure(keep=self._rejoins)
        # In the cooperative protocol reading goes on while the member joins.
        return bool(self._owned) or self.wait_until_stable(deadline)

    def _join(self) -> None:
        self._is_applied = False
        self.state_machine.owned = tuple(sorted(self._owned)) if self._is_cooperative else ()
        if self.state_machine.times_lost != self._losses_handled:
            self.state_machine.owned = ()  # lost this very moment: the next target has the consumer give it up
        self.request_join()

    # --- what its thread does: see GroupProtocol ----------------------------------------------------------------------

    @property
    def waits_for_caller(self) -> bool:
        return not (self._joining or self.has_place)

    @property
    def is_urgent(self) -> bool:
        return self._joining

    @property
    def has_place(self) -> bool:
        return not self._joining and self.state_machine.has_generation

    def send(self) -> float:
        if self._joining:
            self.member.join()
            # One that skipped the assignment does not know whether it still covers all partitions.
            self._refreshed_at = float("-inf") if self.state_machine.lacks_assigned_counts else time.monotonic()
            with self._changed:
                self._joining = False
                self._thread.forget_failure()
        elif self.member.heartbeat():
            is_due = time.monotonic() - self._refreshed_at > self._refresh_s
            # A topic that does not exist yet is looked for with each heartbeat, as Java's consumer does all the time.
            if self.member.topics_have_changed() if is_due else self._finds_topics():
                self.state_machine.rejoin()
            # A check that fails is due again with the next heartbeat.
            if is_due:
                self._refreshed_at = time.monotonic()
        if self._rejoins and self.state_machine.state in (MemberState.UNJOINED, MemberState.REBALANCING):
            self.request_join()
        return self._interval_s

    def _finds_topics(self) -> bool:
        return self.state_machine.lacks_topics and self.member.counts_have_changed()

    def pause_after(self, error: WireError, n_failures: int) -> float | None:
        if not self._rejoins or (isinstance(error, BrokerError) and error.code == ErrorCode.FENCED_INSTANCE_ID):
            return None
        if self.state_machine.state is MemberState.LEFT:
            self.state_machine.start_over()
            self._joining = True
        return longer_pause_s(n_failures)

    def drop_out(self) -> None:
        self.member.leave()
        self.state_machine.drop_out()

    def stop(self) -> None:
        self.member.close()

    def leave(self, *, comes_back: bool) -> None:
        if not comes_back:
            self.member.leave()
        self.state_machine.state = MemberState.LEFT
