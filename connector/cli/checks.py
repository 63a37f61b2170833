"""The checks of ``doctor`` for the connection to a broker, and for the identity of the client.

Each check returns a :class:`Check`: the finding and, for a problem, the remedy.

No check changes the cluster: no record, no offset, no topic, and never InitProducerId, which would fence the producer that uses the
transactional id.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Final, Literal

from pykafka_wire.cli.output import FAILED, REFUSED, UNREACHABLE, USAGE, exit_code
from pykafka_wire.wire.cluster.metadata_cache import Broker
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.connection.transport import tls_failure
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import AuthenticationError, SettingsError, WireError
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest
from pykafka_wire.wire.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from pykafka_wire.wire.protocol.messages.handshake import SaslHandshakeRequest
from pykafka_wire.wire.protocol.messages.list_offsets import ListOffsetsRequest
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.protocol.messages.produce import ProduceRequest
from pykafka_wire.wire.security import tls
from pykafka_wire.wire.security.sasl import sasl_identity
from pykafka_wire.wire.settings import ClientSettings

Result = Literal["ok", "warn", "fail"]

#: The timeout of one step on one connection. All checks should take seconds, and a healthy broker responds in milliseconds.
STEP_MS: Final = 3_000
#: A certificate that expires within this time gets a warning.
_SOON_DAYS: Final = 30
_NEEDED: Final = (
    MetadataRequest, ListOffsetsRequest, FetchRequest, ProduceRequest, OffsetFetchRequest, OffsetCommitRequest,
)  # fmt: skip
#: Credentials that expire within this time get a warning; most are valid for an hour.
_ENDS_SOON_S: Final = 60
#: OpenSSL's verification results, https://docs.openssl.org/master/man1/openssl-verification-options/.
_EXPIRED, _NOT_YET_VALID = 10, 9
_UNTRUSTED: Final = (18, 19, 20, 21)
_OTHER_HOST: Final = (62, 64)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: finding, remedy, result, the exit code of the process if the check failed, name, place and
    duration."""

    found: str
    remedy: str = ""
    result: Result = "ok"
    exit_code: int = FAILED
    name: str = ""
    where: str = ""
    ms: int = 0

    def document(self) -> dict[str, Any]:  # Any: a JSON value
        """Return the check's fields for ``--json``."""
        return {name: getattr(self, name) for name in ("name", "where", "result", "found", "remedy", "ms")}


def warn(text: str, remedy: str = "") -> Check:
    """Return a check that only warns: clients work nevertheless."""
    return Check(text, remedy, "warn")


def fail(text: str, remedy: str, exit_code: int = FAILED) -> Check:
    """Return a failed check."""
    return Check(text, remedy, "fail", exit_code)


def failed(error: WireError, remedy: str = "") -> Check:
    """Return a failed check for an error; ``remedy`` is used if the error has none."""
    return fail(error.message, error.shown_remedy or remedy, exit_code(error))


def run_check(name: str, where: str, look: Callable[[], Check]) -> Check:
    """Run ``look`` and return its check, or its error as a failed check, with name, place and duration."""
    started = time.monotonic()
    try:
        check = look()
    except WireError as error:
        check = failed(error)
    return replace(check, name=check.name or name, where=where, ms=round((time.monotonic() - started) * 1000))


def identity(settings: ClientSettings) -> Check:
    """Return the identity that the client signs in with. May request credentials from a cloud, or a token from a token endpoint."""
    login = sasl_identity(settings, settings.bootstrap_servers[0][0])
    shown = f"{login.name}, from {login.source}"
    if login.expires_at is None:
        return Check(shown)
    left_s = login.expires_at - time.time()
    ends = datetime.fromtimestamp(login.expires_at, tz=timezone.utc)
    shown += f"; ends {ends:%Y-%m-%d %H:%M:%S} UTC, in {span(left_s)}"
    if left_s < _ENDS_SOON_S:
        return warn(shown, "The credentials expire within a minute: check their lifetime, and this machine's clock.")
    return Check(shown)


def span(seconds: float) -> str:
    """Return a time span in the largest unit in which it is at least two, such as ``59 min``."""
    for unit, size_s in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def check_addresses(settings: ClientSettings, addresses: Sequence[tuple[str, int]]) -> list[list[Check]]:
    """Return the checks of :func:`check_address` for each address; the addresses are checked in parallel."""
    with ThreadPoolExecutor(max_workers=min(32, len(addresses))) as pool:
        return list(pool.map(lambda address: list(check_address(settings, *address)), addresses))


