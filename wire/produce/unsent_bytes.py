"""How much a producer has queued since it last sent, and for how long: what decides when requests leave (``linger.ms``)."""

from __future__ import annotations

import time

from pykafka_wire.wire.settings import ClientSettings


class UnsentBytes:
    """Bytes of batches that were queued and not yet offered to a broker."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._n_bytes = 0
        self._since: float | None = None

    def add(self, n_bytes: int) -> None:
        """One more batch is queued."""
        self._n_bytes += n_bytes
        if self._since is None:
            self._since = time.monotonic()

    @property
    def fill_request(self) -> bool:
        """Whether they reach ``max.request.size``."""
        return self._n_bytes >= self._settings.max_request_size

    @property
    def lingered(self) -> bool:
        """Whether ``linger.ms`` has passed since the first of them was queued."""
        linger_ms, since = self._settings.linger_ms, self._since
        return linger_ms is not None and since is not None and (time.monotonic() - since) * 1000 >= linger_ms

    def offered(self, *, everything: bool) -> None:
        """Requests have left; unless `everything`, small ones may have stayed, and linger on."""
        self._n_bytes = 0
        if everything:
            self._since = None
