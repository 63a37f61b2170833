"""Amazon MSK by IAM: where botocore finds credentials, what is signed with them, and sessions that are renewed."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
import uuid
from datetime import datetime, timezone
from pathlib import Path

import botocore.auth
import botocore.credentials
import pytest
from botocore.awsrequest import AWSRequest

from pykafka_wire.wire.errors import AuthenticationError, SettingsError, TransportError
from pykafka_wire.wire.security import oauth, sasl
from pykafka_wire.wire.security.clouds.providers import provider
from pykafka_wire.wire.security.sasl import sasl_identity
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.cloud_stubs import ACCESS_KEY, CALLER, ROLE, SECRET_KEY, SESSION_TOKEN, CloudStub, point_here

BROKER = "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com"
MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"


@pytest.fixture
def container(cloud_stub: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CloudStub:
    point_here(monkeypatch, tmp_path, cloud_stub.environment_of_a_container())
    return cloud_stub


def settings(jaas: str = "", **options: str) -> ClientSettings:
    given = {"bootstrap.servers": f"{BROKER}:9098", "auth": "aws-msk-iam", "client.id": uuid.uuid4().hex, **options}
    return ClientSettings.from_options(given | ({"sasl.jaas.config": f"{MODULE} {jaas};"} if jaas else {}))


def signed(made: ClientSettings, host: str = BROKER) -> dict[str, str]:
    """What a connection would send."""
    found: dict[str, str] = json.loads(next(sasl.mechanism(made, host).exchange()))
    return found


#: Listeners judge requests in several threads; two patches of botocore's clock at a time would not be undone in order.
_PATCHING = threading.Lock()


def verdict(payload: dict[str, str], secret_key: str = SECRET_KEY, port: int = 0) -> str:
    """What is wrong with a signed request, "" for nothing: signed once more by botocore, from what it says of itself."""
    access_key, day, region, service, _ = payload["x-amz-credential"].split("/")
    credentials = botocore.credentials.Credentials(access_key, secret_key, payload.get("x-amz-security-token"))
    request = AWSRequest(method="GET", url=f"https://{payload['host']}/", params={"Action": payload["action"]})
    signer = botocore.auth.SigV4QueryAuth(credentials, service, region, expires=int(payload["x-amz-expires"]))
    at = datetime.strptime(payload["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    with _PATCHING, pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda *_: at)
        signer.add_auth(request)
    expected = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.url).query))
    if payload["x-amz-signature"] != expected["X-Amz-Signature"]:
        return "SignatureDoesNotMatch"
    return "" if abs(time.time() - at.timestamp()) < 300 and day == payload["x-amz-date"][:8] else "RequestExpired"


# --- what is signed ---------------------------------------------------------------------------------------------------


def test_the_request_is_the_documented_one(container: CloudStub) -> None:
    payload = signed(settings())
    assert verdict(payload) == ""
    assert verdict(payload, "another key") == "SignatureDoesNotMatch"
    date, signature = payload.pop("x-amz-date"), payload.pop("x-amz-signature")
    assert payload == {
        "version": "2020_10_22",
        "host": BROKER,
        "user-agent": "pykafka-wire",
        "action": "kafka-cluster:Connect",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": f"{ACCESS_KEY}1/{date[:8]}/eu-west-1/kafka-cluster/aws4_request",
        "x-amz-security-token": SESSION_TOKEN,
        "x-amz-signedheaders": "host",
        "x-amz-expires": "900",
    }
    assert len(signature) == 64


def test_each_broker_gets_a_request_of_its_own_by_the_same_credentials(container: CloudStub) -> None:
    made = settings()
    hosts = [BROKER, BROKER.replace("b-1", "b-2")]
    payloads = [signed(made, host) for host in hosts]
    assert [payload["host"] for payload in payloads] == hosts
    assert len({payload["x-amz-signature"] for payload in payloads}) == 2
    assert container.issued == ["aws"]


def test_the_token_of_oauthbearer_is_a_presigned_url(container: CloudStub) -> None:
    token = oauth.fetch_token(settings(**{"sasl.mechanism": "OAUTHBEARER"}))
    url = urllib.parse.urlsplit(base64.urlsafe_b64decode(token.value + "==").decode())
    members = {name.lower(): value for name, value in urllib.parse.parse_qsl(url.query)}
    assert (url.scheme, url.netloc) == ("https", "kafka.eu-west-1.amazonaws.com")
    assert members.pop("user-agent") == "pykafka-wire"
    assert verdict({**members, "host": url.netloc}) == ""
    assert token.lifetime_s == 900


def test_a_signature_ends_with_its_credentials(container: CloudStub) -> None:
    container.lifetime_s = 60
    token = oauth.fetch_token(settings(**{"sasl.mechanism": "OAUTHBEARER"}))
    assert token.lifetime_s == pytest.approx(60, abs=5)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (BROKER, "eu-west-1"),
        ("boot-1.c2.kafka-serverless.us-gov-east-1.amazonaws.com", "us-gov-east-1"),
        ("b-1.orders.abc.c2.kafka.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
        ("vpce-1.ap-southeast-2.vpce.amazonaws.com", "ap-southeast-2"),
        ("kafka.internal", "sa-east-1"),
        ("not-eu-west-10.internal", "sa-east-1"),
    ],
)
def test_the_region_is_the_hosts_else_the_configured_one(
    container: CloudStub, monkeypatch: pytest.MonkeyPatch, host: str, region: str
) -> None:
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    assert signed(settings(), host)["x-amz-credential"].split("/")[2] == region


def test_a_missing_region_is_an_error(container: CloudStub) -> None:
    with pytest.raises(SettingsError, match=r"no AWS region is in the host name kafka\.internal.* Set AWS_REGION"):
        signed(settings(), "kafka.internal")


# --- where credentials come from --------------------------------------------------------------------------------------


def test_an_instance(cloud_stub: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    point_here(monkeypatch, tmp_path, cloud_stub.environment_of_an_instance())
    made = settings()
    assert verdict(signed(made)) == ""
    assert provider(made, {}).token(BROKER).identity.source == "AWS iam-role"


def test_botocores_log_has_no_secret_of_ours(container: CloudStub, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1):
        payload = signed(settings())
        # botocore does log what it signs for others, and goes on doing so.
        verdict(payload)
    own, others = caplog.text.partition("CanonicalRequest")[::2]
    assert "botocore" in own and "CanonicalRequest" not in own
    assert not any(secret in own for secret in (SECRET_KEY, SESSION_TOKEN, payload["x-amz-signature"]))
    assert payload["x-amz-signature"] in others


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_profile(cloud_stub: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str) -> None:
    point_here(monkeypatch, tmp_path, {"AWS_PROFILE": "reader"} if how == "environment" else {})
    (tmp_path / "credentials").write_text(
        f"[reader]\naws_access_key_id = AKIA1\naws_secret_access_key = {SECRET_KEY}\n"
    )
    payload = signed(settings("awsProfileName=reader" if how == "option" else ""))
    assert verdict(payload) == ""
    assert payload["x-amz-credential"].startswith("AKIA1/")
    assert "x-amz-security-token" not in payload


def test_credentials_that_a_broker_rejects_are_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    point_here(monkeypatch, tmp_path, {"AWS_PROFILE": "reader"})
    made = settings()
    for key in ("AKIA1", "AKIA2"):  # rotated while the query runs
        secret = f"aws_secret_access_key = {SECRET_KEY}"
        (tmp_path / "credentials").write_text(f"[reader]\naws_access_key_id = {key}\n{secret}\n")
        exchange = sasl.mechanism(made, BROKER).exchange()
        assert json.loads(next(exchange))["x-amz-credential"].startswith(key)
        with pytest.raises(AuthenticationError):
            exchange.throw(AuthenticationError("rejected"))


def test_a_role_is_assumed(container: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    point_here(monkeypatch, tmp_path, container.environment_of_a_container() | container.environment_of_sts())
    options = (
        f'awsRoleArn="{ROLE}" awsRoleSessionName="task-1" awsStsRegion="eu-west-1" awsDebugCreds=true awsMaxRetries=7'
    )
    assert verdict(signed(settings(options))) == ""
    form = container.forms[-1]
    assert (form["RoleArn"], form["RoleSessionName"]) == ([ROLE], ["task-1"])
    assert container.issued == ["aws", "aws"]


def test_a_role_that_may_not_be_assumed_is_named(
    container: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    point_here(monkeypatch, tmp_path, container.environment_of_a_container() | container.environment_of_sts())
    with pytest.raises(AuthenticationError, match=r"AssumeRole.*AccessDenied: User is not authorized") as caught:
        signed(settings('awsRoleArn="arn:aws:iam::1:role/other"'))
    assert SECRET_KEY not in str(caught.value)


def test_an_option_that_would_change_the_identity_is_not_ignored(container: CloudStub) -> None:
    with pytest.raises(SettingsError, match="the option awsMskRegionProvider, which this client does not support"):
        signed(settings("awsMskRegionProvider=x"))


def test_no_credentials_are_an_error_that_says_where_they_were_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    point_here(monkeypatch, tmp_path, {})
    with pytest.raises(AuthenticationError, match=r"no AWS credentials were found.*AWS_PROFILE"):
        signed(settings())
    with pytest.raises(AuthenticationError, match=r"could not be loaded: The config profile \(nobody\)"):
        signed(settings("awsProfileName=nobody"))


def test_an_outage_of_the_service_that_issues_them_may_pass(
    container: CloudStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    container.lifetime_s = 0.5
    made = settings()
    provider(made, {})
    monkeypatch.setattr(container, "response", lambda *_: (500, "text/plain", ""))
    monkeypatch.setattr(time, "sleep", lambda _: None)  # botocore's pauses
    with pytest.raises(TransportError, match="AWS credentials could not be renewed"):
        signed(made)


def test_the_identity_is_the_one_that_aws_knows(
    container: CloudStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = sasl_identity(settings(), BROKER)
    assert found.source == "AWS container-role"
    assert found.expires_at == pytest.approx(time.time() + container.lifetime_s, abs=5)
    point_here(monkeypatch, tmp_path, container.environment_of_a_container() | container.environment_of_sts())
    assert sasl_identity(settings(), BROKER).name == CALLER
