"""Commits of files to Delta folders and Iceberg tables, without Spark: what others read, and what an older driver cannot do."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import ArrayType, Field, PrimitiveType
from deltalake.schema import Schema as DeltaSchema
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetPartitionStatisticsUpdate
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import StringType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.files.parquet import FileWriter, UnwritableError
from pykafka_wire.ingest.files.tasks import Written
from pykafka_wire.ingest.files.types import file_type
from pykafka_wire.ingest.landing.remedies import Remedy, remedy_of
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.delta.format import FORMAT as DELTA
from pykafka_wire.ingest.tables.delta.log import DeltaLog
from pykafka_wire.ingest.tables.files_table import TableChangedError, discarding
from pykafka_wire.ingest.tables.iceberg.format import FORMAT as ICEBERG
from pykafka_wire.ingest.tables.iceberg.log import IcebergLog
from pykafka_wire.ingest.tables.iceberg.stored_table import stored_dataset
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.position import AlreadyLandedError, Landed, new_attempt
from pykafka_wire.places import table_uri

pytestmark = pytest.mark.unit

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("city", pa.string()), ("at", pa.timestamp("us", "UTC"))])),
    ]
)
ROWS = [
    {
        "id": 1, "day": date(2026, 1, 1), "price": Decimal("1.25"), "tags": ["a", None], "counts": [("x", 1)],
        "place": {"city": "Oslo", "at": None},
    },
    {"id": 2, "day": None, "price": None, "tags": None, "counts": None, "place": None},
    {
        "id": 3, "day": date(2026, 1, 2), "price": Decimal("-3.50"), "tags": [], "counts": [],
        "place": {"city": None, "at": None},
    },
]  # fmt: skip
TABLE = Table(topic="orders", partition_by=("day",))


def landed(number: int, start: int, end: int) -> Landed:
    return Landed(
        query="q", micro_batch=number, topic="orders", topic_id="", start={0: start}, end={0: end}, sequence=number + 1,
        attempt=new_attempt(),
    )  # fmt: skip


def append(table: Any, landed: Landed, rows: list[dict[str, Any]] = ROWS) -> None:
    """Write the files as a task does, and commit them."""
    written(table, rows)(landed)


def written(table: Any, rows: list[dict[str, Any]] = ROWS) -> Callable[[Landed], None]:
    """Write the files as a task does; what commits them."""
    given = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    layout = table.layout(pa.schema(file_type(pa.struct(SCHEMA), pa.struct(table.arrow_schema))), TABLE)
    filesystem, folder = table.folder.open()
    batch = pa.RecordBatch.from_arrays(given.columns, schema=pa.schema([*layout.schema]))
    files = list(FileWriter(filesystem, folder, layout).write([batch]))
    written = Written(files=files)

    def commit(landed: Landed) -> None:
        with discarding(written, table.folder):
            table.append_files(written, layout, landed)

    return commit


def of_delta(folder: Path) -> Callable[[], DeltaFolder]:
    DeltaFolder(f"{folder}/orders").create_of(SCHEMA, TABLE, "q", landed(-1, 0, 0))
    return lambda: DeltaFolder(f"{folder}/orders")


def iceberg_settings(folder: Path) -> Settings:
    given = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
    return Settings(
        checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.shop", table_format="iceberg", catalog=given,
    )  # fmt: skip


def of_iceberg(folder: Path) -> Callable[[], IcebergTable]:
    return made_in_catalog(iceberg_settings(folder))


def of_rest(url: str) -> Callable[[], IcebergTable]:
    """A catalog of Iceberg's REST protocol."""
    settings = replace(
        iceberg_settings(Path()), into=f"lake.n_{uuid.uuid4().hex}", catalog={"type": "rest", "uri": url}
    )
    return made_in_catalog(settings)


def of_glue(url: str) -> Callable[[], IcebergTable]:
    """A catalog of Glue's API, and an object store."""
    keys = {"access-key-id": "key", "secret-access-key": "secret", "region": "us-east-1", "endpoint": url}
    given = {f"{service}.{name}": value for service in ("glue", "s3") for name, value in keys.items()}
    given |= {"type": "glue", "warehouse": f"s3://lake/{uuid.uuid4().hex}"}
    namespace = f"shop_{uuid.uuid4().hex[:8]}"
    settings = Settings(
        checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into=f"glue.{namespace}", table_format="iceberg",
        catalog=given,
    )  # fmt: skip
    return made_in_catalog(settings)


def made_in_catalog(settings: Settings) -> Callable[[], IcebergTable]:
    catalog, _, namespace = settings.into.partition(".")
    load_catalog(catalog, **settings.catalog).create_namespace(namespace)
    nothing: Any = None  # a session is for DataFrames
    IcebergTable(nothing, settings, "orders").create_of(SCHEMA, TABLE, "q", landed(-1, 0, 0))
    return lambda: IcebergTable(nothing, settings, "orders")


