"""Landed means visible, exactly once; and a position is never guessed from rows: commits of files, without Spark.

Two drivers land one topic, whose records are the numbers from 0 on, into one table. A catalog, or a store, answers each commit in
some way; other programs change the table and clean its history; the checkpoint is restored. The oracle: in the end, the table has
each record exactly once, but for those that other programs have deleted, and readers that are not ours can read it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.update import AddSnapshotUpdate

from pykafka_wire.ingest.files.parquet import FileWriter
from pykafka_wire.ingest.files.tasks import Written
from pykafka_wire.ingest.files.types import file_type
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.files_table import TableChangedError, discarding
from pykafka_wire.ingest.tables.iceberg.long_properties import MAX_CHARACTERS
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.position import (
    AlreadyLandedError,
    Landed,
    RejectedRecord,
    new_attempt,
    stated_position,
    stated_properties,
)
from pykafka_wire.ingest.tables.topic_table import COLUMNS_PROPERTY
from tests.connector.ingest.laws.generated import examples

pytestmark = pytest.mark.unit

SCHEMA = pa.schema([("id", pa.int64())])
TABLE = Table(topic="numbers")
BEGINS_AT = Landed(query="q", micro_batch=-1, topic="numbers", topic_id="", start={0: 0}, end={0: 0})
#: Another program's row.
OTHER = -1

ANSWERS = (
    "applied",
    "applied, and the answer is lost",
    "applied, then a conflict",
    "applied, then a server's error",
    "sent twice",
    "refused as a conflict",
    "refused by a server's error",
    "time-out, and applied later",
)
ATTEMPT_FAILS = (
    AlreadyLandedError,
    TableChangedError,
    CommitFailedError,
    CommitFailedException,
    CommitStateUnknownException,
    OSError,
)
LAND = st.tuples(st.just("land"), st.integers(0, 1), st.integers(1, 3), st.sampled_from(ANSWERS))
OTHERS = ("append", "overwrite", "delete", "clean", "compact")
STEPS = st.lists(
    st.one_of(
        LAND,
        LAND,
        st.tuples(st.sampled_from(OTHERS)),
        st.tuples(st.sampled_from(("restart", "restore")), st.integers(0, 1)),
    ),
    min_size=1,
    max_size=14,
)


class Answers:
    """Sends commits, and answers each as the next of the given answers says."""

    def __init__(self, conflict: type[Exception], error: type[Exception]) -> None:
        self.conflict, self.error = conflict, error
        self.next = "applied"
        self._late: list[Callable[[], Any]] = []

    def send(self, commit: Callable[[], Any]) -> Any:
        self.arrive()
        answer, self.next = self.next, "applied"
        if answer.startswith("refused"):
            raise (self.conflict if "conflict" in answer else self.error)(answer)
        if answer.startswith("time-out"):
            self._late.append(commit)
            raise TimeoutError(answer)
        response = commit()
        if answer == "sent twice":
            return commit()
        if answer == "applied":
            return response
        raise {"lost": ConnectionError, "conflict": self.conflict, "error": self.error}[answer.split()[-1]](answer)

    def arrive(self) -> None:
        """Let commits arrive whose time was out."""
        late, self._late = self._late, []
        for commit in late:
            with suppress(Exception):  # nobody waits for the answer
                commit()


class DeltaLake:
    """A Delta table in a folder."""

    def __init__(self, folder: str) -> None:
        self.place = f"{folder}/numbers"
        self.answers = Answers(CommitFailedError, OSError)
        DeltaFolder(self.place).create_of(SCHEMA, TABLE, "q", BEGINS_AT)

    def opened(self) -> DeltaFolder:
        lake, table = self, DeltaFolder(self.place)

        class Stored:
            """deltalake's table, whose commits are answered."""

            def __init__(self, stored: DeltaTable) -> None:
                self._stored = stored

            def __getattr__(self, name: str) -> Any:
                return getattr(self._stored, name)

            def create_write_transaction(self, *given: Any, **named: Any) -> Any:
                # Sent again, it is another writer's look at the same state of the table.
                seen = DeltaTable(lake.place, version=self._stored.version())
                lake.answers.send(lambda: seen.create_write_transaction(*given, **named))

        vars(table)["_table"] = Stored(DeltaTable(self.place))
        return table

    def ids(self) -> list[int]:
        return sorted(DeltaTable(self.place).to_pyarrow_table()["id"].to_pylist())

    def append(self) -> None:
        write_deltalake(self.place, pa.table({"id": [OTHER]}, schema=SCHEMA), mode="append")

    def overwrite(self) -> None:
        write_deltalake(self.place, pa.table({"id": [OTHER]}, schema=SCHEMA), mode="overwrite")

    def delete(self, number: int) -> None:
        DeltaTable(self.place).delete(f"id = {number}")

    def compact(self) -> None:
        DeltaTable(self.place).optimize.compact()

    def create_again(self, n_commits: int) -> None:
        shutil.rmtree(self.place)
        for _ in range(n_commits):
            self.append()

    def copy(self) -> None:
        """Replace the table by a copy, as ``CREATE TABLE … LIKE`` and an INSERT make it."""
        stored = DeltaTable(self.place)
        properties, rows = dict(stored.metadata().configuration), stored.to_pyarrow_table()
        shutil.rmtree(self.place)
        as_spark = {"operationParameters": {"properties": json.dumps(properties)}}
        DeltaTable.create(
            self.place,
            SCHEMA,
            configuration=properties,
            raise_if_key_not_exists=False,
            commit_properties=CommitProperties(custom_metadata=as_spark),
        )
        (commit,) = (each for each in DeltaTable(self.place).history() if each["version"] == 0)
        assert "pykafka-wire.position" in commit["operationParameters"]["properties"]
        write_deltalake(self.place, rows, mode="append")

    def clean(self) -> None:
        """Forget what each older commit was, as Delta does after a checkpoint."""
        self.append()
        stored = DeltaTable(self.place)
        stored.create_checkpoint()
        for entry in Path(self.place, "_delta_log").glob("*.json"):
            if entry.stem.isdecimal() and int(entry.stem) < stored.version():
                entry.unlink()


