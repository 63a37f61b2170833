"""A user's accounts with three clouds, each with a secret of its own: in an option, a file, or the environment.

For tests that look for the secrets afterwards (tests/connector/test_canary.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.connector.clouds import Clouds, clouds
from tests.wire.cloud_stubs import CLIENT_ID, CLIENT_SECRET, ROLE, TENANT, CloudStub, service_account_key
from tests.wire.sasl_front import SaslFront, Verdict
from tests.wire.secured import Secured
from tests.wire.test_aws import MODULE
from tests.wire.test_azure import HANDLER

_ROLE_SECRET_KEY, _ROLE_SESSION_TOKEN = "aws-role-secret-canary", "aws-role-session-canary"
_ENVIRONMENT_SECRET_KEY: Final = "aws-environment-secret-canary"
_WRONG_SECRET: Final = "azure-wrong-secret-canary"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """Attributes:
    right: the connector's options, by what they sign in to.
    wrong: the same, for accounts that are refused.
    environment: what the clouds' libraries read.
    """

    right: dict[str, dict[str, str]]
    wrong: dict[str, dict[str, str]]
    environment: dict[str, str]
    _clouds: Clouds
    _private: dict[str, str]

    def canaries(self) -> dict[str, str]:
        """The secrets by their names, with everything that was issued so far."""
        assert all(self._clouds.credentials.values()), "each cloud has issued something"
        return self._private | {f"issued {i}": each for i, each in enumerate(sorted(self._clouds.secrets))}


@contextmanager
def accounts(secured: Secured, folder: Path) -> Iterator[Accounts]:
    """Listeners and endpoints that take them, until the block ends; `folder` gets files with secrets."""
    with ExitStack() as stack:
        made = stack.enter_context(clouds(secured, 3600.0))
        authority = CloudStub(made.entra_token)
        stack.enter_context(authority.serving(secured.certificates.authority.issue_cert("127.0.0.1")))
        refusing = SaslFront(secured.cluster.bootstrap_servers, "OAUTHBEARER", lambda _: Verdict(error="invalid token"))
        stack.enter_context(refusing.serving())

        token = secured.issuer.token()
        signed, _, signature = token.rpartition(".")
        forged = f"{signed}.{signature[::-1]}"
        (folder / "token").write_text(token)
        (folder / "forged-token").write_text(forged)
        key = service_account_key(made.stub)
        (folder / "google.json").write_text(json.dumps(key))

        def role(name: str) -> dict[str, str]:
            line = (
                f'{MODULE} awsRoleArn="{name}" awsStsRegion="eu-west-1" awsRoleAccessKeyId="AKIAROLE" '
                f'awsRoleSecretAccessKey="{_ROLE_SECRET_KEY}" awsRoleSessionToken="{_ROLE_SESSION_TOKEN}";'
            )
            return {**made.options["aws"], "kafka.sasl.jaas.config": line}

        def entra(secret: str) -> dict[str, str]:
            line = (
                f'{_OAUTH} azure.credential.client-id="{CLIENT_ID}" azure.credential.client-secret="{secret}" '
                f'azure.profile.tenant-id="{TENANT}";'
            )
            java = {"kafka.sasl.jaas.config": line, "kafka.sasl.login.callback.handler.class": HANDLER}
            return {**made.options["azure"], **java}

        def token_file(name: str) -> dict[str, str]:
            options = secured.options("OAUTHJ", sasl_mechanism="OAUTHBEARER")
            options["sasl.oauthbearer.token.endpoint.url"] = f"file://{folder / name}"
            return {f"kafka.{name}": value for name, value in options.items()}

        google = made.options["google"]
        yield Accounts(
            right={"aws": role(ROLE), "azure": entra(CLIENT_SECRET), "google": google, "token": token_file("token")},
            wrong={
                "aws": role("arn:aws:iam::123456789012:role/another"),
                "azure": entra(_WRONG_SECRET),
                "google": {**google, "kafka.bootstrap.servers": refusing.address},
                "token": token_file("forged-token"),
            },
            environment={
                **made.stub.environment_of_sts(),
                "AWS_REGION": "eu-west-1",
                "AWS_ACCESS_KEY_ID": "AKIAENVIRONMENT",
                "AWS_SECRET_ACCESS_KEY": _ENVIRONMENT_SECRET_KEY,
                "AZURE_AUTHORITY_HOST": authority.url,
                "REQUESTS_CA_BUNDLE": str(secured.certificates.authority_path),
                "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "google.json"),
            },
            _clouds=made,
            _private={
                "AWS secret key": _ROLE_SECRET_KEY,
                "AWS session token": _ROLE_SESSION_TOKEN,
                "AWS secret key of the environment": _ENVIRONMENT_SECRET_KEY,
                "Azure client secret": CLIENT_SECRET,
                "Azure wrong client secret": _WRONG_SECRET,
                "Google key": key["private_key"].splitlines()[2],
                "bearer token": signature,
                "forged bearer token": signature[::-1],
            },
        )
