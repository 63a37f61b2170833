"""Brokers as three clouds run them, and the endpoints of their credentials, which live for as long as a test says.

Azure's is the real broker, which checks the tokens' signatures. MSK's and Google's are listeners before it, which check what
Apache Kafka does not know (tests/wire/sasl_front.py). Every credential is kept, for a test to see when it was renewed, and to
search for it.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tests.wire.cloud_stubs import SECRET_KEY, SESSION_TOKEN, CloudStub
from tests.wire.sasl_front import SaslFront, Verdict
from tests.wire.secured import Secured
from tests.wire.test_cloud_sessions import as_google, as_msk


class Credential(NamedTuple):
    """Attributes:
    at: when it was presented to a broker, or issued for Azure: seconds since the epoch.
    name: what distinguishes it from the one before.
    """

    at: float
    name: str


class Clouds:
    """Three clouds' brokers and endpoints.

    Attributes:
        options: cloud -> the connector's options, which contain no secret.
        stub: the endpoints; what they issue lives for `lifetime_s`, as in :func:`clouds`.
        credentials: cloud -> what was used, in order.
        secrets: what tells them: the keys, and of all that was issued or presented the signature, or the part that is in its place.
    """

    def __init__(self, secured: Secured, stack: ExitStack) -> None:
        self._issuer = secured.issuer
        self._lock = threading.Lock()
        self.credentials: dict[str, list[Credential]] = {"aws": [], "azure": [], "google": []}
        self.secrets = {
            SECRET_KEY,
            SESSION_TOKEN,
            *(urllib.parse.quote(key, "") for key in (SECRET_KEY, SESSION_TOKEN)),
        }
        self.stub = stack.enter_context(CloudStub(self.entra_token).serving())
        servers = secured.cluster.bootstrap_servers
        msk = stack.enter_context(SaslFront(servers, "AWS_MSK_IAM", self._msk).serving())
        google = stack.enter_context(SaslFront(servers, "OAUTHBEARER", self._google).serving())
        plaintext = {"security.protocol": "SASL_PLAINTEXT"}
        options = {
            "aws": {"bootstrap.servers": msk.address, "auth": "aws-msk-iam", **plaintext},
            "azure": secured.options("OAUTHJ", auth="azure", sasl_oauthbearer_scope="api://kafka/.default"),
            "google": {"bootstrap.servers": google.address, "auth": "google", **plaintext},
        }
        self.options = {
            cloud: {f"kafka.{name}": value for name, value in each.items()} for cloud, each in options.items()
        }

    def entra_token(self, _: str) -> str:
        """A token that the real broker accepts, for whatever resource."""
        token = self._issuer.token()
        self._keep("azure", token, token.split(".")[2])
        return token

    def _msk(self, request: bytes) -> Verdict:
        payload = json.loads(request)
        self._keep("aws", payload["x-amz-credential"].split("/")[0], payload["x-amz-signature"])
        return as_msk(request)

    def _google(self, response: bytes) -> Verdict:
        token = response.split(b"\x01")[1].removeprefix(b"auth=Bearer ").decode()
        access = token.split(".")[2]
        self._keep("google", access, access, base64.urlsafe_b64decode(access + "=" * (-len(access) % 4)).decode())
        return as_google(response)

    def _keep(self, cloud: str, name: str, *secrets: str) -> None:
        with self._lock:
            self.credentials[cloud].append(Credential(time.time(), name))
            self.secrets.update(secrets)

    def renewed(self, cloud: str, after: float, until: float) -> set[str]:
        """The names of credentials that were used in this time and not before."""
        known = {each.name for each in self.credentials[cloud] if each.at <= after}
        return {each.name for each in self.credentials[cloud] if after < each.at < until} - known

    def environment(self) -> Mapping[str, str]:
        """The clouds' libraries find a container of AWS, a managed identity of Azure, and an instance of Google."""
        return {
            **self.stub.environment_of_a_container(),
            **self.stub.environment_of_a_managed_identity(),
            **self.stub.environment_of_a_google_instance(),
            "AWS_REGION": "eu-west-1",
        }


@contextmanager
def clouds(secured: Secured, lifetime_s: float) -> Iterator[Clouds]:
    before = secured.issuer.lifetime_s
    with ExitStack() as stack:
        stack.callback(setattr, secured.issuer, "lifetime_s", before)
        made = Clouds(secured, stack)
        made.stub.lifetime_s = secured.issuer.lifetime_s = lifetime_s
        yield made