def check_address(settings: ClientSettings, host: str, port: int) -> Iterator[Check]:
    """Check name, TCP, TLS, SASL and API versions of one address; stop at the first failure."""
    address = f"{host}:{port}"
    steps: list[tuple[str, str, Callable[[], Check]]] = [
        ("name", host, lambda: _name(host, port)),
        ("tcp", address, lambda: _tcp(host, port)),
        ("tls", address, lambda: _tls(settings, host, port)),
        ("sasl" if settings.uses_sasl else "api versions", address, lambda: _versions(settings, host, port)),
    ]
    for name, where, look in steps:
        if name != "tls" or settings.uses_tls:
            check = run_check(name, where, look)
            yield check
            if check.result == "fail":
                return


def _name(host: str, port: int) -> Check:
    try:
        addresses = sorted({str(address[4][0]) for address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
    except OSError as error:
        remedy = "Check the spelling, and DNS or /etc/hosts on this machine."
        return fail(f"cannot be resolved: {_reason(error)}", remedy, UNREACHABLE)
    return Check(", ".join(addresses))


def _tcp(host: str, port: int) -> Check:
    refused, reached = [], []
    for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as connection:
                connection.settimeout(STEP_MS / 1000)
                connection.connect(place)
            reached.append(str(place[0]))
        except OSError as error:
            refused.append(f"{place[0]}: {_reason(error)}")
    if not reached:
        blocked = (
            "No process listens on this port, or a firewall blocks it: check the port, the broker and the network."
        )
        return fail("; ".join(refused), blocked, UNREACHABLE)
    return Check(f"connected to {', '.join(reached)}" + (f" (not {'; '.join(refused)})" if refused else ""))


def _reason(error: OSError) -> str:
    return "no response in time" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()


def _tls(settings: ClientSettings, host: str, port: int) -> Check:
    try:
        with _connect_with_tls(tls.context(settings), host, port) as secured:
            return _certificate(secured.version() or "TLS", secured.getpeercert() or {})
    except ssl.SSLCertVerificationError as error:
        refusal = f"certificate refused: {error.verify_message}"
        return fail(refusal, _certificate_remedy(error.verify_code, host), REFUSED)
    except OSError as error:  # ssl.SSLError too
        if _speaks_plaintext(host, port):
            remedy = "Use the TLS listener's port, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT."
            return fail("the port speaks plaintext, not TLS", remedy, USAGE)
        reason = tls_failure(error) if isinstance(error, ssl.SSLError | ConnectionError) else _reason(error)
        remedy = "Check that this port is a TLS listener, and ssl.keystore.* if it requires a client certificate."
        return fail(f"the TLS handshake failed: {reason}", remedy, UNREACHABLE)


def _certificate(version: str, certificate: dict[str, Any]) -> Check:  # Any: the dictionary of the module ssl
    names = ", ".join(value for _, value in certificate.get("subjectAltName", ()))
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), tz=timezone.utc)
    days = (ends - datetime.now(timezone.utc)).days
    text = f"{version}; the certificate names {names or 'no host'} and expires {ends.date()}, in {days} days"
    return warn(text, "Renew the broker's certificate.") if days < _SOON_DAYS else Check(text)


def _certificate_remedy(code: int, host: str) -> str:
    if code in (_EXPIRED, _NOT_YET_VALID):
        return "Renew the broker's certificate; check this machine's clock."
    if code in _UNTRUSTED:
        return "Trust the authority that signed it: set ssl.truststore.location (or ssl.truststore.certificates) to its PEM."
    if code in _OTHER_HOST:
        return f"Connect by a name that the certificate contains, or issue a certificate that names {host}."
    return "Check the broker's certificate and ssl.truststore.*."


