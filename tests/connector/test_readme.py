"""The code that README and the migration guide show, run as it stands there; only addresses and folders are put in their place."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.streaming import StreamingQueryManager

from pykafka_wire.options.source import parse_source_options

ROOT = Path(__file__).resolve().parents[2]


def code(document: str) -> list[str]:
    """The blocks of Python and SQL of a document, in order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^ *```(?:python|sql)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.long
@pytest.mark.timeout(900)  # three queries, and the session if it is the first to ask for it
def test_what_readme_shows_runs(
    spark: Any, kafka: Any, topic: Any, outside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into_delta, register, batch, sql, _, listener, write, _, exactly_once, _ = code("README.md")
    topic(2, name="orders"), topic(2, name="orders-clean")
    names: dict[str, Any] = {"spark": spark}

    def run(block: str) -> None:
        block = block.replace("broker:9092", kafka.bootstrap_servers).replace("/lake", str(tmp_path))
        exec(block, names)

    listeners: list[Any] = []
    add = StreamingQueryManager.addListener
    monkeypatch.setattr(
        StreamingQueryManager, "addListener", lambda self, each: listeners.append(each) or add(self, each)
    )
    before = {query.id for query in spark.streams.active}

    def started() -> Any:
        (query,) = (query for query in spark.streams.active if query.id not in before)
        query.processAllAvailable()  # from now on it knows where it began
        return query

    run(register)
    run(listener)
    try:
        run(into_delta)
        streaming, query = names["df"], started()
        names["df"] = spark.range(10)
        run(write)
        query.processAllAvailable()
        query.stop()
        assert spark.read.format("delta").load(str(tmp_path / "orders")).count() == 10

        run(batch)
        assert names["orders"].count() == 10
        view, select, _ = sql.replace("broker:9092", kafka.bootstrap_servers).split(";")
        spark.sql(view)
        assert sum(row[1] for row in spark.sql(select).collect()) == 10

        names["df"] = streaming
        run(exactly_once)
        started().stop()
        assert len(outside.consume("orders-clean")) == 10
    finally:
        spark.catalog.dropTempView("orders")
        for each in listeners:
            spark.streams.removeListener(each)


def test_what_readme_shows_of_values_runs(spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str) -> None:
    *_, block = code("README.md")
    name = topic(1)
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    fields = [{"name": "id", "type": "long"}, {"name": "price", "type": price}]
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    confluent = SchemaRegistryClient({"url": registry_url})
    written = {"type": "record", "name": "CleanOrder", "fields": fields}
    confluent.register_schema("orders-clean-value", Schema(json.dumps(written), "AVRO"))
    read = {"type": "record", "name": "Order", "fields": [*fields, at]}
    serializer = AvroSerializer(confluent, json.dumps(read))
    order = {"id": 5, "price": Decimal("1.50"), "at": 1_700_000_000_000}
    value = serializer(order, SerializationContext(name, MessageField.VALUE))
    outside.produce(name, [outside.Record(value=value), outside.Record(value=b"no Avro")])
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}
    names = {"spark": spark, "orders": spark.read.format("pykafka-wire").options(**options).load()}
    # The registry of the tests knows no passwords.
    asked = 'Registry("https://registry:8081", basic_auth="env:REGISTRY_USER_INFO")'
    assert asked in block
    exec(block.replace(asked, f'Registry("{registry_url}")'), names)
    (good,), (broken,) = names["good"].collect(), names["broken"].collect()
    assert (good.id, good.price) == (5, Decimal("1.50"))
    assert (broken.topic, broken.offset) == (name, 1)
    assert names["written"].collect()[0].value[0] == 0


def test_the_typed_write_that_readme_shows_runs(
    spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str
) -> None:
    (block,) = (each for each in code("README.md") if '"valueFormat", "avro"' in each and ".write.format" in each)
    name = topic(1)
    fields = [
        {"name": "id", "type": "long"},
        {"name": "country", "type": "string"},
        {"name": "amount", "type": "double"},
    ]
    schema = {"type": "record", "name": "Order", "fields": fields}
    confluent = SchemaRegistryClient({"url": registry_url})
    confluent.register_schema(f"{name}-value", Schema(json.dumps(schema), "AVRO"))
    for shown, real in (("broker:9092", kafka.bootstrap_servers), ('"orders"', f'"{name}"')):
        block = block.replace(shown, real)
    names = {"df": spark.range(1).selectExpr("id", "'DE' AS country", "1.5D AS amount")}
    exec(block.replace("https://registry:8081", registry_url), names)
    (record,) = outside.consume(name)
    assert record.key == b"DE"
    assert AvroDeserializer(confluent)(record.value, None) == {"id": 0, "country": "DE", "amount": 1.5}


def test_the_start_that_the_migration_guide_gives_is_taken() -> None:
    (block,) = code("docs/migration.md")
    (given,) = re.findall(r"\.option\(\"startingOffsets\", '(.*)'\)", block)
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders", "startingOffsets": given}
    parse_source_options(options, "stream")
