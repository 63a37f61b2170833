"""``upsert`` and ``cdc`` into Iceberg tables by Spark's MERGE, on the newest Spark that Iceberg has a runtime for (`make compat`).

The catalog is a real one of Iceberg's REST protocol, and the rows are read by pyiceberg alone.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from tests.connector.compat.test_compat import environment_of, environment_with
from tests.connector.ingest.conftest import Shop, avro_schema
from tests.connector.ingest.rest_catalog import rest_catalog, runtime_jar

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).with_name("iceberg_program.py")
SPARK = "4.1.4"
FIRST = avro_schema("id int", "country string?", "note string?")
SECOND = avro_schema("id long", "country string?", "note string?", "amount double?")
ROW = "id INT, v STRING, n {n}, big STRING"
UNSENT = "__debezium_unavailable_value"
#: Where a driver is killed in a MERGE: its branch is made; the MERGE is done, and nobody sees it yet; the table has it.
DEATHS = (("_begin_branch", "after"), ("_publish", "before"), ("_publish", "after"))


class Program:
    """The program in Spark's own environment; started again after it has died."""

    def __init__(self, python: Path, settings: dict[str, str], folder: Path) -> None:
        self._command = [str(python), str(PROGRAM), json.dumps(settings)]
        self._environment = environment_of(python)
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def call(self, *command: Any) -> Any:
        """The result of a command; None if the program died."""
        if self._process is None:
            log = (self._folder / "program.log").open("ab")
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._folder,
                env=self._environment,
            )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("RESULT "):
                return json.loads(line.removeprefix("RESULT "))
        code, self._process = self._process.wait(60), None
        assert code == 9, (self._folder / "program.log").read_text(errors="replace")[-6000:]
        return None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)


