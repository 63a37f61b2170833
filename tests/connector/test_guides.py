"""The code of README and of the guides in docs/, run as it stands there."""

from __future__ import annotations

import datetime
import json
import re
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, topic_record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pykafka_wire.local.jars import DELTA_VERSION, JVM_CONNECTOR, SPARK_AVRO
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.values.registry.settings import registry_of
from tests.connector.shown_code import ORDER, ROOT, Shown, code, send_orders

#: Every document with blocks of Python or SQL. The blocks of README are those of guides. test_tutorial.py
#: runs the tutorial, test_plain_session.py the tables in docs/read.md and docs/typed-topics.md, metrics/test_exporters.py
#: docs/metrics.md, test_testing_page.py docs/testing.md, tests/connector/deployments what docs/deployment.md shows,
#: tests/connector/ingest docs/ingest-program.md and docs/ingest-query.md.
WITH_CODE = {
    "README.md",
    "docs/checkpoints.md",
    "docs/clouds.md",
    "docs/columns.md",
    "docs/daft.md",
    "docs/deployment.md",
    "docs/duckdb.md",
    "docs/ingest-program.md",
    "docs/ingest-query.md",
    "docs/install.md",
    "docs/json-types.md",
    "docs/metrics.md",
    "docs/migration.md",
    "docs/polars.md",
    "docs/ray.md",
    "docs/read.md",
    "docs/registry.md",
    "docs/secure.md",
    "docs/testing.md",
    "docs/tutorial.md",
    "docs/typed-topics.md",
    "docs/without-spark.md",
    "docs/write-exactly-once.md",
    "docs/write.md",
}


@pytest.fixture
def shown(spark: Any, kafka: Any, registry_url: str, tmp_path: Path) -> Shown:
    return Shown(spark, kafka, registry_url, tmp_path)


@pytest.fixture
def views(spark: Any) -> Iterator[list[str]]:
    """Names of views to drop at the end."""
    names: list[str] = []
    yield names
    for name in names:
        spark.catalog.dropTempView(name)


def test_every_document_with_code_is_run() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    found = {path.relative_to(ROOT).as_posix() for path in documents}
    assert {name for name in found if code(name)} == WITH_CODE


def test_readme_shows_the_code_of_the_guides() -> None:
    guides = [block for name in WITH_CODE - {"README.md"} for block in code(name)]
    for block in code("README.md"):
        assert block in guides, f"not in a guide, and so not run:\n{block}"


@pytest.mark.long
@pytest.mark.timeout(900)  # two queries, and the session if it is the first to ask for it
def test_the_streams_that_the_guides_show_run(shown: Shown, topic: Any, outside: Any, views: list[str]) -> None:
    _, into_delta, *_ = code("docs/read.md")
    (exactly_once,) = code("docs/write-exactly-once.md")
    for name in ("orders", "orders-json", "orders-clean"):
        topic(2, name=name)
    send_orders(outside, shown.registry_url, "orders", 10)
    spark = shown.spark
    before = {query.id for query in spark.streams.active}

    def started() -> Any:
        (query,) = (query for query in spark.streams.active if query.id not in before)
        query.processAllAvailable()
        return query

    shown.python(into_delta)
    started().stop()
    table = spark.read.format("delta").load(str(shown.folder / "orders"))
    assert table.selectExpr("count(1)", "sum(id)", "sum(amount)").collect()[0][:] == (10, 45, 15.0)

    from_checkpoint, micro_batch, by_the_session, *_ = code("docs/checkpoints.md")
    places = {"s3a://lake": "/lake", "orders-old": "orders", "orders#12": "orders#0"}
    for block in (from_checkpoint, micro_batch, by_the_session):
        for shown_place, place in places.items():
            block = block.replace(shown_place, place)
        shown.python(block)
    assert shown.names["orders"].columns[:2] == ["key", "value"]
    assert shown.names["bad"].count() == 10

    outside.fill("orders-json", [5, 5])
    options = {"kafka.bootstrap.servers": shown.kafka.bootstrap_servers, "subscribe": "orders-json"}
    stream = spark.readStream.format("pykafka-wire").options(**options, startingOffsets="earliest")
    shown.names["df"] = stream.load()
    shown.python(exactly_once)
    started().stop()
    assert len(outside.consume("orders-clean", isolation_level="read_committed")) == 10


