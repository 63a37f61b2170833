"""Options of typed columns: what they mean together, and what is refused with the way out."""

from __future__ import annotations

import pickle
import uuid
from typing import Any

import pytest

from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.options.typed_columns import TypedColumn, TypedColumns
from pykafka_wire.registry_settings import REGISTRY_SETTINGS
from tests.connector.parsed_options import BROKERS, ORDERS, batch, refusal, stream

REGISTRY = {"schema.registry.url": "http://registry:8081"}


def columns(**options: str) -> TypedColumns:
    return batch(**options).typed_columns


def refused(mode: Any = "batch", **options: str) -> str:
    return refusal((BROKERS if mode == "sink" else ORDERS) | options, mode)


def test_keys_and_values_are_binary_by_default() -> None:
    assert columns() == TypedColumns()
    assert columns().typed == ()


def test_a_column_of_each_format() -> None:
    found = columns(
        **REGISTRY, valueFormat="Protobuf", valueSubject="orders", valueMessage="shop.Order", onValueError="divert",
        keyFormat="json", keySchema=" id BIGINT ",
    )  # fmt: skip
    assert found.value == TypedColumn(
        name="value", format="protobuf", subject="orders", message="shop.Order", on_error="divert"
    )
    assert found.key == TypedColumn(name="key", format="json", schema="id BIGINT")
    assert found.typed == (found.key, found.value)
    assert (found.value.error_column, found.key.error_column) == ("valueError", None)
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_reader_s_schema_may_be_named_by_its_id() -> None:
    guid = uuid.uuid4()
    found = columns(
        **REGISTRY, valueFormat="avro", valueReaderSchemaId="7", keyFormat="protobuf", keyReaderSchemaId=str(guid)
    )
    assert (found.value.schema_id, found.key.schema_id) == (7, guid)


def test_the_checkpoint_s_schema_is_read_with_unless_the_newest_is_asked_for() -> None:
    assert not stream(**REGISTRY, valueFormat="avro").typed_columns.takes_latest_schema
    assert stream(**REGISTRY, valueFormat="avro", readerSchema="latest").typed_columns.takes_latest_schema
    assert "readerSchema is 'newest': use checkpoint or latest." in refused("stream", readerSchema="newest")


@pytest.mark.parametrize("option", ["schema.registry.auto.register", "auto.register.schemas"])
def test_a_write_may_register_schemas(option: str) -> None:
    assert columns(**REGISTRY, valueFormat="avro", **{option: "true"}).auto_register
    both = {"schema.registry.auto.register": "true", "auto.register.schemas": "false"}
    assert "have different values, and mean the same" in refused(**REGISTRY, valueFormat="avro", **both)


