"""Files that tasks write: the same rows as Spark writes, and the same to every reader."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from pykafka_wire.ingest.tables.topic_table import VACUUMED_PROPERTY
from tests.connector.ingest.conftest import Shop, avro_schema, hold_compaction

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

#: All kinds of types that a table has, nested ones too.
WIDE = json.dumps(
    {
        "type": "record",
        "name": "Wide",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "small", "type": "int"},
            {"name": "ratio", "type": ["null", "float"]},
            {"name": "amount", "type": ["null", "double"]},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
            {
                "name": "exact",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}],
            },
            {"name": "name", "type": ["null", "string"]},
            {"name": "raw", "type": ["null", "bytes"]},
            {"name": "is_paid", "type": ["null", "boolean"]},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "local", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
            {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
            {"name": "counts", "type": ["null", {"type": "map", "values": ["null", "long"]}]},
            {
                "name": "place",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Place",
                        "fields": [
                            {"name": "city", "type": ["null", "string"]},
                            {"name": "marks", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
                        ],
                    },
                ],
            },
        ],
    }
)


#: Values of partitions: a path has each of them.
KINDS = ["plain", "a b/c=d%20", "å:?#", "", None]


def wide(number: int) -> dict[str, Any]:
    """A row; every third one has nulls, and there are the values that readers stumble over."""
    if number % 3 == 2:
        optional = dict.fromkeys(
            ("ratio", "amount", "exact", "name", "raw", "is_paid", "day", "at", "local", "tags", "counts", "place")
        )
    else:
        optional = {
            "ratio": 0.5 * number,
            "amount": [float("nan"), -0.0, 1e300, float("-inf")][number % 4],
            "exact": Decimal(number).scaleb(-10) - 10**20,
            "name": ["", "å" * 40, "z" * 200, "line\nbreak"][number % 4],
            "raw": bytes([number % 256, 0, 255]),
            "is_paid": number % 2 == 0,
            "day": [date(1, 1, 1), date(1582, 10, 4), date(2026, 2, 28)][number % 3],
            "at": datetime(1700 + number, 1, 1, 0, 0, 0, number, tzinfo=timezone.utc),
            "local": datetime(2026, 3, 29, 2, 30, 0, number),
            "tags": [[], ["a", None], ["b"]][number % 3],
            "counts": [{}, {"x": None, "y": 2**40}][number % 2],
            "place": {"city": [None, "Oslo"][number % 2], "marks": [{"x": number}, {}]},
        }
    return {"id": number - 5, "small": number, "price": Decimal(number) / 4, **optional}


def enveloped(number: int) -> dict[str, Any]:
    """A document of Kafka Connect's with its schema; every third one has a newer schema, with a field more."""
    kinds = [
        {"field": "id", "type": "int64"},
        {"field": "small", "type": "int16", "optional": True},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date", "optional": True},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
        {"field": "raw", "type": "bytes", "optional": True},
        {"field": "tags", "type": "array", "items": {"type": "string"}, "optional": True},
    ]
    payload: dict[str, Any] = {
        "id": number, "small": None if number % 2 else -number, "day": 20_000 + number, "at": 1_700_000_000_000_000 + number,
        "price": base64.b64encode((number * 100 - 5).to_bytes(3, "big", signed=True)).decode(),
        "raw": base64.b64encode(bytes([number])).decode(), "tags": ["a", "b"][: number % 3],
    }  # fmt: skip
    if number % 3 == 2:
        kinds.append({"field": "note", "type": "string", "optional": True})
        payload["note"] = f"å {number}"
    return {"schema": {"type": "struct", "fields": kinds}, "payload": payload}


def read_by_others(folder: Path) -> dict[str, list[str]]:
    """The table's rows by offset, as text, as DuckDB, Polars and deltalake read them."""
    stored = DeltaTable(folder)
    names = ["_kafka_partition", "_kafka_offset"]
    arrow = stored.to_pyarrow_table()
    by_deltalake = arrow.sort_by([(name, "ascending") for name in names]).to_pylist()
    by_polars = polars.scan_delta(str(folder)).sort(names).collect().to_dicts()
    with duckdb.connect() as connection:
        relation = connection.sql("SELECT * FROM arrow ORDER BY _kafka_partition, _kafka_offset")
        by_duckdb = relation.fetchall()
    read = {"deltalake": by_deltalake, "Polars": by_polars, "DuckDB": by_duckdb}
    return {reader: list(map(repr, rows)) for reader, rows in read.items()}


