"""A Debezium topic applied to a Delta table by examples/cdc_to_delta.py: JSON and Avro, over restarts and a replay."""

from __future__ import annotations

from collections.abc import Callable
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
Encode = Callable[[Event], tuple[bytes | None, bytes | None]]


def send(outside: Any, name: str, events: list[Event], encode: Encode) -> None:
    records = []
    for event in events:
        key, value = encode(event)
        records.append(outside.Record(key=key, value=value, partition=event.key["id"] % 2, headers=event.headers))
    outside.produce(name, records)


def rows_of(spark: Any, table: str) -> dict[int, dict[str, Any]]:
    rows = [row.asDict() for row in spark.read.format("delta").load(table).drop("_offset").collect()]
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


def changed_rows(spark: Any, table: str) -> int:
    """How many rows the last commit of the table changed."""
    (last,) = spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").collect()
    metrics = last.operationMetrics
    return sum(int(metrics.get(f"numTargetRows{done}", 0)) for done in ("Inserted", "Updated", "Deleted"))


def apply_over_a_crash(
    spark: Any, cdc: Any, changes: Callable[[], Any], table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends the query between the commit of the table and that of the checkpoint, and starts it again."""
    apply = cdc.apply

    def apply_and_crash(batch: Any, table: str) -> None:
        apply(batch, table)
        assert changed_rows(spark, table) > 0
        raise RuntimeError("killed between the two commits")

    monkeypatch.setattr(cdc, "apply", apply_and_crash)
    query = cdc.start(changes(), table)
    with pytest.raises(Exception, match="killed between the two commits"):
        query.awaitTermination(120)
    after_crash = spark.read.format("delta").load(table).sort("id").collect()
    monkeypatch.setattr(cdc, "apply", apply)
    assert cdc.start(changes(), table).awaitTermination(120)
    assert changed_rows(spark, table) == 0
    assert spark.read.format("delta").load(table).sort("id").collect() == after_crash


def test_json_changes_without_schemas_and_with(
    kafka: Any, topic: Any, spark: Any, outside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, table, database = topic(2), str(tmp_path / "customers"), Database()
    cdc = example("cdc_to_delta")

    def changes() -> Any:
        return cdc.read_json(spark, kafka.bootstrap_servers, name, "id BIGINT", COLUMNS)

    first_changes(database)
    send(outside, name, database.taken(), lambda event: (json_bytes(event.key), json_bytes(event.value)))
    assert cdc.start(changes(), table).awaitTermination(120)
    assert rows_of(spark, table) == database.rows
    more_changes(database)

    def with_schemas(event: Event) -> tuple[bytes | None, bytes | None]:
        return json_bytes(event.key, schemas=True), json_bytes(event.value, schemas=True)

    send(outside, name, database.taken(), with_schemas)
    apply_over_a_crash(spark, cdc, changes, table, monkeypatch)
    assert rows_of(spark, table) == database.rows


def test_avro_changes_with_a_new_column_in_the_middle(
    kafka: Any, topic: Any, spark: Any, outside: Any, registry_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        return cdc.read_avro(spark, kafka.bootstrap_servers, name, registry_url)

    first_changes(database)
    send(outside, name, database.taken(), encoder(value_schema()))
    assert cdc.start(changes(), table).awaitTermination(120)
    assert rows_of(spark, table) == database.rows
    more_changes(database)
    database.create(row(13, "with a column that the table lacks", city="Ulm"))
    city = {"name": "city", "type": ["null", "string"], "default": None}
    send(outside, name, database.taken(), encoder(value_schema(city)))
    apply_over_a_crash(spark, cdc, changes, table, monkeypatch)
    assert rows_of(spark, table) == {number: {"city": None} | found for number, found in database.rows.items()}


def test_what_is_no_change_of_a_row_fails_the_query_with_its_offset(
    kafka: Any, topic: Any, spark: Any, outside: Any, tmp_path: Path
) -> None:
    name, database = topic(2), Database()
    cdc = example("cdc_to_delta")
    database.create(row(2, "good"))
    (event,) = database.taken()
    truncated = Event(key={"id": 4}, value={"before": None, "after": None, "op": "t"})
    send(outside, name, [event, truncated], lambda each: (json_bytes(each.key), json_bytes(each.value)))
    changes = cdc.read_json(spark, kafka.bootstrap_servers, name, "id BIGINT", COLUMNS)
    with pytest.raises(Exception, match="offset 1 is no change of a row: its op is t"):
        cdc.start(changes, str(tmp_path / "customers")).awaitTermination(120)
