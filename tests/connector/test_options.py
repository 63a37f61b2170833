"""Options: what each value becomes, and what each bad one says."""

from __future__ import annotations

import pickle
import re
import traceback
from functools import partial
from typing import Any

import pytest

from pykafka_wire.errors import OptionError
from pykafka_wire.options.option_table import OPTIONS
from pykafka_wire.options.sink import ExactlyOnceOptions, parse_sink_options
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.settings import SETTINGS
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.connector.parsed_options import BROKERS, ORDERS, batch, refusal, stream

# --- defaults


def test_defaults_of_a_stream() -> None:
    options = stream()
    assert options.subscription.topics == ("orders",)
    assert options.starting_offsets.kind == "latest"
    assert not options.include_headers
    assert options.fail_on_data_loss
    assert options.commit_offsets
    assert options.max_offsets_per_trigger is None
    assert options.min_offsets_per_trigger is None
    assert options.max_trigger_delay_ms == 15 * 60 * 1000
    assert options.min_partitions is None
    assert options.max_records_per_partition is None
    assert options.group_id is None
    assert options.group_id_prefix == "pykafka-wire"
    assert options.poll_timeout_ms == 120_000
    assert options.client.isolation_level == "read_uncommitted"


def test_defaults_of_a_batch_read() -> None:
    assert batch().starting_offsets.kind == "earliest"
    assert batch().ending_offsets.kind == "latest"


def test_defaults_of_a_write() -> None:
    options = parse_sink_options(BROKERS)
    assert options.topic is None
    assert options.codec is Codec.NONE
    assert options.client.acks in ("all", "-1", -1)
    assert options.client.enable_idempotence


def test_names_count_whatever_their_case() -> None:
    options = parse_source_options(
        {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "t", "maxoffsetsPERtrigger": "7", "kafka.GROUP.id": "g"},
        "stream",
    )
    assert options.client.bootstrap_servers == (("h", 1),)
    assert (options.max_offsets_per_trigger, options.group_id) == (7, "g")


def test_options_cross_to_the_executors() -> None:
    assert pickle.loads(pickle.dumps(stream(startingOffsets="earliest"))) == stream(startingOffsets="earliest")
    sink = parse_sink_options(BROKERS | {"topic": "t", "kafka.compression.type": "zstd"})
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_no_secret_shows_in_the_text_of_options() -> None:
    canary = "c4nary-pa55"
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="alice" password="{canary}";',
    }
    assert canary not in repr(stream(**options))
    assert canary not in repr(parse_sink_options(BROKERS | options))


# --- what must be there


@pytest.mark.parametrize("servers", [None, "", "  "])
@pytest.mark.parametrize("mode", ["stream", "batch", "sink"])
def test_no_bootstrap_servers(servers: str | None, mode: Any) -> None:
    options = {} if mode == "sink" else {"subscribe": "orders"}
    if servers is not None:
        options["kafka.bootstrap.servers"] = servers
    assert 'kafka.bootstrap.servers is missing: name at least one broker, as in .option("kafka.boot' in refusal(
        options, mode
    )


@pytest.mark.parametrize("servers", ["localhost", "localhost:", "localhost:port", "localhost:99999999"])
def test_malformed_bootstrap_servers(servers: str) -> None:
    assert "bootstrap.servers" in refusal({"kafka.bootstrap.servers": servers, "subscribe": "orders"})


def test_no_subscription() -> None:
    assert "no topic is named: use exactly one of subscribe, subscribePattern and assign" in refusal(BROKERS)


@pytest.mark.parametrize(
    ("first", "second"), [("subscribe", "subscribePattern"), ("subscribe", "assign"), ("subscribePattern", "assign")]
)
def test_two_subscriptions(first: str, second: str) -> None:
    text = refusal(BROKERS | {first: "a", second: '{"a":[0]}'})
    assert f"{first} and {second} are given: use exactly one of subscribe, subscribePattern and assign" in text


@pytest.mark.parametrize("name", ["subscribe", "subscribePattern", "assign"])
def test_an_empty_subscription(name: str) -> None:
    assert f"{name} is empty: name what to read." in refusal(BROKERS | {name: " "})


def test_commas_alone_name_no_topic() -> None:
    assert "subscribe names no topic" in refusal(BROKERS | {"subscribe": ",, ,"})


def test_topics_are_stripped_and_named_once() -> None:
    assert stream(subscribe=" b , a ,,b").subscription.topics == ("b", "a")


