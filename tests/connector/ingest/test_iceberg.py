"""Topics become Iceberg tables, by pyiceberg and a catalog in SQLite, or one of Iceberg's REST protocol: no jar of Iceberg's."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.transforms import BucketTransform

from pykafka_wire.cli.app import commands
from pykafka_wire.ingest import IngestError, Table
from pykafka_wire.ingest.proof.replay import replay_rejects
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.position import Landed
from tests.connector.ingest.conftest import Shop, avro_schema
from tests.connector.ingest.test_page import read, until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

FIRST = avro_schema("id int", "country string")
SECOND = avro_schema("id long", "country string", "amount double?")
CONFLICT = avro_schema("id string", "country string")


class Lake:
    """A catalog, and the settings of an ingest into it."""

    def __init__(self, shop: Shop, catalog_settings: dict[str, str]) -> None:
        self.shop = shop
        self.catalog_settings = catalog_settings
        #: Of this test alone: the server is others', too.
        self.namespace = f"n_{shop.prefix}"
        self.settings: dict[str, Any] = {
            "into": f"lake.{self.namespace}", "table_format": "iceberg", "catalog": self.catalog_settings,
            "tables": [
                Table(topic=r".*\.clicks", format="json", partition_by=("page",), schema="page STRING, n INT"),
                Table(topic=r".*\.parts", name="parts", format="json", schema="n INT", where="n > 1"),
            ],
        }  # fmt: skip
        self.catalog.create_namespace(self.namespace)

    @property
    def catalog(self) -> Catalog:
        return load_catalog("lake", **self.catalog_settings)

    def table(self, name: str) -> Any:
        return self.catalog.load_table(
            f"{self.namespace}.{name if name.startswith('_') else f'{self.shop.prefix}_{name}'}"
        )

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.table(name).scan(selected_fields=columns).to_arrow().to_pylist()
        return sorted(tuple(row[each] for each in columns) for row in rows)


@pytest.fixture(params=["sql", pytest.param("rest", marks=pytest.mark.long)])
def lake(shop: Shop, request: Any) -> Lake:
    given = {"type": "sql", "uri": f"sqlite:///{shop.folder}/catalog.db", "warehouse": f"file://{shop.folder}/lake"}
    return Lake(
        shop, given if request.param == "sql" else {"type": "rest", "uri": request.getfixturevalue("iceberg_rest")}
    )


def test_topics_become_iceberg_tables_that_grow_and_are_proved(lake: Lake) -> None:
    shop = lake.shop
    for name in ("orders", "clicks", "parts"):
        shop.create(name)
    shop.send_avro("orders", FIRST, [{"id": n, "country": "NO"} for n in range(10)])
    shop.send_json("parts", [{"n": n} for n in range(4)])
    shop.send_json("clicks", [{"page": f"p{n % 2}", "n": n} for n in range(6)])
    shop.send("clicks", [b"{"])
    ingest = shop.ingest(**lake.settings)
    assert [each.by_spark for each in ingest.plan()] == [None] * 3
    statuses = shop.run(ingest).statuses.values()
    assert sorted((each.error, each.rows, each.rejects) for each in statuses) == [
        (None, 2, 0),
        (None, 6, 1),
        (None, 10, 0),
    ]
    shop.send_avro("orders", SECOND, [{"id": 2**40, "country": "SE", "amount": 1.5}])
    ingest = shop.ingest(**lake.settings)
    query = ingest.start(shop.spark, once=True, ui="0")
    assert query.awaitTermination(240)
    assert ingest.page is not None
    try:
        _check_page(ingest.page, f"{shop.prefix}.orders", f"{shop.prefix}.clicks")
    finally:
        ingest.page.close()
    names = [field.name for field in lake.table("orders").schema().fields]
    assert names[:4] == ["id", "country", "amount", "_kafka_key"]
    assert lake.rows("orders", "id")[-1:] == [(2**40,)]
    assert len(lake.rows("orders", "id", "amount")) == 11
    assert lake.rows("clicks", "n", "page") == [(n, f"p{n % 2}") for n in range(6)]
    assert [(row[0], row[1]) for row in lake.rows("_rejects", "table", "value")] == [(f"{shop.prefix}_clicks", b"{")]
    paths = [task.file.file_path for task in lake.table("orders").scan().plan_files()]
    found = duckdb.sql(
        f"SELECT count(*), max(id), max(amount) FROM read_parquet({paths}, union_by_name=true)"
    ).fetchall()
    assert found == [(11, 2**40, 1.5)]
    orders = IcebergTable(shop.spark, ingest.settings, f"{shop.prefix}_orders")
    orders.expire(0)
    orders.refresh()
    assert [each.end for each in orders.history()] == [{0: 6, 1: 5}]
    shop.send_avro("orders", SECOND, [{"id": 7, "country": "DK", "amount": 0.5}])
    shop.run(ingest)
    assert len(lake.rows("orders", "id")) == 12
    proofs = list(verify(shop.spark, shop.ingest(**lake.settings).settings, shop.ingest(**lake.settings).topics()))
    assert [proof.is_right for proof in proofs] == [True, True, True], list(map(str, proofs))
    rejects = lake.table("_rejects").metadata_location
    clicks = lake.table("clicks")
    of_catalog = (["--rejects", rejects], []) if "file:" in rejects else (["--rejects", rejects],)
    for place in (clicks.location().removeprefix("file://"), clicks.metadata_location):
        for named in of_catalog:
            asked = ["prove", str(shop.folder / "checkpoint"), place, *named, "-b", shop.outside.servers]
            proved = CliRunner().invoke(commands, asked)
            assert proved.exit_code == 0 and f"7 records of {shop.prefix}.clicks; each there once" in proved.stdout, (
                proved
            )
    part = lake.catalog.load_table(f"{lake.namespace}.parts").location()
    refused = CliRunner().invoke(commands, ["prove", part.removeprefix("file://"), "-b", shop.outside.servers])
    assert "has a subset of its topic's records (where n > 1)" in str(refused.exception), refused


def _check_page(page: Any, orders: str, clicks: str) -> None:
    """The page shows what the tables' snapshots hold."""
    tables = until(
        lambda: (
            found
            if (found := {each["topic"]: each for each in read(page, "/api/tables")["tables"]})
            and found[orders]["bytes"]
            else None
        )
    )
    assert (tables[orders]["files"], tables[orders]["rows"], tables[clicks]["held_rejects"]) == (2, 1, 1)
    history = read(page, f"/api/table/history?topic={orders}")
    assert (history["problem"], history["is_whole"]) == (None, True)
    columns = {each["name"]: (each["type"], each["version"]) for each in history["columns"]}
    assert (columns["id"], columns["country"], columns["amount"]) == (("bigint", 1), ("string", 1), ("double", 2))
    assert history["changes"][0]["changes"] == [
        {"kind": "added", "column": "amount", "type": "double"},
        {"kind": "widened", "column": "id", "type": "bigint", "from": "int"},
    ]
    assert [each["rows"] for each in history["commits"]] == [1, 10]
    assert history["commits"][0]["micro_batch"] > history["commits"][1]["micro_batch"]
    (reject,) = read(page, f"/api/table/history?topic={clicks}")["rejects"]
    assert reject["reason"]
    assert "pyiceberg" in read(page, f"/api/table?topic={orders}")["queries"]
    assert "pyiceberg" in read(page, "/api/ingest")["versions"]


