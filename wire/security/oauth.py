"""Bearer tokens for OAUTHBEARER: their sources, and their cache.

Owns token providers named by import path, the client-credentials flow (RFC 6749, section 4.4), tokens in files, and the cache
of the current token, one for each process and settings. Tokens of clouds come from :mod:`~pykafka_wire.wire.security.clouds`.
It checks no signature: brokers do.

- ``sasl.oauthbearer.token.provider=module:function``: called with ``sasl.oauthbearer.config`` if that is set, else without
  arguments. It returns the token, or ``(token, expires_at)``, or ``(token, expires_at, extensions)``; ``expires_at`` is in
  seconds or milliseconds since the epoch. An example is ``aws_msk_iam_sasl_signer:MSKAuthTokenProvider.generate_auth_token``,
  with a region as its config.
- ``sasl.oauthbearer.token.endpoint.url=https://…``: client credentials. The endpoint's certificate is checked against the
  system's trust (or SSL_CERT_FILE's), or the ``ssl.truststore.*`` options of the JAAS line, as in Java's clients.
- ``sasl.oauthbearer.token.endpoint.url=file:///…``: a file that another program keeps up to date.

A token is used for 80 % of its lifetime (``sasl.login.refresh.window.factor``); then the next connection gets a new one. If
that fails, the old token is used until it expires. Executors get their own tokens. A token of unknown lifetime is used for one
connection.
"""

from __future__ import annotations

import base64
import copy
import http.client
import ipaddress
import logging
import os
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, cast

from pykafka_wire.wire.background_call import BackgroundCall
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import AuthenticationError, SettingsError, TransportError, WireError
from pykafka_wire.wire.masking import quoted
from pykafka_wire.wire.security import jaas
from pykafka_wire.wire.security.clouds.providers import provider
from pykafka_wire.wire.security.secret_references import load_callable, resolve
from pykafka_wire.wire.security.token import UNKNOWN, AuthToken, SaslIdentity, json_object, jwt_claims, printable_line
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

#: A token endpoint's response is some KiB; Java's client has the same limit.
_MAX_RESPONSE_BYTES: Final = 1024 * 1024
#: Seconds since the epoch have ten digits until 2286, milliseconds have had more since 1970.
_MILLISECONDS_FROM: Final = 1e11
#: HTTP status codes that mean: retry later.
_RETRIABLE_STATUSES: Final = frozenset({408, 425, 429})
_PROVIDER: Final = "sasl.oauthbearer.token.provider"
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
#: Claims that name whose token it is, the most telling first: people, then clients (RFC 9068), then any subject.
_NAMES: Final = ("preferred_username", "upn", "email", "client_id", "azp", "appid", "sub")


class TokenSource:
    """The current token of a client's settings. Threads share it: one gets a new token while the others wait."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._token: AuthToken | None = None
        self._received_at = 0.0
        self._failure: WireError | None = None
        self._failed_at = 0.0

    def token(self) -> AuthToken:
        """Return a token that is valid now.

        Raises:
            SettingsError: no source of tokens is set, or a provider cannot be called.
            AuthenticationError: the token endpoint rejected the client, or the provider failed.
            TransportError: the token endpoint could not be reached.
        """
        with self._lock:
            if self._token is not None and self._age() < self._settings.sasl_login_refresh_window_factor:
                return self._token
            try:
                self._token, self._received_at = self._fetch(), time.monotonic()
            except WireError as error:
                if self._token is None or self._age() >= 1:
                    raise
                logger.warning("could not refresh the bearer token, using the old one until it expires: %s", error)
            return self._token

    def invalidate(self, token: AuthToken) -> None:
        """Discard this token, which a broker rejected: the next call gets a new one."""
        with self._lock:
            if self._token is token:
                self._token = None

    def _age(self) -> float:
        """Return the share of the current token's lifetime that has passed; above 1 once it has expired."""
        assert self._token is not None
        lifetime_s = self._token.lifetime_s
        return 1.0 if not lifetime_s or lifetime_s <= 0 else (time.monotonic() - self._received_at) / lifetime_s

    def _fetch(self) -> AuthToken:
        # Every connection asks for a token. Connections that fail together call the endpoint once: it locks out frequent callers.
        backoff_s = self._settings.retry_backoff_max_ms / 1000
        if self._failure is not None and time.monotonic() - self._failed_at < backoff_s:
            raise copy.copy(self._failure)
        try:
            token = fetch_token(self._settings)
        except WireError as error:
            self._failure, self._failed_at = error, time.monotonic()
            raise
        self._failure = None
        return token


