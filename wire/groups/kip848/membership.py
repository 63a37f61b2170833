"""A consumer's place in a group of the consumer protocol (KIP-848): what a heartbeat brings, and what the consumer does about it.

Owns the steps between the consumer's thread and that of :mod:`~pykafka_wire.wire.groups.member_thread`, and the heartbeats on the
network. Their content belongs to :mod:`~pykafka_wire.wire.groups.kip848.state_machine`, retries while the coordinator moves or
loads to :mod:`~pykafka_wire.wire.cluster.client`. Unlike in the classic protocol nobody waits for others: a heartbeat has its
response at once, and the coordinator assigns.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Final

from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.cluster.rack import rack_of
from pykafka_wire.wire.cluster.retries import Backoff
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError, TransportError, UnsupportedVersionError, WireError, broker_error
from pykafka_wire.wire.groups.kip848.state_machine import (
    JOIN_EPOCH,
    ConsumerMemberState,
    ConsumerMemberStateMachine,
    TopicIdPartition,
)
from pykafka_wire.wire.groups.member_thread import LEAVE_TIMEOUT_MS, MemberThread, leave_group
from pykafka_wire.wire.groups.membership import MemberIdentity, TopicSubscription
from pykafka_wire.wire.protocol.message import ByVersion
from pykafka_wire.wire.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from pykafka_wire.wire.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

#: The interval of heartbeats until the coordinator has named one: the default of Kafka's group.consumer.heartbeat.interval.ms.
_INTERVAL_MS: Final = 5_000
_FIRST_WITH_PATTERNS: Final = 1
#: For metadata between two heartbeats: brokers drop a member that is silent for 45 s, by default.
_METADATA_MS: Final = 5_000
#: For metadata that tell whether a topic was recreated; what is revoked waits for it.
_CHECK_MS: Final = 1_000
#: For the response to a join when the member is closed. Coordinators respond at once, since nobody waits for others.
_JOIN_MS: Final = 2_000
_numbers = itertools.count(1)


class ConsumerMembership:
    """See :class:`~pykafka_wire.wire.groups.membership.Membership`. The thread starts with the first :meth:`target`. It sends the
    heartbeats of the state machine, on a connection of its own, and finds the topics that they name."""

    def __init__(self, cluster: Cluster, group: str, subscription: TopicSubscription) -> None:
        """Begin as a member that the cluster's settings describe, which has not joined yet."""
        settings = cluster.settings
        self.state_machine = ConsumerMemberStateMachine(
            group,
            subscription,
            member_id=str(uuid.uuid4()),  # members choose their ids themselves (KIP-1082)
            instance_id=settings.group_instance_id,
            rack_id=rack_of(settings) or None,
            assignor=settings.group_remote_assignor,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
        )
        self._backoff = Backoff(settings)
        self._thread = MemberThread(self, group, settings, max_idle_ms=settings.max_poll_interval_ms)
        #: Guards what follows, and the state machine.
        self._changed = self._thread.changed
        self._cluster = cluster
        self._purpose = f"consumer-member-{next(_numbers)}"
        self._refresh_s = settings.metadata_max_age_ms / 1000
        self._refreshed_at = float("-inf")
        self._closed = threading.Event()
        #: Clear while a request to join has no response.
        self._has_joined = threading.Event()
        self._has_joined.set()
        #: What the coordinator assigns, as far as its topics' names are known; None before the first response.
        self._assigned: dict[TopicPartition, TopicIdPartition] | None = None
        self._owned: dict[TopicPartition, TopicIdPartition] = {}
        self._offered: dict[TopicPartition, TopicIdPartition] = {}
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
            code = machine.lost_error_code or ErrorCode.UNKNOWN_MEMBER_ID
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
            self._match_topics()
        self._heartbeat()
        # Where metadata have no response, the place in the group is kept all the same.
        self._name_assigned()
        self._match_topics()
        return (self.state_machine.heartbeat_interval_ms or _INTERVAL_MS) / 1000

    def _name_assigned(self) -> None:
        """Find the names of the topics that are assigned. Those that are not known yet are looked for with the next heartbeat."""
        target = self.state_machine.target
        if target is None or (self._assigned is not None and target == frozenset(self._assigned.values())):
            return
        assigned = self._assigned_by_name()
        outdated = self._outdated_without(assigned)
        with self._changed:
            if self.state_machine.target is target:
                self._assigned, self._outdated = assigned, outdated

    def pause_after(self, error: WireError, n_failures: int) -> float | None:
        # The membership goes on without the ACL for a topic, which may be granted.
        if isinstance(error, BrokerError) and error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return self._backoff.delay_ms(n_failures) / 1000
        self.state_machine.state = ConsumerMemberState.LEFT
        return None

    def drop_out(self) -> None:
        self._leave(for_a_while=True)
        with self._changed:
            self.state_machine.fence(ErrorCode.FENCED_MEMBER_EPOCH)

    def stop(self) -> None:
        """Close the member's connection, and end the request of another thread on it. A request to join has a little time for its
        response before: processed after the request to leave, it would create a member without a client."""
        self._has_joined.wait(_JOIN_MS / 1000)
        self._closed.set()
        self._cluster.close_connections(self._purpose)

    def leave(self, *, comes_back: bool) -> None:
        machine = self.state_machine
        stays = comes_back and machine.identity.instance_id is None
        if machine.state is not ConsumerMemberState.LEFT and not stays:
            self._leave(for_a_while=comes_back)

    def _leave(self, *, for_a_while: bool) -> None:
        machine = self.state_machine
        request = machine.leave_request(for_a_while=for_a_while)
        deadline = Deadline.after_ms(LEAVE_TIMEOUT_MS)
        leave_group(self._cluster, machine.group_id, request, machine.handle_leave, deadline)

    # --- requests, in the thread --------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        """Send a heartbeat, and have the state machine take its response.

        Raises:
            BrokerError: as :meth:`ConsumerMemberStateMachine.handle_heartbeat`.
            UnsupportedVersionError: the brokers are too old.
            TransportError: no coordinator has responded within ``default.api.timeout.ms``.
        """
        machine = self.state_machine
        sent: list[ConsumerGroupHeartbeatRequest] = []

        def build(version: int) -> ConsumerGroupHeartbeatRequest:
            if machine.subscription.server_pattern is not None and version < _FIRST_WITH_PATTERNS:
                raise UnsupportedVersionError(
                    "the broker does not support a SubscriptionPattern", api=ConsumerGroupHeartbeatRequest.name
                )
            with self._changed:
                if self._thread.is_closing:
                    raise TransportError("the member is being closed")
                if sent:  # the last one may have been processed, or not
                    machine.repeat_all()
                sent.append(machine.heartbeat_request())
                if sent[-1].member_epoch == JOIN_EPOCH:
                    self._has_joined.clear()
            return sent[-1]

        try:
            responses = self._cluster.by_coordinator(
                CoordinatorKind.GROUP,
                {machine.group_id: ByVersion(ConsumerGroupHeartbeatRequest, build)},
                purpose=self._purpose,
                deadline=self._deadline(),
            )
        except WireError as error:
            with self._changed:
                machine.repeat_all()
            if isinstance(error, UnsupportedVersionError) and error.api == ConsumerGroupHeartbeatRequest.name:
                what, instead = "The consumer group protocol (KIP-848)", "set {group.protocol}=classic"
                if machine.subscription.server_pattern is not None:
                    what, instead = "A SubscriptionPattern", "subscribe to a pattern of re.compile()"
                error.remedy = f"{what} needs Kafka 4.0 or newer: upgrade the brokers, or {instead}."
            raise
        finally:
            self._has_joined.set()
        with self._changed:
            machine.handle_heartbeat(sent[-1], responses[machine.group_id])
        if machine.state is ConsumerMemberState.FENCED:
            logger.warning(
                "group %s: the place in the group is lost (error %d), the member joins again with the next poll",
                machine.group_id, machine.lost_error_code,
            )  # fmt: skip

    def _match_topics(self) -> None:
        """Subscribe to the topics that match the pattern now, if metadata are due. Raises TransportError."""
        machine = self.state_machine
        if machine.subscription.pattern is not None and time.monotonic() - self._refreshed_at > self._refresh_s:
            topics = machine.subscription.matches(
                self._cluster.metadata.topics(None, deadline=self._deadline(_METADATA_MS))
            )
            self._refreshed_at = time.monotonic()
            with self._changed:
                machine.topics = topics

    def _assigned_by_name(self) -> dict[TopicPartition, TopicIdPartition]:
        """Return what the coordinator assigns, without topics whose names are not known yet.

        Raises:
            TransportError: no broker has responded.
        """
        target = self.state_machine.target or frozenset()
        ids = {place.topic_id for place in target}
        names = {place.topic_id: tp.topic for tp, place in self._owned.items()} | self._known_names(ids)
        if ids - names.keys():
            self._cluster.metadata.topics(None, deadline=self._deadline(_METADATA_MS))
            names |= self._known_names(ids)
        return {
            TopicPartition(names[place.topic_id], place.partition): place for place in target if place.topic_id in names
        }

    def _outdated_without(self, assigned: Mapping[TopicPartition, TopicIdPartition]) -> frozenset[TopicPartition]:
        """Return what is owned of topics that no longer exist: deleted ones, and those that were recreated under their names."""
        owned = self._owned
        given_up = {place.topic_id for place in owned.values()} - {place.topic_id for place in assigned.values()}
        of_given_up = {tp: place for tp, place in owned.items() if place.topic_id in given_up}
        if of_given_up:
            with contextlib.suppress(WireError):  # a topic does not exist, or no broker responds
                self._cluster.metadata.topics({tp.topic for tp in of_given_up}, deadline=self._deadline(_CHECK_MS))
        return frozenset(
            tp for tp, place in of_given_up.items() if self._cluster.metadata.topic_name(place.topic_id) != tp.topic
        )

    def _known_names(self, ids: set[uuid.UUID]) -> dict[uuid.UUID, str]:
        names = {topic_id: self._cluster.metadata.topic_name(topic_id) for topic_id in ids}
        return {topic_id: name for topic_id, name in names.items() if name is not None}

    def _deadline(self, max_ms: int | None = None) -> Deadline:
        timeout_ms = self._cluster.settings.default_api_timeout_ms
        if max_ms is not None:
            timeout_ms = min(timeout_ms, max_ms)
        return Deadline.after_ms(timeout_ms, cancelled=self._closed)
