"""The code that README and the guides show, run as it stands there; only addresses and folders are put in their place."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field
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


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "country", "type": "string"},
        {"name": "amount", "type": "double"},
    ],
}
COUNTRIES = ("DE", "FR")


@dataclass
class Shown:
    """Runs what a document shows. Blocks of Python share their names."""

    spark: Any
    kafka: Any
    registry_url: str
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)

    def placed(self, block: str) -> str:
        block = block.replace("broker:9092", self.kafka.bootstrap_servers)
        return block.replace("https://registry:8081", self.registry_url).replace("/lake", str(self.folder))

    def python(self, block: str) -> dict[str, Any]:
        self.names.setdefault("spark", self.spark)
        exec(self.placed(block), self.names)
        return self.names

    def sql(self, block: str) -> Any:
        """The rows of the last statement."""
        *statements, last = (each for each in self.placed(block).split(";") if each.strip())
        for statement in statements:
            self.spark.sql(statement)
        return self.spark.sql(last).collect()


@pytest.fixture
def shown(spark: Any, kafka: Any, registry_url: str, tmp_path: Path) -> Shown:
    return Shown(spark, kafka, registry_url, tmp_path)


def send_orders(outside: Any, registry_url: str, name: str, n_orders: int) -> None:
    """Orders as Confluent's serializer writes them, half of them from each of COUNTRIES, each of an amount of 1.5."""
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry_url}), json.dumps(ORDER))
    context = SerializationContext(name, MessageField.VALUE)
    orders = ({"id": i, "country": COUNTRIES[i % 2], "amount": 1.5} for i in range(n_orders))
    outside.produce(name, [outside.Record(value=serializer(order, context)) for order in orders])


@pytest.mark.long
@pytest.mark.timeout(900)  # three queries, and the session if it is the first to ask for it
def test_what_readme_shows_runs(shown: Shown, topic: Any, outside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    typed, into_delta, register, batch, sql, _, listener, write, _, exactly_once, _ = code("README.md")
    for name in ("orders", "orders-json", "orders-clean"):
        topic(2, name=name)
    send_orders(outside, shown.registry_url, "orders", 10)
    spark, names = shown.spark, shown.names

    listeners: list[Any] = []
    add = StreamingQueryManager.addListener
    monkeypatch.setattr(
        StreamingQueryManager, "addListener", lambda self, each: listeners.append(each) or add(self, each)
    )
    before = {query.id for query in spark.streams.active}

    def started() -> Any:
        (query,) = (query for query in spark.streams.active if query.id not in before)
        query.processAllAvailable()
        return query

    shown.python(register)
    shown.python(listener)
    try:
        assert sorted(map(tuple, shown.sql(typed))) == [("DE", 7.5), ("FR", 7.5)]
        shown.python(into_delta)
        started().stop()
        table = spark.read.format("delta").load(str(shown.folder / "orders"))
        assert table.selectExpr("count(1)", "sum(id)", "sum(amount)").collect()[0][:] == (10, 45, 15.0)

        names["df"] = spark.range(10)
        shown.python(write)
        assert len(outside.consume("orders-json")) == 10
        shown.python(batch)
        assert names["records"].count() == 10
        assert sum(row[1] for row in shown.sql(sql)) == 10

        options = {"kafka.bootstrap.servers": shown.kafka.bootstrap_servers, "subscribe": "orders-json"}
        stream = spark.readStream.format("pykafka-wire").options(**options, startingOffsets="earliest")
        names["df"] = stream.load()
        shown.python(exactly_once)
        started().stop()
        assert len(outside.consume("orders-clean")) == 10
    finally:
        for view in ("orders", "order_records"):
            spark.catalog.dropTempView(view)
        for each in listeners:
            spark.streams.removeListener(each)


def test_what_the_guide_to_typed_topics_shows_runs(shown: Shown, topic: Any, outside: Any) -> None:
    sql, stream, clicks, readings, diverted, pruned, pruned_sql, write = code("docs/typed-topics.md")
    for name in ("orders", "clicks", "readings", "orders-eu"):
        topic(1, name=name)
    send_orders(outside, shown.registry_url, "orders", 4)
    outside.produce("clicks", [outside.Record(value=b'{"user": 7, "page": "/", "at": "2026-01-02T03:04:05Z"}')])
    outside.produce("readings", [outside.Record(value=struct.pack("<d", 21.5))])
    try:
        assert sorted(map(tuple, shown.sql(sql))) == [("DE", 3.0), ("FR", 3.0)]
        assert [field.name for field in shown.python(stream)["by_country"].schema] == ["country", "sum(amount)"]
        (click,) = shown.python(clicks)["clicks"].collect()
        assert (click.value.user, click.value.page) == (7, "/")
        (reading,) = shown.python(readings)["readings"].collect()
        assert reading.value.celsius == 21.5
        assert [tuple(row.value) for row in shown.python(pruned)["amounts"].collect()] == [(i, 1.5) for i in range(4)]
        assert shown.sql(pruned_sql)[0][0] == 6.0

        outside.produce("orders", [outside.Record(value=b"no Avro")])
        shown.python(diverted)
        assert shown.names["good"].count() == 4
        (broken,) = shown.names["broken"].collect()
        assert (broken.topic, broken.offset) == ("orders", 4)

        shown.names["good"].createOrReplaceTempView("orders_to_send")
        shown.python(write)
        assert len(outside.consume("orders-eu")) == 4
    finally:
        for view in ("orders", "amounts", "orders_to_send"):
            shown.spark.catalog.dropTempView(view)


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
    names = {"spark": spark, "records": spark.read.format("pykafka-wire").options(**options).load()}
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
    confluent = SchemaRegistryClient({"url": registry_url})
    confluent.register_schema(f"{name}-value", Schema(json.dumps(ORDER), "AVRO"))
    for shown, real in (("broker:9092", kafka.bootstrap_servers), ('"orders"', f'"{name}"')):
        block = block.replace(shown, real)
    names = {"df": spark.range(1).selectExpr("id", "'DE' AS country", "1.5D AS amount")}
    exec(block.replace("https://registry:8081", registry_url), names)
    (record,) = outside.consume(name)
    assert record.key == b"DE"
    assert AvroDeserializer(confluent)(record.value, None) == {"id": 0, "country": "DE", "amount": 1.5}


def test_the_two_queries_that_the_migration_guide_compares_agree(shown: Shown, topic: Any, outside: Any) -> None:
    _, before, after = code("docs/migration.md")
    topic(1, name="orders")
    send_orders(outside, shown.registry_url, "orders", 4)
    shown.names["order_schema"] = json.dumps(ORDER)
    old, new = (shown.python(block)["orders"] for block in (before, after))
    assert old.schema.simpleString() == new.schema.simpleString()
    assert old.collect() == new.collect()
    assert new.count() == 4


def test_the_start_that_the_migration_guide_gives_is_taken() -> None:
    block, *_ = code("docs/migration.md")
    (given,) = re.findall(r"\.option\(\"startingOffsets\", '(.*)'\)", block)
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders", "startingOffsets": given}
    parse_source_options(options, "stream")