def test_a_pattern_is_searched_for() -> None:
    subscription = parse_source_options(BROKERS | {"subscribePattern": "ord.*s"}, "stream").subscription
    assert subscription.matches("orders") and subscription.matches("my-orders-2")
    assert not subscription.matches("payments")


def test_a_pattern_that_is_no_regular_expression() -> None:
    assert "subscribePattern '(' is not a regular expression" in refusal(BROKERS | {"subscribePattern": "("})


def test_assigned_partitions() -> None:
    subscription = parse_source_options(BROKERS | {"assign": '{"t":[1,0]}'}, "stream").subscription
    assert subscription.assigned == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert 'use JSON such as {"topic":[0,1]}' in refusal(BROKERS | {"assign": "t:0"})


# --- names


@pytest.mark.parametrize(
    "name", ["provider", "owner", "path", "option.subscribe", "checkpointLocation", "queryName", "serialization.format"]
)
def test_names_that_spark_adds_pass(name: str) -> None:
    stream(**{name: "x"})
    parse_sink_options(BROKERS | {name: "x"})


def test_an_unknown_kafka_setting_is_named_in_a_warning_and_passes() -> None:
    (warning,) = stream(**{"kafka.no.such.setting": "secret-value"}).warnings
    assert "no.such.setting" in warning
    assert "secret-value" not in warning


@pytest.mark.parametrize(
    "name",
    [
        "kafka.auto.offset.reset",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.key.serializer",
        "kafka.value.serializer",
        "kafka.enable.auto.commit",
        "kafka.interceptor.classes",
    ],
)
def test_settings_that_break_promises_are_refused_with_the_reason(name: str) -> None:
    assert re.search(f"{re.escape(name)} cannot be set here: .{{20}}", refusal(ORDERS | {name: "x"}))


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert f"{name} applies to batch reads only, since a stream has no end" in refusal(ORDERS | {name: "latest"})


# --- values


@pytest.mark.parametrize("name", ["includeHeaders", "failOnDataLoss", "commitOffsets"])
@pytest.mark.parametrize("value", ["yes", "1", "tru"])
def test_booleans_are_true_or_false(name: str, value: str) -> None:
    assert f"{name} is '{value}': use true or false." in refusal(ORDERS | {name: value})


def test_booleans_count_whatever_their_case() -> None:
    assert stream(includeHeaders="TRUE").include_headers
    assert not stream(failOnDataLoss=" False ").fail_on_data_loss


def test_membership_is_static_or_none_and_commits() -> None:
    assert not stream().static_membership
    assert not stream(groupMembership="none").static_membership
    assert stream(groupMembership="Static").static_membership
    assert "groupMembership is 'dynamic': use none or static." in refusal(ORDERS | {"groupMembership": "dynamic"})
    static = ORDERS | {"groupMembership": "static"}
    assert "commits nothing" in refusal(static | {"commitOffsets": "false"})
    sticky = {"kafka.partition.assignment.strategy": "org.apache.kafka.clients.consumer.StickyAssignor"}
    assert "range, roundrobin and cooperative-sticky" in refusal(static | sticky)
    assert "classic group protocol" in refusal(static | {"kafka.group.protocol": "consumer"})


NUMBERS = ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition"]


@pytest.mark.parametrize("name", [*NUMBERS, "kafkaConsumer.pollTimeoutMs"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "1_000", "٣"])
def test_numbers_are_above_zero(name: str, value: str) -> None:
    assert f"{name} is '{value}': use a whole number above zero." in refusal(ORDERS | {name: value})


def test_numbers() -> None:
    options = stream(**{name: str(10 + i) for i, name in enumerate(reversed(NUMBERS))})
    assert options.max_records_per_partition == 10
    assert options.min_partitions == 11
    assert options.min_offsets_per_trigger == 12
    assert options.max_offsets_per_trigger == 13


