"""`auth`, Java's callback handlers and host names: what they imply, and what contradicts them."""

from __future__ import annotations

from typing import Any

import pytest

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.settings.cloud_credentials import cloud_of_host

MSK = "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com"
EVENT_HUBS = "orders.servicebus.windows.net"
GOOGLE = "bootstrap.orders.europe-west1.managedkafka.project.cloud.goog"


def settings(host: str = "b", **options: str) -> ClientSettings:
    names = {name.replace("_", "."): value for name, value in options.items()}
    return ClientSettings.from_options({"bootstrap.servers": f"{host}:9098", **names})


def refusal(host: str = "b", **options: str) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        settings(host, **options)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("host", "cloud"),
    [
        (MSK, "aws"),
        ("boot-abc123.c2.kafka-serverless.us-east-1.amazonaws.com", "aws"),
        ("b-1.orders.abc123.c2.kafka.cn-north-1.amazonaws.com.cn", "aws"),
        (EVENT_HUBS, "azure"),
        ("orders.servicebus.usgovcloudapi.net", "azure"),
        (GOOGLE, "google"),
        ("pkc-123.eu-west-1.aws.confluent.cloud", None),
        ("orders.servicebus.windows.net.example.com", None),
        ("kafka.amazonaws.com", None),
        ("localhost", None),
    ],
)
def test_host_names_tell_the_service(host: str, cloud: str | None) -> None:
    assert cloud_of_host(host) == cloud


@pytest.mark.parametrize(
    ("auth", "host", "mechanism", "cloud"),
    [
        ("aws-msk-iam", MSK, "AWS_MSK_IAM", "aws"),
        ("AWS-MSK-IAM", "vpce-1.example.com", "AWS_MSK_IAM", "aws"),
        ("azure", EVENT_HUBS, "OAUTHBEARER", "azure"),
        ("google", GOOGLE, "OAUTHBEARER", "google"),
        ("databricks:Reader", MSK, "AWS_MSK_IAM", "databricks"),
        ("databricks:Reader", EVENT_HUBS, "OAUTHBEARER", "databricks"),
        ("Databricks: Reader", GOOGLE, "OAUTHBEARER", "databricks"),
        # The runtime tells, when a connection is opened.
        ("databricks:Reader", "b", None, "databricks"),
    ],
)
def test_auth_sets_protocol_and_mechanism(auth: str, host: str, mechanism: str | None, cloud: str) -> None:
    made = settings(host, auth=auth)
    assert (made.security_protocol, made.sasl_mechanism, made.cloud) == ("SASL_SSL", mechanism, cloud)
    assert made.warnings() == ()


def test_what_agrees_with_auth_may_be_given_too() -> None:
    made = settings(MSK, auth="aws-msk-iam", sasl_mechanism="OAUTHBEARER", security_protocol="SASL_SSL")
    assert (made.sasl_mechanism, made.cloud) == ("OAUTHBEARER", "aws")
    plaintext = settings(MSK, auth="aws-msk-iam", security_protocol="SASL_PLAINTEXT")
    assert "anyone who can read the network traffic can read the signed request" in plaintext.warnings()[0]


@pytest.mark.parametrize(
    ("host", "options", "said"),
    [
        (EVENT_HUBS, {"auth": "aws-msk-iam"}, "auth is aws-msk-iam, and bootstrap.servers names orders.servicebus"),
        (MSK, {"auth": "google"}, "of Amazon MSK. Use auth=aws-msk-iam"),
        (MSK, {"auth": "aws-msk-iam", "security_protocol": "PLAINTEXT"}, "security.protocol is PLAINTEXT"),
        (MSK, {"auth": "aws-msk-iam", "sasl_mechanism": "PLAIN"}, "sasl.mechanism is PLAIN"),
        (EVENT_HUBS, {"auth": "databricks:x", "sasl_mechanism": "AWS_MSK_IAM"}, "sasl.mechanism is AWS_MSK_IAM"),
        (EVENT_HUBS, {"auth": "azure", "sasl_username": "$ConnectionString"}, "sasl.username gives other credentials"),
        ("b", {"auth": "google", "sasl_oauthbearer_token_provider": "a:b"}, "sasl.oauthbearer.token.provider gives"),
        ("b", {"auth": "azure", "sasl_login_callback_handler_class": "x.GcpLoginCallbackHandler"}, "auth is azure, and"),
        (
            "b",
            {"sasl_mechanism": "PLAIN", "sasl_client_callback_handler_class": "x.IAMClientCallbackHandler"},
            "which is for sasl.mechanism=AWS_MSK_IAM, and sasl.mechanism is PLAIN",
        ),
        ("b", {"auth": "aws"}, "Use aws-msk-iam, azure, google, or databricks:NAME"),
        ("b", {"auth": "databricks:"}, "Use aws-msk-iam, azure, google, or databricks:NAME"),
    ],
)  # fmt: skip
def test_a_contradiction_is_an_error(host: str, options: dict[str, str], said: str) -> None:
    assert said in refusal(host, **options).text


def test_a_spark_user_reads_of_kafka_auth() -> None:
    text = refusal(MSK, auth="google").with_prefix("kafka.").text
    assert text.startswith("kafka.auth is google, and kafka.bootstrap.servers names")
    assert "Use kafka.auth=aws-msk-iam" in text


SPRING = "com.azure.spring.cloud.service.implementation.kafka"
KAFKA = "kafkashaded.org.apache.kafka.common.security.oauthbearer"
MSK_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"


@pytest.mark.parametrize(
    ("options", "cloud"),
    [
        ({"sasl_mechanism": "AWS_MSK_IAM", "sasl_client_callback_handler_class": MSK_HANDLER}, "aws"),
        # Databricks puts a prefix before the packages.
        ({"sasl_mechanism": "AWS_MSK_IAM", "sasl_client_callback_handler_class": f"shadedmskiam.{MSK_HANDLER}"}, "aws"),
        (
            {"sasl_login_callback_handler_class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"},
            "aws",
        ),
        ({"sasl_login_callback_handler_class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"}, "google"),
        ({"sasl_login_callback_handler_class": f"{SPRING}.KafkaOAuth2AuthenticateCallbackHandler"}, "azure"),
        ({"sasl_login_callback_handler_class": f"{KAFKA}.secured.OAuthBearerLoginCallbackHandler"}, None),
        ({"sasl_client_callback_handler_class": f"{KAFKA}.internals.OAuthBearerSaslClientCallbackHandler"}, None),
    ],
)  # fmt: skip
def test_javas_callback_handlers_are_recognised(options: dict[str, Any], cloud: str | None) -> None:
    given = {"sasl_mechanism": "OAUTHBEARER", "security_protocol": "SASL_SSL", **options}
    assert settings(**given).cloud == cloud


def test_a_handler_of_ones_own_is_refused_with_what_to_set_instead() -> None:
    error = refusal(sasl_client_callback_handler_class="com.example.Mine")
    assert error.setting == "sasl.client.callback.handler.class"
    assert "sasl.oauthbearer.token.provider" in error.text
    assert "kafka.auth=azure" in error.with_prefix("kafka.").text
