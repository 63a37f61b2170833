"""SASL mechanisms as generators: each yields a token for the broker and receives the broker's token, until both sides agree.

Owns the choice of the mechanism, its credentials and whose they are, by settings and JAAS line; references are resolved here, each
time. Owns the mechanisms PLAIN (RFC 4616), OAUTHBEARER (RFC 7628) and AWS_MSK_IAM, too. SCRAM is in
:mod:`~pykafka_wire.wire.security.scram`, GSSAPI in :mod:`~pykafka_wire.wire.security.kerberos`, bearer tokens come from
:mod:`~pykafka_wire.wire.security.oauth`, and signed requests from :mod:`~pykafka_wire.wire.security.clouds.aws`. This module
knows no connection: :mod:`~pykafka_wire.wire.connection.state_machine` sends the tokens.
https://kafka.apache.org/documentation/#security_sasl
https://github.com/aws/aws-msk-iam-auth#message-exchange-with-kafka-broker
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from pykafka_wire.wire.errors import AuthenticationError, SettingsError
from pykafka_wire.wire.security import jaas
from pykafka_wire.wire.security.clouds.providers import forget, provider
from pykafka_wire.wire.security.scram import HASHES, Scram
from pykafka_wire.wire.security.secret_references import resolve
from pykafka_wire.wire.security.token import SaslIdentity, SaslMechanism, json_object
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.settings.cloud_credentials import MSK_IAM

# RFC 6750, section 2.1, and RFC 7628, section 3.1. Any other character in a token could smuggle in a second attribute.
_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_DEFAULT_SERVICE: Final = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A SASL mechanism, the settings with this mechanism, and the options of the JAAS line (empty without one)."""

    mechanism: str
    settings: ClientSettings = field(repr=False)
    options: Mapping[str, str] = field(repr=False)

    def user_and_password(self) -> tuple[str, str]:
        """Return user and password: ``sasl.username`` and ``sasl.password`` override the JAAS line's.

        Raises:
            SettingsError: one of them is missing or cannot be read.
        """
        username = self.settings.sasl_username or self.options.get("username")
        password = self.settings.sasl_password or self.options.get("password")
        if not username or not password:
            missing = "sasl.username" if not username else "sasl.password"
            raise SettingsError(
                "{mechanism} needs a user and a password, and {setting} is missing.",
                setting=missing,
                remedy="Set {sasl.username} and {sasl.password}, or {sasl.jaas.config} with a login module that names both.",
                mechanism=self.mechanism or "SASL",
            )
        return resolve(username, "sasl.username"), resolve(password, "sasl.password")


def login(settings: ClientSettings) -> Login:
    """Return the login of a client that uses SASL.

    Raises:
        SettingsError: there is no mechanism, or the JAAS line is malformed or for another one.
        AuthenticationError, TransportError: as :func:`~pykafka_wire.wire.security.clouds.providers.provider`, for a service
            credential whose mechanism only its cloud tells.
    """
    module = jaas.login_module(settings)
    options: Mapping[str, str] = module.options if module is not None else {}
    name = settings.sasl_mechanism
    if name is None and settings.cloud == "databricks":
        name = provider(settings, options).mechanism
    if name is None and module is not None and len(module.mechanisms) == 1:
        (name,) = module.mechanisms
    if name is None:
        raise SettingsError("{setting} is missing.", setting="sasl.mechanism", remedy="Set it, as in SCRAM-SHA-512.")
    if module is not None and name not in module.mechanisms:
        raise SettingsError(
            "{setting} names {module}, which is not for {sasl.mechanism}={mechanism}.",
            setting=jaas.SETTING,
            remedy="Name the login module of {mechanism}, or set {sasl.username} and {sasl.password} instead.",
            module=module.name,
            mechanism=name,
        )
    if name == MSK_IAM and settings.cloud is None:
        settings = replace(settings, sasl_mechanism=name)  # only the JAAS line names it
    return Login(mechanism=name, settings=settings, options=options)


def mechanism(settings: ClientSettings, host: str) -> SaslMechanism:
    """Return the mechanism that the settings name, with its credentials, for a connection to ``host``.

    Resolves references, and gets a new bearer token if the current one is no longer valid: this may take as long as the
    token endpoint needs.

    Raises:
        SettingsError: credentials are missing or cannot be read.
        AuthenticationError: the token endpoint rejected the client.
        TransportError: the token endpoint could not be reached.
    """
    sasl_login = login(settings)
    name, options = sasl_login.mechanism, sasl_login.options
    if name == "GSSAPI":
        from pykafka_wire.wire.security.kerberos import Kerberos

        service = settings.sasl_kerberos_service_name or options.get("serviceName") or _DEFAULT_SERVICE
        return Kerberos.from_options(service, host, options)
    if name == MSK_IAM:
        request = provider(sasl_login.settings, options).token(host).value
        return MskIamExchange(signed_request=request, on_rejected=forget)
    if name == "OAUTHBEARER":
        from pykafka_wire.wire.security import oauth

        source = oauth.token_source(settings)
        token = source.token()
        return OAuthBearer(token=token.value, extensions=token.extensions, on_rejected=lambda: source.invalidate(token))
    username, password = sasl_login.user_and_password()
    if name in HASHES:
        is_token = options.get("tokenauth", "").lower() == "true"
        return Scram(name=name, username=username, password=password, is_token=is_token)
    return Plain(username=username, password=password)


