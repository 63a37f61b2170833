"""Azure Event Hubs: the credentials that azure-identity finds, and their tokens on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme

from pykafka_wire.wire.errors import AuthenticationError, SettingsError, TransportError
from pykafka_wire.wire.security import oauth
from pykafka_wire.wire.security.clouds import azure
from pykafka_wire.wire.security.clouds.providers import provider
from pykafka_wire.wire.security.sasl import sasl_identity
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.cloud_stubs import CLIENT_ID, CLIENT_SECRET, TENANT, CloudStub, point_here

NAMESPACE = "orders.servicebus.windows.net"
HANDLER = "com.azure.spring.cloud.service.implementation.kafka.KafkaOAuth2AuthenticateCallbackHandler"


@pytest.fixture
def managed(cloud_stub: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CloudStub:
    point_here(monkeypatch, tmp_path, cloud_stub.environment_of_a_managed_identity())
    return cloud_stub


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CloudStub]:
    """Entra ID, which speaks TLS only."""
    trusted = trustme.CA()
    trusted.cert_pem.write_to_path(tmp_path / "ca.pem")
    with CloudStub().serving(trusted.issue_cert("127.0.0.1")) as serving:
        point_here(monkeypatch, tmp_path, {"AZURE_AUTHORITY_HOST": serving.url, "AZURE_TENANT_ID": TENANT})
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        yield serving


def settings(options: Mapping[str, str] | None = None) -> ClientSettings:
    given = {"bootstrap.servers": f"{NAMESPACE}:9093", "auth": "azure", "client.id": uuid.uuid4().hex}
    return ClientSettings.from_options(given | dict(options or {}))


def test_a_managed_identity(managed: CloudStub) -> None:
    made = settings()
    found = sasl_identity(made, NAMESPACE)
    assert (found.name, found.source) == (
        f"{CLIENT_ID} of tenant {TENANT}",
        "azure-identity's ManagedIdentityCredential",
    )
    assert found.expires_at == pytest.approx(time.time() + managed.lifetime_s, abs=5)
    token = oauth.fetch_token(made)
    assert oauth.jwt_claims(token.value)["aud"] == f"https://{NAMESPACE}"


def test_a_client_secret_in_the_environment(authority: CloudStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_ID", CLIENT_ID)
    monkeypatch.setenv("AZURE_CLIENT_SECRET", CLIENT_SECRET)
    assert sasl_identity(settings(), NAMESPACE).source == "azure-identity's EnvironmentCredential"
    assert authority.forms[-1]["scope"][0].split()[0] == f"https://{NAMESPACE}/.default"


def test_the_federated_token_of_a_workload(
    authority: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "federated").write_text("federated")
    monkeypatch.setenv("AZURE_CLIENT_ID", CLIENT_ID)
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "federated"))
    assert sasl_identity(settings(), NAMESPACE).source == "azure-identity's WorkloadIdentityCredential"


def test_a_client_secret_under_spring_clouds_names(authority: CloudStub) -> None:
    line = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'azure.credential.client-id="{CLIENT_ID}" azure.credential.client-secret="{CLIENT_SECRET}" '
        f'azure.profile.tenant-id="{TENANT}";'
    )
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": line,
        "sasl.login.callback.handler.class": HANDLER,
        "bootstrap.servers": f"{NAMESPACE}:9093",
    }
    found = sasl_identity(ClientSettings.from_options(java), NAMESPACE)
    assert found.source == "azure-identity's ClientSecretCredential"


def test_a_wrong_secret_is_named_and_not_shown(authority: CloudStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_ID", CLIENT_ID)
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong-canary")
    with pytest.raises(AuthenticationError, match="AADSTS7000215") as caught:
        oauth.fetch_token(settings())
    assert "wrong-canary" not in str(caught.value)
    assert "AZURE_CLIENT_ID" in caught.value.remedy


def test_an_outage_may_pass(authority: CloudStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:1")
    made = azure.Azure(
        credential=azure.find_credential(
            {
                "azure.credential.client-id": CLIENT_ID,
                "azure.credential.client-secret": CLIENT_SECRET,
                "azure.profile.tenant-id": TENANT,
            }
        )
    )
    with pytest.raises(TransportError, match="no token of Entra ID"):
        made.token(NAMESPACE)


def test_another_host_name_needs_a_scope(managed: CloudStub) -> None:
    given = {"bootstrap.servers": "kafka.internal:9093"}
    with pytest.raises(SettingsError, match=r"Set sasl\.oauthbearer\.scope"):
        oauth.fetch_token(settings(given))
    made = settings({**given, "sasl.oauthbearer.scope": "api://kafka/.default"})
    assert oauth.jwt_claims(oauth.fetch_token(made).value)["aud"] == "api://kafka"


def test_the_scope_is_the_national_clouds() -> None:
    assert azure.scope_of("orders.servicebus.chinacloudapi.cn") == "https://orders.servicebus.chinacloudapi.cn/.default"


def test_one_credential_serves_all_connections(managed: CloudStub) -> None:
    made = settings()
    assert provider(made, {}) is provider(made, {})
    source = oauth.token_source(made)
    assert source.token() is source.token()
    assert managed.issued == ["azure"]


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_tenant_that_cannot_be_one_is_an_error_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_ID", "id")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "canary")
    monkeypatch.setenv("AZURE_TENANT_ID", "no tenant!" if by_environment else "tenant")
    line = {
        "azure.credential.client-id": "id",
        "azure.credential.client-secret": "canary",
        "azure.profile.tenant-id": "no tenant!",
    }
    with pytest.raises(SettingsError, match="Invalid tenant ID") as raised:
        azure.find_credential({} if by_environment else line)
    assert "canary" not in str(raised.value)
