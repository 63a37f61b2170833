"""A member of a consumer group on the network: the state machine's requests to the group's coordinator, and its heartbeat.

:class:`GroupMember` does one step at a time, in the caller's thread. :class:`LiveMember` keeps one alive with a thread: it
sends heartbeats in time whatever the caller is busy with, and joins in the background, so that nobody waits for the other
members longer than he wants to. What the requests say is :mod:`~pykafka_wire.wire.groups.membership`'s, retries while the
coordinator moves or loads are :mod:`~pykafka_wire.wire.cluster.cluster`'s.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from typing import Final, TypeVar

from pykafka_wire.wire.cluster.cluster import COORDINATION, Cluster, CoordinatorKind, Deadline
from pykafka_wire.wire.deadline import Backoff, CancellableDeadline
from pykafka_wire.wire.errors import NoBrokerAvailableError, SettingsError, TransportError, WireError, broker_error
from pykafka_wire.wire.groups.membership import ILLEGAL_GENERATION, Membership, MemberState
from pykafka_wire.wire.protocol.messages.group import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupResponse,
)
from pykafka_wire.wire.protocol.schema import Request
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

#: What the coordinator may take on top of the rebalance timeout to answer a JoinGroup; Java's client grants the same.
_JOIN_GRACE_MS: Final = 5_000
_FIRST_BATCHED_LEAVE: Final = 3
#: On leaving: a coordinator that does not answer will miss the heartbeats soon enough.
_LEAVE_TIMEOUT_MS: Final = 5_000
AnswerT = TypeVar("AnswerT", JoinGroupResponse, SyncGroupResponse, HeartbeatResponse)
_numbers = itertools.count(1)


def membership(settings: ClientSettings, group_id: str, topics: tuple[str, ...]) -> Membership:
    """A member as the settings describe it, not joined yet.

    Raises SettingsError where none of the strategies is spoken here."""
    if not settings.partition_assignment_strategy:
        raise SettingsError(
            "partition.assignment.strategy names no strategy that this client has.",
            setting="partition.assignment.strategy",
            remedy="Use range or roundrobin, here and in the other members of the group.",
        )
    return Membership(
        group_id,
        topics,
        strategies=settings.partition_assignment_strategy,
        instance_id=settings.group_instance_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
    )


class GroupMember:
    """Moves a :class:`Membership` along. Each has a connection of its own: a JoinGroup is answered only when the other
    members have joined as well. Not thread-safe, but :meth:`leave` may come from another thread and ends a :meth:`join`.
    """

    def __init__(self, cluster: Cluster, machine: Membership) -> None:
        self.machine = machine
        self._cluster = cluster
        self._purpose = f"member-{next(_numbers)}"
        self._closed = threading.Event()

    def join(self) -> tuple[TopicPartition, ...]:
        """What the group gives this member, after as many rounds as it takes; nothing if it has left meanwhile.

        Raises:
            BrokerError: the group will not have it.
            DeadlineExceededError: no coordinator answered, each request's time being the rebalance timeout.
        """
        while self.machine.state not in (MemberState.STABLE, MemberState.GONE):
            self.step()
        return self.machine.assignment

    def step(self) -> None:
        """One step of :meth:`join`: a JoinGroup, sharing out where this member leads, or a SyncGroup."""
        machine = self.machine
        request = machine.next_request()
        if machine.state is MemberState.LEADING:
            machine.assign(self._n_partitions(machine.group_topics))
        elif isinstance(request, JoinGroupRequest):
            machine.joined(self._ask(request, timeout_ms=machine.rebalance_timeout_ms + _JOIN_GRACE_MS))
        elif request is not None:
            machine.synced(self._ask(request))

    def heartbeat(self) -> bool:
        """Whether nothing has changed after one heartbeat; if not, the member is to join again.

        Raises:
            BrokerError: it is out for good, another member has its instance id.
            DeadlineExceededError: no coordinator answered within ``default.api.timeout.ms``.
        """
        self.machine.heard(self._ask(self.machine.heartbeat()))
        return self.machine.state is MemberState.STABLE

    def leave(self) -> None:
        """Give the place up, so that the others need not wait for the session timeout. Never raises for a coordinator
        that is not there: it finds out by itself."""
        machine = self.machine
        was_in = machine.identity.member_id and machine.state is not MemberState.GONE
        machine.state = MemberState.GONE
        if not was_in:
            return

        deadline = Deadline.after_ms(_LEAVE_TIMEOUT_MS)

        def build(node: int) -> LeaveGroupRequest:
            batched = self._cluster.supports(
                node, LeaveGroupRequest, _FIRST_BATCHED_LEAVE, purpose=COORDINATION, deadline=deadline
            )
            return machine.leave(batched=batched)

        try:
            response = self._cluster.coordinator_request(
                CoordinatorKind.GROUP, machine.group_id, build,
                lambda answer: [answer.error_code, *(member.error_code for member in answer.members)],
                deadline=deadline,
            )  # fmt: skip
            machine.left(response)
        except WireError as error:
            logger.warning("group %s was not left, it will miss the member's heartbeats: %s", machine.group_id, error)

    def close(self) -> None:
        """Close the member's connection, and end what another thread still asks on it."""
        self._closed.set()
        self._cluster.close_connections(self._purpose)

    def _deadline(self, timeout_ms: int | None = None) -> Deadline:
        if timeout_ms is None:
            timeout_ms = self._cluster.settings.default_api_timeout_ms
        return CancellableDeadline(Deadline.after_ms(timeout_ms).at, self._closed)

    def _ask(self, request: Request[AnswerT], *, timeout_ms: int | None = None) -> AnswerT:
        return self._cluster.coordinator_request(
            CoordinatorKind.GROUP,
            self.machine.group_id,
            lambda _: request,
            lambda answer: [answer.error_code],
            purpose=self._purpose,
            request_timeout_ms=timeout_ms,
            deadline=self._deadline(timeout_ms),
        )

    def topics_have_grown(self) -> bool:
        """Whether a topic has other partitions than this leader has shared out; False where another one leads."""
        shared_out = self.machine.shared_out if self.machine.leads else None
        return bool(shared_out) and self._n_partitions(self.machine.group_topics) != shared_out

    def _n_partitions(self, topics: frozenset[str]) -> dict[str, int]:
        # All topics are asked for: to ask for one that is not there (yet) would wait for it.
        known = self._cluster.topics(None, deadline=self._deadline())
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}


