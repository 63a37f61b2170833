"""Which cloud's credentials authenticate a client: ``auth``, Java's callback handlers, and what the brokers' host names tell.

Owns the names, as data: it loads no library and asks no cloud (:mod:`pykafka_wire.wire.security.clouds` does). docs/clouds.md has
each service's settings, and where their names are documented.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from pykafka_wire.wire.errors import SettingsError

Cloud = Literal["aws", "azure", "google", "databricks"]

MSK_IAM: Final = "AWS_MSK_IAM"
BEARER: Final = "OAUTHBEARER"
#: ``auth`` -> the cloud, and the SASL mechanisms that its brokers accept such credentials by, the preferred one first.
_METHODS: Final[Mapping[str, tuple[Cloud, tuple[str, ...]]]] = {
    "aws-msk-iam": ("aws", (MSK_IAM, BEARER)),
    "azure": ("azure", (BEARER,)),
    "google": ("google", (BEARER,)),
}
_DATABRICKS: Final = "databricks:"
_AUTH_REMEDY: Final = "Use aws-msk-iam, azure, google, or databricks:NAME with the name of a service credential."


class Handler(NamedTuple):
    """What a Java callback handler does: with which cloud's credentials (None: Kafka's own flows), by which mechanism."""

    cloud: Cloud | None
    mechanism: str


#: Java's callback handlers by their names without package: Databricks prefixes packages (kafkashaded, shadedmskiam).
HANDLERS: Final[Mapping[str, Handler]] = {
    "OAuthBearerSaslClientCallbackHandler": Handler(None, BEARER),
    "OAuthBearerLoginCallbackHandler": Handler(None, BEARER),
    # github.com/aws/aws-msk-iam-auth
    "IAMClientCallbackHandler": Handler("aws", MSK_IAM),
    "IAMOAuthBearerLoginCallbackHandler": Handler("aws", BEARER),
    # github.com/googleapis/managedkafka
    "GcpLoginCallbackHandler": Handler("google", BEARER),
    # Spring Cloud Azure
    "KafkaOAuth2AuthenticateCallbackHandler": Handler("azure", BEARER),
}
#: The handlers that Kafka's clients use by default may be named for any mechanism.
_OF_ANY_MECHANISM: Final = "SaslClientCallbackHandler"

#: Host names of the services. Amazon: provisioned clusters and MSK Serverless; China and the EU's sovereign cloud have their own.
_SERVICES: Final[tuple[tuple[Cloud, re.Pattern[str]], ...]] = (
    ("aws", re.compile(r"\.kafka(-serverless)?\.[a-z0-9-]+\.amazonaws\.(com|com\.cn|eu)$")),
    ("azure", re.compile(r"\.servicebus\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)$")),
    ("google", re.compile(r"\.managedkafka\.[a-z0-9-]+\.cloud\.goog$")),
)
_SERVICE_NAMES: Final = {"aws": "Amazon MSK", "azure": "Azure Event Hubs", "google": "Google's managed Kafka"}
#: Settings that give credentials of another kind than a cloud's.
_OTHER_CREDENTIALS: Final = (
    "sasl_username",
    "sasl_password",
    "sasl_oauthbearer_token_provider",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
)


def parse_auth(value: str) -> str:
    """Return a value of ``auth``. Raises ValueError with the remedy."""
    if value.lower() in _METHODS:
        return value.lower()
    kind, _, name = value.partition(":")
    if f"{kind.lower()}:" == _DATABRICKS and name.strip():
        return _DATABRICKS + name.strip()
    raise ValueError(_AUTH_REMEDY)


def parse_handler(value: str) -> str:
    """Return the class name of a callback handler, without its package. Raises ValueError with the remedy."""
    name = value.rpartition(".")[2]
    if name in HANDLERS or name == _OF_ANY_MECHANISM:
        return name
    raise ValueError(
        "It names a Java class, which this client cannot run: set {sasl.oauthbearer.token.provider} to module:function instead, "
        "or {auth}=aws-msk-iam, {auth}=azure or {auth}=google (docs/clouds.md)."
    )


def cloud_of_host(host: str) -> Cloud | None:
    """Return the cloud whose service has this host name; None for any other name, such as a private endpoint's."""
    return next((cloud for cloud, pattern in _SERVICES if pattern.search(host.lower())), None)