def of_object_store(url: str) -> Callable[[], DeltaFolder]:
    place = {"AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    storage = place | {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    folder = f"s3a://lake/{uuid.uuid4().hex}/orders"
    DeltaFolder(folder, storage).create_of(SCHEMA, TABLE, "q", landed(-1, 0, 0))
    return lambda: DeltaFolder(folder, storage)


@pytest.fixture(
    params=[
        of_delta,
        of_iceberg,
        *(pytest.param(each, marks=pytest.mark.long) for each in (of_object_store, of_glue, of_rest)),
    ]
)
def opened(request: Any, tmp_path: Path) -> Callable[[], Any]:
    """Opens the table as one more driver."""
    servers = {of_object_store: "object_store", of_glue: "object_store", of_rest: "iceberg_rest"}
    server = servers.get(request.param)
    made: Callable[[], Any] = request.param(tmp_path if server is None else request.getfixturevalue(server))
    return made


def stored(table: DeltaFolder) -> DeltaTable:
    return DeltaTable(table_uri(table.folder.uri), storage_options=dict(table.folder.storage))


def rows_of(table: Any) -> list[dict[str, Any]]:
    """As a reader that is not ours sees them."""
    if isinstance(table, IcebergTable):
        found = table._table.scan().to_arrow()
        places = [task.file.file_path for task in table._table.scan().plan_files()]
        if not any(place.startswith("s3:") for place in places):  # DuckDB would download an extension
            by_duckdb = duckdb.sql(
                f"SELECT id FROM read_parquet({places}, hive_partitioning=false) ORDER BY id"
            ).fetchall()
            assert [row["id"] for row in found.sort_by("id").to_pylist()] == [id for (id,) in by_duckdb]
    else:
        found = stored(table).to_pyarrow_table()
    return list(found.select(SCHEMA.names).sort_by("id").to_pylist())


def test_committed_files_are_rows_with_all_their_values(opened: Callable[[], Any]) -> None:
    append(opened(), landed(0, 0, 3))
    assert rows_of(opened()) == ROWS
    assert opened().spark_reason() is None


def test_a_commit_has_the_position_and_what_it_was_before(opened: Callable[[], Any]) -> None:
    append(opened(), landed(0, 0, 3))
    append(opened(), landed(7, 3, 6))
    table = opened()
    assert table.exists
    assert (table.landed(), table.landed().n_added, table.properties()["pykafka-wire.query"]) == (
        landed(7, 3, 6),
        3,
        "q",
    )
    if isinstance(table, IcebergTable):
        assert [each.end for each in table.history()] == [{0: 6}, {0: 3}, {0: 0}]
        assert [each.n_added for each in table.history()] == [3, 3, None]
    else:
        found = [Landed.from_json(commit["userMetadata"]) for commit in stored(table).history()]
        assert [each.end for each in found if each is not None] == [{0: 6}, {0: 3}, {0: 0}]


def test_a_micro_batch_is_in_the_table_once_whoever_writes_it_again(opened: Callable[[], Any]) -> None:
    older, newer = opened(), opened()
    append(older, landed(0, 0, 3))
    append(newer, landed(1, 3, 6))
    for driver in (older, opened()):
        for number in (0, 1):
            with pytest.raises(AlreadyLandedError):
                append(driver, landed(number, 3, 6))
    assert len(rows_of(opened())) == 6


def test_of_two_drivers_that_commit_at_once_one_adds_rows(
    opened: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one commits while the first one has looked at the table and not yet committed."""
    first, second = opened(), opened()
    append(first, landed(0, 0, 3))
    real, has_met = first.refresh, []

    def refresh() -> None:
        real()
        if not has_met:
            has_met.append(True)
            append(second, landed(1, 3, 6))

    monkeypatch.setattr(first, "refresh", refresh)
    with pytest.raises(Exception) as raised:
        append(first, landed(1, 3, 6))
    assert isinstance(raised.value, AlreadyLandedError) or (
        type(raised.value).__name__ == "CommitFailedError" and remedy_of(raised.value, DELTA.errors) is Remedy.RETRY_NOW
    )
    assert len(rows_of(opened())) == 6


def test_a_driver_that_hung_while_another_one_took_the_table_on_adds_no_row_twice(opened: Callable[[], Any]) -> None:
    """Both plan at offset 3: the older one wakes first and commits, and the newer one's micro-batch has a higher number."""
    append(opened(), landed(0, 0, 3))
    older, newer = written(opened()), written(opened(), ROWS * 2)
    older(landed(5, 3, 6))
    with pytest.raises(AlreadyLandedError):
        newer(landed(6, 3, 9))
    opened_again = opened()
    assert (len(rows_of(opened_again)), opened_again.landed()) == (6, landed(5, 3, 6))
    assert n_files(opened_again) == 6
    added = replace(landed(7, 6, 9), start={0: 6, 1: 4}, end={0: 9, 1: 4})
    append(opened(), added)
    assert len(rows_of(opened())) == 9, "a partition was added to the topic"
    with pytest.raises(AlreadyLandedError):
        append(opened(), landed(8, 9, 12))  # of a driver that does not know it yet
    assert opened().landed() == added


def n_files(table: Any) -> int:
    """How many files of rows are in the table's folder, whether a commit names them or not."""
    filesystem, folder = table.folder.open()
    there = filesystem.get_file_info(pyarrow.fs.FileSelector(folder, recursive=True, allow_not_found=True))
    return sum(each.extension == "parquet" for each in there)


def compact_by_another_job(table: Any) -> None:
    stored(table).optimize.compact(target_size=2**20, max_concurrent_tasks=1)


@pytest.mark.parametrize("place", [of_delta, pytest.param(of_object_store, marks=pytest.mark.long)])
def test_a_table_is_compacted_while_rows_are_added(request: Any, tmp_path: Path, place: Callable[[Any], Any]) -> None:
    opened = place(tmp_path if place is of_delta else request.getfixturevalue("object_store"))
    is_over, n_compactions = threading.Event(), []

    def compact() -> None:
        while not is_over.is_set():
            compact_by_another_job(opened())
            n_compactions.append(1)

    other = threading.Thread(target=compact)
    other.start()
    try:
        for number in range(30):
            while True:
                try:
                    append(opened(), landed(number, number * 3, number * 3 + 3))
                    break
                except CommitFailedError as error:
                    assert remedy_of(error, DELTA.errors) is Remedy.RETRY_NOW
    finally:
        is_over.set()
        other.join()
    compact_by_another_job(opened())
    assert len(n_compactions) > 3
    assert rows_of(opened()) == sorted(ROWS * 30, key=lambda row: row["id"])
    assert opened().landed() == landed(29, 87, 90)
    assert len(stored(opened()).file_uris()) == 3, "one for each partition"
    with pytest.raises(AlreadyLandedError):
        append(opened(), landed(29, 90, 93))


def add_check(folder: Path) -> None:
    DeltaTable(folder).alter.add_constraint({"positive": "id > 0"})


def change_columns(folder: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.date32())])
    write_deltalake(folder, pa.table({"id": ["a"], "day": [None]}, schema), mode="overwrite", schema_mode="overwrite")


