"""A replay leaves a table as if its rejects had been readable from the start.

The topic holds changes of a database table. Values above INT are rejects while the column is an INT; the replay reads them as
BIGINT. The oracle is the database table, which applies the changes in their order.
"""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest import Ingest, Table
from pykafka_wire.ingest.landing.rejects import TableRejects
from pykafka_wire.ingest.proof.replay import replay_rejects
from pykafka_wire.ingest.proof.verification import verify
from tests.connector.ingest.conftest import Shop, kill

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

#: A number that an INT cannot hold.
_LARGE = 5_000_000_000
#: A change: its kind, the row's number, and whether an INT cannot hold its value.
_Change = tuple[str, int, bool]
_UPSERT, _CDC = "upsert", "cdc"


def _changes(seed: int, kinds: str) -> list[_Change]:
    """Return random changes of three rows, of which one at least is a reject."""
    random_ = random.Random(seed)
    changes = [(random_.choice(kinds), random_.randint(0, 2), random_.random() < 0.4) for _ in range(9)]
    return [*changes[:4], ("p", 0, True), *changes[4:]]


def _rows_after(changes: list[_Change]) -> list[tuple[int, int]]:
    rows: dict[int, int] = {}
    for number, (kind, row, is_large) in enumerate(changes):
        if kind == "t":
            rows.clear()
        elif kind == "d":
            rows.pop(row, None)
        else:
            rows[row] = number + is_large * _LARGE
    return sorted(rows.items())