@pytest.mark.long
def test_a_topic_feeds_iceberg_tables_by_conditions(lake: Lake) -> None:
    shop = lake.shop
    shop.create("clicks")
    read: dict[str, Any] = {"topic": r".*\.clicks", "format": "json", "schema": "page STRING, n INT"}
    even = Table(**read, name="even", where="n % 2 = 0", select=("n", "upper(page) AS page"), expect={"small": "n < 4"})
    odd = Table(**read, name="odd", where="n % 2 = 1", partition_by=("page",))
    asked = {**lake.settings, "tables": [even, odd]}
    for _ in range(2):
        shop.send_json("clicks", [{"page": f"p{n}", "n": n} for n in range(6)])
        ingest = shop.run(**asked)
        assert [(each.error, each.rows, each.rejects) for each in ingest.statuses.values()] == [
            (None, 2, 1),
            (None, 3, 0),
        ]

    def rows(name: str) -> list[tuple[Any, ...]]:
        found = (
            lake.catalog.load_table(f"{lake.namespace}.{name}")
            .scan(selected_fields=("n", "page"))
            .to_arrow()
            .to_pylist()
        )
        return sorted((each["n"], each["page"]) for each in found)

    assert rows("even") == [(0, "P0"), (0, "P0"), (2, "P2"), (2, "P2")]
    assert rows("odd") == [(n, f"p{n}") for n in (1, 1, 3, 3, 5, 5)]
    assert all(each.is_right for each in verify(shop.spark, ingest.settings, ingest.topics()))