def cloud_of(auth: str | None, mechanism: str | None, handlers: Iterable[str | None]) -> Cloud | None:
    """Return the cloud whose credentials authenticate, None for credentials of another kind."""
    if auth is not None:
        return "databricks" if auth.startswith(_DATABRICKS) else _METHODS[auth][0]
    if mechanism == MSK_IAM:
        return "aws"
    named = (HANDLERS[name].cloud for name in handlers if name is not None and name in HANDLERS)
    return next((cloud for cloud in named if cloud is not None), None)


def service_credential(auth: str) -> str:
    """Return the name in ``auth=databricks:NAME``."""
    return auth.removeprefix(_DATABRICKS)


def complete(values: dict[str, Any]) -> None:  # Any: a setting's value
    """Add what ``auth`` implies to settings by field name: the protocol and the mechanism.

    The mechanism stays open for a service credential of Databricks with unknown host names: the cloud that issued it decides.

    Raises:
        SettingsError: ``auth``, or a callback handler, contradicts another setting or the brokers' host names.
    """
    _check_handlers(values)
    auth = values.get("auth")
    if auth is None:
        return
    named_cloud = cloud_of(auth, None, ())
    services = {cloud: host for host, _ in values.get("bootstrap_servers", ()) if (cloud := cloud_of_host(host))}
    for cloud, host in services.items():
        if named_cloud not in (cloud, "databricks"):
            right = next(name for name, (method_cloud, _) in _METHODS.items() if method_cloud == cloud)
            names = "{bootstrap.servers} names {host}, of {service}"
            _contradict(auth, names, "Use {auth}={right}.", host=host, service=_SERVICE_NAMES[cloud], right=right)
    protocol = values.setdefault("security_protocol", "SASL_SSL")
    if protocol not in ("SASL_SSL", "SASL_PLAINTEXT"):
        without_sasl = "{security.protocol} is {protocol}, which has no SASL"
        _contradict(auth, without_sasl, "Leave out {security.protocol}.", protocol=protocol)
    if named_cloud != "databricks":
        mechanisms = _METHODS[auth][1]
    else:
        mechanisms = (BEARER,) if services and "aws" not in services else (MSK_IAM, BEARER)
    given = values.get("sasl_mechanism")
    if given is not None and given not in mechanisms:
        remedy = "Leave out {sasl.mechanism}, or use {mechanisms}."
        _contradict(
            auth, "{sasl.mechanism} is {mechanism}", remedy, mechanism=given, mechanisms=" or ".join(mechanisms)
        )
    if given is None and (named_cloud != "databricks" or services):
        values["sasl_mechanism"] = mechanisms[0]
    for field in _OTHER_CREDENTIALS:
        if values.get(field) is not None:
            _contradict(auth, f"{_in_braces(field)} gives other credentials", _leave_out_one(field))


def _check_handlers(values: Mapping[str, Any]) -> None:
    for field in ("sasl_client_callback_handler_class", "sasl_login_callback_handler_class"):
        handler = HANDLERS.get(values.get(field) or "")
        if handler is None:
            continue
        mechanism, auth = values.get("sasl_mechanism"), values.get("auth")
        if mechanism is not None and mechanism != handler.mechanism:
            raise SettingsError(
                "{setting} is {handler}, which is for {sasl.mechanism}={needed}, and {sasl.mechanism} is {mechanism}.",
                setting=field.replace("_", "."),
                remedy="Change one of the two.",
                handler=values[field],
                needed=handler.mechanism,
                mechanism=mechanism,
            )
        if auth is not None and handler.cloud != cloud_of(auth, None, ()):
            _contradict(auth, f"{_in_braces(field)} is {{handler}}", _leave_out_one(field), handler=values[field])


def _leave_out_one(field: str) -> str:
    return f"Leave out one of the two, {_in_braces(field)} or {{auth}}={{method}}."


def _in_braces(field: str) -> str:
    """Return the setting of a field as :func:`~pykafka_wire.wire.errors.fill_in` takes its name."""
    return f"{{{field.replace('_', '.')}}}"


def _contradict(auth: str, contradiction: str, remedy: str, **values: str) -> None:
    message = f"{{auth}} is {{method}}, and {contradiction}."
    raise SettingsError(message, setting="auth", remedy=remedy, method=auth, **values)