def test_the_guides_to_reading_and_writing(shown: Shown, topic: Any, outside: Any, views: list[str]) -> None:
    batch, _, sql, _, listener = code("docs/read.md")
    write, typed_write = code("docs/write.md")
    (register,) = code("docs/install.md")
    for name in ("orders", "orders-json"):
        topic(2, name=name)
    names = shown.names
    confluent = SchemaRegistryClient({"url": shown.registry_url})
    confluent.register_schema("orders-value", Schema(json.dumps(ORDER), "AVRO"))
    names["df"] = shown.spark.range(10).selectExpr("id", "'DE' AS country", "1.5D AS amount")

    shown.python(register)
    shown.python(write)
    records = outside.consume("orders-json")
    assert sorted(json.loads(record.value)["id"] for record in records) == list(range(10))

    shown.python(typed_write)
    records = outside.consume("orders")
    assert {record.key for record in records} == {b"DE"}
    decoded = [AvroDeserializer(confluent)(record.value, None) for record in records]
    assert sorted(order["id"] for order in decoded) == list(range(10))

    assert shown.python(batch)["records"].count() == 10
    views.append("order_records")
    assert sum(row[1] for row in shown.sql(sql)) == 10
    try:
        shown.python(listener)
    finally:
        shown.spark.streams.removeListener(names["listener"])


def test_the_guide_to_typed_topics(shown: Shown, topic: Any, outside: Any, views: list[str]) -> None:
    sql, stream, clicks, readings, several, diverted, pruned, pruned_sql, _, write = code("docs/typed-topics.md")
    for name in ("orders", "clicks", "readings", "orders-eu", "payments"):
        topic(1, name=name)
    send_orders(outside, shown.registry_url, "orders", 4)
    outside.produce("clicks", [outside.Record(value=b'{"user": 7, "page": "/", "at": "2026-01-02T03:04:05Z"}')])
    outside.produce("readings", [outside.Record(value=struct.pack("<d", 21.5))])
    confluent = SchemaRegistryClient({"url": shown.registry_url})
    conf = {"subject.name.strategy": topic_record_subject_name_strategy}
    for number, kind in enumerate(("Order", "Refund", "Other")):
        fields = [{"name": "id", "type": "long"}]
        schema = json.dumps({"type": "record", "name": kind, "namespace": "shop", "fields": fields})
        context = SerializationContext("payments", MessageField.VALUE)
        value = AvroSerializer(confluent, schema, conf=conf)({"id": number}, context)
        outside.produce("payments", [outside.Record(value=value)])
    views += ["orders", "amounts", "orders_to_send"]

    assert sorted(map(tuple, shown.sql(sql))) == [("DE", 3.0), ("FR", 3.0)]
    assert [field.name for field in shown.python(stream)["by_country"].schema] == ["country", "sum(amount)"]
    (click,) = shown.python(clicks)["clicks"].collect()
    assert (click.value.user, click.value.page) == (7, "/")
    (reading,) = shown.python(readings)["readings"].collect()
    assert reading.value.celsius == 21.5
    assert [tuple(row) for row in shown.python(several)["refunds"].collect()] == [(1,)]
    assert shown.names["payments"].count() == 2
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


def test_json_as_debezium_writes_it_is_read_by_the_units_that_are_named_and_never_guessed(
    shown: Shown, topic: Any, outside: Any
) -> None:
    (block,) = code("docs/json-types.md")
    topic(1, name="changes")
    row = b'{"id":1,"born":20000,"seen":1500000000123456,"made":126230400000,"price":"1234"}'
    outside.produce("changes", [outside.Record(value=row)] * 3)
    seen = datetime.datetime(2017, 7, 14, 2, 40, 0, 123_456)
    read = (1, datetime.date(2024, 10, 4), seen, datetime.datetime(1974, 1, 1), Decimal("-26588.24"))
    assert [tuple(each.value) for each in shown.python(block)["changes"].collect()] == [read] * 3
    guessed = block
    for option in ("valueTimeUnit", "valueDecimalFormat"):
        guessed = re.sub(rf' *\.option\("{option}".*\n', "", guessed)
    reasons = shown.python(guessed.replace(".load()", '.option("onValueError", "divert").load()'))["changes"].collect()
    assert all("valueTimeUnit" in each.valueError for each in reasons)


def test_the_guide_to_values_in_columns(spark: Any, kafka: Any, topic: Any, outside: Any, registry_url: str) -> None:
    (block,) = code("docs/columns.md")
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


