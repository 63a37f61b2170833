"""The exit codes of the command line, and which error has which."""

from __future__ import annotations

from typing import Final

from pykafka_wire.errors import ConnectorError
from pykafka_wire.wire.errors import AuthenticationError, BrokerError, SettingsError, TransportError, WireError

FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
REFUSED: Final = 4
INTERRUPTED: Final = 130


def exit_code(error: WireError | ConnectorError) -> int:
    """The process's exit code where a command ends with this error."""
    if isinstance(error, SettingsError):
        return USAGE
    if isinstance(error, TransportError):
        return UNREACHABLE
    if isinstance(error, AuthenticationError) or (
        isinstance(error, BrokerError) and "AUTHORIZATION_FAILED" in error.info.name
    ):
        return REFUSED
    return FAILED
