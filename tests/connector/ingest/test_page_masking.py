"""What the page of an ingest may show."""

from __future__ import annotations

import pytest

from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.errors import ERRORS
from pykafka_wire.ingest.watching.masking import masked_settings, without_values
from pykafka_wire.ingest.watching.page import value_text

SECRETS = {
    "kafka": {
        "bootstrap.servers": "broker:9092",
        "sasl.jaas.config": 'x required username="u" password="hush";',
        "kafka.ssl.key.password": "hush",
        "ssl.keystore.key": "-----BEGIN hush",
        "sasl.oauthbearer.client.credentials.client.secret": "hush",
        "sasl.password": "env:KAFKA_PASSWORD",
        "security.protocol": "SASL_SSL",
    },
    "registry": "https://user:hush@registry:8081",
    "registry_options": {
        "basic.auth.user.info": "user:hush",
        "bearer.auth.token": "hush",
        "schema.registry.ssl.keystore.password": "hush",
    },
}


CONSTRAINT = (
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint positive (amount > 0) violated by row with values:"
)
MERGE = "[DELTA_FAILED_TO_MERGE_FIELDS] Failed to merge fields 'id' and 'id'"


def test_settings_are_shown_without_their_secrets() -> None:
    table = Table(
        topic="a",
        options={"kafka.sasl.jaas.config": "hush", "valueMessage": "Row"},
        properties={"x.access.key": "hush"},
    )
    shown = masked_settings(
        Settings(checkpoint="/c", topics="a", into="s3a://key:hush@bucket/x", tables=(table,), **SECRETS)
    )  # type: ignore[arg-type]
    assert not [text for text in shown.values() if "hush" in text]
    assert shown["kafka.security.protocol"] == "SASL_SSL"
    assert shown["kafka.sasl.password"] == "env:KAFKA_PASSWORD", (
        "a reference is no secret, and tells where it comes from"
    )
    assert shown["kafka.sasl.jaas.config"] == shown["registry_options.basic.auth.user.info"] == "***"
    assert shown["registry"] == "https://***@registry:8081"
    assert shown["table a: options.valueMessage"] == "Row"
    assert "max_rows" not in shown, "only what was set"


def test_settings_of_catalogs_and_object_stores_are_shown_where_they_are_known_to_be_harmless() -> None:
    harmless = {
        "catalog": {"type": "rest", "warehouse": "s3://lake/shop", "s3.region": "eu-north-1", "s3.endpoint": "http://store:9000"},
        "storage": {"AWS_REGION": "eu-north-1", "AWS_ENDPOINT_URL": "http://store:9000", "AWS_ALLOW_HTTP": "true"},
    }  # fmt: skip
    names = {
        "catalog": (
            "adls.account-key", "adls.connection-string", "header.Authorization", "header.X-Api-Key", "s3.access-key-id",
            "credential", "header.uri", "auth", "gcs.oauth2.token", "whatever-comes-next",
        ),
        "storage": (
            "access-key", "apikey", "AZURE_STORAGE_CONNECTION_STRING", "AWS_ACCESS_KEY_ID", "aws_sse_customer_key_base64",
            "GOOGLE_SERVICE_ACCOUNT_KEY", "account_key",
        ),
    }  # fmt: skip
    given = {place: harmless[place] | dict.fromkeys(names[place], "hush") for place in names}
    given["catalog"] |= {
        "uri": "postgresql://u:hush@db/catalog?sslpassword=hush",
        "s3.secret-access-key": "env:LAKE_SECRET",
    }
    shown = masked_settings(Settings(checkpoint="/c", topics="a", into="lake.shop", kafka={}, **given))  # type: ignore[arg-type]
    assert not [name for name, text in shown.items() if "hush" in text]
    assert {
        name: shown[name] for place in harmless for name in shown if name in {f"{place}.{e}" for e in harmless[place]}
    } == {f"{place}.{name}": text for place, texts in harmless.items() for name, text in texts.items()}
    assert shown["catalog.s3.secret-access-key"] == "env:LAKE_SECRET"
    assert shown["catalog.uri"] == "postgresql://***@db/catalog?***"
    options = {
        "adls.connection-string": "hush",
        "header.X": "hush",
        "fs.s3a.api-key": "hush",
        "fs.azure.account.key": "hush",
    }
    table = Table(topic="a", options=options, properties=options)
    shown = masked_settings(Settings(checkpoint="/c", topics="a", into="/x", tables=(table,), kafka={}))  # type: ignore[arg-type]
    assert not [name for name, text in shown.items() if "hush" in text]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            CONSTRAINT + "\n - amount : -5",
            CONSTRAINT + "***",
        ),
        (
            """[CAST_INVALID_INPUT] The value 'se cret' of the type "STRING" cannot be cast to "INT" because it is malformed.""",
            """[CAST_INVALID_INPUT] The value *** of the type "STRING" cannot be cast to "INT" because it is malformed.""",
        ),
        (
            "[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION] The value 12345.6 cannot be represented as Decimal(3, 1).",
            "[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION] The value *** cannot be represented as Decimal(3, 1).",
        ),
        (MERGE, MERGE),
    ],
)  # fmt: skip
def test_errors_are_shown_without_values_of_records(text: str, shown: str) -> None:
    assert without_values(text, ERRORS) == shown


@pytest.mark.parametrize(
    ("data", "size", "text"),
    [
        (b'{"a": 1}', 8, '{"a": 1}'),
        ("gr\u00fc\u00df".encode(), 6, "gr\u00fc\u00df"),
        ("gr\u00fc\u00df".encode()[:5], 900, "gr\u00fc … (900 bytes in all)"),
        (b"\x00\x00\x00\x00\x07ab", 7, "schema 7, then 61 62"),
        (b"\xff\x00", 2, "ff 00"),
        (b"", 0, ""),
    ],
)
def test_a_value_is_shown_as_far_as_it_can_be_read(data: bytes, size: int, text: str) -> None:
    assert value_text(data, size) == text
