"""A consumer's place in a group of the consumer protocol (KIP-848): its heartbeats, from a thread of its own.

Owns the thread, when the next heartbeat is due, and the steps between it and the consumer's thread;
:mod:`~pykafka_wire.wire.groups.consumer_member` sends. Unlike in the classic protocol nobody waits for others: a heartbeat is
answered at once, and the coordinator assigns.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Final

from pykafka_wire.wire.backoff import Backoff
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.errors import (
    BrokerError,
    NoBrokerAvailableError,
    TransportError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.groups.consumer_member import ConsumerGroupMember
from pykafka_wire.wire.groups.consumer_member_state import (
    FENCED_MEMBER_EPOCH,
    TOPIC_AUTHORIZATION_FAILED,
    ConsumerMemberState,
    ConsumerMemberStateMachine,
    Place,
)
from pykafka_wire.wire.groups.member import LEAVE_TIMEOUT_MS
from pykafka_wire.wire.groups.member_state import UNKNOWN_MEMBER_ID, Identity
from pykafka_wire.wire.groups.subscription import Subscription
from pykafka_wire.wire.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

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
        self._max_idle_s = settings.max_poll_interval_ms / 1000
        self._polled_at = time.monotonic()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        #: Guards what follows, and the state machine.
        self._changed = threading.Condition()
        self._member = ConsumerGroupMember(cluster, self.state_machine, self._changed)
        self._error: WireError | None = None
        #: An error that a poll raises once, after which the membership goes on.
        self._passing_error: WireError | None = None
        self._heartbeats = _Schedule()
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
    def identity(self) -> Identity:
        machine = self.state_machine
        identity = machine.identity
        if identity.generation < 0:
            code = machine.lost_error_code or UNKNOWN_MEMBER_ID
            raise broker_error(code, api="OffsetCommit", detail=f"(group {machine.group_id!r})")
        return identity

    def newer_identity(self, identity: Identity, deadline: Deadline) -> Identity | None:
        with self._changed:
            until = self._heartbeats.request()
            self._changed.notify_all()
            while self.state_machine.identity == identity and self._heartbeats.n_ended < until:
                if self._error is not None or self._closing.is_set() or deadline.expired:
                    break
                self._changed.wait(deadline.remaining_ms() / 1000)
            newer = self.state_machine.identity
        # After a loss others may own the partitions, although the member is back under the same id.
        is_same_place = newer.times_lost == identity.times_lost and newer.generation >= 0
        return newer if is_same_place and newer != identity else None

    def record_poll(self) -> None:
        self._polled_at = time.monotonic()

    def target(self) -> frozenset[TopicPartition] | None:
        with self._changed:
            self._start()
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
                self._heartbeats.request()
            self._changed.notify_all()

    def may_read(self, deadline: Deadline) -> bool:
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                if self._passing_error is not None:
                    error, self._passing_error = self._passing_error, None
                    raise error
                if self._owned or self._assigned is not None:
                    return True
                if self.state_machine.state is ConsumerMemberState.FENCED:
                    return True  # the next target says what to do
                if deadline.expired:
                    return False
                self._changed.wait(deadline.remaining_ms() / 1000)

    def close(self, *, leave: bool) -> None:
        with self._changed:
            if self._closing.is_set():
                return
            self._closing.set()
            self._changed.notify_all()
        self._member.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(LEAVE_TIMEOUT_MS / 1000)
            machine = self.state_machine
            stays = not leave and machine.identity.instance_id is None
            if machine.state is not ConsumerMemberState.LEFT and not stays:
                self._member.leave(for_a_while=not leave)
        self.state_machine.state = ConsumerMemberState.LEFT

    # --- the thread -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None and not self._closing.is_set():
            name = f"pykafka-wire member of {self.state_machine.group_id}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._wait_until_due():
            try:
                self._work()
            except TransportError as error:
                if not self._closing.is_set():
                    # The coordinator is unreachable for now. The session may expire meanwhile; the next heartbeat finds out.
                    logger.warning("group %s: %s", self.state_machine.group_id, error)
                    self._end_heartbeat(error, goes_on=True)
            except WireError as error:
                self._end_heartbeat(error, goes_on=_passes(error))
            except Exception as error:
                logger.exception("group %s: the heartbeat thread has failed", self.state_machine.group_id)
                failure = WireError(
                    f"the heartbeat thread of group {self.state_machine.group_id!r} has failed: {error!r}"
                )
                failure.__cause__ = error
                self._end_heartbeat(failure, goes_on=False)
            else:
                self._end_heartbeat()

    def _wait_until_due(self) -> bool:
        """Whether to send a heartbeat now; False where the thread is to end."""
        machine, heartbeats = self.state_machine, self._heartbeats
        with self._changed:
            while not (self._closing.is_set() or self._error is not None):
                if machine.state is ConsumerMemberState.FENCED:
                    self._changed.wait()  # until the caller has given up what it owned
                elif (pause_s := heartbeats.pause_s(has_news=machine.has_news)) > 0:
                    self._changed.wait(pause_s)
                else:
                    heartbeats.begin()
                    return True
        return False

    def _work(self) -> None:
        """One heartbeat, or leaving the group for a caller that does not poll."""
        machine = self.state_machine
        idle_s = time.monotonic() - self._polled_at
        if machine.state is ConsumerMemberState.MEMBER and idle_s > self._max_idle_s:
            logger.warning(
                "group %s: no poll for %.0f s (max.poll.interval.ms), the member leaves the group until the next poll",
                machine.group_id, idle_s,
            )  # fmt: skip
            self._member.leave(for_a_while=True)
            with self._changed:
                machine.fence(FENCED_MEMBER_EPOCH)
            return
        if machine.state is ConsumerMemberState.UNJOINED:
            self._member.match_topics()
        self._member.heartbeat()
        # Where metadata have no answer, the place in the group is kept all the same.
        self._name_assigned()
        self._member.match_topics()

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

    def _end_heartbeat(self, error: WireError | None = None, *, goes_on: bool = True) -> None:
        machine = self.state_machine
        with self._changed:
            if error is None:
                self._heartbeats.succeed((machine.heartbeat_interval_ms or _INTERVAL_MS) / 1000)
            else:
                self._heartbeats.fail(self._backoff)
            if error is not None and not self._closing.is_set():
                if not goes_on:
                    self._error = error
                    machine.state = ConsumerMemberState.LEFT
                elif _passes(error) or (
                    isinstance(error, NoBrokerAvailableError) and not self._heartbeats.has_succeeded
                ):
                    self._passing_error = error
            self._changed.notify_all()


class _Schedule:
    """When the next heartbeat is due. The caller locks.

    Attributes:
        n_ended: how many heartbeats have ended, with a response or without.
        has_succeeded: whether any of them had a response.
    """

    def __init__(self) -> None:
        self.n_ended = 0
        self.has_succeeded = False
        self._n_begun = 0
        self._n_failures = 0
        self._due_at = float("-inf")
        self._is_requested = False

    def request(self) -> int:
        """Have the next heartbeat sent at once; returns the :attr:`n_ended` by which it has ended."""
        self._is_requested = True
        return self._n_begun + 1

    def pause_s(self, *, has_news: bool) -> float:
        """The time until the next heartbeat, 0 where it is due."""
        hurries = self._n_failures == 0 and (has_news or self._is_requested)
        return 0.0 if hurries else max(0.0, self._due_at - time.monotonic())

    def begin(self) -> None:
        self._n_begun += 1
        self._is_requested = False

    def succeed(self, interval_s: float) -> None:
        self.has_succeeded = True
        self._n_failures = 0
        self._end(interval_s)

    def fail(self, backoff: Backoff) -> None:
        self._n_failures += 1
        self._end(backoff.delay_ms(self._n_failures) / 1000)

    def _end(self, pause_s: float) -> None:
        self.n_ended = self._n_begun
        self._due_at = time.monotonic() + pause_s


def _passes(error: WireError) -> bool:
    """Whether the membership goes on after an error that the group answered: an ACL may be granted."""
    return isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED
