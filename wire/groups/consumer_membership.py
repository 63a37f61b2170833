"""A consumer's place in a group of the consumer protocol (KIP-848): what a heartbeat brings, and what the consumer does about it.

Owns the steps between the consumer's thread and that of :mod:`~pykafka_wire.wire.groups.member_thread`;
:mod:`~pykafka_wire.wire.groups.consumer_member` sends. Unlike in the classic protocol nobody waits for others: a heartbeat has its
response at once, and the coordinator assigns.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from pykafka_wire.wire.backoff import Backoff
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import BrokerError, WireError, broker_error
from pykafka_wire.wire.groups.consumer_member import ConsumerGroupMember
from pykafka_wire.wire.groups.consumer_member_state import (
    FENCED_MEMBER_EPOCH,
    TOPIC_AUTHORIZATION_FAILED,
    ConsumerMemberState,
    ConsumerMemberStateMachine,
    Place,
)
from pykafka_wire.wire.groups.member_state import UNKNOWN_MEMBER_ID, MemberIdentity
from pykafka_wire.wire.groups.member_thread import MemberThread
from pykafka_wire.wire.groups.subscription import Subscription
from pykafka_wire.wire.topic_partitions import TopicPartition

#: The interval of heartbeats until the coordinator has named one: the default of Kafka's group.consumer.heartbeat.interval.ms.
_INTERVAL_MS: Final = 5_000


class ConsumerMembership:
    """See :class:`~pykafka_wire.wire.groups.membership.Membership`. The thread starts with the first :meth:`target`."""

    def __init__(self, cluster: Cluster, group: str, subscription: Subscription) -> None:
        """A member as the cluster's settings describe it, which has not joined yet."""
        settings = cluster.settings
        self.state_machine = ConsumerMemberStateMachine(
            group,
            subscription,
            member_id=str(uuid.uuid4()),  # members choose their ids themselves (KIP-1082)
            instance_id=settings.group_instance_id,
            rack_id=settings.client_rack or None,
            assignor=settings.group_remote_assignor,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
        )
        self._backoff = Backoff(settings)
        self._thread = MemberThread(self, group, settings, max_idle_ms=settings.max_poll_interval_ms)
        #: Guards what follows, and the state machine.
        self._changed = self._thread.changed
        self._member = ConsumerGroupMember(cluster, self.state_machine, self._changed)
        #: What the coordinator assigns, as far as its topics' names are known; None before the first response.
        self._assigned: dict[TopicPartition, Place] | None = None
        self._owned: dict[TopicPartition, Place] = {}
        self._offered: dict[TopicPartition, Place] = {}
        #: What is owned of topics that no longer exist, though others may have their names; the same of the last target.
        self._outdated: frozenset[TopicPartition] = frozenset()
        self._recreated: frozenset[TopicPartition] = frozenset()

    # --- the consumer's side ----------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        return self.state_machine.state is ConsumerMemberState.FENCED

    @property
    def identity(self) -> MemberIdentity:
        machine = self.state_machine
        identity = machine.identity
        if identity.generation < 0:
            code = machine.lost_error_code or UNKNOWN_MEMBER_ID
            raise broker_error(code, api="OffsetCommit", detail=f"(group {machine.group_id!r})")
        return identity

    def newer_identity(self, identity: MemberIdentity, deadline: Deadline) -> MemberIdentity | None:
        with self._changed:
            until = self._thread.request()
            while self.state_machine.identity == identity and self._thread.n_ended < until:
                if self._thread.error is not None or self._thread.is_closing or deadline.expired:
                    break
                self._changed.wait(deadline.remaining_ms() / 1000)
            newer = self.state_machine.identity
        # After a loss others may own the partitions, although the member is back under the same id.
        is_same_place = newer.times_lost == identity.times_lost and newer.generation >= 0
        return newer if is_same_place and newer != identity else None

    def record_poll(self) -> None:
        self._thread.record_poll()

    def target(self) -> frozenset[TopicPartition] | None:
        with self._changed:
            self._thread.start()
            self._recreated = frozenset()
            if self.state_machine.state is ConsumerMemberState.FENCED:
                self._offered = {}
            elif self._assigned is None or self._assigned is self._owned or self._assigned == self._owned:
                return None
            else:
                # A topic that was deleted and recreated is another one: the old one is given up before the new one is taken up.
                kept = {tp: place for tp, place in self._assigned.items() if self._owned.get(tp, place) == place}
                gone = {tp for tp in self._outdated & self._owned.keys() if kept.get(tp) != self._owned[tp]}
                self._recreated = frozenset(gone | (self._assigned.keys() - kept.keys()))
                self._offered = kept
            return frozenset(self._offered)

    def topic_ids(self) -> Mapping[TopicPartition, uuid.UUID]:
        return {tp: place.topic_id for tp, place in (self._owned | self._offered).items()}

    def recreated(self) -> frozenset[TopicPartition]:
        return self._recreated

    def acknowledge(self) -> None:
        with self._changed:
            self._owned = self._offered
            if self.state_machine.state is not ConsumerMemberState.FENCED:
                self.state_machine.own(self._owned.values())
            elif not self._owned:
                self._assigned = None
                self.state_machine.rejoin()
                self._thread.request()
            self._changed.notify_all()

    def may_read(self, deadline: Deadline) -> bool:
        with self._changed:
            while True:
                self._thread.raise_failure()
                if self._owned or self._assigned is not None:
                    return True
                if self.state_machine.state is ConsumerMemberState.FENCED:
                    return True  # the next target says what to do
                if deadline.expired:
                    return False
                self._changed.wait(deadline.remaining_ms() / 1000)

    def close(self, *, leave: bool) -> None:
        self._thread.close(leave=leave)
        self.state_machine.state = ConsumerMemberState.LEFT

    # --- what its thread does: see GroupProtocol ----------------------------------------------------------------------

    @property
    def waits_for_caller(self) -> bool:
        return self.state_machine.state is ConsumerMemberState.FENCED

    @property
    def is_urgent(self) -> bool:
        return self.state_machine.has_news

    @property
    def has_place(self) -> bool:
        return self.state_machine.state is ConsumerMemberState.MEMBER

    def send(self) -> float:
        if self.state_machine.state is ConsumerMemberState.UNJOINED:
            self._member.match_topics()
        self._member.heartbeat()
        # Where metadata have no response, the place in the group is kept all the same.
        self._name_assigned()
        self._member.match_topics()
        return (self.state_machine.heartbeat_interval_ms or _INTERVAL_MS) / 1000

    def _name_assigned(self) -> None:
        """Find the names of the topics that are assigned. Those that are not known yet are looked for with the next heartbeat."""
        target = self.state_machine.target
        if target is None or (self._assigned is not None and target == frozenset(self._assigned.values())):
            return
        assigned = self._member.assigned(self._owned)
        outdated = self._member.outdated(self._owned, assigned)
        with self._changed:
            if self.state_machine.target is target:
                self._assigned, self._outdated = assigned, outdated

    def pause_after(self, error: WireError, n_failures: int) -> float | None:
        # The membership goes on without the ACL for a topic, which may be granted.
        if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED:
            return self._backoff.delay_ms(n_failures) / 1000
        self.state_machine.state = ConsumerMemberState.LEFT
        return None

    def drop_out(self) -> None:
        self._member.leave(for_a_while=True)
        with self._changed:
            self.state_machine.fence(FENCED_MEMBER_EPOCH)

    def stop(self) -> None:
        self._member.close()

    def leave(self, *, comes_back: bool) -> None:
        machine = self.state_machine
        stays = comes_back and machine.identity.instance_id is None
        if machine.state is not ConsumerMemberState.LEFT and not stays:
            self._member.leave(for_a_while=comes_back)
