"""A member of the classic protocol that stays in its group: heartbeats in time, joins in the background.

The rebalance protocol of the caller: while :attr:`HeartbeatThread.state` is STABLE it owns what the group has assigned. In any
other state it gives up what it owns (it may commit before, as long as the place in the group is not lost), and calls
:meth:`HeartbeatThread.request_join`. Until then heartbeats go on under the old generation. The thread is
:mod:`~pykafka_wire.wire.groups.member_thread`'s.
"""

from __future__ import annotations

import time
from typing import Final

from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import BrokerError, WireError
from pykafka_wire.wire.groups.member import GroupMember
from pykafka_wire.wire.groups.member_state import (
    FENCED_INSTANCE_ID,
    MemberState,
    MemberStateMachine,
)
from pykafka_wire.wire.groups.member_thread import MemberThread, longer_pause_s
from pykafka_wire.wire.settings import ClientSettings

#: How often a wait looks whether its deadline was cancelled, or whether a member that leaves has left.
_POLL_S: Final = 0.02


class HeartbeatThread:
    """A member of a group, and the thread that joins and sends its heartbeats.

    After an error that ends the membership, :attr:`error` holds it and the thread has ended. No error ends it where the member
    joins again by itself, unless another member has taken its instance id.
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
                rebalance or a loss of the place, after a pause where the group refuses the member. The membership ends where
                another member has taken the instance id.
        """
        self.member = member
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._refresh_s = settings.metadata_max_age_ms / 1000
        self._refreshed_at = time.monotonic()
        self._rejoins = rejoins
        self._joining = False
        self._thread = MemberThread(self, member.state_machine.group_id, settings, max_idle_ms=max_idle_ms)
        self._changed = self._thread.changed

    @property
    def state_machine(self) -> MemberStateMachine:
        return self.member.state_machine

    @property
    def error(self) -> WireError | None:
        """The error that has ended the membership."""
        return self._thread.error

    @property
    def state(self) -> MemberState:
        """The member's state; UNJOINED also from :meth:`request_join` until it has joined, and after an error."""
        with self._changed:
            return MemberState.UNJOINED if self.joining or self.error is not None else self.state_machine.state

    @property
    def joining(self) -> bool:
        """Whether a join is under way."""
        return self._joining and self.error is None

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
            self._thread.start()

    def wait_until_stable(self, deadline: Deadline) -> bool:
        """Whether the member is STABLE; waits for it until ``deadline``.

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

    def raise_failure(self) -> None:
        """Raise what :meth:`wait_until_stable` would, without waiting; also what heartbeats have failed with."""
        with self._changed:
            self._thread.raise_failure(keep=self._rejoins)

    def wait_for_join(self, deadline: Deadline) -> bool:
        """Whether a join was under way and has succeeded; waits for its end until ``deadline``."""
        with self._changed:
            was_joining = self.joining
            while self.joining and not (self._thread.is_closing or deadline.expired):
                self._changed.wait(min(_POLL_S, deadline.remaining_ms() / 1000))  # a deadline may be cancelled
            return was_joining and not self._joining and self.error is None

    def record_poll(self) -> None:
        """The caller polls: ``max.poll.interval.ms`` begins anew."""
        self._thread.record_poll()

    def close(self, *, leave: bool = True) -> None:
        """End the thread, and leave the group; ``leave=False`` for a static member that is to come back soon. May be called
        twice."""
        self._thread.close(leave=leave)

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
            self._refreshed_at = time.monotonic()
            with self._changed:
                self._joining = False
                self._thread.forget_failure()
        elif self.member.heartbeat() and time.monotonic() - self._refreshed_at > self._refresh_s:
            self._refreshed_at = time.monotonic()
            if self.member.topics_have_changed():
                self.state_machine.rejoin()
        self._rejoin_unasked()
        return self._interval_s

    def _rejoin_unasked(self) -> None:
        if self._rejoins and self.state_machine.state in (MemberState.UNJOINED, MemberState.REBALANCING):
            self.request_join()

    def pause_after(self, error: WireError, n_failures: int) -> float | None:
        if not self._rejoins or (isinstance(error, BrokerError) and error.code == FENCED_INSTANCE_ID):
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
