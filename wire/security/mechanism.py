"""What a connection needs of a SASL mechanism: a name, and tokens to exchange. Owns no mechanism."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol


class SaslMechanism(Protocol):
    """A SASL mechanism for one connection (see :mod:`pykafka_wire.wire.security.sasl`)."""

    @property
    def name(self) -> str: ...

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Yields tokens for the broker and is sent the broker's; returns once we are satisfied."""
        ...
