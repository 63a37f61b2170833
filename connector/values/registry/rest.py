"""Requests to a schema registry: HTTP and TLS, the addresses in turn, and what each response means.

Owns connections, retries and limits of time and size. A response that is none, from a server that is down, slow, broken or
refuses access, is a RegistryError and never a DecodeError: it says nothing about the values that wait for it.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import ssl
import time
import urllib.request
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pykafka_wire.errors import DecodeError, RegistryError, UnreachableRegistryError
from pykafka_wire.registry_settings import REGISTRY_PREFIX
from pykafka_wire.values.optional_libraries import library
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.settings import CLIENT_CREDENTIAL_NAMES
from pykafka_wire.wire.errors import SettingsError, WireError
from pykafka_wire.wire.security import tls
from pykafka_wire.wire.security.secret_references import resolve
from pykafka_wire.wire.settings import ClientSettings

_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
#: Schemas are documents that people write; Confluent's own limit is the broker's message size, 1 MB.
_MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
#: error_code of Confluent's API: subject, version, schema not found.
_NOT_FOUND: Final = frozenset({"40401", "40402", "40403"})
_REMEDY: Final = "is it a schema registry? Apicurio's is at /apis/ccompat/v7."


class NotARegistryError(RegistryError):
    """The server's response is not a schema registry's: a wrong URL, or an older API."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: {_REMEDY}")
        self._reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._reason,)


def request(
    registry: Registry, method: str, path: str, body: dict[str, Any] | None = None, *, is_list: bool = False
) -> Any:
    """Return the JSON object, or the array, that the first address to respond has sent.

    Raises:
        DecodeError: the registry has no such schema, subject or version.
        RegistryError: no address responds, or the response is a refusal or no JSON object.
    """
    where, status, content = _first_response(registry, method, path, body)
    if status == 401 and discard_token(registry):
        where, status, content = _first_response(registry, method, path, body)
    return _check_response(where, status, content, list if is_list else dict)


def _first_response(registry: Registry, method: str, path: str, body: dict[str, Any] | None) -> tuple[str, int, bytes]:
    """Return URL, status and content of the first response that is neither a server's error nor "too many requests"."""
    urllib3 = library("urllib3", "a schema registry")
    headers = {"Accept": _ACCEPT, **dict(registry.extra_headers), **authorization(registry)}
    context = _tls_context(registry)
    failed = []
    for url in registry.urls:
        proxy = registry.proxy or environment_proxy(url)
        through = "" if proxy is None else f" (through the proxy {_without_user(proxy)[0]})"
        try:
            pool = _pool(
                os.getpid(), context, registry.timeout_s, proxy, tuple(name for name, _ in registry.extra_headers)
            )
            response = pool.request(method, url + path, json=body, headers=headers, preload_content=False)
            try:
                content = _content(response, time.monotonic() + registry.timeout_s)
            except BaseException:
                response.close()
                raise
            response.release_conn()
        except (urllib3.exceptions.HTTPError, TimeoutError) as error:
            failed.append(f"{url}{through}: {_reason(error)}")
            continue
        if response.status < 500 and response.status != 429:
            return url + path, response.status, content
        failed.append(f"{url}{through}: HTTP {response.status}")
    raise UnreachableRegistryError(
        f"the schema registry does not respond ({'; '.join(failed)}). Check its address from the driver and from executors. "
        "No value can be decoded until it responds."
    )


def _content(response: Any, deadline: float) -> bytes:
    """Return all of a response, up to one byte more than is allowed. A server that sends byte after byte is not waited for."""
    parts: list[bytes] = []
    size = 0
    while size <= _MAX_RESPONSE_BYTES and (part := response.read1(_READ_BYTES)):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise TimeoutError("its response was not complete in time")
    if size <= _MAX_RESPONSE_BYTES:
        response.read()  # nothing: the connection becomes fit for another request
    else:
        response.close()
    return b"".join(parts)


def _tls_context(registry: Registry) -> ssl.SSLContext:
    settings = registry.tls or ClientSettings(bootstrap_servers=(), ssl_truststore_location=registry.ca_file)
    try:
        return tls.context(settings)
    except SettingsError as error:
        written = (
            error.with_prefix(REGISTRY_PREFIX)
            if registry.tls
            else error.with_names({"ssl.truststore.location": "the schema registry's ca_file"})
        )
        raise RegistryError(written.text) from error


