"""The interface of a SASL mechanism, as a connection uses it: a name, and an exchange of tokens."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol


class SaslMechanism(Protocol):
    """A SASL mechanism for one connection (see :mod:`pykafka_wire.wire.security.sasl`)."""

    @property
    def name(self) -> str: ...

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Yields tokens for the broker, receives the broker's, and returns when the client accepts the broker."""
        ...
