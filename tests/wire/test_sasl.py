"""Which mechanism with which credentials, and the tokens of PLAIN and OAUTHBEARER."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pykafka_wire.wire.errors import AuthenticationError, SettingsError
from pykafka_wire.wire.security.sasl import MskIamExchange, OAuthBearer, Plain, mechanism
from pykafka_wire.wire.security.scram import Scram
from pykafka_wire.wire.settings import ClientSettings

JAAS = "org.apache.kafka.common.security.{}LoginModule required {};"


def chosen(**options: str) -> Any:
    named = {f"sasl.{name.replace('_', '.')}": value for name, value in options.items()}
    settings = ClientSettings.from_options(
        {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", **named},
    )
    return mechanism(settings, "broker")


def give_token() -> str:
    return "abc.def"


def test_plain_by_user_and_password() -> None:
    exchange = chosen(mechanism="PLAIN", username="alice", password="pw").exchange()
    assert next(exchange) == b"\0alice\0pw"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_plain_by_jaas_line() -> None:
    line = JAAS.format("plain.Plain", 'username="alice" password="pw"')
    assert chosen(mechanism="PLAIN", jaas_config=line) == Plain(username="alice", password="pw")


def test_settings_go_before_the_jaas_line() -> None:
    line = JAAS.format("plain.Plain", 'username="bob" password="bobs"')
    made = chosen(mechanism="PLAIN", jaas_config=line, username="alice", password="pw")
    assert made == Plain(username="alice", password="pw")


def test_the_mechanism_may_follow_from_the_login_module() -> None:
    assert chosen(jaas_config=JAAS.format("plain.Plain", "username=a password=b")).name == "PLAIN"
    with pytest.raises(SettingsError, match=r"sasl\.mechanism is missing"):  # 256 or 512?
        chosen(jaas_config=JAAS.format("scram.Scram", "username=a password=b"))


def test_secrets_by_reference_are_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("THE_USER", "alice")
    (tmp_path / "pw").write_text("pw\n")
    made = chosen(mechanism="PLAIN", username="env:THE_USER", password=f"file:{tmp_path / 'pw'}")
    assert made == Plain(username="alice", password="pw")
    (tmp_path / "jaas").write_text(JAAS.format("plain.Plain", f'username="bob" password="file:{tmp_path / "pw"}"'))
    assert chosen(mechanism="PLAIN", jaas_config=f"file:{tmp_path / 'jaas'}") == Plain(username="bob", password="pw")


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(name: str) -> None:
    made = chosen(mechanism=name, username="alice", password="pw")
    assert isinstance(made, Scram)
    assert (made.name, made.username, made.password, made.is_token) == (name, "alice", "pw", False)
    token = chosen(mechanism=name, jaas_config=JAAS.format("scram.Scram", "username=a password=b tokenauth=true"))
    assert token.is_token


@pytest.mark.parametrize(("given", "missing"), [({}, "sasl.username"), ({"username": "alice"}, "sasl.password")])
def test_missing_credentials_are_named(given: dict[str, str], missing: str) -> None:
    with pytest.raises(SettingsError) as caught:
        chosen(mechanism="PLAIN", **given)
    assert caught.value.setting == missing


def test_a_login_module_of_another_mechanism_is_refused() -> None:
    line = JAAS.format("plain.Plain", "username=a password=canary")
    with pytest.raises(
        SettingsError, match=r"PlainLoginModule, which is not for sasl\.mechanism=SCRAM-SHA-256"
    ) as caught:
        chosen(mechanism="SCRAM-SHA-256", jaas_config=line)
    assert "canary" not in str(caught.value)


def test_a_nul_would_move_the_border_of_user_and_password() -> None:
    with pytest.raises(SettingsError, match="NUL"):
        next(Plain(username="a\0b", password="c").exchange())


def test_a_bearer_token_with_extensions() -> None:
    bearer = OAuthBearer(token="abc.def", extensions={"logicalCluster": "lkc-1", "pool": "p"})
    exchange = bearer.exchange()
    assert next(exchange) == b"n,,\x01auth=Bearer abc.def\x01logicalCluster=lkc-1\x01pool=p\x01\x01"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_a_refused_token_takes_two_steps_and_is_forgotten() -> None:
    forgotten = []
    exchange = OAuthBearer(token="abc", on_rejected=lambda: forgotten.append(True)).exchange()
    next(exchange)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    assert forgotten == [True]
    with pytest.raises(AuthenticationError, match="invalid_token"):  # a broker that calls it a success all the same
        exchange.send(b"")


def test_a_token_that_is_refused_at_once_is_forgotten_too() -> None:
    forgotten = []
    exchange = OAuthBearer(token="abc", on_rejected=lambda: forgotten.append(True)).exchange()
    next(exchange)
    with pytest.raises(AuthenticationError, match=r"no\. Check the token's audience"):
        exchange.throw(AuthenticationError("no", remedy="Check the user."))
    assert forgotten == [True]


@pytest.mark.parametrize(
    ("token", "extensions"),
    [("a\x01auth=b", {}), ("", {}), ("a b", {}), ("a", {"auth": "b"}), ("a", {"x1": "b"}), ("a", {"x": "b\x01y=z"})],
)
def test_nothing_can_be_smuggled_into_the_token(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        next(OAuthBearer(token=token, extensions=extensions).exchange())


def test_a_token_comes_from_the_provider() -> None:
    made = chosen(
        mechanism="OAUTHBEARER", oauthbearer_token_provider=f"{__name__}:give_token", oauthbearer_extensions="x=y"
    )
    assert next(made.exchange()) == b"n,,\x01auth=Bearer abc.def\x01x=y\x01\x01"


def test_gssapi_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    made = chosen(mechanism="GSSAPI")
    assert (made.name, made.service, made.host) == ("GSSAPI", "kafka", "broker")
    with pytest.raises(SettingsError, match=r"pip install 'pykafka-wire\[kerberos\]'"):
        next(made.exchange())


def test_gssapi_takes_keytab_and_service_from_the_jaas_line() -> None:
    line = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="a@B" serviceName=s;'
    made = chosen(jaas_config=line)
    assert (made.name, made.service, made.keytab, made.principal) == ("GSSAPI", "s", "/k", "a@B")


def test_no_mechanism_shows_its_secret() -> None:
    assert "canary" not in repr(Plain(username="a", password="canary"))
    assert "canary" not in repr(OAuthBearer(token="canary"))


@pytest.mark.parametrize("said", [b"[" * 100_000, b'{"status":' * 50_000, b"null", b"\xff", b'{"status":7}'])
def test_a_reason_that_is_no_text_does_not_hide_the_refusal(said: bytes) -> None:
    exchange = OAuthBearer(token="abc").exchange()
    next(exchange)
    assert exchange.send(said) == b"\x01"
    with pytest.raises(AuthenticationError, match="rejected the token: no reason given"):
        exchange.send(b"")


@pytest.mark.parametrize("said", [b"[" * 100_000, b'{"a":' * 50_000, b"[]", b"", b"\xff"])
def test_a_response_to_a_signed_request_must_be_an_object(said: bytes) -> None:
    exchange = MskIamExchange(signed_request="{}").exchange()
    next(exchange)
    with pytest.raises(AuthenticationError, match="not a JSON object"):
        exchange.send(said)
