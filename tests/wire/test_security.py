"""Every way to secure a cluster, on a real broker that demands it: what is right gets in, what is wrong fails at once.

A wrong credential must cost one attempt: brokers and identity providers lock out whom they see too often. The trace of the
client counts the attempts.
"""

from __future__ import annotations

import logging
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import trustme

from pykafka_wire.wire import Consumer, RecordProducer
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import create_topics
from pykafka_wire.wire.errors import AuthenticationError, SettingsError, WireError
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition
from tests.wire.secured import CLIENT_ID, CLIENT_SECRET, ODD_PASSWORD, PASSWORDS, REAUTH_MS, Secured, unsecured_token

pytestmark = pytest.mark.broker

ALICE = {"sasl_username": "alice", "sasl_password": PASSWORDS["alice"]}
CLIENT = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_client_credentials_client_id": CLIENT_ID,
    "sasl_oauthbearer_client_credentials_client_secret": CLIENT_SECRET,
    "sasl_oauthbearer_allow_http_loopback": "true",
}
VALUE_ONLY = Columns(key=False, value=True, headers=False, timestamp=False, timestamp_type=False)
#: "Within seconds", with room for a machine that runs everything at once.
AT_ONCE_S = 5.0

Connect = Callable[..., Cluster]


def stranger_token() -> str:
    return "e30.e30.c2ln"


@pytest.fixture
def connect(secured_kafka: Secured, tmp_path: Path) -> Iterator[Connect]:
    """`connect(listener, sasl_mechanism=…)`: a client, which writes its trace to `tmp_path / "trace"`."""
    made: list[Cluster] = []

    def connect(listener: str, **options: str) -> Cluster:
        settings = secured_kafka.options(listener, trace=str(tmp_path / "trace"), **options)
        made.append(Cluster(ClientSettings.from_options(settings)))
        return made[-1]

    yield connect
    for cluster in made:
        cluster.close()


