"""What each format of tables answers; and a format of a test's own, which needs one module and one registration."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType

from pykafka_wire.checkpoints.stored_tables import TOPIC_PROPERTY
from pykafka_wire.errors import IngestError, MissingLibraryError
from pykafka_wire.ingest import Table
from pykafka_wire.ingest.files.tasks import Written
from pykafka_wire.ingest.landing.remedies import Failure, Remedy
from pykafka_wire.ingest.planner import PlannedTable, TablePlanner
from pykafka_wire.ingest.records.debezium_topics import DebeziumTopics
from pykafka_wire.ingest.settings.model import TABLE_FORMATS, Settings
from pykafka_wire.ingest.spark.errors import code_of
from pykafka_wire.ingest.startup.library_checks import check_libraries
from pykafka_wire.ingest.tables import formats
from pykafka_wire.ingest.tables.delta import log as delta_log
from pykafka_wire.ingest.tables.files_table import FilesTable, TableChangedError
from pykafka_wire.ingest.tables.format import NeededLibrary, SparkAlone, TableFormat
from pykafka_wire.ingest.tables.formats import format_of
from pykafka_wire.ingest.tables.position import AlreadyLandedError, Landed, new_attempt
from pykafka_wire.ingest.tables.stored_rejects import are_none_without_spark
from pykafka_wire.ingest.tables.topic_table import QUERY_PROPERTY, check_owner
from tests.connector.ingest.written_files import written_files

TABLE = Table(topic="orders")
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def landed(sequence: int, start: int, end: int) -> Landed:
    return Landed(
        query="q", micro_batch=7, topic="orders", topic_id="", start={0: start}, end={0: end}, sequence=sequence,
        attempt=new_attempt(),
    )  # fmt: skip


@pytest.fixture(params=TABLE_FORMATS)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    given: dict[str, Any] = {
        "checkpoint": str(tmp_path / "c"),
        "kafka": {"bootstrap.servers": "b:9092"},
        "topics": ".*",
    }
    if request.param == "delta":
        return Settings(into=str(tmp_path / "lake"), **given)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    load_catalog("lake", **catalog).create_namespace("shop")
    return Settings(into="lake.shop", table_format="iceberg", catalog=catalog, **given)


@pytest.fixture
def files(settings: Settings) -> FilesTable:
    nothing: Any = None  # a Spark session, which nothing here needs
    table_format = format_of(settings)
    files = table_format.open_files(
        nothing, settings, TABLE, table_format.open_table(nothing, settings, "orders"), "orders"
    )
    assert not isinstance(files, SparkAlone), files
    return files


def write(files: FilesTable, ids: list[int]) -> tuple[Written, Any]:
    """Write rows into files, as tasks do; nothing is committed."""
    batch = pa.RecordBatch.from_pydict({"id": ids, "text": [str(number) for number in ids]}, SCHEMA)
    return written_files(files, TABLE, batch)


#: What only a format knows: its errors, its files, its settings of Spark, its libraries.
KNOWN_TO_FORMATS = re.compile(r"DELTA_|_delta_log|databricks\.delta|delta\.`|deltalake|pyiceberg|metadata\.json")


def test_only_formats_and_settings_name_what_a_format_knows() -> None:
    """Texts in the code; docstrings may explain."""
    named: set[str] = set()
    folder = Path(__file__).parents[3] / "connector/ingest"
    files = [file for file in folder.rglob("*.py") if not {"tables", "settings"} & {*file.relative_to(folder).parts}]
    assert len(files) > 60
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        named |= {
            f"{file.relative_to(folder)}:{node.lineno} {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements
            if KNOWN_TO_FORMATS.search(node.value)
        }
    assert named == set()


def test_every_name_of_the_setting_is_a_format_and_the_reverse() -> None:
    assert {*formats.MODULES} == {*TABLE_FORMATS}


def test_a_table_is_made_found_and_owned(settings: Settings, files: FilesTable) -> None:
    table_format = format_of(settings)
    assert not files.exists
    assert table_format.opened(settings, "orders") is None
    files.create_of(SCHEMA, TABLE, "q", landed(0, 5, 5))
    assert files.exists
    opened = table_format.opened(settings, "orders")
    assert opened is not None
    properties = opened.properties
    assert (properties[QUERY_PROPERTY], properties[TOPIC_PROPERTY]) == ("q", "orders")
    files.refresh()
    check_owner(files, "q", "orders")
    begins = files.landed()
    assert begins is not None
    assert (begins.end, begins.sequence) == ({0: 5}, 0)
    assert opened.landed() == begins
    assert [*(table_format.datasets(settings) or {})] == ["orders"]


def test_a_table_with_many_commits_is_not_vacuumed_on_its_first_day(
    settings: Settings, files: FilesTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vacuum of Delta delays rows: Spark commits them meanwhile. Iceberg's maintenance delays none."""
    if settings.table_format != "delta":
        return
    monkeypatch.setattr(delta_log, "KEPT_COMMITS", 2)
    files.create_of(SCHEMA, TABLE, "q", landed(0, 0, 0))
    for number in range(4):
        written, layout = write(files, [number])
        files.append_files(written, layout, landed(number + 1, number, number + 1))
    nothing: Any = None  # a Spark session, which nothing here needs
    assert not format_of(settings).open_maintenance(settings, TABLE, "orders").is_needed(nothing)


