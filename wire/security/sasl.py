"""SASL mechanisms as generators: a token for the broker comes out, the broker's goes in, until both sides are satisfied.

Owns the choice of a mechanism and its credentials, PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628); SCRAM is
:mod:`~pykafka_wire.wire.security.scram`'s, GSSAPI :mod:`~pykafka_wire.wire.security.kerberos`'s, and how a bearer token is had
:mod:`~pykafka_wire.wire.security.oauth`'s. It knows no connection: :mod:`~pykafka_wire.wire.connection.state_machine` carries
the tokens. https://kafka.apache.org/documentation/#security_sasl
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pykafka_wire.wire.errors import AuthenticationError, SettingsError
from pykafka_wire.wire.security import jaas
from pykafka_wire.wire.security.mechanism import SaslMechanism
from pykafka_wire.wire.security.scram import HASHES, Scram
from pykafka_wire.wire.security.secret_references import resolve
from pykafka_wire.wire.settings import ClientSettings

# RFC 6750, section 2.1, and RFC 7628, section 3.1. A token with any other character could carry a second attribute.
_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_DEFAULT_SERVICE: Final = "kafka"


def mechanism(settings: ClientSettings, host: str) -> SaslMechanism:
    """The mechanism that the settings name, with its credentials, for a connection to ``host``.

    Resolves references, and gets a bearer token where there is none that will do: it may take as long as the token
    endpoint does.

    Raises:
        SettingsError: credentials are missing or cannot be read.
        AuthenticationError: the token endpoint refused the client.
        TransportError: the token endpoint could not be reached.
    """
    line = settings.sasl_jaas_config
    module = jaas.parse_jaas(resolve(line, jaas.SETTING)) if line else None
    name = settings.sasl_mechanism or (module.mechanisms[0] if module and len(module.mechanisms) == 1 else "")
    if not name:
        raise SettingsError(
            "sasl.mechanism is missing.", setting="sasl.mechanism", remedy="Set it, as in SCRAM-SHA-512."
        )
    if module is not None and name not in module.mechanisms:
        raise SettingsError(
            f"{jaas.SETTING} names {module.name}, which is not for sasl.mechanism={name}.",
            setting=jaas.SETTING,
            remedy=f"Name the login module of {name}, or set sasl.username and sasl.password instead.",
        )
    options: Mapping[str, str] = module.options if module is not None else {}
    if name == "GSSAPI":
        from pykafka_wire.wire.security.kerberos import Kerberos

        service = settings.sasl_kerberos_service_name or options.get("serviceName") or _DEFAULT_SERVICE
        return Kerberos.of(service, host, options)
    if name == "OAUTHBEARER":
        from pykafka_wire.wire.security import oauth

        source = oauth.token_source(settings)
        token = source.token()
        return OAuthBearer(token=token.value, extensions=token.extensions, refused=lambda: source.forget(token))
    username, password = _credentials(settings, options)
    if name in HASHES:
        is_token = options.get("tokenauth", "").lower() == "true"
        return Scram(name=name, username=username, password=password, is_token=is_token)
    return Plain(username=username, password=password)


def _credentials(settings: ClientSettings, options: Mapping[str, str]) -> tuple[str, str]:
    """User and password: ``sasl.username`` and ``sasl.password`` go before the JAAS line's."""
    username = settings.sasl_username or options.get("username")
    password = settings.sasl_password or options.get("password")
    if not username or not password:
        missing = "sasl.username" if not username else "sasl.password"
        raise SettingsError(
            f"{settings.sasl_mechanism or 'SASL'} needs a user and a password, and {missing} is missing.",
            setting=missing,
            remedy="Set sasl.username and sasl.password, or sasl.jaas.config with a login module that names both.",
        )
    return resolve(username, "sasl.username"), resolve(password, "sasl.password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """User and password in one token; only TLS keeps them secret."""

    username: str
    password: str = field(repr=False)

    @property
    def name(self) -> str:
        return "PLAIN"

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Raises SettingsError where the credentials cannot be put into the token."""
        if "\0" in self.username or "\0" in self.password:
            raise SettingsError(
                "sasl.username and sasl.password may not hold a NUL with PLAIN.", setting="sasl.username"
            )
        yield f"\0{self.username}\0{self.password}".encode()


_TOKEN_REMEDY: Final = "Check the token's audience, scope, expiry and issuer, and that the broker knows its key."


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthBearer:
    """A bearer token, with extensions (KIP-255, KIP-342)."""

    token: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    #: Called where the broker refuses the token, so that nobody uses it again.
    refused: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def name(self) -> str:
        return "OAUTHBEARER"

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Raises SettingsError where token or extensions cannot be sent, AuthenticationError where the broker has refused."""
        if _BEARER.fullmatch(self.token) is None:
            raise SettingsError("the bearer token holds characters that none may have.", setting="sasl.mechanism")
        for name, value in self.extensions.items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise SettingsError(
                    f"the SASL extension {name!r} cannot be sent.",
                    setting="sasl.oauthbearer.extensions",
                    remedy="Names are letters, values printable ASCII.",
                )
        attributes = {"auth": f"Bearer {self.token}", **self.extensions}
        parts = "".join(f"{name}={value}\x01" for name, value in attributes.items())
        try:
            verdict = yield f"n,,\x01{parts}\x01".encode()
        except AuthenticationError as error:  # from a broker that does without the second step
            self.refused()
            error.remedy = _TOKEN_REMEDY
            raise
        if not verdict:
            return
        # A refusal takes two steps (RFC 7628, section 3.2.3): the broker says why, and after our dummy answer it ends the
        # exchange with error 58, which the connection raises.
        self.refused()
        yield b"\x01"
        raise AuthenticationError(
            f"the broker refused the token: {_status(verdict)}",
            remedy=_TOKEN_REMEDY,
        )


def _status(verdict: bytes) -> str:
    try:
        found = json.loads(verdict)["status"]
    except (ValueError, KeyError, TypeError):
        return "no reason given"
    return repr(found[:200]) if isinstance(found, str) else "no reason given"