def token_source(settings: ClientSettings) -> TokenSource:
    """Return this process's token source for these settings. A forked child has its own: the parent may hold the lock."""
    return _source(os.getpid(), settings)


@lru_cache(maxsize=32)
def _source(pid: int, settings: ClientSettings) -> TokenSource:
    return TokenSource(settings)


def fetch_token(settings: ClientSettings) -> AuthToken:
    """Return a new token. Raises as :meth:`TokenSource.token` does."""
    options = jaas.options_of(settings)
    extensions = {
        name.removeprefix("extension_"): value for name, value in options.items() if name.startswith("extension_")
    } | _extensions(settings.sasl_oauthbearer_extensions or "")
    if settings.cloud is not None:
        host, _ = settings.bootstrap_servers[0]
        return replace(provider(settings, options).token(host), extensions=extensions)
    if settings.sasl_oauthbearer_token_provider:
        token = _from_provider(settings)
        return replace(token, extensions={**extensions, **token.extensions})
    url = settings.sasl_oauthbearer_token_endpoint_url
    if url is None:
        raise SettingsError(
            "OAUTHBEARER needs a token, and no source of tokens is set.",
            setting=_PROVIDER,
            remedy=f"Set {{setting}} to module:function, {{{_ENDPOINT}}} with the client's id and secret, "
            "or a cloud: {auth}=azure or {auth}=google.",
        )
    if urllib.parse.urlsplit(url).scheme == "file":
        value = resolve(f"file:{urllib.parse.unquote(urllib.parse.urlsplit(url).path)}", _ENDPOINT).strip()
        return _token(value, None, source="a token file", extensions=extensions)
    return replace(_by_client_credentials(settings, options, url), extensions=extensions)


def _token(
    value: str, lifetime_s: float | None, *, source: str, extensions: Mapping[str, str] = MappingProxyType({})
) -> AuthToken:
    """Return a token with what its own claims tell: its lifetime, unless that is known, and whose it is."""
    claims = jwt_claims(value)
    if lifetime_s is None and (expires_at := _number(claims.get("exp"))) is not None:
        lifetime_s = expires_at - time.time()  # RFC 7519, section 4.1.4
    name = next((str(claims[name]) for name in _NAMES if claims.get(name)), UNKNOWN.name)
    ends_at = None if lifetime_s is None else time.time() + lifetime_s
    identity = SaslIdentity(name=printable_line(name), source=source, expires_at=ends_at)
    return AuthToken(value=value, lifetime_s=lifetime_s, extensions=extensions, identity=identity)