def _records(shop: Shop, mode: str, changes: list[_Change], *, gains: bool, changes_key: bool) -> list[Any]:
    """Return the records of changes; in the middle the primary key gains or loses a column, if ``changes_key``."""
    records = []
    for number, (kind, row, is_large) in enumerate(changes):
        is_short = changes_key and (number < len(changes) // 2) == gains
        key: dict[str, Any] | None = {"id": row} if is_short else {"id": row, "region": "eu"}
        value: dict[str, Any] | None = {"id": row, "region": "eu", "v": number + is_large * _LARGE}
        if mode == _CDC:
            value = {
                "op": {"p": "u"}.get(kind, kind),
                "before": value if kind == "d" else None,
                "after": None if kind == "d" else value,
            }
            key = None if kind == "t" else key
        elif kind == "d":
            value = None
        documents = (None if each is None else json.dumps(each).encode() for each in (key, value))
        records.append(shop.outside.Record(**dict(zip(("key", "value"), documents, strict=True)), partition=0))
    return records


def _replay(shop: Shop, mode: str, cases: dict[str, tuple[list[_Change], list[Any]]]) -> None:
    """Land the cases' topics, replay their rejects, and compare each table with its oracle."""
    for name, (_, records) in cases.items():
        shop.create(name, partitions=1)
        shop.outside.produce(f"{shop.prefix}.{name}", records)

    def tables(number: str) -> list[Table]:
        columns = f"id INT, region STRING, v {number}"
        return [Table(topic=".*", format="json", mode=mode, key_format="json", schema=columns)]

    first = shop.run(registry=None, tables=tables("INT"))
    assert all(status.rejects for status in first.statuses.values()), {n: str(s) for n, s in first.statuses.items()}
    ingest = shop.ingest(registry=None, tables=tables("BIGINT"))
    replays = [str(each) for each in replay_rejects(shop.spark, ingest.settings)]
    assert len(replays) == len(cases), replays
    landed = {name: shop.rows(name, "id", "v") for name in cases}
    assert landed == {name: _rows_after(changes) for name, (changes, _) in cases.items()}, replays
    assert shop.table("_rejects").count() == 0, replays
    proofs = [*verify(shop.spark, ingest.settings, [f"{shop.prefix}.{name}" for name in cases])]
    assert all(proof.is_right for proof in proofs), [str(proof) for proof in proofs]


@pytest.mark.long
@pytest.mark.parametrize("mode", [_UPSERT, _CDC])
def test_a_replay_finds_its_rows_although_the_primary_key_has_changed(shop: Shop, mode: str) -> None:
    cases = {}
    for seed in range(2):
        changes = _changes(seed, "pppd")
        cases[f"keys{seed}"] = changes, _records(shop, mode, changes, gains=seed % 2 == 0, changes_key=True)
    _replay(shop, mode, cases)


@pytest.mark.long
def test_a_replayed_truncate_removes_the_older_rows(shop: Shop) -> None:
    truncate = ("t", 0, True)
    changes = _changes(7, "ppd")
    topics = {
        "inside": [*changes[:6], truncate, *changes[6:]],
        "last": [("p", 0, False), ("p", 1, False), truncate],
    }
    cases = {name: (each, _records(shop, _CDC, each, gains=False, changes_key=False)) for name, each in topics.items()}
    _replay(shop, _CDC, cases)


@pytest.mark.long
def test_a_reject_belongs_to_a_table_and_a_topic_and_follows_a_table_to_its_new_name(shop: Shop) -> None:
    """The topics have rejects at the same offsets. The second one gets the name that the first one's table had."""
    for name in ("first", "second"):
        shop.create(name, partitions=2)

    def run(names: dict[str, str], number: str) -> Ingest:
        columns = f"id INT, v {number}"
        tables = [
            Table(topic=rf".*\.{name}", name=table, format="json", schema=columns) for name, table in names.items()
        ]
        ingest = shop.ingest(topics=rf"{shop.prefix}\.({'|'.join(names)})", registry=None, tables=tables)
        return shop.run(ingest)

    def proofs(ingest: Ingest) -> list[str]:
        topics = [f"{shop.prefix}.{name}" for name in ("first", "second")]
        return [str(proof) for proof in verify(shop.spark, ingest.settings, topics) if not proof.is_right]

    shop.send_json("first", [{"id": 0, "v": 0}, {"id": 1, "v": _LARGE}, {"id": 2, "v": _LARGE}])
    run({"first": "orders"}, "INT")
    (shop.folder / "lake/orders").rename(shop.folder / "lake/older_orders")
    shop.send_json("second", [{"id": 10, "v": _LARGE}, {"id": 11, "v": _LARGE}, {"id": 12, "v": 0}])
    names = {"first": "older_orders", "second": "orders"}
    ingest = run(names, "INT")
    assert shop.table("_rejects").count() == 4
    assert not proofs(ingest)
    ingest = run(names, "BIGINT")
    assert [replay.landed for replay in replay_rejects(shop.spark, ingest.settings)] == [2, 2]
    assert shop.table("_rejects").count() == 0
    folders = {name: shop.spark.read.format("delta").load(str(shop.folder / "lake" / name)) for name in names.values()}
    landed = {name: sorted((row.id, row.v) for row in table.collect()) for name, table in folders.items()}
    assert landed == {
        "older_orders": [(0, 0), (1, _LARGE), (2, _LARGE)],
        "orders": [(10, _LARGE), (11, _LARGE), (12, 0)],
    }
    assert not proofs(ingest)


@pytest.mark.long
def test_rejects_of_a_killed_ingest_are_written_although_the_settings_can_read_them_now(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ingest is killed between a commit and its rejects. The next start has a wider type. The oracle is the replayed table."""
    numbers = random.Random(4).sample([0, 1, 2, 3, _LARGE, _LARGE + 1, _LARGE + 2], 7)
    modes = {
        "all": {"mode": "append"},
        "some": {"mode": "append", "where": "value.id >= 0"},
        "spark": {"mode": "append", "where": "value.id >= 0", "write": "spark"},
        "keys": {"mode": _UPSERT, "key_format": "json"},
        "rows": {"mode": _CDC, "key_format": "json"},
    }
    for name, settings in modes.items():
        shop.create(name, partitions=1)
        records = []
        for row, number in enumerate(numbers):
            value: dict[str, Any] = {"id": row, "v": number}
            if settings["mode"] == _CDC:
                value = {"op": "c", "before": None, "after": value}
            key = json.dumps({"id": row}).encode()
            records.append(shop.outside.Record(key=key, value=json.dumps(value).encode(), partition=0))
        shop.outside.produce(f"{shop.prefix}.{name}", records)

    def ingest(number: str) -> Ingest:
        tables = [
            Table(
                topic=rf".*\.{name}",
                name=f"{shop.prefix}_{name}",
                format="json",
                schema=f"id INT, v {number}",
                **settings,
            )
            for name, settings in modes.items()
        ]
        return shop.ingest(registry=None, tables=tables)

    with monkeypatch.context() as patched, suppress(IngestError, StreamingQueryException):
        patched.setattr(TableRejects, "write", kill)
        ingest("INT").start(shop.spark, once=True).awaitTermination(120)
    assert shop.table("_rejects").count() == 0
    mended = shop.run(ingest("BIGINT"))
    assert {status.error for status in mended.statuses.values()} == {None}
    assert shop.table("_rejects").groupBy("table").count().select("count").distinct().collect() == [(3,)]
    assert [replay.landed for replay in replay_rejects(shop.spark, mended.settings)] == [3] * len(modes)
    for name in modes:
        assert shop.rows(name, "id", "v") == sorted(enumerate(numbers))


@pytest.mark.long
@pytest.mark.parametrize("name", ["orders", "new_orders"])
def test_a_table_that_replaces_a_dropped_one_has_its_own_rejects_alone(shop: Shop, name: str) -> None:
    shop.create("orders")
    shop.send_json("orders", [{"id": 0}, "no object", {"id": _LARGE}, {"id": 1}])

    def run(table: str, number: str) -> Ingest:
        tables = [Table(topic=".*", name=table, format="json", schema=f"id {number}")]
        return shop.run(shop.ingest(registry=None, tables=tables))

    run("orders", "INT")
    assert shop.table("_rejects").count() == 2
    shutil.rmtree(shop.folder / "lake/orders")
    ingest = run(name, "BIGINT")
    assert [(row.table, row.offset) for row in shop.table("_rejects").select("table", "offset").collect()] == [
        (name, 0)
    ]
    (proof,) = verify(shop.spark, ingest.settings, [f"{shop.prefix}.orders"])
    assert proof.is_right and proof.n_rejected == 1, str(proof)
    assert [status.held_rejects for status in ingest.statuses.values()] == [1]


@pytest.mark.long
@pytest.mark.parametrize("is_renamed", [False, True])
@pytest.mark.parametrize(
    ("first", "later", "contradiction"),
    [
        ({"mode": "append"}, {"mode": _UPSERT}, "made with mode append, but the settings have mode upsert"),
        ({"mode": _UPSERT}, {"mode": "append"}, "made with mode upsert, but the settings have mode append"),
        ({"where": "id < 2"}, {}, "made with where id < 2, but the settings have all records"),
    ],
)
def test_a_replay_and_a_comparison_treat_no_table_as_what_it_was_not_made_for(
    shop: Shop, first: dict[str, Any], later: dict[str, Any], contradiction: str, is_renamed: bool
) -> None:
    """The settings give the topic another table, or have changed; the first table keeps its rows, and its rejects."""
    shop.create("events", partitions=1)
    values = [{"id": 1, "v": 1}, {"id": 1, "v": 2}, {"id": 1, "v": _LARGE}, {"id": 1, "v": 3}, {"id": 2, "v": _LARGE}]
    keys = [json.dumps({"id": value["id"]}).encode() for value in values]
    records = [
        shop.outside.Record(key=key, value=json.dumps(value).encode(), partition=0)
        for key, value in zip(keys, values, strict=True)
    ]
    shop.outside.produce(f"{shop.prefix}.events", records)
    name = f"{shop.prefix}_events"
    read: dict[str, Any] = {"topic": ".*", "format": "json"}
    shop.run(registry=None, tables=[Table(**read, name=name, schema="id INT, v INT", **first)])
    before, rejects = shop.rows("events", "id", "v"), shop.table("_rejects").count()
    assert rejects
    named = f"{name}_later" if is_renamed else name
    changed = Table(**read, name=named, schema="id INT, v BIGINT", **later)
    if is_renamed:
        shop.run(registry=None, tables=[replace(changed, schema="id INT, v INT")])
    replays = {
        each.table: each for each in replay_rejects(shop.spark, shop.ingest(registry=None, tables=[changed]).settings)
    }
    assert contradiction in (replays[name].mistake or ""), list(map(str, replays.values()))
    if is_renamed:
        assert (replays[named].landed, replays[named].mistake) == (2, None), list(map(str, replays.values()))
    else:
        settings = shop.ingest(registry=None, tables=[changed]).settings
        (proof,) = verify(shop.spark, settings, [f"{shop.prefix}.events"])
        assert contradiction in (proof.mistake or ""), str(proof)
    assert (shop.rows("events", "id", "v"), shop.table("_rejects").count()) == (before, rejects)


@pytest.mark.long
def test_a_replay_lands_a_record_although_an_adopted_table_has_another_topic_s_row_at_its_place(shop: Shop) -> None:
    topic = shop.create("orders", partitions=1)
    folder = f"{shop.folder}/lake/{shop.prefix}_orders"
    kafka = (
        "_kafka_key BINARY, _kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMP"
    )
    others = [(number, None, "another", 0, number, None) for number in range(5)]
    shop.spark.createDataFrame(others, f"id BIGINT, {kafka}").write.format("delta").save(folder)
    table = Table(topic=".*", format="json", schema="id BIGINT", position={"0": "0"})
    values = [b'{"id": 10}', b'{"id": "x"}', b'{"id": 12}']
    shop.outside.produce(topic, [shop.outside.Record(value=value, partition=0) for value in values])
    shop.run(registry=None, tables=[table])
    assert [row.offset for row in shop.table("_rejects").collect()] == [1]
    lenient = shop.ingest(registry=None, tables=[replace(table, schema="name STRING")])
    (replay,) = replay_rejects(shop.spark, lenient.settings)
    assert (replay.landed, replay.mistake) == (1, None)
    of_topic = shop.table("orders").where(f"_kafka_topic = '{topic}'")
    assert sorted(row._kafka_offset for row in of_topic.collect()) == [0, 1, 2]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["append", _UPSERT])
def test_a_record_that_a_constraint_refuses_keeps_no_other_from_being_replayed(shop: Shop, mode: Any) -> None:
    topic = shop.create("orders", partitions=1)
    rows = [(0, 0), (_LARGE, 1), (2, 200), (3, 3), (_LARGE + 4, 4), (5, 500), (_LARGE + 6, 6)]

    def send(*numbers: int) -> None:
        records = [
            shop.outside.Record(
                key=b"%d" % number,
                value=json.dumps({"v": rows[number][0], "w": rows[number][1]}).encode(),
                partition=0,
            )
            for number in numbers
        ]
        shop.outside.produce(topic, records)

    def asked(number: str) -> dict[str, Any]:
        return {"registry": None, "tables": [Table(topic=".*", format="json", schema=f"v {number}, w INT", mode=mode)]}

    send(0)
    shop.run(**asked("INT"))
    shop.spark.sql(f"ALTER TABLE delta.`{shop.folder}/lake/{shop.prefix}_orders` ADD CONSTRAINT small CHECK (w < 100)")
    send(*range(1, len(rows)))
    assert [status.rejects for status in shop.run(**asked("INT")).statuses.values()] == [5]
    (replay,) = replay_rejects(shop.spark, shop.ingest(**asked("BIGINT")).settings)
    assert (replay.landed, replay.damaged, replay.mistake) == (3, 2, None), str(replay)
    assert "small" in (replay.reason or "")
    assert shop.rows("orders", "v", "w") == sorted(row for row in rows if row[1] < 100)
    assert sorted(row.offset for row in shop.table("_rejects").collect()) == [2, 5]


@pytest.mark.long
def test_rejects_of_a_dropped_table_stay_where_the_topic_no_longer_has_their_records(shop: Shop) -> None:
    topic = shop.create("orders", partitions=1)
    values = [b'{"id": 0}', b"damaged", b'{"id": 2}', b"damaged", b'{"id": 4}']
    shop.outside.produce(topic, [shop.outside.Record(value=value, partition=0) for value in values])
    asked = {
        "registry": None,
        "tables": [Table(topic=".*", format="json", schema="id INT", options={"failOnDataLoss": "false"})],
    }
    shop.run(**asked)
    shutil.rmtree(shop.folder / "lake" / f"{shop.prefix}_orders")
    shop.outside.age_out(topic, 0, 2)
    shop.run(**asked)
    assert shop.rows("orders", "id") == [(2,), (4,)]
    assert sorted(row.offset for row in shop.table("_rejects").collect()) == [1, 3]


@pytest.mark.long
def test_rejects_of_a_deleted_topic_stay_although_a_new_topic_has_its_name(shop: Shop) -> None:
    """Tables are dropped and set back, topics are deleted and created again, and rejects are replayed. The oracle is the list of
    all records: each damaged one is a reject once, also of a deleted topic, whose offsets the new topic uses again."""
    choose, names = random.Random(5), ("first", "second")
    asked: dict[str, Any] = {"registry": None, "defaults": Table(topic=".*", format="json", schema="id INT")}
    damaged, current = list[tuple[str, bytes]](), dict[str, str]()
    backup = shop.folder / "backup"

    def create(name: str) -> None:
        current[name] = shop.create(name, partitions=1)

    def send() -> None:
        for name in names:
            values = [choose.choice((b'{"id": %d}', b"damaged %d")) % len(damaged) for _ in range(choose.randint(1, 3))]
            values.append(b"damaged for certain, %d" % len(damaged))
            damaged.extend((current[name], value) for value in values if value.startswith(b"damaged"))
            shop.outside.produce(current[name], [shop.outside.Record(value=value, partition=0) for value in values])

    def folder(name: str) -> Any:
        return shop.folder / "lake" / f"{shop.prefix}_{name}"

    def rejects() -> list[tuple[str, bytes]]:
        return [(row.topic, bytes(row.value)) for row in shop.table("_rejects").select("topic", "value").collect()]

    def check() -> None:
        assert sorted(rejects()) == sorted(damaged)

    for name in names:
        create(name)
    for again in names:
        send()
        assert {status.error for status in shop.run(**asked).statuses.values()} == {None}
        check()
        shutil.rmtree(backup, ignore_errors=True)
        for name in names:
            shutil.copytree(folder(name), backup / name)
        send()
        shop.run(**asked)
        check()
        for name in names:
            shutil.rmtree(folder(name))
            if choose.random() < 0.5:
                shutil.copytree(backup / name, folder(name))
        shop.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        shop.outside.delete(current[again])
        create(again)
        send()
        shop.run(**asked)  # stops a table of the deleted topic
        shutil.rmtree(folder(again), ignore_errors=True)
        shop.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        assert {status.error for status in shop.run(**asked).statuses.values()} == {None}
        check()
        list(replay_rejects(shop.spark, shop.ingest(**asked).settings))
        check()
    proofs = [*verify(shop.spark, shop.ingest(**asked).settings, [*current.values()])]
    assert all(proof.is_right for proof in proofs), [str(proof) for proof in proofs]
