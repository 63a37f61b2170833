"""Files that an ingest has added become few while the ingest runs; Spark's readers see the same rows, and no change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.files import compaction as files_compaction
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.tables import compaction as tables_compaction
from tests.connector.ingest.conftest import Shop

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_compaction, "FAN_IN", 3)
    monkeypatch.setattr(tables_compaction, "_CHECK_EVERY", 2)


@pytest.mark.long
def test_an_iceberg_table_keeps_few_files_while_it_is_landed(shop: Shop, until: Any) -> None:
    topic = shop.create("orders")
    given = {"type": "sql", "uri": f"sqlite:///{shop.folder}/catalog.db", "warehouse": f"file://{shop.folder}/lake"}
    load_catalog("lake", **given).create_namespace("shop")
    asked = {
        "into": "lake.shop", "table_format": "iceberg", "catalog": given,
        "defaults": Table(topic=".*", compact="often", format="json", schema="n INT, half INT", partition_by=("half",)),
    }  # fmt: skip

    def stored() -> Any:
        return load_catalog("lake", **given).load_table(f"shop.{shop.prefix}_orders")

    def operations() -> list[str]:
        return [str(each.summary.operation.value) for each in stored().metadata.snapshots]

    def has_few_files() -> bool:
        """Return whether the newest snapshot has: it has more while a compaction is late, on a busy machine."""
        return int(stored().current_snapshot().summary["total-data-files"]) < n / 4

    ingest = shop.ingest(**asked)
    query, n = ingest.start(shop.spark, every="0 seconds"), 0
    try:
        while n == 0 or operations().count("replace") < 3 or not has_few_files():
            shop.send_json("orders", [{"n": number, "half": number % 2} for number in (n, n + 1)])
            n += 2
            until(lambda n=n: topic in ingest.statuses and ingest.statuses[topic].rows == n, what=f"{n} rows")
            assert n < 400, f"{operations()}, {stored().current_snapshot().summary}"
    finally:
        query.stop()
        ingest.close()
    assert {*operations()} == {"append", "replace"}
    rows = stored().scan().to_arrow().sort_by("n")
    assert rows.select(["n", "half"]).to_pylist() == [{"n": number, "half": number % 2} for number in range(n)]
    shop.run(**asked)
    (proof,) = verify(shop.spark, shop.ingest(**asked).settings, [topic])
    assert proof.is_right, proof


def compactions(folder: Path) -> list[dict[str, Any]]:
    """The commits that replaced files, the newest first."""
    commits = DeltaTable(folder).history()
    return [commit for commit in commits if "pykafka-wire.compaction" in json.loads(commit.get("userMetadata", "{}"))]


def test_streams_and_the_change_feed_see_each_row_once_and_no_compaction(shop: Shop, until: Any) -> None:
    topic = shop.create("orders")
    folder = shop.folder / "lake" / f"{shop.prefix}_orders"
    asked = {
        "defaults": Table(
            topic=".*",
            compact="often",
            format="json",
            schema="n INT",
            properties={"delta.enableChangeDataFeed": "true"},
        )
    }
    ingest = shop.ingest(**asked)
    query = ingest.start(shop.spark, every="0 seconds")
    stream, n = None, 0
    try:
        # A compaction that is late leaves more files, on a busy machine.
        while stream is None or len(compactions(folder)) < 3 or len(DeltaTable(folder).file_uris()) >= n / 4:
            shop.send_json("orders", [{"n": number} for number in (n, n + 1)])
            n += 2
            until(lambda n=n: topic in ingest.statuses and ingest.statuses[topic].rows == n, what=f"{n} rows")
            assert n < 400, "nothing is compacted"
            if stream is None:
                written = shop.spark.readStream.format("delta").load(str(folder)).writeStream.format("memory")
                stream = written.queryName(shop.prefix).trigger(processingTime="0 seconds").start()
        stream.processAllAvailable()
    finally:
        query.stop()
        ingest.close()
        if stream is not None:
            stream.stop()
    wanted = [(number,) for number in range(n)]
    assert shop.rows("orders", "n") == wanted
    assert sorted(tuple(row) for row in shop.spark.table(shop.prefix).select("n").collect()) == wanted
    fed = shop.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", "0")
    changes = fed.load(str(folder)).select("n", "_change_type").collect()
    assert sorted((row.n, row._change_type) for row in changes) == [(number, "insert") for (number,) in wanted]
    again = shop.spark.readStream.format("delta").load(str(folder)).writeStream.format("memory")
    again = again.queryName(f"{shop.prefix}_again").trigger(availableNow=True).start()
    assert again.awaitTermination(120)
    assert sorted(tuple(row) for row in shop.spark.table(f"{shop.prefix}_again").select("n").collect()) == wanted
    assert "OPTIMIZE" not in {each.operation for each in shop.history("orders")}
    shop.run(**asked)
    (proof,) = verify(shop.spark, shop.ingest(**asked).settings, [topic])
    assert proof.is_right, proof
