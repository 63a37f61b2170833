"""Client settings under Kafka's own names: strings in, one frozen dataclass out, with errors that name the remedy.

Owns the supported names, their types and defaults. The defaults are those of Kafka 4.3's Java clients, unless a comment gives
a reason. :mod:`~pykafka_wire.wire.settings.unsupported` lists the others. Each field of :class:`ClientSettings` declares one setting:
its name (underscores for dots), type, default and meaning. A parser raises ValueError with the remedy as its text, in which names of
settings stand in braces. This module opens no file and no socket: a secret given by reference stays a reference (:mod:`~pykafka_wire.wire.security.secret_references`).
https://kafka.apache.org/documentation/#consumerconfigs and #producerconfigs
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, TypeVar

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.masking import quoted
from pykafka_wire.wire.settings import cloud_credentials
from pykafka_wire.wire.settings.unsupported import IGNORED, REJECTED

#: Host and port. Kafka has a default port, and a bootstrap server must still name one, as with Java's client.
Address = tuple[str, int]
NumberT = TypeVar("NumberT", int, float)


def _boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("Use true or false.")
    return value.lower() == "true"


def _whole(minimum: int, maximum: int = 2**31 - 1) -> Callable[[str], int]:
    return _number(int, "a whole number", minimum, maximum)


def _number(kind: Callable[[str], NumberT], name: str, minimum: NumberT, maximum: NumberT) -> Callable[[str], NumberT]:
    def parse(value: str) -> NumberT:
        try:
            number = kind(value)
        except ValueError:
            raise ValueError(f"Use {name}.") from None
        if not minimum <= number <= maximum:
            raise ValueError(f"Use {name} from {minimum} to {maximum}.")
        return number

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        for choice in choices:
            if value.lower() == choice.lower():
                return choice
        raise ValueError(f"Use one of {', '.join(choices)}.")

    return parse


def _parse_list(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


#: The assignment strategies, by the last part of their Java class names in small letters and by what goes over the wire.
_STRATEGIES: Final = {
    "rangeassignor": "range",
    "roundrobinassignor": "roundrobin",
    "cooperativestickyassignor": "cooperative-sticky",
}


def _strategies(value: str) -> tuple[str, ...]:
    # Other strategies are left out: the members of a group agree on one that all of them name, and where no group is joined none is
    # used.
    names = (name.rpartition(".")[2].lower() for name in _parse_list(value))
    known = (_STRATEGIES.get(name, name) for name in names)
    return tuple(dict.fromkeys(name for name in known if name in _STRATEGIES.values()))


def _tls_versions(value: str) -> tuple[str, ...]:
    # The old ones are in many a file, as Kafka's default once was, and stay off: 1.2 is the oldest that is spoken.
    old, spoken = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"), ("TLSv1.2", "TLSv1.3")
    names = _parse_list(value)
    wanted = tuple(name for name in spoken if name in names)
    if not wanted or not set(names) <= {*old, *spoken}:
        raise ValueError("Use TLSv1.2, TLSv1.3 or both.")
    return wanted


def _identification(value: str) -> str:
    if value.lower() not in ("https", ""):
        raise ValueError("Use https; an empty value turns the check of host names off.")
    return value.lower()


def _addresses(value: str) -> tuple[Address, ...]:
    """Return ``host:port`` pairs separated by commas; IPv6 hosts in brackets. Raises ValueError with the remedy."""
    if "@" in value:
        raise ValueError(
            "An address has no user and no password: give these by {sasl.mechanism} and {sasl.jaas.config}."
        )
    addresses = []
    for number, part in enumerate(_parse_list(value), 1):
        host, colon, port = part.rpartition(":")
        # Java's client also accepts a listener's name in front, as in Kafka's setting listeners.
        host = host.rpartition("://")[2].removeprefix("[").removesuffix("]")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"Address {number} is no host:port; write for example broker1:9092,broker2:9092.")
        addresses.append((host, int(port)))
    if not addresses:
        raise ValueError("Name at least one broker, as in broker1:9092.")
    return tuple(dict.fromkeys(addresses))


def _row(
    parse: Callable[[str], Any], scope: str, meaning: str, *, secret: bool = False, experimental: bool = False
) -> dict[str, Any]:
    """Return what a field of ClientSettings declares beside type and default, as :class:`Setting` has it."""
    return {"scope": scope, "meaning": meaning, "secret": secret, "is_experimental": experimental, "_parse": parse}


_MS: Final = _whole(0)
_BYTES: Final = _whole(1)
_SECURITY: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", cloud_credentials.MSK_IAM)
#: What of the credentials can be read from the network where there is no TLS.
_READABLE: Final = {
    "PLAIN": "the password",
    "OAUTHBEARER": "the token",
    cloud_credentials.MSK_IAM: "the signed request",
}
#: The fields that belong to the other group protocol, by group protocol.
_OF_THE_OTHER_PROTOCOL: Final = {
    "classic": ("group_remote_assignor",),
    "consumer": ("partition_assignment_strategy", "heartbeat_interval_ms", "session_timeout_ms"),
}
_STORES: Final = _one_of("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientSettings:
    """Settings of one client, by Kafka's names with underscores; picklable and hashable. Its repr masks secrets.

    ``None`` in a numeric field means that this client chooses. ``unknown`` holds the given names that do not exist,
    ``ignored`` those of :data:`~pykafka_wire.wire.settings.unsupported.IGNORED`.
    """

    # fmt: off
    bootstrap_servers: tuple[Address, ...] = field(metadata=_row(_addresses, "all", "`host:port,host:port`; tried in turn until one responds"))
    client_id: str = field(default="pykafka-wire", metadata=_row(str, "all", "the name of this client in brokers' logs and quotas"))
    client_rack: str = field(default="", metadata=_row(str, "reads", "read from a replica in this rack where there is one: its name; `env:NAME` or `file:/path`, looked up on each executor; or `aws`, `azure` or `google`, by the metadata service of each executor's instance (see [Racks](operations.md#racks))"))
    security_protocol: str = field(default="PLAINTEXT", metadata=_row(_one_of(*_SECURITY), "all", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`"))
    request_timeout_ms: int = field(default=30_000, metadata=_row(_whole(1), "all", "time limit of one request and its response, in ms"))
    default_api_timeout_ms: int = field(default=60_000, metadata=_row(_whole(1), "all", "time limit of a call with all its retries, in ms"))
    # Java's default is 10 s; a dead first address in bootstrap.servers would then delay every start by 10 s.
    socket_connection_setup_timeout_ms: int = field(default=4_000, metadata=_row(_whole(1), "all", "time limit of connecting and the handshakes, in ms"))
    connections_max_idle_ms: int = field(default=540_000, metadata=_row(_whole(-1), "all", "a connection that was idle for longer is not used again, in ms; -1: no limit"))
    metadata_max_age_ms: int = field(default=300_000, metadata=_row(_MS, "all", "metadata is refreshed after this time, in ms"))
    metadata_recovery_strategy: str = field(default="rebootstrap", metadata=_row(_one_of("rebootstrap", "none"), "all", "whether to start over from `{bootstrap.servers}` when no known broker responds"))
    metadata_recovery_rebootstrap_trigger_ms: int = field(default=300_000, metadata=_row(_MS, "all", "how long all known brokers must have failed to respond before that, in ms"))
    metadata_cluster_check_enable: bool = field(default=True, metadata=_row(_boolean, "all", "have a broker check, when it is connected to, that it is the one that is meant, of the same cluster; if it is not, start over from `{bootstrap.servers}` (KIP-1242; Kafka 4.4 and newer). No check where `{metadata.recovery.strategy}` is `none`", experimental=True))
    retry_backoff_ms: int = field(default=100, metadata=_row(_MS, "all", "the first pause before a retry, in ms; doubles with each retry"))
    retry_backoff_max_ms: int = field(default=1_000, metadata=_row(_MS, "all", "the longest pause before a retry, in ms"))
    reconnect_backoff_ms: int = field(default=50, metadata=_row(_MS, "all", "how long to wait after a failed attempt to connect to a broker before the next one, in ms; doubles with each failure"))
    reconnect_backoff_max_ms: int = field(default=1_000, metadata=_row(_MS, "all", "the longest such wait, in ms"))
    receive_buffer_bytes: int | None = field(default=None, metadata=_row(_whole(-1), "all", "the socket's receive buffer; -1 or none: the system's choice"))
    send_buffer_bytes: int | None = field(default=None, metadata=_row(_whole(-1), "all", "the socket's send buffer; -1 or none: the system's choice"))
    fetch_max_bytes: int | None = field(default=None, metadata=_row(_BYTES, "reads", "maximum size of one Fetch response, in bytes; none: the read chooses"))
    fetch_max_wait_ms: int = field(default=500, metadata=_row(_MS, "reads", "how long a broker may wait for records, in ms"))
    max_partition_fetch_bytes: int | None = field(default=None, metadata=_row(_BYTES, "reads", "maximum size of one topic-partition in it, in bytes; none: the read chooses"))
    check_crcs: bool = field(default=True, metadata=_row(_boolean, "reads", "check the CRC of every record batch"))
    isolation_level: str = field(default="read_uncommitted", metadata=_row(_one_of("read_uncommitted", "read_committed"), "reads", "`read_committed` skips aborted and open transactions"))
    acks: str = field(default="all", metadata=_row(_one_of("all", "-1", "1", "0"), "writes", "which replicas must have a batch before the broker acknowledges it"))
    compression_type: str = field(default="none", metadata=_row(_one_of("none", "gzip", "snappy", "lz4", "zstd"), "writes", "`none`, `gzip`, `snappy`, `lz4` or `zstd`"))
    compression_gzip_level: int | None = field(default=None, metadata=_row(_whole(-1, 9), "writes", "level of gzip; none: this client's choice"))
    compression_lz4_level: int | None = field(default=None, metadata=_row(_whole(1, 17), "writes", "level of lz4; none: this client's choice"))
    compression_zstd_level: int | None = field(default=None, metadata=_row(_whole(-131_072, 22), "writes", "level of zstd; none: this client's choice"))
    max_request_size: int = field(default=1_048_576, metadata=_row(_BYTES, "writes", "maximum size of one record batch, and of one topic-partition's part of a request, in bytes"))
    # Java's defaults, 16384 and 5, suit records that arrive one by one; here they arrive in Arrow batches of thousands.
    batch_size: int | None = field(default=None, metadata=_row(_MS, "writes", "maximum size of one record batch before compression, in bytes; also how many bytes of rows without a key go to one partition before the next; none: this client's choice"))
    linger_ms: int | None = field(default=None, metadata=_row(_MS, "writes", "records that have waited for this time are sent when the next Arrow batch arrives, in ms; none: they are sent when a request is full, or the rows end"))
    partitioner_class: str | None = field(default=None, metadata=_row(str, "writes", "`RoundRobinPartitioner`, or `module:function` (see [Write to a topic](write.md)); none: the key's hash, as Java's clients do"))
    partitioner_ignore_keys: bool = field(default=False, metadata=_row(_boolean, "writes", "choose partitions as if no row had a key"))
    buffer_memory: int = field(default=33_554_432, metadata=_row(_BYTES, "writes", "maximum size of the batches that wait for acknowledgement, in bytes"))
    delivery_timeout_ms: int = field(default=120_000, metadata=_row(_whole(1), "writes", "time limit of a batch with all its retries, in ms"))
    retries: int = field(default=2**31 - 1, metadata=_row(_MS, "writes", "maximum number of retries of a batch"))
    max_in_flight_requests_per_connection: int = field(default=5, metadata=_row(_whole(1), "writes", "maximum number of Produce requests without a response to one broker"))
    enable_idempotence: bool = field(default=True, metadata=_row(_boolean, "writes", "no duplicates and no reordering when a batch is sent again"))
    transactional_id: str | None = field(default=None, metadata=_row(str, "writes", "the producer's identity over restarts"))
    transaction_timeout_ms: int = field(default=60_000, metadata=_row(_whole(1), "writes", "the coordinator aborts a transaction that is open for longer, in ms"))
    group_id: str | None = field(default=None, metadata=_row(str, "reads", "the consumer group"))
    group_protocol: str = field(default="classic", metadata=_row(_one_of("classic", "consumer"), "groups", "`classic`, or `consumer`: the coordinator assigns partitions, and members hand them over one by one (KIP-848; Kafka 4.0 and newer)"))
    group_remote_assignor: str | None = field(default=None, metadata=_row(str, "groups", "the coordinator's assignor in the protocol `consumer`, such as `uniform` or `range`; none: its default", experimental=True))
    group_instance_id: str | None = field(default=None, metadata=_row(str, "groups", "static membership: the member's identity over restarts"))
    session_timeout_ms: int = field(default=45_000, metadata=_row(_whole(1), "groups", "the coordinator removes a member that is silent for longer, in ms"))
    heartbeat_interval_ms: int = field(default=3_000, metadata=_row(_whole(1), "groups", "time between heartbeats, in ms"))
    max_poll_interval_ms: int = field(default=300_000, metadata=_row(_whole(1), "groups", "maximum time between polls; after it the member leaves the group, in ms"))
    partition_assignment_strategy: tuple[str, ...] = field(default=("range", "cooperative-sticky"), metadata=_row(_strategies, "groups", "`range`, `roundrobin`, `cooperative-sticky`, or Java's class names for them; others are skipped. The group takes one that all members name; members that name `cooperative-sticky` alone keep their partitions in a rebalance (KIP-429)"))
    auto_offset_reset: str = field(default="latest", metadata=_row(_one_of("earliest", "latest", "none"), "groups", "where to start if the group has committed no offset"))
    enable_auto_commit: bool = field(default=True, metadata=_row(_boolean, "groups", "commit positions while polling"))
    auto_commit_interval_ms: int = field(default=5_000, metadata=_row(_MS, "groups", "time between such commits, in ms"))
    # Not a setting of Kafka's: short for security.protocol, sasl.mechanism and the source of the credentials.
    auth: str | None = field(default=None, metadata=_row(cloud_credentials.parse_auth, "SASL", "`aws-msk-iam`, `azure`, `google`, or `databricks:NAME` for a service credential: the cloud's own credentials, found where its libraries look for them; sets `{security.protocol}` and `{sasl.mechanism}` (see [Clouds](clouds.md))", experimental=True))
    sasl_mechanism: str | None = field(default=None, metadata=_row(_one_of(*_MECHANISMS), "SASL", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `GSSAPI` or `AWS_MSK_IAM`"))
    sasl_jaas_config: str | None = field(default=None, metadata=_row(str, "SASL", "a login module with its options, in the syntax of Java's clients", secret=True))
    sasl_username: str | None = field(default=None, metadata=_row(str, "SASL", "the user, for PLAIN and SCRAM; overrides the JAAS line's"))
    sasl_password: str | None = field(default=None, metadata=_row(str, "SASL", "its password", secret=True))
    sasl_kerberos_service_name: str | None = field(default=None, metadata=_row(str, "SASL", "the first part of the brokers' principal; `kafka` by default"))
    sasl_client_callback_handler_class: str | None = field(default=None, metadata=_row(cloud_credentials.parse_handler, "SASL", "Java's `IAMClientCallbackHandler` (Amazon MSK), with any package; other classes are rejected", experimental=True))
    sasl_login_callback_handler_class: str | None = field(default=None, metadata=_row(cloud_credentials.parse_handler, "SASL", "Java's `OAuthBearerLoginCallbackHandler`, `IAMOAuthBearerLoginCallbackHandler` (Amazon MSK), `GcpLoginCallbackHandler` (Google) or `KafkaOAuth2AuthenticateCallbackHandler` (Azure), with any package; other classes are rejected", experimental=True))
    sasl_oauthbearer_token_provider: str | None = field(default=None, metadata=_row(str, "SASL", "`module:function` that returns a token, or a token and its expiry time"))
    sasl_oauthbearer_config: str | None = field(default=None, metadata=_row(str, "SASL", "the argument of the token provider, a text", secret=True))
    sasl_oauthbearer_token_endpoint_url: str | None = field(default=None, metadata=_row(str, "SASL", "the endpoint that issues tokens for client credentials (`https:`), or a file that holds a token (`file:`)", secret=True))
    sasl_oauthbearer_client_credentials_client_id: str | None = field(default=None, metadata=_row(str, "SASL", "the client's id at that endpoint; overrides the JAAS line's `clientId`"))
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, metadata=_row(str, "SASL", "its secret", secret=True))
    sasl_oauthbearer_scope: str | None = field(default=None, metadata=_row(str, "SASL", "the scope to request at that endpoint"))
    sasl_oauthbearer_extensions: str | None = field(default=None, metadata=_row(str, "SASL", "SASL extensions, `name=value,name=value` (KIP-342)"))
    sasl_oauthbearer_header_urlencode: bool = field(default=False, metadata=_row(_boolean, "SASL", "percent-encode id and secret in the Authorization header, as RFC 6749 specifies"))
    sasl_oauthbearer_allow_http_loopback: bool = field(default=False, metadata=_row(_boolean, "SASL", "for tests: allow an endpoint without TLS on this machine"))
    sasl_login_read_timeout_ms: int = field(default=10_000, metadata=_row(_whole(1), "SASL", "time limit of a request to the token endpoint, in ms"))
    sasl_login_refresh_window_factor: float = field(default=0.8, metadata=_row(_number(float, "a number", 0.5, 1.0), "SASL", "the share of a token's lifetime after which it is refreshed"))
    ssl_truststore_type: str | None = field(default=None, metadata=_row(_STORES, "TLS", "`PEM`, `PKCS12` or `JKS`; the format is detected from the content; a store in Java's own format is rejected, with the command that converts it"))
    ssl_truststore_location: str | None = field(default=None, metadata=_row(str, "TLS", "file with the trusted certificates; none: the system's"))
    ssl_truststore_password: str | None = field(default=None, metadata=_row(str, "TLS", "its password", secret=True))
    ssl_truststore_certificates: str | None = field(default=None, metadata=_row(str, "TLS", "the trusted certificates, as PEM", secret=True))
    ssl_keystore_type: str | None = field(default=None, metadata=_row(_STORES, "TLS", "`PEM`, `PKCS12` or `JKS`; the format is detected from the content; a store in Java's own format is rejected, with the command that converts it"))
    ssl_keystore_location: str | None = field(default=None, metadata=_row(str, "TLS", "file with the client's key and certificates"))
    ssl_keystore_password: str | None = field(default=None, metadata=_row(str, "TLS", "its password", secret=True))
    ssl_keystore_certificate_chain: str | None = field(default=None, metadata=_row(str, "TLS", "the client's certificates, as PEM", secret=True))
    ssl_keystore_key: str | None = field(default=None, metadata=_row(str, "TLS", "the client's key, as PEM", secret=True))
    ssl_key_password: str | None = field(default=None, metadata=_row(str, "TLS", "the key's password", secret=True))
    ssl_endpoint_identification_algorithm: str = field(default="https", metadata=_row(_identification, "TLS", "`https` checks that the certificate is for the host; empty disables the check and logs a warning"))
    ssl_enabled_protocols: tuple[str, ...] = field(default=("TLSv1.2", "TLSv1.3"), metadata=_row(_tls_versions, "TLS", "`TLSv1.2`, `TLSv1.3` or both"))
    ssl_cipher_suites: tuple[str, ...] = field(default=(), metadata=_row(_parse_list, "TLS", "cipher suites by Java's or OpenSSL's names; none: OpenSSL's choice"))
    # Not a setting of Kafka's: TLS proves a broker's host name; this setting limits which host names are accepted.
    allowed_hosts: tuple[str, ...] = field(default=(), metadata=_row(_parse_list, "all", "globs such as `*.kafka.example.com`; the client connects to no broker that is advertised under another host; none: any host"))
    trace: str = field(default="", metadata=_row(str, "all", "`stderr`, `stdout` or a file: one line for each request and response", experimental=True))
    # fmt: on
    unknown: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ClientSettings:
        """Return settings from strings under Kafka's names, without any prefix, in whatever case.

        Raises:
            SettingsError: a value is invalid for its setting, or two settings contradict each other.
        """
        values: dict[str, Any] = {}
        unknown: list[str] = []
        ignored: list[str] = []
        for written, raw in sorted(options.items()):
            name = written.lower()
            setting = _BY_NAME.get(name)
            if setting is not None:
                text = raw if setting.secret else raw.strip()  # a blank may be part of a password
                if text.strip() or name == "ssl.endpoint.identification.algorithm":
                    values[setting.field] = setting.parse(text)
            elif name in REJECTED:
                _reject(name, raw.strip())
            else:
                (ignored if name in IGNORED else unknown).append(name)
        given = set(values)
        if "bootstrap_servers" not in values:
            raise SettingsError(
                "{setting} is missing.", setting="bootstrap.servers", remedy="Name at least one broker."
            )
        cloud_credentials.complete(values)
        settings = cls(**values, unknown=tuple(unknown), ignored=tuple(ignored))
        settings._check(given)
        return settings

    def _check(self, given: set[str]) -> None:
        # As Java's consumer: what belongs to the other group protocol would have no effect.
        for field_name in _OF_THE_OTHER_PROTOCOL[self.group_protocol]:
            if field_name in given:
                raise SettingsError(
                    "{setting} has no effect with {group.protocol}={protocol}.",
                    setting=field_name.replace("_", "."),
                    remedy="Remove it; the brokers' group.consumer.* settings are in its place."
                    if self.group_protocol == "consumer"
                    else "Remove it, or set {group.protocol}=consumer.",
                    protocol=self.group_protocol,
                )
        # As Java's producer: idempotence that the user set is never disabled silently.
        for name, value, wanted in (("acks", self.acks, "all"), ("retries", self.retries, "above 0")):
            if "enable_idempotence" in given and self.enable_idempotence and value in ("0", "1", 0):
                raise SettingsError(
                    "{setting} is {value}, and {enable.idempotence}=true needs {setting} {wanted}.",
                    setting=name,
                    remedy="Change one of the two.",
                    value=value,
                    wanted=wanted,
                )
        if self.uses_sasl and self.sasl_mechanism is None and self.sasl_jaas_config is None and self.auth is None:
            raise SettingsError(
                "{security.protocol} is {protocol} and {setting} is missing.",
                setting="sasl.mechanism",
                remedy="Set it, for example to SCRAM-SHA-512.",
                protocol=self.security_protocol,
            )
        if self.enable_idempotence and self.acks in ("all", "-1") and self.max_in_flight_requests_per_connection > 5:
            raise SettingsError(
                "{setting} is above 5, and brokers keep the order and detect duplicates of at most 5 requests in flight.",
                setting="max.in.flight.requests.per.connection",
                remedy="Lower it, or set {enable.idempotence} to false.",
            )

    @property
    def uses_tls(self) -> bool:
        """Return whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Return whether a connection authenticates through SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def cloud(self) -> cloud_credentials.Cloud | None:
        """Return the cloud whose credentials authenticate this client; None for credentials of another kind."""
        handlers = (self.sasl_client_callback_handler_class, self.sasl_login_callback_handler_class)
        return cloud_credentials.cloud_of(self.auth, self.sasl_mechanism, handlers)

    @property
    def compression_level(self) -> int | None:
        """Return the level for ``compression.type``, None for the codec's own (KIP-390)."""
        levels = {"gzip": "compression_gzip_level", "lz4": "compression_lz4_level", "zstd": "compression_zstd_level"}
        name = levels.get(self.compression_type)
        level: int | None = getattr(self, name) if name else None
        return level

    def warnings(self, prefix: str = "") -> tuple[str, ...]:
        """Return warnings about these settings, one sentence each, with a prefix before their names; the client logs them once."""
        warnings = []
        if self.sasl_mechanism in _READABLE and self.security_protocol == "SASL_PLAINTEXT":
            warnings.append(
                f"{prefix}sasl.mechanism={self.sasl_mechanism} without TLS: anyone who can read the network traffic can read "
                f"{_READABLE[self.sasl_mechanism]}"
            )
        if self.uses_tls and not self.ssl_endpoint_identification_algorithm:
            warnings.append(
                f"{prefix}ssl.endpoint.identification.algorithm is empty: the host name in a broker's certificate is not checked"
            )
        if self.sasl_oauthbearer_allow_http_loopback:
            warnings.append(
                f"{prefix}sasl.oauthbearer.allow.http.loopback is for tests: client secrets may be sent without TLS"
            )
        if not self.uses_sasl and (self.sasl_mechanism or self.sasl_jaas_config or self.sasl_password):
            warnings.append(
                f"{prefix}sasl.* settings have no effect with {prefix}security.protocol={self.security_protocol}"
            )
        if not self.uses_tls and (self.ssl_truststore_location or self.ssl_truststore_certificates):
            warnings.append(
                f"{prefix}ssl.* settings have no effect with {prefix}security.protocol={self.security_protocol}"
            )
        return tuple(warnings)

    def __repr__(self) -> str:
        shown = []
        for setting in fields(self):
            value = getattr(self, setting.name)
            if value != setting.default:
                shown.append(f"{setting.name}={'***' if setting.metadata.get('secret') else repr(value)}")
        return f"ClientSettings({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: Kafka's name, the field that holds it, its default as a user would write it, and its meaning, a sentence for
    :func:`~pykafka_wire.wire.errors.fill_in`.

    ``scope`` is what the setting applies to: all, reads, writes, groups, SASL or TLS. One that ``is_experimental`` may change or go
    in a minor version.
    """

    name: str
    field: str
    default: str
    scope: str
    meaning: str
    secret: bool
    is_experimental: bool
    _parse: Callable[[str], Any]

    def parse(self, text: str) -> Any:
        """Return the parsed value. The SettingsError that it may raise names the setting, the value unless it is secret, and
        the remedy.
        """
        try:
            return self._parse(text)
        except ValueError as error:
            message = "{setting} has an invalid value." if self.secret else "{setting} is {value}."
            shown = "" if self.secret else quoted(text)
            raise SettingsError(message, setting=self.name, remedy=str(error), value=shown) from None


def default_text(value: object) -> str:
    """Return a field's default as a user would write it."""
    if value is MISSING:
        return "required"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return "none" if value in (None, "") else str(value)


#: Every setting that has an effect, in the order of the fields.
SETTINGS: Final[tuple[Setting, ...]] = tuple(
    Setting(field.name.replace("_", "."), field.name, default_text(field.default), **field.metadata)
    for field in fields(ClientSettings)
    if field.metadata
)
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


def unknown_settings(names: Iterable[str], prefix: str = "") -> str:
    """Return the unknown ones of names of settings, each with the most similar known one, all behind a prefix; empty if all are
    known."""
    known = [*_BY_NAME, *IGNORED]
    parts = []
    for name in (name for name in names if name.lower() not in {*known, *REJECTED}):
        near = difflib.get_close_matches(name, known, n=1)
        parts.append(f"{prefix}{name} (did you mean {prefix}{near[0]}?)" if near else prefix + name)
    return ", ".join(parts)


def _reject(name: str, value: str) -> None:
    rejected = REJECTED[name]
    if value and not value.endswith(rejected.accepted_values or ("\0",)):
        raise SettingsError("{setting} is not supported.", setting=name, remedy=rejected.remedy)