def way(table: Path) -> set[str]:
    """Which programs have committed rows to a table, by its log."""
    ways = set()
    for entry in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        if info.get("operation") == "WRITE" and any("add" in action for action in actions):
            ways.add("tasks" if info.get("engineInfo", "").startswith("delta-rs") else "Spark")
    return ways


def compact(shop: Shop, lake: Path, name: str) -> None:
    """Make few files of many, and delete all that nobody needs, which are two days old."""
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=str(lake))
    table, n_before = SparkDeltaTable(shop.spark, settings, name), len(DeltaTable(lake / name).file_uris())
    table.optimize(2**27)
    assert len(DeltaTable(lake / name).file_uris()) < n_before
    for each in (lake / name).rglob("*.parquet"):
        os.utime(each, (time.time() - 2 * 86_400,) * 2)
    table.vacuum(86_400_000)


@pytest.mark.parametrize("others", [("spark",), pytest.param(("spark", "compacted"), marks=pytest.mark.long)])
def test_both_ways_land_the_same_rows_for_every_reader(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    """By Spark's job: the other tests have few records, which the driver writes. And they are the same when they are compacted."""
    monkeypatch.setattr("pykafka_wire.ingest.landing.by_tasks._FEW_RECORDS", -1)
    for name in ("wide", "kinds", "free", "enveloped"):
        shop.create(name)
    shop.send_avro("wide", WIDE, [wide(number) for number in range(40)])
    shop.send("wide", [None, b"\x00no such schema"])
    shop.send_json("kinds", [{"kind": kind, "n": n, "at": "2026-01-01T00:00:00Z"} for n, kind in enumerate(KINDS * 4)])
    shop.send("kinds", [b"{", None])
    shop.send_json("free", [{"partition": n, "seen": {"page": "a", "tags": [n, None]}, "at": str(n)} for n in range(5)])
    shop.send("free", [b"["])
    shop.send_json("enveloped", [enveloped(number) for number in range(9)])
    shop.send_json("enveloped", [{**enveloped(0), "payload": None}])
    kinds = Table(topic=r".*\.kinds", format="json", schema="kind STRING, n INT, at TIMESTAMP", partition_by=("kind",))
    rows: dict[str, dict[str, list[str]]] = {}
    for way_of in ("auto", *others):
        writer = "spark" if way_of == "spark" else "auto"
        more = {"write": writer, "options": {"maxRecordsPerPartition": "4"} if way_of == "compacted" else {}}
        folder = shop.folder / way_of
        given = {
            "checkpoint": f"{folder}/checkpoint", "into": f"{folder}/lake", "headers": True,
            "tables": [
                Table(**{**as_dict(kinds), **more}),
                Table(topic=r".*\.(free|enveloped)", format="json", **more),
            ],
            "defaults": Table(topic=".*", **more),
        }  # fmt: skip
        ingest = shop.run(**given)
        assert [(each.error, each.rejects) for each in ingest.statuses.values()] == [(None, 1)] * 4
        found = rows[way_of] = {"newest": [repr(sorted(each.newest_ms or 0 for each in ingest.statuses.values()))]}
        assert "0" not in found["newest"][0].strip("[]").split(", ")
        for name in ("wide", "kinds", "free", "enveloped"):
            table = folder / "lake" / f"{shop.prefix}_{name}"
            if way_of == "compacted":
                compact(shop, table.parent, table.name)
            frame = shop.spark.read.format("delta").load(str(table))
            assert way(table) == {"tasks" if writer == "auto" else "Spark"}
            found[name] = [*map(repr, frame.orderBy("_kafka_partition", "_kafka_offset").collect())]
            found[f"{name}.schema"] = [frame.schema.simpleString()]
            found |= {f"{name} by {reader}": rows for reader, rows in read_by_others(table).items()}
        rejects = shop.spark.read.format("delta").load(str(folder / "lake" / "_rejects")).drop("micro_batch")
        found["rejects"] = [*map(repr, rejects.orderBy("topic").collect())]
    for name, by_tasks in rows["auto"].items():
        for way_of in others:
            assert len(by_tasks) == len(rows[way_of][name]), name
            for row, other in zip(by_tasks, rows[way_of][name], strict=True):
                assert row == other, name


# laws/test_positions.py does it without Spark.
@pytest.mark.long
def test_a_crash_before_and_after_each_commit_doubles_and_loses_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"defaults": Table(topic=".*", format="json", schema="n INT")}
    for name in ("old", "new"):
        shop.create(name)
    shop.send_json("old", [{"n": 100}])
    shop.run(**asked)
    for name in ("old", "new"):
        shop.send_json(name, [{"n": n} for n in range(20)])
        shop.send(name, [b"\xff"])
    crashed: list[tuple[Any, ...]] = []

    def crash_around(patched: pytest.MonkeyPatch, method: str) -> None:
        real = getattr(DeltaFolder, method)

        def step(self: DeltaFolder, *given: Any) -> None:
            for when in ("before", "after"):
                if when == "after":
                    real(self, *given)
                if (self.folder, method, when) not in crashed:
                    crashed.append((self.folder, method, when))
                    raise RuntimeError("crashed around a commit")

        patched.setattr(DeltaFolder, method, step)

    n_crashes = -1
    while len(crashed) > n_crashes:
        n_crashes = len(crashed)
        with monkeypatch.context() as patched:
            crash_around(patched, "create_of")
            crash_around(patched, "append_files")
            try:
                shop.ingest(**asked).start(shop.spark, once=True).awaitTermination(120)
            except StreamingQueryException as error:
                assert "could not be landed" in str(error)
    assert Counter(method for _, method, _ in crashed) == {"create_of": 2, "append_files": 4}
    assert shop.rows("new", "n") == [(n,) for n in range(20)]
    assert shop.rows("old", "n") == [(n,) for n in (*range(20), 100)]
    assert shop.rows("_rejects", "table") == [(f"{shop.prefix}_{name}",) for name in ("new", "old")]
    proofs = verify(shop.spark, shop.ingest(**asked).settings, shop.ingest(**asked).topics())
    assert all(each.is_right for each in proofs)