class ExpiringLake(DeltaLake):
    """A Delta table whose transaction ids expire."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        DeltaTable(self.place).alter.set_table_properties(
            {"delta.setTransactionRetentionDuration": "interval 1 second"}
        )

    def clean(self) -> None:
        """Forget transaction ids, too, as Spark does in a checkpoint: those of before, and those without a time."""
        super().clean()
        for checkpoint in Path(self.place, "_delta_log").glob("*.checkpoint.parquet"):
            actions = pq.read_table(checkpoint)
            is_id = pc.is_valid(pc.struct_field(actions["txn"], "appId"))
            is_later = pc.greater(pc.struct_field(actions["txn"], "lastUpdated"), int(time.time() * 1000))
            pq.write_table(actions.filter(pc.or_(pc.invert(is_id), pc.fill_null(is_later, False))), checkpoint)


class IcebergLake:
    """An Iceberg table in a catalog in SQLite."""

    def __init__(self, folder: str) -> None:
        given = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        self._catalog = load_catalog("lake", **given)
        self._catalog.create_namespace("shop")
        self.answers = Answers(CommitFailedException, CommitStateUnknownException)
        self._settings = Settings(
            checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.shop", table_format="iceberg",
            catalog=given,
        )  # fmt: skip
        nothing: Any = None  # a session is for DataFrames
        IcebergTable(nothing, self._settings, "numbers").create_of(SCHEMA, TABLE, "q", BEGINS_AT)

    def opened(self) -> IcebergTable:
        lake = self

        class Catalog:
            """The catalog, whose commits of snapshots are answered."""

            def __getattr__(self, name: str) -> Any:
                return getattr(lake._catalog, name)

            def load_table(self, name: Any) -> Any:
                stored = lake._catalog.load_table(name)
                stored.catalog = self
                return stored

            def commit_table(self, stored: Any, requirements: Any, updates: Any) -> Any:
                if not any(isinstance(update, AddSnapshotUpdate) for update in updates):
                    return lake._catalog.commit_table(stored, requirements, updates)
                return lake.answers.send(lambda: lake._catalog.commit_table(stored, requirements, updates))

        nothing: Any = None
        table = IcebergTable(nothing, self._settings, "numbers")
        table._catalog = Catalog()
        return table

    @property
    def _stored(self) -> Any:
        return self._catalog.load_table(("shop", "numbers"))

    def ids(self) -> list[int]:
        return sorted(self._stored.scan().to_arrow()["id"].to_pylist())

    def append(self) -> None:
        self._stored.append(pa.table({"id": [OTHER]}, schema=SCHEMA))

    def pick(self, snapshot_id: int) -> None:
        """Cherry-pick a snapshot that has added files, as Iceberg's procedure does: set the table to a child of its current
        snapshot, or add the files again."""
        stored = self._stored
        picked = stored.metadata.snapshot_by_id(snapshot_id)
        if picked.parent_snapshot_id == stored.metadata.current_snapshot_id:
            stored.manage_snapshots().set_current_snapshot(snapshot_id).commit()
            return
        manifests = [each for each in picked.manifests(stored.io) if each.added_snapshot_id == snapshot_id]
        source = {"source-snapshot-id": str(snapshot_id)}
        with stored.transaction() as transaction, transaction.update_snapshot(source).fast_append() as append:
            for manifest in manifests:
                for entry in manifest.fetch_manifest_entry(stored.io):
                    if entry.snapshot_id == snapshot_id:
                        append.append_data_file(entry.data_file)

    def drop_summaries(self) -> None:
        """Drop the summaries of other programs' snapshots, which the format's version 1 does not require."""
        path = Path(self._stored.metadata_location.removeprefix("file://"))
        document = json.loads(path.read_text())
        for snapshot in document["snapshots"]:
            if "pykafka-wire" not in snapshot.get("summary", {}):
                snapshot.pop("summary", None)
        path.write_text(json.dumps(document))

    def create_again(self, n_commits: int) -> None:
        self._catalog.drop_table(("shop", "numbers"))
        self._catalog.create_table(("shop", "numbers"), SCHEMA)
        for _ in range(n_commits):
            self.append()

    def overwrite(self) -> None:
        self.append()  # pyiceberg warns of an overwrite of nothing
        self._stored.overwrite(pa.table({"id": [OTHER]}, schema=SCHEMA))

    def delete(self, number: int) -> None:
        self._stored.delete(f"id = {number}")

    def compact(self) -> None:
        self.append()
        self._stored.overwrite(self._stored.scan().to_arrow())

    def clean(self) -> None:
        self.append()
        stored = self._stored
        older = [each.snapshot_id for each in stored.metadata.snapshots if each != stored.current_snapshot()]
        if older:
            stored.maintenance.expire_snapshots().by_ids(older).commit()


class Driver:
    """Lands a topic as an ingest does: from where the table is, and after each failure from where the table is then."""

    def __init__(self, lake: Any) -> None:
        self._lake = lake
        self.restart()
        self.micro_batch = 0

    def restart(self) -> None:
        self.reopen()
        self._held: Landed | None = None

    def reopen(self) -> None:
        """Open the table, and keep the position in memory."""
        self._table = self._lake.opened()

    def land(self, until: int, n_lost: int = 0) -> None:
        """Land the records before ``until``."""
        if self._held is None:
            self._table = self._lake.opened()
            self._held = self._table.landed()
            assert self._held is not None, "the table has lost its position"
        start = self._held.end[0]
        self.micro_batch += 1
        if start >= until:
            return
        landed = Landed(
            query="q", micro_batch=self.micro_batch, topic="numbers", topic_id="", start={0: start}, end={0: until},
            sequence=self._held.sequence + 1, attempt=new_attempt(),
        )  # fmt: skip
        try:
            self._held = self._write(range(start, until), landed)
        except ATTEMPT_FAILS:
            self._held = None

    def _write(self, numbers: range, landed: Landed) -> Landed:
        table = self._table
        table.refresh()
        layout = table.layout(pa.schema(file_type(pa.struct(SCHEMA), pa.struct(table.arrow_schema))), TABLE)
        filesystem, folder = table.folder.open()
        rows = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=pa.schema([*layout.schema]))
        written = Written(files=list(FileWriter(filesystem, folder, layout).write([rows])))
        with discarding(written, table.folder):
            table.append_files(written, layout, landed)
        return landed


@contextmanager
def made(kind: type[Any]) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        yield kind(folder)


def check(kind: type[Any], steps: list[tuple[Any, ...]]) -> None:
    with made(kind) as lake:
        run(lake, steps)


def run(lake: Any, steps: list[tuple[Any, ...]]) -> int:
    """Check the table after steps from where it is; return where it ends."""
    held = lake.opened().landed()
    assert held is not None
    drivers, end = [Driver(lake), Driver(lake)], held.end[0]
    deleted = {*range(end)} - {*lake.ids()}
    for step, *asked in steps:
        if step == "land":
            number, n, lake.answers.next = asked
            end += n
            drivers[number].land(end)
            lake.answers.next = "applied"
        elif step == "restart":
            drivers[asked[0]].restart()
        elif step == "restore":  # an older checkpoint, whose micro-batches have lower numbers
            drivers[asked[0]].micro_batch = max(0, drivers[asked[0]].micro_batch - 3)
            drivers[asked[0]].restart()
        elif step == "delete":
            if landed := [number for number in lake.ids() if number != OTHER]:
                deleted.add(landed[0])
                lake.delete(landed[0])
        else:
            deleted |= {*lake.ids()} if step == "overwrite" else set()
            getattr(lake, step)()
    lake.answers.arrive()
    for _ in range(3):  # each has at most one failure behind it, and one behind the other's commit
        for driver in drivers:
            driver.land(end)
    assert [number for number in lake.ids() if number != OTHER] == sorted({*range(end)} - deleted)
    held = lake.opened().landed()
    assert held is not None and held.end == {0: end}, json.dumps(steps)
    return end


@examples(30)
@given(steps=STEPS)
def test_a_delta_table_has_each_record_once_however_its_commits_are_answered(steps: list[tuple[Any, ...]]) -> None:
    check(DeltaLake, steps)


@examples(15)
@given(steps=STEPS)
def test_a_position_does_not_expire_with_the_transaction_ids_of_a_delta_table(steps: list[tuple[Any, ...]]) -> None:
    landing = ("land", 0, 1, "applied")
    check(
        ExpiringLake, [landing, *steps, ("clean",), ("restart", 0), ("restart", 1), landing, ("clean",), ("restart", 0)]
    )


@examples(15)
@given(steps=STEPS, is_stated=st.booleans(), more=STEPS)
def test_a_copy_of_a_delta_table_has_no_position_until_one_is_stated(
    steps: list[tuple[Any, ...]], is_stated: bool, more: list[tuple[Any, ...]]
) -> None:
    """A copy has the properties of the first table, of which one may have an earlier position."""
    with made(DeltaLake) as lake:
        if is_stated:
            DeltaTable(lake.place).alter.set_table_properties(
                stated_properties(stated_position(BEGINS_AT, {0: 0})), raise_if_not_exists=False
            )
        end = run(lake, steps)
        lake.copy()
        assert lake.opened().landed() is None
        stated = stated_properties(stated_position(BEGINS_AT, {0: end}))
        DeltaTable(lake.place).alter.set_table_properties(stated, raise_if_not_exists=False)
        held = lake.opened().landed()
        assert held is not None and held.end == {0: end}
        run(lake, more)


@examples(20)
@given(steps=STEPS)
def test_an_iceberg_table_has_each_record_once_however_its_commits_are_answered(steps: list[tuple[Any, ...]]) -> None:
    check(IcebergLake, steps)


@pytest.mark.parametrize("kind", [DeltaLake, IcebergLake])
@pytest.mark.parametrize("answer", ANSWERS)
def test_each_answer_to_a_commit(kind: type[Any], answer: str) -> None:
    check(
        kind, [("land", 0, 2, "applied"), ("land", 0, 2, answer), ("land", 1, 1, "applied"), ("land", 0, 2, "applied")]
    )


@examples(10)
@given(kind=st.sampled_from([DeltaLake, IcebergLake]), n_landed=st.integers(0, 4), n_commits=st.integers(1, 6))
def test_a_table_that_another_program_has_created_again_gets_no_rows(
    kind: type[Any], n_landed: int, n_commits: int
) -> None:
    """The driver still has the position of the first table in memory."""
    with made(kind) as lake:
        driver = Driver(lake)
        for until in range(n_landed + 1):
            driver.land(until)
        lake.create_again(n_commits)
        driver.reopen()
        driver.land(n_landed + 1)
        assert lake.ids() == [OTHER] * n_commits


@pytest.mark.parametrize("kind", [DeltaLake, IcebergLake])
def test_rows_that_an_owner_has_deleted_stay_deleted_after_the_history_is_cleaned(kind: type[Any]) -> None:
    steps = [("land", 0, 3, "applied"), ("delete",), ("clean",), ("restart", 0), ("land", 0, 1, "applied")]
    check(kind, [*steps, ("overwrite",), ("clean",), ("restart", 0), ("land", 0, 1, "applied")])


@pytest.mark.parametrize("kind", [DeltaLake, IcebergLake])
def test_an_older_checkpoint_lands_what_is_new_whatever_the_numbers_of_its_micro_batches(kind: type[Any]) -> None:
    landings = [("land", 0, 2, "applied")] * 3
    check(kind, [*landings, ("restore", 0), *landings, ("restore", 1), ("land", 1, 2, "applied")])


@examples(300)
@given(
    reasons=st.lists(st.text(st.sampled_from("${}:envHOM\n\"\\u'é")) | st.text(), max_size=3),
    is_isolated=st.booleans(),
)
def test_a_position_is_read_as_it_was_written_whatever_its_rejects_say(reasons: list[str], is_isolated: bool) -> None:
    """Spark replaces variables in settings, which carry a position to a commit. A reject's reason may quote a record."""
    records = tuple(RejectedRecord(0, offset, reason) for offset, reason in enumerate(reasons))
    written = replace(BEGINS_AT, **{"isolated" if is_isolated else "unreadable": records})
    text = written.to_json()
    assert "$" not in text
    found = Landed.from_json(text)
    assert found is not None
    assert [each[:2] for each in (*found.isolated, *found.unreadable)] == [each[:2] for each in records]
    assert all(
        each.reason == reason[:500] for each, reason in zip((*found.isolated, *found.unreadable), reasons, strict=True)
    )