def set_property(folder: Path) -> None:
    DeltaTable(folder).alter.set_table_properties({"delta.appendOnly": "true"})


def make_anew(folder: Path) -> None:
    shutil.rmtree(folder)
    DeltaFolder(str(folder)).create_of(SCHEMA, TABLE, "q", landed(-1, 0, 0))


def make_anew_with_more_commits(folder: Path) -> None:
    make_anew(folder)
    for number in range(4):
        append(DeltaFolder(str(folder)), landed(number, number * 3, number * 3 + 3))


@pytest.mark.parametrize("change", [add_check, change_columns, set_property, make_anew, make_anew_with_more_commits])
def test_files_are_committed_to_the_table_that_they_were_written_for(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    opened = of_delta(tmp_path)
    append(opened(), landed(0, 0, 3))
    commit = written(opened())
    change(tmp_path / "orders")
    n_before = n_files(opened())
    version = DeltaTable(tmp_path / "orders").version()
    with pytest.raises(TableChangedError) as raised:
        commit(landed(1, 3, 6))
    assert n_before - n_files(opened()) == (0 if change in (make_anew, make_anew_with_more_commits) else 3)
    assert remedy_of(raised.value, DELTA.errors) is Remedy.RETRY_NOW
    assert DeltaTable(tmp_path / "orders").version() == version
    assert len(list((tmp_path / "orders/_delta_log").glob("*.json"))) == version + 1


def test_files_of_a_table_that_was_dropped_meanwhile_are_written_again(tmp_path: Path) -> None:
    opened = of_delta(tmp_path)
    append(opened(), landed(0, 0, 3))
    commit = written(opened())
    shutil.rmtree(tmp_path / "orders")
    with pytest.raises(TableChangedError) as raised:
        commit(landed(1, 3, 6))
    assert remedy_of(raised.value, DELTA.errors) is Remedy.RETRY_NOW
    assert not (tmp_path / "orders").exists()


def test_old_snapshots_are_forgotten_and_the_position_is_not(tmp_path: Path) -> None:
    opened = of_iceberg(tmp_path)
    for number in range(4):
        append(opened(), landed(number, number * 3, number * 3 + 3))
    opened()._table.delete("id = 1")  # another program's snapshot is the newest one
    opened().expire(0)
    table = opened()
    assert table.landed() == landed(3, 9, 12)
    assert len(table._table.metadata.snapshots) == 2
    assert len(table._table.scan().to_arrow()) == 8


@pytest.mark.parametrize("place", [of_iceberg, pytest.param(of_glue, marks=pytest.mark.long)])
def test_files_that_no_snapshot_names_are_deleted_when_they_are_old(
    place: Any, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a task whose job failed, of rows that another program has deleted, and of snapshots that are forgotten."""
    opened = place(tmp_path if place is of_iceberg else request.getfixturevalue("object_store"))
    for number in range(4):
        append(opened(), landed(number, number * 3, number * 3 + 3))
    written(opened())
    opened()._table.delete("id = 1")
    opened().expire(0)
    stored = opened()._table
    rows = rows_of(opened())
    stored.io.new_output(f"{stored.location()}/data/a-neighbours.parquet").create().close()
    statistics = (
        f"{stored.location()}/metadata/partition-stats-{stored.current_snapshot().snapshot_id}-{uuid.uuid4()}.parquet"
    )
    stored.io.new_output(statistics).create().close()
    with stored.transaction() as transaction:
        registered = PartitionStatisticsFile(
            **{
                "snapshot-id": stored.current_snapshot().snapshot_id,
                "statistics-path": statistics,
                "file-size-in-bytes": 1,
            }
        )
        transaction._apply((SetPartitionStatisticsUpdate(partition_statistics=registered),))

    def files() -> set[str]:
        filesystem, folder = opened().folder.open()
        selector = pyarrow.fs.FileSelector(folder.removesuffix("/data"), recursive=True)
        names = [entry.base_name for entry in filesystem.get_file_info(selector) if entry.is_file]
        return {name for name in names if not name.endswith(".json")}

    before = files()
    opened().clean(0)  # it was made today
    assert files() == before
    monkeypatch.setattr("pykafka_wire.ingest.tables.iceberg.table.VACUUM_EVERY_S", 0)
    opened().clean(3_600_000)  # all of them are younger
    opened().alter({"gc.enabled": "false"})
    opened().clean(0)
    assert files() == before
    opened().alter({"gc.enabled": "true"})
    opened().clean(0)
    data = {path.rpartition("/")[2] for path in opened()._table.inspect.all_files()["file_path"].to_pylist()}
    manifests = opened()._table.inspect.all_manifests()["path"].to_pylist()
    lists = [snapshot.manifest_list for snapshot in opened()._table.metadata.snapshots]
    assert files() == {
        "a-neighbours.parquet",
        statistics.rpartition("/")[2],
        *data,
        *(path.rpartition("/")[2] for path in [*manifests, *lists]),
    }
    assert len(before) > len(files()) + 4
    assert rows_of(opened()) == rows
    monkeypatch.undo()
    written(opened())
    n_before = len(files())
    opened().clean(0)  # once a day
    assert len(files()) == n_before
    append(opened(), landed(4, 12, 15))


@pytest.mark.parametrize("is_dropped", [False, True])
def test_files_of_a_renamed_or_dropped_table_stay_although_a_new_table_has_its_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_dropped: bool
) -> None:
    opened = of_iceberg(tmp_path)
    append(opened(), landed(0, 0, 3))
    catalog, metadata = opened()._catalog, opened()._table.metadata_location
    if is_dropped:  # and registered again later
        catalog.drop_table(("shop", "orders"))
    else:
        catalog.rename_table(("shop", "orders"), ("shop", "archive"))
    nothing: Any = None
    with monkeypatch.context() as patched:  # an older version did not look
        patched.setattr("pykafka_wire.ingest.tables.iceberg.table.has_metadata", lambda *_: False)
        IcebergTable(nothing, iceberg_settings(tmp_path), "orders").create_of(SCHEMA, TABLE, "q", landed(-1, 0, 0))
    append(opened(), landed(0, 0, 3))
    monkeypatch.setattr("pykafka_wire.ingest.tables.iceberg.table.VACUUM_EVERY_S", 0)
    opened().clean(0)
    if is_dropped:
        catalog.register_table(("shop", "archive"), metadata)
    archived = catalog.load_table(("shop", "archive"))
    assert archived.location() == opened()._table.location()
    assert sorted(archived.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert "another table, perhaps a renamed or dropped one, has the same location" in caplog.text


def test_a_snapshot_that_another_program_has_staged_is_kept_for_as_long_as_others(tmp_path: Path) -> None:
    opened = of_iceberg(tmp_path)
    append(opened(), landed(0, 0, 3))
    stored = opened()._table
    stored.manage_snapshots().create_branch(opened().version, "audit").commit()
    stored.delete("id = 1", branch="audit")
    staged = opened()._table.metadata.refs["audit"].snapshot_id
    opened()._table.manage_snapshots().remove_branch("audit").commit()
    for number in range(1, 30):
        append(opened(), landed(number, number * 3, number * 3 + 3))
    opened().expire(3_600_000)
    kept = {each.snapshot_id for each in opened()._table.metadata.snapshots}
    assert staged in kept
    assert len(kept) < 25
    opened().expire(0)
    assert staged not in {each.snapshot_id for each in opened()._table.metadata.snapshots}


@pytest.mark.parametrize("change", ["rollback", "tag"])
def test_a_snapshot_that_is_needed_meanwhile_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Another program sets the table back, or makes a tag, after the expired snapshots were chosen."""
    opened = of_iceberg(tmp_path)
    for number in range(6):
        append(opened(), landed(number, number * 3, number * 3 + 3))
    first = opened()._table.metadata.snapshots[0].snapshot_id
    opened()._table.manage_snapshots().create_tag(opened().version, "audit").commit()
    real, changed = SqlCatalog.commit_table, []

    def commit_table(catalog: Any, stored: Any, requirements: Any, updates: Any) -> Any:
        if not changed and any(isinstance(update, RemoveSnapshotsUpdate) for update in updates):
            changed.append(change)
            other = opened()._table.manage_snapshots()
            if change == "rollback":
                other.set_current_snapshot(first).commit()
            else:
                other.remove_tag("audit").create_tag(first, "audit").commit()
        return real(catalog, stored, requirements, updates)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    opened().expire(0)
    assert changed
    metadata = opened()._table.metadata
    assert metadata.snapshot_by_id(first) is not None
    assert metadata.refs["main" if change == "rollback" else "audit"].snapshot_id == first
    assert len(rows_of(opened())) == (3 if change == "rollback" else 18)


@pytest.mark.parametrize(
    ("properties", "n_kept"),
    [
        ({"history.expire.min-snapshots-to-keep": "3"}, 3),
        ({"history.expire.max-snapshot-age-ms": "3600000"}, 4),
        ({"gc.enabled": "false"}, 4),
    ],
)
def test_as_many_snapshots_are_kept_as_the_tables_owner_says(
    tmp_path: Path, properties: dict[str, str], n_kept: int
) -> None:
    opened = of_iceberg(tmp_path)
    with opened()._table.transaction() as transaction:
        transaction.set_properties(properties)
    for number in range(4):
        append(opened(), landed(number, number * 3, number * 3 + 3))
    before = [each.snapshot_id for each in opened()._table.metadata.snapshots]
    opened().expire(0)
    assert [each.snapshot_id for each in opened()._table.metadata.snapshots] == before[-n_kept:]


def test_snapshots_do_not_become_more_and_more_within_the_time_for_which_they_are_kept(tmp_path: Path) -> None:
    """The newest stay, and of those before one for each hundredth of the time: here the oldest of all. Nor do manifests."""
    opened = of_iceberg(tmp_path)
    opened().alter({"commit.manifest.min-count-to-merge": "5"})
    for number in range(30):
        append(opened(), landed(number, number * 3, number * 3 + 3))
        if number == 25:
            opened().expire(3_600_000)
    snapshots = opened()._table.metadata.snapshots
    before = [each.snapshot_id for each in snapshots]
    opened().expire(3_600_000)
    table = opened()
    assert [each.snapshot_id for each in table._table.metadata.snapshots] == [before[0], *before[-20:]]
    assert (table.landed(), len(rows_of(table))) == (landed(29, 87, 90), 90)
    assert [each.micro_batch for each in table.history()] == [*range(29, 9, -1)], "not what the table began with"
    assert len(table._table.scan(snapshot_id=before[0]).to_arrow()) == 3
    append(table, landed(30, 90, 93))
    assert len(table._table.current_snapshot().manifests(table._table.io)) < 10
    with pytest.raises(AlreadyLandedError):
        append(opened(), landed(29, 87, 90))


def test_a_branch_keeps_as_many_snapshots_as_it_says(tmp_path: Path) -> None:
    opened = of_iceberg(tmp_path)
    for number in range(6):
        append(opened(), landed(number, number * 3, number * 3 + 3))
        if number == 3:
            opened()._table.manage_snapshots().create_branch(
                opened().version, "audit", min_snapshots_to_keep=2
            ).commit()
    before = [each.snapshot_id for each in opened()._table.metadata.snapshots]
    opened().expire(0)
    assert [each.snapshot_id for each in opened()._table.metadata.snapshots] == [before[2], before[3], before[5]]


def test_a_tagged_snapshot_is_kept_and_the_others_are_forgotten(tmp_path: Path) -> None:
    opened = of_iceberg(tmp_path)
    for number in range(4):
        append(opened(), landed(number, number * 3, number * 3 + 3))
    tagged = opened().version
    opened()._table.manage_snapshots().create_tag(tagged, "audit").commit()
    for number in range(4, 6):
        append(opened(), landed(number, number * 3, number * 3 + 3))
    opened().expire(0)
    assert [each.snapshot_id for each in opened()._table.metadata.snapshots] == [tagged, opened().version]
    assert opened().landed() == landed(5, 15, 18)


def test_an_iceberg_table_that_was_rolled_back_goes_on_where_it_stands(tmp_path: Path) -> None:
    opened = of_iceberg(tmp_path)
    append(opened(), landed(0, 0, 3))
    first = opened().version
    append(opened(), landed(1, 3, 6))
    opened()._table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(AlreadyLandedError):
        append(opened(), landed(2, 6, 9))  # of a driver that knows nothing of it
    held = opened().landed()
    assert held is not None
    assert held == replace(landed(0, 0, 3), sequence=held.sequence)
    assert held.sequence > landed(1, 3, 6).sequence, "no number is there twice"
    again = replace(landed(1, 3, 6), sequence=held.sequence + 1)
    append(opened(), again)
    assert len(rows_of(opened())) == 6
    opened().expire(0)
    assert opened().landed() == again


def test_rejects_of_several_tables_have_positions_of_their_own(tmp_path: Path) -> None:
    settings = iceberg_settings(tmp_path)
    of_iceberg(tmp_path)
    nothing: Any = None
    IcebergTable(nothing, settings, "_rejects").create_of(SCHEMA, Table(topic=".*"), "q", None)

    def rejects(number: int, start: int, application: str) -> Landed:
        return replace(landed(number, start, start + 3), application=application)

    for each in (rejects(3, 0, ":a:1"), rejects(3, 0, ":b:1"), rejects(5, 9, ":a:1")):
        append(IcebergTable(nothing, settings, "_rejects"), each)
    with pytest.raises(AlreadyLandedError):
        append(IcebergTable(nothing, settings, "_rejects"), rejects(3, 0, ":b:1"))


def test_an_older_drivers_rejects_are_refused_after_many_commits_of_other_tables(tmp_path: Path) -> None:
    settings = iceberg_settings(tmp_path)
    made_in_catalog(settings)

    def rejects() -> IcebergTable:
        return IcebergTable(None, settings, settings.rejects)

    rejects().create_of(SCHEMA, TABLE, "q", None)
    of_quiet = replace(landed(5, 0, 3), application=":quiet:id")
    append(rejects(), of_quiet)
    for number in range(22):
        append(rejects(), replace(landed(number, 0, 3), application=":busy:id"))
    for _ in range(2):
        rejects().expire(7 * 24 * 3_600_000)
    assert len(rejects()._table.metadata.snapshots) < 23
    with pytest.raises(AlreadyLandedError):
        append(rejects(), of_quiet)


def _add_column(table: IcebergTable) -> None:
    table._table.update_schema().add_column("note", StringType()).commit()


def _divide_days(table: IcebergTable) -> None:
    table._table.update_spec().remove_field("day").add_field("day", MonthTransform()).commit()


def _make_anew(table: IcebergTable) -> None:
    table._catalog.drop_table(table._name)
    table.create_of(SCHEMA, TABLE, "q", landed(-1, 0, 0))


@pytest.mark.parametrize("change", [_add_column, _divide_days, _make_anew])
def test_files_of_an_iceberg_table_that_has_become_another_are_planned_again(
    tmp_path: Path, change: Callable[[IcebergTable], None]
) -> None:
    opened = of_iceberg(tmp_path)
    commit = written(opened())
    change(opened())
    with pytest.raises(TableChangedError) as raised:
        commit(landed(0, 0, 3))
    assert n_files(opened()) == 0
    assert remedy_of(raised.value, ICEBERG.errors) is Remedy.RETRY_NOW
    assert opened().landed() == landed(-1, 0, 0)


def test_files_that_a_commit_names_stay_though_the_table_has_another_name_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the commit and the next look at the table its owner renames it, and makes a new one."""
    opened = of_iceberg(tmp_path)
    table = opened()
    commit_table = table._catalog.commit_table

    def rename_behind(*given: Any) -> Any:
        response = commit_table(*given)
        monkeypatch.undo()
        table._catalog.rename_table(table._name, ("shop", "renamed"))
        opened().create_of(SCHEMA, TABLE, "q", landed(-1, 0, 0))
        return response

    monkeypatch.setattr(table._catalog, "commit_table", rename_behind)
    append(table, landed(0, 0, 3))
    assert table._catalog.load_table(("shop", "renamed")).scan().to_arrow().num_rows == 3
    assert opened().version == -1


def test_an_iceberg_table_with_rules_for_its_values_is_refused(tmp_path: Path) -> None:
    opened = of_iceberg(tmp_path)
    _divide_days(opened())
    with pytest.raises(IngestError, match=r"lake\.shop\.orders has partitions by month of day.*partition spec"):
        opened().spark_reason()
    _make_anew(opened())
    opened()._table.update_schema(allow_incompatible_changes=True).update_column("id", required=True).commit()
    with pytest.raises(IngestError, match=r"requires a value of id.*optional"):
        opened().spark_reason()


@pytest.mark.parametrize("path", ["place.city", "tags.element", "counts.value"])
def test_an_iceberg_table_with_a_rule_for_values_inside_a_column_is_refused(tmp_path: Path, path: str) -> None:
    opened = of_iceberg(tmp_path)
    assert opened().spark_reason() is None, "the keys of a map are never null"
    update = opened()._table.update_schema(allow_incompatible_changes=True)
    update.update_column(tuple(path.split(".")), required=True).commit()
    with pytest.raises(IngestError, match=f"requires a value of {path}"):
        opened().spark_reason()


def test_partitions_by_timestamps_have_their_microseconds_in_any_year(tmp_path: Path) -> None:
    settings = iceberg_settings(tmp_path)
    of_iceberg(tmp_path)
    nothing: Any = None
    table = IcebergTable(nothing, settings, "events")
    times = [datetime(year, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc) for year in (1, 1969, 2026, 2300, 9999)]
    by_time = Table(topic="events", partition_by=("at",))
    table.create_of(pa.schema([("at", pa.timestamp("us", "UTC"))]), by_time, "q", landed(-1, 0, 0))
    layout = table.layout(table.arrow_schema, by_time)
    filesystem, folder = table.folder.open()
    batch = pa.RecordBatch.from_pylist([{"at": each} for each in times], schema=layout.schema)
    table.append_files(
        Written(files=list(FileWriter(filesystem, folder, layout).write([batch]))), layout, landed(0, 0, 5)
    )
    for each in times:
        found = table._table.scan(row_filter=EqualTo("at", each.isoformat())).to_arrow()
        assert found["at"].to_pylist() == [each]


def test_an_iceberg_tables_snapshots_and_schemas_are_its_log(tmp_path: Path) -> None:
    opened = of_iceberg(tmp_path)
    append(opened(), landed(0, 0, 3))
    opened()._table.update_schema().add_column("note", StringType()).commit()
    append(opened(), landed(1, 3, 6))
    log = IcebergLog(iceberg_settings(tmp_path), "orders")
    log.refresh()
    assert [(each.version, each.rows, each.files, each.operation) for each in log.commits] == [
        (1, 3, 3, "append"), (2, 3, 3, "append"),
    ]  # fmt: skip
    assert [each.landed and each.landed.end for each in log.commits] == [{0: 3}, {0: 6}]
    before, after = [schema for _, _, schema in log.schemas()]
    assert [name for name in after.names if name not in before.names] == ["note"]
    assert log.schema == after
    size = log.size()
    assert size is not None
    assert (size.files, size.bytes) == (6, sum(each.bytes for each in log.commits))


def test_rows_of_an_iceberg_table_are_a_dataset_whatever_has_become_of_its_columns(tmp_path: Path) -> None:
    opened, settings = of_iceberg(tmp_path), iceberg_settings(tmp_path)

    def ids(name: str) -> list[Any]:
        with duckdb.connect() as connection:
            connection.register("orders", stored_dataset(settings, "orders"))
            return sorted(row[0] for row in connection.execute(f"SELECT {name} FROM orders").fetchall())

    assert ids("id") == []
    append(opened(), landed(0, 0, 3))
    assert ids("id") == [1, 2, 3]
    opened()._table.delete("id = 1")
    assert ids("id") == [2, 3]
    opened()._table.update_schema().rename_column("id", "number").commit()
    assert ids("number") == [2, 3], "files have the old name"


def test_statistics_let_readers_skip_files_and_are_right(tmp_path: Path) -> None:
    table = of_delta(tmp_path)()
    append(table, landed(0, 0, 3))
    actions = pa.table(stored(table).get_add_actions(flatten=True)).to_pylist()
    assert sorted((each["partition.day"] or date.min, each["min.id"], each["max.id"]) for each in actions) == [
        (date.min, 2, 2), (date(2026, 1, 1), 1, 1), (date(2026, 1, 2), 3, 3),
    ]  # fmt: skip
    (last,) = [each for each in stored(table).history(1) if "operationMetrics" in each]
    assert last["operationMetrics"]["numOutputRows"] == "3"
    assert json.loads(last["userMetadata"])["pykafka-wire"]["end"] == {"0": 3}


def test_a_new_table_has_the_rows_names_of_its_partitions_and_remembers_how_it_takes_its_topic(tmp_path: Path) -> None:
    settings = iceberg_settings(tmp_path)
    load_catalog("lake", **settings.catalog).create_namespace("shop")
    nothing: Any = None  # a session is for DataFrames
    delta, iceberg = DeltaFolder(f"{tmp_path}/orders"), IcebergTable(nothing, settings, "orders")

    def create(table: Table) -> None:
        if not delta.exists:
            delta.create_of(SCHEMA, table, "q", landed(-1, 0, 0))
        iceberg.create_of(SCHEMA, table, "q", landed(-1, 0, 0))

    with pytest.raises(IngestError, match="orders names dag, but its rows have the columns id, day, price") as raised:
        create(Table(topic="orders", partition_by=("Day", "dag")))
    assert remedy_of(raised.value, ICEBERG.errors) is Remedy.CHANGE
    with pytest.raises(IngestError, match="names dag"):
        iceberg.create_of(SCHEMA, Table(topic="orders", partition_by=("dag",)), "q", None)
    create(Table(topic="orders", partition_by=("DAY",), connect_types="true"))
    for table in (delta, iceberg):
        assert table.partition_by == ("day",)
        assert table.properties()["pykafka-wire.connect-types"] == "true"


@pytest.mark.parametrize("feature", ["collations-preview", "catalogManaged", "geospatial"])
def test_a_table_that_deltalake_cannot_read_is_left_to_spark(tmp_path: Path, feature: str) -> None:
    opened = of_delta(tmp_path)
    entry = tmp_path / "orders/_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    (protocol,) = [each["protocol"] for each in actions if "protocol" in each]
    protocol |= {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    entry.write_text("\n".join(map(json.dumps, actions)))
    for reason in (opened().unreachable(), opened().spark_reason()):
        assert reason is not None
        assert reason.startswith("the library deltalake cannot read the table: ")


def test_a_position_of_a_newer_version_is_read() -> None:
    """Whatever that version has noted beside it."""
    noted = json.loads(landed(3, 3, 6).to_json())
    noted["pykafka-wire"]["of_tomorrow"] = [1]
    assert Landed.from_json(json.dumps(noted)) == landed(3, 3, 6)


@pytest.mark.parametrize(
    ("into", "table", "reason"),
    [
        ("/lake", {}, None),
        ("file:///lake", {"partition_by": ("day",)}, None),
        ("s3a://lake/shop", {}, None),
        ("/lake", {"write": "spark"}, 'write = "spark" is set'),
        ("/lake", {"mode": "upsert"}, "upsert needs MERGE"),
        ("/lake", {"cluster_by": ("day",)}, "cluster_by needs Spark"),
        ("main.shop", {}, "a table of a catalog"),
        ("dbfs:/lake", {}, "only Spark supports"),
    ],
)
def test_a_table_that_tasks_cannot_write_says_why(into: str, table: dict[str, Any], reason: str | None) -> None:
    settings = Settings(checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into=into)
    found = DeltaFolder.settings_reason(settings, Table(**{"topic": "orders", **table}))
    assert found is None if reason is None else reason in str(found)


@pytest.mark.long
def test_a_store_that_python_cannot_reach_is_left_to_spark(object_store: str) -> None:
    table = of_object_store(object_store)()
    assert table.unreachable() is None
    append(table, landed(0, 0, 3))
    log = DeltaLog(table.folder.uri, table.folder.storage)
    log.refresh()
    assert [each.rows for each in log.commits] == [0, 3]
    size = log.size()
    assert size is not None
    assert size.files == 3
    wrong = dict(table.folder.storage) | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_SECRET_ACCESS_KEY": "hush"}
    reason = DeltaFolder(table.folder.uri, wrong).unreachable() or ""
    assert "Python cannot access s3a://lake/" in reason
    assert "hush" not in reason


def test_a_machine_that_has_no_such_table_in_its_file_system_writes_no_files(tmp_path: Path) -> None:
    folder = of_delta(tmp_path)().folder
    folder.open()
    (tmp_path / "orders/_delta_log").rename(tmp_path / "log of another machine")
    with pytest.raises(UnwritableError, match=r"orders, which does not exist on"):
        folder.open()


def test_a_table_with_rules_for_its_values_is_left_to_spark(tmp_path: Path) -> None:
    for number, (rule, reason) in enumerate(
        (
            ({"configuration": {"delta.constraints.positive": "id > 0"}}, "it has a constraint"),
            ({"schema": pa.schema([pa.field("id", pa.int64(), nullable=False)])}, "NOT NULL"),
            (
                {"schema": pa.schema([("at", pa.timestamp("us", "UTC"))]), "partition_by": ["at"]},
                "partitioned by at",
            ),
        )
    ):
        folder = f"{tmp_path}/{number}"
        DeltaTable.create(folder, **{"schema": SCHEMA, "raise_if_key_not_exists": False, **rule})
        assert reason in str(DeltaFolder(folder).spark_reason())


def test_delta_s_log_has_a_checkpoint_at_least_every_twenty_commits(tmp_path: Path) -> None:
    opened = of_delta(tmp_path)
    table = opened()
    for number in range(45):  # an attempt often uses the table as an earlier attempt has opened it
        append(table if number % 3 else opened(), landed(number, number * 3, number * 3 + 3))
    checkpoints = sorted(int(file.name[:20]) for file in tmp_path.glob("orders/_delta_log/*.checkpoint.parquet"))
    assert [version // 20 for version in checkpoints] == [1, 2]
    assert len(rows_of(opened())) == 45 * len(ROWS)


def test_a_table_of_which_the_owner_sets_the_checkpoints_gets_no_other(tmp_path: Path) -> None:
    table = of_delta(tmp_path)()
    stored(table).alter.set_table_properties({"delta.checkpointInterval": "1000"})
    for number in range(25):
        append(table, landed(number, number * 3, number * 3 + 3))
    assert not [*tmp_path.glob("orders/_delta_log/*.checkpoint.parquet")]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_an_object_does_not_outlive_its_table(tmp_path: Path, is_made_again: bool) -> None:
    table = of_delta(tmp_path)()
    for number in range(3):
        append(table, landed(number, number * 3, number * 3 + 3))
    assert table.is_same
    shutil.rmtree(tmp_path / "orders")
    if is_made_again:
        opened = of_delta(tmp_path)
        for number in range(5):
            append(opened(), landed(number, number * 3, number * 3 + 3))
    assert not table.is_same


@pytest.mark.parametrize("kind", ["varchar(3)", "char(3)", "array<varchar(3)>"])
def test_spark_writes_a_table_that_limits_the_length_of_texts(tmp_path: Path, kind: str) -> None:
    of_texts = ArrayType("string", contains_null=True) if kind.startswith("array") else PrimitiveType("string")
    field = Field("name", of_texts, nullable=True, metadata={"__CHAR_VARCHAR_TYPE_STRING": kind})
    DeltaTable.create(tmp_path / "names", DeltaSchema([field]))
    assert DeltaFolder(str(tmp_path / "names")).spark_reason() is not None


def test_values_of_earlier_partitions_are_not_rounded(tmp_path: Path) -> None:
    """The owner of the table has divided it by another column since; its manifests are merged with those of later commits."""
    opened = of_iceberg(tmp_path)
    catalog = opened()._catalog
    catalog.drop_table(("shop", "orders"))
    schema = pa.schema([("id", pa.int64()), ("p", pa.float64())])
    made = {"commit.manifest.min-count-to-merge": "2"}
    stored = catalog.create_table(("shop", "orders"), schema, properties=made)
    stored.update_spec().add_identity("p").commit()
    stored.append(pa.table({"id": [1], "p": [0.1]}, schema=schema))
    stored.append(pa.table({"id": [2], "p": [0.2]}, schema=schema))
    stored.update_spec().remove_field("p").commit()

    def lands() -> None:
        table = opened()
        table.spark_reason()
        layout = table.layout(pa.schema(file_type(pa.struct(schema), pa.struct(table.arrow_schema))), Table(topic="t"))
        filesystem, folder = table.folder.open()
        rows = pa.RecordBatch.from_arrays([pa.array([3]), pa.array([0.3])], schema=pa.schema([*layout.schema]))
        files = list(FileWriter(filesystem, folder, layout).write([rows]))
        table.append_files(Written(files=files), layout, None)

    with pytest.raises(IngestError, match=r"cannot have partitions by p, .* would be rounded"):
        lands()
    assert sorted(opened()._table.scan().to_arrow()["p"].to_pylist()) == [0.1, 0.2]
