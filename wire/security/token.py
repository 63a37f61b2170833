"""What proves an identity to a broker, and whose it is: the interfaces of SASL mechanisms, and of sources of tokens and signatures.

A connection needs the token's value, :mod:`~pykafka_wire.wire.security.oauth` its lifetime, and ``doctor`` the identity.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslIdentity:
    """Who signs in: a name that may be shown, where the credentials came from, and when they end. Holds no secret."""

    name: str
    source: str
    #: In seconds since the epoch; None if they do not end, or it is not known when.
    expires_at: float | None = None


UNKNOWN: Final = SaslIdentity(name="an unnamed identity", source="unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthToken:
    """A bearer token or a signature, its lifetime in seconds from its receipt (None if unknown), and SASL extensions."""

    value: str = field(repr=False)
    lifetime_s: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    identity: SaslIdentity = UNKNOWN


class TokenProvider(Protocol):
    """A source of tokens: one module of :mod:`pykafka_wire.wire.security.clouds` for each cloud."""

    @property
    def mechanism(self) -> str:
        """Return the SASL mechanism that the tokens are for."""
        ...

    def token(self, host: str) -> AuthToken:
        """Return a token that is valid now, for a connection to ``host``; may take as long as the service behind it.

        Raises:
            SettingsError: the settings do not suffice, for example to find a region.
            AuthenticationError: there are no credentials, or they were rejected.
            TransportError: the service behind it could not be reached.
        """
        ...

    def identity(self, host: str) -> SaslIdentity:
        """Return whose token it would be, as exactly as can be found out, for people who ask. Raises as :meth:`token`."""
        ...


class SaslMechanism(Protocol):
    """A SASL mechanism for one connection (see :mod:`pykafka_wire.wire.security.sasl`)."""

    @property
    def name(self) -> str: ...

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Yield tokens for the broker, receive the broker's, and return when the client accepts the broker."""
        ...


def jwt_claims(token: str) -> Mapping[str, Any]:  # Any: JSON
    """Return the claims of a JSON web token (RFC 7519), which are not secret; empty for any other token. Nothing is verified."""
    parts = token.split(".")
    try:
        return json_object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (IndexError, ValueError):
        return {}


def json_object(text: bytes) -> Mapping[str, Any]:  # Any: JSON
    """Return the JSON object in a peer's bytes. Raises ValueError for anything else, and for what is nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deeply nested") from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def printable_line(text: object, limit: int = 400) -> str:
    """Return the text of a library's error on one line, shortened, without control characters."""
    line = " ".join(str(text).split())
    return "".join(character for character in line if character.isprintable())[:limit].rstrip(" :.")
