"""Authentication: the choice of a SASL mechanism, then its tokens (KIP-43, KIP-152, session lifetime KIP-368)."""

from __future__ import annotations

from pykafka_wire.wire.protocol.fields import array, binary, int16, int64, string
from pykafka_wire.wire.protocol.message import Message, Request


class SaslHandshakeResponse(Message, versions=(0, 1)):
    error_code: int = int16()
    mechanisms: list[str] = array(string)


class SaslHandshakeRequest(Request[SaslHandshakeResponse], api_key=17, versions=(0, 1)):
    """Version 1 puts the tokens that follow into SaslAuthenticate; version 0 would send them bare: never use it."""

    mechanism: str = string()


class SaslAuthenticateResponse(Message, versions=(0, 2), flexible=2):
    """`session_lifetime_ms`, if not 0, asks for authentication anew before it is over (KIP-368)."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    auth_bytes: bytes = binary(secret=True)
    session_lifetime_ms: int = int64(since=1, ignorable=True)


class SaslAuthenticateRequest(Request[SaslAuthenticateResponse], api_key=36, versions=(0, 2), flexible=2):
    auth_bytes: bytes = binary(secret=True)