@examples(20)
@given(
    ends=st.lists(st.integers(0, 2**62), min_size=1, max_size=600),
    names=st.lists(st.text(st.characters(codec="ascii"), max_size=60), max_size=300),
)
def test_a_metastore_accepts_each_property_of_an_iceberg_table(ends: list[int], names: list[str]) -> None:
    """A Hive metastore limits a property to 4,000 characters: a topic may have many partitions, a table many columns."""
    nothing: Any = None
    with made(IcebergLake) as lake:
        begin = replace(BEGINS_AT, start=dict(enumerate(ends)), end=dict(enumerate(ends)))
        lake._catalog.drop_table(("shop", "numbers"))
        IcebergTable(nothing, lake._settings, "numbers").create_of(SCHEMA, TABLE, "q", begin)
        noted = {COLUMNS_PROPERTY: json.dumps(names), "pykafka-wire.takes": "".join(names)}
        for n_landed in range(3):
            later = {partition: end + n_landed for partition, end in enumerate(ends)}
            table = lake.opened()
            held = table.landed()
            assert held is not None and held.end == later
            properties = dict(lake._stored.properties)
            assert max(map(len, properties.values())) <= MAX_CHARACTERS
            assert n_landed == 0 or noted.items() <= table.properties().items()
            driver = Driver(lake)
            driver._table = table
            end = {partition: end + 1 for partition, end in later.items()}
            driver._write(
                range(1), replace(held, start=later, end=end, sequence=held.sequence + 1, attempt=new_attempt())
            )
            if n_landed == 1:
                lake.clean()  # the property alone has the position
            lake.opened().alter(noted)
            noted = {name: text[:100] for name, text in noted.items()}  # no part of an earlier text counts
            lake.opened().alter(noted)
