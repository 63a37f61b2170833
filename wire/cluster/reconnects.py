"""When a broker may be connected to again after attempts that failed (KIP-144).

Owns the failed attempts by address. It opens nothing: :mod:`~pykafka_wire.wire.cluster.connection_pool` does.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from pykafka_wire.wire.backoff import Backoff
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import TransportError
from pykafka_wire.wire.settings import ClientSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """The last failed attempt: how many failed in a row, when the next one may be made, and why it failed."""

    in_a_row: int
    retry_at: float
    error: TransportError


class Reconnects:
    """Failed attempts to connect, by host and port. Threads may share it."""

    def __init__(self, settings: ClientSettings) -> None:
        self._backoff = Backoff.of_connections(settings)
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, int], _Failure] = {}

    def require_due(self, host: str, port: int) -> None:
        """Raises TransportError, with the reason of the last attempt, where it is too early for another one.

        It says nothing of the pause: that has a second at most by default, and who retries meets its end.
        """
        with self._lock:
            failure = self._failures.get((host, port))
        if failure is None:
            return
        if failure.retry_at > time.monotonic():
            last = failure.error
            raise TransportError(last.message, broker=last.broker or f"{host}:{port}", remedy=last.remedy) from last

    def wait_until_due(self, host: str, port: int, deadline: Deadline) -> None:
        """Return when another attempt may be made, at the latest at the deadline."""
        with self._lock:
            failure = self._failures.get((host, port))
        if failure is not None:
            time.sleep(max(0.0, min(failure.retry_at - time.monotonic(), deadline.remaining_ms() / 1000)))

    def record_failure(self, host: str, port: int, error: TransportError) -> None:
        """An attempt has failed: the next one has to wait longer."""
        with self._lock:
            before = self._failures.get((host, port))
            in_a_row = 1 if before is None else before.in_a_row + 1
            retry_at = time.monotonic() + self._backoff.delay_ms(in_a_row) / 1000
            self._failures[host, port] = _Failure(in_a_row=in_a_row, retry_at=retry_at, error=error)

    def record_success(self, host: str, port: int) -> None:
        """A connection was opened: the next attempt need not wait."""
        with self._lock:
            self._failures.pop((host, port), None)
