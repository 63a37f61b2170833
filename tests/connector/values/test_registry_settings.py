"""A registry from Spark's options: Confluent's names, what they mean together, and that no secret is shown."""

from __future__ import annotations

import base64
import pickle
import re
from typing import Any

import pytest

from pykafka_wire.errors import OptionError, RegistryError
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.rest import authorization
from pykafka_wire.values.registry.settings import registry_of

URL = "https://registry:8081"


def registry(**options: str) -> Registry:
    found = registry_of(
        {"schema.registry.url": URL} | {name.replace("__", "."): text for name, text in options.items()}
    )
    assert found is not None
    return found


def user_of(found: Registry) -> str:
    kind, _, text = authorization(found)["authorization"].partition(" ")
    assert kind == "Basic"
    return base64.b64decode(text).decode()


def refusal(**options: str) -> str:
    with pytest.raises(OptionError) as raised:
        registry(**options)
    assert "s3cret" not in str(raised.value)
    return raised.value.message


def test_without_a_url_there_is_no_registry() -> None:
    assert registry_of({"subscribe": "orders", "kafka.bootstrap.servers": "b:1"}) is None
    with pytest.raises(OptionError, match=r"basic\.auth\.user\.info is set and schema\.registry\.url is not"):
        registry_of({"schema.registry.basic.auth.user.info": "me:s3cret"})


def test_several_addresses_whatever_the_case_of_the_name() -> None:
    found = registry_of({"Schema.Registry.URL": " http://a:8081/ , https://b/apis/ccompat/v7"})
    assert found is not None and found.urls == ["http://a:8081", "https://b/apis/ccompat/v7"]
    for wrong in ("registry:8081", "http://", "ftp://a:1", "http://a:99999", "http://[::1", "http://a:8081,"):
        assert "must be http://host:port" in refusal(schema__registry__url=wrong)


@pytest.mark.parametrize("prefix", ["", "schema__registry__"])
@pytest.mark.parametrize("source", [None, "USER_INFO", "user_info"])
def test_a_user_with_and_without_the_prefix(prefix: str, source: str | None) -> None:
    options = {f"{prefix}basic__auth__user__info": "me:s3:cret"}
    if source is not None:
        options[f"{prefix}basic__auth__credentials__source"] = source
    assert user_of(registry(**options)) == "me:s3:cret"


def test_a_user_in_the_url_leaves_it_and_is_no_reference() -> None:
    found = registry(schema__registry__url="https://env:s3%40cret@a:1,https://env:s3%40cret@b:2")
    assert found.urls == ["https://a:1", "https://b:2"]
    assert user_of(found) == "env:s3@cret"
    assert user_of(registry(schema__registry__url="https://me:x@a", basic__auth__credentials__source="URL")) == "me:x"


