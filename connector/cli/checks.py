"""The checks of ``doctor`` on the way to a broker, and of who signs in.

Each is a :class:`Check`: what was found and, if it is a problem, what to do.

Nothing here changes anything in the cluster: no record, no offset, no topic, and never InitProducerId, which would
fence the producer that uses the transactional id.
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

#: For one step on one connection. All checks should take seconds, and a healthy broker responds in milliseconds.
STEP_MS: Final = 3_000
#: A certificate that expires sooner gets a warning.
_SOON_DAYS: Final = 30
_NEEDED: Final = (
    MetadataRequest, ListOffsetsRequest, FetchRequest, ProduceRequest, OffsetFetchRequest, OffsetCommitRequest,
)  # fmt: skip
#: Credentials that end sooner get a warning: most live for an hour.
_ENDS_SOON_S: Final = 60
#: OpenSSL's verification results, https://docs.openssl.org/master/man1/openssl-verification-options/.
_EXPIRED, _NOT_YET_VALID = 10, 9
_UNTRUSTED: Final = (18, 19, 20, 21)
_OTHER_HOST: Final = (62, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: its name and place, its result, what was found, what to do, how long it took, and with which exit code the
    process ends if it has failed."""

    name: str
    where: str
    result: Result
    found: str
    remedy: str = ""
    ms: int = 0
    exit_code: int = FAILED

    def document(self) -> dict[str, Any]:  # Any: a JSON value
        """The fields of ``--json``."""
        return {name: getattr(self, name) for name in ("name", "where", "result", "found", "remedy", "ms")}


def timed(run: Callable[[], Check]) -> Check:
    """A check with the time it took."""
    started = time.monotonic()
    check = run()
    return replace(check, ms=round((time.monotonic() - started) * 1000))


def failed_check(name: str, where: str, error: WireError, remedy: str = "") -> Check:
    """The check for an error; ``remedy`` where the error has none of its own."""
    return Check(
        name=name,
        where=where,
        result="fail",
        found=error.message,
        remedy=error.remedy or remedy,
        exit_code=exit_code(error),
    )


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
    if left_s < _ENDS_SOON_S:
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


def check_addresses(settings: ClientSettings, addresses: Sequence[tuple[str, int]]) -> list[list[Check]]:
    """For each address the checks of :func:`check_address`, all at the same time."""
    with ThreadPoolExecutor(max_workers=min(32, len(addresses))) as pool:
        return list(pool.map(lambda address: list(check_address(settings, *address)), addresses))


def check_address(settings: ClientSettings, host: str, port: int) -> Iterator[Check]:
    """Name, TCP, TLS, SASL and API versions of one address; ends at the first that fails."""
    address = f"{host}:{port}"
    checks: list[Callable[[], Check]] = [lambda: _name(host, port), lambda: _tcp(host, port)]
    if settings.uses_tls:
        checks.append(lambda: _tls(settings, host, port))
    checks.append(lambda: _versions(settings, host, port, address))
    for run in checks:
        check = timed(run)
        yield check
        if check.result == "fail":
            return