def test_new_columns_stay_with_tasks_and_a_wider_type_goes_to_spark(shop: Shop) -> None:
    shop.create("orders")
    topic = f"{shop.prefix}.orders"
    ways = []
    for fields, row in (
        (("id int",), {"id": 1}),
        (("id int", "note string?"), {"id": 2, "note": "x"}),
        (("id long", "note string?"), {"id": 2**40, "note": None}),
        (("id int",), {"id": 4}),
    ):
        shop.send_avro("orders", avro_schema(*fields), [row])
        status = shop.run().statuses[topic]
        assert (status.error, status.rows) == (None, 1)
        ways.append(status.by_spark)
    assert ways == [None, None, *["it has the table feature typeWidening"] * 2]
    assert shop.rows("orders", "id") == [(1,), (2,), (4,), (2**40,)]
    assert sorted(str(row.note) for row in shop.table("orders").collect()) == [*["None"] * 3, "x"]
    assert way(shop.folder / "lake" / f"{shop.prefix}_orders") == {"tasks", "Spark"}


@pytest.mark.long
def test_paths_without_a_file_system_are_in_that_of_hadoop_s_settings(shop: Shop) -> None:
    """By Hadoop's view of mounted folders: no path of it is a folder of this machine."""
    mounted = shop.folder / "mounted"
    mounted.mkdir()
    shop.spark = shop.spark.newSession()
    shop.spark.conf.set("fs.defaultFS", "viewfs://shop/")
    shop.spark.conf.set("fs.viewfs.mounttable.shop.link./mnt_shop", mounted.as_uri())
    asked = {
        "checkpoint": "/mnt_shop/checkpoint",
        "into": "/mnt_shop/lake",
        "defaults": Table(topic=".*", format="json", schema="n INT"),
    }
    name = shop.create("orders")
    for n in range(2):
        shop.send_json("orders", [{"n": n}])
        status = shop.run(**asked).statuses[name]
        assert (status.error, status.rows, status.by_spark) == (None, 1, "only Spark supports the scheme viewfs:")
    stored = DeltaTable(mounted / "lake" / f"{shop.prefix}_orders")
    assert sorted(stored.to_pyarrow_table()["n"].to_pylist()) == [0, 1]
    assert (mounted / "checkpoint" / "commits").is_dir() and not Path("/mnt_shop").exists()