def test_the_two_queries_that_the_migration_guide_compares_agree(shown: Shown, topic: Any, outside: Any) -> None:
    _, before, after, *_ = code("docs/migration.md")
    topic(1, name="orders")
    send_orders(outside, shown.registry_url, "orders", 4)
    shown.names["order_schema"] = json.dumps(ORDER)
    old, new = (shown.python(block)["orders"] for block in (before, after))
    assert old.schema.simpleString() == new.schema.simpleString()
    assert old.collect() == new.collect()
    assert new.count() == 4


@pytest.mark.long
@pytest.mark.timeout(900)  # two queries, and the session if it is the first to ask for it
def test_the_job_of_the_migration_guide_goes_on_where_the_old_one_stopped(
    shown: Shown, topic: Any, outside: Any
) -> None:
    *_, before, after = code("docs/migration.md")
    topic(2, name="orders")
    shown.names["order_schema"] = json.dumps(ORDER)
    types: list[str] = []
    for block, n_orders in ((before, 6), (after, 4)):
        send_orders(outside, shown.registry_url, "orders", n_orders)
        query = shown.python(block)["query"]
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        types.append(shown.names["orders"].schema["id"].dataType.simpleString())
    table = shown.spark.read.format("delta").load(str(shown.folder / "orders"))
    assert types == ["bigint", "bigint"]
    assert table.selectExpr("count(1)", "sum(amount)").collect()[0][:] == (10, 15.0)
    assert table.select("partition", "offset").distinct().count() == 10


def test_the_packages_of_the_migration_guides_old_job_are_those_that_tests_use() -> None:
    (packages,) = re.findall(r"--packages (\S+) job\.py", (ROOT / "docs/migration.md").read_text(encoding="utf-8"))
    kafka, avro, delta = packages.split(",")
    assert (kafka, avro) == (str(JVM_CONNECTOR[0]), str(SPARK_AVRO[0]))
    assert delta.endswith(f":{DELTA_VERSION}")


def test_the_start_that_the_migration_guide_gives_is_taken() -> None:
    block, *_ = code("docs/migration.md")
    (given,) = re.findall(r"\.option\(\"startingOffsets\", \"(.*)\"\)", block)
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders", "startingOffsets": given}
    parse_source_options(options, "stream")


def test_the_registrys_options_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_USER_INFO", "me:secret")
    (block,) = code("docs/registry.md")
    options = dict(re.findall(r'\.option\("(.+?)", "(.+?)"\)', block))
    assert len(options) == 3
    assert registry_of(options) is not None


class _Recorded:
    """Stands for `spark.read`: keeps the options, and reads nothing."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def format(self, name: str) -> _Recorded:
        assert name == "pykafka-wire"
        return self

    def options(self, **options: str) -> _Recorded:
        self.given |= options
        return self

    def option(self, name: str, value: str) -> _Recorded:
        return self.options(**{name: value})

    def load(self) -> None: ...


@pytest.mark.parametrize(("document", "n_options"), [("docs/secure.md", 7), ("docs/clouds.md", 3)])
def test_the_options_of_secured_clusters_are_taken(document: str, n_options: int) -> None:
    """tests/test_conf.py reads from a secured cluster, with the files in conf/; no cloud can be reached from a test."""
    (block,) = code(document)
    read = _Recorded()
    exec(block, {"spark": type("Session", (), {"read": read, "readStream": read})})
    parsed = parse_source_options(read.given, "stream")
    assert len(read.given) == n_options
    assert not parsed.warnings


def test_without_spark(kafka: Any, topic: Any, registry_url: str, outside: Any) -> None:
    into_arrow, client, copying, member = (
        block.replace("broker:9092", kafka.bootstrap_servers).replace("https://registry:8081", registry_url)
        for block in code("docs/without-spark.md")
    )
    topic(1, name="orders")
    names: dict[str, Any] = {}
    exec(client, names)
    assert names["n_records"] == 10
    exec(member, names)
    assert len(names["polled"]) == 10

    topic(1, name="orders-copy")
    exec(copying, names)
    copied = outside.consume("orders-copy", isolation_level="read_committed")
    assert [record.value for record in copied] == [b"order %d" % number for number in range(10)]
    assert outside.committed("copy") == {("orders", 0): 10}

    outside.age_out("orders", 0, 10)  # which are not Avro
    send_orders(outside, registry_url, "orders", 10)
    exec(into_arrow, names)
    assert sorted(names["amounts"]) == [("DE", 7.5), ("FR", 7.5)]
    assert names["frame"]["offset"].to_list() == list(range(10, 20))
    assert {"id", "country", "amount"} < set(names["frame"].columns)
