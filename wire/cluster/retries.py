"""Repeats an operation until a deadline, with growing pauses: which errors are repeated, and the error when time is over.

Owns the one loop in which requests are repeated, to a given broker, a leader, a coordinator or any broker, and the grace periods
of error codes (an unknown topic is retriable, yet one that never was must fail within seconds). Batches that are sent again
(:mod:`~pykafka_wire.wire.produce.producer`) and ranges that are fetched again are not whole requests, and have loops of their
own. It knows no broker. Which errors are retried is :mod:`~pykafka_wire.wire.error_codes`' table.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

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
from pykafka_wire.wire.settings import ClientSettings


class Backoff:
    """Pauses between tries: exponential from ``retry.backoff.ms`` to ``retry.backoff.max.ms``, with jitter of a fifth,
    so that clients that failed together do not come back together (KIP-580)."""

    def __init__(self, settings: ClientSettings) -> None:
        # As Java's clients: where the first pause is above the longest, every pause is the longest.
        self.first_ms = settings.retry_backoff_ms
        self._max_ms = settings.retry_backoff_max_ms

    @classmethod
    def of_connections(cls, settings: ClientSettings) -> Backoff:
        """Return pauses before a broker is connected to again, from ``reconnect.backoff.ms`` to ``reconnect.backoff.max.ms``
        (KIP-144)."""
        backoff = cls(settings)
        backoff.first_ms, backoff._max_ms = settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms
        return backoff

    def delay_ms(self, n_failures: int) -> float:
        """Return the pause after the ``n_failures``-th failure in a row, counted from 1."""
        pause: float = min(self._max_ms, self.first_ms * 2.0 ** min(max(0, n_failures - 1), 30))
        return pause * random.uniform(0.8, 1.2)


ValueT = TypeVar("ValueT")


class GracePeriods:
    """How long each error code may go on to be retried, counted from when it was first met. Used for whole requests here,
    for ranges in fetch and for batches in produce."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    def allow(self, code: int, now: float | None = None) -> bool:
        """Return whether another try is due for an error code; ``now`` is in seconds of the caller's clock, by default the
        monotonic one."""
        grace_ms = error_info(code).grace_ms
        if grace_ms is None:
            return True
        now = time.monotonic() if now is None else now
        return now < self._until.setdefault(code, now + grace_ms / 1000)

    def clear(self) -> None:
        """Count anew: something has succeeded."""
        self._until.clear()


class Unfinished(Exception):  # noqa: N818  (no error: what is wrong is kept)
    """A try has not done all of an operation: the rest is tried again. What failed was kept by :meth:`Retry.keep`."""


class Retry:
    """One operation, repeated until its deadline; tried once at least. ``counters`` count all tries but the first.

    Attributes:
        last: the last failure that is worth reporting.
    """

    def __init__(self, backoff: Backoff, deadline: Deadline, counters: ClientCounters | None = None) -> None:
        self.deadline = deadline
        self.last: WireError | None = None
        self._backoff = backoff
        self._counters = counters
        self._grace_periods = GracePeriods()

    def run(self, operation: Callable[[], ValueT], what: str) -> ValueT:
        """Return what ``operation`` returns; called again after errors that :meth:`keep` keeps. ``what`` names it in an error.

        Raises:
            DeadlineExceededError: chained to the last failure.
        """
        started = time.monotonic()
        n_failures = 0
        while True:
            try:
                return operation()
            except Unfinished:
                pass
            except (TransportError, BrokerError) as error:
                self.keep(error)
            n_failures += 1
            pause_ms = self._backoff.delay_ms(n_failures)
            if self.deadline.remaining_ms() <= pause_ms:
                raise self._gave_up(what, started) from self.last
            self.deadline.sleep(pause_ms)
            if self.deadline.expired:  # it was cancelled
                raise self._gave_up(what, started) from self.last
            if self._counters is not None:
                self._counters.count(retries=1)

    def allows(self, code: int) -> bool:
        """Return whether another try is due for an error code: it is retriable, and its grace period is not over."""
        return error_info(code).retriable and self._grace_periods.allow(code)

    def keep(self, error: WireError) -> None:
        """Keep a failure after which another try may succeed as the reason for the next one; raise any other."""
        if isinstance(error, NoBrokerAvailableError):  # it comes after its own retries
            if isinstance(self.last, BrokerError) and self.deadline.expired:
                return  # brokers did respond before: what they said says more
            raise error
        if not (self.allows(error.code) if isinstance(error, BrokerError) else isinstance(error, TransportError)):
            raise error
        # That time ran out in the last try says less than what went wrong before.
        if self.last is None or not isinstance(error, DeadlineExceededError):
            self.last = error

    def _gave_up(self, what: str, started: float) -> DeadlineExceededError:
        last = self.last
        error = DeadlineExceededError(
            f"{what} did not succeed in {self.deadline.spent(started)}{f': {last.message}' if last else ''}"
        )
        if last is not None:
            error.topic, error.partition, error.broker = last.topic, last.partition, last.broker
            error.api, error.version, error.remedy = last.api, last.version, last.remedy
        return error
