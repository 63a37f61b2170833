"""Settings of Java's clients that this client does not act on: those that it accepts and ignores, those that it refuses.

Owns the reasons, which users read. A name is ignored where leaving it out changes no result, and refused where going on
without it would not do what the user asked for. Names are those of Kafka 4.3.1's consumer and producer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_METRICS: Final = "no Java metrics are kept"
_JAVA_CLASS: Final = "it names Java classes, and no Java client runs here"
_BROKER_VALIDATES: Final = "it is for whoever validates tokens: the broker does"
_TICKETS: Final = "tickets come from the credential cache or the keytab"
_SHARE_GROUPS: Final = "there are no share groups here"

#: Name -> why it changes nothing here.
IGNORED: Final[dict[str, str]] = {
    "allow.auto.create.topics": "topics are never created by asking for them",
    "auto.include.jmx.reporter": "there is no JMX",
    "client.dns.lookup": "every address of a name is tried",
    "config.providers": "secrets are given by reference: file:/path, env:NAME or provider:module:function",
    "enable.metrics.push": "no metrics are pushed",
    "exclude.internal.topics": "a pattern never matches internal topics",
    "fetch.min.bytes": "a read knows its end and never waits for more",
    "group.protocol": "groups are spoken to in the classic protocol",
    "group.remote.assignor": "groups are spoken to in the classic protocol",
    "interceptor.classes": _JAVA_CLASS,
    "internal.throw.on.fetch.stable.offset.unsupported": "internal to Java's client",
    "key.deserializer": "keys are bytes",
    "key.serializer": "keys are bytes",
    "max.block.ms": "see delivery.timeout.ms",
    "max.poll.records": "responses are decoded whole",
    "metadata.max.idle.ms": "only topics in use are asked for",
    "metric.reporters": _JAVA_CLASS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "partitioner.adaptive.partitioning.enable": "rows without a key go to the partitions in turn",
    "partitioner.availability.timeout.ms": "rows without a key go to the partitions in turn",
    "reconnect.backoff.max.ms": "see retry.backoff.max.ms",
    "reconnect.backoff.ms": "see retry.backoff.ms",
    "sasl.kerberos.kinit.cmd": _TICKETS,
    "sasl.kerberos.min.time.before.relogin": _TICKETS,
    "sasl.kerberos.ticket.renew.jitter": _TICKETS,
    "sasl.kerberos.ticket.renew.window.factor": _TICKETS,
    "sasl.login.connect.timeout.ms": "see sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds": "see sasl.login.refresh.window.factor",
    "sasl.login.refresh.min.period.seconds": "see sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter": "see sasl.login.refresh.window.factor",
    "sasl.login.retry.backoff.max.ms": "see retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms": "see retry.backoff.ms",
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
    "security.providers": _JAVA_CLASS,
    "share.acknowledgement.mode": _SHARE_GROUPS,
    "share.acquire.mode": _SHARE_GROUPS,
    "socket.connection.setup.timeout.max.ms": "each attempt has socket.connection.setup.timeout.ms",
    "ssl.keymanager.algorithm": _JAVA_CLASS,
    "ssl.protocol": "TLS 1.2 or newer is negotiated; see ssl.enabled.protocols",
    "ssl.provider": "it names a Java security provider",
    "ssl.secure.random.implementation": "OpenSSL's is used",
    "ssl.trustmanager.algorithm": _JAVA_CLASS,
    "transaction.two.phase.commit.enable": "transactions are the client's own, never an outside coordinator's (KIP-939)",
    "value.deserializer": "values are bytes",
    "value.serializer": "values are bytes",
}


class Refused(NamedTuple):
    """What to set instead, and the values that ask for what this client does anyway."""

    remedy: str
    harmless: tuple[str, ...] = ()


_TOKEN_PROVIDER: Final = (
    "It names a Java class, which cannot run here: set sasl.oauthbearer.token.provider to module:function instead."
)
_ASSERTION: Final = "Assertions signed here are not supported: set sasl.oauthbearer.token.provider to a module:function that gets the token."

#: Names that cannot be ignored without doing other than what was asked for. Harmless values are compared by their end.
REFUSED: Final[dict[str, Refused]] = {
    "sasl.client.callback.handler.class": Refused(_TOKEN_PROVIDER, ("oauthbearer.internals.OAuthBearerSaslClientCallbackHandler",)),
    "sasl.login.callback.handler.class": Refused(_TOKEN_PROVIDER, ("oauthbearer.OAuthBearerLoginCallbackHandler", "oauthbearer.secured.OAuthBearerLoginCallbackHandler")),
    "sasl.login.class": Refused(_TOKEN_PROVIDER),
    "sasl.oauthbearer.jwt.retriever.class": Refused(_TOKEN_PROVIDER, ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")),
    "sasl.oauthbearer.assertion.algorithm": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.aud": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.exp.seconds": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.iss": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.jti.include": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.claim.sub": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.file": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.private.key.file": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.private.key.passphrase": Refused(_ASSERTION),
    "sasl.oauthbearer.assertion.template.file": Refused(_ASSERTION),
    "ssl.engine.factory.class": Refused("It names a Java class, which cannot run here: use the ssl.truststore.* and ssl.keystore.* settings."),
}  # fmt: skip