def _number(value: object, limit: float = _MILLISECONDS_FROM) -> float | None:
    """Return a time from outside, as a number or as text; None for what is no time, such as NaN or a number beyond ``limit``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < limit else None


def _from_provider(settings: ClientSettings) -> AuthToken:
    path = settings.sasl_oauthbearer_token_provider or ""
    provider = load_callable(path, _PROVIDER)
    config = settings.sasl_oauthbearer_config
    try:
        given = provider() if config is None else provider(resolve(config, "sasl.oauthbearer.config"))
    except WireError:
        raise
    except OSError as error:  # includes network errors, those of the package requests too
        raise TransportError(f"the token provider {path} failed ({type(error).__name__})") from error
    except Exception as error:
        # Only the type of the error: the provider's text may hold secrets.
        raise AuthenticationError(
            f"the token provider {path} failed ({type(error).__name__})",
            remedy="Call it on the machine that runs the query to see the error.",
        ) from error
    parts = given if isinstance(given, tuple) else (given,)
    value = parts[0] if parts else None
    expires_at = parts[1] if len(parts) > 1 else None
    extensions = parts[2] if len(parts) > 2 else {}
    if not isinstance(value, str) or not value or not isinstance(expires_at, int | float | None):
        raise SettingsError(
            "{setting}: {path} returned {type}.",
            setting=_PROVIDER,
            remedy="It must return the token as str, or a tuple of the token and its expiry time since the epoch.",
            path=quoted(path),
            type=type(given).__name__,
        )
    if not isinstance(extensions, Mapping):
        raise SettingsError(
            "{setting}: {path} returned extensions that are not a mapping.", setting=_PROVIDER, path=quoted(path)
        )
    lifetime_s = None
    if (ends := _number(expires_at, limit=_MILLISECONDS_FROM * 1000)) is not None:
        lifetime_s = (ends / 1000 if ends > _MILLISECONDS_FROM else ends) - time.time()
    return _token(value, lifetime_s, source=f"the token provider {path}", extensions=dict(extensions))


def _by_client_credentials(settings: ClientSettings, options: Mapping[str, str], url: str) -> AuthToken:
    _check_url(url, settings)
    given_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId")
    given_secret = settings.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret")
    if not given_id or not given_secret:
        missing = "client.id" if not given_id else "client.secret"
        raise SettingsError(
            "the token endpoint needs an id and a secret, and {setting} is missing.",
            setting=f"sasl.oauthbearer.client.credentials.{missing}",
            remedy="Set it, or clientId and clientSecret in {sasl.jaas.config}.",
        )
    client_id = resolve(given_id, "sasl.oauthbearer.client.credentials.client.id")
    secret = resolve(given_secret, "sasl.oauthbearer.client.credentials.client.secret")
    form = {"grant_type": "client_credentials"}
    if scope := settings.sasl_oauthbearer_scope or options.get("scope"):
        form["scope"] = scope
    pair = [client_id, secret]
    if settings.sasl_oauthbearer_header_urlencode:
        pair = [urllib.parse.quote_plus(part) for part in pair]
    request = urllib.request.Request(
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(":".join(pair).encode()).decode(),
            "Accept": "application/json",
            "Cache-Control": "no-cache",
        },
    )
    response = _post(request, _tls_context(settings, options), settings.sasl_login_read_timeout_ms)
    value = response.get("access_token")
    if not isinstance(value, str) or not value:
        raise AuthenticationError("the token endpoint's response has no access_token", remedy=f"Check {_ENDPOINT}.")
    # expires_in comes first: it is relative, so a wrong clock on this machine does not matter. Some endpoints send it as text.
    lifetime_s = _number(response.get("expires_in"))
    return _token(value, lifetime_s, source=f"the token endpoint {urllib.parse.urlsplit(url).netloc}")


def _check_url(url: str, settings: ClientSettings) -> None:
    parts = urllib.parse.urlsplit(url)
    if "@" in parts.netloc:
        raise SettingsError(
            "{setting} contains a user or a password.",
            setting=_ENDPOINT,
            remedy="Set {sasl.oauthbearer.client.credentials.client.id} and "
            "{sasl.oauthbearer.client.credentials.client.secret} instead.",
        )
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and parts.hostname and _is_loopback(parts.hostname):
        if settings.sasl_oauthbearer_allow_http_loopback:
            return
        remedy = "Use https:, or for a test on this machine set {sasl.oauthbearer.allow.http.loopback} to true."
    else:
        remedy = "Use an https: URL, since the client's secret is sent to it."
    raise SettingsError(
        "{setting} is {url}, which does not use https.",
        setting=_ENDPOINT,
        remedy=remedy,
        url=f"{parts.scheme}://{parts.hostname}",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls_context(settings: ClientSettings, options: Mapping[str, str]) -> ssl.SSLContext:
    from pykafka_wire.wire.security import tls

    return tls.context(
        ClientSettings(
            bootstrap_servers=settings.bootstrap_servers,
            ssl_truststore_type=options.get("ssl.truststore.type"),
            ssl_truststore_location=options.get("ssl.truststore.location"),
            ssl_truststore_password=options.get("ssl.truststore.password"),
            ssl_truststore_certificates=options.get("ssl.truststore.certificates"),
        )
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the secret is sent only to the URL in the settings."""

    def redirect_request(self, *args: Any, **more: Any) -> None:  # Any: the base class's arguments
        return None


