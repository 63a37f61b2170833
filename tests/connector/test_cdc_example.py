"""A Debezium topic applied to a Delta table by examples/cdc_to_delta.py: JSON and Avro, over restarts and a replay."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.types import StructType

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
    rows = [row.asDict() for row in spark.read.format("delta").load(table).drop("_partition", "_offset").collect()]
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


def changed_rows(spark: Any, table: str) -> list[int]:
    """How many rows each MERGE into the table changed."""
    merges = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").where("operation = 'MERGE'").sort("version").collect()
    changes = ("Inserted", "Updated", "Deleted")
    return [sum(int(merge.operationMetrics.get(f"numTargetRows{each}", 0)) for each in changes) for merge in merges]


def start_and_crash(cdc: Any, changes: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query ends between the commit of the table and that of the checkpoint."""
    apply = cdc.apply

    def apply_and_crash(batch: Any, table: str) -> None:
        apply(batch, table)
        raise RuntimeError("killed between the two commits")

    with monkeypatch.context() as patched:
        patched.setattr(cdc, "apply", apply_and_crash)
        with pytest.raises(Exception, match="killed between the two commits"):
            cdc.start(changes, table).awaitTermination(DEADLINE_S)


def assert_applied_again_without_effect(spark: Any, table: str) -> None:
    first, again, further = changed_rows(spark, table)
    assert first > 0 and again == 0 and further > 0


def test_json_changes_without_schemas_and_with(
    kafka: Any, topic: Any, spark: Any, outside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, table, database = topic(2), str(tmp_path / "customers"), Database()
    cdc = example("cdc_to_delta")

    def changes() -> Any:
        return cdc.read_json(spark, kafka.bootstrap_servers, name, "id BIGINT", COLUMNS)

    first_changes(database)
    send(outside, name, database.taken(), lambda event: (json_bytes(event.key), json_bytes(event.value)))
    start_and_crash(cdc, changes(), table, monkeypatch)
    assert rows_of(spark, table) == database.rows
    more_changes(database)

    def with_schemas(event: Event) -> tuple[bytes | None, bytes | None]:
        return json_bytes(event.key, schemas=True), json_bytes(event.value, schemas=True)

    send(outside, name, database.taken(), with_schemas)
    assert cdc.start(changes(), table).awaitTermination(DEADLINE_S)
    assert rows_of(spark, table) == database.rows
    assert_applied_again_without_effect(spark, table)


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
    start_and_crash(cdc, changes(), table, monkeypatch)
    assert rows_of(spark, table) == database.rows
    more_changes(database)
    database.create(row(13, "with a column that the table lacks", city="Ulm"))
    city = {"name": "city", "type": ["null", "string"], "default": None}
    send(outside, name, database.taken(), encoder(value_schema(city)))
    assert cdc.start(changes(), table).awaitTermination(DEADLINE_S)
    assert rows_of(spark, table) == {number: {"city": None} | found for number, found in database.rows.items()}
    assert_applied_again_without_effect(spark, table)


CHANGES = (
    "key STRUCT<id BIGINT>, op STRING, after STRUCT<id BIGINT, name STRING>, "
    "is_tombstone BOOLEAN, partition INT, offset BIGINT"
)
Change = tuple[Any, ...]


def change(offset: int, number: int | None, op: str | None, name: str | None = None, *, partition: int = 0) -> Change:
    """A row of the DataFrame of changes; without ``op`` a tombstone."""
    after = None if name is None else {"id": number, "name": name}
    return {"id": number}, op, after, op is None, partition, offset


@pytest.fixture
def apply(spark: Any, tmp_path: Path) -> Callable[..., dict[int, str]]:
    """Applies changes as one micro-batch to a table of the test's own; returns the names in it by id."""
    table, cdc = str(tmp_path / "names"), example("cdc_to_delta")
    cdc.create_or_widen(spark, table, StructType.fromDDL("id BIGINT, name STRING"))

    def apply(*changes: Change) -> dict[int, str]:
        cdc.apply(spark.createDataFrame(changes, CHANGES), table)
        return {number: found["name"] for number, found in rows_of(spark, table).items()}

    return apply


def test_other_micro_batches_of_the_same_changes_end_in_the_same_rows(apply: Callable[..., dict[int, str]]) -> None:
    """As after the loss of a checkpoint: from the beginning again, with other bounds."""
    changes = [
        change(0, 1, "r", "one"),
        change(0, 2, "r", "two", partition=1),
        change(1, 1, "d"),
        change(2, 1, None),
        change(3, 1, "c", "one again"),
        change(4, 3, "c", "three"),
        change(5, 3, "d"),
        change(6, 3, None),
        change(1, 2, "u", "two changed", partition=1),
    ]
    rows = {1: "one again", 2: "two changed"}
    assert apply(*changes) == rows
    assert apply(*changes[:6]) == {**rows, 3: "three"}  # whose delete is still to come, as when it was first applied
    assert apply(*changes[6:]) == rows


def test_what_cannot_be_applied_is_an_error(apply: Callable[..., dict[int, str]]) -> None:
    assert apply(change(0, 2, "r", "before")) == {2: "before"}
    no_change = "partition 0, offset 7 is no change of a row with a primary key: its key is "
    two_partitions = "the changes of row {} are in two topic-partitions"
    for changes, error in [
        ([change(7, 1, "t")], no_change + '{"id":1}, its op t'),
        ([change(7, None, "c", "no primary key")], no_change + "{}, its op c"),
        ([change(7, 2, "u")], no_change + '{"id":2}, its op u'),  # no delete, though nothing is after it
        ([change(7, 1, "c", "a"), change(9, 1, "u", "b", partition=1)], two_partitions.format('{"id":1}')),
        ([change(9, 2, "u", "moved", partition=1)], two_partitions.format('{"id":2}')),
        ([change(9, 2, "d", partition=1)], two_partitions.format('{"id":2}')),
    ]:
        with pytest.raises(Exception, match=re.escape(error)):
            apply(*changes)
    assert apply() == {2: "before"}
