"""Service credentials of Databricks: what stands for the runtime here issues real objects of the clouds' libraries."""

from __future__ import annotations

import sys
import types
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import azure.identity
import botocore.session
import google.auth
import pytest

from pykafka_wire.wire.errors import AuthenticationError
from pykafka_wire.wire.security import oauth, sasl
from pykafka_wire.wire.security.sasl import sasl_identity
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.cloud_stubs import ACCESS_KEY, ACCOUNT, CLIENT_ID, CloudStub, point_here

MSK = "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com"
EVENT_HUBS = "orders.servicebus.windows.net"
GOOGLE = "bootstrap.orders.europe-west1.managedkafka.project.cloud.goog"
ISSUED: dict[str, Callable[[], Any]] = {
    MSK: botocore.session.Session,
    EVENT_HUBS: azure.identity.ManagedIdentityCredential,
    GOOGLE: lambda: google.auth.default()[0],
}


@pytest.fixture
def stub(cloud_stub: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CloudStub:
    everything = (
        cloud_stub.environment_of_a_container()
        | cloud_stub.environment_of_a_managed_identity()
        | cloud_stub.environment_of_a_google_instance()
    )
    point_here(monkeypatch, tmp_path, everything)
    return cloud_stub


def runtime(monkeypatch: pytest.MonkeyPatch, issue: Callable[[str], Any], *, task: bool) -> None:
    """What Databricks documents: in tasks a function of databricks.service_credentials, elsewhere one of dbutils."""
    for name in ("databricks", "databricks.sdk"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    if task:
        module: Any = types.ModuleType("databricks.service_credentials")
        module.getServiceCredentialsProvider = issue
    else:
        module = types.ModuleType("databricks.sdk.runtime")
        module.dbutils = types.SimpleNamespace(credentials=types.SimpleNamespace(getServiceCredentialsProvider=issue))
    monkeypatch.setitem(sys.modules, module.__name__, module)


def settings(host: str) -> ClientSettings:
    given = {"bootstrap.servers": f"{host}:9098", "auth": "databricks:Reader", "client.id": uuid.uuid4().hex}
    return ClientSettings.from_options(given)


@pytest.mark.parametrize("task", [True, False], ids=["task", "driver"])
@pytest.mark.parametrize(
    ("host", "mechanism", "name"),
    [(MSK, "AWS_MSK_IAM", ACCESS_KEY), (EVENT_HUBS, "OAUTHBEARER", CLIENT_ID), (GOOGLE, "OAUTHBEARER", ACCOUNT)],
)
def test_a_credential_of_each_cloud(
    stub: CloudStub, monkeypatch: pytest.MonkeyPatch, host: str, mechanism: str, name: str, task: bool
) -> None:
    asked = []
    runtime(monkeypatch, lambda given: (asked.append(given), ISSUED[host]())[1], task=task)
    made = settings(host)
    assert sasl.mechanism(made, host).name == mechanism
    found = sasl_identity(made, host)
    assert name in found.name
    assert found.source == "Databricks' service credential Reader"
    assert asked == ["Reader"]


def test_where_the_host_name_tells_nothing_the_credential_does(
    stub: CloudStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    runtime(monkeypatch, lambda _: botocore.session.Session(), task=True)
    assert sasl.mechanism(settings("kafka.internal"), "kafka.internal").name == "AWS_MSK_IAM"


def test_outside_of_databricks_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthenticationError, match=r"service credential Reader was not issued \(in a task: not"):
        oauth.fetch_token(settings(GOOGLE))

    def refuse(_: str) -> Any:
        raise PermissionError("canary")

    runtime(monkeypatch, refuse, task=True)
    with pytest.raises(AuthenticationError, match="in a task: PermissionError") as caught:
        oauth.fetch_token(settings(GOOGLE))
    assert "canary" not in str(caught.value)
    assert "ACCESS on the credential" in caught.value.remedy
