"""A broker that demands security, a listener for each way, and what goes with it: certificates, users, an issuer of tokens.

Certificates are trustme's, whose authority lives for one test session. Nothing of ours makes or checks anything here.
"""

from __future__ import annotations

import base64
import datetime
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs

import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire import Consumer, RecordProducer
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.broker_features import BROKERS
from tests.http_server import QuietHandler, http_server, server_context
from tests.quick_start import JVM_OPTIONS, QUICK_GROUPS

PASSWORDS = {"alice": "alice-secret", "bob": "bob=secret,with;marks"}
#: SASLprep would change it (to "a IX-secret"); Kafka does not.
ODD_PASSWORD = "ª\u00a0Ⅸ-secret"
CLIENT_ID, CLIENT_SECRET = "the-client", "client-secret-4711"
AUDIENCE = "kafka"
REAUTH_MS = 3_000
_LOGIN = "org.apache.kafka.common.security"


def records_flow_until(
    done: Callable[[], bool], options: Mapping[str, str], topic: str
) -> tuple[list[bytes], list[bytes | None]]:
    """What one client writes to partition 0 until `done`, and what another reads meanwhile and after."""
    written: list[bytes] = []
    read: list[bytes | None] = []
    deadline = time.monotonic() + 60
    with RecordProducer(options) as producer, Consumer(options) as consumer:
        consumer.assign({TopicPartition(topic, 0): 0})
        while not done():
            assert time.monotonic() < deadline
            written.append(b"%d" % len(written))
            producer.send(topic, written[-1], partition=0)
            producer.flush()
            read += [record.value for record in consumer.poll(20)]
        while len(read) < len(written) and time.monotonic() < deadline:
            read += [record.value for record in consumer.poll(500)]
    return written, read


class Certificates:
    """An authority, a stranger to it, and what they have signed, as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.stranger = trustme.CA()
        self.authority_path = self._write("ca.pem", self.authority.cert_pem.bytes())
        self.stranger_path = self._write("stranger.pem", self.stranger.cert_pem.bytes())
        past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
        self.broker_path = self._identity("broker.pem", self.authority.issue_cert("localhost", "127.0.0.1"))
        self.elsewhere_path = self._identity("elsewhere.pem", self.authority.issue_cert("elsewhere.example"))
        self.expired_path = self._identity(
            "expired.pem", self.authority.issue_cert("localhost", not_before=past.replace(year=2020), not_after=past)
        )
        self.client = self.authority.issue_cert("client.example", common_name="client", key_type=trustme.KeyType.RSA)
        self.client_path = self._identity("client.pem", self.client)
        self.impostor_path = self._identity(
            "impostor.pem", self.stranger.issue_cert("client.example", common_name="client")
        )

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def _identity(self, name: str, issued: trustme.LeafCert) -> Path:
        return self._write(name, pkcs8(issued) + b"".join(blob.bytes() for blob in issued.cert_chain_pems))


def pkcs8(issued: trustme.LeafCert) -> bytes:
    """The key as PKCS#8, the one form that Kafka reads."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class Issuer:
    """Signs tokens whose key a broker finds in a JWKS file, and gives them out for client credentials."""

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.jwks_path = folder / "jwks.json"
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": "one",
            "alg": "RS256",
            "use": "sig",
            "n": _base64(numbers.n.to_bytes(256, "big")),
            "e": _base64(numbers.e.to_bytes(3, "big")),
        }
        self.jwks_path.write_text(json.dumps({"keys": [key]}))
        #: How long a token lives, and for whom it is; a test may change both.
        self.lifetime_s = 3600.0
        self.audience = AUDIENCE
        #: The form of each request for a token, in order.
        self.requests: list[Mapping[str, list[str]]] = []
        #: The id and secret of each, as they came in the Authorization header.
        self.logins: list[str] = []
        #: Responses to give instead of tokens: status and body.
        self.responses: list[tuple[int, bytes]] = []
        self.url = ""

    def token(self) -> str:
        now = time.time()
        claims = {"sub": CLIENT_ID, "aud": self.audience, "iat": int(now), "exp": now + self.lifetime_s}
        signed = f"{_json({'alg': 'RS256', 'kid': 'one'})}.{_json(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"

    @contextmanager
    def serving(self, tls: trustme.LeafCert | None = None) -> Iterator[Issuer]:
        """Responds at :attr:`url` for as long as the context lasts."""
        with http_server(self._handler(), None if tls is None else server_context(tls)) as address:
            self.url = f"{address}/token"
            yield self

    def _handler(self) -> type[QuietHandler]:
        issuer = self

        class Handler(QuietHandler):
            def respond(self) -> None:
                form = parse_qs(self.body().decode())
                authorization = self.headers.get("Authorization", "")
                issuer.requests.append(form)
                issuer.logins.append(base64.b64decode(authorization.removeprefix("Basic ")).decode())
                status, body = issuer.response(authorization, form)
                self.send(status, body, {"Location": body.decode()} if status in (301, 302, 307, 308) else {})

        return Handler

    def response(self, authorization: str, form: Mapping[str, list[str]]) -> tuple[int, bytes]:
        if self.responses:
            return self.responses.pop(0)
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {expected}" or form.get("grant_type") != ["client_credentials"]:
            return 401, b'{"error":"invalid_client","error_description":"no such client or secret"}'
        response = {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.lifetime_s}
        return 200, json.dumps(response).encode()


