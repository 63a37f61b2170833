"""Keeps a group member alive from a thread of its own: heartbeats in time however long its caller works, joins in the background.

The rebalance protocol of the caller: while :attr:`HeartbeatThread.state` is STABLE it owns what the group has assigned. In any
other state it gives up what it owns (it may commit before, as long as the place in the group is not lost), and calls
:meth:`HeartbeatThread.request_join`. Until then the thread keeps sending heartbeats under the old generation.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from pykafka_wire.wire.backoff import Backoff
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import BrokerError, NoBrokerAvailableError, TransportError, WireError, broker_error
from pykafka_wire.wire.groups.member import LEAVE_TIMEOUT_MS, GroupMember
from pykafka_wire.wire.groups.member_state import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    MemberState,
    MemberStateMachine,
)
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

#: How often to look at what sends no notification: whether a member that leaves has left, and whether a wait is over.
_LOOK_S: Final = 0.02
#: Another member has taken the place of one that joins again by itself.
_FENCED: Final = frozenset({ILLEGAL_GENERATION, FENCED_INSTANCE_ID})
#: The first and the longest pause after an error that is no matter of the network, such as refused credentials: each try with
#: wrong ones brings an account closer to being locked.
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class HeartbeatThread:
    """A member of a group, and the thread that joins and sends its heartbeats.

    After an error that ends the membership, :attr:`error` holds it and the thread has ended. An unreachable coordinator does not
    end it: the thread retries until one answers. Nor does any other error, where the member joins again by itself, unless another
    member has taken its place.
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
            max_idle_ms: the member leaves the group when :meth:`record_poll` was not called for so long
                (``max.poll.interval.ms``).
            rejoins: join again without :meth:`request_join`, for a caller that does not use the assignment: at once after a
                rebalance, after a pause where the group refuses the member or credentials fail. The membership ends where
                another member has taken the place: the instance id is fenced, or the generation is unknown.
        """
        self.member = member
        self.error: WireError | None = None
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._refresh_s = settings.metadata_max_age_ms / 1000
        self._backoff = Backoff(settings)
        self._rejoins = rejoins
        self._max_idle_s = None if max_idle_ms is None else max_idle_ms / 1000
        self._polled_at = time.monotonic()
        self._changed = threading.Condition()
        self._joining = False
        self._closing = threading.Event()
        #: Why the member has not joined yet, or not again, which :meth:`wait_until_stable` raises: no broker could be reached,
        #: or an error after which it tries again.
        self._failure: WireError | None = None
        self._has_joined = False
        self._thread: threading.Thread | None = None

    @property
    def state_machine(self) -> MemberStateMachine:
        return self.member.state_machine

    @property
    def state(self) -> MemberState:
        """The member's state; UNJOINED also from :meth:`request_join` until it has joined, and after an error."""
        with self._changed:
            return MemberState.UNJOINED if self._joining or self.error is not None else self.state_machine.state

    @property
    def joining(self) -> bool:
        """Whether a join is under way."""
        return self._joining

    @property
    def needs_join(self) -> bool:
        """Whether the member is to join, or join again, and :meth:`request_join` was not called for it yet."""
        with self._changed:
            ended = self.error is not None or self.state_machine.state is MemberState.LEFT
            return not (self._joining or ended) and self.state_machine.state is not MemberState.STABLE

    def request_join(self) -> None:
        """Join, or join again, in the background."""
        with self._changed:
            self._joining = True
            self._changed.notify_all()
            if self._thread is None:
                name = f"pykafka-wire member of {self.state_machine.group_id}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def wait_until_stable(self, deadline: Deadline) -> bool:
        """Whether the member is STABLE; waits for it until ``deadline``.

        Raises:
            NoBrokerAvailableError: no broker answers, nor ever did: the addresses may be wrong. The thread keeps trying.
            WireError: the error that has ended the membership, or after which a member that joins by itself tries again.
        """
        with self._changed:
            while not (self.error or self._failure or deadline.expired):
                if self._joining:
                    self._changed.wait(deadline.remaining_ms() / 1000)
                elif self.state_machine.state is MemberState.LEFT and not self._closing.is_set():
                    self._changed.wait(min(_LOOK_S, deadline.remaining_ms() / 1000))  # as for an idle caller
                else:
                    break
            if self.error is not None:
                raise self.error
            if self._failure is not None:
                failure = self._failure
                if not self._rejoins:
                    self._failure = None  # once for each try, so that the next call waits
                raise failure
            return not self._joining and self.state_machine.state is MemberState.STABLE

    def wait_for_join(self, deadline: Deadline) -> bool:
        """Whether a join was under way and has succeeded; waits for its end until ``deadline``."""
        with self._changed:
            was_joining = self._joining
            while self._joining and self.error is None and not (self._closing.is_set() or deadline.expired):
                self._changed.wait(min(_LOOK_S, deadline.remaining_ms() / 1000))  # a deadline may be cancelled
            return was_joining and not self._joining and self.error is None

    def record_poll(self) -> None:
        """The caller polls: ``max.poll.interval.ms`` begins anew."""
        self._polled_at = time.monotonic()

    def close(self, *, leave: bool = True) -> None:
        """End the thread, and leave the group; ``leave=False`` for a static member that is to come back soon. May be called
        twice."""
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        if leave:
            self.member.leave()  # also ends a join that waits for other members
        else:
            self.state_machine.state = MemberState.LEFT
        self.member.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(LEAVE_TIMEOUT_MS / 1000)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        heartbeat_at = refreshed_at = time.monotonic()
        n_failures = 0
        while True:
            with self._changed:
                if not (self._joining or self._closing.is_set()):
                    self._changed.wait(max(0.0, heartbeat_at + self._interval_s - time.monotonic()))
                if self._closing.is_set():
                    return
                joining = self._joining
            try:
                if joining:
                    self.member.join()
                    heartbeat_at = refreshed_at = time.monotonic()
                    n_failures = 0
                    with self._changed:
                        self._joining = False
                        self._has_joined = True
                        self._failure = None
                        self._changed.notify_all()
                    continue
                now = time.monotonic()
                if now < heartbeat_at + self._interval_s:
                    continue
                heartbeat_at = now
                if not self.state_machine.has_generation:
                    continue  # until the caller has given up what it owned, and requests a join
                if self._max_idle_s is not None and now - self._polled_at > self._max_idle_s:
                    self._leave_for_idle_caller(now - self._polled_at)
                elif self.member.heartbeat() and now - refreshed_at > self._refresh_s:
                    refreshed_at = now
                    if self.member.topics_have_changed():
                        self.state_machine.rejoin()
                n_failures = 0
                self._rejoin_unasked()
            except TransportError as error:
                if self._closing.is_set():
                    return
                # The coordinator is unreachable for now. The session may expire meanwhile; the next heartbeat finds out.
                logger.warning("group %s: %s", self.state_machine.group_id, error)
                n_failures += 1
                self._pause(error, n_failures)
            except Exception as error:
                if self._closing.is_set():
                    return
                failure = error if isinstance(error, WireError) else self._unexpected(error)
                if not self._rejoins or (isinstance(failure, BrokerError) and failure.code in _FENCED):
                    self._fail(failure)
                    return
                n_failures += 1
                self._recover(failure, n_failures)

    def _pause(self, error: TransportError, n_failures: int) -> None:
        """A pause before the next try; a close ends it."""
        with self._changed:
            if isinstance(error, NoBrokerAvailableError) and not self._has_joined:
                self._failure = error
                self._changed.notify_all()
            self._changed.wait_for(self._closing.is_set, self._backoff.delay_ms(n_failures) / 1000)

    def _recover(self, error: WireError, n_failures: int) -> None:
        """A pause before the next try after an error that would end another membership; a close ends it."""
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(n_failures - 1, 8))
        logger.warning("group %s: the member tries again in %.0f s: %s", self.state_machine.group_id, pause_s, error)
        with self._changed:
            if self.state_machine.state is MemberState.LEFT:
                self.state_machine.start_over()
                self._joining = True
            if self._joining:
                self._failure = error
            self._changed.notify_all()
            self._changed.wait_for(self._closing.is_set, pause_s)

    def _unexpected(self, error: Exception) -> WireError:
        group = self.state_machine.group_id
        logger.error("group %s: the heartbeat thread has failed", group, exc_info=error)
        failure = WireError(f"the heartbeat thread of group {group!r} has failed: {error!r}")
        failure.__cause__ = error
        return failure

    def _fail(self, error: WireError) -> None:
        with self._changed:
            self.error = error
            self._joining = False
            self._changed.notify_all()

    def _rejoin_unasked(self) -> None:
        machine = self.state_machine
        if not self._rejoins or machine.state not in (MemberState.UNJOINED, MemberState.REBALANCING):
            return
        if machine.lost_error_code == ILLEGAL_GENERATION:
            raise broker_error(ILLEGAL_GENERATION, api="Heartbeat", detail=f"(group {machine.group_id!r})")
        self.request_join()

    def _leave_for_idle_caller(self, idle_s: float) -> None:
        """As Java's consumer: without polls the member leaves, so that others take its partitions over; a poll joins again."""
        logger.warning(
            "group %s: no poll for %.0f s (max.poll.interval.ms), the member leaves the group until the next poll",
            self.state_machine.group_id, idle_s,
        )  # fmt: skip
        self.member.leave()
        self.state_machine.drop_out()
