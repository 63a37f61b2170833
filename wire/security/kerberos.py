"""GSSAPI with Kerberos V5 (RFC 4752, RFC 1964), through the system's libraries and the package gssapi (extra ``kerberos``).

Owns the client's side of the SASL exchange, and the options of a JAAS line's ``Krb5LoginModule``. With
``useTicketCache=true`` tickets come from the credential cache (kinit, KRB5CCNAME, or the line's ``ticketCache``); otherwise, or
if that fails, with ``useKeyTab=true`` from the line's keytab, for its ``principal``. Without a line they come from the cache,
or from the keytab that KRB5_CLIENT_KTNAME names. The client requests no security layer: encryption is the task of TLS.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from pykafka_wire.wire.errors import AuthenticationError, SettingsError
from pykafka_wire.wire.security import jaas

#: The bit of "no security layer" in the broker's offer, and the client's reply that selects it (RFC 4752, section 3.1).
_NO_LAYER: Final = 1
_CHOICE: Final = bytes((_NO_LAYER, 0, 0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kerberos:
    """The client's side of the exchange; the broker's principal is ``service/host``."""

    service: str
    host: str
    principal: str = ""
    #: "" for none.
    keytab: str = ""
    #: Whether to try the credential cache before the keytab.
    use_cache: bool = True
    #: Path of the cache; "" for the system's default.
    cache: str = ""
    name: ClassVar[str] = "GSSAPI"

    @classmethod
    def from_options(cls, service: str, host: str, options: Mapping[str, str]) -> Kerberos:
        """Take the options of a JAAS line; empty without a line.

        Raises:
            SettingsError: the line names neither a cache nor a keytab.
        """
        use_keytab, use_cache = (options.get(name, "").lower() == "true" for name in ("useKeyTab", "useTicketCache"))
        if options and not (use_keytab or use_cache):
            raise SettingsError(
                "{setting} names no source of Kerberos tickets.",
                setting=jaas.SETTING,
                remedy='Add useKeyTab=true keyTab="/path" principal="user@REALM", or useTicketCache=true.',
            )
        keytab = options.get("keyTab", "").removeprefix("file:") if use_keytab else ""
        return cls(
            service=service,
            host=host,
            principal=options.get("principal", ""),
            keytab=keytab,
            use_cache=use_cache or not keytab,
            cache=options.get("ticketCache", "") if use_cache else "",
        )

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Exchange tokens by Kerberos. Raises SettingsError if gssapi is not installed or the keytab cannot be read,
        AuthenticationError if there is no ticket."""
        gssapi = _gssapi()
        try:
            target = gssapi.Name(f"{self.service}@{self.host}", gssapi.NameType.hostbased_service)
            context = gssapi.SecurityContext(name=target, creds=self._credentials(gssapi), usage="initiate")
            token = context.step()
            while not context.complete:
                token = context.step((yield token or b""))
            # The context's last token; the broker responds with its offer of security layers.
            offer = context.unwrap((yield token or b"")).message
            if len(offer) != 4 or not offer[0] & _NO_LAYER:
                raise AuthenticationError(
                    "the broker requires a Kerberos security layer", remedy="Use TLS: {security.protocol}=SASL_SSL."
                )
            # No authorization id: the broker uses the authenticated principal.
            choice = context.wrap(_CHOICE, False).message
        except gssapi.exceptions.GSSError as error:
            reason = " ".join(str(error).split())[:300]
            raise AuthenticationError(
                f"Kerberos for {self.service}/{self.host}: {reason}", remedy=_remedy(reason)
            ) from error
        yield choice

    def _credentials(self, gssapi: Any) -> Any:  # Any: a package without types
        name = gssapi.Name(self.principal, gssapi.NameType.kerberos_principal) if self.principal else None
        if self.use_cache:
            store = {"ccache": f"FILE:{self.cache}"} if self.cache else None
            try:
                return gssapi.Credentials(name=name, usage="initiate", store=store)
            except gssapi.exceptions.GSSError:
                if not self.keytab:
                    raise
        try:
            Path(self.keytab).open("rb").close()
        except OSError as error:
            raise SettingsError(
                "{setting} names the keytab {keytab}, which cannot be read: {reason}.",
                setting=jaas.SETTING,
                remedy="The file must exist on every machine that runs the query, executors too.",
                keytab=self.keytab,
                reason=error.strerror,
            ) from error
        # A cache in memory: the cache that kinit fills may hold another user's tickets.
        store = {"client_keytab": self.keytab, "ccache": f"MEMORY:{self.principal}{self.keytab}"}
        return gssapi.Credentials(name=name, usage="initiate", store=store)


#: A part of the libraries' error text -> the remedy. The texts of MIT's and Heimdal's libraries are not translated.
_REMEDIES: Final = {
    "clock skew": "Set the clocks of this machine, the KDC and the broker: they may differ by five minutes.",
    "cannot contact any kdc": "Check krb5.conf (KRB5_CONFIG) and that the KDC can be reached from here.",
    "preauthentication failed": "The keytab's key is not the principal's: export the keytab again.",
    "server": "Check {sasl.kerberos.service.name}, and that the brokers' principals name the hosts that they advertise.",
    "expired": "Run kinit again, or name a keytab in {sasl.jaas.config}, from which tickets are renewed.",
    "credentials": "Run kinit, or name a keytab in {sasl.jaas.config}: useKeyTab=true keyTab=… principal=…",
}  # fmt: skip


def _remedy(reason: str) -> str:
    for part, remedy in _REMEDIES.items():
        if part in reason.lower():
            return remedy
    return "Check the ticket (klist) or the keytab, and {sasl.kerberos.service.name}."


def _gssapi() -> Any:  # Any: a package without types
    try:
        import gssapi
    except (ImportError, OSError) as error:  # OSError: the system's Kerberos libraries are missing
        raise SettingsError(
            "{setting} is GSSAPI, which needs the package gssapi and the system's Kerberos libraries.",
            setting="sasl.mechanism",
            remedy="pip install 'pykafka-wire[kerberos]' wherever the query runs; on Debian it builds with libkrb5-dev.",
        ) from error
    return gssapi
