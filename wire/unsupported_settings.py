"""Settings of Java's clients that this client does not support: some are ignored, others are rejected.

Owns the reasons, which users read. A setting is ignored if it cannot change a result. It is rejected if ignoring it would do
something else than the user asked for. Names are those of Kafka 4.4.0's consumer and producer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_METRICS: Final = "there are no Java metrics"
_NO_JAVA: Final = "it names Java classes, and this client runs no Java"
_BROKER_VALIDATES: Final = "brokers validate tokens, this client does not"
_TICKETS_COME_FROM: Final = "tickets come from the credential cache or the keytab"
_SHARE_GROUPS: Final = "share groups are not supported"

#: Name -> why it has no effect.
IGNORED: Final[dict[str, str]] = {
    "allow.auto.create.topics": "a metadata request never creates a topic",
    "auto.include.jmx.reporter": "there is no JMX",
    "bootstrap.resolve.timeout.ms": "names are resolved each time that a connection is opened, and tried again",
    "buffer.memory.allocation.strategy": "a batch takes the memory of its records",
    "client.dns.lookup": "every address of a name is tried",
    "config.providers": "secrets are given by reference: file:/path, env:NAME or provider:module:function",
    "enable.metrics.push": "no metrics are pushed",
    "exclude.internal.topics": "a pattern never matches internal topics",
    "fetch.min.bytes": "a read has a fixed end and never waits for more bytes",
    "interceptor.classes": _NO_JAVA,
    "internal.throw.on.fetch.stable.offset.unsupported": "internal to Java's client",
    "key.deserializer": "keys stay bytes",
    "key.serializer": "keys stay bytes",
    "max.block.ms": "see delivery.timeout.ms",
    "max.poll.records": "responses are decoded whole",
    "metadata.max.idle.ms": "metadata is requested only for topics in use",
    "metric.reporters": _NO_JAVA,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "partitioner.adaptive.partitioning.enable": "rows without a key go to the partitions round-robin",
    "partitioner.availability.timeout.ms": "rows without a key go to the partitions round-robin",
    "partitioner.rack.aware": "rows without a key go to the partitions round-robin",
    "sasl.kerberos.kinit.cmd": _TICKETS_COME_FROM,
    "sasl.kerberos.min.time.before.relogin": _TICKETS_COME_FROM,
    "sasl.kerberos.ticket.renew.jitter": _TICKETS_COME_FROM,
    "sasl.kerberos.ticket.renew.window.factor": _TICKETS_COME_FROM,
    "sasl.login.connect.timeout.ms": "see sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds": "see sasl.login.refresh.window.factor",
    "sasl.login.refresh.min.period.seconds": "see sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter": "see sasl.login.refresh.window.factor",
    "sasl.login.retry.backoff.max.ms": "see retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms": "see retry.backoff.ms",
    "sasl.oauthbearer.allow.unverified.audience": _BROKER_VALIDATES,
    "sasl.oauthbearer.allow.unverified.issuer": _BROKER_VALIDATES,
    "sasl.oauthbearer.clock.skew.seconds": _BROKER_VALIDATES,
    "sasl.oauthbearer.expected.audience": _BROKER_VALIDATES,
    "sasl.oauthbearer.expected.issuer": _BROKER_VALIDATES,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKER_VALIDATES,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKER_VALIDATES,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKER_VALIDATES,
    "sasl.oauthbearer.jwks.endpoint.url": _BROKER_VALIDATES,
    "sasl.oauthbearer.jwt.validator.class": _BROKER_VALIDATES,
    "sasl.oauthbearer.scope.claim.name": _BROKER_VALIDATES,
    "sasl.oauthbearer.sub.claim.name": _BROKER_VALIDATES,
    "security.providers": _NO_JAVA,
    "share.acknowledgement.mode": _SHARE_GROUPS,
    "share.acquire.mode": _SHARE_GROUPS,
    "socket.connection.setup.timeout.max.ms": "each attempt has socket.connection.setup.timeout.ms",
    "ssl.keymanager.algorithm": _NO_JAVA,
    "ssl.protocol": "TLS 1.2 or newer is negotiated; see ssl.enabled.protocols",
    "ssl.provider": "it names a Java security provider, and this client runs no Java",
    "ssl.secure.random.implementation": "OpenSSL's is used",
    "ssl.trustmanager.algorithm": _NO_JAVA,
    "transaction.two.phase.commit.enable": "this client completes its own transactions; no outside coordinator does (KIP-939)",
    "value.deserializer": "values stay bytes",
    "value.serializer": "values stay bytes",
}


class RejectedSetting(NamedTuple):
    """What to set instead, and the values that are accepted since they match what this client does."""

    remedy: str
    accepted_values: tuple[str, ...] = ()


_TOKEN_PROVIDER: Final = "It names a Java class, which this client cannot run: set sasl.oauthbearer.token.provider to module:function instead."
_ASSERTION: Final = (
    "Signing assertions is not supported: set sasl.oauthbearer.token.provider to a module:function that gets the token."
)

#: Settings that cannot be ignored safely. A value is accepted if it ends with one of ``accepted_values``.
REJECTED: Final[dict[str, RejectedSetting]] = {
    "sasl.login.class": RejectedSetting(_TOKEN_PROVIDER),
    "sasl.oauthbearer.jwt.retriever.class": RejectedSetting(_TOKEN_PROVIDER, ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")),
    "sasl.oauthbearer.assertion.algorithm": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.aud": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.exp.seconds": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.iss": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.jti.include": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.sub": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.file": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.private.key.file": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.private.key.passphrase": RejectedSetting(_ASSERTION),
    "sasl.oauthbearer.assertion.template.file": RejectedSetting(_ASSERTION),
    "ssl.engine.factory.class": RejectedSetting("It names a Java class, which this client cannot run: use the ssl.truststore.* and ssl.keystore.* settings."),
}  # fmt: skip