def test_a_table_keeps_the_kind_of_its_documents(lake: Lake) -> None:
    """The only column of both topics' tables is value."""
    shop = lake.shop
    asked = {**lake.settings, "tables": [Table(topic=".*", format="json")], "registry": None}
    for name, documents in {"scalars": [1, 2], "objects": [{"value": 1}]}.items():
        shop.create(name)
        shop.send_json(name, documents)
    shop.run(**asked)
    shop.send_json("scalars", [3, {"value": 4}, {"x": 4}, 5])
    shop.send_json("objects", [{"value": 3}, 4])
    ingest = shop.run(**asked)
    assert (lake.rows("scalars", "value"), lake.rows("objects", "value")) == ([(1,), (2,), (3,), (5,)], [(1,), (3,)])
    rejects = {each.topic.rpartition(".")[2]: each.held_rejects for each in ingest.statuses.values()}
    assert rejects == {"scalars": 2, "objects": 1}


@pytest.mark.long
def test_a_crash_before_and_after_each_commit_doubles_and_loses_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = lake.shop
    shop.create("clicks")
    shop.send_json("clicks", [{"page": "a", "n": n} for n in range(20)])
    shop.send("clicks", [b"\xff"])
    real, crashed = IcebergTable.append_files, []

    def append_files(self: IcebergTable, *given: Any) -> None:
        for step in ("before", "after"):
            if step == "after":
                real(self, *given)
            if (self.identifier, step) not in crashed:
                crashed.append((self.identifier, step))
                raise RuntimeError(f"crashed {step} a commit")

    with monkeypatch.context() as patched:
        patched.setattr(IcebergTable, "append_files", append_files)
        for _ in range(4):
            query = shop.ingest(**lake.settings).start(shop.spark, once=True)
            try:
                query.awaitTermination(120)
            except Exception as error:
                assert "crashed" in str(error)
    shop.run(**lake.settings)
    assert len(crashed) == 4
    assert lake.rows("clicks", "n") == [(n,) for n in range(20)]
    assert lake.rows("_rejects", "value") == [(b"\xff",)]


