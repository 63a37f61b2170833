"""Which folders are tables: Delta's own errors."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.checkpoints.spark_files import default_file_system
from pykafka_wire.errors import ColumnConflictError
from pykafka_wire.ingest.changes.newest import merge_changes
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.format import FORMAT
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from pykafka_wire.ingest.tables.merging import DELETE, Merging, merge_rows
from pykafka_wire.ingest.tables.position import Landed


def test_a_folder_is_no_table_only_if_delta_says_so(spark: Any, tmp_path: Path) -> None:
    session = spark.newSession()
    session.range(1).write.format("delta").save(str(tmp_path / "table"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "files").mkdir(parents=True)
    (tmp_path / "file").write_text("a file")
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=str(tmp_path))

    def exists(name: str) -> bool:
        return SparkDeltaTable(session, settings, name).exists

    def known(name: str) -> bool:
        return SparkDeltaTable(session, settings, name).is_known_to_spark()

    assert [name for name in ("table", "missing", "empty", "other", "file") if exists(name)] == ["table"]
    assert [name for name in ("table", "missing", "empty", "other", "file") if known(name)] == ["table"]
    assert FORMAT.session_mistake(session, settings) is None
    session.conf.set("spark.sql.runSQLOnFiles", "false")  # Spark's error is that of a session without Delta
    mistake = FORMAT.session_mistake(session, settings)
    assert mistake is not None
    assert re.search(r"cannot look for the table .*_rejects`: start the session with Delta", mistake)


def test_a_path_without_a_file_system_is_in_that_of_spark(spark: Any) -> None:
    session = spark.newSession()

    def places(into: str) -> tuple[str, str]:
        settings = Settings(checkpoint=f"{into}/c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=into)
        settings = settings.in_file_system(default_file_system(session))
        return settings.place("orders"), settings.checkpoint

    assert places("/lake") == ("/lake/orders", "/lake/c")
    session.conf.set("fs.defaultFS", "hdfs://name-node:8020")
    assert places("/lake") == ("hdfs://name-node:8020/lake/orders", "hdfs://name-node:8020/lake/c")
    assert places("file:///lake")[0] == "file:///lake/orders"
    assert places("/Volumes/main/shop/lake")[0] == "/Volumes/main/shop/lake/orders"


def test_a_table_gets_no_feature_that_does_not_help(spark: Any, tmp_path: Path) -> None:
    """A column of another type is refused whatever the table has; so is a column whose feature the table's owner has disabled."""
    session = spark.newSession()
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=str(tmp_path))
    table, name = SparkDeltaTable(session, settings, "t"), f"delta.`{tmp_path / 't'}`"
    session.sql(f"CREATE TABLE {name} (id INT, s STRUCT<x: INT>) USING delta")

    def features() -> set[str]:
        return set(session.sql(f"DESCRIBE DETAIL {name}").collect()[0].tableFeatures)

    def refuse(columns: str) -> None:
        with pytest.raises(ColumnConflictError):
            table.append(session.sql(f"SELECT {columns}"), None)
        assert features() == plain

    plain = features()
    refuse("2L AS id, named_struct('x', 'text') AS s")
    refuse("'text' AS id, named_struct('x', 2L) AS s, TIMESTAMP_NTZ '2026-01-01 00:00:00' AS at")
    session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'false')")
    refuse("2L AS id, TIMESTAMP_NTZ '2026-01-01 00:00:00' AS at")
    session.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('delta.enableTypeWidening')")
    table.append(session.sql("SELECT 2L AS id, named_struct('x', 2S) AS s"), None)
    assert features() - plain == {"typeWidening"}