def test_what_describes_the_registry_is_kept_and_not_shown() -> None:
    given = REGISTRY | {
        "Basic.Auth.User.Info": "user:hidden",
        "schema.registry.basic.auth.credentials.source": "USER_INFO",
        "schema.registry.ssl.truststore.location": "/ca.pem",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'a.PlainLoginModule required username="alice" password="hidden";',
    }
    options = batch(valueFormat="avro", **{"kafka.security.protocol": "SASL_SSL"}, **given)
    assert options.typed_columns.registry_options == {name.lower(): value for name, value in given.items()}
    assert options.warnings == ()
    assert "hidden" not in repr(options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"valueFormat": "avroo"}, "valueFormat is 'avroo': did you mean avro?"),
        ({"keyFormat": "text"}, "keyFormat is 'text': did you mean string?"),
        ({"valueFormat": "xml"}, "valueFormat is 'xml': use binary, string, json, avro or protobuf."),
        ({"valueFormat": "avro"}, "set schema.registry.url for values of a schema registry, or valueSchema for values"),
        ({"keyFormat": "protobuf"}, "keyFormat=protobuf needs a schema: set schema.registry.url"),
        ({"valueSchema": "id INT"}, "valueSchema has no effect with valueFormat=binary: set valueFormat to json, avro or"),
        ({"valueFormat": "string", "valueSchema": "x"}, "valueSchema has no effect with valueFormat=string"),
        ({"keySubject": "s"}, "keySubject has no effect with keyFormat=binary: set keyFormat to json, avro or protobuf,"),
        (
            {"valueFormat": "avro", "valueSchema": "{}", "valueMessage": "M"},
            "valueMessage has no effect with valueFormat=avro: set valueFormat to protobuf, or remove valueMessage.",
        ),
        ({"valueFormat": "avro", "valueSchema": "{}", "valueSubject": "s"}, "set schema.registry.url, too."),
        ({"valueFormat": "avro", "valueSchema": "{}", "valueReaderSchemaId": "7"}, "set schema.registry.url, too."),
        (
            {**REGISTRY, "keyFormat": "avro", "keySchema": "{}", "keyReaderSchemaId": "7"},
            "keyReaderSchemaId names a schema of a schema registry: remove it, or keySchema.",
        ),
        ({**REGISTRY, "valueFormat": "avro", "valueReaderSchemaId": "v7"}, "valueReaderSchemaId is 'v7': give the id"),
        ({"valueReaderSchemaId": "7"}, "valueReaderSchemaId has no effect with valueFormat=binary: set valueFormat to avro"),
        ({"onValueError": "null"}, "onValueError has no effect with valueFormat=binary: set valueFormat to string, json,"),
        ({"valueFormat": "string", "onValueError": "skip"}, "onValueError is 'skip': use fail or null or divert."),
        (
            {"valueFormat": "json", "valueSchema": "a DATE", "valueTimeUnit": "minutes"},
            "valueTimeUnit is 'minutes': use days, seconds, milliseconds, microseconds or nanoseconds, for all fields or for one "
            "by its name, as in nanoseconds, born=days.",
        ),
        ({"valueFormat": "json", "valueSchema": "a DATE", "valueTimeUnit": "days, days"}, "valueTimeUnit is 'days, days'"),
        ({"valueFormat": "json", "valueSchema": "a DATE", "valueDecimalFormat": "hex"}, "use numeric or base64, for all"),
        ({"keyFormat": "string", "keyTimeUnit": "days"}, "keyTimeUnit has no effect with keyFormat=string: set keyFormat to json"),
        ({"bearer.auth.token": "t"}, "bearer.auth.token is set and schema.registry.url is not: set it, or remove"),
        ({"schema.registry.ssl.keystore.location": "k"}, "and schema.registry.url is not"),
        ({"schema.registry.uri": "u"}, "unknown option 'schema.registry.uri': did you mean schema.registry.url?"),
        ({"schema.registry.ssl.keystore.locaton": "k"}, "did you mean schema.registry.ssl.keystore.location?"),
        ({"valueformt": "json"}, "unknown option 'valueformt': did you mean valueFormat?"),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_meaning_is_refused_with_the_way_out(options: dict[str, str], text: str) -> None:
    assert text in refused(**options)


def test_units_are_for_all_fields_or_for_some_by_the_end_of_their_paths() -> None:
    units = "days, Microseconds, made=milliseconds, after.`a, b`.`c.d` = seconds"
    (value,) = batch(valueFormat="json", valueSchema="a DATE", valueTimeUnit=units).typed_columns.typed
    assert value.time_units == (
        ((), "days"),
        ((), "microseconds"),
        (("made",), "milliseconds"),
        (("after", "a, b", "c.d"), "seconds"),
    )


def test_what_has_no_effect_is_warned_of() -> None:
    (warning,) = batch(**REGISTRY, valueFormat="string").warnings
    assert warning == "The option schema.registry.url has no effect without valueFormat or keyFormat avro or protobuf"
    json = {"valueFormat": "json", "valueSchema": "id BIGINT"}
    (warning,) = batch(**REGISTRY, **json).warnings
    assert "schema.registry.url only shows which JSON values have a schema with rules without" in warning
    (warning,) = parse_sink_options({**BROKERS, **REGISTRY, "valueFormat": "json"}).warnings
    assert "schema.registry.url only refuses JSON for subjects with rules without" in warning
    (warning,) = batch(**REGISTRY, valueFormat="avro", valueSchema="{}", valueSubject="s").warnings
    assert warning == "The option valueSubject has no effect: values are read with valueSchema"
    (warning,) = batch(readerSchema="latest").warnings
    assert warning == "The option readerSchema applies to streaming reads, and a batch read ignores it"
    json = {"valueFormat": "json", "valueSchema": "id BIGINT", "onValueError": "divert"}
    (warning,) = batch(**json, columns="value.id, offset").warnings
    assert "onValueError=divert has the effect of null: columns does not select valueError" in warning
    (warning,) = batch(columns="offset", includeHeaders="true").warnings
    assert "includeHeaders has no effect: columns does not select headers" in warning
    for selected in ("value.id, valueError", "valueError", "offset"):
        assert batch(**json, columns=selected).warnings == ()
    assert batch(columns="headers", includeHeaders="true").warnings == ()
    (warning,) = parse_sink_options(BROKERS | {"onValueError": "null"}).warnings
    assert warning == "The option onValueError applies to reads, and a write ignores it"


def test_names_of_credentials_and_the_proxy_have_the_prefix_or_not() -> None:
    for name in REGISTRY_SETTINGS:
        for option in (name, f"schema.registry.{name}"):
            assert batch(**REGISTRY, valueFormat="avro", **{option: "x"}).warnings == ()
