"""A consumer's place in a group of the classic protocol: when it joins again, and what it gives up before.

Owns the steps between the consumer's thread and :mod:`~pykafka_wire.wire.groups.heartbeat`, whose thread sends the requests.
"""

from __future__ import annotations

from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import broker_error
from pykafka_wire.wire.groups.heartbeat import HeartbeatThread
from pykafka_wire.wire.groups.member import GroupMember, member_state_machine
from pykafka_wire.wire.groups.member_state import UNKNOWN_MEMBER_ID, Identity, MemberState
from pykafka_wire.wire.groups.subscription import Subscription
from pykafka_wire.wire.topic_partitions import TopicPartition


class ClassicMembership:
    """See :class:`~pykafka_wire.wire.groups.membership.Membership`. The eager protocol: all is given up before each join."""

    def __init__(self, thread: HeartbeatThread) -> None:
        self._thread = thread
        self._owned: frozenset[TopicPartition] = frozenset()
        #: Whether the consumer has taken up this generation's assignment, and whether the last target was one.
        self._is_applied = False
        self._offers_assignment = False

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
        return self._thread.state_machine.lost

    @property
    def identity(self) -> Identity:
        machine = self._thread.state_machine
        identity = machine.identity
        if identity.generation < 0:
            # A commit without a generation counts as one from outside the group, and could rewind it.
            code = machine.lost_error_code or UNKNOWN_MEMBER_ID
            raise broker_error(code, api="OffsetCommit", detail=f"(group {machine.group_id!r})")
        return identity

    def newer_identity(self, identity: Identity, deadline: Deadline) -> Identity | None:
        return None  # a refused generation never comes back

    def record_poll(self) -> None:
        self._thread.record_poll()

    def target(self) -> frozenset[TopicPartition] | None:
        if self._thread.needs_join:
            self._offers_assignment = False
            return frozenset()
        if self._is_applied or self._thread.state is not MemberState.STABLE:
            return None
        self._offers_assignment = True
        return frozenset(self._thread.state_machine.assignment)

    def acknowledge(self, owned: frozenset[TopicPartition]) -> None:
        self._owned = owned
        self._is_applied = self._offers_assignment
        if not self._offers_assignment:
            self._thread.request_join()

    def may_read(self, deadline: Deadline) -> bool:
        return self._thread.wait_until_stable(deadline)

    def close(self, *, leave: bool) -> None:
        self._thread.close(leave=leave)