def test_a_merge_leaves_columns_alone_that_a_user_has_added(spark: Any, tmp_path: Path) -> None:
    """Generated and identity columns are computed by Delta; a column that the topic has no more becomes null."""
    session = spark.newSession()
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=str(tmp_path))
    table, name = SparkDeltaTable(session, settings, "t"), f"delta.`{tmp_path / 't'}`"
    session.sql(
        f"CREATE TABLE {name} (id INT, v STRING, twice INT GENERATED ALWAYS AS (id * 2), "
        "number BIGINT GENERATED ALWAYS AS IDENTITY, note STRING) USING delta "
        'TBLPROPERTIES (\'pykafka-wire.columns\' = \'["id", "v", "n"]\')'
    )
    session.sql(f"INSERT INTO {name} (id, v, note) VALUES (1, 'a', 'mine'), (2, 'b', 'mine')")

    def merge(rows: str) -> None:
        changes = session.sql(f"SELECT *, false AS {DELETE} FROM VALUES {rows}")
        merge_rows(table, changes, Merging(same_row="old.id <=> new.id", is_newer="true"), None)

    merge("(1, 'A', 5), (3, 'c', 6) AS t(id, v, n)")
    merge("(2, 7) AS t(id, n)")
    rows = session.sql(f"SELECT id, v, n, twice, note, number > 0 FROM {name} ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [
        (1, "A", 5, 2, "mine", True), (2, None, 7, 4, "mine", True), (3, "c", 6, 6, None, True),
    ]  # fmt: skip


@pytest.mark.long
def test_a_merge_into_an_older_version_s_table_leaves_columns_alone_that_a_user_has_added(
    spark: Any, tmp_path: Path
) -> None:
    """It does not name the topic's columns."""
    session = spark.newSession()
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=str(tmp_path))
    table, name = SparkDeltaTable(session, settings, "t"), f"delta.`{tmp_path / 't'}`"
    session.sql(f"CREATE TABLE {name} (id INT, v STRING, note STRING) USING delta")
    session.sql(f"INSERT INTO {name} VALUES (1, 'a', 'mine'), (2, 'b', 'mine')")
    for rows in ("(1, 'A') AS t(id, v)", "(1, 'A', 5), (2, 'B', 6) AS t(id, v, n)", "(2, 7) AS t(id, n)"):
        changes = session.sql(f"SELECT *, false AS {DELETE} FROM VALUES {rows}")
        merge_rows(table, changes, Merging(same_row="old.id <=> new.id", is_newer="true"), None)
    rows = session.sql(f"SELECT id, v, note, n FROM {name} ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "A", "mine", 5), (2, None, "mine", 7)]


_KAFKA = "0 AS _kafka_partition, timestamp_seconds(offset) AS _kafka_timestamp, offset AS _kafka_offset"


_WHOLE, _SHORT = "'id', id, 'region', CAST(r AS STRING)", "'id', id"


@pytest.mark.parametrize(
    ("micro_batches", "expected"),
    [
        (
            [
                (_WHOLE, "(1, null, 'EU', 'a'), (2, null, 'EU', 'a')"),
                (_WHOLE, "(1, null, 'EU', 'b'), (1, 'EU', 'US', 'c'), (2, null, null, 'gone')"),
            ],
            [(1, None, "EU", "b"), (1, "EU", "US", "c")],
        ),
        pytest.param(
            [
                (_SHORT, "(1, null, 'EU', 'a'), (2, null, 'EU', 'a'), (3, null, 'EU', 'a')"),
                (_WHOLE, "(1, 'EU', 'EU', 'b')"),
                (_WHOLE, "(2, 'EU', 'EU', 'c'), (2, 'US', 'US', 'd'), (3, 'EU', null, 'gone')"),
            ],
            [(1, "EU", "EU", "b"), (2, "EU", "EU", "c"), (2, "US", "US", "d")],
            marks=pytest.mark.long,
        ),
        pytest.param(
            [
                (_WHOLE, "(1, 'EU', 'EU', 'a'), (2, 'EU', 'EU', 'a')"),
                (_SHORT, "(1, null, 'EU', 'b'), (3, null, 'EU', 'b')"),
                (_WHOLE, "(1, 'EU', 'EU', 'c'), (3, 'EU', 'EU', 'c')"),
            ],
            [(2, "EU", "EU", "a"), (1, "EU", "EU", "c"), (3, "EU", "EU", "c")],
            marks=pytest.mark.long,
        ),
    ],
    ids=["nulls", "grows", "loses"],
)
def test_a_null_in_a_key_is_a_value_and_a_column_that_a_key_did_not_have_is_the_row_s_own(
    spark: Any, tmp_path: Path, micro_batches: list[tuple[str, str]], expected: list[tuple[Any, ...]]
) -> None:
    """Of an upsert, whose values may have a column of their own under the name of one of the key's."""
    session = spark.newSession()
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=str(tmp_path))
    for offset, (key, rows) in enumerate(micro_batches):
        table = SparkDeltaTable(session, settings, "t")
        landed = Landed(query="q", micro_batch=offset, topic="t", topic_id="")
        changes = session.sql(
            f"SELECT named_struct({key}) AS _kafka_key, region, v, {_KAFKA}, v = 'gone' AS {DELETE} "
            f"FROM (SELECT *, {offset}L AS offset FROM VALUES {rows} AS t(id, r, region, v))"
        )
        if table.exists:
            merge_changes(table, changes, "_kafka_", landed)
        else:
            table.append(changes.drop(DELETE), landed)
    held = SparkDeltaTable(session, settings, "t").rows.orderBy("v", "_kafka_key.id")
    shown = held.selectExpr("_kafka_key.id", "_kafka_key.region", "region", "v").collect()
    assert [tuple(row) for row in shown] == expected


