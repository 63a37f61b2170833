"""Delta's log read from its files; `test_page.py` reads logs that Delta has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction
from pyspark.sql.types import StructType

from pykafka_wire.ingest.tables.delta.log import DeltaLog
from pykafka_wire.ingest.tables.delta.maintenance import has_many_small_files
from pykafka_wire.ingest.tables.delta.own_files import compaction_metadata
from pykafka_wire.ingest.tables.log import COMPACTION, LoggedCommit, changes_between, flat_types
from pykafka_wire.ingest.watching.page import _changes, _columns
from pykafka_wire.ingest_status import TableSize


def schema(ddl: str) -> StructType:
    fields = [each.split() for each in ddl.split(", ")]
    kinds = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    return StructType.fromJson({"type": "struct", "fields": kinds})


class Log:
    """A log as Delta writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "_delta_log"
        self.folder.mkdir(parents=True)
        self.version = -1

    def commit(self, ddl: str | None = None, *, rows: int = 1, has_checksum: bool = True, **info: Any) -> None:
        self.version += 1
        metadata = None if ddl is None else {"id": "x", "schemaString": schema(ddl).json()}
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": 1_000 * self.version, "operation": "WRITE", **info}}
        ]
        actions += [] if metadata is None else [{"metaData": metadata}]
        add = {
            "path": f"{self.version}.parquet",
            "size": 100,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows}),
        }
        actions.append({"add": add})
        self.write("json", "\n".join(map(json.dumps, actions)))
        if has_checksum:
            found = {"tableSizeBytes": 100 * (self.version + 1), "numFiles": self.version + 1}
            self.write("crc", json.dumps(found | ({} if metadata is None else {"metadata": metadata})))

    def replace(self, n_files: int) -> None:
        """Replace files by one, as an ingest does."""
        self.version += 1
        removes = [{"remove": {"path": f"{n}.parquet", "size": 100, "dataChange": False}} for n in range(n_files)]
        add = {"path": f"{self.version}.parquet", "size": 100, "dataChange": False, "stats": '{"numRecords": 1}'}
        info = {"timestamp": 0, "operation": "WRITE", "userMetadata": compaction_metadata(n_files, 1)}
        self.write("json", "\n".join(map(json.dumps, [{"commitInfo": info}, *removes, {"add": add}])))

    def write(self, kind: str, text: str) -> None:
        (self.folder / f"{self.version:020d}.{kind}").write_text(text, encoding="utf-8")


def test_commits_are_read_once_and_the_new_ones_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, read = Log(tmp_path), []
    real = DeltaLog._read
    monkeypatch.setattr(DeltaLog, "_read", lambda self, name: read.append(name) or real(self, name))
    table = DeltaLog(str(tmp_path))
    table.refresh()
    assert (list(table.commits), table.schema, table.size()) == ([], None, None), "no table yet"
    for _ in range(20):
        log.commit("id integer" if log.version < 0 else None, rows=3)
    table.refresh()
    log.commit("id long, note string")
    read.clear()
    table.refresh()
    assert read == [f"{20:020d}.json"]
    assert [(each.version, each.rows, each.bytes) for each in list(table.commits)[-2:]] == [(19, 3, 100), (20, 1, 100)]
    assert table.is_whole
    size = table.size()
    assert size is not None
    assert (size.files, size.bytes) == (21, 2_100)
    assert [(each.name, each.type, each.version) for each in _columns(table)] == [
        ("id", "bigint", 0),
        ("note", "string", 20),
    ]