def _versions(settings: ClientSettings, host: str, port: int) -> Check:
    """Check SASL, if configured, and the API versions, in one connection."""
    try:
        with _opened(settings, host, port) as connection:
            protocol = connection.state_machine
            missing = [api.name for api in _NEEDED if not _common(protocol, api)]
            if missing:
                text = f"no common version of {', '.join(missing)}"
                return replace(fail(text, "Kafka 2.1 or newer is needed."), name="api versions")
            features = ", ".join(f"{name} {level}" for name, level in sorted(protocol.finalized_features.items()))
            text = f"{len(protocol.broker_versions)} APIs" + (f"; {features}" if features else "")
            if settings.uses_sasl:
                by = settings.sasl_mechanism or settings.auth or "the JAAS line"
                session_s = protocol.session_lifetime_ms // 1000
                session = f" for {session_s} s, then again" if session_s else ""
                return Check(f"authenticated by {by}{session}; {text}")
            refused = _refusal_without_sasl(connection)
            if refused is not None and (mechanisms := _mechanisms(settings, host, port)):
                wanted = "SASL_SSL" if settings.uses_tls else "SASL_PLAINTEXT"
                problem = fail(
                    f"the listener requires SASL ({', '.join(mechanisms)}), and sasl.mechanism is not set",
                    f"Set security.protocol to {wanted}, sasl.mechanism to one of these, and the credentials.",
                    REFUSED,
                )
                return replace(problem, name="sasl")
            if refused is not None:
                raise refused
            return Check(text)
    except AuthenticationError as error:
        return replace(failed(error), name="" if settings.uses_sasl else "tls")
    except SettingsError:
        raise
    except WireError as error:
        if not settings.uses_tls and _speaks_tls(host, port):
            remedy = "Set security.protocol to SSL, or to SASL_SSL with sasl.mechanism, and ssl.truststore.location."
            return fail("the port speaks TLS, but security.protocol is a plaintext protocol", remedy, USAGE)
        return failed(error, "Check that this is a Kafka listener, and that security.protocol matches it.")


def _common(protocol: Any, request: Any) -> bool:  # Any: a request's class
    declared = protocol.broker_versions.get(request.api_key)
    return declared is not None and declared[0] <= request.versions[1] and request.versions[0] <= declared[1]


def _refusal_without_sasl(connection: Connection) -> WireError | None:
    """Return the error of a Metadata request without SASL; None if the listener responds.

    A listener that requires SASL closes the connection. Asking for its mechanisms first would prove nothing: brokers other than
    Apache Kafka accept SaslHandshake on listeners without SASL, too.
    """
    try:
        deadline = Deadline.after_ms(STEP_MS)
        connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), deadline=deadline).result(deadline)
        return None
    except WireError as error:
        return error


def _mechanisms(settings: ClientSettings, host: str, port: int) -> list[str]:
    """Return the SASL mechanisms that a listener offers; empty if it has no SASL."""
    try:
        with _opened(settings, host, port) as connection:
            deadline = Deadline.after_ms(STEP_MS)
            response = connection.send(SaslHandshakeRequest(mechanism="NONE"), deadline=deadline).result(deadline)
    except WireError:
        return []
    mechanisms: list[str] = response.mechanisms
    return mechanisms


@contextlib.contextmanager
def _opened(settings: ClientSettings, host: str, port: int) -> Iterator[Connection]:
    with contextlib.closing(Connection(host, port, settings, Trace(""), f"{host}:{port}")) as connection:
        connection.open(Deadline.after_ms(STEP_MS))
        yield connection


@contextlib.contextmanager
def _connect_with_tls(context: ssl.SSLContext, host: str, port: int) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection((host, port), timeout=STEP_MS / 1000) as raw,
        context.wrap_socket(raw, server_hostname=host) as secured,
    ):
        yield secured


def _speaks_tls(host: str, port: int) -> bool:
    """Return whether the port responds to a TLS handshake. The certificate is not verified, and nothing else is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _connect_with_tls(context, host, port):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _speaks_plaintext(host: str, port: int) -> bool:
    plain = ClientSettings.from_options({"bootstrap.servers": f"{host}:{port}"})
    try:
        with _opened(plain, host, port):
            return True
    except WireError:
        return False


def advertised(settings: ClientSettings, nodes: Sequence[Broker]) -> Iterator[Check]:
    """Check in parallel whether each broker can be reached at the address that it advertises."""
    for node, steps in zip(nodes, check_addresses(settings, [(node.host, node.port) for node in nodes]), strict=True):
        check = steps[-1]
        if check.result == "fail":
            remedy = (
                f"The broker advertises {node.host}:{node.port}: correct advertised.listeners there, or make "
                f"that name and port reachable from here. {check.remedy}"
            )
            check = fail(f"{check.name}: {check.found}", remedy, check.exit_code)
        else:
            check = Check("reachable")
        yield replace(check, name="advertised", where=f"broker {node}", ms=sum(step.ms for step in steps))