@pytest.mark.long
def test_small_files_become_one_and_files_that_nobody_needs_go(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"defaults": Table(topic=".*", format="json", schema="n INT")}
    name = shop.create("orders")
    folder = shop.folder / "lake" / f"{shop.prefix}_orders"
    shop.send("orders", [b'{"n": 0}', b"{damaged"])
    shop.run(**asked)
    old, young = folder / "old.parquet", folder / "young.parquet"
    for orphan in (old, young):
        orphan.write_bytes(b"of a task that was killed")
    os.utime(old, (time.time() - 8 * 86_400,) * 2)
    monkeypatch.setattr("pykafka_wire.ingest.tables.delta.maintenance._MANY_FILES", 2)
    monkeypatch.setattr("pykafka_wire.ingest.tables.delta.maintenance.VACUUM_EVERY_S", 0.0)
    shop.send("orders", [b'{"n": 1}', b"{damaged"])
    shop.run(**asked)
    assert [each.operation for each in shop.history("_rejects")].count("OPTIMIZE") == 1, (
        "each of its commits adds a file, too"
    )
    assert shop.table("_rejects").count() == 2
    compactions = [each for each in shop.history("orders") if each.operation == "OPTIMIZE"]
    assert [each.engineInfo.partition("/")[0] for each in compactions] == ["Apache-Spark"], "whose statistics are right"
    assert len(DeltaTable(folder).file_uris()) == 1
    assert (old.exists(), young.exists()) == (False, True)
    monkeypatch.undo()
    shop.send_json("orders", [{"n": 2}])
    status = shop.run(**asked).statuses[name]
    assert (status.error, status.by_spark, shop.rows("orders", "n")) == (None, None, [(0,), (1,), (2,)])


def test_times_that_spark_writes_are_the_same_to_every_reader(shop: Shop) -> None:
    """By MERGE, and by the rewriting of files; Spark's own default is a type that ends in 2262 for most readers."""
    shop.create("times")
    name = f"{shop.prefix}.times"
    folder = shop.folder / "lake" / f"{shop.prefix}_times"
    asked = {
        "defaults": Table(
            topic=".*",
            format="json",
            mode="upsert",
            key_format="json",
            key_schema="id INT",
            schema="id INT, at TIMESTAMP, local TIMESTAMP_NTZ",
        )
    }
    last, first = "9999-12-31 23:59:59.999999", "0001-01-01 00:00:00"
    times = [last, first, "1582-10-10 00:00:00", "1899-12-31 23:59:59.5"]
    keys = [{"id": number} for number in range(len(times))]
    for n_sent in (2, 4):  # an append of the first rows, and a MERGE
        rows = [{"id": number, "at": f"{at}Z", "local": at} for number, at in enumerate(times[:n_sent])]
        shop.send_json("times", rows, keys=keys[:n_sent])
        assert shop.run(**asked).statuses[name].error is None
    stored = DeltaTable(folder)
    wanted = sorted(datetime.fromisoformat(at).replace(microsecond=0) for at in times)
    by_deltalake = stored.to_pyarrow_table(columns=["at", "local"])
    by_polars = polars.scan_delta(str(folder)).collect()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        by_duckdb = connection.execute(
            f"SELECT \"at\" AT TIME ZONE 'UTC', local FROM read_parquet({stored.file_uris()})"
        ).fetchall()
    for number, column in enumerate(("at", "local")):
        found = [
            [at.replace(tzinfo=None) for at in values]
            for values in (
                by_deltalake[column].to_pylist(),
                by_polars[column].to_list(),
                [row[number] for row in by_duckdb],
            )
        ]
        assert [sorted(at.replace(microsecond=0) for at in values) for values in found] == [wanted] * 3


@pytest.mark.long
def test_a_run_ends_when_its_compaction_has(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, until: Callable[..., Any]
) -> None:
    """A later run of this process, or of another one, would commit beside it."""
    shop.create("orders")
    has_begun, may_end = hold_compaction(monkeypatch)
    monkeypatch.setattr("pykafka_wire.ingest.tables.delta.maintenance.VACUUM_EVERY_S", 0.0)
    shop.send_json("orders", [{"n": 0}])
    ingest = shop.ingest(defaults=Table(topic=".*", format="json", schema="n INT"))
    query = ingest.start(shop.spark, every="0 seconds")
    assert has_begun.wait(60)
    query.stop()
    closing = threading.Thread(target=ingest.close)
    closing.start()
    try:
        until(lambda: f"The files of table {shop.prefix}_orders are being compacted" in caplog.text, what="the line")
        assert closing.is_alive()
    finally:
        may_end.set()
    closing.join(60)
    assert not closing.is_alive()
    properties = shop.spark.sql(f"SHOW TBLPROPERTIES delta.`{shop.folder}/lake/{shop.prefix}_orders`").collect()
    assert VACUUMED_PROPERTY not in {row.key for row in properties}, "it began no further step"


def as_dict(table: Table) -> dict[str, Any]:
    return {name: getattr(table, name) for name in table.__dataclass_fields__}
