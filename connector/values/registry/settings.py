"""A registry from Confluent's names, as users have them among Spark's options.

Owns what the names in :mod:`pykafka_wire.registry_settings` mean together; :mod:`~pykafka_wire.values.registry.client` owns the
requests. TLS has Kafka's names behind a prefix (``schema.registry.ssl.…``). A secret given by reference (``env:NAME``,
``file:/path``, ``provider:module:function``) stays a reference. No error shows a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pykafka_wire.errors import OptionError
from pykafka_wire.registry_settings import (
    CLIENT_ID,
    CLIENT_SECRET,
    IDENTITY_POOL,
    LOGICAL_CLUSTER,
    PROXY_HOST,
    PROXY_PORT,
    REGISTRY_PREFIX,
    REGISTRY_SETTINGS,
    RULE_EXECUTORS,
    SCOPE,
    TOKEN,
    TOKEN_ENDPOINT,
    TOKEN_SOURCE,
    USER_INFO,
    USER_SOURCE,
)  # fmt: skip
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.masking import quoted
from pykafka_wire.wire.settings import SETTINGS, ClientSettings

_URL: Final = "schema.registry.url"
#: Bearer tokens by client credentials: the fields of ClientSettings that mean the same.
_CLIENT_CREDENTIALS: Final[dict[str, str]] = {
    TOKEN_ENDPOINT: "sasl_oauthbearer_token_endpoint_url",
    CLIENT_ID: "sasl_oauthbearer_client_credentials_client_id",
    CLIENT_SECRET: "sasl_oauthbearer_client_credentials_client_secret",
    SCOPE: "sasl_oauthbearer_scope",
}
#: The same, by the names of Kafka's settings: those that a user writes.
CLIENT_CREDENTIAL_NAMES: Final = {field.replace("_", "."): name for name, field in _CLIENT_CREDENTIALS.items()}
#: What Confluent Cloud wants beside a token, and the header that carries it.
_CLOUD_HEADERS: Final[dict[str, str]] = {
    LOGICAL_CLUSTER: "target-sr-cluster",
    IDENTITY_POOL: "Confluent-Identity-Pool-Id",
}
_TLS: Final = {f"{REGISTRY_PREFIX}{setting.name}": setting for setting in SETTINGS if setting.scope == "TLS"}
#: Its empty value means something: no check of the host name.
_HOST_CHECK: Final = f"{REGISTRY_PREFIX}ssl.endpoint.identification.algorithm"
_USER_SOURCES: Final = ("URL", "USER_INFO", "SASL_INHERIT")
_TOKEN_SOURCES: Final = ("STATIC_TOKEN", "OAUTHBEARER", "SASL_OAUTHBEARER_INHERIT")


def registry_of(options: Mapping[str, str]) -> Registry | None:
    """Return the registry that a query's options describe, None without ``schema.registry.url``. It is not asked for anything.

    Names are case-insensitive. ``SASL_INHERIT`` and ``SASL_OAUTHBEARER_INHERIT`` take the credentials of ``kafka.sasl.*``.

    Raises:
        OptionError: an option is malformed, not supported, or contradicts another one.
    """
    given = {name.lower(): value for name, value in options.items() if value.strip() or name.lower() == _HOST_CHECK}
    values = {name: given_value for name in REGISTRY_SETTINGS if (given_value := _value(given, name)) is not None}
    tls = {setting.field: _parse_setting(name, given[name]) for name, setting in _TLS.items() if name in given}
    if _URL not in given:
        if values:
            raise OptionError(f"{min(values)} is set and {_URL} is not: set it, or remove {min(values)}.")
        return None
    url, user_of_url = without_user(given[_URL])
    registry = Registry(
        url,
        tls=ClientSettings(bootstrap_servers=(), **tls) if tls else None,
        extra_headers=tuple(
            (header, values[name].strip()) for name, header in _CLOUD_HEADERS.items() if name in values
        ),
        proxy=_proxy(values),
        rule_executors=tuple(
            executor.strip() for executor in values.get(RULE_EXECUTORS, "").split(",") if executor.strip()
        ),
    )
    user_source = _source(values, USER_SOURCE, _USER_SOURCES)
    token_source = _source(values, TOKEN_SOURCE, _TOKEN_SOURCES) or ("STATIC_TOKEN" if TOKEN in values else None)
    if token_source is not None:
        if user_source is not None or user_of_url is not None or USER_INFO in values:
            raise OptionError(
                "basic.auth.* and bearer.auth.* are both set: a request carries one of them, remove the other."
            )
        return _with_token(registry, token_source, values, given)
    return _with_user(registry, user_source, user_of_url, values, given)


def _value(given: Mapping[str, str], name: str) -> str | None:
    """Return the value of a name, which may have the prefix."""
    given_values = {given[written_name] for written_name in (name, REGISTRY_PREFIX + name) if written_name in given}
    if len(given_values) > 1:
        raise OptionError(
            f"{name} and {REGISTRY_PREFIX}{name} have different values, and mean the same: remove one of them."
        )
    return given_values.pop() if given_values else None


def _source(values: Mapping[str, str], name: str, supported: tuple[str, ...]) -> str | None:
    source = values.get(name, "").strip().upper()
    if source and source not in supported:
        token = "; a token of any other origin can be given as bearer.auth.token=provider:module:function"
        raise OptionError(
            f"{name} is {quoted(source)}: use {', '.join(supported[:-1])} or {supported[-1]}"
            f"{token if name == TOKEN_SOURCE else ''}."
        )
    return source or None


def _proxy(values: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy that the options name."""
    host, port = values.get(PROXY_HOST), values.get(PROXY_PORT)
    if host is None and port is None:
        return None
    if host is None or port is None:
        given, missing = (PROXY_PORT, PROXY_HOST) if host is None else (PROXY_HOST, PROXY_PORT)
        raise OptionError(f"{given} is set and {missing} is not: set both, or remove {given}.")
    url = f"http://{host.strip()}:{port.strip()}"
    try:
        parts = urlsplit(url)
        is_valid = (
            bool(parts.hostname) and bool(parts.port) and parts.netloc == url.removeprefix("http://") and "@" not in url
        )
    except ValueError:  # not a number, or above 65535
        is_valid = False
    if not is_valid:
        raise OptionError(
            f"{PROXY_HOST} and {PROXY_PORT} must be a host's name and a port, without http:// and without a user: a proxy that "
            "needs one is named by the environment's HTTPS_PROXY (HTTP_PROXY for a registry without TLS)."
        )
    return url