@pytest.mark.long
def test_tasks_read_the_rows_that_spark_reads(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do in an object store: values of all types, and files from before a column, a field and a wider type."""
    spark = lake.shop.spark
    table = IcebergTable(spark, lake.shop.ingest(**lake.settings).settings, "kinds")
    first = "n INT, price DECIMAL(12,2), place STRUCT<city: STRING, marks: ARRAY<MAP<STRING, INT>>>"
    table.create(first, Table(topic="kinds"), "q", None)
    values = [(1, Decimal("1.25"), ("Oslo", [{"a": 1}, {}])), (None, None, None), (2, None, (None, None))]
    table.append(spark.createDataFrame(values, first), None)
    second = (
        "n BIGINT, price DECIMAL(14,2), place STRUCT<city: STRING, marks: ARRAY<MAP<STRING, INT>>, zip: STRING>, raw BINARY, "
        "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, tags ARRAY<STRING>, flag BOOLEAN, ratio DOUBLE"
    )
    at = datetime(2026, 3, 29, 2, 30, 0, 1)
    place = ("Rome", None, "x")
    more = (
        3_000_000_000,
        Decimal("123456789012.25"),
        place,
        b"\0\xff",
        date(1582, 10, 4),
        at,
        at,
        [None, "a"],
        True,
        0.5,
    )
    table.append(spark.createDataFrame([more], second), None)
    by_spark = sorted(map(repr, table.rows.collect()))
    assert len(by_spark) == 4
    monkeypatch.setattr("pykafka_wire.ingest.tables.iceberg.files._OF_HADOOP", frozenset())
    assert sorted(map(repr, table.rows.collect())) == by_spark
    assert table.rows.where("n > 2").select("day", "place.zip").collect()[0].zip == "x"


def test_rejects_are_replayed_and_a_conflict_stops_its_table_alone(lake: Lake) -> None:
    shop = lake.shop
    for name in ("orders", "clicks"):
        shop.create(name)
    shop.send_json("clicks", [{"page": "a", "n": 1}, {"page": "a", "n": "many"}])
    shop.send_avro("orders", FIRST, [{"id": 1, "country": "NO"}])
    shop.run(**lake.settings)
    shop.send_avro("orders", CONFLICT, [{"id": "x", "country": "NO"}])
    statuses = shop.run(**lake.settings).statuses
    assert "PYKAFKA_WIRE_COLUMN_CONFLICT" in str(statuses[f"{shop.prefix}.orders"].error)
    mended = shop.ingest(
        **{**lake.settings, "tables": [Table(topic=r".*\.clicks", format="json", schema="page STRING")]}
    )
    assert [str(each) for each in replay_rejects(shop.spark, mended.settings)] == [
        f"{shop.prefix}_clicks: 1 landed, 0 still damaged, 0 no longer in the topic"
    ]
    assert sorted(map(str, lake.table("clicks").scan(selected_fields=("n",)).to_arrow()["n"].to_pylist())) == [
        "1",
        "None",
    ]
    assert lake.rows("_rejects", "value") == []
    shop.send_json("clicks", [{"page": "b", "n": 2}])
    again = shop.run(**lake.settings).statuses[f"{shop.prefix}.clicks"]
    assert (again.error, again.rows, lake.rows("_rejects", "value")) == (None, 1, []), "its rejects are done"
    shop.send_avro("orders", FIRST, [{"id": 2, "country": "NO"}])
    diverting = {**lake.settings, "defaults": Table(topic=".*", on_conflict="divert")}
    diverted = shop.run(**diverting).statuses[f"{shop.prefix}.orders"]
    assert (diverted.error, diverted.rejects, lake.rows("orders", "id")) == (None, 1, [(1,), (2,)])


def test_a_table_that_was_rolled_back_has_each_record_or_its_reject_once(lake: Lake) -> None:
    shop = lake.shop
    shop.create("clicks", partitions=1)

    def send(*numbers: Any) -> None:
        texts = [json.dumps({"page": "a", "n": number}) for number in numbers]
        records = [shop.outside.Record(key=None, value=text.encode(), partition=0) for text in texts]
        shop.outside.produce(f"{shop.prefix}.clicks", records)

    for value in range(3):
        send(value, "many")
        shop.run(**lake.settings)
        if value == 0:
            first = lake.table("clicks").current_snapshot().snapshot_id
    assert lake.rows("_rejects", "offset") == [(1,), (3,), (5,)]
    lake.table("clicks").manage_snapshots().rollback_to_snapshot(first).commit()
    send(3, "many")
    ingest = shop.ingest(**lake.settings)
    status = shop.run(ingest).statuses[f"{shop.prefix}.clicks"]
    assert (status.error, lake.rows("clicks", "n")) == (None, [(0,), (1,), (2,), (3,)])
    assert lake.rows("_rejects", "offset") == [(1,), (3,), (5,), (7,)]
    (proof,) = verify(shop.spark, ingest.settings, [f"{shop.prefix}.clicks"])
    assert proof.is_right, str(proof)


@pytest.mark.long
@pytest.mark.parametrize("is_registered", [False, True])
def test_rejects_that_are_replayed_after_a_rollback_are_there_once(lake: Lake, is_registered: bool) -> None:
    """The table is set back, or dropped and registered with older metadata; the rejects are replayed before the start."""
    shop = lake.shop
    shop.create("clicks", partitions=1)
    large = 5_000_000_000

    def send(*numbers: Any) -> None:
        texts = [json.dumps({"page": "a", "n": number}) for number in numbers]
        records = [shop.outside.Record(key=None, value=text.encode(), partition=0) for text in texts]
        shop.outside.produce(f"{shop.prefix}.clicks", records)

    for value in (0, 2, 4):
        send(value, large + value + 1)
        shop.run(**lake.settings)
        if value == 0:
            stored = lake.table("clicks")
            first, metadata = stored.current_snapshot().snapshot_id, stored.metadata_location
    if is_registered:
        name = (lake.namespace, f"{shop.prefix}_clicks")
        lake.catalog.drop_table(name)
        lake.catalog.register_table(name, metadata)
    else:
        lake.table("clicks").manage_snapshots().rollback_to_snapshot(first).commit()
    wider = [Table(topic=r".*\.clicks", format="json", partition_by=("page",), schema="page STRING, n BIGINT")]
    mended = shop.ingest(**{**lake.settings, "tables": wider})
    (replay,) = replay_rejects(shop.spark, mended.settings)
    assert (replay.landed, replay.mistake) == (1, None)
    send(6, "many")
    status = shop.run(mended).statuses[f"{shop.prefix}.clicks"]
    assert status.error is None
    assert lake.rows("clicks", "_kafka_offset") == [(offset,) for offset in range(7)]
    assert lake.rows("_rejects", "offset") == [(7,)]
    (proof,) = verify(shop.spark, mended.settings, [f"{shop.prefix}.clicks"])
    assert proof.is_right, str(proof)


def test_rows_of_which_a_task_can_write_some_are_not_committed(lake: Lake) -> None:
    shop = lake.shop
    table = IcebergTable(shop.spark, shop.ingest(**lake.settings).settings, "halves")
    initial_position = Landed(query="q", micro_batch=-1, topic="halves", topic_id="", start={0: 0}, end={0: 0})
    table.create("id BIGINT, half INT", Table(topic="halves", partition_by=("half",)), "q", initial_position)
    data = Path(table.folder.location.removeprefix("file://"))
    data.mkdir(parents=True)
    (data / "half=1").touch()  # where a folder would be
    rows = shop.spark.range(0, 10, 1, 2).selectExpr("id", "int(id % 2) AS half")
    for landed in (replace(initial_position, micro_batch=0, end={0: 10}), None):
        with pytest.raises(
            OSError, match=rf"tasks cannot write files of the Iceberg table lake\.{lake.namespace}\.halves"
        ):
            table.append(rows, landed)
    assert (table.landed(), table.version) == (initial_position, -1)
    (data / "half=1").unlink()
    table._table.update_spec().remove_field("half").add_field("id", BucketTransform(4)).commit()
    with pytest.raises(IngestError, match=r"partitions by bucket\[4\] of id"):
        table.append(rows, replace(initial_position, micro_batch=0, end={0: 10}))
    assert table.version == -1


def test_a_namespace_that_the_catalog_lacks_is_made(lake: Lake) -> None:
    lake.shop.create("clicks")
    lake.shop.send_json("clicks", [{"n": 1}])
    elsewhere = Table(topic=r".*\.clicks", format="json", schema="n INT")
    lake.shop.run(**{**lake.settings, "into": "lake.other", "tables": [elsewhere]})
    assert lake.catalog.load_table(f"other.{lake.shop.prefix}_clicks").scan().to_arrow()["n"].to_pylist() == [1]


def test_what_iceberg_tables_cannot_have_is_said_before_anything_starts(lake: Lake) -> None:
    with pytest.raises(IngestError, match=r"(?s)catalog\.namespace.*cluster_by needs Delta.*rewrite_data_files"):
        lake.shop.ingest(
            table_format="iceberg",
            tables=[Table(topic="a", mode="upsert", cluster_by=("id",), compact="true")],
        )
    lake.shop.create("clicks")
    upsert = {**lake.settings, "tables": [Table(topic=r".*\.clicks", format="json", schema="n INT", mode="upsert")]}
    refused = r"mode upsert needs MERGE.*this session, which has no catalog lake \(spark\.sql\.catalog\.lake\): start Spark with"
    with pytest.raises(IngestError, match=refused):
        lake.shop.run(**upsert)
    lake.shop.spark = lake.shop.spark.newSession()
    lake.shop.spark.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    with pytest.raises(IngestError, match=rf"which does not see lake\.{lake.namespace} \(.*SparkCatalog"):
        lake.shop.run(**upsert)
