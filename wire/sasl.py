"""SASL mechanisms as generators: a token for the broker comes out, the broker's goes in, until both sides are satisfied.

Owns what the mechanisms say and prove: PLAIN (RFC 4616), SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677). It knows no
connection: :mod:`~pykafka_wire.wire.protocol` carries the tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pykafka_wire.wire.errors import AuthenticationError, SettingsError
from pykafka_wire.wire.protocol import SaslMechanism
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

#: Kafka refuses to store credentials with fewer iterations, and more than this would let a hostile broker burn our time.
_MIN_ITERATIONS: Final = 4_096
_MAX_ITERATIONS: Final = 1_000_000
_HASHES: Final[dict[str, Callable[..., object]]] = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}
_JAAS_OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def mechanism(settings: ClientSettings, host: str) -> SaslMechanism:
    """The mechanism that the settings name, with its credentials.

    Raises:
        SettingsError: credentials are missing, or this client does not have the mechanism.
    """
    name = settings.sasl_mechanism or ""
    if name not in ("PLAIN", *_HASHES):
        raise SettingsError(
            f"sasl.mechanism {name} is not available in this version: use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
            setting="sasl.mechanism",
        )
    username, password = credentials(settings)
    if name == "PLAIN":
        if not settings.uses_tls:
            logger.warning("PLAIN over %s sends the password unencrypted to %s", settings.security_protocol, host)
        return Plain(username=username, password=password)
    return Scram(name=name, username=username, password=password)


def credentials(settings: ClientSettings) -> tuple[str, str]:
    """User and password, from ``sasl.username`` and ``sasl.password`` or from the JAAS line; the first go before the second.

    Raises:
        SettingsError: one is missing.
    """
    jaas = parse_jaas(settings.sasl_jaas_config or "")
    username = settings.sasl_username or jaas.get("username")
    password = settings.sasl_password or jaas.get("password")
    if not username or not password:
        raise SettingsError(
            f"{settings.sasl_mechanism} needs a user and a password: set sasl.username and sasl.password, or "
            "sasl.jaas.config with a login module that names both.",
            setting="sasl.username",
        )
    return username, resolve_secret(password, "sasl.password")


def parse_jaas(line: str) -> dict[str, str]:
    """The options of a JAAS login module line, ``Module required username="u" password="p";``."""
    found = {}
    for name, double, single, bare in _JAAS_OPTION.findall(line):
        quoted = double or single
        found[name] = re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
    return found


def resolve_secret(value: str, setting: str) -> str:
    """A secret given by itself, or by reference: ``file:/path`` (its content, without the last newline) or ``env:NAME``.

    Raises:
        SettingsError: the file cannot be read, or the variable is not set.
    """
    kind, colon, where = value.partition(":")
    if colon and kind == "file":
        try:
            return Path(where).read_text(encoding="utf-8").removesuffix("\n")
        except OSError as error:
            raise SettingsError(
                f"{setting} names a file that cannot be read: {error.strerror}.", setting=setting
            ) from error
    if colon and kind == "env":
        if where not in os.environ:
            raise SettingsError(f"{setting} names the environment variable {where}, which is not set.", setting=setting)
        return os.environ[where]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """User and password in one token; only TLS keeps them secret."""

    username: str
    password: str = field(repr=False)

    @property
    def name(self) -> str:
        return "PLAIN"

    def exchange(self) -> Generator[bytes, bytes, None]:
        yield f"\0{self.username}\0{self.password}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scram:
    """Both sides prove that they know the password, and neither sends it."""

    name: str
    username: str
    password: str = field(repr=False)
    #: For tests; a nonce must never be used twice.
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Raises AuthenticationError where the broker's side of the proof does not hold."""
        user = self.username.replace("=", "=3D").replace(",", "=2C")
        bare = f"n={user},r={self.nonce}"
        first = (yield f"n,,{bare}".encode()).decode("utf-8", "replace")
        challenge = _attributes(first)
        self._refuse(challenge)
        nonce, salt = challenge.get("r", ""), challenge.get("s", "")
        if not nonce.startswith(self.nonce) or len(nonce) == len(self.nonce):
            raise AuthenticationError("the broker's SCRAM nonce does not extend ours: it may be an impostor")
        try:
            iterations, salt_bytes = int(challenge.get("i", "")), base64.b64decode(salt, validate=True)
        except ValueError as error:
            raise AuthenticationError("the broker's SCRAM challenge is malformed") from error
        if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {iterations} SCRAM iterations, where {_MIN_ITERATIONS} to {_MAX_ITERATIONS} are accepted"
            )
        algorithm = self.name.removeprefix("SCRAM-").replace("-", "").lower()
        salted = hashlib.pbkdf2_hmac(algorithm, self.password.encode(), salt_bytes, iterations)

        def mac(key: bytes, text: str | bytes) -> bytes:
            return hmac.digest(key, text.encode() if isinstance(text, str) else text, algorithm)

        without_proof = f"c=biws,r={nonce}"
        signed = f"{bare},{first},{without_proof}"
        client_key = mac(salted, "Client Key")
        signature = mac(hashlib.new(algorithm, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        last = (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode("utf-8", "replace")
        answer = _attributes(last)
        self._refuse(answer)
        expected = mac(mac(salted, "Server Key"), signed)
        try:
            given = base64.b64decode(answer.get("v", ""), validate=True)
        except ValueError:
            given = b""
        if not hmac.compare_digest(expected, given):
            raise AuthenticationError("the broker could not prove that it knows the password: it may be an impostor")

    def _refuse(self, answer: dict[str, str]) -> None:
        if "e" in answer:
            raise AuthenticationError(
                f"the broker refused {self.name} authentication: {answer['e']}",
                remedy="Check the user and its password.",
            )


def _attributes(message: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.split(",") if "=" in part)
