"""Tables that other readers than Spark can read, for as long as no column needs more: Delta, delta-rs, DuckDB and Polars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import polars
import pytest
from pyspark.sql.types import DataType, StructType

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.delta.features import (
    COLUMN_MAPPING,
    TIMESTAMP_NTZ,
    TYPE_WIDENING,
    VARIANT,
    Feature,
    needed_features,
)
from pykafka_wire.ingest.tables.formats import format_of
from tests.connector.ingest.conftest import Shop, avro_schema
from tests.connector.shown_code import code

PLAIN = {"appendOnly", "invariants"}


@pytest.mark.parametrize(
    ("held", "rows", "expected"),
    [
        ("a INT", "a INT, b STRING", []),
        ("a INT", "a SMALLINT", []),
        ("a SMALLINT", "a INT", []),  # Parquet has one type for both
        ("a BIGINT", "a INT", []),
        ("a INT", "a BIGINT", ["typeWidening"]),
        ("s STRUCT<x: ARRAY<FLOAT>>", "s STRUCT<X: ARRAY<DOUBLE>>", ["typeWidening"]),
        ("a DECIMAL(10, 2)", "a DECIMAL(12, 4)", ["typeWidening"]),
        ("a DECIMAL(10, 2)", "a DECIMAL(10, 4)", []),  # a conflict
        ("a INT", "a DECIMAL(20, 0)", ["typeWidening"]),
        ("a BIGINT", "a DOUBLE", []),  # a conflict
        ("a INT", "a STRING", []),
        ("a DATE", "a TIMESTAMP_NTZ", ["typeWidening", "timestampNtz"]),
        ("a INT", "b MAP<STRING, TIMESTAMP_NTZ>", ["timestampNtz"]),
        ("a INT", "s STRUCT<`x y`: INT>", ["columnMapping"]),
        ("a INT", "v ARRAY<VARIANT>", ["variantType"]),
        (None, "a BIGINT", []),
    ],
)
@pytest.mark.spark
def test_a_feature_is_needed_by_what_a_table_lacks(
    spark: Any, held: str | None, rows: str, expected: list[str]
) -> None:
    types = [None if each is None else DataType.fromDDL(each) for each in (held, rows)]
    assert isinstance(types[1], StructType)
    assert [each.name for each in needed_features(types[1], types[0])] == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("held", "rows", "feature"),
    [
        ("a INT", "a BIGINT", TYPE_WIDENING),
        ("a INT", "a INT, b TIMESTAMP_NTZ", TIMESTAMP_NTZ),
        ("a INT", "a INT, `b c` INT", COLUMN_MAPPING),
        ("a INT", "a INT, v VARIANT", VARIANT),
    ],
)
@pytest.mark.spark
def test_lost_readers_are_named_before_the_table_has_the_feature_and_limited_ones_afterwards(
    spark: Any, held: str, rows: str, feature: Feature, tmp_path: Path
) -> None:
    """In a plan, and on the page."""
    settings = Settings(
        checkpoint=f"{tmp_path}/c", topics="t", into=str(tmp_path), kafka={"bootstrap.servers": "b:1"}, registry="http://r"
    )  # fmt: skip
    table, columns = Table(topic="t"), StructType.fromDDL(rows)
    delta = format_of(settings)

    def lost() -> list[str]:
        return delta.lost_readers(settings, "t", table, columns)

    is_of_new_columns = feature is not TYPE_WIDENING
    assert lost() == (
        [f"The table gets Delta's feature {feature.name}: {feature.readers}"] if is_of_new_columns else []
    )
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` ({held}) USING delta")
    assert lost() == [f"The table gets Delta's feature {feature.name}: {feature.readers}"]
    assert delta.limited_readers(settings, "t") == []
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/t` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'false')")
    assert bool(lost()) is is_of_new_columns, "a table that refuses a feature does not get it"
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/t` SET TBLPROPERTIES ('{feature.property}' = '{feature.value}')")
    assert lost() == []
    assert delta.limited_readers(settings, "t") == [f"The table has Delta's feature {feature.name}: {feature.readers}"]


def features(shop: Shop, name: str) -> set[str]:
    path = shop.folder / "lake" / (name if name.startswith("_") else f"{shop.prefix}_{name}")
    return set(shop.spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0].tableFeatures)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.long
def test_tables_are_plain_until_a_column_needs_a_feature(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("orders", "users", "names", "fixed"):
        shop.create(name)
    first = avro_schema("id int", "amount float")
    keyed = Table(topic=rf"{shop.prefix}\.users", mode="upsert", key_format="string")
    fixed = Table(topic=rf"{shop.prefix}\.fixed", properties={"delta.enableTypeWidening": "false"})
    names = Table(topic=rf"{shop.prefix}\.names", format="json")
    asked = {"tables": [keyed, fixed, names]}
    row = {"id": 1, "amount": 0.5}
    for name in ("orders", "fixed"):
        shop.send(name, [*shop.avro(name, first, [row]), b"damaged"])
    shop.send("users", list(shop.avro("users", first, [row])), keys=[b"a"])
    shop.send_json("names", [{"plain": 1}])
    statuses = shop.run(**asked).statuses
    assert {each.error for each in statuses.values()} == {None}
    tables = ("orders", "users", "names", "fixed", "_rejects")
    assert {name: features(shop, name) for name in tables} == dict.fromkeys(tables, PLAIN)
    lake = shop.folder / "lake"
    read = [polars.read_delta(str(lake / f"{shop.prefix}_{name}")).height for name in ("orders", "users", "names")]
    assert read == [1, 1, 1] and polars.read_delta(str(lake / "_rejects")).height == 2
    guide(shop, lake)

    at = {"name": "at", "type": {"type": "long", "logicalType": "local-timestamp-micros"}}
    wider = json.loads(avro_schema("id long", "amount double"))
    with_time = json.dumps({**wider, "fields": [*wider["fields"], at]})
    row = {"id": 2**40, "amount": 0.25, "at": 1_700_000_000_000_000}
    shop.send_avro("orders", with_time, [row])
    shop.send("users", list(shop.avro("users", with_time, [row])), keys=[b"b"])
    shop.send_avro("fixed", json.dumps(wider), [{"id": 2**40, "amount": 0.25}])
    shop.send_json("names", [{"plain": 2, "full name": "x"}])
    ingest = shop.ingest(**asked)
    query = ingest.start(shop.spark, once=True)
    # A table without a commit of this run will lose readers; when its rows have landed, the page shows what it has.
    begun = {table.name.partition("_")[2]: table for table in ingest.status().tables}
    for name in ("orders", "users"):
        assert begun[name].commits or len(begun[name].lost_readers) == 2, begun[name]
        assert all("The table gets Delta's feature" in text for text in begun[name].lost_readers)
    assert not begun["fixed"].lost_readers
    assert query.awaitTermination(240)
    assert not any(table.lost_readers for table in ingest.status().tables)
    statuses = ingest.statuses
    errors = {name: statuses[f"{shop.prefix}.{name}"].error for name in ("orders", "users", "names", "fixed")}
    assert "PYKAFKA_WIRE_COLUMN_CONFLICT" in (errors.pop("fixed") or "")
    assert set(errors.values()) == {None}
    assert shop.rows("orders", "id")[-1] == (2**40,) and shop.rows("names", "plain", "full name")[-1] == (2, "x")
    assert features(shop, "orders") == features(shop, "users") == PLAIN | {"typeWidening", "timestampNtz"}
    assert features(shop, "names") == PLAIN | {"columnMapping"}
    assert features(shop, "fixed") == features(shop, "_rejects") == PLAIN
    logged = [each for each in caplog.messages if "which its columns need" in each]
    assert len(logged) == 5 and any("typeWidening" in each for each in logged)


def guide(shop: Shop, lake: Path) -> None:
    """The page's programs for other readers; and delta-rs commits to a table, too."""
    other, *_ = [each for each in code("docs/ingest-query.md") if "polars" in each]
    other = other.replace("/lake/shop/shop_orders", str(lake / f"{shop.prefix}_orders"))
    names: dict[str, Any] = {"spark": shop.spark}
    exec(compile(other, "docs/ingest-query.md", "exec"), names)
    assert [names[name] for name in ("by_spark", "by_deltalake", "by_polars")] == [1, 1, 1]
    path = str(lake / f"{shop.prefix}_names")
    deltalake.DeltaTable(path).delete("plain < 0")


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_table_that_is_rewritten_for_a_wider_type_keeps_its_readers_and_its_position(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    asked: dict[str, Any] = {"defaults": Table(topic=".*", widen="rewrite", partition_by=("day",))}
    keyed = Table(topic=rf"{shop.prefix}\.users", mode="upsert", key_format="string", widen="rewrite")
    fed = Table(topic=rf"{shop.prefix}\.fed", widen="rewrite", properties={"delta.enableChangeDataFeed": "true"})
    asked["tables"] = [keyed, fed]
    for name in ("orders", "users", "fed"):
        shop.create(name)
    first, second = (
        avro_schema("id int", "amount float", "day string"),
        avro_schema("id long", "amount double", "day string", "more int?"),
    )
    rows = [{"id": n, "amount": 0.5, "day": f"d{n % 2}"} for n in range(4)]
    shop.send("orders", [*shop.avro("orders", first, rows), b"damaged"])
    shop.send("users", list(shop.avro("users", first, rows)), keys=[b"a", b"b", b"c", b"d"])
    shop.send_avro("fed", first, rows)
    shop.run(**asked)
    orders = f"delta.`{shop.folder}/lake/{shop.prefix}_orders`"
    shop.spark.sql(f"ALTER TABLE {orders} ALTER COLUMN day COMMENT 'of the order'")
    wider = [{"id": 2**40 + n, "amount": 0.25, "day": "d1", "more": n} for n in range(3)]
    shop.send_avro("orders", second, wider)
    shop.send("users", list(shop.avro("users", second, wider)), keys=[b"a", b"x", b"y"])
    shop.send_avro("fed", second, wider)
    statuses = shop.run(**asked).statuses
    errors = {name: statuses[f"{shop.prefix}.{name}"].error for name in ("orders", "users", "fed")}
    assert 'has changeDataFeed, so the ingest cannot rewrite it for a wider type: set widen = "feature"' in (
        errors.pop("fed") or ""
    )
    assert set(errors.values()) == {None}
    lake = shop.folder / "lake"
    for name, n in (("orders", 7), ("users", 6)):
        assert features(shop, name) == PLAIN
        table = deltalake.DeltaTable(lake / f"{shop.prefix}_{name}")
        assert polars.read_delta(str(lake / f"{shop.prefix}_{name}")).height == n
        assert {each.name: each.type.type for each in table.schema().fields}["id"] == "long"  # type: ignore[union-attr]
    assert deltalake.DeltaTable(lake / f"{shop.prefix}_orders").metadata().partition_columns == ["day"]
    assert shop.table("orders").schema["day"].metadata == {"comment": "of the order"}
    assert [row[0] for row in shop.rows("orders", "id")] == [0, 1, 2, 3, *(2**40 + n for n in range(3))]
    assert len([each for each in caplog.messages if "was rewritten for a wider type" in each]) == 2
    # The position holds: nothing is landed again, nor called another program's rewrite.
    caplog.clear()
    shop.send_avro("orders", second, wider)
    shop.run(**asked)
    assert len(shop.rows("orders", "id")) == 10 and len(shop.rows("_rejects", "offset")) == 1
    assert not [each for each in caplog.messages if "overwr" in each.lower() or "replaced" in each]
    proofs = {
        each.table: each
        for each in verify(
            shop.spark, shop.ingest(**asked).settings, [f"{shop.prefix}.{name}" for name in ("orders", "users")]
        )
    }
    assert len(proofs) == 2 and all(each.is_right for each in proofs.values()), "\n".join(map(str, proofs.values()))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_text_that_is_too_long_for_its_column_is_a_reject(shop: Shop, mode: Any) -> None:
    topic = shop.create("names", partitions=1)
    columns = (
        "_kafka_key BINARY, _kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMP"
    )
    place = f"{shop.folder}/lake/{shop.prefix}_names"
    shop.spark.sql(f"CREATE TABLE delta.`{place}` (name VARCHAR(3), {columns}) USING delta")
    table = Table(topic=".*", format="json", schema="name STRING", mode=mode, position={"0": "0"})
    values = ["a", "abcdef", "abc"]
    records = [
        shop.outside.Record(key=value.encode(), value=json.dumps({"name": value}).encode(), partition=0)
        for value in values
    ]
    shop.outside.produce(topic, records)
    status = shop.run(registry=None, tables=[table]).statuses[topic]
    assert status.error is None
    assert shop.rows("names", "name") == [("a",), ("abc",)]
    assert [row.offset for row in shop.table("_rejects").collect()] == [1]
