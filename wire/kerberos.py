"""GSSAPI, Kerberos V5 (RFC 4752, RFC 1964), by the system's libraries and the package gssapi: the extra ``kerberos``.

Owns the client's side of the SASL exchange. Tickets come from the credential cache (kinit, KRB5CCNAME), from the keytab
that KRB5_CLIENT_KTNAME names, or from the one in a JAAS line (``useKeyTab``, ``keyTab``, ``principal``). No security layer
is asked for: TLS encrypts, where it is wanted.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from pykafka_wire.wire.errors import AuthenticationError, SettingsError

#: The bit of "no security layer" in the broker's offer, and our choice of it (RFC 4752, section 3.1).
_NO_LAYER: Final = 1
_CHOICE: Final = bytes((_NO_LAYER, 0, 0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kerberos:
    """One client's side of it; the broker's principal is ``service/host``."""

    service: str
    host: str
    principal: str = ""
    keytab: str = ""

    @property
    def name(self) -> str:
        return "GSSAPI"

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Raises SettingsError where gssapi is not installed, AuthenticationError where there is no ticket to be had."""
        gssapi = _gssapi()
        try:
            target = gssapi.Name(f"{self.service}@{self.host}", gssapi.NameType.hostbased_service)
            context = gssapi.SecurityContext(name=target, creds=self._credentials(gssapi), usage="initiate")
            token = context.step()
            while not context.complete:
                token = context.step((yield token or b""))
            # What the context has left to say, then the broker's offer of security layers comes.
            offer = context.unwrap((yield token or b"")).message
            if len(offer) != 4 or not offer[0] & _NO_LAYER:
                raise AuthenticationError(
                    "the broker insists on a Kerberos security layer", remedy="Use TLS: security.protocol=SASL_SSL."
                )
            # No authorization id: the broker takes the principal that has proved itself.
            answer = context.wrap(_CHOICE, False).message
        except gssapi.exceptions.GSSError as error:
            raise AuthenticationError(
                f"Kerberos for {self.service}/{self.host}: {_reason(error)}",
                remedy="Check the ticket (klist) or keytab, sasl.kerberos.service.name, and that the brokers' principals "
                "name the hosts that they advertise.",
            ) from error
        yield answer

    def _credentials(self, gssapi: Any) -> Any:  # Any: a package without types
        if not self.keytab:
            return None
        name = gssapi.Name(self.principal, gssapi.NameType.kerberos_principal) if self.principal else None
        # A cache of this process: kinit's, if there is one, may hold another user's tickets.
        store = {"client_keytab": self.keytab, "ccache": f"MEMORY:pykafka-wire-{self.principal}"}
        return gssapi.Credentials(name=name, usage="initiate", store=store)


def _gssapi() -> Any:  # Any: a package without types
    try:
        import gssapi
    except (ImportError, OSError) as error:  # OSError: the system's Kerberos libraries are missing
        raise SettingsError(
            "sasl.mechanism is GSSAPI, which needs the package gssapi and the system's Kerberos libraries.",
            setting="sasl.mechanism",
            remedy="pip install 'pykafka-wire[kerberos]' wherever the query runs; on Debian it builds with libkrb5-dev.",
        ) from error
    return gssapi


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
