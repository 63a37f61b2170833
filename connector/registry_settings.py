"""The settings of a schema registry, under the names of Confluent's clients: the one list of them.

Options of a query, ``[registry_options]`` of an ingest and ``-X`` of the command have these names, each with the prefix
``schema.registry.`` or without. :mod:`~pykafka_wire.values.registry.settings` owns what they mean together, and
:mod:`pykafka_wire.options.option_table` shows them in docs/options.md.
https://docs.confluent.io/platform/current/schema-registry/sr-client-configs.html
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: Before the names of settings of TLS to the registry, and optional before those below.
REGISTRY_PREFIX: Final = "schema.registry."

USER_INFO: Final = "basic.auth.user.info"
USER_SOURCE: Final = "basic.auth.credentials.source"
TOKEN: Final = "bearer.auth.token"
TOKEN_SOURCE: Final = "bearer.auth.credentials.source"
TOKEN_ENDPOINT: Final = "bearer.auth.issuer.endpoint.url"
CLIENT_ID: Final = "bearer.auth.client.id"
CLIENT_SECRET: Final = "bearer.auth.client.secret"
SCOPE: Final = "bearer.auth.scope"
LOGICAL_CLUSTER: Final = "bearer.auth.logical.cluster"
IDENTITY_POOL: Final = "bearer.auth.identity.pool.id"
PROXY_HOST: Final = "proxy.host"
PROXY_PORT: Final = "proxy.port"
RULE_EXECUTORS: Final = "rule.executors"


class RegistrySetting(NamedTuple):
    """What docs/options.md says of a setting.

    Attributes:
        default: None where `unset` says what applies without the setting.
    """

    name: str
    meaning: str
    default: str | None = None
    unset: str = "none"
    is_experimental: bool = False


# fmt: off
REGISTRY_SETTINGS: Final = {
    setting.name: setting
    for setting in (
        RegistrySetting(USER_INFO, "`user:password` for the registry, or a reference to it, such as `env:NAME`; this and the next ones may have the prefix `schema.registry.`"),
        RegistrySetting(USER_SOURCE, "`USER_INFO`, `URL` (`https://user:password@host`) or `SASL_INHERIT` (the user of `kafka.sasl.*`)", "USER_INFO"),
        RegistrySetting(TOKEN, "a token for the registry, or a reference to it"),
        RegistrySetting(TOKEN_SOURCE, "`STATIC_TOKEN`, `OAUTHBEARER` (by the next four) or `SASL_OAUTHBEARER_INHERIT` (the tokens of `kafka.sasl.oauthbearer.*`)", "STATIC_TOKEN"),
        RegistrySetting(TOKEN_ENDPOINT, "the endpoint that issues tokens for client credentials"),
        RegistrySetting(CLIENT_ID, "the client's id at that endpoint"),
        RegistrySetting(CLIENT_SECRET, "its secret, or a reference to it"),
        RegistrySetting(SCOPE, "the scope to request at that endpoint"),
        RegistrySetting(LOGICAL_CLUSTER, "for Confluent Cloud beside a token: the registry's id, `lsrc-…`"),
        RegistrySetting(IDENTITY_POOL, "for Confluent Cloud beside a token: the identity pool"),
        RegistrySetting(PROXY_HOST, "the HTTP proxy to the registry; without it the environment's `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` apply", unset="of the environment"),
        RegistrySetting(PROXY_PORT, "its port; needed with `proxy.host`"),
        RegistrySetting(RULE_EXECUTORS, "executors of confluent-kafka for Python, as `module:Class`, separated by commas: they apply [rules in a registry](typed-topics.md#rules-in-a-registry) to Avro values, and to JSON that is read", is_experimental=True),
    )
}
# fmt: on