def works(cluster: Cluster) -> bool:
    """Whether a record that is written through this client is read through it."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    create_topics(cluster, {name: (1, 1)})
    value = uuid.uuid4().bytes
    batches = encode_batches(
        key=None,
        value=pa.array([value], pa.binary()),
        headers=None,
        timestamp=np.full(1, int(time.time() * 1000), np.int64),
        codec=Codec.NONE,
        max_batch_bytes=16_384,
    )
    producer = Producer(cluster)
    producer.append(name, 0, batches)
    producer.flush()
    wanted = [OffsetRange(topic=name, partition=0, start_offset=0, end_offset=1)]
    found = [
        each
        for fetched in fetch_ranges(cluster, wanted, columns=VALUE_ONLY)
        for each in fetched.records.value.to_pylist()
    ]
    return found == [value]


def refusal(cluster: Cluster, trace: Path, *, attempts: str, most: int = 1) -> AuthenticationError:
    """The one error of a client that is refused at once; ``attempts`` is what in its trace stands for one attempt."""
    started = time.monotonic()
    with pytest.raises(AuthenticationError) as caught:
        cluster.metadata.brokers()
    assert time.monotonic() - started < AT_ONCE_S
    lines = trace.read_text().splitlines() if trace.exists() else []
    assert sum(attempts in line for line in lines) <= most, lines
    error = caught.value
    assert not error.retriable
    assert error.remedy
    for secret in (*PASSWORDS.values(), CLIENT_SECRET, ODD_PASSWORD, "wrong"):
        assert secret not in str(error)
        assert not any(secret in line for line in lines)
    return error


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_tls(connect: Connect) -> None:
    assert works(connect("TLS"))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_tls_version_of_ones_own_choice(connect: Connect, version: str) -> None:
    assert connect("TLS", ssl_enabled_protocols=version).metadata.brokers()


def test_a_cipher_suite_by_javas_name(connect: Connect) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    assert connect("TLS", ssl_cipher_suites=suite).metadata.brokers()


def test_an_authority_given_as_a_value(connect: Connect, secured_kafka: Secured) -> None:
    # On one line, as a properties file or SQL's OPTIONS have it.
    pem = secured_kafka.certificates.authority_path.read_text().replace("\n", " ")
    assert connect("TLS", ssl_truststore_location="", ssl_truststore_certificates=pem).metadata.brokers()


def test_an_authority_in_a_store_of_keytools(connect: Connect, secured_kafka: Secured, tmp_path: Path) -> None:
    store, authority = tmp_path / "trust.jks", secured_kafka.certificates.authority_path
    keytool(
        ["-importcert", "-noprompt", "-alias", "ca", "-file", authority, "-keystore", store, "-storepass", "changeit"]
    )
    # PKCS12 under Java's old name and type, as keytool has made them since Java 9.
    options = {"ssl_truststore_location": str(store), "ssl_truststore_type": "JKS"}
    assert connect("TLS", **options, ssl_truststore_password="changeit").metadata.brokers()
    with pytest.raises(SettingsError, match=r"ssl\.truststore\.location .* cannot be read"):
        connect("TLS", **options, ssl_truststore_password="wrong").metadata.brokers()


def test_a_store_in_javas_own_format_is_refused_with_the_command_that_converts_it(
    connect: Connect, secured_kafka: Secured, tmp_path: Path
) -> None:
    store, authority = tmp_path / "trust.jks", secured_kafka.certificates.authority_path
    made = ["-importcert", "-noprompt", "-alias", "ca", "-file", authority, "-keystore", store]
    keytool([*made, "-storepass", "changeit", "-storetype", "JKS"])
    with pytest.raises(SettingsError) as caught:
        connect("TLS", ssl_truststore_location=str(store), ssl_truststore_password="changeit").metadata.brokers()
    command = str(caught.value).split("keytool ")[1].split(";")[0].split()
    keytool([*command, "-srcstorepass", "changeit", "-deststorepass", "changeit"])
    converted = str(tmp_path / "trust.p12")
    assert connect("TLS", ssl_truststore_location=converted, ssl_truststore_password="changeit").metadata.brokers()


@pytest.mark.parametrize(
    ("listener", "trust", "said"),
    [
        ("TLS", "stranger_path", "unable to get local issuer certificate"),
        ("ELSEWHERE", "authority_path", "not valid for 'localhost'"),
        ("EXPIRED", "authority_path", "has expired"),
    ],
    ids=["wrong authority", "wrong host", "expired"],
)
def test_a_certificate_that_does_not_hold_is_fatal_at_once(
    connect: Connect, secured_kafka: Secured, tmp_path: Path, listener: str, trust: str, said: str
) -> None:
    path = str(getattr(secured_kafka.certificates, trust))
    error = refusal(connect(listener, ssl_truststore_location=path), tmp_path / "trace", attempts="->")
    assert said in str(error)


def test_without_a_trust_store_the_systems_authorities_count(connect: Connect, tmp_path: Path) -> None:
    error = refusal(connect("TLS", ssl_truststore_location=""), tmp_path / "trace", attempts="->")
    assert "certificate" in str(error)


def test_the_check_of_the_host_name_can_be_given_up_and_that_warns(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        cluster = connect("ELSEWHERE", ssl_endpoint_identification_algorithm="")
    assert "the host name in a broker's certificate is not checked" in caplog.text
    assert works(cluster)


def test_without_the_check_of_the_host_name_the_authority_still_counts(
    connect: Connect, secured_kafka: Secured, tmp_path: Path
) -> None:
    stranger = str(secured_kafka.certificates.stranger_path)
    options = {"ssl_endpoint_identification_algorithm": "", "ssl_truststore_location": stranger}
    refusal(connect("ELSEWHERE", **options), tmp_path / "trace", attempts="->")


def test_a_plaintext_client_on_a_tls_listener_gets_a_clear_error(connect: Connect) -> None:
    with pytest.raises(WireError, match=r"a TLS listener responds .* Set security\.protocol to SSL or SASL_SSL"):
        connect("TLS", security_protocol="PLAINTEXT", default_api_timeout_ms="1500").metadata.brokers()


def test_a_tls_client_on_a_plaintext_listener_gets_a_clear_error(connect: Connect) -> None:
    with pytest.raises(WireError, match=r"as a plaintext listener does.*set security\.protocol to PLAINTEXT or"):
        connect("SASLPLAIN", security_protocol="SSL", default_api_timeout_ms="1500").metadata.brokers()


# --- mTLS -------------------------------------------------------------------------------------------------------------


def test_a_client_certificate_from_a_file(connect: Connect, secured_kafka: Secured) -> None:
    assert works(connect("MTLS", ssl_keystore_location=str(secured_kafka.certificates.client_path)))


def test_a_client_certificate_as_values_with_an_encrypted_key(connect: Connect, secured_kafka: Secured) -> None:
    from cryptography.hazmat.primitives import serialization

    issued: trustme.LeafCert = secured_kafka.certificates.client
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"key-secret"),
    ).decode()
    chain = "".join(blob.bytes().decode() for blob in issued.cert_chain_pems)
    options = {"ssl_keystore_key": encrypted.replace("\n", "\\n"), "ssl_keystore_certificate_chain": chain}
    assert connect("MTLS", **options, ssl_key_password="key-secret").metadata.brokers()
    with pytest.raises(SettingsError, match=r"ssl\.key\.password is missing"):
        connect("MTLS", **options).metadata.brokers()
    with pytest.raises(SettingsError, match=r"ssl\.keystore.* cannot be read"):
        connect("MTLS", **options, ssl_key_password="wrong").metadata.brokers()


def test_a_client_certificate_from_pkcs12(connect: Connect, secured_kafka: Secured, tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    issued = secured_kafka.certificates.client
    key: Any = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    store = tmp_path / "client.p12"
    encryption = serialization.BestAvailableEncryption(b"store-secret")
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, encryption))
    options = {"ssl_keystore_location": str(store), "ssl_keystore_type": "PKCS12"}
    assert connect("MTLS", **options, ssl_keystore_password="store-secret").metadata.brokers()
    with pytest.raises(SettingsError, match=r"ssl\.keystore\.location .* cannot be read"):
        connect("MTLS", **options, ssl_keystore_password="wrong").metadata.brokers()


@pytest.mark.parametrize("identity", ["none", "impostor"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_without_the_right_certificate_is_refused_at_once(
    connect: Connect, secured_kafka: Secured, tmp_path: Path, identity: str, version: str
) -> None:
    options = {"ssl_enabled_protocols": version}
    if identity == "impostor":
        options["ssl_keystore_location"] = str(secured_kafka.certificates.impostor_path)
    error = refusal(connect("MTLS", **options), tmp_path / "trace", attempts="ApiVersions v4 #0")
    assert "ssl.keystore" in str(error)


# --- PLAIN and SCRAM --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("listener", ["SASLPLAIN", "SASLTLS"])
def test_user_and_password(connect: Connect, listener: str, mechanism: str) -> None:
    assert works(connect(listener, sasl_mechanism=mechanism, **ALICE))


def test_a_jaas_line_of_javas(connect: Connect) -> None:
    line = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="bob" password="{PASSWORDS["bob"]}";'
    assert connect("SASLPLAIN", sasl_mechanism="PLAIN", sasl_jaas_config=line).metadata.brokers()


def test_a_password_that_saslprep_would_change(connect: Connect) -> None:
    options = {"sasl_username": "carol", "sasl_password": ODD_PASSWORD}
    assert connect("SASLTLS", sasl_mechanism="SCRAM-SHA-256", **options).metadata.brokers()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_is_fatal_at_once(connect: Connect, tmp_path: Path, mechanism: str, user: str) -> None:
    cluster = connect("SASLTLS", sasl_mechanism=mechanism, sasl_username=user, sasl_password="wrong")
    error = refusal(cluster, tmp_path / "trace", attempts="-> SaslHandshake")
    assert f"refused {mechanism} authentication (SASL_AUTHENTICATION_FAILED)" in str(error)


def test_several_bootstrap_servers_do_not_make_several_attempts(
    connect: Connect, secured_kafka: Secured, tmp_path: Path
) -> None:
    address = secured_kafka.cluster.bootstrap("SASLTLS")
    several = f"{address},{address.replace('localhost', '127.0.0.1')}"
    options = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "wrong"}
    cluster = connect("SASLTLS", bootstrap_servers=several, **options)
    refusal(cluster, tmp_path / "trace", attempts="-> SaslHandshake")


def test_a_mechanism_that_the_listener_lacks_names_those_that_it_has(connect: Connect, tmp_path: Path) -> None:
    options = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_provider": f"{__name__}:stranger_token"}
    error = refusal(connect("SASLTLS", **options), tmp_path / "trace", attempts="-> SaslHandshake")
    for name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "Set sasl.mechanism"):
        assert name in str(error)


# --- OAUTHBEARER ------------------------------------------------------------------------------------------------------


def test_a_token_of_a_provider(connect: Connect) -> None:
    provider = f"{unsecured_token.__module__}:unsecured_token"
    assert works(connect("OAUTHU", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_provider=provider))


def test_a_token_that_the_broker_does_not_take_is_fatal_at_once(connect: Connect, tmp_path: Path) -> None:
    options = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_provider": f"{__name__}:stranger_token"}
    error = refusal(connect("OAUTHJ", **options), tmp_path / "trace", attempts="-> SaslHandshake")
    assert "invalid_token" in str(error)
    assert stranger_token() not in str(error)


def test_a_broker_that_refuses_without_a_word_is_asked_twice(connect: Connect, tmp_path: Path) -> None:
    # Kafka's validator for development fails on a token without claims, and the broker just closes the connection.
    options = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_provider": f"{__name__}:stranger_token"}
    error = refusal(connect("OAUTHU", **options), tmp_path / "trace", attempts="-> SaslHandshake", most=2)
    assert "closed the connection twice" in str(error)


def test_client_credentials(connect: Connect, secured_kafka: Secured) -> None:
    with secured_kafka.issuer.serving() as issuer:
        issuer.requests.clear()
        options = {"sasl_oauthbearer_token_endpoint_url": issuer.url, "sasl_oauthbearer_scope": "read write"}
        assert works(connect("OAUTHJ", **CLIENT, **options))
        # One token serves every connection.
        assert issuer.requests == [{"grant_type": ["client_credentials"], "scope": ["read write"]}]


def test_client_credentials_in_a_jaas_line(connect: Connect, secured_kafka: Secured) -> None:
    line = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" scope="all" extension_pool="p1";'
    )
    with secured_kafka.issuer.serving() as issuer:
        issuer.requests.clear()
        options = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_jaas_config": line,
            "sasl_oauthbearer_token_endpoint_url": issuer.url,
            "sasl_oauthbearer_allow_http_loopback": "true",
        }
        assert connect("OAUTHJ", **options).metadata.brokers()
        assert issuer.requests == [{"grant_type": ["client_credentials"], "scope": ["all"]}]


def test_a_wrong_client_secret_is_fatal_at_once(connect: Connect, secured_kafka: Secured, tmp_path: Path) -> None:
    with secured_kafka.issuer.serving() as issuer:
        issuer.requests.clear()
        options = {**CLIENT, "sasl_oauthbearer_client_credentials_client_secret": "wrong"}
        error = refusal(
            connect("OAUTHJ", **options, sasl_oauthbearer_token_endpoint_url=issuer.url),
            tmp_path / "trace",
            attempts="->",
        )
        assert "rejected the client: HTTP 401 (invalid_client: no such client or secret)" in str(error)
        assert len(issuer.requests) == 1


def test_a_token_for_another_audience_is_refused_and_not_used_again(
    connect: Connect, secured_kafka: Secured, tmp_path: Path
) -> None:
    with secured_kafka.issuer.serving() as issuer:
        issuer.audience = "somebody-else"
        try:
            cluster = connect("OAUTHJ", **CLIENT, sasl_oauthbearer_token_endpoint_url=issuer.url)
            refusal(cluster, tmp_path / "trace", attempts="-> SaslHandshake")
        finally:
            issuer.audience = "kafka"
        assert works(cluster)


# --- sessions that end ------------------------------------------------------------------------------------------------


def test_a_session_is_renewed_before_it_ends(connect: Connect, secured_kafka: Secured, tmp_path: Path) -> None:
    """While it is read, written and asked about, by either kind of password."""
    clusters = [connect("REAUTH", sasl_mechanism=mechanism, **ALICE) for mechanism in ("PLAIN", "SCRAM-SHA-512")]
    name = f"t-{uuid.uuid4().hex[:12]}"
    create_topics(clusters[0], {name: (2, 1)})
    options = [
        {**secured_kafka.options("REAUTH", sasl_mechanism=mechanism, **ALICE), "trace": str(tmp_path / "trace")}
        for mechanism in ("PLAIN", "SCRAM-SHA-512")
    ]
    written: list[bytes] = []
    read: list[bytes | None] = []
    with RecordProducer(options[0]) as producer, Consumer(options[1]) as consumer:
        consumer.assign({TopicPartition(name, partition): 0 for partition in (0, 1)})
        end = time.monotonic() + 2.5 * REAUTH_MS / 1000
        while time.monotonic() < end:
            for cluster in clusters:
                cluster.metadata.topics(None)
            written += [b"%d" % len(written), b"%d" % (len(written) + 1)]
            for partition in (0, 1):
                producer.send(name, written[partition - 2], partition=partition)
            producer.flush()
            read += [record.value for record in consumer.poll(20)]
        deadline = time.monotonic() + 60
        while len(read) < len(written) and time.monotonic() < deadline:
            read += [record.value for record in consumer.poll(500)]
    assert len(written) > 10
    assert sorted(read, key=str) == sorted(written, key=str)
    lines = (tmp_path / "trace").read_text().splitlines()
    # Four clients, two connections each at most beside the bootstrap's, three sessions.
    assert 8 <= sum("-> SaslHandshake" in line for line in lines) <= 40
    assert not any("closed" in line for line in lines), "the broker ended a session"


def test_a_token_is_renewed_with_the_session_that_it_opened(connect: Connect, secured_kafka: Secured) -> None:
    with secured_kafka.issuer.serving() as issuer:
        issuer.requests.clear()
        issuer.lifetime_s = 3.0
        try:
            cluster = connect("OAUTHJ", **CLIENT, sasl_oauthbearer_token_endpoint_url=issuer.url)
            end = time.monotonic() + 5.0
            while time.monotonic() < end:
                cluster.metadata.topics(None)
                time.sleep(0.05)
        finally:
            issuer.lifetime_s = 3600.0
        assert 2 <= len(issuer.requests) <= 4


def keytool(arguments: list[Any]) -> None:
    from pykafka_wire.local.java import ensure_java

    tool = Path(ensure_java().executable).with_name("keytool")
    subprocess.run([tool, *map(str, arguments)], check=True, capture_output=True, timeout=60)
