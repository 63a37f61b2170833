"""Settings by Kafka's names: types, errors that name the remedy, nothing unsaid about a name, and secrets masked."""

from __future__ import annotations

import pickle
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.local.jars import KAFKA_VERSION, classpath, kafka_jars
from pykafka_wire.local.java import ensure_java
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.settings import SETTINGS, ClientSettings, unknown_settings
from pykafka_wire.wire.settings.documentation import settings_table
from pykafka_wire.wire.settings.unsupported import IGNORED, REJECTED

CANARY = "canary-4711"
CONFIGS = Path(__file__).parent.parent / "conformance" / "ClientConfigs.java"


def settings(**options: str) -> ClientSettings:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return ClientSettings.from_options({"bootstrap.servers": "b:9092", **named})


def refusal(**options: str) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        settings(**options)
    return caught.value


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", (("a", 1),)),
        (" a:1 , b:2,a:1", (("a", 1), ("b", 2))),
        ("[::1]:9092", (("::1", 9092),)),
        ("PLAINTEXT://a:1,SSL://[::1]:2", (("a", 1), ("::1", 2))),
    ],
)
def test_bootstrap_servers_are_read(text: str, addresses: Any) -> None:
    assert settings(bootstrap_servers=text).bootstrap_servers == addresses


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:0", "a:65536", "a:x", "a:²"])
def test_an_address_without_host_or_port_is_refused_with_an_example(text: str) -> None:
    error = refusal(bootstrap_servers=text)
    assert error.setting == "bootstrap.servers"
    assert "broker1:9092" in str(error)


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(SettingsError, match=r"bootstrap\.servers is missing"):
        ClientSettings.from_options({})


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("request.timeout.ms", "soon", "Use a whole number."),
        ("request.timeout.ms", "0", "Use a whole number from 1 to 2147483647."),
        ("check.crcs", "yes", "Use true or false."),
        ("security.protocol", "TLS", "Use one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."),
        ("sasl.login.refresh.window.factor", "2", "Use a number from 0.5 to 1.0."),
        ("ssl.enabled.protocols", "TLSv1.1", "Use TLSv1.2, TLSv1.3 or both."),
        ("ssl.enabled.protocols", "TLSv1.2,TLS9", "Use TLSv1.2, TLSv1.3 or both."),
        (
            "ssl.endpoint.identification.algorithm",
            "none",
            "Use https; an empty value turns the check of host names off.",
        ),
    ],
)
def test_a_value_that_does_not_fit_names_setting_value_and_remedy(name: str, value: str, remedy: str) -> None:
    error = refusal(**{name.replace(".", "_"): value})
    assert str(error) == f"[PYKAFKA_WIRE_SETTINGS] {name} is {value!r}. {remedy}"
    assert error.setting == name


def test_old_tls_versions_in_a_list_stay_off() -> None:
    assert settings(ssl_enabled_protocols="TLSv1.2,TLSv1.1,TLSv1").ssl_enabled_protocols == ("TLSv1.2",)


def test_names_and_choices_have_any_case() -> None:
    made = ClientSettings.from_options({"Bootstrap.Servers": "b:1", "SECURITY.PROTOCOL": "ssl"})
    assert made.security_protocol == "SSL"


def test_a_blank_is_part_of_a_secret_and_of_nothing_else() -> None:
    made = settings(sasl_password=" pw ", client_id=" me ")
    assert (made.sasl_password, made.client_id) == (" pw ", "me")


def test_an_empty_value_is_none_given_except_where_it_opts_out() -> None:
    assert settings(client_id="").client_id == "pykafka-wire"
    assert settings(ssl_endpoint_identification_algorithm="").ssl_endpoint_identification_algorithm == ""


@pytest.fixture(scope="module")
def java_settings(java: None) -> dict[str, list[tuple[str, str]]]:
    """Name -> (type, default) in Kafka's consumer, its producer, or both."""
    found: dict[str, list[tuple[str, str]]] = {}
    command = [
        str(ensure_java().executable),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        classpath(kafka_jars(KAFKA_VERSION)),
        str(CONFIGS),
    ]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    for line in lines:
        name, kind, default = line.split("\t")
        found.setdefault(name, []).append((kind, default))
    return found


@pytest.mark.broker
def test_every_name_of_kafkas_clients_is_acted_on_ignored_or_refused(java_settings: dict[str, Any]) -> None:
    acted_on = {setting.name for setting in SETTINGS}
    assert len(java_settings) > 100
    assert set(java_settings) - (acted_on | set(IGNORED) | set(REJECTED)) == set()
    assert acted_on.isdisjoint(IGNORED)
    assert acted_on.isdisjoint(REJECTED)
    # Nothing is ignored or refused that nobody knows.
    assert set(IGNORED) | set(REJECTED) <= set(java_settings) | {"auto.include.jmx.reporter"}


@pytest.mark.broker
def test_what_java_holds_for_a_password_is_secret(java_settings: dict[str, Any]) -> None:
    secret = {setting.name for setting in SETTINGS if setting.secret}
    passwords = {name for name, kinds in java_settings.items() if kinds[0][0] == "PASSWORD"}
    assert passwords - set(REJECTED) <= secret


