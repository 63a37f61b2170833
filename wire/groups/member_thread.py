"""The thread of a group's member, in either group protocol: when it sends, what an error means for the membership, how it leaves.

Heartbeats go out in time however long the member's caller works. What is sent is the protocol's:
:mod:`~pykafka_wire.wire.groups.classic.membership` for the classic one, :mod:`~pykafka_wire.wire.groups.kip848.membership` for
that of KIP-848.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.cluster.retries import Backoff
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    AuthenticationError,
    NoBrokerAvailableError,
    SettingsError,
    TransportError,
    WireError,
)
from pykafka_wire.wire.protocol.message import Asked, Message
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

#: The time for leaving: a coordinator that does not respond drops the member after its session timeout.
LEAVE_TIMEOUT_MS: Final = 5_000
#: The first and the longest pause after an error that is no matter of the network, such as refused credentials: each try with
#: wrong ones brings an account closer to being locked.
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
ResponseT = TypeVar("ResponseT", bound=Message)


class GroupProtocol(Protocol):
    """What a member's thread does in one of the two protocols. Properties are read under the thread's lock."""

    @property
    def waits_for_caller(self) -> bool:
        """Return whether nothing is sent until the caller has given up what it owned."""

    @property
    def is_urgent(self) -> bool:
        """Return whether the next request is not to wait for its time."""

    @property
    def has_place(self) -> bool:
        """Return whether the member has a place in the group, to give up for a caller that does not poll."""

    def send(self) -> float:
        """Send what is due; the time between two heartbeats, in seconds. Raises WireError."""

    def pause_after(self, error: WireError, n_failures: int) -> float | None:
        """Return the pause in seconds after an error that is neither of the network nor of credentials; None where it ends the
        membership. Called under the lock.
        """

    def drop_out(self) -> None:
        """Leave the group for a caller that does not poll: its next poll joins again."""

    def stop(self) -> None:
        """End the request in progress. Called from the thread that closes the member."""

    def leave(self, *, comes_back: bool) -> None:
        """Leave the group for good, or as a static member that comes back. No thread runs any more."""


class MemberThread:
    """Sends a member's requests when they are due, from :meth:`start` until :meth:`close` or an error that ends the membership.

    An unreachable coordinator ends nothing, nor do credentials that are refused or missing: the thread tries again until a
    coordinator responds. What the credentials' error says is raised to the caller once for each try.

    Attributes:
        changed: guards the members of this class, and what the protocol shares with its caller; notified after each request.
        error: the error that has ended the membership.
        n_ended: how many requests have ended, with a response or without.
        is_closing: whether :meth:`close` was called.
    """

    def __init__(
        self, protocol: GroupProtocol, group_id: str, settings: ClientSettings, *, max_idle_ms: float | None = None
    ) -> None:
        """Start nothing yet.

        Args:
            max_idle_ms: the member leaves the group when :meth:`record_poll` was not called for so long
                (``max.poll.interval.ms``).
        """
        self.changed = threading.Condition()
        self.error: WireError | None = None
        self.n_ended = 0
        self.is_closing = False
        self._protocol = protocol
        self._group_id = group_id
        self._backoff = Backoff(settings)
        self._max_idle_s = float("inf") if max_idle_ms is None else max_idle_ms / 1000
        self._polled_at = time.monotonic()
        self._thread: threading.Thread | None = None
        #: Why the member has not joined yet, or an error after which the membership goes on.
        self._failure: WireError | None = None
        self._has_succeeded = False
        self._is_requested = False
        self._n_begun = 0
        self._n_failures = 0
        self._due_at = float("-inf")

    # --- for the caller's threads, under the lock but for record_poll and close --------------------------------------

    def start(self) -> None:
        """Start the thread, unless that was done before."""
        if self._thread is None and not self.is_closing:
            name = f"pykafka-wire member of {self._group_id}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def request(self) -> int:
        """Have the next request sent at once; returns the :attr:`n_ended` by which it has ended."""
        self._is_requested = True
        self.changed.notify_all()
        return self._n_begun + 1

    def raise_failure(self, *, keep: bool = False) -> None:
        """Raise the error that has ended the membership, or else, once unless ``keep``, the last one that did not.

        Of those that did not, no error of the network is raised, but NoBrokerAvailableError before the first response: the
        addresses may be wrong."""
        if self.error is not None:
            raise self.error
        if self._failure is not None:
            failure = self._failure
            if not keep:
                self._failure = None
            raise failure

    def forget_failure(self) -> None:
        """Let :meth:`raise_failure` raise no error from before: it is over."""
        self._failure = None

    @property
    def has_failed(self) -> bool:
        """Return whether :meth:`raise_failure` raises."""
        return self.error is not None or self._failure is not None

    def record_poll(self) -> None:
        """Note that the caller polls: ``max.poll.interval.ms`` begins anew."""
        self._polled_at = time.monotonic()

    def close(self, *, leave: bool) -> None:
        """End the thread, and leave the group; ``leave=False`` for a static member that is to come back soon. May be called
        twice."""
        with self.changed:
            if self.is_closing:
                return
            self.is_closing = True
            self.changed.notify_all()
        self._protocol.stop()
        if self._thread is not None:
            self._thread.join(LEAVE_TIMEOUT_MS / 1000)
            self._protocol.leave(comes_back=not leave)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait_until_due():
            idle_s = time.monotonic() - self._polled_at
            try:
                if self._protocol.has_place and idle_s > self._max_idle_s:
                    logger.warning(
                        "group %s: no poll for %.0f s (max.poll.interval.ms), the member leaves the group until the next poll",
                        self._group_id, idle_s,
                    )  # fmt: skip
                    self._protocol.drop_out()
                    interval_s = 0.0  # nothing is due until that poll
                else:
                    interval_s = self._protocol.send()
            except Exception as error:
                self._end(self._note_failure(error))
            else:
                self._n_failures = 0
                self._has_succeeded = True
                self._end(interval_s)

    def _wait_until_due(self) -> bool:
        """Return whether to send something now; False where the thread is to end."""
        with self.changed:
            while not (self.is_closing or self.error is not None):
                hurries = self._n_failures == 0 and (self._is_requested or self._protocol.is_urgent)
                pause_s = 0.0 if hurries else self._due_at - time.monotonic()
                if self._protocol.waits_for_caller:
                    self.changed.wait()
                elif pause_s > 0:
                    self.changed.wait(pause_s)
                else:
                    self._n_begun += 1
                    self._is_requested = False
                    return True
        return False

    def _note_failure(self, error: Exception) -> float:
        """Return the pause after an error, unless that ends the membership."""
        with self.changed:
            if self.is_closing:
                return 0.0
            self._n_failures += 1
            pause_s: float | None
            if isinstance(error, TransportError):
                # The coordinator is unreachable for now. The session may expire meanwhile; the next heartbeat finds out.
                pause_s = self._backoff.delay_ms(self._n_failures) / 1000
                if isinstance(error, NoBrokerAvailableError) and not self._has_succeeded:
                    self._failure = error
            elif isinstance(error, (AuthenticationError, SettingsError)):
                pause_s = longer_pause_s(self._n_failures)
                self._failure = error
            else:
                if not isinstance(error, WireError):
                    logger.error("group %s: the heartbeat thread has failed", self._group_id, exc_info=error)
                    failure = WireError(f"the heartbeat thread of group {self._group_id!r} has failed: {error!r}")
                    failure.__cause__ = error
                    error = failure
                pause_s = self._protocol.pause_after(error, self._n_failures)
                if pause_s is None:
                    self.error = error
                    return 0.0
                self._failure = error
            logger.warning("group %s: trying again in %.1f s: %s", self._group_id, pause_s, error)
            return pause_s

    def _end(self, pause_s: float) -> None:
        with self.changed:
            self.n_ended = self._n_begun
            self._due_at = time.monotonic() + pause_s
            self.changed.notify_all()


def longer_pause_s(n_failures: int) -> float:
    """Return the pause before another try where the one before is not likely to succeed soon."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(n_failures - 1, 8))


def leave_group(
    cluster: Cluster, group_id: str, request: Asked[ResponseT], check: Callable[[ResponseT], None], deadline: Deadline
) -> None:
    """Leave a group, so that others need not wait for the session timeout. A failure is logged, never raised."""
    try:
        check(cluster.by_coordinator(CoordinatorKind.GROUP, {group_id: request}, deadline=deadline)[group_id])
    except WireError as error:
        logger.warning(
            "group %s: leaving failed, the coordinator drops the member after its session timeout: %s", group_id, error
        )