def without_user(text: str) -> tuple[str, str | None]:
    """Return the addresses without user and password, and these as ``user:password``.

    Raises:
        OptionError: the addresses have different users.
    """
    urls, users = [], set()
    for url in text.split(","):
        url = url.strip()
        try:
            location = urlsplit(url).netloc
        except ValueError:  # the registry's own check reports it
            location = ""
        user, separator, host = location.rpartition("@")
        if separator:
            url = url.replace(location, host, 1)
            users.add(unquote(user))
        urls.append(url)
    if len(users) > 1:
        raise OptionError(f"the addresses in {_URL} have different users: give one, in basic.auth.user.info.")
    return ",".join(urls), users.pop() if users else None


def _with_user(
    registry: Registry,
    source: str | None,
    user_of_url: str | None,
    values: Mapping[str, str],
    given: Mapping[str, str],
) -> Registry:
    if source == "SASL_INHERIT":
        _refuse_others(values, USER_INFO, user_of_url, f"{USER_SOURCE}=SASL_INHERIT takes them from kafka.sasl.*")
        return replace(registry, sasl=_sasl(given, f"{USER_SOURCE}=SASL_INHERIT"), inherits_sasl=True)
    if user_of_url is not None:
        if USER_INFO in values:
            raise OptionError(f"{_URL} and basic.auth.user.info both name a user: remove the one in the URL.")
        if source == "USER_INFO":
            raise OptionError(
                f"{USER_SOURCE} is USER_INFO, and the user is in {_URL}: move it to basic.auth.user.info."
            )
        return replace(registry, basic_auth=f"literal:{user_of_url}")  # no reference, whatever the user's name
    if source == "URL" and USER_INFO in values:
        raise OptionError(f"basic.auth.user.info has no effect with {USER_SOURCE}=URL: set that to USER_INFO.")
    if source is not None and USER_INFO not in values:
        missing = "a user (https://user:password@host:port)" if source == "URL" else "basic.auth.user.info"
        raise OptionError(f"{USER_SOURCE} is {source}, and {missing} is missing.")
    return replace(registry, basic_auth=values.get(USER_INFO))