@pytest.mark.broker
def test_defaults_are_javas_but_for_those_that_say_why(java_settings: dict[str, Any]) -> None:
    different = {}
    for setting in SETTINGS:
        theirs = {default for _, default in java_settings.get(setting.name, [])}
        ours = setting.default
        if theirs and ours not in {
            "none" if text in ("null", "", "[]") else text.strip("[]").replace(", ", ",") for text in theirs
        }:
            different[setting.name] = ours
    assert different == {
        "client.id": "pykafka-wire",
        # The strategies that are spoken here, by the names that go over the wire.
        "partition.assignment.strategy": "range,cooperative-sticky",
        "socket.connection.setup.timeout.ms": "4000",
        # Writes see thousands of records at once.
        "batch.size": "none",
        "linger.ms": "none",
        # Sizes that reads and sockets choose for themselves.
        "fetch.max.bytes": "none",
        "max.partition.fetch.bytes": "none",
        "receive.buffer.bytes": "none",
        "send.buffer.bytes": "none",
        # The codec's own.
        "compression.gzip.level": "none",
        "compression.lz4.level": "none",
        "compression.zstd.level": "none",
        # GSSAPI by default, which nobody means who has not said so.
        "sasl.mechanism": "none",
        "sasl.login.read.timeout.ms": "10000",
        # Told by a store's content.
        "ssl.keystore.type": "none",
        "ssl.truststore.type": "none",
    }


@pytest.mark.parametrize(("name", "value"), [("acks", "1"), ("acks", "0"), ("retries", "0")])
def test_idempotence_that_was_asked_for_is_not_given_up_in_silence(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=rf"{name} is {value}, and enable\.idempotence=true needs {name}"):
        settings(**{"enable_idempotence": "true", name: value})
    settings(**{name: value})
    settings(**{"enable_idempotence": "false", name: value})


def test_unknown_and_ignored_names_are_distinguished() -> None:
    made = settings(max_poll_records="5", sasl_mechanisms="PLAIN")
    assert made.ignored == ("max.poll.records",)
    assert made.unknown == ("sasl.mechanisms",)
    assert unknown_settings(made.unknown) == "sasl.mechanisms (did you mean sasl.mechanism?)"
    assert unknown_settings(made.unknown, "kafka.") == "kafka.sasl.mechanisms (did you mean kafka.sasl.mechanism?)"


def test_a_java_class_that_would_authenticate_is_refused_with_what_to_set_instead() -> None:
    error = refusal(
        sasl_login_callback_handler_class="io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
    )
    assert error.setting == "sasl.login.callback.handler.class"
    assert "sasl.oauthbearer.token.provider" in str(error)


def test_the_java_class_of_the_flow_that_is_built_in_is_taken() -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert settings(sasl_login_callback_handler_class=handler).unknown == ()


def test_sasl_without_a_mechanism_is_refused() -> None:
    assert "SCRAM-SHA-512" in str(refusal(security_protocol="SASL_SSL"))


def test_more_requests_in_flight_than_keep_order_are_refused() -> None:
    assert "enable.idempotence" in str(refusal(max_in_flight_requests_per_connection="6"))
    assert settings(max_in_flight_requests_per_connection="6", enable_idempotence="false")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "the password"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}, "the token"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}, "certificate is not checked"),
        ({"sasl.mechanism": "PLAIN"}, "no effect"),
        ({"ssl.truststore.location": "/ca.pem"}, "no effect"),
    ],
)
def test_risky_settings_log_warnings(options: dict[str, str], said: str) -> None:
    made = ClientSettings.from_options({"bootstrap.servers": "b:1", **options})
    (warning,) = made.warnings()
    assert said in warning


def test_safe_settings_log_no_warning() -> None:
    assert settings(security_protocol="SASL_SSL", sasl_mechanism="PLAIN").warnings() == ()


def test_no_secret_is_in_a_repr_or_in_an_error() -> None:
    secrets = {setting.name: CANARY for setting in SETTINGS if setting.secret}
    assert len(secrets) >= 10
    made = ClientSettings.from_options({"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", **secrets})
    assert CANARY not in repr(made)
    assert CANARY not in str(made)
    assert CANARY not in repr([made])
    assert "sasl_password=***" in repr(made)


def test_names_that_hold_secrets_are_declared_secret() -> None:
    suspicious = ("password", "secret", "jaas", "keystore.key", "passphrase")
    for setting in SETTINGS:
        if any(part in setting.name for part in suspicious):
            assert setting.secret, setting.name


def test_settings_are_equal_hashable_and_picklable() -> None:
    made = settings(sasl_password="pw", ssl_cipher_suites="A,B")
    copy = pickle.loads(pickle.dumps(made))
    assert copy == made
    assert hash(copy) == hash(made)
    assert made != settings(sasl_password="other", ssl_cipher_suites="A,B")


def test_the_level_is_that_of_the_codec() -> None:
    made = settings(compression_type="zstd", compression_zstd_level="7", compression_gzip_level="1")
    assert made.compression_level == 7
    assert settings(compression_type="snappy", compression_gzip_level="1").compression_level is None


def test_the_page_of_settings_has_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    assert settings_table() in page, (
        "paste the output of pykafka_wire.wire.settings.documentation.settings_table() into docs/settings.md"
    )
    for name in [*(setting.name for setting in SETTINGS), *IGNORED, *REJECTED]:
        assert f"| `kafka.{name}` |" in page
    assert "| `kafka.bootstrap.servers` | required |" in page


@pytest.mark.parametrize("name", IGNORED)
def test_what_is_listed_as_ignored_changes_nothing(name: str) -> None:
    base = {"bootstrap.servers": "b:9092"}
    made = ClientSettings.from_options({**base, name: "1"})
    assert made.ignored == (name,)
    assert replace(made, ignored=()) == ClientSettings.from_options(base)


@pytest.mark.parametrize("name", REJECTED)
def test_what_is_listed_as_refused_is_an_error_with_a_remedy(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        ClientSettings.from_options({"bootstrap.servers": "b:9092", name: "com.example.Mine"})
    assert caught.value.setting == name
    assert caught.value.remedy and "{" not in caught.value.text