@pytest.mark.parametrize(
    "sasl",
    [
        {"kafka__sasl__jaas__config": 'org.apache.kafka.P.PlainLoginModule required username="me" password="s3:cret";'},
        {"kafka__sasl__username": "me", "kafka__sasl__password": "s3:cret", "kafka__sasl__mechanism": "SCRAM-SHA-512"},
        {"kafka__sasl__username": "me", "kafka__sasl__password": "env:REGISTRY_TEST_PASSWORD"},
    ],
)
def test_the_brokers_user_inherited(sasl: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TEST_PASSWORD", "s3:cret")
    assert user_of(registry(basic__auth__credentials__source="SASL_INHERIT", **sasl)) == "me:s3:cret"


def test_tokens_given_and_inherited(tmp_path: Any) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    assert authorization(registry(bearer__auth__token=f"file:{token}")) == {"authorization": "Bearer t0ken"}
    static = registry(bearer__auth__token="t0ken", bearer__auth__credentials__source="STATIC_TOKEN")
    assert authorization(static) == {"authorization": "Bearer t0ken"}
    inherited = registry(
        schema__registry__bearer__auth__credentials__source="SASL_OAUTHBEARER_INHERIT",
        kafka__sasl__oauthbearer__token__endpoint__url=f"file://{token}",
        bearer__auth__logical__cluster="lsrc-1",
        bearer__auth__identity__pool__id="pool-2",
    )
    assert authorization(inherited) == {"authorization": "Bearer t0ken"}
    assert dict(inherited.extra_headers) == {"target-sr-cluster": "lsrc-1", "Confluent-Identity-Pool-Id": "pool-2"}


CLIENT = {
    "bearer__auth__credentials__source": "OAUTHBEARER",
    "bearer__auth__issuer__endpoint__url": "https://issuer/token",
    "bearer__auth__client__id": "me",
    "bearer__auth__client__secret": "s3cret",
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"basic__auth__credentials__source": "KEYTAB"}, "use URL, USER_INFO or SASL_INHERIT"),
        (
            {"basic__auth__credentials__source": "URL"},
            r"is URL, and a user \(https://user:password@host:port\) is missing",
        ),
        ({"basic__auth__credentials__source": "USER_INFO"}, "and basic.auth.user.info is missing"),
        ({"basic__auth__user__info": "s3cret"}, "must be user:password"),
        ({"proxy__host": "proxy"}, "proxy.host is set and proxy.port is not"),
        ({"proxy__port": "3128"}, "proxy.port is set and proxy.host is not"),
        ({"proxy__host": "http://proxy", "proxy__port": "3128"}, "must be a host's name and a port"),
        ({"proxy__host": "me:s3cret@proxy", "proxy__port": "3128"}, "without a user"),
        ({"proxy__host": "proxy", "proxy__port": "0"}, "must be a host's name and a port"),
        ({"proxy__host": "proxy", "proxy__port": "99999"}, "must be a host's name and a port"),
        ({"schema__registry__url": "https://s3cret@a"}, "must be user:password"),
        ({"schema__registry__url": "https://a:s3cret@a,https://b:s3cret@b"}, "have different users"),
        (
            {"basic__auth__user__info": "a:s3cret", "basic__auth__credentials__source": "URL"},
            "has no effect with basic.auth.credentials.source=URL",
        ),
        ({"basic__auth__user__info": "a:s3cret", "schema__registry__url": "https://a:b@c"}, "both name a user"),
        (
            {"basic__auth__credentials__source": "USER_INFO", "schema__registry__url": "https://a:s3cret@c"},
            "move it to basic.auth.user.info",
        ),
        (
            {"basic__auth__user__info": "a:s3cret", "schema__registry__basic__auth__user__info": "b:s3cret"},
            "mean the same: remove one",
        ),
        ({"basic__auth__credentials__source": "SASL_INHERIT"}, r"from kafka\.sasl\.\*, and no such option is set"),
        (
            {
                "basic__auth__credentials__source": "SASL_INHERIT",
                "kafka__sasl__mechanism": "OAUTHBEARER",
                "kafka__sasl__password": "s3cret",
            },
            "set bearer.auth.credentials.source to SASL_OAUTHBEARER_INHERIT",
        ),
        (
            {
                "basic__auth__credentials__source": "SASL_INHERIT",
                "kafka__sasl__username": "me",
                "basic__auth__user__info": "a:s3cret",
            },
            "basic.auth.user.info names a user and a password",
        ),
        ({"bearer__auth__credentials__source": "CUSTOM"}, "bearer.auth.token=provider:module:function"),
        ({"bearer__auth__credentials__source": "STATIC_TOKEN"}, "and bearer.auth.token is missing"),
        ({"bearer__auth__token": "s3cret", "basic__auth__user__info": "a:s3cret"}, "are both set"),
        ({"bearer__auth__token": "s3cret", "schema__registry__url": "https://a:s3cret@c"}, "are both set"),
        ({**CLIENT, "bearer__auth__token": "s3cret"}, "bearer.auth.token has no effect"),
        ({**CLIENT, "bearer__auth__client__secret": ""}, "bearer.auth.client.secret is missing"),
        ({**CLIENT, "bearer__auth__credentials__source": "STATIC_TOKEN"}, "set that to OAUTHBEARER"),
        (
            {"schema__registry__ssl__truststore__type": "BKS"},
            "schema.registry.ssl.truststore.type is 'BKS'. Use one of",
        ),
        ({"schema__registry__ssl__enabled__protocols": "SSLv3"}, "schema.registry.ssl.enabled.protocols is 'SSLv3'"),
    ],
)
def test_what_is_wrong_or_contradicts_is_refused_with_the_way_out(options: dict[str, str], expected: str) -> None:
    assert re.search(expected, refusal(**options))


def test_tls_under_kafkas_names_and_its_faults(tmp_path: Any) -> None:
    from pykafka_wire.values.registry.rest import _tls_context

    found = registry(
        schema__registry__ssl__keystore__key="s3cret",
        schema__registry__ssl__truststore__location=str(tmp_path / "absent.pem"),
        schema__registry__ssl__endpoint__identification__algorithm="",
    )
    assert found.tls is not None and found.tls.ssl_endpoint_identification_algorithm == ""
    with pytest.raises(
        RegistryError, match=r"schema\.registry\.ssl\.truststore\.location \(.*absent\.pem\) cannot be read"
    ):
        _tls_context(found)
    java = tmp_path / "trust.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed rest")
    with pytest.raises(RegistryError, match=r"JKS store, which only Java reads.*keytool -importkeystore"):
        _tls_context(registry(schema__registry__ssl__truststore__location=str(java)))
    with pytest.raises(RegistryError, match=r" ca_file \(.*absent.pem\) cannot be read"):
        _tls_context(Registry(URL, ca_file=str(tmp_path / "absent.pem")))


