"""The address of a page, and the access to it."""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import socket
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from pykafka_wire.errors import OptionError
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.security.secret_references import resolve

_LOOPBACK: Final = "127.0.0.1"
_MIN_TOKEN: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """The address of a page, and what it may show.

    Attributes:
        port: the port, 0 for a free one.
        shows_values: whether the page shows values of rejected records.
        token: the token that the page asks for, or a reference to it, ``env:NAME`` or ``file:/path``. None means a new token at
            each start, or no token at a loopback address.
    """

    host: str = _LOOPBACK
    port: int = 0
    shows_values: bool = False
    token: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str, *, shows_values: bool = False, token: str | None = None) -> PageSettings:
        """Return settings from ``[HOST:]PORT``; an IPv6 address must be in brackets.

        Raises:
            OptionError: the text has another form, or the token cannot be used.
        """
        host, port = host_and_port(text, "the page")
        settings = cls(host=host, port=port, shows_values=shows_values, token=token)
        settings.resolved_token()
        return settings

    @classmethod
    def of(cls, given: PageSettings | str | int) -> PageSettings:
        """Return settings that a program gives: a PageSettings object, or ``[HOST:]PORT``.

        Raises:
            OptionError: as in :meth:`parse`.
        """
        return given if isinstance(given, PageSettings) else cls.parse(str(given))

    @property
    def is_loopback(self) -> bool:
        """Return whether only programs on this machine can connect."""
        return _is_loopback(self.host)

    def resolved_token(self) -> str | None:
        """Return the token, with a reference resolved.

        Raises:
            OptionError: the reference cannot be resolved, or the token is easy to guess, or it cannot be sent in a header.
        """
        if self.token is None:
            return None
        try:
            token = resolve(self.token, "the page's token")
        except SettingsError as error:
            raise OptionError(str(error)) from error
        # Browsers allow only these characters in a header.
        if len(token) < _MIN_TOKEN or not all("!" <= character <= "~" for character in token):
            raise OptionError(
                f"the page's token must have at least {_MIN_TOKEN} characters, only letters, digits and punctuation of "
                "ASCII: generate a random one."
            )
        return token

    def listen(self) -> socket.socket:
        """Return a listening socket.

        Raises:
            OptionError: the port is in use, or the host does not belong to this machine.
        """
        return open_server(self.host, self.port, "the page")


def host_and_port(text: str, server: str) -> tuple[str, int]:
    """Return the host and port in ``[HOST:]PORT``. The default host is only reachable from this machine. An IPv6 address must be in
    brackets.

    Args:
        server: the name of the server in errors.

    Raises:
        OptionError: the text has another form.
    """
    host, separator, port = text.strip().rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdigit() and int(port) < 2**16
    if not is_port or (not is_bracketed and (":" in host or (separator and not host))):
        raise OptionError(f"the address of {server} is {text!r}: give PORT or HOST:PORT, such as 8080 or 0.0.0.0:8080.")
    return (host[1:-1] if is_bracketed else host) or _LOOPBACK, int(port)


def open_server(host: str, port: int, server: str) -> socket.socket:
    """Return a socket that listens at an IPv4 or IPv6 address.

    Args:
        server: the name of the server in errors.

    Raises:
        OptionError: the port is in use, or the host does not belong to this machine.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=64)
    except (OSError, UnicodeError) as error:
        raise listen_error(host, port, server, error) from None


def listen_error(host: str, port: int, server: str, error: OSError | UnicodeError) -> OptionError:
    """Return the error of a server that cannot listen."""
    reason = _reason_of(error) if isinstance(error, OSError) else str(error)
    return OptionError(
        f"{server} cannot listen at {shown(host, port)} ({reason}): give another port, 0 for a free one, or an address of this "
        "machine."
    )


def _reason_of(error: OSError) -> str:
    """Return the reason for a failed listen, without the address that ``create_server`` adds."""
    if isinstance(error, socket.gaierror) or error.errno is None:
        return str(error.strerror or error)
    return os.strerror(error.errno)


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown(host: str, port: int) -> str:
    """Return host and port in the form of a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """Return a host name with which other machines reach this one, for a page that listens at all addresses."""
    try:
        is_any = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_any = False
    return socket.gethostname() if is_any else host


class Guard:
    """Decides who may read the page.

    A page at a loopback address is for the users of this machine, and asks for no token. A web site could resolve its own name to
    that address (DNS rebinding), so requests must name a loopback host. A page at another address asks for a token, which no other
    site knows, and may be reached under any name.
    """

    def __init__(self, settings: PageSettings) -> None:
        self.token = settings.resolved_token() or (None if settings.is_loopback else secrets.token_urlsafe(24))

    def __repr__(self) -> str:
        return f"Guard(token={'***' if self.token else None})"

    def url(self, host: str, port: int) -> str:
        """Return the link to the page. The token is in the fragment after ``#``, which browsers do not send."""
        fragment = f"#token={quote(self.token, safe='')}" if self.token else ""
        return f"http://{shown(reachable(host), port)}/{fragment}"

    def knows_host(self, header: str) -> bool:
        """Return whether a request with this Host header may be answered."""
        if self.token is not None:
            return True
        host = header[1 : header.find("]")] if header.startswith("[") else header.rpartition(":")[0] or header
        return _is_loopback(host)

    def allows(self, authorization: str) -> bool:
        """Return whether an ``Authorization`` header has the token."""
        if self.token is None:
            return True
        scheme, _, given = authorization.partition(" ")
        # Compare in constant time. Compare bytes, since compare_digest refuses non-ASCII texts.
        return hmac.compare_digest(given.strip().encode(), self.token.encode()) and scheme.lower() == "bearer"