def _post(request: urllib.request.Request, trust: ssl.SSLContext, timeout_ms: int) -> Mapping[str, Any]:
    """Return the JSON object in the endpoint's response. The timeout is for all of it: urllib's is for the next bytes only."""
    where = urllib.parse.urlsplit(request.full_url)
    endpoint = f"the token endpoint {where.scheme}://{where.netloc}{where.path}"
    deadline = Deadline.after_ms(timeout_ms)
    call = BackgroundCall(
        lambda until: _response(request, trust, endpoint, until), deadline=deadline, name="pykafka-wire token"
    )
    if not call.wait(deadline):
        raise TransportError(f"{endpoint} did not respond completely within {timeout_ms} ms")
    return call.result()


def _response(
    request: urllib.request.Request, trust: ssl.SSLContext, endpoint: str, deadline: Deadline
) -> Mapping[str, Any]:
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trust), _NoRedirect)
    try:
        with opener.open(request, timeout=deadline.remaining_ms() / 1000) as response:
            body = _read(response, deadline)
    except urllib.error.HTTPError as error:
        with error:
            reason = _error_description(error, deadline)
        if error.code >= 500 or error.code in _RETRIABLE_STATUSES:
            raise TransportError(f"{endpoint} responded with HTTP {error.code}{reason}") from error
        raise AuthenticationError(
            f"{endpoint} rejected the client: HTTP {error.code}{reason}",
            remedy="Check the client's id, its secret and the scope.",
        ) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise AuthenticationError(
                f"the certificate of {endpoint} is not trusted: {error.reason.verify_message}",
                remedy="Set SSL_CERT_FILE, or ssl.truststore.location in the JAAS line, to the trusted certificates.",
            ) from error
        raise TransportError(f"{endpoint} could not be reached: {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise TransportError(f"{endpoint} did not respond: {error or type(error).__name__}") from error
    try:
        return json_object(body)
    except ValueError as error:
        raise AuthenticationError(
            f"{endpoint} responded with something else than a JSON object", remedy=f"Check {_ENDPOINT}."
        ) from error


def _read(response: http.client.HTTPResponse, deadline: Deadline) -> bytes:
    body = b""
    while piece := response.read1(65_536):
        body += piece
        if len(body) > _MAX_RESPONSE_BYTES:
            raise AuthenticationError(
                "the token endpoint's response is longer than 1 MiB", remedy=f"Check {_ENDPOINT}."
            )
        if deadline.expired:
            raise TimeoutError("no complete response in time")
    return body


def _error_description(error: urllib.error.HTTPError, deadline: Deadline) -> str:
    """Return the error's name and description (RFC 6749, section 5.2), shortened; the rest of the response is not shown."""
    try:
        description = json_object(_read(cast("http.client.HTTPResponse", error), deadline))
        parts = [description.get(name) for name in ("error", "error_description")]
    except (ValueError, OSError, http.client.HTTPException, AuthenticationError):
        return ""
    shown = [re.sub(r"[^\x20-\x7e]", " ", part)[:200] for part in parts if isinstance(part, str)]
    return f" ({': '.join(shown)})" if shown else ""


def _extensions(text: str) -> dict[str, str]:
    extensions = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals and part.strip():
            raise SettingsError("{setting} is malformed.", setting=_EXTENSIONS, remedy="Write name=value,name=value.")
        if equals:
            extensions[name.strip()] = value.strip()
    return extensions