def test_a_minimum_above_the_maximum() -> None:
    text = refusal(ORDERS | {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"})
    assert "minOffsetsPerTrigger (11) is above maxOffsetsPerTrigger (10)" in text
    stream(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="10")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("15min", 900_000),
        ("2 h", 7_200_000),
        ("1d", 86_400_000),
        ("9", 9),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_the_age_of_topics_has_sparks_values() -> None:
    """SPARK-49442: -1, or above zero."""
    name = "partition.metadata.cache.ttl.ms"
    assert stream(**{name: "-1"}).topics_max_age_ms is None
    assert stream(**{name: "30000"}).topics_max_age_ms == 30_000
    for text in ("0", "-2", "1s"):
        assert f"{name} is '{text}': use a whole number of milliseconds above zero, or -1" in refusal(
            ORDERS | {name: text}
        )


@pytest.mark.parametrize("text", ["soon", "-1s", "1.5m", "10 parsecs"])
def test_malformed_durations(text: str) -> None:
    assert f"maxTriggerDelay is '{text}': use a number with a unit, such as 500ms" in refusal(
        ORDERS | {"maxTriggerDelay": text}
    )


@pytest.mark.parametrize(
    ("name", "codec"), [(c, c.upper()) for c in ("none", "gzip", "snappy", "lz4", "zstd")] + [("ZSTD", "ZSTD")]
)
def test_codecs(name: str, codec: str) -> None:
    assert parse_sink_options(BROKERS | {"kafka.compression.type": name}).codec is Codec[codec]


def test_an_unknown_codec_names_the_five() -> None:
    text = refusal(BROKERS | {"kafka.compression.type": "brotli"}, "sink")
    assert "compression.type" in text
    assert all(name in text for name in ("none", "gzip", "snappy", "lz4", "zstd"))


ONCE = {"topic": "t", "deliveryGuarantee": "exactly-once", "kafka.transactional.id": "x"}
DIVERT = BROKERS | {"onRecordError": "divert"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (DIVERT, "needs deadLetterTopic"),
        (BROKERS | {"deadLetterTopic": "dead"}, "has no effect with onRecordError=fail"),
        (BROKERS | {"onRecordError": "skip"}, "onRecordError is 'skip': use fail or divert"),
        (DIVERT | {"deadLetterTopic": "t", "topic": "t"}, "the topic that rejects the records"),
        (DIVERT | ONCE | {"deadLetterTopic": "dead"}, "cannot be combined with deliveryGuarantee=exactly-once"),
        (DIVERT | {"deadLetterTopic": "dead", "kafka.acks": "0"}, "with kafka.acks=0 there are none"),
    ],
)
def test_dead_letters_need_a_topic_of_their_own_and_responses(options: dict[str, str], said: str) -> None:
    assert said in refusal(options, "sink")


def test_dead_letters_are_off_unless_asked_for() -> None:
    assert parse_sink_options(BROKERS).dead_letter_topic is None
    assert parse_sink_options(DIVERT | {"deadLetterTopic": "dead"}).dead_letter_topic == "dead"


def test_an_empty_topic() -> None:
    assert "topic is empty" in refusal(BROKERS | {"topic": " "}, "sink")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.request.timeout.ms", "soon"),
        ("kafka.isolation.level", "read_some"),
        ("kafka.security.protocol", "CARRIER_PIGEON"),
        ("kafka.acks", "maybe"),
        ("kafka.max.request.size", "-4"),
    ],
)
def test_a_bad_kafka_setting_is_named(name: str, value: str) -> None:
    text = refusal(ORDERS | {name: value})
    assert f"{name} is " in text and "given as" not in text


def test_settings_that_contradict_each_other_have_their_prefix_in_the_error() -> None:
    text = refusal(ORDERS | {"kafka.acks": "0", "kafka.enable.idempotence": "true"})
    assert "kafka.acks is 0, and kafka.enable.idempotence=true needs" in text
    text = refusal(ORDERS | {"kafka.security.protocol": "SASL_SSL"})
    assert "kafka.security.protocol is SASL_SSL and kafka.sasl.mechanism is missing." in text


@pytest.mark.parametrize("value", ["ssl.truststore.location", "{acks}", "auth"])
def test_a_value_that_is_a_settings_name_is_shown_as_it_was_given(value: str) -> None:
    text = refusal(ORDERS | {"kafka.security.protocol": value})
    assert f"kafka.security.protocol is '{value}'. Use one of PLAINTEXT" in text


def test_a_remedy_names_settings_with_their_prefix() -> None:
    assert "use the kafka.ssl.truststore.* and kafka.ssl.keystore.* settings" in refusal(
        ORDERS | {"kafka.ssl.engine.factory.class": "com.example.Mine"}
    )
    (warning,) = stream(**{"kafka.ssl.truststore.location": "/sasl.mechanism"}).warnings
    assert warning == "kafka.ssl.* settings have no effect with kafka.security.protocol=PLAINTEXT"


