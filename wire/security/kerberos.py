"""GSSAPI, Kerberos V5 (RFC 4752, RFC 1964), by the system's libraries and the package gssapi: the extra ``kerberos``.

Owns the client's side of the SASL exchange, and the options of a JAAS line's ``Krb5LoginModule``. Tickets come from the
credential cache (kinit, KRB5CCNAME, or the line's ``ticketCache``) with ``useTicketCache=true``, then from its keytab with
``useKeyTab=true``, for its ``principal``; without a line from the cache, or the keytab that KRB5_CLIENT_KTNAME names. No
security layer is asked for: TLS encrypts, where it is wanted.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pykafka_wire.wire.errors import AuthenticationError, SettingsError
from pykafka_wire.wire.security import jaas

#: The bit of "no security layer" in the broker's offer, and our choice of it (RFC 4752, section 3.1).
_NO_LAYER: Final = 1
_CHOICE: Final = bytes((_NO_LAYER, 0, 0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kerberos:
    """One client's side of it; the broker's principal is ``service/host``."""

    service: str
    host: str
    principal: str = ""
    #: "" where none is to be used.
    keytab: str = ""
    #: Whether the credential cache is looked into first, where there is a keytab as well.
    use_cache: bool = True
    #: Path of the cache; "" for the system's default.
    cache: str = ""

    @classmethod
    def of(cls, service: str, host: str, options: Mapping[str, str]) -> Kerberos:
        """By the options of a JAAS line, none where there is no line.

        Raises:
            SettingsError: the line gives neither a cache nor a keytab.
        """
        use_keytab, use_cache = (options.get(name, "").lower() == "true" for name in ("useKeyTab", "useTicketCache"))
        if options and not (use_keytab or use_cache):
            raise SettingsError(
                f"{jaas.SETTING} says of no place where tickets come from.",
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

    @property
    def name(self) -> str:
        return "GSSAPI"

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Raises SettingsError where gssapi is not installed or the keytab cannot be read, AuthenticationError where there is
        no ticket to be had."""
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
            reason = " ".join(str(error).split())[:300]
            raise AuthenticationError(
                f"Kerberos for {self.service}/{self.host}: {reason}", remedy=_remedy(reason)
            ) from error
        yield answer

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
                f"{jaas.SETTING} names the keytab {self.keytab}, which cannot be read: {error.strerror}.",
                setting=jaas.SETTING,
                remedy="It must be there wherever the query runs, on executors too.",
            ) from error
        # A cache of this process: kinit's, if there is one, may hold another user's tickets.
        store = {"client_keytab": self.keytab, "ccache": f"MEMORY:{self.principal}{self.keytab}"}
        return gssapi.Credentials(name=name, usage="initiate", store=store)


#: What the libraries say -> what to do about it. Their sentences, MIT's and Heimdal's, are not translated.
_REMEDIES: Final = {
    "clock skew": "Set the clocks of this machine, the KDC and the broker: they may differ by five minutes.",
    "cannot contact any kdc": "Check krb5.conf (KRB5_CONFIG) and that the KDC can be reached from here.",
    "preauthentication failed": "The keytab's key is not the principal's: export the keytab anew.",
    "server": "Check sasl.kerberos.service.name, and that the brokers' principals name the hosts that they advertise.",
    "expired": "Run kinit again, or name a keytab in sasl.jaas.config, from which tickets are had anew.",
    "credentials": "Run kinit, or name a keytab in sasl.jaas.config: useKeyTab=true keyTab=… principal=…",
}  # fmt: skip


def _remedy(reason: str) -> str:
    for said, remedy in _REMEDIES.items():
        if said in reason.lower():
            return remedy
    return "Check the ticket (klist) or the keytab, and sasl.kerberos.service.name."


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
