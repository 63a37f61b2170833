"""How a request proves who sends it: basic authentication or a bearer token, resolved for each request.

Owns the header ``Authorization``. A reference is resolved here, in the process that sends the request, so that neither a plan nor
a pickle holds the secret, and a rotated one is used by the next request.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from pykafka_wire.errors import RegistryError
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.security.secret_references import resolve

if TYPE_CHECKING:
    from pykafka_wire.values.registry.client import Registry


def authorization(registry: Registry) -> dict[str, str]:
    """The header ``authorization``; no header for a registry without credentials.

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
        raise RegistryError(f"no credentials for the schema registry: {error.text}") from error


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
