"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides prove that they know the password, and neither sends it.

Owns the client's side of RFC 5802 and RFC 7677 without channel binding, and what it refuses of a broker. It knows no
connection: :mod:`~pykafka_wire.wire.connection.state_machine` carries the messages. Kafka prepares neither user nor password
(RFC 4013, SASLprep): it stores what it was given as UTF-8, so preparing them here would lock users out whose passwords it changes.
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

#: Kafka stores no credential with fewer iterations. An impostor that asks for few gets a proof that is cheap to attack.
MIN_ITERATIONS: Final = 4_096
#: More would let a hostile broker burn our time: a million take about half a second.
MAX_ITERATIONS: Final = 1_000_000
#: SCRAM mechanism -> hash, by hashlib's name.
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

# RFC 5802, section 7: the attributes stand in this order; extensions may follow, and one named m must be refused.
_CHALLENGE: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,10})(?:,[A-Za-z]=[^,\0]*)*")
_VERDICT: Final = re.compile(r"v=([A-Za-z0-9+/=]+)(?:,[A-Za-z]=[^,\0]*)*")
_REFUSAL: Final = re.compile(r"e=([^,\0]{1,200})(?:,.*)?", re.DOTALL)
_GS2_HEADER: Final = "n,,"
_GS2_BASE64: Final = "biws"


def _nonce() -> str:
    """Text that was never used before: 24 bytes of the system's randomness, in base64 without a comma."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scram:
    """One user's side of it."""

    name: str
    username: str
    password: str = field(repr=False)
    #: Whether user and password are id and HMAC of a delegation token (KIP-48).
    is_token: bool = False
    #: For tests: the RFCs' examples fix it. Else each exchange makes its own.
    nonce: str = field(default="", repr=False)

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Raises AuthenticationError where the broker's side of the proof does not hold."""
        algorithm = HASHES[self.name]
        our_nonce = self.nonce or _nonce()
        user = self.username.replace("=", "=3D").replace(",", "=2C")
        first = f"n={user},r={our_nonce}{',tokenauth=true' if self.is_token else ''}"
        challenge = self._text((yield f"{_GS2_HEADER}{first}".encode()))
        match = _CHALLENGE.fullmatch(challenge)
        if match is None:
            raise AuthenticationError(f"the broker's {self.name} challenge is malformed")
        nonce, salt, iterations = match[1], self._base64(match[2]), int(match[3])
        if not nonce.startswith(our_nonce) or len(nonce) == len(our_nonce):
            raise AuthenticationError(f"the broker's {self.name} nonce does not extend ours: it may be an impostor")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {iterations} {self.name} iterations, where {MIN_ITERATIONS} to {MAX_ITERATIONS} "
                "are accepted"
            )
        salted = hashlib.pbkdf2_hmac(algorithm, self.password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        stored_key = hashlib.new(algorithm, client_key).digest()
        final = f"c={_GS2_BASE64},r={nonce}"
        signed = f"{first},{challenge},{final}".encode()
        proof = bytes(
            key ^ mask for key, mask in zip(client_key, hmac.digest(stored_key, signed, algorithm), strict=True)
        )
        verdict = self._text((yield f"{final},p={base64.b64encode(proof).decode()}".encode()))
        match = _VERDICT.fullmatch(verdict)
        server_key = hmac.digest(salted, b"Server Key", algorithm)
        expected = hmac.digest(server_key, signed, algorithm)
        if match is None or not hmac.compare_digest(expected, self._base64(match[1])):
            raise AuthenticationError(
                "the broker could not prove that it knows the password: it may be an impostor",
                remedy="Check bootstrap.servers, and that nothing between here and there answers for the brokers.",
            )

    def _text(self, token: bytes) -> str:
        """A message of the broker's; raises AuthenticationError where it is a refusal."""
        try:
            text = token.decode("utf-8")
        except UnicodeDecodeError as error:
            raise AuthenticationError(f"the broker's {self.name} message is no text") from error
        refusal = _REFUSAL.fullmatch(text)
        if refusal is not None:
            raise AuthenticationError(
                f"the broker refused {self.name} authentication: {refusal[1]!r}",
                remedy="Check the user and its password.",
            )
        return text

    def _base64(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except ValueError as error:
            raise AuthenticationError(f"the broker's {self.name} message is malformed") from error