def unsecured_token(lifetime_s: float = 3600) -> str:
    """A token without a signature, which Kafka's own validator for development takes."""
    claims = {"sub": "alice", "iat": time.time(), "exp": time.time() + lifetime_s}
    return f"{_json({'alg': 'none'})}.{_json(claims)}."


def _json(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


class Secured:
    """The running broker with its surroundings."""

    def __init__(self, cluster: LocalCluster, certificates: Certificates, issuer: Issuer) -> None:
        self.cluster = cluster
        self.certificates = certificates
        self.issuer = issuer

    def options(self, listener: str, **more: str) -> dict[str, str]:
        """Client settings for a listener: its address and protocol, the authority where it speaks TLS; ``more`` on top."""
        protocol = LISTENERS[listener]
        options = {"bootstrap.servers": self.cluster.bootstrap(listener), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            options["ssl.truststore.location"] = str(self.certificates.authority_path)
        return options | {name.replace("_", "."): value for name, value in more.items()}


#: Name -> security protocol.
LISTENERS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "ELSEWHERE": "SSL",
    "EXPIRED": "SSL",
    "SASLPLAIN": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "REAUTH": "SASL_PLAINTEXT",
    "OAUTHU": "SASL_PLAINTEXT",
    "OAUTHJ": "SASL_PLAINTEXT",
}


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """Starts it all in a folder of its own."""
    certificates, issuer = Certificates(folder), Issuer(folder)
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker_path),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority_path),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.elsewhere.ssl.keystore.location": str(certificates.elsewhere_path),
        "listener.name.expired.ssl.keystore.type": "PEM",
        "listener.name.expired.ssl.keystore.location": str(certificates.expired_path),
        "delegation.token.secret.key": "the-key-of-delegation-tokens",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.reauth.plain.connections.max.reauth.ms": str(REAUTH_MS),
        "listener.name.reauth.scram-sha-512.connections.max.reauth.ms": str(REAUTH_MS),
        "listener.name.oauthu.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauthu.oauthbearer.sasl.jaas.config": (
            f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
        "listener.name.oauthj.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauthj.oauthbearer.sasl.jaas.config": (f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;"),
        "listener.name.oauthj.oauthbearer.sasl.server.callback.handler.class": (
            f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        # Without it the broker tells when a token ends, and does not end the session then.
        "listener.name.oauthj.oauthbearer.connections.max.reauth.ms": "3600000",
        "listener.name.oauthj.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.jwks_path}",
        "listener.name.oauthj.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        # Kafka 4.4 refuses to start without an expected issuer; these tokens name none.
        "listener.name.oauthj.oauthbearer.sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    for listener in ("saslplain", "sasltls", "reauth"):
        properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = (
            f"{_LOGIN}.plain.PlainLoginModule required {users};"
        )
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            properties[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = (
                f"{_LOGIN}.scram.ScramLoginModule required;"
            )
    format_arguments = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        for user, password in (("alice", PASSWORDS["alice"]), ("carol", ODD_PASSWORD)):
            format_arguments += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
    cluster = LocalCluster(
        version=BROKERS,
        properties=properties | QUICK_GROUPS,
        listeners=LISTENERS,
        format_arguments=format_arguments,
        jvm_options=[
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{issuer.jwks_path}",
            "-Dfile.encoding=UTF-8",
            *JVM_OPTIONS,
        ],
    )
    with cluster:
        yield Secured(cluster, certificates, issuer)
