"""The rows of the SASL and TLS settings, for tests/wire/test_setting_effects.py."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from pykafka_wire.wire import WireError
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import AuthenticationError, SettingsError
from pykafka_wire.wire.security.tls import context
from tests.wire.cloud_stubs import CloudStub, point_here
from tests.wire.effects import TIMEOUT_S, Rig, row, seconds
from tests.wire.secured import CLIENT_ID, CLIENT_SECRET, PASSWORDS, unsecured_token


def authenticate(rig: Rig, options: dict[str, str]) -> None:
    login = {"sasl.username": "alice", "sasl.password": PASSWORDS["alice"], "sasl.mechanism": "PLAIN"}
    rig.cluster(login | options, "SASLPLAIN").metadata.brokers()


@row("sasl.jaas.config")
def _(rig: Rig, silent: str) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    options = {"sasl.mechanism": "PLAIN"}
    line = f'{module} required username="alice" password="{PASSWORDS["alice"]}";'
    assert rig.cluster({**options, "sasl.jaas.config": line}, "SASLPLAIN").metadata.brokers()
    wrong = f'{module} required username="alice" password="wrong";'
    assert isinstance(rig.refused({**options, "sasl.jaas.config": wrong}, "SASLPLAIN"), AuthenticationError)


def login_row(name: str) -> None:
    @row(name)
    def _(rig: Rig, silent: str) -> None:
        authenticate(rig, {})
        with pytest.raises(AuthenticationError):
            authenticate(rig, {name: "wrong"})


login_row("sasl.username")
login_row("sasl.password")


@row("auth")
def _(rig: Rig, silent: str) -> None:
    with CloudStub().serving() as stub, pytest.MonkeyPatch.context() as patch:
        point_here(patch, rig.path.parent, stub.environment_of_a_managed_identity())
        stub.access_token = lambda _: rig.secured.issuer.token()
        options = {"auth": "azure", "sasl.oauthbearer.scope": "api://kafka/.default"}
        assert rig.cluster(options, "OAUTHJ").metadata.brokers()
        assert stub.issued == ["azure"]


@row("sasl.client.callback.handler.class")
def _(rig: Rig, silent: str) -> None:
    name = "sasl.client.callback.handler.class"
    options = {"sasl.mechanism": "AWS_MSK_IAM", name: "software.amazon.msk.auth.iam.IAMClientCallbackHandler"}
    assert rig.settings(options, "SASLTLS").cloud == "aws"
    with pytest.raises(SettingsError, match="names a Java class"):
        rig.settings({**options, name: "com.example.Mine"}, "SASLTLS")


@row("sasl.login.callback.handler.class")
def _(rig: Rig, silent: str) -> None:
    with CloudStub().serving() as stub, pytest.MonkeyPatch.context() as patch:
        point_here(patch, rig.path.parent, stub.environment_of_a_managed_identity())
        stub.access_token = lambda _: rig.secured.issuer.token()
        options = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.scope": "api://kafka/.default",
            "sasl.login.callback.handler.class": "com.azure.spring.KafkaOAuth2AuthenticateCallbackHandler",
        }
        assert rig.cluster(options, "OAUTHJ").metadata.brokers()
        assert stub.issued == ["azure"]


def given_token(config: str) -> str:
    """A token provider that gives what it is called with."""
    return config


@row("sasl.oauthbearer.token.provider")
def _(rig: Rig, silent: str) -> None:
    options = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": f"{unsecured_token.__module__}:unsecured_token",
    }
    assert rig.cluster(options, "OAUTHU").metadata.brokers()


@row("sasl.oauthbearer.config")
def _(rig: Rig, silent: str) -> None:
    options = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": f"{__name__}:given_token"}
    assert rig.cluster({**options, "sasl.oauthbearer.config": unsecured_token()}, "OAUTHU").metadata.brokers()
    assert isinstance(
        rig.refused({**options, "sasl.oauthbearer.config": "e30.e30.c2ln"}, "OAUTHJ"), AuthenticationError
    )


@dataclass
class Asked:
    """What a token endpoint was asked, and what came of it."""

    error: WireError | None = None
    forms: list[Any] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)


def token_asked(rig: Rig, changed: dict[str, str]) -> Asked:
    with rig.secured.issuer.serving() as issuer:
        issuer.requests.clear()
        issuer.logins.clear()
        options = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": issuer.url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.allow.http.loopback": "true",
        }
        asked = Asked()
        try:
            rig.cluster(options | changed, "OAUTHJ").metadata.brokers()
        except WireError as error:
            asked.error = error
        asked.forms, asked.logins = list(issuer.requests), list(issuer.logins)
        return asked


@row("sasl.oauthbearer.token.endpoint.url")
def _(rig: Rig, silent: str) -> None:
    asked = token_asked(rig, {})
    assert asked.error is None
    assert len(asked.forms) == 1


@row("sasl.oauthbearer.client.credentials.client.id")
def _(rig: Rig, silent: str) -> None:
    asked = token_asked(rig, {"sasl.oauthbearer.client.credentials.client.id": "other"})
    assert isinstance(asked.error, AuthenticationError)
    assert asked.logins == [f"other:{CLIENT_SECRET}"]


@row("sasl.oauthbearer.client.credentials.client.secret")
def _(rig: Rig, silent: str) -> None:
    asked = token_asked(rig, {"sasl.oauthbearer.client.credentials.client.secret": "other"})
    assert isinstance(asked.error, AuthenticationError)
    assert asked.logins == [f"{CLIENT_ID}:other"]


@row("sasl.oauthbearer.scope")
def _(rig: Rig, silent: str) -> None:
    assert token_asked(rig, {"sasl.oauthbearer.scope": "read"}).forms[0]["scope"] == ["read"]


@row("sasl.oauthbearer.extensions")
def _(rig: Rig, silent: str) -> None:
    assert token_asked(rig, {"sasl.oauthbearer.extensions": "pool=one"}).error is None
    asked = token_asked(rig, {"sasl.oauthbearer.extensions": "auth=mine"})
    assert isinstance(asked.error, SettingsError)
    assert "extension 'auth'" in str(asked.error)


@row("sasl.oauthbearer.header.urlencode")
def _(rig: Rig, silent: str) -> None:
    secret = {"sasl.oauthbearer.client.credentials.client.secret": "a b"}
    assert token_asked(rig, secret).logins == [f"{CLIENT_ID}:a b"]
    assert token_asked(rig, {**secret, "sasl.oauthbearer.header.urlencode": "true"}).logins == [f"{CLIENT_ID}:a+b"]


@row("sasl.oauthbearer.allow.http.loopback")
def _(rig: Rig, silent: str) -> None:
    asked = token_asked(rig, {"sasl.oauthbearer.allow.http.loopback": "false"})
    assert isinstance(asked.error, SettingsError)
    assert asked.forms == []


@row("sasl.login.read.timeout.ms")
def _(rig: Rig, silent: str) -> None:
    changed = {"sasl.oauthbearer.token.endpoint.url": f"http://{silent}/", "default.api.timeout.ms": "300"}
    # 10 s by default.
    assert seconds(lambda: token_asked(rig, {**changed, "sasl.login.read.timeout.ms": "100"})) < 8


_given: list[str] = []


def short_lived(config: str) -> tuple[str, float]:
    """A token for ten seconds; says for whom in `_given`."""
    _given.append(config)
    return unsecured_token(), time.time() + 10


@row("sasl.login.refresh.window.factor")
def _(rig: Rig, silent: str) -> None:
    _given.clear()
    options = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": f"{__name__}:short_lived"}
    late, soon = (
        rig.cluster({**options, "sasl.login.refresh.window.factor": share, "sasl.oauthbearer.config": share}, "OAUTHU")
        for share in ("1.0", "0.5")
    )
    deadline = Deadline.after_ms(60_000)
    while _given.count("0.5") < 2:
        assert not deadline.expired
        time.sleep(0.1)
        for each in (late, soon):
            each.close()  # the next request authenticates
            each.metadata.brokers()
        assert _given.count("1.0") == 1


def store_row(store: str, listener: str, path: str) -> None:
    @row(f"ssl.{store}.type")
    def _(rig: Rig, silent: str) -> None:
        options = {f"ssl.{store}.location": str(getattr(rig.secured.certificates, path))}
        assert rig.cluster({**options, f"ssl.{store}.type": "PEM"}, listener).metadata.brokers()
        error = rig.refused({**options, f"ssl.{store}.type": "JKS"}, listener)
        assert isinstance(error, SettingsError)
        assert "keytool" in error.remedy


store_row("truststore", "TLS", "authority_path")
store_row("keystore", "MTLS", "client_path")


@row("ssl.truststore.location")
def _(rig: Rig, silent: str) -> None:
    stranger = str(rig.secured.certificates.stranger_path)
    assert isinstance(rig.refused({"ssl.truststore.location": stranger}, "TLS"), AuthenticationError)


@row("ssl.keystore.location")
def _(rig: Rig, silent: str) -> None:
    assert isinstance(rig.refused({}, "MTLS"), AuthenticationError)
    assert rig.cluster({"ssl.keystore.location": str(rig.secured.certificates.client_path)}, "MTLS").metadata.brokers()


@row("ssl.enabled.protocols")
def _(rig: Rig, silent: str) -> None:
    assert spoken(rig, {"ssl.enabled.protocols": "TLSv1.2"})[0] == "TLSv1.2"
    assert spoken(rig, {})[0] == "TLSv1.3"


@row("ssl.cipher.suites")
def _(rig: Rig, silent: str) -> None:
    suite = "ECDHE-ECDSA-AES128-GCM-SHA256"
    assert spoken(rig, {"ssl.enabled.protocols": "TLSv1.2"})[1] != suite
    assert spoken(rig, {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"})[1] == suite


def spoken(rig: Rig, options: dict[str, str]) -> tuple[str, str]:
    """Version and cipher suite that our TLS context agrees on with the broker."""
    settings = rig.settings(options, "TLS")
    ((host, port),) = settings.bootstrap_servers
    with (
        socket.create_connection((host, port), TIMEOUT_S) as raw,
        context(settings).wrap_socket(raw, server_hostname=host) as connection,
    ):
        return str(connection.version()), (connection.cipher() or ("",))[0]
