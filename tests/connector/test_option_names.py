"""Option names: which are refused, with what instead, and which are only warned of."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pykafka_wire import PykafkaWireDataSource
from pykafka_wire.errors import OptionError
from pykafka_wire.options.parsing import log_warnings
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.options.source import parse_source_options

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}


def warnings(mode: Any, **given: str) -> tuple[str, ...]:
    if mode == "sink":
        return parse_sink_options(BROKERS | given).warnings
    return parse_source_options(BROKERS | {"subscribe": "orders"} | given, mode).warnings


def refusal(mode: Any, **given: str) -> str:
    with pytest.raises(OptionError) as raised:
        warnings(mode, **given)
    return raised.value.message


@pytest.mark.parametrize(
    ("mode", "name", "meant"),
    [
        ("stream", "startingOffset", "startingOffsets"),
        ("stream", "topics", "subscribe"),
        ("batch", "numPartitions", "minPartitions"),
        ("batch", "brokers", "kafka.bootstrap.servers"),
        ("batch", "groupId", "kafka.group.id"),
        ("stream", "bootstrapServers", "kafka.bootstrap.servers"),
        ("stream", "maxOffsetPerTriger", "maxOffsetsPerTrigger"),
        ("sink", "topics", "topic"),
        ("sink", "compressionType", "kafka.compression.type"),
    ],
)
def test_a_name_near_one_that_applies_is_refused_with_it(mode: str, name: str, meant: str) -> None:
    assert refusal(mode, **{name: "1"}) == f"unknown option {name!r}: did you mean {meant}?"


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("stream", "stopGracefullyOnShutdown"),
        ("stream", "zookeeper.connect"),
        ("batch", "inferSchema"),
        ("batch", "header"),
        ("sink", "numPartitions"),
        ("sink", "asyncProgressTrackingEnabled"),
    ],
)
def test_a_name_like_none_of_ours_is_ignored_with_a_warning(mode: str, name: str) -> None:
    (warning,) = warnings(mode, **{name: "secret"})
    assert warning.startswith(f"The option {name} is unknown, and a ")
    assert "secret" not in warning


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("stream", "group.id"),
        ("stream", "security.protocol"),
        ("batch", "sasl.mechanism"),
        ("sink", "acks"),
        ("sink", "Linger.MS"),
    ],
)
def test_a_kafka_setting_without_its_prefix_is_refused_with_the_prefix(mode: str, name: str) -> None:
    assert refusal(mode, **{name: "x"}) == (
        f"unknown option {name!r}: Kafka's settings need the prefix kafka., so use kafka.{name.lower()}."
    )


def test_a_kafka_setting_without_its_prefix_that_is_not_supported_says_what_is() -> None:
    assert refusal("stream", **{"ssl.engine.factory.class": "x"}) == (
        "unknown option 'ssl.engine.factory.class': kafka.ssl.engine.factory.class is not supported either. It names a Java class, "
        "which this client cannot run: use the kafka.ssl.truststore.* and kafka.ssl.keystore.* settings."
    )


def test_where_reading_starts_is_no_setting_of_kafkas() -> None:
    assert refusal("stream", **{"auto.offset.reset": "earliest"}).startswith(
        "unknown option 'auto.offset.reset': use startingOffsets;"
    )


@pytest.mark.parametrize(
    ("mode", "name", "why"),
    [
        ("stream", "value.deserializer", "values are binary"),
        ("stream", "enable.auto.commit", "commitOffsets=false turns that off"),
        ("sink", "key.serializer", "cast the column before the write"),
        ("sink", "group.id", "kafka.group.id applies to reads, not to a write"),
        ("batch", "acks", "kafka.acks applies to writes, not to a batch read"),
        ("batch", "max.poll.records", "responses are decoded whole"),
    ],
)
def test_a_kafka_setting_that_changes_nothing_is_ignored_with_the_reason(mode: str, name: str, why: str) -> None:
    (warning,) = warnings(mode, **{name: "x"})
    assert warning.startswith(f"The option {name} is ignored: ") and why in warning


@pytest.mark.parametrize(
    ("mode", "given", "said"),
    [
        (
            "sink",
            {"startingOffsets": "earliest"},
            "The option startingOffsets applies to reads, and a write ignores it",
        ),
        ("sink", {"subscribe": "orders"}, "a write ignores it (topic names the topic of a write)"),
        ("stream", {"topic": "orders"}, "a streaming read ignores it (subscribe names the topics of a read)"),
        (
            "batch",
            {"maxOffsetsPerTrigger": "5"},
            "maxOffsetsPerTrigger applies to streaming reads, and a batch read ignores",
        ),
        ("stream", {"filterPushdown": "true"}, "applies to batch reads, and a streaming read ignores it"),
        ("stream", {"kafka.transactional.id": "x"}, "kafka.transactional.id applies to writes, and a streaming read"),
        (
            "stream",
            {"kafka.acks": "1"},
            "These settings apply to writes, and a streaming read ignores them: kafka.acks",
        ),
        ("sink", {"kafka.group.id": "g"}, "kafka.group.id applies to reads, and a write ignores it"),
    ],
)
def test_an_option_of_another_mode_is_ignored_with_a_warning_that_names_the_mode(
    mode: str, given: dict[str, str], said: str
) -> None:
    (warning,) = warnings(mode, **given)
    assert said in warning


def test_an_option_of_ours_has_no_prefix() -> None:
    text = refusal("stream", **{"kafka.startingOffsets": "earliest"})
    assert (
        text
        == "unknown option 'kafka.startingOffsets': it is no setting of Kafka's. Use startingOffsets, without kafka."
    )


def test_a_topic_in_place_of_a_subscription() -> None:
    with pytest.raises(
        OptionError, match=r"no topic is named: use exactly one of .* in place of topic, which applies to writes"
    ):
        parse_source_options(BROKERS | {"topic": "orders"}, "batch")


@pytest.mark.parametrize("given", [{}, {"provider": "pykafka-wire", "owner": "me"}])
def test_a_read_without_any_option_may_be_a_table_of_the_catalog(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"CREATE TABLE: .* CREATE TEMPORARY VIEW .* SELECT … FROM t WITH \("):
        parse_source_options(given, "batch")
    with pytest.raises(OptionError, match=r'"host:9092"\)\.$'):
        parse_source_options({"subscribe": "orders"}, "batch")


def test_a_table_that_is_created_with_options_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        PykafkaWireDataSource({"provider": "pykafka-wire", "owner": "me"}).schema()
        assert not caplog.records
        PykafkaWireDataSource({"subscribe": "orders", "option.subscribe": "orders", "owner": "me"}).schema()
    assert "Spark passes the OPTIONS of a table to no Python data source" in caplog.text


def test_settings_that_are_not_safe_are_among_the_warnings_with_their_prefix() -> None:
    (warning,) = warnings("batch", **{"kafka.sasl.mechanism": "PLAIN"})
    assert warning == "kafka.sasl.* settings have no effect with kafka.security.protocol=PLAINTEXT"


def test_a_warning_is_logged_once_in_a_process(caplog: pytest.LogCaptureFixture) -> None:
    found = warnings("batch", **{"kafka.once.in.a.process": "1"})
    with caplog.at_level(logging.WARNING):
        log_warnings(found)
        log_warnings(found)
    assert [record.getMessage() for record in caplog.records] == list(found)