class Database:
    """Two tables of a database, and their topics: ``users`` for upsert, ``rows`` for cdc."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._random = random.Random(7)
        self.users: dict[int, dict[str, Any]] = {}
        self.rows: dict[int, dict[str, Any]] = {}
        for name in ("users", "rows"):
            shop.create(name)

    def change_users(self, n: int, schema: str) -> None:
        keys, values = [], []
        names = [each["name"] for each in json.loads(schema)["fields"]]
        for number in range(n):
            id = self._random.randrange(30)
            row = {"id": id, "country": self._random.choice("NSD"), "note": f"{number}", "amount": number / 4}
            if self._random.random() < 0.25:
                self.users.pop(id, None)
                values.append(None)
            else:
                self.users[id] = {name: row[name] for name in names}
                values += self._shop.avro("users", schema, [self.users[id]])
            keys.append(b'{"id": %d}' % id)
        self._shop.send("users", values, keys=list(keys))

    def change_rows(self, n: int, most: int) -> None:
        changes: list[tuple[int, dict[str, Any] | None]] = []

        def note(id: int, op: str, row: dict[str, Any] | None) -> None:
            changes.append((id, {"op": op, "before": None, "after": row, "source": {"connector": "postgresql"}}))

        for number in range(n):
            id, kind = self._random.randrange(30), self._random.random()
            if id not in self.rows:
                self.rows[id] = {"id": id, "v": f"new {number}", "n": self._random.randrange(most), "big": f"big {id}"}
                note(id, "c", dict(self.rows[id]))
            elif kind < 0.2:
                del self.rows[id]
                note(id, "d", None)
                changes.append((id, None))
            elif kind < 0.4:  # another primary key, and a value that is not sent with it
                moved = {**self.rows.pop(id), "id": id + 100}
                self.rows[id + 100] = moved
                note(id, "d", None)
                changes.append((id, None))
                note(id + 100, "c", dict(moved))
            else:
                self.rows[id] |= {"v": f"changed {number}", "n": self._random.randrange(most)}
                note(id, "u", {**self.rows[id], "big": UNSENT})
        self._shop.send_json("rows", [each for _, each in changes], keys=[{"id": id} for id, _ in changes])

    def truncate_rows(self) -> None:
        time.sleep(0.05)
        self._shop.send("rows", [json.dumps({"op": "t", "source": {"connector": "postgresql"}}).encode()])
        self.rows.clear()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    return environment_with(SPARK, wheel)


@pytest.fixture
def catalog_url(java: None, tmp_path: Path) -> Iterator[str]:
    with rest_catalog(tmp_path) as url:
        yield url


def held(catalog: Catalog, name: str, *columns: str) -> dict[int, dict[str, Any]]:
    rows = catalog.load_table(f"shop.{name}").scan(selected_fields=columns).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def test_merged_tables_are_the_database_s_whatever_dies(
    python: Path, catalog_url: str, outside: Any, topic: Any, registry_url: str, tmp_path: Path
) -> None:
    shop = Shop(None, outside, topic, registry_url, tmp_path)
    properties = {"type": "rest", "uri": catalog_url}
    catalog = load_catalog("lake", **properties)
    catalog.create_namespace("shop")
    of_spark = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog", "spark.jars": str(runtime_jar())}
    of_spark |= {f"spark.sql.catalog.lake.{name}": value for name, value in properties.items()}
    program, database = Program(python, of_spark, tmp_path), Database(shop)

    def asked(n: str) -> dict[str, Any]:
        keyed = {"key_format": "json", "key_schema": "id INT"}
        rows = {"topic": r".*\.rows", "mode": "cdc", "format": "json", "schema": ROW.format(n=n), **keyed}
        return {
            "checkpoint": str(tmp_path / "checkpoint"), "kafka": {"bootstrap.servers": outside.servers},
            "topics": rf"{shop.prefix}\..*", "into": "lake.shop", "table_format": "iceberg", "catalog": properties,
            "registry": registry_url, "tables": [{"topic": r".*\.users", "mode": "upsert", **keyed}, rows],
        }  # fmt: skip

    def assert_equal(*more: str) -> None:
        assert held(catalog, f"{shop.prefix}_users", "id", "country", "note", *more) == database.users
        assert held(catalog, f"{shop.prefix}_rows", "id", "v", "n", "big") == database.rows

    try:
        for _ in range(2):  # a first commit, which appends, and a MERGE
            database.change_users(60, FIRST)
            database.change_rows(60, 100)
            landed = program.call("land", asked("INT"))
            assert (set(landed["errors"].values()), set(landed["ways"].values())) == (
                {None},
                {f"{mode} needs MERGE, for which Spark needs Iceberg's runtime" for mode in ("upsert", "cdc")},
            )
            assert_equal()

        for death in DEATHS:
            database.change_users(40, FIRST)
            database.truncate_rows()
            database.change_rows(60, 100)
            assert program.call("land", asked("INT"), death) is None
        for _ in range(2):  # Spark 4.1 ends after the micro-batch that was begun, whatever is there since
            landed = program.call("land", asked("INT"))
            assert set(landed["errors"].values()) == {None}
        assert_equal()
        assert all("each there once" in each or "as they should be" in each for each in landed["proofs"]), landed[
            "proofs"
        ]

        # A value that does not fit is a reject, until its column is wider; a new column; a key of a wider type.
        large = {"id": 777, "v": "large", "n": 2**40, "big": "b"}
        shop.send_json("rows", [{"op": "c", "before": None, "after": large}], keys=[{"id": 777}])
        program.call("land", asked("INT"))
        assert_equal()
        database.users = {id: {**row, "amount": None} for id, row in database.users.items()}
        database.change_users(40, SECOND)
        database.change_rows(40, 2**50)
        assert set(program.call("land", asked("BIGINT"))["errors"].values()) == {None}
        assert_equal("amount")
        assert program.call("replay", asked("BIGINT")) == [
            f"{shop.prefix}_rows: 1 landed, 0 still damaged, 0 no longer in the topic"
        ]
        database.rows[777] = large
        assert_equal("amount")
        types = {
            field.name: str(field.field_type)
            for field in catalog.load_table(f"shop.{shop.prefix}_users").schema().fields
        }
        assert (types["id"], types["amount"]) == ("long", "double")

        shop.send("users", [None], keys=[b'{"id": 99999}'])  # nothing changes but the position
        landed = program.call("land", asked("BIGINT"))
        assert (set(landed["errors"].values()), any(" behind" in each for each in landed["proofs"])) == ({None}, False)

        raced = program.call("race", asked("BIGINT"), f"{shop.prefix}_users")
        assert raced["refused"] == ["CommitFailedException", True]
        notes = [row["note"] for row in held(catalog, f"{shop.prefix}_users", "id", "note").values()]
        assert (notes.count("newer"), notes.count("older")) == (1, 0)
    finally:
        program.close()