class LiveMember:
    """A member that lives in a thread. The caller gives up what it owned, calls :meth:`join`, and asks :attr:`state`.

    After an error that ends the membership, :attr:`error` holds it and the thread has ended. That no coordinator can be
    reached ends nothing: it is tried again until one can.
    """

    def __init__(
        self,
        member: GroupMember,
        settings: ClientSettings,
        *,
        max_idle_ms: float | None = None,
        rejoins: bool = False,
    ) -> None:
        """A member that has not joined yet.

        Args:
            max_idle_ms: :meth:`alive` not called for so long means that the caller is stuck: the member leaves.
            rejoins: for a caller that reads whatever the group says: join again at once, without being told to. A generation
                that the coordinator does not know ends the membership then: another took the place.
        """
        self.member = member
        self.error: WireError | None = None
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._refresh_s = settings.metadata_max_age_ms / 1000
        self._backoff = Backoff(settings)
        self._rejoins = rejoins
        self._max_idle_s = None if max_idle_ms is None else max_idle_ms / 1000
        self._alive_at = time.monotonic()
        self._changed = threading.Condition()
        self._joining = False
        self._closing = threading.Event()
        #: That no broker could be reached, where the member never had a place: for :meth:`wait` to tell, once.
        self._unreachable: NoBrokerAvailableError | None = None
        self._had_a_place = False
        self._thread: threading.Thread | None = None

    @property
    def machine(self) -> Membership:
        return self.member.machine

    @property
    def state(self) -> MemberState:
        """UNJOINED also while it has been told to join and has not yet, and once an error has ended it."""
        with self._changed:
            return MemberState.UNJOINED if self._joining or self.error is not None else self.machine.state

    @property
    def joining(self) -> bool:
        """Whether a join is under way."""
        return self._joining

    def join(self) -> None:
        """Join, or join again, in the background."""
        with self._changed:
            self._joining = True
            self._changed.notify_all()
            if self._thread is None:
                name = f"pykafka-wire member of {self.machine.group_id}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def wait(self, deadline: Deadline) -> bool:
        """Whether the member is STABLE, waited for until ``deadline``.

        Raises:
            NoBrokerAvailableError: nobody answers, nor ever did: the addresses may be wrong. It goes on trying.
            WireError: what has ended the membership.
        """
        with self._changed:
            while self._joining and not (self.error or self._unreachable or deadline.expired):
                self._changed.wait(deadline.remaining_ms() / 1000)
            if self.error is not None:
                raise self.error
            if self._unreachable is not None:
                unreachable, self._unreachable = self._unreachable, None
                raise unreachable
            return not self._joining and self.machine.state is MemberState.STABLE

    def alive(self) -> None:
        """The caller gets on with its work."""
        self._alive_at = time.monotonic()

    def close(self, *, leave: bool = True) -> None:
        """End the thread; leave the group unless a static member is to come back soon. May be called twice."""
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        if leave:
            self.member.leave()  # also ends a join that waits for others
        else:
            self.machine.state = MemberState.GONE
        self.member.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_LEAVE_TIMEOUT_MS / 1000)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        heard_at = refreshed_at = time.monotonic()
        n_failures = 0
        while True:
            with self._changed:
                if not (self._joining or self._closing.is_set()):
                    self._changed.wait(max(0.0, heard_at + self._interval_s - time.monotonic()))
                if self._closing.is_set():
                    return
                joining = self._joining
            try:
                if joining:
                    self.member.join()
                    heard_at = refreshed_at = time.monotonic()
                    n_failures = 0
                    with self._changed:
                        self._joining = False
                        self._had_a_place = True
                        self._unreachable = None
                        self._changed.notify_all()
                    continue
                now = time.monotonic()
                if now < heard_at + self._interval_s:
                    continue
                heard_at = now
                if not self.machine.has_generation:
                    continue  # until the caller has given up what it owned, and joins again
                if self._max_idle_s is not None and now - self._alive_at > self._max_idle_s:
                    self._leave_for_stuck_caller(now - self._alive_at)
                elif self.member.heartbeat() and now - refreshed_at > self._refresh_s:
                    refreshed_at = now
                    if self.member.topics_have_grown():
                        self.machine.rejoin()
                n_failures = 0
                self._rejoin_unasked()
            except TransportError as error:
                if self._closing.is_set():
                    return
                # The coordinator is gone for now; the session may have ended, which the next heartbeat will tell.
                logger.warning("group %s: %s", self.machine.group_id, error)
                n_failures += 1
                self._rest(error, n_failures)
            except WireError as error:
                if not self._closing.is_set():
                    self._end(error)
                return
            except Exception as error:
                logger.exception("group %s: the member's thread has failed", self.machine.group_id)
                ended = WireError(f"the member of group {self.machine.group_id!r} has failed: {error!r}")
                ended.__cause__ = error
                self._end(ended)
                return

    def _rest(self, error: TransportError, n_failures: int) -> None:
        """A pause before the next try, which a close cuts short."""
        with self._changed:
            if isinstance(error, NoBrokerAvailableError) and not self._had_a_place:
                self._unreachable = error
                self._changed.notify_all()
            self._changed.wait_for(self._closing.is_set, self._backoff.delay_ms(n_failures) / 1000)

    def _end(self, error: WireError) -> None:
        with self._changed:
            self.error = error
            self._joining = False
            self._changed.notify_all()

    def _rejoin_unasked(self) -> None:
        machine = self.machine
        if not self._rejoins or machine.state not in (MemberState.UNJOINED, MemberState.REBALANCING):
            return
        if machine.lost_code == ILLEGAL_GENERATION:
            raise broker_error(ILLEGAL_GENERATION, api="Heartbeat", detail=f"(group {machine.group_id!r})")
        self.join()

    def _leave_for_stuck_caller(self, idle_s: float) -> None:
        """As Java's consumer: whoever polls no more is out, so that others take its partitions over; a poll joins again."""
        logger.warning(
            "group %s: not polled for %.0f s (max.poll.interval.ms), the member leaves until the next poll",
            self.machine.group_id, idle_s,
        )  # fmt: skip
        machine = self.machine
        self.member.leave()
        machine.lost_code = ILLEGAL_GENERATION
        machine.state = MemberState.UNJOINED