@pytest.mark.parametrize(
    "options",
    [
        {"basic__auth__user__info": "me:s3cret"},
        {"schema__registry__url": "https://me:s3cret@a"},
        {"bearer__auth__token": "s3cret"},
        CLIENT,
        {
            "basic__auth__credentials__source": "SASL_INHERIT",
            "kafka__sasl__username": "a",
            "kafka__sasl__password": "s3cret",
        },
        {"schema__registry__ssl__keystore__key": "s3cret", "schema__registry__ssl__key__password": "s3cret"},
    ],
)
def test_no_secret_is_shown_and_a_registry_travels(options: dict[str, str]) -> None:
    found = registry(**options)
    assert "s3cret" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found and hash(found) == hash(pickle.loads(pickle.dumps(found)))
    by_reference = {
        name: text.replace("s3cret", "env:S3") for name, text in options.items() if name != "schema__registry__url"
    }
    assert b"s3cret" not in pickle.dumps(registry(**by_reference))


#: The last warning is about schema.registry.url without a typed column.
def option_warnings(**options: str) -> tuple[str, ...]:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return parse_source_options(
        {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "schema.registry.url": URL} | given, "stream"
    ).warnings[:-1]


def test_the_names_are_known_to_reads_and_others_near_them_are_refused() -> None:
    known = ["schema__registry__url", "schema__registry__ssl__keystore__location", "value__subject__name__strategy"]
    known += [
        "basic__auth__user__info",
        "schema__registry__bearer__auth__token",
        "schema__registry__ssl__key__password",
    ]
    assert option_warnings(**dict.fromkeys(known, "x")) == ()
    for wrong, meant in {
        "schema.registry.uri": "schema.registry.url",
        "schemaRegistryUrl": "schema.registry.url",
        "basic.auth.userinfo": "basic.auth.user.info",
        "schema.registry.basic.auth.userinfo": "schema.registry.basic.auth.user.info",
        "schema.registry.ssl.truststore.file": "schema.registry.ssl.truststore.type",
        "value.subject.strategy": "value.subject.name.strategy",
    }.items():
        with pytest.raises(OptionError, match=f"did you mean {meant}"):
            option_warnings(**{wrong: "x"})
    (warning,) = option_warnings(schema__registry__foo="s3cret")
    assert warning.startswith("The option schema.registry.foo is unknown") and "s3cret" not in warning
    for harmless in ("use.latest.version", "specific.avro.reader", "schema.registry.cache.capacity"):
        (warning,) = option_warnings(**{harmless: "x"})
        assert "is unknown" in warning


def test_executors_of_rules_are_a_list() -> None:
    found = registry_of({"schema.registry.url": "http://registry", "schema.registry.rule.executors": "a.b:C, d:E"})
    assert found is not None and found.rule_executors == ("a.b:C", "d:E")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {
                "bearer__auth__credentials__source": "OAUTHBEARER",
                "bearer__auth__issuer__endpoint__url": "http://idp/token",
                "bearer__auth__client__id": "me",
                "bearer__auth__client__secret": "s3cret",
            },
            "bearer.auth.issuer.endpoint.url is http://idp",
        ),
        (
            {
                "bearer__auth__credentials__source": "OAUTHBEARER",
                "bearer__auth__issuer__endpoint__url": "https://idp/token",
                "bearer__auth__client__id": "me",
                "bearer__auth__client__secret": "env:ABSENT",
            },
            "bearer.auth.client.secret refers to the environment variable ABSENT",
        ),
        (
            {
                "basic__auth__credentials__source": "SASL_INHERIT",
                "kafka__sasl__mechanism": "PLAIN",
                "kafka__sasl__username": "me",
                "kafka__sasl__password": "env:ABSENT",
            },
            "kafka.sasl.password refers to the environment variable ABSENT",
        ),
    ],
)
def test_errors_of_credentials_name_what_the_user_wrote(options: dict[str, str], text: str) -> None:
    with pytest.raises(RegistryError) as raised:
        authorization(registry(**options))
    assert f": {text}" in raised.value.message
    assert "s3cret" not in str(raised.value)
