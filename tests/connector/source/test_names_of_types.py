"""Which types ``valueTypes=*`` finds in a registry by the names of subjects."""

from __future__ import annotations

import json
from typing import Any

from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.reader_schema import find_reader_schemas
from tests.connector.values.scripted_registry import scripted_registry

ORDER = json.dumps({"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]})


def test_types_of_a_topic_whose_name_begins_like_the_topics_are_left_out() -> None:
    subjects = ["orders-shop.Order", "orders-eu-shop.Order", "orders-eu-value", "orders-value", "orders-key"]
    responses = {
        "/subjects?subjectPrefix=orders-": subjects,
        "/subjects/orders-shop.Order/versions/latest": {"id": 1, "schema": ORDER},
        "/schemas/ids/1": {"schema": ORDER},
    }
    with scripted_registry(responses) as url:
        options = parse_source_options(
            {
                "kafka.bootstrap.servers": "broker:9092",
                "subscribe": "orders",
                "valueFormat": "avro",
                "schema.registry.url": url,
                "value.subject.name.strategy": "TopicRecordNameStrategy",
                "valueTypes": "*",
            },
            "batch",
        )
        no_cluster: Any = None  # brokers are asked for subscribePattern only
        columns = options.typed_columns
        found = find_reader_schemas(columns, columns.typed, no_cluster, options.subscription)
    assert [(each.message, each.schema_id) for each in found["value"].types] == [("shop.Order", 1)]
