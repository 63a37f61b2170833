"""SQL over landed tables, which other programs than Spark have written here: a Delta table is one, whoever writes it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connector.cli.conftest import SCRIPT

deltalake = pytest.importorskip("deltalake")
Command = Callable[..., Any]


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """The file of an ingest with the tables orders, of three rows, and users."""
    orders = pa.table({"id": [1, 2, 3], "country": ["DE", "FR", "DE"], "raw": [b"\x00", b"\x01", None]})
    deltalake.write_deltalake(str(tmp_path / "lake" / "orders"), orders)
    deltalake.write_deltalake(str(tmp_path / "lake" / "users"), pa.table({"id": [7]}))
    file = tmp_path / "shop.toml"
    file.write_text(
        f'checkpoint = "{tmp_path}/c"\ntopics = ".*"\ninto = "{tmp_path}/lake"\nkafka = {{"bootstrap.servers" = "b:9092"}}\n'
        'defaults = { format = "json" }\n'
    )
    return str(file)


def test_sql_over_the_tables_by_their_names(shop: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.setattr("pykafka_wire.cli.query.session", lambda _: pytest.fail("Spark was started"))
    sql = "SELECT country, count(*) AS n FROM orders GROUP BY country ORDER BY country"
    assert json.loads(command("query", shop, sql, "--json").stdout) == [
        {"country": "DE", "n": 2},
        {"country": "FR", "n": 1},
    ]
    shown = command("query", shop, "SELECT o.raw, u.id FROM orders o, users u ORDER BY o.id", "--limit", "2")
    assert shown.stdout.split() == ["raw", "id", "0x00", "7", "0x01", "7"] and "Only the first 2 rows" in shown.stderr
    assert "Tables: orders, users." in command("query", shop, "SELECT * FROM nothing", code=1).stderr
    assert [row["table"] for row in json.loads(command("query", shop, "--json").stdout)] == ["orders", "users"]


def test_a_query_needs_no_brokers_and_offers_no_settings_of_them(shop: str, command: Command) -> None:
    file = Path(shop)
    text = file.read_text()
    file.write_text(text.replace('kafka = {"bootstrap.servers" = "b:9092"}\n', ""))
    assert file.read_text() != text
    assert [row["table"] for row in json.loads(command("query", shop, "--json").stdout)] == ["orders", "users"]
    assert "No such option" in command("query", "-b", "b:9092", shop, code=2).stderr


def test_before_the_first_table_the_answer_is_the_command_that_lands_them(
    shop: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    said = command("query", shop, "SELECT * FROM orders", code=1).stderr
    assert f"There is no table in {tmp_path}/lake yet: run pykafka-wire ingest {shop}." in said


def test_a_table_in_which_nothing_has_landed_is_named(shop: str, command: Command, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    empty = pa.schema({"id": pa.int64()})
    deltalake.DeltaTable.create(str(tmp_path / "lake" / "clicks"), deltalake.Schema.from_arrow(empty))
    said = command("query", shop, "SELECT o.id FROM orders o JOIN clicks c USING (id)").stdout
    assert said == "No rows. Nothing has landed in clicks yet.\n"
    assert command("query", shop, "SELECT id FROM orders WHERE id > 9").stdout == "No rows.\n"


def test_a_table_that_its_running_ingest_has_not_landed_yet_is_no_riddle(
    shop: str, command: Command, tmp_path: Path
) -> None:
    pytest.importorskip("duckdb")
    said = "Its ingest is running: a missing table appears when its first records have landed."
    asked = ("query", shop, "SELECT * FROM unborn")
    assert said not in command(*asked, code=1).stderr
    holding = (
        "from pykafka_wire.ingest.startup.lease import CheckpointLease\n"
        f"lease = CheckpointLease.take({str(tmp_path / 'c')!r}, lambda: True)\nprint(flush=True)\ninput()\nlease.release()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "\n"
        shown = command(*asked, code=1).stderr
        holder.communicate("\n", timeout=60)
    assert holder.returncode == 0 and "unborn does not exist" in shown and said in shown
    assert said not in command(*asked, code=1).stderr


@pytest.mark.spark
def test_an_error_of_sql_in_spark_is_one_sentence(shop: str) -> None:
    done = subprocess.run(
        [SCRIPT, "query", shop, "SELECT * FROM unborn", "--engine", "spark"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1 and done.stderr.startswith(
        "Error: [TABLE_OR_VIEW_NOT_FOUND] The table or view `unborn`"
    ), done
    assert len(done.stderr.splitlines()) == 1


def test_rows_are_found_by_columns_of_which_the_log_has_no_bounds(shop: str, command: Command, tmp_path: Path) -> None:
    """Delta has none of booleans, and none of a file with a NaN."""
    pytest.importorskip("duckdb")
    folder, columns = (
        str(tmp_path / "lake" / "flags"),
        pa.schema({"flag": pa.bool_(), "price": pa.float64(), "day": pa.string()}),
    )
    deltalake.DeltaTable.create(folder, deltalake.Schema.from_arrow(columns), partition_by=["day"])
    for number, day in enumerate(("a b/%", None)):
        file, rows = f"{number}.parquet", pa.table({"flag": [True, False], "price": [5.0, float("nan")]})
        pq.write_table(rows, f"{folder}/{file}")
        stats = json.dumps({"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"flag": 0, "price": 0}})
        add = deltalake.transaction.AddAction(file, Path(folder, file).stat().st_size, {"day": day}, 0, True, stats)
        deltalake.DeltaTable(folder).create_write_transaction(
            [add], "append", deltalake.Schema.from_arrow(columns), partition_by=["day"]
        )

    def count(condition: str) -> int:
        (row,) = json.loads(
            command("query", shop, f"SELECT count(*) AS n FROM flags WHERE {condition}", "--json").stdout
        )
        return int(row["n"])

    counts = {
        text: count(text)
        for text in ("flag = true", "price = 5", "day = 'a b/%'", "day IS NULL", "day IS NULL AND NOT flag")
    }
    assert list(counts.values()) == [2, 2, 2, 2, 1], counts


def test_what_duckdb_cannot_do_is_said(shop: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykafka_wire.cli.query.find_spec", lambda name: None)
    said = command("query", shop, "SELECT 1", "--engine", "duckdb", code=1).stderr
    assert "not installed: duckdb, deltalake (pip install duckdb deltalake)" in said


def test_iceberg_tables_are_asked_like_others(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    from pyiceberg.catalog import load_catalog

    monkeypatch.setattr("pykafka_wire.cli.query.session", lambda _: pytest.fail("Spark was started"))
    given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    catalog = load_catalog("lake", **given)
    catalog.create_namespace("shop")
    orders = pa.table({"id": [1, 2], "country": ["DE", "FR"]})
    catalog.create_table("shop.orders", orders.schema).append(orders)
    file = tmp_path / "shop.toml"
    file.write_text(
        f'checkpoint = "{tmp_path}/c"\ntopics = ".*"\ninto = "lake.shop"\ntable_format = "iceberg"\n'
        'defaults = { format = "json" }\nkafka = {"bootstrap.servers" = "b:9092"}\n'
        f'catalog = {{type = "sql", uri = "{given["uri"]}"}}\n'
    )
    shown = command("query", str(file), "SELECT country FROM orders WHERE id = 2", "--json").stdout
    assert json.loads(shown) == [{"country": "FR"}]
    assert json.loads(command("query", str(file), "--json").stdout) == [
        {"table": "orders", "place": "lake.shop.orders"}
    ]
    file.write_text(file.read_text().replace("lake.shop", "lake.unborn"))  # the first start makes the namespace
    assert "There is no table in lake.unborn yet" in command("query", str(file)).stdout
    assert "There is no table in lake.unborn yet: run" in command("query", str(file), "SELECT 1", code=1).stderr
