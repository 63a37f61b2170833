"""Subjects by Confluent's strategies, compared with those of Confluent's own client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from pykafka_wire.errors import OptionError
from pykafka_wire.options.typed_columns import TypedColumn
from pykafka_wire.sink.written_schema import WantedSchema
from pykafka_wire.values.registry.schemas import subject_of

JAVA = "io.confluent.kafka.serializers.subject."


@pytest.mark.parametrize(
    ("names", "theirs"),
    [
        (["TopicNameStrategy", f"{JAVA}TopicNameStrategy", "TOPIC", "Topic"], topic_subject_name_strategy),
        (["RecordNameStrategy", f"{JAVA}RecordNameStrategy", "RECORD"], record_subject_name_strategy),
        (
            ["TopicRecordNameStrategy", f"{JAVA}TopicRecordNameStrategy", "TOPIC_RECORD", "TopicRecord"],
            topic_record_subject_name_strategy,
        ),
    ],
)
def test_a_subject_is_the_one_that_confluents_client_takes(names: list[str], theirs: Callable[..., Any]) -> None:
    columns: tuple[Literal["key", "value"], ...] = ("key", "value")
    for column, field in zip(columns, (MessageField.KEY, MessageField.VALUE), strict=True):
        expected = theirs(SerializationContext("orders.v1", field), "com.example.Order")
        for name in names:
            assert subject_of(name, "orders.v1", column, record_name="com.example.Order") == expected


def test_a_reader_that_cannot_know_the_record_is_given_the_way_out() -> None:
    assert subject_of(" TopicNameStrategy", "orders", "value") == "orders-value"
    with pytest.raises(OptionError, match=r"value\.subject\.name\.strategy is RecordNameStrategy.*in valueSubject, as"):
        subject_of(f"{JAVA}RecordNameStrategy", "orders", "value")
    with pytest.raises(OptionError, match=r"keySubject=orders-com\.example\.Order"):
        subject_of("TopicRecordNameStrategy", "orders", "key")


@pytest.mark.parametrize("name", ["", "NameStrategy", "com.acme.OwnNames", "ASSOCIATED", "TopicNameStrategy2"])
def test_an_unknown_strategy_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(
        OptionError, match=r"use TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy, or name"
    ):
        subject_of(name, "orders", "value")


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (None, "shop.eu.Order"),
        ("Order", "shop.eu.Order"),
        ("shop.eu.Order", "shop.eu.Order"),
        ("Bill.Line", "shop.eu.Bill.Line"),
    ],
)
def test_a_written_protobuf_messages_subject_has_its_full_name(message: str | None, name: str) -> None:
    text = 'syntax = "proto3"; package shop.eu; message Order { int64 id = 1; } message Bill { message Line { int32 n = 1; } }'

    def subject(strategy: str, topic: str | None) -> str:
        column = TypedColumn(name="value", format="protobuf", schema=text, message=message, subject_strategy=strategy)
        return WantedSchema(column=column, type=pa.null(), registry=None, topic=topic, auto_register=False).subject()

    context = SerializationContext("orders", MessageField.VALUE)
    assert subject("RecordNameStrategy", "orders") == record_subject_name_strategy(context, name) == name
    assert subject("TopicRecordNameStrategy", "orders") == topic_record_subject_name_strategy(context, name)
    assert subject("RecordNameStrategy", None) == name