def _name(host: str, port: int) -> Check:
    try:
        found = sorted({str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
    except OSError as error:
        return Check(
            name="name", where=host, result="fail", found=f"cannot be resolved: {_reason(error)}",
            exit_code=UNREACHABLE, remedy="Check the spelling, and DNS or /etc/hosts on this machine.",
        )  # fmt: skip
    return Check(name="name", where=host, result="ok", found=", ".join(found))


def _tcp(host: str, port: int) -> Check:
    where, refused, reached = f"{host}:{port}", [], []
    for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as connection:
                connection.settimeout(STEP_MS / 1000)
                connection.connect(place)
            reached.append(str(place[0]))
        except OSError as error:
            refused.append(f"{place[0]}: {_reason(error)}")
    if not reached:
        return Check(
            name="tcp", where=where, result="fail", found="; ".join(refused), exit_code=UNREACHABLE,
            remedy="No process listens on this port, or a firewall blocks it: check the port, the broker and the network.",
        )  # fmt: skip
    note = f" (not {'; '.join(refused)})" if refused else ""
    return Check(name="tcp", where=where, result="ok", found=f"connected to {', '.join(reached)}{note}")


def _reason(error: OSError) -> str:
    return "no response in time" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()


def _tls(settings: ClientSettings, host: str, port: int) -> Check:
    where = f"{host}:{port}"
    try:
        context = tls.context(settings)
        with _tcp_connection(host, port) as raw, context.wrap_socket(raw, server_hostname=host) as secured:
            return _certificate(where, secured.version() or "TLS", secured.getpeercert() or {})
    except WireError as error:  # a store that cannot be read
        return failed_check("tls", where, error)
    except ssl.SSLCertVerificationError as error:
        return Check(
            name="tls", where=where, result="fail", found=f"certificate refused: {error.verify_message}",
            remedy=_certificate_remedy(error.verify_code, host), exit_code=REFUSED,
        )  # fmt: skip
    except OSError as error:  # ssl.SSLError too
        if _speaks_plaintext(host, port):
            return Check(
                name="tls", where=where, result="fail", found="the port speaks plaintext, not TLS", exit_code=USAGE,
                remedy="Use the TLS listener's port, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT.",
            )  # fmt: skip
        reason = tls_failure(error) if isinstance(error, ssl.SSLError | ConnectionError) else _reason(error)
        return Check(
            name="tls", where=where, result="fail", found=f"the TLS handshake failed: {reason}", exit_code=UNREACHABLE,
            remedy="Check that this port is a TLS listener, and ssl.keystore.* if it requires a client certificate.",
        )  # fmt: skip


def _certificate(where: str, version: str, certificate: dict[str, Any]) -> Check:  # Any: as ssl gives it
    names = ", ".join(value for _, value in certificate.get("subjectAltName", ()))
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), tz=timezone.utc)
    days = (ends - datetime.now(timezone.utc)).days
    found = f"{version}; the certificate names {names or 'no host'} and expires {ends.date()}, in {days} days"
    if days < _SOON_DAYS:
        return Check(name="tls", where=where, result="warn", found=found, remedy="Renew the broker's certificate.")
    return Check(name="tls", where=where, result="ok", found=found)


def _certificate_remedy(code: int, host: str) -> str:
    if code in (_EXPIRED, _NOT_YET_VALID):
        return "Renew the broker's certificate; check this machine's clock."
    if code in _UNTRUSTED:
        return "Trust the authority that signed it: set ssl.truststore.location (or ssl.truststore.certificates) to its PEM."
    if code in _OTHER_HOST:
        return f"Connect by a name that the certificate contains, or issue a certificate that names {host}."
    return "Check the broker's certificate and ssl.truststore.*."


def _versions(settings: ClientSettings, host: str, port: int, address: str) -> Check:
    """SASL, if any, and API versions, in one exchange."""
    name = "sasl" if settings.uses_sasl else "api versions"
    connection = Connection(host, port, settings, Trace(""), address)
    try:
        connection.open(Deadline.after_ms(STEP_MS))
        protocol = connection.state_machine
        missing = [each.name for each in _NEEDED if not _common(protocol, each)]
        if missing:
            return Check(
                name="api versions", where=address, result="fail", found=f"no version in common of {', '.join(missing)}",
                remedy="Kafka 2.1 or newer is needed.",
            )  # fmt: skip
        features = ", ".join(f"{name} {level}" for name, level in sorted(protocol.finalized_features.items()))
        found = f"{len(protocol.broker_versions)} APIs" + (f"; {features}" if features else "")
        if settings.uses_sasl:
            by = settings.sasl_mechanism or settings.auth or "the JAAS line"
            session_s = protocol.session_lifetime_ms // 1000
            session = f" for {session_s} s, then again" if session_s else ""
            found = f"authenticated by {by}{session}; {found}"
            return Check(name="sasl", where=address, result="ok", found=found)
        refused = _refusal_without_sasl(connection)
        if refused is not None and (mechanisms := _mechanisms(settings, host, port)):
            return Check(
                name="sasl", where=address, result="fail",
                found=f"the listener requires SASL ({', '.join(mechanisms)}), and sasl.mechanism is not set", exit_code=REFUSED,
                remedy=f"Set security.protocol to {'SASL_SSL' if settings.uses_tls else 'SASL_PLAINTEXT'}, sasl.mechanism to "
                "one of these, and the credentials.",
            )  # fmt: skip
        if refused is not None:
            raise refused
        return Check(name="api versions", where=address, result="ok", found=found)
    except AuthenticationError as error:
        return failed_check("sasl" if settings.uses_sasl else "tls", address, error)
    except SettingsError as error:
        return failed_check(name, address, error)
    except WireError as error:
        if not settings.uses_tls and _speaks_tls(host, port):
            return Check(
                name=name, where=address, result="fail", exit_code=USAGE,
                found="the port speaks TLS, and security.protocol is a plaintext protocol",
                remedy="Set security.protocol to SSL, or to SASL_SSL with sasl.mechanism, and ssl.truststore.location.",
            )  # fmt: skip
        return failed_check(
            name, address, error, "Check that this is a Kafka listener, and that security.protocol matches it."
        )
    finally:
        connection.close()