def user_and_password(settings: ClientSettings) -> tuple[str, str]:
    """Return the user and the password of the settings, for PLAIN, SCRAM, and services beside the brokers that accept the same.

    Raises:
        SettingsError: one of them is missing or cannot be read, or the JAAS line is malformed.
    """
    mechanism = settings.sasl_mechanism or ""
    return Login(mechanism=mechanism, settings=settings, options=jaas.options_of(settings)).user_and_password()


def sasl_identity(settings: ClientSettings, host: str) -> SaslIdentity:
    """Return whose identity a client has in connections to ``host``, for people who ask. It may get a token, as a connection
    would; AWS is asked for the identity's name, if STS can be reached.

    Raises:
        SettingsError, AuthenticationError, TransportError: as a connection would.
    """
    sasl_login = login(settings)
    if sasl_login.settings.cloud is not None:
        return provider(sasl_login.settings, sasl_login.options).identity(host)
    if sasl_login.mechanism == "OAUTHBEARER":
        from pykafka_wire.wire.security import oauth

        return oauth.token_source(settings).token().identity
    if sasl_login.mechanism == "GSSAPI":
        uses_keytab = sasl_login.options.get("useKeyTab", "").lower() == "true"
        principal = sasl_login.options.get("principal") or "the default principal"
        return SaslIdentity(name=principal, source="its keytab" if uses_keytab else "the ticket cache")
    user, _ = sasl_login.user_and_password()
    is_token = sasl_login.options.get("tokenauth", "").lower() == "true"
    return SaslIdentity(
        name=f"delegation token {user}" if is_token else user,
        source="sasl.username" if settings.sasl_username else jaas.SETTING,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """User and password in one token, unencrypted: only TLS keeps them secret."""

    username: str
    password: str = field(repr=False)
    name: ClassVar[str] = "PLAIN"

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Exchange tokens by PLAIN. Raises SettingsError if the credentials contain a NUL, which separates them in the token."""
        if "\0" in self.username or "\0" in self.password:
            raise SettingsError(
                "{sasl.username} and {sasl.password} must not contain a NUL character with PLAIN.",
                setting="sasl.username",
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
    name: ClassVar[str] = "OAUTHBEARER"

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Exchange tokens by OAUTHBEARER. Raises SettingsError if the token or the extensions are malformed,
        AuthenticationError if the broker rejects them."""
        if _BEARER.fullmatch(self.token) is None:
            raise SettingsError("the bearer token contains invalid characters (RFC 6750).", setting="sasl.mechanism")
        for name, value in self.extensions.items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise SettingsError(
                    "the SASL extension {name} is invalid.",
                    setting="sasl.oauthbearer.extensions",
                    remedy="Names are letters, values printable ASCII.",
                    name=repr(name),
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
        raise AuthenticationError(f"the broker rejected the token: {_status(error_response)}", remedy=_TOKEN_REMEDY)


def _status(error_response: bytes) -> str:
    try:
        status = json_object(error_response)["status"]
    except (ValueError, KeyError):
        return "no reason given"
    return repr(status[:200]) if isinstance(status, str) else "no reason given"


_MSK_REMEDY: Final = (
    "Allow kafka-cluster:Connect on the cluster to this identity (pykafka-wire doctor shows it), "
    "and check this machine's clock."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MskIamExchange:
    """The client's side of the exchange, with its signed request."""

    signed_request: str = field(repr=False)
    #: Called when the broker rejects the request, so that credentials are looked for again.
    on_rejected: Callable[[], None] = field(default=lambda: None, repr=False)
    name: ClassVar[str] = MSK_IAM

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Exchange tokens by AWS_MSK_IAM. Raises AuthenticationError if the broker rejects the request, or does not respond
        as MSK does."""
        try:
            response = yield self.signed_request.encode()
        except AuthenticationError as error:
            self.on_rejected()
            error.remedy = _MSK_REMEDY
            raise
        try:
            json_object(response)
        except ValueError as error:
            raise AuthenticationError(
                "the broker's response to AWS_MSK_IAM is not a JSON object", remedy=_MSK_REMEDY
            ) from error
