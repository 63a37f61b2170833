"""Settings of Java's clients that this client does not support: some are ignored, others are rejected.

Owns the reasons, which users read. A setting is ignored if it cannot change a result. It is rejected if ignoring it would do
something else than the user asked for. In reasons and remedies, names of settings stand in braces, for
:func:`~pykafka_wire.wire.errors.fill_in`. Names are those of Kafka 4.4.0's consumer and producer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: Why settings have no effect -> their names.
_IGNORED: Final = {
    "a metadata request never creates a topic": "allow.auto.create.topics",
    "there is no JMX": "auto.include.jmx.reporter",
    "names are resolved each time that a connection is opened, and tried again": "bootstrap.resolve.timeout.ms",
    "a batch takes the memory of its records": "buffer.memory.allocation.strategy",
    "every address of a name is tried": "client.dns.lookup",
    "secrets are given by reference: file:/path, env:NAME or provider:module:function": "config.providers",
    "no metrics are pushed": "enable.metrics.push",
    "a pattern never matches internal topics": "exclude.internal.topics",
    "a read has a fixed end and never waits for more bytes": "fetch.min.bytes",
    "it names Java classes, and this client runs no Java": (
        "interceptor.classes metric.reporters security.providers ssl.keymanager.algorithm ssl.trustmanager.algorithm"
    ),
    "internal to Java's client": "internal.throw.on.fetch.stable.offset.unsupported",
    "keys stay bytes": "key.deserializer key.serializer",
    "see {delivery.timeout.ms}": "max.block.ms",
    "responses are decoded whole": "max.poll.records",
    "metadata is requested only for topics in use": "metadata.max.idle.ms",
    "there are no Java metrics": "metrics.num.samples metrics.recording.level metrics.sample.window.ms",
    "rows without a key go to the partitions round-robin": (
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.rack.aware"
    ),
    "tickets come from the credential cache or the keytab": (
        "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter "
        "sasl.kerberos.ticket.renew.window.factor"
    ),
    "see {sasl.login.read.timeout.ms}": "sasl.login.connect.timeout.ms",
    "see {sasl.login.refresh.window.factor}": (
        "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.jitter"
    ),
    "see {retry.backoff.max.ms}": "sasl.login.retry.backoff.max.ms",
    "see {retry.backoff.ms}": "sasl.login.retry.backoff.ms",
    "brokers validate tokens, this client does not": (
        "sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer "
        "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience "
        "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms "
        "sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.validator.class "
        "sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name"
    ),
    "share groups are not supported": "share.acknowledgement.mode share.acquire.mode",
    "each attempt has {socket.connection.setup.timeout.ms}": "socket.connection.setup.timeout.max.ms",
    "TLS 1.2 or newer is negotiated; see {ssl.enabled.protocols}": "ssl.protocol",
    "it names a Java security provider, and this client runs no Java": "ssl.provider",
    "OpenSSL's is used": "ssl.secure.random.implementation",
    "this client completes its own transactions; no outside coordinator does (KIP-939)": (
        "transaction.two.phase.commit.enable"
    ),
    "values stay bytes": "value.deserializer value.serializer",
}
#: Name -> why it has no effect.
IGNORED: Final = dict(sorted((name, reason) for reason, names in _IGNORED.items() for name in names.split()))


class RejectedSetting(NamedTuple):
    """What to set instead, and the values that are accepted since they match what this client does."""

    remedy: str
    accepted_values: tuple[str, ...] = ()


_TOKEN_PROVIDER: Final = "It names a Java class, which this client cannot run: set {sasl.oauthbearer.token.provider} to module:function instead."
_ASSERTION: Final = "Signing assertions is not supported: set {sasl.oauthbearer.token.provider} to a module:function that gets the token."

_ASSERTIONS: Final = (
    "algorithm claim.aud claim.exp.seconds claim.iss claim.jti.include claim.nbf.seconds "
    "claim.sub file private.key.file private.key.passphrase template.file"
)

#: Settings that cannot be ignored safely. A value is accepted if it ends with one of ``accepted_values``.
REJECTED: Final[dict[str, RejectedSetting]] = {
    "sasl.login.class": RejectedSetting(_TOKEN_PROVIDER),
    "sasl.oauthbearer.jwt.retriever.class": RejectedSetting(_TOKEN_PROVIDER, ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")),
    **dict.fromkeys((f"sasl.oauthbearer.assertion.{name}" for name in _ASSERTIONS.split()), RejectedSetting(_ASSERTION)),
    "ssl.engine.factory.class": RejectedSetting("It names a Java class, which this client cannot run: use the {ssl.truststore.*} and {ssl.keystore.*} settings."),
}  # fmt: skip