def test_of_a_long_log_the_newest_commits_are_read(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for number in range(450):
        log.commit(
            {0: "id integer", 200: "id integer, old string", 430: "id integer, old string, new string"}.get(number)
        )
    log.version = 249
    log.write("crc", json.dumps({"metadata": {"schemaString": schema("id integer, old string").json()}}))
    log.version = 449
    table = DeltaLog(str(tmp_path))
    table.refresh()
    assert [table.commits[0].version, table.commits[-1].version, table.is_whole] == [250, 449, False]
    assert [(each.name, each.version) for each in _columns(table)] == [("id", None), ("old", None), ("new", 430)]
    assert [change.version for change in _changes(table)] == [430]
    for _ in range(250):  # more than are kept, since the last look
        log.commit()
    table.refresh()
    assert (table.commits[0].version, len(table.commits)) == (500, 200)
    assert table.schema is None, "nothing that is kept has it"
    log.commit()
    log.write("crc", json.dumps({"metadata": {"schemaString": schema("id integer").json()}}))
    table.refresh()
    assert [(each.name, each.version) for each in _columns(table)] == [("id", None)]
    assert list(_changes(table)) == []


def test_without_checksum_files_the_size_is_that_of_the_commits(tmp_path: Path) -> None:
    """The library deltalake writes none."""
    table, schema = DeltaLog(str(tmp_path)), Schema([Field("id", PrimitiveType("long"))])
    DeltaTable.create(tmp_path, schema)
    for number in range(30):
        add = AddAction(f"{number}.parquet", 100, {}, 0, True, json.dumps({"numRecords": 1}))
        DeltaTable(tmp_path).create_write_transaction([add], "append", schema)
        if number in (0, 5, 6, 29):  # the last look is many commits later
            assert table.size() == TableSize(number + 1, 100 * (number + 1))
    fresh = DeltaLog(str(tmp_path))
    assert fresh.size() == TableSize(30, 3000)
    table.refresh()
    assert [each.rows for each in table.commits][1:] == [1] * 30


def test_a_long_log_of_commits_with_one_small_file_each_is_due_for_a_compaction(tmp_path: Path) -> None:
    """Of most of these the window of commits that are read has nothing."""
    log = Log(tmp_path)
    for _ in range(400):
        log.commit("id integer" if log.version < 0 else None)
    table = DeltaLog(str(tmp_path))
    table.refresh()
    assert has_many_small_files(table.commits, 2**27)


def test_many_small_files_are_compacted_and_large_ones_are_not() -> None:
    def is_due(*commits: tuple[int, int], target: int = 1000) -> bool:
        made = [
            LoggedCommit(
                version=0, at=0, operation="WRITE" if files else "OPTIMIZE", rows=0, files=files, bytes=n_bytes, landed=None,
                schema=None,
            )
            for files, n_bytes in commits
        ]  # fmt: skip
        return has_many_small_files(made, target)

    assert not is_due()
    assert not is_due((2, 300), (3, 600)), "not enough for one large file"
    assert is_due((2, 300), (3, 700))
    assert not is_due((1, 900), (1, 900)), "they are large"
    assert not is_due((4, 1200)), "a large file would replace three of them alone"
    assert is_due((300, 10)), "they are many"
    assert not is_due(*[(1, 1)] * 99), "not many yet"
    assert is_due(*[(1, 1)] * 100)
    assert not is_due((2, 300), (3, 700), (0, 0), (2, 300)), "since the last compaction"


def test_files_that_were_replaced_are_no_longer_counted(tmp_path: Path) -> None:
    """An ingest replaces its own files while it lands rows; others' stay."""
    log = Log(tmp_path)
    for _ in range(90):
        log.commit("id integer" if log.version < 0 else None)
    table = DeltaLog(str(tmp_path))
    for n_replaced in (32, 100):  # more than were added since: files of earlier commits, too
        log.replace(n_replaced)
        for _ in range(45):
            log.commit()
        table.refresh()
    replacing = [commit for commit in table.commits if commit.operation == COMPACTION]
    assert [(each.files, each.replaced_files, each.replaced_bytes) for each in replacing] == [
        (0, 32, 3200),
        (0, 100, 10000),
    ]
    assert not has_many_small_files(table.commits, 2**27), "48 are left"
    for _ in range(60):
        log.commit()
    table.refresh()
    assert has_many_small_files(table.commits, 2**27)


def test_a_damaged_file_hides_no_other_commit(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit("id integer")
    log.commit()
    log.write("json", '{"commitInfo": {"timestamp": 5, "oper')
    log.write("crc", "{")
    log.commit()
    table = DeltaLog(str(tmp_path))
    table.refresh()
    assert [(each.version, each.operation) for each in table.commits] == [(0, "WRITE"), (1, ""), (2, "WRITE")]


def test_changes_are_those_of_nested_fields_too() -> None:
    inner = {"type": "struct", "fields": [{"name": "price", "type": "integer", "nullable": True, "metadata": {}}]}
    items = {
        "name": "items",
        "type": {"type": "array", "elementType": inner, "containsNull": True},
        "nullable": True,
        "metadata": {},
    }
    before = StructType.fromJson({"type": "struct", "fields": [items]})
    wider = json.loads(before.json())
    wider["fields"][0]["type"]["elementType"]["fields"][0]["type"] = "long"
    wider["fields"][0]["type"]["elementType"]["fields"].append(
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}}
    )
    after = StructType.fromJson(wider)
    assert flat_types(after) == {"items[].price": "bigint", "items[].n": "int"}
    assert changes_between(before, after) == (
        {"kind": "added", "column": "items[].n", "type": "int"},
        {"kind": "widened", "column": "items[].price", "type": "bigint", "from": "int"},
    )
    assert changes_between(after, before)[-1] == {"kind": "removed", "column": "items[].n", "type": "int"}
