"""A Debezium topic applied to a Delta table by examples/cdc_to_delta.py: JSON and Avro, over restarts and a replay."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.connector.debezium import (
    KEY_SCHEMA,
    Database,
    Event,
    first_changes,
    json_bytes,
    more_changes,
    row,
    value_schema,
)
from tests.connector.test_examples_in_session import example

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]
COLUMNS = "id BIGINT, name STRING, email STRING, updated_at BIGINT"
DEADLINE_S = 300
Encode = Callable[[Event], tuple[bytes | None, bytes | None]]


def send(outside: Any, name: str, events: list[Event], encode: Encode) -> None:
    records = []
    for event in events:
        key, value = encode(event)
        records.append(outside.Record(key=key, value=value, partition=event.key["id"] % 2, headers=event.headers))
    outside.produce(name, records)


def rows_of(spark: Any, table: str) -> dict[int, dict[str, Any]]:
    columns = spark.read.format("delta").load(table)
    columns = columns.select(*(name for name in columns.columns if not name.startswith("_kafka_")))
    rows = [row.asDict() for row in columns.collect()]
    for values in rows:
        # Avro's schema says that they are times; JSON without a schema has Debezium's microseconds.
        if isinstance(time := values.get("updated_at"), datetime):
            values["updated_at"] = (time - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


def apply(changes: Any, spark: Any, table: str) -> None:
    query = changes.start(spark, once=True)
    assert query.awaitTermination(DEADLINE_S)
    assert all(each.error is None for each in changes.statuses.values())


def forget_commits(table: str) -> None:
    """As if the query had ended between the commit of the table and that of the checkpoint."""
    path = Path(table)
    for each in (path.parent / f"_checkpoint_{path.name}" / "commits").iterdir():
        each.unlink()


def test_json_changes_without_schemas_and_with(
    kafka: Any, topic: Any, spark: Any, outside: Any, tmp_path: Path
) -> None:
    name, table, database = topic(2), str(tmp_path / "customers"), Database()
    cdc = example("cdc_to_delta")

    def changes() -> Any:
        return cdc.changes(kafka.bootstrap_servers, name, table, registry=None, key="id BIGINT", columns=COLUMNS)

    first_changes(database)
    send(outside, name, database.taken(), lambda event: (json_bytes(event.key), json_bytes(event.value)))
    apply(changes(), spark, table)
    assert rows_of(spark, table) == database.rows
    forget_commits(table)
    more_changes(database)

    def with_schemas(event: Event) -> tuple[bytes | None, bytes | None]:
        return json_bytes(event.key, schemas=True), json_bytes(event.value, schemas=True)

    send(outside, name, database.taken(), with_schemas)
    apply(changes(), spark, table)
    assert rows_of(spark, table) == database.rows


def test_avro_changes_with_a_new_column_in_the_middle(
    kafka: Any, topic: Any, spark: Any, outside: Any, registry_url: str, tmp_path: Path
) -> None:
    name, table, database = topic(2), str(tmp_path / "customers"), Database()
    cdc = example("cdc_to_delta")
    client = SchemaRegistryClient({"url": registry_url})
    key = AvroSerializer(client, KEY_SCHEMA)

    def encoder(schema: str) -> Encode:
        value = AvroSerializer(client, schema)

        def encode(event: Event) -> tuple[bytes | None, bytes | None]:
            return (
                key(event.key, SerializationContext(name, MessageField.KEY)),
                value(event.value, SerializationContext(name, MessageField.VALUE)),
            )

        return encode

    def changes() -> Any:
        return cdc.changes(kafka.bootstrap_servers, name, table, registry=registry_url, key=None, columns=None)

    first_changes(database)
    send(outside, name, database.taken(), encoder(value_schema()))
    apply(changes(), spark, table)
    assert rows_of(spark, table) == database.rows
    forget_commits(table)
    more_changes(database)
    database.create(row(13, "with a column that the table lacks", city="Ulm"))
    city = {"name": "city", "type": ["null", "string"], "default": None}
    send(outside, name, database.taken(), encoder(value_schema(city)))
    apply(changes(), spark, table)
    assert rows_of(spark, table) == {number: {"city": None} | found for number, found in database.rows.items()}
