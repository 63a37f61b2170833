"""``doctor``'s check of who signs in: whose identity the settings give, where it was found, and when it ends.

Owns the words. It sends nothing to a broker: what the broker makes of the identity is the check ``sasl``.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Final

from pykafka_wire.cli.checks import Check, failed_check
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.security.sasl import sasl_identity
from pykafka_wire.wire.settings import ClientSettings

#: Credentials that end sooner get a warning: most live for an hour.
_SOON_S: Final = 60


def identity_check(settings: ClientSettings) -> Check:
    """Whose identity the client signs in with. It may ask a cloud for credentials, or a token endpoint for a token."""
    host, _ = settings.bootstrap_servers[0]
    try:
        found = sasl_identity(settings, host)
    except WireError as error:
        return failed_check("identity", "", error)
    shown = f"{found.name}, from {found.source}"
    if found.expires_at is None:
        return Check(name="identity", where="", result="ok", found=shown)
    left_s = found.expires_at - time.time()
    ends = datetime.fromtimestamp(found.expires_at, tz=timezone.utc)
    shown += f"; ends {ends:%Y-%m-%d %H:%M:%S} UTC, in {span(left_s)}"
    if left_s < _SOON_S:
        return Check(
            name="identity", where="", result="warn", found=shown,
            remedy="They end within a minute: check their lifetime, and this machine's clock.",
        )  # fmt: skip
    return Check(name="identity", where="", result="ok", found=shown)


def span(seconds: float) -> str:
    """A time span in the largest unit of which it has two or more: ``59 min``."""
    for unit, size_s in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