def _with_token(registry: Registry, source: str, values: Mapping[str, str], given: Mapping[str, str]) -> Registry:
    client = {name: field for name, field in _CLIENT_CREDENTIALS.items() if name in values}
    if source != "OAUTHBEARER" and client:
        raise OptionError(f"{min(client)} has no effect with {TOKEN_SOURCE}={source}: set that to OAUTHBEARER.")
    if source != "STATIC_TOKEN" and TOKEN in values:
        raise OptionError(f"{TOKEN} has no effect with {TOKEN_SOURCE}={source}: set that to STATIC_TOKEN.")
    if source == "STATIC_TOKEN":
        if TOKEN not in values:
            raise OptionError(f"{TOKEN_SOURCE} is STATIC_TOKEN, and {TOKEN} is missing.")
        return replace(registry, bearer_token=values[TOKEN])
    if source == "SASL_OAUTHBEARER_INHERIT":
        return replace(registry, sasl=_sasl(given, f"{TOKEN_SOURCE}={source}", "OAUTHBEARER"), inherits_sasl=True)
    for name in (TOKEN_ENDPOINT, CLIENT_ID, CLIENT_SECRET):
        if name not in values:
            raise OptionError(f"{TOKEN_SOURCE} is OAUTHBEARER, and {name} is missing.")
    # The brokers' own setting allows a token endpoint without TLS on this machine, for tests.
    loopback = given.get("kafka.sasl.oauthbearer.allow.http.loopback", "").strip().lower() == "true"
    login = ClientSettings(
        bootstrap_servers=(),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_allow_http_loopback=loopback,
        **{field: values[name] for name, field in client.items()},  # type: ignore[arg-type]  # all of them are texts
    )
    return replace(registry, sasl=login)


def _refuse_others(values: Mapping[str, str], name: str, user_of_url: str | None, why: str) -> None:
    if name in values or user_of_url is not None:
        raise OptionError(
            f"{name if name in values else _URL} names a user and a password, and {why}: remove one of them."
        )


def _sasl(given: Mapping[str, str], asked_by: str, mechanism: str | None = None) -> ClientSettings:
    """Return the brokers' settings that name user and password, or where tokens come from."""
    names = {name: value for name, value in given.items() if name.startswith("kafka.sasl.")}
    try:
        parsed = ClientSettings.from_options(
            {"bootstrap.servers": "none:1"} | {name.removeprefix("kafka."): value for name, value in names.items()}
        )
    except SettingsError as error:
        raise OptionError(error.with_prefix("kafka.").text) from error
    login = replace(parsed, bootstrap_servers=(), sasl_mechanism=mechanism or parsed.sasl_mechanism)
    if not names:
        raise OptionError(f"{asked_by} takes the credentials from kafka.sasl.*, and no such option is set.")
    if mechanism is None and login.sasl_mechanism in ("OAUTHBEARER", "GSSAPI"):
        raise OptionError(
            f"{asked_by} needs a user and a password, and kafka.sasl.mechanism is {login.sasl_mechanism}"
            + (
                f": set {TOKEN_SOURCE} to SASL_OAUTHBEARER_INHERIT instead."
                if login.sasl_mechanism == "OAUTHBEARER"
                else "."
            )
        )
    return login


def _parse_setting(name: str, text: str) -> Any:  # Any: the type of the setting's field
    setting = _TLS[name]
    try:
        return setting.parse(text if setting.secret else text.strip())
    except SettingsError as error:
        raise OptionError(error.with_prefix(REGISTRY_PREFIX).text) from error
