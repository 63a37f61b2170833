"""How long to pause before a retry. Which errors are retried is :mod:`~pykafka_wire.wire.error_codes`' table."""

from __future__ import annotations

import random

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
        """Pauses before a broker is connected to again, from ``reconnect.backoff.ms`` to ``reconnect.backoff.max.ms`` (KIP-144)."""
        backoff = cls(settings)
        backoff.first_ms, backoff._max_ms = settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms
        return backoff

    def delay_ms(self, n_failures: int) -> float:
        """The pause after the ``n_failures``-th failure in a row, counted from 1."""
        pause: float = min(self._max_ms, self.first_ms * 2.0 ** min(max(0, n_failures - 1), 30))
        return pause * random.uniform(0.8, 1.2)
