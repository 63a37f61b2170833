"""The endpoints that clouds issue credentials by, on loopback: the clouds' real libraries ask here for them.

AWS: a container's credentials, an instance's metadata, STS. Azure: a managed identity's endpoint, Entra's tokens. Google: an
instance's metadata, the tokens of a service account's key. Each takes what its service documents, and refuses what the service
would refuse.
"""

from __future__ import annotations

import base64
import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from tests.http_server import QuietHandler, http_server, server_context
from tests.wire.secured import pkcs8

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "ASIAEXAMPLE", "aws-secret-canary/+=", "aws-session-canary//+=="
ROLE = "arn:aws:iam::123456789012:role/reader"
CALLER = "arn:aws:sts::123456789012:assumed-role/reader/task-1"
TENANT, CLIENT_ID, CLIENT_SECRET = "11111111-2222-3333-4444-555555555555", "app-1", "azure-secret-canary"
ACCOUNT = "reader@project.iam.gserviceaccount.com"
#: What a cloud would have in the environment of this machine, and must not have in a test.
_ENVIRONMENT = ("AWS_", "AZURE_", "IDENTITY_", "MSI_", "GOOGLE_", "GCE_", "GCLOUD_", "CLOUDSDK_")


class CloudStub:
    """Responds at :attr:`url`; a test may change how long credentials live.

    Attributes:
        issued: what was issued, in order: "aws", "azure" or "google".
        access_token: makes the access tokens of Azure, from the scope or resource asked for.
    """

    def __init__(self, access_token: Callable[[str], str] | None = None) -> None:
        self.lifetime_s = 3600.0
        self.issued: list[str] = []
        self.forms: list[Mapping[str, list[str]]] = []
        self.access_token = access_token or self.entra_token
        self.url = ""

    def entra_token(self, resource: str) -> str:
        claims = {"appid": CLIENT_ID, "tid": TENANT, "aud": resource, "exp": int(time.time() + self.lifetime_s)}
        parts = (json.dumps({"alg": "none"}), json.dumps(claims), f"signature {len(self.issued)}")
        return ".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts)

    def aws_credentials(self) -> dict[str, str]:
        self.issued.append("aws")
        ends = datetime.fromtimestamp(time.time() + self.lifetime_s, tz=timezone.utc)
        return {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "AccessKeyId": f"{ACCESS_KEY}{len(self.issued)}",
            "SecretAccessKey": SECRET_KEY,
            "Token": SESSION_TOKEN,
            "LastUpdated": "2026-01-01T00:00:00Z",
            "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    @contextmanager
    def serving(self, tls: trustme.LeafCert | None = None) -> Iterator[CloudStub]:
        with http_server(self._handler(), None if tls is None else server_context(tls)) as self.url:
            yield self

    # --- what points the libraries here -------------------------------------------------------------------------------

    def environment_of_a_container(self) -> dict[str, str]:
        """AWS: ECS and EKS Pod SaslIdentity."""
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.url}/container",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod",
        }

    def environment_of_an_instance(self) -> dict[str, str]:
        """AWS: EC2."""
        return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self.url}/"}

    def environment_of_sts(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL_STS": f"{self.url}/sts"}

    def environment_of_a_managed_identity(self) -> dict[str, str]:
        """Azure: App Service and what is like it."""
        return {"IDENTITY_ENDPOINT": f"{self.url}/identity", "IDENTITY_HEADER": "the-header"}

    def environment_of_a_google_instance(self) -> dict[str, str]:
        host = self.url.removeprefix("http://")
        return {"GCE_METADATA_HOST": host, "GCE_METADATA_IP": host}

    # --- responses ------------------------------------------------------------------------------------------------------

    def response(self, method: str, path: str, headers: Mapping[str, str], body: str) -> tuple[int, str, str]:
        """Status, content type and body."""
        url = urlsplit(path)
        if url.path == "/container":
            return _json(self.aws_credentials()) if headers.get("Authorization") == "pod" else (401, "text/plain", "")
        if url.path.startswith("/latest/"):
            return self._instance(method, url.path, headers)
        if url.path.startswith("/sts"):
            return self._sts(parse_qs(body))
        if url.path == "/identity":
            if headers.get("X-IDENTITY-HEADER") != "the-header":
                return 401, "text/plain", ""
            return self._entra(parse_qs(url.query)["resource"][0], "expires_on")
        if url.path.startswith(f"/{TENANT}/"):
            return self._authority(url.path, parse_qs(body))
        if url.path == "/google-token":
            grant = parse_qs(body)
            known = grant["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"] and "assertion" in grant
            return self._google_token() if known else (400, "application/json", '{"error":"invalid_grant"}')
        if url.path == "/" or url.path.startswith("/computeMetadata/v1/"):
            return self._google(url.path, headers)
        return 404, "text/plain", ""

    def _instance(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str, str]:
        if path == "/latest/api/token" and method == "PUT":
            return 200, "text/plain", "imds"
        if headers.get("x-aws-ec2-metadata-token") != "imds":
            return 401, "text/plain", ""
        if path.endswith("/iam/security-credentials/"):
            return 200, "text/plain", "instance-role"
        return _json(self.aws_credentials())

    def _sts(self, form: Mapping[str, list[str]]) -> tuple[int, str, str]:
        self.forms.append(form)
        if form["Action"] == ["GetCallerIdentity"]:
            result = f"<Arn>{CALLER}</Arn><UserId>AROA:task-1</UserId><Account>123456789012</Account>"
            return _xml("GetCallerIdentity", result)
        if form["RoleArn"] != [ROLE]:
            error = "<Code>AccessDenied</Code><Message>User is not authorized to perform: sts:AssumeRole</Message>"
            return 403, "text/xml", f"<ErrorResponse><Error>{error}</Error></ErrorResponse>"
        made = self.aws_credentials()
        parts = {"AccessKeyId": "AccessKeyId", "SecretAccessKey": "SecretAccessKey", "SessionToken": "Token"}
        inner = "".join(
            f"<{name}>{made[source]}</{name}>" for name, source in {**parts, "Expiration": "Expiration"}.items()
        )
        user = f"<AssumedRoleUser><Arn>{CALLER}</Arn><AssumedRoleId>AROA:task-1</AssumedRoleId></AssumedRoleUser>"
        return _xml("AssumeRole", f"<Credentials>{inner}</Credentials>{user}")

    def _authority(self, path: str, form: Mapping[str, list[str]]) -> tuple[int, str, str]:
        base = f"{self.url}/{TENANT}"
        if path.endswith("/.well-known/openid-configuration"):
            return _json(
                {
                    "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                    "token_endpoint": f"{base}/oauth2/v2.0/token",
                    "issuer": f"{base}/v2.0",
                }
            )
        self.forms.append(form)
        right = form.get("client_secret") == [CLIENT_SECRET] or form.get("client_assertion") == ["federated"]
        if form.get("client_id") != [CLIENT_ID] or not right:
            error = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}
            return 401, "application/json", json.dumps(error)
        return self._entra(form["scope"][0], "expires_in")

    def _entra(self, resource: str, ends: str) -> tuple[int, str, str]:
        token = self.access_token(resource)
        self.issued.append("azure")
        when = self.lifetime_s + (time.time() if ends == "expires_on" else 0)
        return _json({"access_token": token, "token_type": "Bearer", ends: int(when), "resource": resource})

    def _google(self, path: str, headers: Mapping[str, str]) -> tuple[int, str, str]:
        if headers.get("Metadata-Flavor", "").lower() != "google":
            return 403, "text/plain", ""
        if path.endswith("/token"):
            return self._google_token()
        if path.endswith(("/service-accounts/default/", f"/service-accounts/{ACCOUNT}/")):
            return _json(
                {"email": ACCOUNT, "aliases": ["default"], "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
            )
        return 200, "text/plain", "project"

    def _google_token(self) -> tuple[int, str, str]:
        self.issued.append("google")
        token = f"ya29.canary-{len(self.issued)}"
        return _json({"access_token": token, "expires_in": int(self.lifetime_s), "token_type": "Bearer"})

    def _handler(self) -> type[QuietHandler]:
        stub = self

        class Handler(QuietHandler):
            def respond(self) -> None:
                status, kind, response = stub.response(self.command, self.path, self.headers, self.body().decode())
                always = {"Metadata-Flavor": "Google", "X-aws-ec2-metadata-token-ttl-seconds": "21600"}
                self.send(status, response.encode(), {"Content-Type": kind, **always})

        return Handler


def service_account_key(stub: CloudStub) -> dict[str, str]:
    """The file of a Google service account as it is downloaded, with a private key; its assertions are exchanged here."""
    issued = trustme.CA().issue_cert("google.example", key_type=trustme.KeyType.RSA)
    return {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "one",
        "private_key": pkcs8(issued).decode(),
        "client_email": ACCOUNT,
        "client_id": "1",
        "token_uri": f"{stub.url}/google-token",
    }


def _json(value: object) -> tuple[int, str, str]:
    return 200, "application/json", json.dumps(value)


def _xml(action: str, result: str) -> tuple[int, str, str]:
    namespace = "https://sts.amazonaws.com/doc/2011-06-15/"
    return (
        200,
        "text/xml",
        f'<{action}Response xmlns="{namespace}"><{action}Result>{result}</{action}Result></{action}Response>',
    )


def point_here(monkeypatch: pytest.MonkeyPatch, home: Any, environment: Mapping[str, str]) -> None:
    """Let the clouds' libraries see this environment, and no other trace of a cloud: no files of this machine either."""
    import os

    for name in list(os.environ):
        if name.startswith(_ENVIRONMENT):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    nowhere = {"AWS_CONFIG_FILE": "config", "AWS_SHARED_CREDENTIALS_FILE": "credentials", "CLOUDSDK_CONFIG": "gcloud"}
    for name, path in nowhere.items():
        monkeypatch.setenv(name, str(home / path))
    if "AWS_EC2_METADATA_SERVICE_ENDPOINT" not in environment:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")  # nothing listens there
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if "GCE_METADATA_HOST" in environment:
        # Read by google-auth when it is imported, which an earlier test may have done.
        metadata = importlib.import_module("google.auth.compute_engine._metadata")
        monkeypatch.setattr(metadata, "_GCE_METADATA_HOST", environment["GCE_METADATA_HOST"])