def _common(protocol: Any, request: Any) -> bool:  # Any: a request's class
    declared = protocol.broker_versions.get(request.api_key)
    return declared is not None and declared[0] <= request.versions[1] and request.versions[0] <= declared[1]


def _refusal_without_sasl(connection: Connection) -> WireError | None:
    """Why the listener refuses a Metadata request of a client without SASL, None where it responds.

    A listener that requires SASL closes the connection. To ask for its mechanisms first proves nothing: brokers that are not
    Apache's accept SaslHandshake on listeners without SASL, too.
    """
    try:
        deadline = Deadline.after_ms(STEP_MS)
        connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), deadline=deadline).result(deadline)
        return None
    except WireError as error:
        return error


def _mechanisms(settings: ClientSettings, host: str, port: int) -> list[str]:
    """The SASL mechanisms that a listener offers; none where it has no SASL."""
    connection = Connection(host, port, settings, Trace(""), f"{host}:{port}")
    try:
        deadline = Deadline.after_ms(STEP_MS)
        connection.open(deadline)
        response = connection.send(SaslHandshakeRequest(mechanism="NONE"), deadline=deadline).result(deadline)
    except WireError:
        return []
    finally:
        connection.close()
    mechanisms: list[str] = response.mechanisms
    return mechanisms


@contextlib.contextmanager
def _tcp_connection(host: str, port: int) -> Iterator[socket.socket]:
    connection = socket.create_connection((host, port), timeout=STEP_MS / 1000)
    try:
        yield connection
    finally:
        connection.close()


def _speaks_tls(host: str, port: int) -> bool:
    """Whether the port responds to a TLS handshake; the certificate does not matter, and nothing else is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _tcp_connection(host, port) as raw, context.wrap_socket(raw, server_hostname=host):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _speaks_plaintext(host: str, port: int) -> bool:
    plain = ClientSettings.from_options({"bootstrap.servers": f"{host}:{port}"})
    connection = Connection(host, port, plain, Trace(""), f"{host}:{port}")
    try:
        connection.open(Deadline.after_ms(STEP_MS))
        return True
    except WireError:
        return False
    finally:
        connection.close()


def advertised(settings: ClientSettings, nodes: Sequence[Broker]) -> list[Check]:
    """Whether each broker can be reached by the address that it advertises, all at the same time."""
    addresses = [(node.host, node.port) for node in nodes]
    checks = []
    for node, steps in zip(nodes, check_addresses(settings, addresses), strict=True):
        last = steps[-1]
        where = f"broker {node}"
        ms = sum(step.ms for step in steps)
        if last.result == "fail":
            remedy = (
                f"The broker advertises {node.host}:{node.port}: correct advertised.listeners there, or make "
                f"that name and port reachable from here. {last.remedy}"
            )
            found = f"{last.name}: {last.found}"
            checks.append(replace(last, name="advertised", where=where, found=found, remedy=remedy, ms=ms))
        else:
            checks.append(Check(name="advertised", where=where, result="ok", found="reachable", ms=ms))
    return checks