def test_an_ingest_without_rejects_is_known_without_spark(settings: Settings, files: FilesTable) -> None:
    given = replace(settings, rejects="orders")
    assert not are_none_without_spark(given)  # nothing shows that this is the place of the tables
    files.create_of(SCHEMA, TABLE, "q", landed(0, 0, 0))
    assert are_none_without_spark(given) and are_none_without_spark(settings)
    written, layout = write(files, [1])
    files.append_files(written, layout, landed(1, 0, 1))
    assert not are_none_without_spark(given)
    assert not are_none_without_spark(
        replace(given, into="dbfs:/lake" if given.is_folder else "lake.other", catalog={})
    )


@pytest.mark.parametrize(
    ("columns", "is_stored"),
    [
        ("id BIGINT, text STRING, more INT", True),
        ("id SMALLINT", True),
        ("text BIGINT", False),
        ("ID STRING", False),
        ("id STRUCT<a: INT>", False),
        ("id DOUBLE", False),
    ],
)
def test_columns_that_a_table_cannot_get_are_known_before_the_start(
    settings: Settings, files: FilesTable, columns: str, is_stored: bool
) -> None:
    """A plan reports the conflict, unless the table diverts the values that do not fit."""
    plan = PlannedTable(
        topic="orders", table="orders", mode="append", format="json", schema_id=None, columns=columns, by_spark=None,
        mistake=None, failure=None,
    )  # fmt: skip

    def mistake(**of_table: Any) -> str | None:
        given = replace(settings, defaults=replace(settings.defaults, format="json", **of_table))
        (planned,) = TablePlanner(given, DebeziumTopics(given)).with_stored_columns([plan])
        assert (planned.failure is None) == (planned.mistake is None)
        return planned.mistake

    assert mistake() is None  # there is no table
    files.create_of(SCHEMA, TABLE, "q", landed(0, 0, 0))
    text = mistake()
    assert text is None if is_stored else text is not None and "cannot store its topic's values" in text
    assert mistake(on_conflict="divert") is None


