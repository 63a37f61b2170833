"""Clouds' credentials that live for seconds, renewed while records flow: over Apache Kafka, and over listeners that judge what
Apache Kafka does not know."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import create_topics
from pykafka_wire.wire.errors import AuthenticationError
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.cloud_stubs import SECRET_KEY, SESSION_TOKEN, CloudStub, point_here
from tests.wire.sasl_front import SaslFront, Verdict
from tests.wire.secured import Secured, records_flow_until
from tests.wire.test_aws import MODULE, verdict
from tests.wire.test_google import JAVA, parts

pytestmark = pytest.mark.broker


def as_msk(token: bytes) -> Verdict:
    """As MSK, as far as it is documented; a session lives for two seconds."""
    wrong = verdict(json.loads(token))
    if wrong:
        return Verdict(error=f"[{uuid.uuid4()}]: {wrong}")
    return Verdict(response=b'{"version":"2020_10_22","request-id":"one"}', session_ms=2_000)


def as_google(token: bytes) -> Verdict:
    """As Google's managed Kafka, as far as it is documented: the session ends with the token."""
    bearer = token.split(b"\x01")[1].removeprefix(b"auth=Bearer ").decode()
    header, claims, access = parts(bearer)
    left_s = claims["exp"] - time.time()
    if header["alg"] != "GOOG_OAUTH2_TOKEN" or not access.startswith("ya29.") or left_s <= 0:
        return Verdict(error="invalid token")
    return Verdict(session_ms=int(left_s * 1000))


@pytest.fixture
def msk(secured_kafka: Secured) -> Iterator[SaslFront]:
    with SaslFront(secured_kafka.cluster.bootstrap_servers, "AWS_MSK_IAM", as_msk).serving() as serving:
        yield serving


def test_amazon(
    cloud_stub: CloudStub,
    msk: SaslFront,
    secured_kafka: Secured,
    monkeypatch: pytest.MonkeyPatch,
    topic: Any,
    tmp_path: Path,
) -> None:
    point_here(monkeypatch, tmp_path, cloud_stub.environment_of_a_container() | {"AWS_REGION": "eu-west-1"})
    cloud_stub.lifetime_s = 3
    name = topic(cluster=secured_kafka.cluster)
    options = {
        "bootstrap.servers": msk.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{MODULE};",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        "trace": str(tmp_path / "trace"),
    }

    def keys() -> set[str]:
        return {json.loads(token)["x-amz-credential"].split("/")[0] for token in msk.tokens}

    written, read = records_flow_until(lambda: len(keys()) > 1 and len(msk.tokens) > 6, options, name)
    assert read == written
    trace = (tmp_path / "trace").read_text()
    assert not any(secret in trace for secret in (SECRET_KEY, SESSION_TOKEN, "x-amz-signature"))


def test_a_signature_that_amazon_rejects_is_fatal_at_once(
    msk: SaslFront, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "wrong-canary", "AWS_REGION": "eu-west-1"}
    point_here(monkeypatch, tmp_path, environment)
    made = ClientSettings.from_options(
        {"bootstrap.servers": msk.address, "auth": "aws-msk-iam", "security.protocol": "SASL_PLAINTEXT"}
    )
    with Cluster(made) as cluster, pytest.raises(AuthenticationError) as caught:
        create_topics(cluster, {"never": (1, 1)})
    assert "SignatureDoesNotMatch" in str(caught.value)
    assert "kafka-cluster:Connect" in caught.value.remedy
    assert "wrong-canary" not in str(caught.value)
    assert len(msk.tokens) == 1


def test_azure(
    cloud_stub: CloudStub, secured_kafka: Secured, monkeypatch: pytest.MonkeyPatch, topic: Any, tmp_path: Path
) -> None:
    point_here(monkeypatch, tmp_path, cloud_stub.environment_of_a_managed_identity())
    issuer = secured_kafka.issuer
    cloud_stub.access_token = lambda resource: issuer.token()
    cloud_stub.lifetime_s = issuer.lifetime_s = 4.0
    name = topic(cluster=secured_kafka.cluster)
    options = secured_kafka.options("OAUTHJ", auth="azure", sasl_oauthbearer_scope="api://kafka/.default")
    options["trace"] = str(tmp_path / "trace")
    try:
        written, read = records_flow_until(lambda: len(cloud_stub.issued) > 3, options, name)
    finally:
        issuer.lifetime_s = 3600.0
    assert read == written
    lines = (tmp_path / "trace").read_text().splitlines()
    assert sum("-> SaslHandshake" in line for line in lines) >= 6
    assert not any("closed" in line for line in lines), "the broker ended a session"


def test_google(
    cloud_stub: CloudStub, secured_kafka: Secured, monkeypatch: pytest.MonkeyPatch, topic: Any, tmp_path: Path
) -> None:
    point_here(monkeypatch, tmp_path, cloud_stub.environment_of_a_google_instance())
    cloud_stub.lifetime_s = 4
    name = topic(cluster=secured_kafka.cluster)
    with SaslFront(secured_kafka.cluster.bootstrap_servers, "OAUTHBEARER", as_google).serving() as front:
        options = {
            **JAVA,
            "bootstrap.servers": front.address,
            "security.protocol": "SASL_PLAINTEXT",
            "trace": str(tmp_path / "trace"),
        }
        written, read = records_flow_until(lambda: len(cloud_stub.issued) > 3, options, name)
    assert read == written
    assert len(set(front.tokens)) > 2
    assert "ya29" not in (tmp_path / "trace").read_text()
