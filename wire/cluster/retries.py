"""Retries until a deadline, with growing pauses: which errors are retried, and the error when time is over.

Owns the loop that every repeated request of :mod:`~pykafka_wire.wire.cluster.cluster` runs in, and the grace times of error codes
(an unknown topic is retriable, yet one that never was must fail within seconds). It knows no broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from pykafka_wire.wire.backoff import Backoff
from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import error_info
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    NoBrokerAvailableError,
    TransportError,
    WireError,
)


class Attempt(AbstractContextManager["Attempt"]):
    """One try, as a ``with`` block: swallows retriable errors, and keeps the last one as the cause of the final error."""

    def __init__(self, graces: Graces, started: float, deadline: Deadline, error: WireError | None = None) -> None:
        #: The last failure worth reporting, this try's or an earlier one's.
        self.error = error
        self._graces = graces
        self._started = started
        self._deadline = deadline

    def may_retry(self, code: int) -> bool:
        """Whether another try is due for an error code."""
        return self._graces.allow(code)

    def gave_up(self, what: str) -> DeadlineExceededError:
        """The error for a deadline that passed, with the last failure as its cause."""
        last = self.error
        why = f": {last.message}" if last is not None else ""
        error = DeadlineExceededError(f"{what} did not succeed in {self._deadline.spent(self._started)}{why}")
        if last is not None:
            error.topic, error.partition, error.broker = last.topic, last.partition, last.broker
            error.api, error.version, error.remedy = last.api, last.version, last.remedy
        error.__cause__ = last
        return error

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        # NoBrokerAvailableError comes after its own retries.
        if not isinstance(error, TransportError | BrokerError) or isinstance(error, NoBrokerAvailableError):
            return False
        if isinstance(error, BrokerError) and not (error.retriable and self.may_retry(error.code)):
            return False
        # That time ran out in the last try says less than what went wrong before.
        if self.error is None or not isinstance(error, DeadlineExceededError):
            self.error = error
        return True


class Graces:
    """How long each error code may go on to be retried, counted from when it was first met. Used for whole requests here,
    for ranges in fetch and for batches in produce."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    def allow(self, code: int, now: float | None = None) -> bool:
        """Whether another try is due for an error code; ``now`` is in seconds of the caller's clock, by default the
        monotonic one."""
        grace_ms = error_info(code).grace_ms
        if grace_ms is None:
            return True
        now = time.monotonic() if now is None else now
        return now < self._until.setdefault(code, now + grace_ms / 1000)

    def clear(self) -> None:
        """Count anew: something has succeeded."""
        self._until.clear()


def tries(backoff: Backoff, deadline: Deadline, counters: ClientCounters | None = None) -> Iterator[Attempt]:
    """Attempts with growing pauses until the deadline; at least one. ``counters`` count all but the first."""
    graces = Graces()
    started = time.monotonic()
    n_failures = 0
    error: WireError | None = None
    while True:
        attempt = Attempt(graces, started, deadline, error)
        yield attempt
        error = attempt.error
        n_failures += 1
        pause_ms = backoff.delay_ms(n_failures)
        if deadline.remaining_ms() <= pause_ms:
            return
        time.sleep(pause_ms / 1000)
        if counters is not None:
            counters.count_retries()


def gave_up(attempt: Attempt | None, what: str) -> DeadlineExceededError:
    """The error after the last of some tries; see :meth:`Attempt.gave_up`."""
    assert attempt is not None  # there is always a first one
    return attempt.gave_up(what)
