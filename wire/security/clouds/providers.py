"""The token provider for a client's settings: which cloud's, with which options.

Owns the choice, and keeps one provider for each process and settings: the clouds' libraries renew what it holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache

from pykafka_wire.wire.security.token import TokenProvider
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.settings.cloud_credentials import BEARER, service_credential


def provider(settings: ClientSettings, options: Mapping[str, str]) -> TokenProvider:
    """Return the provider for settings that name a cloud. ``options`` are those of the JAAS line.

    Raises:
        SettingsError: the cloud's library is missing, or an option is invalid.
        AuthenticationError: there are no credentials.
        TransportError: the service that issues credentials could not be reached.
    """
    return _provider(os.getpid(), settings, tuple(sorted(options.items())))


def forget() -> None:
    """Look for credentials again when the next connection is opened: a broker has rejected what this process holds."""
    _provider.cache_clear()


@lru_cache(maxsize=32)
def _provider(pid: int, settings: ClientSettings, options: tuple[tuple[str, str], ...]) -> TokenProvider:
    if settings.cloud == "databricks":
        return _of_databricks(settings)
    if settings.cloud == "aws":
        from pykafka_wire.wire.security.clouds import aws

        return aws.from_options(dict(options), is_bearer=settings.sasl_mechanism == BEARER)
    if settings.cloud == "azure":
        from pykafka_wire.wire.security.clouds import azure

        return azure.Azure(credential=azure.find_credential(dict(options)), scope=settings.sasl_oauthbearer_scope)
    from pykafka_wire.wire.security.clouds import google

    return google.Google(credentials=google.find_credentials())


def _of_databricks(settings: ClientSettings) -> TokenProvider:
    """Make a provider of what the runtime issues: a session of botocore, a credential of azure-identity, or credentials of
    google-auth."""
    from pykafka_wire.wire.security.clouds import databricks

    name = service_credential(settings.auth or "")
    issued, source = databricks.service_credential(name), f"Databricks' service credential {name}"
    if hasattr(issued, "get_credentials"):
        from pykafka_wire.wire.security.clouds import aws

        return aws.from_session(issued, source, is_bearer=settings.sasl_mechanism == BEARER)
    if hasattr(issued, "get_token"):
        from pykafka_wire.wire.security.clouds import azure

        return azure.Azure(credential=issued, scope=settings.sasl_oauthbearer_scope, source=source)
    from pykafka_wire.wire.security.clouds import google

    return google.Google(credentials=google.with_scopes(issued), source=source)
