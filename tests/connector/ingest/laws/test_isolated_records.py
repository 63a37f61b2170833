"""Law: one record's problem stays its own. Whatever one record makes fail, at whatever step, the records around it become rows."""

from __future__ import annotations

import json
import os
import random
import time
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.files import tasks as file_tasks
from pykafka_wire.ingest.landing import rejects
from pykafka_wire.ingest.proof.replay import replay_rejects
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.tables.delta import folder as delta_folder
from pykafka_wire.ingest_status import TableState
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.laws.generated import FACTOR

pytestmark = [pytest.mark.timeout(900)]

#: What the value of a damaged record has, which the steps below fail on.
BAD = 666


class UnexpectedError(Exception):
    """An error that nobody foresaw."""


def _fails(values: pa.Array) -> None:
    if values.type in (pa.int32(), pa.int64()) and BAD in values.to_pylist():
        raise UnexpectedError("this step cannot take 666")


@contextmanager
def failing_step(step: str) -> Any:
    """Let one step of a landing by tasks, in this process, fail at each record of the value :data:`BAD`."""
    with pytest.MonkeyPatch.context() as patched:
        if step == "row to Parquet":
            write = file_tasks.FileWriter.write

            def writing(self: Any, batches: Any) -> Any:
                def checked() -> Any:
                    for batch in batches:
                        _fails(batch.column("v"))
                        yield batch

                return write(self, checked())

            patched.setattr(file_tasks.FileWriter, "write", writing)
        elif step == "conversion":
            conform = file_tasks.conform

            def conforming(column: Any, *more: Any) -> Any:
                _fails(column)
                return conform(column, *more)

            patched.setattr(file_tasks, "conform", conforming)
        elif step == "decoding":
            taken = file_tasks.taken_records

            def taking(batch: Any, *more: Any) -> Any:
                _fails(batch.column("value").field("v"))
                return taken(batch, *more)

            patched.setattr(file_tasks, "taken_records", taking)
        elif step == "partition value":
            text = delta_folder.partition_text

            def partition_text(value: Any, kind: pa.DataType) -> Any:
                _fails(pa.array([value], kind))
                return text(value, kind)

            patched.setattr(delta_folder, "partition_text", partition_text)
        elif step == "statistics":
            actions = delta_folder.DeltaFolder._actions

            def acting(self: Any, files: Any, *more: Any) -> Any:
                found = [*actions(self, files, *more)]
                if any((json.loads(action.stats).get("maxValues") or {}).get("v") == BAD for action in found):
                    raise UnexpectedError("no statistics of 666")
                return found

            patched.setattr(delta_folder.DeltaFolder, "_actions", acting)
        yield


def appended(shop: Shop, name: str, **asked: Any) -> Table:
    return Table(topic=rf"{shop.prefix}\.{name}", format="json", schema="v INT", **asked)


def rejected(shop: Shop, name: str) -> list[tuple[int, str]]:
    rows = shop.table("_rejects").where(f"table = '{shop.prefix}_{name}'").collect()
    return sorted((json.loads(bytes(row.value))["v"], row.reason) for row in rows)


def landed_in_attempts(shop: Shop, table: Table) -> None:
    ingest = shop.run(tables=[table])
    (status,) = ingest.statuses.values()
    assert status.trouble is None, status


# The statistics fail in another test below, too.
@pytest.mark.parametrize(
    "step",
    [
        "decoding",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in ("row to Parquet", "conversion", "partition value", "statistics")
        ),
    ],
)
def test_a_step_that_fails_for_some_records_rejects_these_alone(shop: Shop, step: str) -> None:
    shop.create("rows")
    chance = random.Random(step + str(FACTOR))
    values = [*range(12)]
    for _ in range(2):
        values.insert(chance.randrange(len(values) + 1), BAD)
    shop.send_json("rows", [{"v": v} for v in values])
    with failing_step(step):
        landed_in_attempts(shop, appended(shop, "rows", partition_by=("v",) if step == "partition value" else ()))
    assert shop.rows("rows", "v") == sorted((v,) for v in values if v != BAD)
    bad = rejected(shop, "rows")
    assert [v for v, _ in bad] == [BAD, BAD]
    assert all("666" in reason for _, reason in bad)


