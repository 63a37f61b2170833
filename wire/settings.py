"""Client settings under Kafka's own names: strings in, one frozen dataclass out, with errors that name the remedy.

Owns which names there are, their types and defaults (those of Kafka 4.3's Java clients, unless a comment says why not).
It opens no file and no socket. https://kafka.apache.org/documentation/#consumerconfigs and #producerconfigs
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pykafka_wire.wire.errors import SettingsError

#: Kafka's default port; a bootstrap server must still name one, as with Java's client.
Address = tuple[str, int]


def _text(value: str) -> str:
    return value


def _boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("use true or false")
    return value.lower() == "true"


def _whole(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("use a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"use a whole number from {least} to {most}")
        return number

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        for choice in choices:
            if value.lower() == choice.lower():
                return choice
        raise ValueError(f"use one of {', '.join(choices)}")

    return parse


def _names(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def parse_addresses(value: str) -> tuple[Address, ...]:
    """``host:port`` pairs separated by commas; IPv6 hosts in brackets. Raises ValueError with the remedy."""
    addresses = []
    for part in _names(value):
        host, colon, port = part.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        # A listener's name in front, as Kafka's own listeners setting has it, is a slip that Java forgives.
        host = host.rpartition("://")[2]
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is no host:port; write for example broker1:9092,broker2:9092")
        addresses.append((host, int(port)))
    if not addresses:
        raise ValueError("name at least one broker, as in broker1:9092")
    return tuple(dict.fromkeys(addresses))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: Kafka's name, the field that holds it, how it is read, and whether it is secret."""

    name: str
    parse: Callable[[str], Any]
    secret: bool = False

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")


_MS: Final = _whole(0)
_BYTES: Final = _whole(1)