def test_a_commit_moves_the_position_once(settings: Settings, files: FilesTable) -> None:
    files.create_of(SCHEMA, TABLE, "q", landed(0, 0, 0))
    for sequence, start in enumerate((0, 2), 1):
        written, layout = write(files, [start, start + 1])
        files.append_files(written, layout, landed(sequence, start, start + 2))
    for again in (landed(2, 2, 4), landed(1, 0, 2), landed(3, 5, 6)):
        written, layout = write(files, [9])
        with pytest.raises(AlreadyLandedError):
            files.append_files(written, layout, again)
    files.refresh()
    position = files.landed()
    assert position is not None
    assert (position.end, position.sequence) == ({0: 4}, 2)
    assert files.is_recorded(position)
    opened = format_of(settings).opened(settings, "orders")
    assert opened is not None and opened.landed() == position
    for dataset in ((format_of(settings).datasets(settings) or {})["orders"](), opened.rows()):
        rows = dataset if isinstance(dataset, pa.Table) else dataset.to_table()
        assert sorted(rows.column("id").to_pylist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_no_commit_of_files_stores_a_rounded_partition_value(
    settings: Settings, files: FilesTable, kind: pa.DataType
) -> None:
    """Delta leaves such a table to Spark; Iceberg refuses the column before the table is created."""
    table = replace(TABLE, partition_by=("p",))
    schema = pa.schema([("id", pa.int64()), ("p", kind)])
    if settings.table_format == "iceberg":
        with pytest.raises(IngestError, match=r"cannot have partitions by p, .* would be rounded"):
            files.create_of(schema, table, "q", landed(0, 0, 0))
        assert not files.exists
        return
    files.create_of(schema, table, "q", landed(0, 0, 0))
    files.refresh()
    assert f"it is partitioned by p, which has the type {kind}" in (files.spark_reason() or "")


def another_program_commits(settings: Settings) -> None:
    """Commit by the format's library alone, twice from the same version of the table."""
    if settings.table_format == "iceberg":
        first, second = (load_catalog("lake", **settings.catalog).load_table(("shop", "orders")) for _ in range(2))
        for table in (first, second):
            with table.update_schema() as update:
                update.add_column("more", LongType())
    else:
        first, second = (DeltaTable(settings.place("orders")) for _ in range(2))
        for table in (first, second):
            table.alter.set_table_properties({"a": "b"}, raise_if_not_exists=False)


def test_another_program_s_commit_is_a_conflict(settings: Settings, files: FilesTable) -> None:
    files.create_of(SCHEMA, TABLE, "q", landed(0, 0, 0))
    with pytest.raises(Exception) as raised:
        another_program_commits(settings)
    errors = format_of(settings).errors
    assert code_of(raised.value) in errors.conflicts
    assert Failure.of(raised.value, errors).remedy is Remedy.RETRY_NOW


def test_each_error_of_a_format_has_one_meaning(settings: Settings) -> None:
    errors = format_of(settings).errors
    meanings = [errors.conflicts, errors.missing, errors.permanent, errors.of_values]
    assert errors.conflicts
    assert len(frozenset().union(*meanings)) == sum(map(len, meanings))
    own = [code for meaning in meanings for code in meaning if "_" in code]
    assert all(map(errors.is_own, [*own, *errors.advice]))
    assert not any(map(errors.is_own, ("PYKAFKA_WIRE_INGEST", "CAST_INVALID_INPUT", "CommitFailedException", "")))


def test_files_for_another_table_are_refused(settings: Settings, files: FilesTable) -> None:
    files.create_of(SCHEMA, TABLE, "q", landed(0, 0, 0))
    written, layout = write(files, [1])
    table_format, nothing = format_of(settings), None
    other = table_format.open_files(
        nothing, settings, TABLE, table_format.open_table(nothing, settings, "orders"), "orders"
    )  # type: ignore[arg-type]
    assert not isinstance(other, SparkAlone)
    if settings.table_format == "iceberg":
        load_catalog("lake", **settings.catalog).drop_table(("shop", "orders"))
    else:
        shutil.rmtree(settings.place("orders"))
    other.create_of(SCHEMA, TABLE, "q", landed(0, 0, 0))
    with pytest.raises(TableChangedError):
        files.append_files(written, layout, landed(1, 0, 1))


def test_a_format_says_what_it_needs_how_it_is_queried_and_when_spark_writes(settings: Settings) -> None:
    table_format = format_of(settings)
    needed = {library.module for library in table_format.needed_libraries(settings)}
    assert table_format.reader in needed
    by_merge = replace(settings, defaults=replace(settings.defaults, mode="upsert"))
    reason = table_format.spark_reason(by_merge, by_merge.defaults) or ""
    assert reason.startswith("upsert needs MERGE")
    assert ("Iceberg's runtime" in reason) is (settings.table_format == "iceberg"), "which pip does not install"
    assert table_format.spark_reason(settings, settings.defaults) is None
    queries = table_format.queries(settings, "orders")
    assert table_format.identifier(settings, "orders") in queries["Spark SQL"]
    assert {"Spark SQL", "PySpark"} <= queries.keys()
    assert all("orders" in query for query in queries.values())
    assert table_format.has_views(settings)


def test_a_folder_of_another_ingest_is_no_place_for_a_table(settings: Settings, files: FilesTable) -> None:
    table_format, folder = format_of(settings), Path(place_of(settings, "orders").removeprefix("file://"))
    assert table_format.folder_mistake(folder, None) is None
    files.create_of(SCHEMA, TABLE, "q", landed(0, 0, 0))
    assert table_format.folder_mistake(folder, "q") is None
    of_another = table_format.folder_mistake(folder, "another")
    # Where a catalog knows the tables, opening the table checks the owner.
    assert (of_another is not None) == settings.is_folder
    with pytest.raises(IngestError, match="belongs to another ingest"):
        check_owner(files, "another", "orders")


def test_a_session_of_a_landing_keeps_the_user_s_settings(settings: Settings, spark: Any) -> None:
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.snapshotPartitions", "7")
    before = session.conf.getAll
    format_of(settings).prepare_session(session)
    assert before.items() <= session.conf.getAll.items()


def place_of(settings: Settings, name: str) -> str:
    """Return the path of a table, as a user finds it in a folder."""
    return settings.place(name) if settings.table_format == "delta" else f"{settings.catalog['warehouse']}/shop/{name}"


def test_a_table_is_found_by_its_place_alone(settings: Settings, files: FilesTable, spark: Any) -> None:
    table_format = format_of(settings)
    place, placed = place_of(settings, "orders").removeprefix("file://"), table_format.placed
    assert formats.format_at(place) is None
    files.create_of(SCHEMA, TABLE, "q", landed(0, 0, 0))
    written, layout = write(files, [0, 1])
    files.append_files(written, layout, expected := landed(1, 0, 2))
    assert formats.format_at(place) is table_format
    assert [each for each in formats.every_format() if each.placed.has_table(place)] == [table_format]
    assert placed.properties(spark, place)[QUERY_PROPERTY] == "q"
    with placed.open(spark, place, ["id"]) as table:
        assert sorted(row.id for row in table.rows.select("id").collect()) == [0, 1]
        assert table.landed is not None and table.landed.attempt == expected.attempt
        assert table.properties[TOPIC_PROPERTY] == "orders"
    assert placed.beside(place, "others") == f"{place.rpartition('/')[0]}/others"
    assert formats.format_at(placed.beside(place, "others")) is None


def test_each_format_says_what_shows_a_table() -> None:
    assert len({each.placed.trace for each in formats.every_format()}) == len(TABLE_FORMATS)


class ToyFormat:
    """A format that needs a library which nobody has."""

    reader = "toy"

    def needed_libraries(self, settings: Settings) -> Iterator[NeededLibrary]:
        yield NeededLibrary("toy_of_a_test", "toy", "toy tables")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nothing asks for {name} here")


def test_a_new_format_needs_one_module_and_one_registration(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("toy_format_of_a_test")
    module.FORMAT = toy = ToyFormat()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(formats.MODULES, "toy", module.__name__)  # type: ignore[arg-type]
    of_toy = replace(settings, table_format="toy")
    chosen: TableFormat = format_of(of_toy)
    assert chosen is toy
    with pytest.raises(MissingLibraryError, match=r"toy_of_a_test, for toy tables\n.*pykafka-wire\[toy\]"):
        check_libraries(of_toy)