def test_databricks_own_name_of_a_service_credential() -> None:
    options = {"databricks.serviceCredential": "Reader", "databricks.serviceCredential.scope": "api://kafka/.default"}
    for client in (stream(**options).client, parse_sink_options(BROKERS | options | {"topic": "t"}).client):
        assert (client.auth, client.cloud) == ("databricks:Reader", "databricks")
        assert client.sasl_oauthbearer_scope == "api://kafka/.default"
    text = refusal(ORDERS | options | {"kafka.auth": "azure"})
    assert "databricks.serviceCredential contradicts kafka.auth=azure: leave out one of the two." in text


def test_isolation_levels() -> None:
    for level in ("read_committed", "read_uncommitted"):
        assert stream(**{"kafka.isolation.level": level}).client.isolation_level == level
    assert "isolation.level is 'intentional'" in refusal(ORDERS | {"kafka.isolation.level": "intentional"})


# --- exactly once

EXACTLY_ONCE = BROKERS | ONCE


def test_exactly_once_is_off_unless_asked_for() -> None:
    assert parse_sink_options(BROKERS).exactly_once is None
    assert parse_sink_options(BROKERS | {"deliveryGuarantee": "at-least-once"}).exactly_once is None


def test_what_exactly_once_goes_by() -> None:
    assert parse_sink_options(EXACTLY_ONCE).exactly_once == ExactlyOnceOptions(
        transactional_id="x",
        marker_topic="t",
        fail_on_missing_marker=True,
        keep_on_marker_mismatch=False,
        max_bytes=None,
    )
    more = {
        "markerTopic": "m",
        "failOnMissingMarker": "false",
        "onMarkerMismatch": "skip",
        "maxTransactionBytes": "1000",
    }
    assert parse_sink_options(EXACTLY_ONCE | more).exactly_once == ExactlyOnceOptions(
        transactional_id="x",
        marker_topic="m",
        fail_on_missing_marker=False,
        keep_on_marker_mismatch=True,
        max_bytes=1000,
    )
    through_tasks = parse_sink_options(EXACTLY_ONCE | {"transactions": "tasks"}).exactly_once
    assert through_tasks is not None and through_tasks.through_tasks
    with pytest.raises(OptionError, match=r"transactions applies only to deliveryGuarantee=exactly-once"):
        parse_sink_options(BROKERS | {"topic": "t", "transactions": "tasks"})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"kafka.transactional.id": " "}, r"needs kafka\.transactional\.id: .* the same after every restart"),
        ({"kafka.acks": "1"}, r"needs kafka\.acks=all"),
        ({"kafka.enable.idempotence": "false"}, r"kafka\.enable\.idempotence=true"),
        ({"topic": None}, r"needs markerTopic if the topic comes from a column"),
        ({"deliveryGuarantee": "at-most-once"}, r"'at-most-once': use at-least-once or exactly-once"),
        ({"transactions": "executors"}, r"'executors': use driver or tasks"),
        (
            {"transactions": "tasks", "maxTransactionBytes": "5"},
            r"maxTransactionBytes applies only to transactions=driver",
        ),
        ({"deliveryGuarantee": None}, r"kafka\.transactional\.id applies only to deliveryGuarantee=exactly-once"),
    ],
)
def test_what_exactly_once_refuses(changed: dict[str, str | None], text: str) -> None:
    given = EXACTLY_ONCE | changed
    with pytest.raises(OptionError, match=text):
        parse_sink_options({name: value for name, value in given.items() if value is not None})


# --- the table