@pytest.mark.long
def test_a_constraint_of_the_owner_rejects_the_records_that_break_it(shop: Shop) -> None:
    """Spark writes the table, by MERGE."""
    shop.create("rows")

    def send(pairs: list[tuple[int, int]]) -> None:
        shop.send_json("rows", [{"v": v} for _, v in pairs], keys=[{"id": key} for key, _ in pairs])

    table = appended(shop, "rows", mode="upsert", key_format="json", key_schema="id INT")
    send([(0, 0)])
    shop.run(tables=[table])
    path = shop.folder / "lake" / f"{shop.prefix}_rows"
    shop.spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT small CHECK (v < 100)")
    send([(key, key) for key in range(1, 9)])
    send([(3, BAD), (9, 9), (1, 11)])
    landed_in_attempts(shop, table)
    assert shop.rows("rows", "v") == [(v,) for v in (0, 2, 3, 4, 5, 6, 7, 8, 9, 11)]
    ((v, reason),) = rejected(shop, "rows")
    assert v == BAD
    assert "CHECK constraint small" in reason


@pytest.mark.long
def test_a_text_that_no_folder_can_be_named_by_rejects_its_record(shop: Shop) -> None:
    """Spark writes the table, by MERGE, with a folder for each text. Most file systems allow 255 bytes for a name."""
    shop.create("rows")
    chance = random.Random(FACTOR)
    texts = ["é" * 126, "é" * 127, *("x" * chance.choice((1, 100, 253, 254, 1000)) for _ in range(6)), "last"]
    rows = [{"v": v, "place": text} for v, text in enumerate(texts)]
    shop.send_json("rows", rows, keys=[{"id": row["v"]} for row in rows])
    landed_in_attempts(
        shop,
        Table(
            topic=".*", format="json", schema="v INT, place STRING", mode="upsert", key_format="json", key_schema="id INT",
            partition_by=("place",),
        ),
    )  # fmt: skip
    is_short = [len(f"place={text}".encode()) <= 255 for text in texts]
    assert [v for (v,) in shop.rows("rows", "v")] == [v for v, fits in enumerate(is_short) if fits]
    assert [v for v, _ in rejected(shop, "rows")] == [v for v, fits in enumerate(is_short) if not fits]


@pytest.mark.long
def test_a_condition_that_fails_for_one_record_rejects_that_record(shop: Shop) -> None:
    shop.create("rows")
    shop.send_json("rows", [{"v": v} for v in (1, 2, 0, 4)])
    landed_in_attempts(shop, appended(shop, "rows", where="10 / v > 0"))
    assert shop.rows("rows", "v") == [(1,), (2,), (4,)]
    assert [v for v, _ in rejected(shop, "rows")] == [0]


@pytest.mark.long
def test_a_change_without_a_key_is_a_reject_beside_changes_with_one(shop: Shop) -> None:
    shop.create("rows")

    def send(v: int, keys: list[dict[str, int]] | None) -> None:
        shop.send_json("rows", [{"op": "u", "before": None, "after": {"id": v, "v": v}}], keys=keys)

    for v in (1, 2, 3):
        send(v, None if v == 2 else [{"id": v}])
    landed_in_attempts(shop, Table(topic=".*", mode="cdc", format="json", schema="id INT, v INT", key_schema="id INT"))
    assert shop.rows("rows", "v") == [(1,), (3,)]
    ((_, reason),) = shop.rows("_rejects", "offset", "reason")
    assert "without a key" in reason


