"""The options by which an ingest reads a topic."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql.types import StructType

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.reader import TableReaders
from pykafka_wire.ingest.settings.model import Destination, Settings
from pykafka_wire.options.source import parse_source_options
from tests.connector.ingest.conftest import Shop


@pytest.mark.parametrize(
    "formats, options, uses_registry",
    [
        (("json", "binary"), {}, False),
        (("json", "json"), {"includeHeaders": "false"}, False),
        (("string", "string"), {}, False),
        (("avro", "binary"), {}, True),
        (("json", "protobuf"), {}, True),
        (("json", "binary"), {"valueSubject": "orders"}, True),
        (("json", "binary"), {"basic.auth.user.info": "a:b"}, True),
    ],
)
def test_a_read_has_the_registry_where_it_uses_it(
    formats: tuple[str, str], options: dict[str, str], uses_registry: bool
) -> None:
    settings = Settings(
        checkpoint="/lake/checkpoint", kafka={"bootstrap.servers": "localhost:9092"}, topics="orders", into="/lake",
        registry="http://localhost:8081",
    )  # fmt: skip
    part = TopicRange(topic="orders", topic_id="", start={0: 0}, end={0: 5})
    table = Table(topic="orders", options=options)
    reader = TableReaders(settings).of(Destination(topic="orders", name="orders", table=table))
    found = reader.typed_options(part, value_format=formats[0], key_format=formats[1])
    assert ("schema.registry.url" in found) is uses_registry
    schemas = {f"{name}Schema": "n INT" for name, each in zip(("value", "key"), formats, strict=True) if each == "json"}
    parsed = parse_source_options({**found, **schemas}, "batch")
    assert any(
        "schema.registry.url only shows which JSON values have a schema with rules" in each for each in parsed.warnings
    ) is (uses_registry and not {*formats} & {"avro", "protobuf"})


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_table_goes_on_without_lost_records_where_its_options_say_so(shop: Shop) -> None:
    """In the reads that infer types of JSON, and that write rejects, too."""
    orders = shop.create("orders")
    asked = {"defaults": Table(topic=".*", format="json", options={"failondataloss": "false"})}
    shop.send_json("orders", [{"n": 0}, {"n": 0}])
    shop.run(**asked)
    shop.send("orders", [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}', b"damaged"])
    shop.outside.age_out(orders, 0, 2)
    status = shop.run(**asked).statuses[orders]
    assert (status.error, status.rows, status.rejects) == (None, 2, 1)
    assert shop.rows("orders", "n") == [(0,), (0,), (2,), (3,)]
    assert [bytes(row.value) for row in shop.table("_rejects").collect()] == [b"damaged"]


def test_the_plan_of_selected_json_needs_no_spark() -> None:
    """In a process without a session, as the command is before it starts one."""
    program = """
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.records.reader import TableReaders
table = Table(topic="orders", format="json", schema="id INT", select=("id + 1 AS n", "CAST(id AS STRING) AS text"))
settings = Settings(checkpoint="/c", kafka={"bootstrap.servers": "localhost:9092"}, topics="orders", into="/lake", tables=(table,))
schemas = TableReaders(settings).of_topic("orders")[0].schemas
print(schemas.columns_text(schemas.value_schema()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "id + 1 AS n, CAST(id AS STRING) AS text\n", done.stderr


def test_keys_with_other_columns_than_the_rows_have_are_warned_of_with_both(caplog: pytest.LogCaptureFixture) -> None:
    def warned(topic: str, names: set[tuple[str, ...]], held: StructType | None, row: str) -> str:
        caplog.clear()
        settings = Settings(checkpoint=f"/c/{topic}", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="/lake")
        destination = Destination(topic=topic, name=topic, table=Table(topic=".*", mode="upsert"))
        keys = TableReaders(settings).of(destination).keys
        keys.warn_of_others(topic, names, held, StructType().add(row, "string"))
        return caplog.text

    held = StructType().add("id", "long")
    text = warned("gains", {("id", "tenant")}, held, "v")
    assert "keys have the columns id, tenant, but earlier keys have id" in text
    assert "gains" not in warned("gains", {("id", "tenant")}, held, "v"), "once"
    assert "keys have the columns id, but earlier keys have id, tenant" in warned(
        "loses", {("id",)}, held.add("tenant", "string"), "v"
    )
    assert "id, tenant" in warned("within", {("id",), ("id", "tenant")}, None, "v")
    assert not warned("in_rows", {("id", "tenant")}, StructType().add("id", "long"), "Tenant")
    assert not warned("same", {("id",)}, StructType().add("ID", "long"), "v")