def test_every_option_of_the_table_is_taken_where_it_counts() -> None:
    values = {
        "startingOffsets": '{"orders":{"0":-2}}',
        "startingOffsetsByTimestamp": '{"orders":{"0":5}}',
        "startingTimestamp": "5",
        "endingOffsets": "latest",
        "endingOffsetsByTimestamp": '{"orders":{"0":5}}',
        "endingTimestamp": "5",
        "startingOffsetsByTimestampStrategy": "latest",
        "startingOffsetsByGroupStrategy": "latest",
        "includeHeaders": "true",
        "includeValueSchema": "true",
        "filterPushdown": "true",
        "dataLossLedger": "/ledger",
        "failOnDataLoss": "false",
        "maxTriggerDelay": "1s",
        "minOffsetsPerTopic": '{"orders": {"offsets": 5, "delay": "1m"}}',
        "partition.metadata.cache.ttl.ms": "30000",
        "taskMetrics": "statsd://localhost:8125",
        "kafka.group.id": "g",
        "groupIdPrefix": "p",
        "commitOffsets": "true",
        "groupMembership": "static",
        "kafka.isolation.level": "read_committed",
        "topic": "t",
        "deliveryGuarantee": "exactly-once",
        "kafka.transactional.id": "x",
        "transactions": "driver",
        "failOnMissingMarker": "false",
        "onMarkerMismatch": "skip",
        "onRecordError": "fail",
        "keyFormat": "protobuf",
        "valueFormat": "protobuf",
        "onKeyError": "null",
        "onValueError": "divert",
        "readerSchema": "latest",
        "connectTypes": "variant",
        "avroUnionFields": "number",
        "largeDecimals": "string",
        "timesAsNumbers": "true",
        "variantNumbers": "binary",
        "schema.registry.auto.register": "true",
    }
    # Those of which one excludes another.
    alone = {
        "subscribe",
        "subscribePattern",
        "assign",
        "microBatch",
        "deadLetterTopic",
        "kafka.bootstrap.servers",
        "kafka.*",
    }
    alone |= {
        "keyTypes",
        "valueTypes",
        "onOtherKeyType",
        "onOtherValueType",
        "keyReaderSchemaId",
        "valueReaderSchemaId",
    }
    alone |= {"schema.registry.ssl.*", "bearer.auth.token", "bearer.auth.credentials.source"}
    of_json = {f"{column}TimeUnit": "microseconds" for column in ("key", "value")}
    of_json |= {f"{column}DecimalFormat": "base64" for column in ("key", "value")}
    of_json |= {f"{column}ConnectEnvelope": "unwrap" for column in ("key", "value")}
    of_json |= {f"{column}ConnectSchemas": "[null]" for column in ("key", "value")}
    alone |= of_json.keys()
    for mode in ("stream", "batch"):
        typed = {
            "keyFormat": "json",
            "keySchema": "d DECIMAL(9,2)",
            "valueFormat": "json",
            "valueSchema": "at TIMESTAMP",
        }
        parse_source_options({**ORDERS, **typed, **of_json}, mode)  # type: ignore[arg-type]
    for letter, mode in (("S", "stream"), ("B", "batch"), ("W", "sink")):
        options = dict(BROKERS if mode == "sink" else ORDERS)
        for spec in OPTIONS:
            if letter in spec.where and spec.name not in alone:
                options[spec.name] = values.get(spec.name, "5")
        if mode == "sink":
            parse_sink_options(options)
        else:
            parse_source_options(options, mode)  # type: ignore[arg-type]


# --- secrets

#: Texts with a password, as users give them to this or that option, to the wrong one, too.
WITH_SECRETS = (
    "s3://KEY:SECRET@bucket/x",
    "s3://KEY:SEC/SECRET@bucket/x#no number",
    "checkpoint:s3://KEY:SECRET@bucket#x",
    "checkpoints:s3://KEY:SECRET@bucket",
    "statsd://user:SECRET@host:8125",
    "https://user:SECRET@host/?token=SECRET",
    "user:SECRET@host",
    "host:9092,user:SEC,SECRET@host:9092",
    '{"checkpoint":"s3://KEY:SECRET@bucket"}',
    "(s3://KEY:SECRET@bucket",
)


@pytest.mark.parametrize("name", [each.name for each in OPTIONS] + [f"kafka.{each.name}" for each in SETTINGS])
def test_no_error_shows_a_secret(name: str) -> None:
    topic = {} if name in ("subscribe", "subscribePattern", "assign") else {"subscribe": "t"}
    for value in WITH_SECRETS:
        given = BROKERS | {name: value}
        for parse in (
            partial(parse_source_options, topic | given, "batch"),
            partial(parse_source_options, topic | given, "stream"),
            partial(parse_sink_options, given),
        ):
            try:
                parse()
            except OptionError as error:
                assert "SECRET" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "name", ["startingOffsets", "taskMetrics", "kafka.bootstrap.servers", "kafka.acks", "minPartitions"]
)
def test_an_error_masks_what_is_before_an_at_sign_and_keeps_the_rest(name: str) -> None:
    with pytest.raises(OptionError, match=re.escape(f"{name} is 's3://***@bucket/x'")):
        parse_source_options(ORDERS | {name: "s3://KEY:SECRET@bucket/x"}, "stream")
