"""Whose identity a client signs in with, for people who ask: nothing is sent to a broker.

Owns the identity of each SASL mechanism. It may get a token, as a connection would.
"""

from __future__ import annotations

from pykafka_wire.wire.security import jaas
from pykafka_wire.wire.security.login import login
from pykafka_wire.wire.security.token import Identity
from pykafka_wire.wire.settings import ClientSettings


def identity(settings: ClientSettings, host: str) -> Identity:
    """The identity for connections to ``host``. AWS is asked for its name, if STS can be reached.

    Raises:
        SettingsError, AuthenticationError, TransportError: as a connection would.
    """
    found = login(settings)
    if found.settings.cloud is not None:
        from pykafka_wire.wire.security.clouds.providers import provider

        return provider(found.settings, found.options).identity(host)
    if found.mechanism == "OAUTHBEARER":
        from pykafka_wire.wire.security import oauth

        return oauth.token_source(settings).token().identity
    if found.mechanism == "GSSAPI":
        uses_keytab = found.options.get("useKeyTab", "").lower() == "true"
        principal = found.options.get("principal") or "the default principal"
        return Identity(name=principal, source="its keytab" if uses_keytab else "the ticket cache")
    user, _ = found.user_and_password()
    is_token = found.options.get("tokenauth", "").lower() == "true"
    return Identity(
        name=f"delegation token {user}" if is_token else user,
        source="sasl.username" if settings.sasl_username else jaas.SETTING,
    )