@lru_cache(maxsize=16)
def _pool(pid: int, context: ssl.SSLContext, timeout_s: float, proxy: str | None, own_headers: tuple[str, ...]) -> Any:
    """Return this process's connections, through a proxy or straight; a forked process has its own.

    Args:
        own_headers: names that another host, to which the registry redirects, does not get, as it does not get credentials.
    """
    urllib3 = library("urllib3", "a schema registry")
    retries = urllib3.Retry(
        total=2,
        backoff_factor=0.2,
        status_forcelist=(429, 500, 502, 503, 504),
        allowed_methods=None,
        raise_on_status=False,
        respect_retry_after_header=False,  # a server may ask for an hour
        remove_headers_on_redirect={*urllib3.Retry.DEFAULT_REMOVE_HEADERS_ON_REDIRECT, *own_headers},
    )
    settings = {
        "ssl_context": context,
        "assert_hostname": None if context.check_hostname else False,
        "timeout": timeout_s,
        "retries": retries,
    }
    if proxy is None:
        return urllib3.PoolManager(**settings)
    url, user = _without_user(proxy)
    headers = urllib3.make_headers(proxy_basic_auth=user) if user else None
    return urllib3.ProxyManager(url, proxy_headers=headers, **settings)


def environment_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for a URL: ``HTTPS_PROXY`` or ``HTTP_PROXY``, also in lower case, but for what
    ``NO_PROXY`` lists, and never for this machine."""
    parts = urlsplit(url)
    if _is_loopback(parts.hostname or "") or urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def _without_user(proxy: str) -> tuple[str, str]:
    """Return the URL of a proxy without its user, and ``user:password``; the scheme is http if it names none."""
    scheme, separator, rest = proxy.rpartition("://")
    user, _, place = rest.rpartition("@")
    return f"{scheme if separator else 'http'}://{place}", unquote(user)


def _check_response(where: str, status: int, content: bytes, kind: type = dict) -> Any:
    if len(content) > _MAX_RESPONSE_BYTES:
        raise RegistryError(f"{where} responded with more than {_MAX_RESPONSE_BYTES} bytes, more than a schema has.")
    try:
        response = json.loads(content)
    except (ValueError, RecursionError):
        response = None
    if status in (401, 403):
        raise RegistryError(
            f"{where} denies access (HTTP {status}): check basic.auth.user.info or bearer.auth.token, and what this user may read."
        )
    if status < 300 and isinstance(response, kind):
        return response
    if not isinstance(response, dict) or status < 300:
        raise NotARegistryError(
            f"{where} responded with HTTP {status} without a JSON {'object' if kind is dict else 'array'}"
        )
    code = str(response.get("error_code", "no code"))
    known = f"HTTP {status}" if code == str(status) else f"HTTP {status}, {code}"
    message = f"{str(response.get('message', 'no reason given'))[:500]} ({known})"
    if code in _NOT_FOUND:
        raise DecodeError(f"the registry has no such schema: {message}")
    if status == 404:
        raise NotARegistryError(f"{where}: {message}")
    raise RegistryError(f"{where}: {message}.")


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return f"{type(cause).__name__}: {cause}"


def authorization(registry: Registry) -> dict[str, str]:
    """Return the header ``authorization``; no header for a registry without credentials.

    Raises:
        RegistryError: a reference cannot be resolved, or no token is available.
    """
    try:
        if registry.basic_auth is not None:
            return _basic(resolve(registry.basic_auth, "basic.auth.user.info"))
        if registry.bearer_token is not None:
            return _bearer(resolve(registry.bearer_token, "bearer.auth.token"))
        if registry.sasl is None:
            return {}
        from pykafka_wire.wire.security import oauth, sasl  # which few registries need

        if registry.sasl.sasl_mechanism == "OAUTHBEARER":
            return _bearer(oauth.token_source(registry.sasl).token().value)
        return _basic(":".join(sasl.user_and_password(registry.sasl)))
    except WireError as error:
        written = error
        if isinstance(error, SettingsError) and registry.sasl is not None:
            inherits = registry.inherits_sasl
            written = error.with_prefix("kafka.") if inherits else error.with_names(CLIENT_CREDENTIAL_NAMES)
        raise RegistryError(f"no credentials for the schema registry: {written.text}") from error


def discard_token(registry: Registry) -> bool:
    """Forget a token that the registry rejected, before its time; False if there is no other way to get one."""
    if registry.sasl is None or registry.sasl.sasl_mechanism != "OAUTHBEARER":
        return False
    from pykafka_wire.wire.security import oauth

    try:
        source = oauth.token_source(registry.sasl)
        source.invalidate(source.token())
    except WireError:  # reported by the next attempt
        pass
    return True


def _basic(user_info: str) -> dict[str, str]:
    if ":" not in user_info:
        raise RegistryError("basic.auth.user.info must be user:password: check where it comes from.")
    return {"authorization": f"Basic {base64.b64encode(user_info.encode()).decode()}"}


def _bearer(token: str) -> dict[str, str]:
    if not (token.isascii() and token.isprintable()):
        # Checked here, because the HTTP library would show the token in its error.
        raise RegistryError("the bearer token must be one line of ASCII characters: check where it comes from.")
    return {"authorization": f"Bearer {token}"}