def test_files_stay_for_as_long_as_the_table_s_owner_wants_them(spark: Any, tmp_path: Path) -> None:
    session = spark.newSession()
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=str(tmp_path))
    table, day_ms = SparkDeltaTable(session, settings, "t"), 86_400_000
    session.sql(f"CREATE TABLE {table.identifier} (id INT) USING delta")
    table.alter({"delta.deletedFileRetentionDuration": "interval 30 days"})
    orphans = {days: tmp_path / "t" / f"{days}.parquet" for days in (2, 8, 31)}
    for days, orphan in orphans.items():
        orphan.write_bytes(b"")
        os.utime(orphan, (time.time() - days * 86_400,) * 2)

    def there() -> list[int]:
        return [days for days, orphan in orphans.items() if orphan.exists()]

    table.vacuum(40 * day_ms)
    assert there() == [2, 8, 31], "keep is longer"
    table.vacuum(7 * day_ms)
    assert there() == [2, 8]
    session.sql(f"ALTER TABLE {table.identifier} UNSET TBLPROPERTIES ('delta.deletedFileRetentionDuration')")
    version = table.version
    SparkDeltaTable(session, settings, "t").vacuum(day_ms)
    assert (there(), table.version) == ([], version), "no commit is needed"


def test_a_rewrite_for_a_wider_type_keeps_rows_that_another_program_adds_meanwhile(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, folder = spark.newSession(), str(tmp_path / "t")
    settings = Settings(
        checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=str(tmp_path),
        tables=(Table(topic="t", format="json", widen="rewrite"),),
    )  # fmt: skip
    table, name = SparkDeltaTable(session, settings, "t"), f"delta.`{folder}`"
    session.sql(f"CREATE TABLE {name} (id INT, s STRUCT<x: INT, l: ARRAY<FLOAT>>) USING delta PARTITIONED BY (id)")
    session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('pykafka-wire.topic' = 't')")
    first = Landed(query="q", micro_batch=0, topic="t", topic_id="", start={0: 0}, end={0: 1}, sequence=4, attempt="a")
    table.append(session.sql("SELECT 1 AS id, named_struct('x', 1, 'l', array(0.5F)) AS s"), first)
    landed = SparkDeltaTable.landed

    def beside(self: SparkDeltaTable) -> Landed | None:
        found = landed(self)
        spark.newSession().sql(f"INSERT INTO {name} VALUES (2, named_struct('x', 2, 'l', array(1.5F)))")
        return found

    monkeypatch.setattr(SparkDeltaTable, "landed", beside)
    following = Landed(
        query="q", micro_batch=1, topic="t", topic_id="", start={0: 1}, end={0: 2}, sequence=5, attempt="b"
    )
    table.append(session.sql(f"SELECT {2**40} AS id, named_struct('x', {2**40}, 'l', array(2.5D)) AS s"), following)
    monkeypatch.undo()
    rows = table.rows.selectExpr("id", "s.x", "s.l[0]").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, 1, 0.5), (2, 2, 1.5), (2**40, 2**40, 2.5)]
    detail = session.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    assert set(detail.tableFeatures) == {"appendOnly", "invariants"} and detail.partitionColumns == ["id"]
    history = list(table.history())
    assert [(each.sequence, each.start, each.end) for each in history] == [
        (5, {0: 1}, {0: 2}), (4, {0: 1}, {0: 1}), (4, {0: 0}, {0: 1}),
    ]  # fmt: skip
    assert table.landed() == following
