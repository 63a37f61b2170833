"""SASL mechanisms as generators: each yields a token for the broker and receives the broker's token, until both sides agree.

Owns the choice of the mechanism and its credentials, and the mechanisms PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628). SCRAM is
in :mod:`~pykafka_wire.wire.security.scram`, GSSAPI in :mod:`~pykafka_wire.wire.security.kerberos`, AWS_MSK_IAM in
:mod:`~pykafka_wire.wire.security.msk_iam`, and bearer tokens come from :mod:`~pykafka_wire.wire.security.oauth`. This module
knows no connection: :mod:`~pykafka_wire.wire.connection.state_machine` sends the tokens.
https://kafka.apache.org/documentation/#security_sasl
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pykafka_wire.wire.cloud_settings import MSK_IAM
from pykafka_wire.wire.errors import AuthenticationError, SettingsError
from pykafka_wire.wire.security import jaas
from pykafka_wire.wire.security.login import Login, login
from pykafka_wire.wire.security.mechanism import SaslMechanism
from pykafka_wire.wire.security.scram import HASHES, Scram
from pykafka_wire.wire.security.secret_references import resolve
from pykafka_wire.wire.security.token import json_object
from pykafka_wire.wire.settings import ClientSettings

# RFC 6750, section 2.1, and RFC 7628, section 3.1. Any other character in a token could smuggle in a second attribute.
_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_DEFAULT_SERVICE: Final = "kafka"


def mechanism(settings: ClientSettings, host: str) -> SaslMechanism:
    """The mechanism that the settings name, with its credentials, for a connection to ``host``.

    Resolves references, and gets a new bearer token if the current one is no longer valid: this may take as long as the
    token endpoint needs.

    Raises:
        SettingsError: credentials are missing or cannot be read.
        AuthenticationError: the token endpoint rejected the client.
        TransportError: the token endpoint could not be reached.
    """
    found = login(settings)
    name, options = found.mechanism, found.options
    if name == "GSSAPI":
        from pykafka_wire.wire.security.kerberos import Kerberos

        service = settings.sasl_kerberos_service_name or options.get("serviceName") or _DEFAULT_SERVICE
        return Kerberos.from_options(service, host, options)
    if name == MSK_IAM:
        from pykafka_wire.wire.security.clouds.providers import forget, provider
        from pykafka_wire.wire.security.msk_iam import MskIamExchange

        request = provider(found.settings, options).token(host).value
        return MskIamExchange(signed_request=request, on_rejected=forget)
    if name == "OAUTHBEARER":
        from pykafka_wire.wire.security import oauth

        source = oauth.token_source(settings)
        token = source.token()
        return OAuthBearer(token=token.value, extensions=token.extensions, on_rejected=lambda: source.invalidate(token))
    username, password = found.user_and_password()
    if name in HASHES:
        is_token = options.get("tokenauth", "").lower() == "true"
        return Scram(name=name, username=username, password=password, is_token=is_token)
    return Plain(username=username, password=password)


def user_and_password(settings: ClientSettings) -> tuple[str, str]:
    """The user and the password of the settings, for PLAIN, SCRAM, and services beside the brokers that accept the same.

    Raises:
        SettingsError: one of them is missing or cannot be read, or the JAAS line is malformed.
    """
    line = settings.sasl_jaas_config
    options = jaas.parse_jaas(resolve(line, jaas.SETTING)).options if line else {}
    return Login(mechanism=settings.sasl_mechanism or "", settings=settings, options=options).user_and_password()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """User and password in one token, unencrypted: only TLS keeps them secret."""

    username: str
    password: str = field(repr=False)

    @property
    def name(self) -> str:
        return "PLAIN"

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Raises SettingsError if the credentials contain a NUL, which separates them in the token."""
        if "\0" in self.username or "\0" in self.password:
            raise SettingsError(
                "sasl.username and sasl.password must not contain a NUL character with PLAIN.", setting="sasl.username"
            )
        yield f"\0{self.username}\0{self.password}".encode()


_TOKEN_REMEDY: Final = "Check the token's audience, scope, expiry and issuer, and that the broker has the issuer's key."


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthBearer:
    """A bearer token, with extensions (KIP-255, KIP-342)."""

    token: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    #: Called when the broker rejects the token, so that it is not used again.
    on_rejected: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def name(self) -> str:
        return "OAUTHBEARER"

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Raises SettingsError if the token or the extensions are malformed, AuthenticationError if the broker rejects them."""
        if _BEARER.fullmatch(self.token) is None:
            raise SettingsError("the bearer token contains invalid characters (RFC 6750).", setting="sasl.mechanism")
        for name, value in self.extensions.items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise SettingsError(
                    f"the SASL extension {name!r} is invalid.",
                    setting="sasl.oauthbearer.extensions",
                    remedy="Names are letters, values printable ASCII.",
                )
        attributes = {"auth": f"Bearer {self.token}", **self.extensions}
        parts = "".join(f"{name}={value}\x01" for name, value in attributes.items())
        try:
            error_response = yield f"n,,\x01{parts}\x01".encode()
        except AuthenticationError as error:  # from a broker that skips the second step
            self.on_rejected()
            error.remedy = _TOKEN_REMEDY
            raise
        if not error_response:
            return
        # A rejection takes two steps (RFC 7628, section 3.2.3): the broker sends the reason, and after the client's dummy
        # response it ends the exchange with error 58, which the connection raises.
        self.on_rejected()
        yield b"\x01"
        raise AuthenticationError(
            f"the broker rejected the token: {_status(error_response)}",
            remedy=_TOKEN_REMEDY,
        )


def _status(error_response: bytes) -> str:
    try:
        found = json_object(error_response)["status"]
    except (ValueError, KeyError):
        return "no reason given"
    return repr(found[:200]) if isinstance(found, str) else "no reason given"
