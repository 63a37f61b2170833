"""A compaction changes no row, no position and no statistics: of files that an ingest has added, beside other programs' commits.

Generated steps land rows, compact files, and let other programs change the table, also between the look of a compaction at the
table and its commit; a store answers each commit in some way. The oracle: the table has the records that were landed, but for those
that other programs have deleted.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.types import StringType

from pykafka_wire.ingest.files import compaction as files_compaction
from pykafka_wire.ingest.files.compaction import FAN_IN, LiveFile, due
from pykafka_wire.ingest.files.parquet import FileWriter
from pykafka_wire.ingest.files.tasks import Written
from pykafka_wire.ingest.files.types import file_type
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.compaction import MayNotCommitError, OwnCompaction
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.position import Landed, new_attempt
from tests.connector.ingest.laws.generated import FACTOR, examples
from tests.connector.ingest.laws.rows_of_all_types import ROWS, SCHEMA, batch_of
from tests.connector.ingest.laws.test_positions import (
    ANSWERS,
    OTHER,
    OTHERS,
    Answers,
    DeltaLake,
    Driver,
    IcebergLake,
    made,
)
from tests.connector.ingest.laws.test_statistics_of_files import check_footer, check_log, check_manifest

pytestmark = pytest.mark.unit

NOBODY: Any = None  # a Spark session is for tables that Spark alone reaches
#: By which columns a table has partitions: of each type that files without Spark can have.
PARTITIONS = [None, *(name for name in ("flag", "int", "dec9", "text", "day"))]
CHANGES = (*OTHERS, "land", "column", "property", "rollback", "withheld")
#: When a change comes while files are compacted.
MOMENTS = ("before the last look", "before the commit is sent")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("land"), st.integers(1, 3)),
        st.tuples(st.just("land"), st.integers(1, 3)),
        st.tuples(
            st.just("compaction"),
            st.sampled_from(ANSWERS),
            st.sampled_from((None, None, None, *CHANGES)),
            st.sampled_from(MOMENTS),
            st.booleans(),
        ),
        st.tuples(st.sampled_from([change for change in CHANGES if change not in ("land", "withheld")])),
    ),
    min_size=3,
    max_size=16,
)


@pytest.fixture(autouse=True)
def two_files_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_compaction, "FAN_IN", 2)


class World:
    """A table that one driver lands and compacts, and what must be in the table."""

    def __init__(self, lake: Any) -> None:
        self.lake, self.driver = lake, Driver(lake)
        self.end, self.deleted = 0, set[int]()
        self.compaction = OwnCompaction(lambda _: lake.opened(), 2**20)
        self.n_compacted = 0

    def do(self, step: str, *asked: Any) -> None:
        if step == "compaction":
            self.compact(*asked)
        elif step == "land":
            self.end += asked[0] if asked else 1
            for _ in range(2):  # a commit of another program may be in between
                self.driver.land(self.end)
        elif step == "delete":
            if landed := [number for number in self.lake.ids() if number != OTHER]:
                self.deleted.add(landed[0])
                self.lake.delete(landed[0])
        elif step == "overwrite":
            self.deleted |= {*self.lake.ids()}
            self.lake.overwrite()
        elif step == "rollback":
            self.lake.rollback()
            held = self.lake.opened().landed()
            assert held is not None
            # Delta's position stays, and Iceberg's is what its snapshots say.
            self.deleted = {*range(held.end[0])} - {*self.lake.ids()}
            self.driver.restart()
        else:
            getattr(self.lake, step)()

    def compact(self, answer: str, meanwhile: str | None, moment: str, is_away: bool) -> None:
        """Compact the table; another program, or the landing, does something before the commit.

        Args:
            is_away: whether the store refuses all commits after the first answer.
        """

        def change() -> None:
            if meanwhile is not None:
                self.do(meanwhile)
            self.lake.answers.next, self.lake.answers.will_be_away = answer, is_away

        @contextmanager
        def committing() -> Iterator[None]:
            if meanwhile == "withheld":
                raise MayNotCommitError
            if moment == MOMENTS[0]:
                change()
            else:
                self.lake.answers.interruption = change
            yield
            self.lake.answers.interruption = None

        version = self.lake.version()
        with suppress(Exception):  # a store's, a library's
            self.compaction.run(NOBODY, committing, lambda: None)
        self.lake.answers.next = "applied"
        self.lake.answers.is_away = self.lake.answers.will_be_away = False
        self.n_compacted += self.lake.version() > version

    def check(self) -> None:
        wanted = sorted({*range(self.end)} - self.deleted)
        assert [number for number in self.lake.ids() if number != OTHER] == wanted
        held = self.lake.opened().landed()
        assert held is not None
        assert held.end == {0: self.end}


class InterruptedAnswers(Answers):
    """Answers as others do, after something else has happened."""

    interruption: Callable[[], None] | None = None
    is_away = will_be_away = False

    def send(self, commit: Callable[[], Any]) -> Any:
        interruption, self.interruption = self.interruption, None
        if interruption is not None:
            interruption()
        if self.is_away:
            raise self.error("the store does not respond")
        self.is_away = self.will_be_away
        return super().send(commit)


class OtherDelta(DeltaLake):
    """A Delta table that other programs change in further ways."""

    n_columns = 0

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.answers = InterruptedAnswers(self.answers.conflict, self.answers.error)

    def append(self) -> None:
        self._write("append")

    def overwrite(self) -> None:
        self._write("overwrite")

    def _write(self, mode: Any) -> None:
        write_deltalake(self.place, pa.table({"id": pa.array([OTHER], pa.int64())}), mode=mode, schema_mode="merge")

    def version(self) -> int:
        return DeltaTable(self.place).version()

    def column(self) -> None:
        self.n_columns += 1
        DeltaTable(self.place).alter.add_columns([Field(f"more{self.n_columns}", PrimitiveType("string"))])

    def property(self) -> None:
        self.n_columns += 1
        DeltaTable(self.place).alter.set_table_properties({"owner": str(self.n_columns)}, raise_if_not_exists=False)

    def rollback(self) -> None:
        """Restore the version before the newest one, if the log still has it."""
        stored = DeltaTable(self.place)
        with suppress(Exception):
            stored.restore(max(0, stored.version() - 1))


class OtherIceberg(IcebergLake):
    """An Iceberg table that other programs change in further ways."""

    n_columns = 0

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.answers = InterruptedAnswers(self.answers.conflict, self.answers.error)

    def version(self) -> int:
        return int(self._stored.metadata.last_sequence_number)

    def column(self) -> None:
        self.n_columns += 1
        with self._stored.update_schema() as update:
            update.add_column(f"more{self.n_columns}", StringType())

    def property(self) -> None:
        with self._stored.transaction() as transaction:
            transaction.set_properties({"owner": "somebody"})

    def rollback(self) -> None:
        """Make the snapshot before the newest one the current one, if the table still has it."""
        stored = self._stored
        with suppress(Exception):
            stored.manage_snapshots().rollback_to_snapshot(stored.current_snapshot().parent_snapshot_id).commit()


def check_steps(kind: type[Any], steps: list[tuple[Any, ...]]) -> World:
    with made(kind) as lake:
        world = World(lake)
        for step in steps:
            world.do(*step)
            assert not world.lake.answers.next.startswith("refused")
        lake.answers.arrive()
        world.do("land", 1)
        world.check()
        return world


def check_many(kind: type[Any], n: int) -> None:
    """Check generated steps; enough of them have to compact files, and to be disturbed."""
    seen = Counter[str]()

    @examples(n)
    @given(steps=STEPS)
    def check_each(steps: list[tuple[Any, ...]]) -> None:
        world = check_steps(kind, steps)
        seen["compacted"] += world.n_compacted
        seen["given up"] += sum(step[0] == "compaction" for step in steps) - world.n_compacted

    check_each()
    assert min(seen["compacted"], seen["given up"]) > n / 4, seen


@pytest.mark.parametrize(("kind", "n"), [(OtherDelta, 20), (OtherIceberg, 10)])
def test_a_table_has_each_record_once_and_its_position_however_its_files_are_compacted(kind: type[Any], n: int) -> None:
    check_many(kind, n)


@pytest.mark.parametrize(
    ("answer", "meanwhile"), [*((answer, None) for answer in ANSWERS), *(("applied", change) for change in CHANGES)]
)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", [OtherDelta, OtherIceberg])
def test_each_answer_and_each_change_while_files_are_compacted(
    kind: type[Any], answer: str, meanwhile: str | None, moment: str
) -> None:
    # A store that refuses all commits after its answer, and one that does not; `make laws` tries both at each moment.
    for is_away in (False, True) if FACTOR else (moment == MOMENTS[1],):
        steps = [("land", 2), ("land", 2), ("compaction", answer, meanwhile, moment, is_away)]
        check_steps(kind, [*steps, ("land", 1), *steps])


class TypedTable:
    """A table of all types, as an ingest writes it."""

    def __init__(self, folder: str, partition_by: str | None) -> None:
        self.folder = folder
        self.table = Table(topic="t", partition_by=() if partition_by is None else (partition_by,))
        self._n = 0

    def opened(self) -> Any:
        raise NotImplementedError

    def files(self) -> dict[str, tuple[str, Any]]:
        """The table's files by their paths in the file system: of each the partition, and what the log or the manifest says."""
        raise NotImplementedError

    def check_statistics(self, said: Any, rows: list[dict[str, Any]]) -> None:
        raise NotImplementedError

    def landed(self) -> Landed:
        return Landed(
            query="q", micro_batch=self._n, topic="t", topic_id="", start={0: max(0, self._n - 1)}, end={0: self._n},
            sequence=self._n, attempt=new_attempt(),
        )  # fmt: skip

    def land(self, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
        self._n += 1
        table = self.opened()
        layout = table.layout(pa.schema(file_type(pa.struct(schema), pa.struct(table.arrow_schema))), self.table)
        filesystem, path = table.folder.open()
        files = list(FileWriter(filesystem, path, layout).write([batch_of(rows, pa.schema(list(layout.schema)))]))
        self.written_schema = pq.read_schema(f"{path}/{files[0].path}")
        table.append_files(Written(files=files), layout, self.landed())

    def compact(self) -> None:
        OwnCompaction(lambda _: self.opened(), 2**20).run(NOBODY, nullcontext, lambda: None)

    def rows(self) -> Counter[Any]:
        """Each row with the partition that the log or the manifest says."""
        return Counter(
            (partition, row)
            for path, (partition, _) in self.files().items()
            for row in canonical(pq.ParquetFile(path).read())
        )


class TypedDelta(TypedTable):
    """One of Delta."""

    def __init__(self, folder: str, partition_by: str | None) -> None:
        super().__init__(f"{folder}/rows", partition_by)
        self.opened().create_of(SCHEMA, self.table, "q", self.landed())

    def opened(self) -> DeltaFolder:
        return DeltaFolder(self.folder)

    def files(self) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = {}
        for entry in sorted(Path(self.folder, "_delta_log").glob("*.json")):
            for action in map(json.loads, entry.read_text().splitlines()):
                if "remove" in action:
                    del found[f"{self.folder}/{unquote(action['remove']['path'])}"]
                if "add" in action:
                    add = action["add"]
                    found[f"{self.folder}/{unquote(add['path'])}"] = json.dumps(add["partitionValues"]), add
        return found

    def check_statistics(self, said: Any, rows: list[dict[str, Any]]) -> None:
        if not self.table.partition_by:  # of all columns, in their order
            check_log(json.loads(said["stats"], parse_float=Decimal), rows)


class TypedIceberg(TypedTable):
    """One of Iceberg."""

    def __init__(self, folder: str, partition_by: str | None) -> None:
        super().__init__(folder, partition_by)
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        load_catalog("lake", **catalog).create_namespace("laws")
        self._settings = Settings(
            checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.laws", table_format="iceberg",
            catalog=catalog,
        )  # fmt: skip
        self.opened().create_of(SCHEMA, self.table, "q", self.landed())

    def opened(self) -> IcebergTable:
        return IcebergTable(NOBODY, self._settings, "rows")

    def files(self) -> dict[str, tuple[str, Any]]:
        stored = self.opened()._table
        entries = [
            entry
            for manifest in stored.current_snapshot().manifests(stored.io)
            for entry in manifest.fetch_manifest_entry(stored.io, discard_deleted=True)
        ]
        summary = stored.current_snapshot().summary
        assert int(summary["total-data-files"]) == len(entries)
        assert int(summary["total-records"]) == sum(entry.data_file.record_count for entry in entries)
        return {
            entry.data_file.file_path.removeprefix("file://"): (repr(entry.data_file.partition), entry.data_file)
            for entry in entries
        }

    def check_statistics(self, said: Any, rows: list[dict[str, Any]]) -> None:
        check_manifest(self.opened(), said, rows)


def canonical(rows: pa.Table) -> list[str]:
    """Each row as a text in which NaN, -0.0, and dates that Python does not have are themselves."""
    columns = [_canonical(rows[name].combine_chunks()) for name in rows.schema.names]
    return [repr(dict(zip(rows.schema.names, values, strict=True))) for values in zip(*columns, strict=True)]


def _canonical(column: Any) -> list[Any]:
    if pa.types.is_struct(column.type):
        fields = [_canonical(column.field(number)) for number in range(column.type.num_fields)]
        return [
            values if is_valid else None
            for values, is_valid in zip(zip(*fields, strict=True), column.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_temporal(column.type):
        return list(column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64()).to_pylist())
    return list(column.to_pylist())


@examples(15)
@given(
    commits=st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=2, max_size=6),
    partition_by=st.sampled_from(PARTITIONS),
    kind=st.sampled_from([TypedDelta, TypedDelta, TypedIceberg]),
)
def test_rows_partitions_and_statistics_are_those_of_the_files_before(
    commits: list[list[dict[str, Any]]], partition_by: str | None, kind: type[TypedTable]
) -> None:
    numbers = iter(range(10**9))
    commits = [[{"id": next(numbers), **row} for row in rows] for rows in commits]
    by_id = {row["id"]: row for rows in commits for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        table = kind(folder, partition_by)
        for rows in commits:
            table.land(rows)
        before = table.rows()
        table.compact()
        assert table.rows() == before
        partitions = [partition for partition, _ in table.files().values()]
        assert len(partitions) == len({*partitions})
        for path, (_, said) in table.files().items():
            rows = [by_id[number] for number in pq.ParquetFile(path).read(["id"])["id"].to_pylist()]
            if kind is TypedIceberg or partition_by is None:  # its files have all columns
                check_footer(path, rows)
            table.check_statistics(said, rows)
            assert pq.read_schema(path).equals(table.written_schema, check_metadata=True)


def test_files_of_other_columns_are_compacted_apart(tmp_path: Path) -> None:
    """A file that lacks a column shows nulls there, and still does."""
    table = TypedDelta(str(tmp_path), None)
    rows = [dict.fromkeys(SCHEMA.names) | {"id": number} for number in range(5)]
    table.land(rows[:1])
    table.land(rows[1:2])
    DeltaTable(table.folder).alter.add_columns([Field("more", PrimitiveType("string"))])
    schema = pa.schema([("id", pa.int32()), ("more", pa.string())])
    for number in (2, 3):
        table.land([{"id": number, "more": "m"}], schema)
    table.land(rows[4:])
    table.compact()
    found = DeltaTable(table.folder).to_pyarrow_table(columns=["id", "more"]).sort_by("id")
    assert found.to_pylist() == [{"id": number, "more": "m" if number in (2, 3) else None} for number in range(5)]
    names = [pq.read_schema(path).names for path in table.files()]
    assert sorted(map(len, names)) == [2, len(SCHEMA)]


FILES = st.lists(
    st.builds(
        LiveFile,
        path=st.uuids().map(str),
        n_bytes=st.integers(1, 2**27),
        n_rows=st.integers(0, 10**7),
        partition=st.sampled_from("abc"),
    ),
    max_size=400,
)


@examples(100)
@given(files=FILES, target_bytes=st.sampled_from([2**10, 2**20, 2**27]))
def test_files_that_are_due_are_small_and_of_one_partition(files: list[LiveFile], target_bytes: int) -> None:
    chosen = set[str]()
    for group in due(files, target_bytes):
        assert len(group) > 1
        assert len({file.partition for file in group}) == 1
        assert all(file.n_bytes < target_bytes / 4 for file in group)
        assert sum(file.n_bytes for file in group[:-1]) < target_bytes
        assert not chosen & {file.path for file in group}
        chosen |= {file.path for file in group}


@pytest.mark.parametrize("n_rows", [1, 40, 2_000, 30_000])
def test_live_files_stay_few_and_each_row_is_written_few_times(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of five commits a second, with a look after each eighth one."""
    monkeypatch.setattr(files_compaction, "FAN_IN", FAN_IN)
    target_bytes, bytes_of_row, n_written = 2**27, 15, 0
    files: dict[str, LiveFile] = {}
    for number in range(18_000):
        files[str(number)] = LiveFile(path=str(number), n_bytes=2_000 + n_rows * bytes_of_row, n_rows=n_rows)
        if number % 8:
            continue
        for group in due(files.values(), target_bytes):
            n_of_group = sum(file.n_rows for file in group)
            n_written += n_of_group
            for file in group:
                del files[file.path]
            name = f"of {group[0].path} at {number}"
            files[name] = LiveFile(path=name, n_bytes=2_000 + n_of_group * bytes_of_row, n_rows=n_of_group)
        assert len(files) < 300
    assert sum(file.n_rows for file in files.values()) == 18_000 * n_rows
    assert n_written <= 4 * 18_000 * n_rows
