"""JAAS lines as users have them, and errors that quote none of one."""

from __future__ import annotations

import pytest

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "password"),
    [
        ('username="alice" password="alice-secret"', "alice-secret"),
        ("username='alice' password='alice-secret'", "alice-secret"),
        ("username=alice password=alice-secret", "alice-secret"),
        ('username="alice"\n  password = "a;b=c\'d" ', "a;b=c'd"),
        (r'username="alice" password="a\"b\\c"', r"a\"b\c".replace(r"\"", '"')),
        ('username="alice" password=";"', ";"),
        ('username="alice" password="="', "="),
        ('username="alice" password=""', ""),
        ('username="alice" password="über 🔑"', "über 🔑"),
    ],
)
@pytest.mark.parametrize("end", [";", "", " ; "])
def test_options_are_read(options: str, password: str, end: str) -> None:
    module = parse_jaas(f"{PLAIN} required {options}{end}")
    assert module.name == "PlainLoginModule"
    assert module.options == {"username": "alice", "password": password}
    assert module.mechanisms == ("PLAIN",)


@pytest.mark.parametrize(
    ("name", "mechanisms"),
    [
        ("org.apache.kafka.common.security.scram.ScramLoginModule", ("SCRAM-SHA-256", "SCRAM-SHA-512")),
        ("kafkashaded.org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule", ("OAUTHBEARER",)),
        ("com.sun.security.auth.module.Krb5LoginModule", ("GSSAPI",)),
        ("com.example.OwnLoginModule", ()),
    ],
)
def test_a_login_module_tells_its_mechanisms(name: str, mechanisms: tuple[str, ...]) -> None:
    assert parse_jaas(f"{name} required;").mechanisms == mechanisms


def test_names_of_options_may_have_dots() -> None:
    module = parse_jaas('M required ssl.truststore.location="/ca.pem" clientId=x;')
    assert module.options == {"ssl.truststore.location": "/ca.pem", "clientId": "x"}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "canary",
        f'{PLAIN} username="alice" password="canary";',
        f'{PLAIN} required username="alice" password="canary',
        f'{PLAIN} required username="alice" password=;canary',
        f'{PLAIN} required username="alice" "canary"',
        f'{PLAIN} required username="alice" password="canary"; {PLAIN} required username="b" password="canary";',
    ],
)
def test_a_malformed_line_is_refused_and_not_quoted(line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_jaas(line)
    assert caught.value.setting == "sasl.jaas.config"
    assert "canary" not in str(caught.value)
    assert "alice" not in str(caught.value)


def test_a_module_shows_none_of_its_options() -> None:
    assert "canary" not in repr(parse_jaas('M required password="canary";'))


@pytest.mark.parametrize(
    ("escaped", "value"),
    [
        (r"a\101b", "aAb"),
        (r"\7\78", "\a\a8"),
        (r"\0", "\0"),
        (r"\400", " 0"),
        (r"\a\b\f\v", "\a\b\f\v"),
        (r"\q\8", "q8"),
    ],
)
def test_escapes_are_those_of_javas_tokenizer(escaped: str, value: str) -> None:
    assert parse_jaas(f'M required password="{escaped}";').options == {"password": value}
