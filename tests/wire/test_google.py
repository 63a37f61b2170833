"""Google's managed Kafka: the account that google-auth finds, and the token in the form that the service requires."""

from __future__ import annotations

import base64
import json
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire.errors import AuthenticationError, TransportError
from pykafka_wire.wire.security import oauth
from pykafka_wire.wire.security.clouds import google
from pykafka_wire.wire.security.clouds.providers import provider
from pykafka_wire.wire.security.sasl import sasl_identity
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.cloud_stubs import ACCOUNT, CloudStub, point_here, service_account_key

HOST = "bootstrap.orders.europe-west1.managedkafka.project.cloud.goog"
JAVA = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
    "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
}


@pytest.fixture
def instance(cloud_stub: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CloudStub:
    point_here(monkeypatch, tmp_path, cloud_stub.environment_of_a_google_instance())
    return cloud_stub


def settings(**options: str) -> ClientSettings:
    given = {"bootstrap.servers": f"{HOST}:9092", "client.id": uuid.uuid4().hex}
    return ClientSettings.from_options(given | (options or {"auth": "google"}))


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    header, claims, access = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.split("."))
    return json.loads(header), json.loads(claims), access.decode()


@pytest.mark.parametrize("options", [{"auth": "google"}, JAVA], ids=["auth", "Java's"])
def test_the_token_has_the_three_parts_that_javas_handler_makes(instance: CloudStub, options: dict[str, str]) -> None:
    token = oauth.fetch_token(settings(**options))
    header, claims, access = parts(token.value)
    assert header == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert access == "ya29.canary-1"
    assert (claims["sub"], claims["scope"]) == (ACCOUNT, "kafka")
    assert claims["exp"] == pytest.approx(time.time() + instance.lifetime_s, abs=5)
    assert claims["iat"] == pytest.approx(time.time(), abs=5)
    assert token.lifetime_s == pytest.approx(instance.lifetime_s, abs=5)
    assert "canary" not in repr(token)


def test_the_identity_is_the_account(instance: CloudStub) -> None:
    found = sasl_identity(settings(), HOST)
    assert (found.name, found.source) == (ACCOUNT, "google-auth (google.auth.compute_engine.credentials)")
    assert found.expires_at == pytest.approx(time.time() + instance.lifetime_s, abs=5)


def test_a_service_accounts_key(cloud_stub: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(json.dumps(service_account_key(cloud_stub)))
    point_here(monkeypatch, tmp_path, {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json")})
    found = sasl_identity(settings(), HOST)
    assert (found.name, found.source) == (ACCOUNT, "google-auth (google.oauth2.service_account)")
    assert cloud_stub.issued == ["google"]


def test_an_access_token_is_kept_until_it_is_about_to_end(instance: CloudStub) -> None:
    made = provider(settings(), {})
    assert made.token(HOST).value.split(".")[2] == made.token(HOST).value.split(".")[2]
    assert instance.issued == ["google"]


def test_no_account_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    point_here(monkeypatch, tmp_path, {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "missing.json")})
    with pytest.raises(
        AuthenticationError, match=r"no credentials of Google: File .*missing\.json was not found"
    ) as caught:
        oauth.fetch_token(settings())
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.remedy


def test_a_person_needs_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.oauth2.credentials import Credentials

    made = google.Google(credentials=Credentials(token="ya29.canary"))
    with pytest.raises(AuthenticationError, match="do not tell the account's e-mail address") as caught:
        made.token(HOST)
    assert "impersonate" in caught.value.remedy
    assert "canary" not in str(caught.value)


def test_an_outage_may_pass(instance: CloudStub, monkeypatch: pytest.MonkeyPatch) -> None:
    made = provider(settings(), {})
    monkeypatch.setattr(instance, "response", lambda *_: (503, "text/plain", ""))
    monkeypatch.setattr(time, "sleep", lambda _: None)  # google-auth's pauses
    with pytest.raises(TransportError, match="no access token of Google"):
        made.token(HOST)