#: Every setting that has an effect.
SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("bootstrap.servers", parse_addresses),
    Setting("client.id", _text),
    Setting("client.rack", _text),
    Setting("security.protocol", _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    Setting("request.timeout.ms", _whole(1)),
    Setting("default.api.timeout.ms", _whole(1)),
    Setting("socket.connection.setup.timeout.ms", _whole(1)),
    Setting("connections.max.idle.ms", _whole(-1)),
    Setting("metadata.max.age.ms", _MS),
    Setting("metadata.recovery.strategy", _one_of("rebootstrap", "none")),
    Setting("metadata.recovery.rebootstrap.trigger.ms", _MS),
    Setting("retry.backoff.ms", _MS),
    Setting("retry.backoff.max.ms", _MS),
    Setting("receive.buffer.bytes", _whole(-1)),
    Setting("send.buffer.bytes", _whole(-1)),
    Setting("fetch.max.bytes", _BYTES),
    Setting("fetch.max.wait.ms", _MS),
    Setting("max.partition.fetch.bytes", _BYTES),
    Setting("check.crcs", _boolean),
    Setting("isolation.level", _one_of("read_uncommitted", "read_committed")),
    Setting("acks", _one_of("all", "-1", "1", "0")),
    Setting("compression.type", _one_of("none", "gzip", "snappy", "lz4", "zstd")),
    Setting("compression.level", _whole(-131072, 22)),
    Setting("max.request.size", _BYTES),
    Setting("buffer.memory", _BYTES),
    Setting("delivery.timeout.ms", _whole(1)),
    Setting("retries", _MS),
    Setting("max.in.flight.requests.per.connection", _whole(1)),
    Setting("enable.idempotence", _boolean),
    Setting("transactional.id", _text),
    Setting("transaction.timeout.ms", _whole(1)),
    Setting("group.id", _text),
    Setting("group.instance.id", _text),
    Setting("session.timeout.ms", _whole(1)),
    Setting("heartbeat.interval.ms", _whole(1)),
    Setting("max.poll.interval.ms", _whole(1)),
    Setting("sasl.mechanism", _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")),
    Setting("sasl.jaas.config", _text, secret=True),
    Setting("sasl.username", _text),
    Setting("sasl.password", _text, secret=True),
    Setting("sasl.kerberos.service.name", _text),
    Setting("sasl.oauthbearer.token.endpoint.url", _text),
    Setting("sasl.oauthbearer.client.id", _text),
    Setting("sasl.oauthbearer.client.secret", _text, secret=True),
    Setting("sasl.oauthbearer.scope", _text),
    Setting("sasl.oauthbearer.token.provider", _text),
    Setting("sasl.oauthbearer.extensions", _text),
    Setting("ssl.truststore.type", _one_of("PEM", "PKCS12", "JKS")),
    Setting("ssl.truststore.location", _text),
    Setting("ssl.truststore.password", _text, secret=True),
    Setting("ssl.truststore.certificates", _text),
    Setting("ssl.keystore.type", _one_of("PEM", "PKCS12", "JKS")),
    Setting("ssl.keystore.location", _text),
    Setting("ssl.keystore.password", _text, secret=True),
    Setting("ssl.keystore.certificate.chain", _text),
    Setting("ssl.keystore.key", _text, secret=True),
    Setting("ssl.key.password", _text, secret=True),
    Setting("ssl.endpoint.identification.algorithm", _text),
    Setting("ssl.enabled.protocols", _names),
    Setting("ssl.cipher.suites", _names),
    Setting("trace", _text),
)

#: Settings of Java's clients that are accepted and change nothing here, with the reason.
IGNORED: Final[dict[str, str]] = {
    "linger.ms": "a task's rows come in large Arrow batches: there is nothing to wait for",
    "batch.size": "record batches are cut from whole Arrow batches, up to the brokers' default limit of 1 MiB",
    "fetch.min.bytes": "a read knows its end and never waits for more",
    "max.poll.records": "responses are decoded whole",
    "partitioner.class": "keys are hashed as Java's default partitioner does",
    "max.block.ms": "see delivery.timeout.ms",
    "reconnect.backoff.ms": "see retry.backoff.ms",
    "reconnect.backoff.max.ms": "see retry.backoff.max.ms",
    "socket.connection.setup.timeout.max.ms": "each attempt has socket.connection.setup.timeout.ms",
    "metadata.max.idle.ms": "only topics in use are asked for",
    "allow.auto.create.topics": "topics are never created by asking for them",
    "client.dns.lookup": "every address of a name is tried",
    "exclude.internal.topics": "a pattern never matches internal topics",
    "partition.assignment.strategy": "Spark assigns partitions to tasks",
    "security.providers": "it names Java classes",
    "ssl.protocol": "TLS 1.2 or newer is negotiated; see ssl.enabled.protocols",
    "ssl.provider": "it names a Java security provider",
    "metric.reporters": "it names Java classes",
    "metrics.num.samples": "no Java metrics are kept",
    "metrics.recording.level": "no Java metrics are kept",
    "metrics.sample.window.ms": "no Java metrics are kept",
    "enable.metrics.push": "no metrics are pushed",
    "auto.include.jmx.reporter": "there is no JMX",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of one client, by Kafka's names with underscores. Secrets are left out of its repr; picklable, hashable.

    ``None`` in a numeric field means that this client chooses. ``unknown`` holds the names that were given and that no
    client here knows, ``ignored`` those of :data:`IGNORED`.
    """

    bootstrap_servers: tuple[Address, ...]
    client_id: str = "pykafka-wire"
    client_rack: str = ""
    security_protocol: str = "PLAINTEXT"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    #: Java's default is 10 s; a dead first address of a bootstrap list would then hold a start for as long.
    socket_connection_setup_timeout_ms: int = 4_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    receive_buffer_bytes: int | None = None
    send_buffer_bytes: int | None = None
    fetch_max_bytes: int | None = None
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int | None = None
    check_crcs: bool = True
    isolation_level: str = "read_uncommitted"
    acks: str = "all"
    compression_type: str = "none"
    compression_level: int | None = None
    max_request_size: int = 1_048_576
    buffer_memory: int = 33_554_432
    delivery_timeout_ms: int = 120_000
    retries: int = 2**31 - 1
    max_in_flight_requests_per_connection: int = 5
    enable_idempotence: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    group_id: str | None = None
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    sasl_mechanism: str | None = None
    sasl_jaas_config: str | None = field(default=None, repr=False)
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_token_provider: str | None = None
    sasl_oauthbearer_extensions: str | None = None
    ssl_truststore_type: str = "PEM"
    ssl_truststore_location: str | None = None
    ssl_truststore_password: str | None = field(default=None, repr=False)
    ssl_truststore_certificates: str | None = field(default=None, repr=False)
    ssl_keystore_type: str = "PEM"
    ssl_keystore_location: str | None = None
    ssl_keystore_password: str | None = field(default=None, repr=False)
    ssl_keystore_certificate_chain: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = ()
    trace: str = ""
    unknown: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ClientSettings:
        """Settings from strings under Kafka's names, without any prefix, in whatever case.

        Raises:
            SettingsError: a value does not fit its setting, or two settings contradict each other.
        """
        known = {setting.name: setting for setting in SETTINGS}
        values: dict[str, Any] = {}
        unknown: list[str] = []
        ignored: list[str] = []
        for name, raw in sorted(options.items()):
            name = name.lower()
            setting = known.get(name)
            if setting is None:
                (ignored if name in IGNORED else unknown).append(name)
                continue
            text = raw.strip()
            if not text and name != "ssl.endpoint.identification.algorithm":
                continue
            try:
                values[setting.field] = setting.parse(text)
            except ValueError as error:
                shown = "has a value that does not fit" if setting.secret else f"is {text!r}"
                raise SettingsError(f"{name} {shown}: {error}.", setting=name) from None
        if "bootstrap_servers" not in values:
            raise SettingsError("bootstrap.servers is missing: name at least one broker.", setting="bootstrap.servers")
        settings = cls(**values, unknown=tuple(unknown), ignored=tuple(ignored))
        settings._check()
        return settings

    def _check(self) -> None:
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism is None:
            raise SettingsError(
                f"security.protocol is {self.security_protocol} and sasl.mechanism is missing: set it, for example to "
                "SCRAM-SHA-512.",
                setting="sasl.mechanism",
            )
        if self.enable_idempotence and self.acks in ("all", "-1") and self.max_in_flight_requests_per_connection > 5:
            raise SettingsError(
                "max.in.flight.requests.per.connection is above 5, and brokers keep order and find duplicates for 5: "
                "lower it, or set enable.idempotence to false.",
                setting="max.in.flight.requests.per.connection",
            )

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether a connection authenticates through SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def cache_key(self) -> str:
        """A digest of every setting, secrets included: two clients with the same one may share connections."""
        text = "\0".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return hashlib.sha256(text.encode()).hexdigest()


def unknown_settings(settings: ClientSettings) -> str:
    """The sentence that warns of names nobody knows, with the nearest known one; empty where there are none."""
    known = [setting.name for setting in SETTINGS] + list(IGNORED)
    parts = []
    for name in settings.unknown:
        near = difflib.get_close_matches(name, known, n=1)
        parts.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return ", ".join(parts)
