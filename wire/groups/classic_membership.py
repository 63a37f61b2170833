"""A consumer's place in a group of the classic protocol: when it joins again, and what it gives up before or after.

Owns the steps between the consumer's thread and :mod:`~pykafka_wire.wire.groups.member`, whose thread sends the requests.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import broker_error
from pykafka_wire.wire.groups.member import GroupMember, HeartbeatThread, member_state_machine
from pykafka_wire.wire.groups.member_state import UNKNOWN_MEMBER_ID, MemberState
from pykafka_wire.wire.groups.membership import MemberIdentity
from pykafka_wire.wire.groups.strategies import are_cooperative
from pykafka_wire.wire.groups.subscription import Subscription
from pykafka_wire.wire.topic_partitions import TopicPartition


class ClassicMembership:
    """See :class:`~pykafka_wire.wire.groups.membership.Membership`.

    In the eager protocol the consumer gives everything up before each join. In the cooperative one (KIP-429) it goes on reading
    while it joins, gives up what the new assignment lacks, and joins once more, so that the group can assign what it gave up.
    """

    def __init__(self, thread: HeartbeatThread) -> None:
        self._thread = thread
        self._machine = thread.state_machine
        self._is_cooperative = are_cooperative(self._machine.strategies)
        self._owned: frozenset[TopicPartition] = frozenset()
        #: The last target, whether it was this generation's assignment, and whether the consumer has taken that up.
        self._offered: frozenset[TopicPartition] = frozenset()
        self._offers_assignment = False
        self._is_applied = False
        #: Of the machine's ``times_lost``, those after which the consumer gave everything up, and as the last target saw it.
        self._losses_handled = 0
        self._losses_seen = 0

    @classmethod
    def of(cls, cluster: Cluster, group: str, subscription: Subscription) -> ClassicMembership:
        """A member as the cluster's settings describe it, which has not joined yet.

        Raises SettingsError where this client implements none of the assignment strategies, or nobody matches the pattern."""
        subscription.require_client_side()
        settings = cluster.settings
        machine = member_state_machine(settings, group, subscription.names)
        member = GroupMember(cluster, machine, subscription=subscription)
        return cls(HeartbeatThread(member, settings, max_idle_ms=settings.max_poll_interval_ms))

    @property
    def lost(self) -> bool:
        return self._machine.times_lost != self._losses_handled

    @property
    def identity(self) -> MemberIdentity:
        identity = self._machine.identity
        # A commit without a generation counts as one from outside the group, and could rewind it. In the cooperative protocol
        # a member that was lost while it joined has joined again since, but what it owned may be another member's.
        if identity.generation < 0 or (self._owned and self.lost):
            code = self._machine.lost_error_code or UNKNOWN_MEMBER_ID
            raise broker_error(code, api="OffsetCommit", detail=f"(group {self._machine.group_id!r})")
        return identity

    def newer_identity(self, identity: MemberIdentity, deadline: Deadline) -> MemberIdentity | None:
        if not self._is_cooperative:
            return None  # what the old generation owned may be another member's in the new one
        # The consumer keeps what it owns while the member joins: it commits for that under the group's new generation.
        has_joined = self._thread.wait_for_join(deadline)
        newer = self._machine.identity
        # After a loss others may own the partitions, even where the consumer has given them up and taken others up since.
        is_same_place = newer.times_lost == identity.times_lost and newer.generation >= 0
        return newer if is_same_place and (has_joined or newer != identity) else None

    def record_poll(self) -> None:
        self._thread.record_poll()

    def target(self) -> frozenset[TopicPartition] | None:
        self._losses_seen = self._machine.times_lost
        if not self._owned:
            self._losses_handled = self._losses_seen
        elif self._losses_seen != self._losses_handled:
            return self._offer(frozenset(), is_assignment=False)
        if self._thread.needs_join:
            if not self._is_cooperative:
                return self._offer(frozenset(), is_assignment=False)
            self._join()
        if self._is_applied or self._thread.state is not MemberState.STABLE:
            return None
        return self._offer(frozenset(self._machine.assignment), is_assignment=True)

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
                self._machine.rejoin()
                self._join()
        else:
            self._losses_handled = self._losses_seen
            if self._thread.needs_join:
                self._join()

    def may_read(self, deadline: Deadline) -> bool:
        self._thread.raise_failure()
        # In the cooperative protocol reading goes on while the member joins.
        return bool(self._owned) or self._thread.wait_until_stable(deadline)

    def _join(self) -> None:
        self._is_applied = False
        self._machine.owned = tuple(sorted(self._owned)) if self._is_cooperative else ()
        if self._machine.times_lost != self._losses_handled:
            self._machine.owned = ()  # lost this very moment: the next target has the consumer give it up
        self._thread.request_join()

    def close(self, *, leave: bool) -> None:
        self._thread.close(leave=leave)
