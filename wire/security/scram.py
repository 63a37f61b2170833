"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides prove that they know the password, and neither sends it.

Owns the client's side of RFC 5802 and RFC 7677 without channel binding, and the checks of the broker's messages. It knows no
connection: :mod:`~pykafka_wire.wire.connection.state_machine` sends the messages. Kafka does not apply SASLprep (RFC 4013) to
user or password, but stores them as given, in UTF-8. So this client does not apply it either: it would change some passwords.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

from pykafka_wire.wire.errors import AuthenticationError

#: Kafka stores no credential with fewer iterations. With few, an impostor would get a proof that is cheap to attack.
MIN_ITERATIONS: Final = 4_096
#: A hostile broker could waste CPU time with more: a million take about half a second.
MAX_ITERATIONS: Final = 1_000_000
#: SCRAM mechanism -> hash, by hashlib's name.
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

# RFC 5802, section 7: the attributes have this order; extensions may follow, and one named m must be rejected.
_SERVER_FIRST: Final = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,10})(?:,[A-Za-z]=[^,\0]*)*"
)
_SERVER_FINAL: Final = re.compile(r"v=([A-Za-z0-9+/=]+)(?:,[A-Za-z]=[^,\0]*)*")
_SERVER_ERROR: Final = re.compile(r"e=([^,\0]{1,200})(?:,.*)?", re.DOTALL)
_GS2_HEADER: Final = "n,,"
_GS2_BASE64: Final = "biws"


def _nonce() -> str:
    """Return a fresh random text: 24 bytes of the system's randomness, in base64 without a comma."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scram:
    """The client's side of the exchange, for one user."""

    name: str
    username: str
    password: str = field(repr=False)
    #: Whether user and password are id and HMAC of a delegation token (KIP-48).
    is_token: bool = False
    #: For tests, since the RFCs' examples fix it; by default each exchange makes its own.
    nonce: str = field(default="", repr=False)

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Exchange tokens by SCRAM. Raises AuthenticationError if the broker rejects the user, or its own proof is wrong."""
        algorithm = HASHES[self.name]
        client_nonce = self.nonce or _nonce()
        user = self.username.replace("=", "=3D").replace(",", "=2C")
        first = f"n={user},r={client_nonce}{',tokenauth=true' if self.is_token else ''}"
        server_first = self._text((yield f"{_GS2_HEADER}{first}".encode()))
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise AuthenticationError(f"the broker's {self.name} message is malformed")
        nonce, salt, iterations = match[1], self._base64(match[2]), int(match[3])
        if not nonce.startswith(client_nonce) or len(nonce) == len(client_nonce):
            raise AuthenticationError(
                f"the broker's {self.name} nonce does not extend the client's nonce: it may be an impostor"
            )
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise AuthenticationError(
                f"the broker requests {iterations} {self.name} iterations; this client accepts {MIN_ITERATIONS} to "
                f"{MAX_ITERATIONS}"
            )
        salted = hashlib.pbkdf2_hmac(algorithm, self.password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        stored_key = hashlib.new(algorithm, client_key).digest()
        final = f"c={_GS2_BASE64},r={nonce}"
        signed = f"{first},{server_first},{final}".encode()
        proof = bytes(
            key ^ mask for key, mask in zip(client_key, hmac.digest(stored_key, signed, algorithm), strict=True)
        )
        server_final = self._text((yield f"{final},p={base64.b64encode(proof).decode()}".encode()))
        match = _SERVER_FINAL.fullmatch(server_final)
        server_key = hmac.digest(salted, b"Server Key", algorithm)
        expected = hmac.digest(server_key, signed, algorithm)
        if match is None or not hmac.compare_digest(expected, self._base64(match[1])):
            raise AuthenticationError(
                "the broker could not prove that it knows the password: it may be an impostor",
                remedy="Check {bootstrap.servers}, and that no proxy in between responds instead of the brokers.",
            )

    def _text(self, token: bytes) -> str:
        """Return the text of a broker's message; raises AuthenticationError if it is an error."""
        try:
            text = token.decode("utf-8")
        except UnicodeDecodeError as error:
            raise AuthenticationError(f"the broker's {self.name} message is not UTF-8 text") from error
        server_error = _SERVER_ERROR.fullmatch(text)
        if server_error is not None:
            raise AuthenticationError(
                f"the broker refused {self.name} authentication: {server_error[1]!r}",
                remedy="Check the user and its password.",
            )
        return text

    def _base64(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except ValueError as error:
            raise AuthenticationError(f"the broker's {self.name} message is malformed") from error