def test_a_record_that_stops_its_table_alone_is_a_reject_when_the_next_one_comes(shop: Shop) -> None:
    """One record a micro-batch: nothing but the records behind it shows that the table is not the cause."""
    shop.create("rows")
    ingest = shop.ingest(tables=[appended(shop, "rows", where="10 / v > 0")])
    query = ingest.start(shop.spark, every="0 seconds")

    def is_reached(is_stopped: bool, n_rows: int) -> bool:
        states = [(status.state is TableState.STOPPED, status.rows) for status in ingest.statuses.values()]
        assert query.exception() is None
        return states == [(is_stopped, n_rows)]

    try:
        for v, is_stopped, n_rows in ((1, False, 1), (0, True, 1), (4, False, 2)):
            shop.outside.produce(f"{shop.prefix}.rows", [shop.outside.Record(value=b'{"v": %d}' % v, partition=0)])
            deadline = time.monotonic() + 100
            while not is_reached(is_stopped, n_rows):
                assert time.monotonic() < deadline, ingest.statuses
                time.sleep(0.2)
    finally:
        query.stop()
    assert shop.rows("rows", "v") == [(1,), (4,)]
    assert [v for v, _ in rejected(shop, "rows")] == [0]


@pytest.mark.long
def test_rejects_of_a_search_are_written_though_the_table_s_commit_came_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk between the commit and its rejects; the table, looked at again, says which records they are."""
    shop.create("rows")
    shop.send_json("rows", [{"v": v} for v in (1, 2, BAD, 4)])
    commit_rejects, failed = rejects.TableRejects._commit, list[int]()

    def fail_first(self: Any, *given: Any) -> None:
        if not failed:
            failed.append(1)
            raise OSError("No space left on device")
        commit_rejects(self, *given)

    monkeypatch.setattr(rejects.TableRejects, "_commit", fail_first)
    with failing_step("statistics"):
        landed_in_attempts(shop, appended(shop, "rows"))
    assert failed
    assert shop.rows("rows", "v") == [(1,), (2,), (4,)]
    assert [v for v, _ in rejected(shop, "rows")] == [BAD]


#: Documents that a table with a column v cannot have, alone or beside others, and one that cannot be read.
ODD = ('{"v": 1, "V": 2}', '{"V": 3}', '{"w": 4, "W": 5}')
UNREADABLE = '{"v": "x"}'


@pytest.mark.long
def test_a_table_with_isolated_records_is_compared_and_its_rejects_are_read_again(shop: Shop) -> None:
    modes = {"append": Table(topic=r".*\.append", format="json")}
    modes["upsert"] = Table(topic=r".*\.upsert", format="json", mode="upsert", key_format="string")
    chance = random.Random(FACTOR)
    for name in modes:
        shop.create(name, partitions=1)
    for first, bad in ((0, ()), (10, (*ODD, UNREADABLE))):
        for name in modes:
            documents = [f'{{"v": {first + n}}}' for n in range(4)]
            for each in bad:
                documents.insert(chance.randrange(len(documents) + 1), each)
            records = [
                shop.outside.Record(key=b"%d" % (first + n), value=document.encode(), partition=0)
                for n, document in enumerate(documents)
            ]
            shop.outside.produce(f"{shop.prefix}.{name}", records)
        ingest = shop.run(tables=[*modes.values()])
    rows = [(v,) for v in (0, 1, 2, 3, 10, 11, 12, 13)]
    assert [shop.rows(name, "v") for name in modes] == [rows, rows]
    proofs = {proof.topic: proof for proof in verify(shop.spark, ingest.settings, ingest.topics())}
    assert [proof.mistake for proof in proofs.values()] == [None, None]
    n_bad = len(ODD) + 1
    append, upsert = (proofs[f"{shop.prefix}.{name}"] for name in modes)
    assert append.is_right and append.n_rejected == n_bad, append
    assert upsert.n_stale == n_bad and upsert.comparison is not None and upsert.comparison.n_expected == 8, upsert
    replayed = list(replay_rejects(shop.spark, ingest.settings))
    assert [(each.mistake, each.landed, each.damaged) for each in replayed] == [(None, 0, n_bad)] * 2
    assert [shop.rows(name, "v") for name in modes] == [rows, rows]


@pytest.mark.long
def test_a_row_with_a_new_key_has_its_unsent_values_beside_an_isolated_record(shop: Shop) -> None:
    shop.create("rows", partitions=1)

    def send(*records: tuple[int, Any, dict[str, str]]) -> None:
        made = [
            shop.outside.Record(
                key=json.dumps({"id": key}).encode(),
                value=json.dumps({"before": None, "source": {"connector": "postgresql"}, **change}).encode(),
                partition=0,
                headers=tuple((name, text.encode()) for name, text in headers.items()),
            )
            for key, change, headers in records
        ]
        shop.outside.produce(f"{shop.prefix}.rows", made)

    table = Table(topic=".*", mode="cdc", format="json")
    send((1, {"op": "r", "after": {"id": 1, "v": "long"}}, {}))
    landed_in_attempts(shop, table)
    odd = (9, {"op": "c", "after": {"id": 9, "v": "x", "V": "y"}}, {})
    other = (8, {"op": "c", "after": {"id": 8, "v": "z"}}, {})
    send(odd, (1, {"op": "d", "after": None}, {"__debezium.newkey": '{"id": 2}'}), other)
    landed_in_attempts(shop, table)
    unsent = {"id": 2, "v": "__debezium_unavailable_value"}
    send((2, {"op": "c", "after": unsent}, {"__debezium.oldkey": '{"id": 1}'}))
    landed_in_attempts(shop, table)
    assert shop.rows("rows", "id", "v") == [(2, "long"), (8, "z")]
    assert len(shop.rows("_rejects", "offset")) == 1


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(280)
@pytest.mark.long
def test_no_text_of_a_record_is_taken_for_a_variable_of_spark(shop: Shop) -> None:
    """Spark replaces ${env:HOME} in settings and in statements, which carry reasons of rejects and names of fields."""
    variables = ("${system:line.separator}", "${env:HOME}", "${spark.app.id}")
    for name in ("rows", "fields"):
        shop.create(name, partitions=1)

    def change(op: str, number: int) -> bytes:
        return json.dumps({"op": op, "before": None, "after": {"id": number}}).encode()

    def send(first: int) -> None:
        numbers = [first, first + 1]
        ops = ["c", *variables, "c"]
        rows = [change(op, numbers[number > 0]) for number, op in enumerate(ops)]
        keys = [json.dumps({"id": numbers[number > 0]}).encode() for number in range(len(ops))]
        fields = [json.dumps({"id": numbers[0], **dict.fromkeys(variables, first)}).encode()]
        for name, values, given in (("rows", rows, keys), ("fields", fields, keys[:1])):
            records = [
                shop.outside.Record(key=key, value=value, partition=0) for key, value in zip(given, values, strict=True)
            ]
            shop.outside.produce(f"{shop.prefix}.{name}", records)

    tables = [
        Table(topic=r".*\.rows", format="json", mode="cdc", key_format="json", schema="id INT"),
        Table(topic=r".*\.fields", format="json", mode="upsert", key_format="json"),
    ]
    for first in (1, 3):
        send(first)
        ingest = shop.run(registry=None, tables=tables)
        assert {status.error for status in ingest.statuses.values()} == {None}
    assert shop.rows("rows", "id") == [(1,), (2,), (3,), (4,)]
    assert {row.reason for row in shop.table("_rejects").collect()} == {
        f"no change of a row: its op is {variable}" for variable in variables
    }
    table = shop.table("fields")
    assert {*variables} <= {*table.columns}
    assert sorted(row[variables[1]] for row in table.collect()) == [1, 3]
    history = "".join(str(row) for row in shop.history("rows"))
    assert os.environ["HOME"] not in history.replace(str(shop.folder), "")
