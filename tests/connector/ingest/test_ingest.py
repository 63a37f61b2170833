"""Topics become tables: real brokers, a real registry, Delta."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import time
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pykafka_wire.cli.app import commands
from pykafka_wire.ingest import IngestError, Table
from pykafka_wire.ingest.files.tasks import Written
from pykafka_wire.ingest.proof.replay import replay_rejects
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.spark.progress import StageProgress, TaskRecords, describe_jobs, records_of_jobs
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest_status import TableState
from pykafka_wire.metrics import QueryFigures
from pykafka_wire.values.registry.framing import encode_frame
from tests.connector import debezium
from tests.connector.ingest.conftest import Shop, avro_schema
from tests.connector.shown_code import code

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

FIRST = avro_schema("id int", "country string")
SECOND = avro_schema("id long", "country string", "amount double?")
CONFLICT = avro_schema("id string", "country string")


def panels_of_tables() -> set[str]:
    """The metrics that the Grafana dashboard shows of tables."""
    dashboard = Path(__file__).resolve().parents[3] / "conf" / "grafana-dashboard.json"
    return set(re.findall(r"pykafka_wire_ingest_\w+", dashboard.read_text(encoding="utf-8")))


def orders(first: int, n: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": first + number, "country": "NO", **more} for number in range(n)]


def test_each_topic_becomes_a_table_and_grows_with_its_schema_without_a_restart(shop: Shop) -> None:
    shop.create("orders")
    shop.create("clicks")
    shop.send_avro("orders", FIRST, orders(0, 10))
    shop.send_json("clicks", [{"user": n, "seen": {"page": "a"}} for n in range(4)])
    json_topic = Table(topic=r".*\.clicks", format="json")
    query = shop.ingest(tables=[json_topic]).start(shop.spark, every="0 seconds")
    try:
        query.processAllAvailable()
        shop.send_avro("orders", SECOND, orders(2**40, 3, amount=1.5))
        shop.send_json("clicks", [{"user": 9, "seen": {"page": "b", "for_s": 1.5}, "device": "x"}])
        shop.create("late")
        shop.send_avro("late", FIRST, orders(0, 2))

        def late_is_there() -> bool:
            query.processAllAvailable()
            return (shop.folder / "lake" / f"{shop.prefix}_late").exists()

        deadline_loop(late_is_there)
        query.processAllAvailable()
    finally:
        query.stop()
    assert shop.rows("orders", "id", "amount")[-4:] == [(9, None)] + [(2**40 + n, 1.5) for n in range(3)]
    assert shop.rows("clicks", "user", "seen.page", "seen.for_s", "device")[-1] == (9, "b", 1.5, "x")
    assert shop.rows("late", "id", "_kafka_offset", "_kafka_topic") == [
        (0, 0, f"{shop.prefix}.late"), (1, 0, f"{shop.prefix}.late"),
    ]  # fmt: skip
    assert shop.table("orders").columns[0] == "id", "the value's columns come first"


def deadline_loop(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_values_of_a_json_schema_are_landed_by_their_own_types(shop: Shop) -> None:
    shop.create("events")
    schema = json.dumps({"title": "Event", "type": "object", "properties": {"id": {"type": "integer"}}})
    write = JSONSerializer(schema, SchemaRegistryClient({"url": shop.registry}))
    place = SerializationContext(f"{shop.prefix}.events", MessageField.VALUE)
    shop.send("events", [write({"id": n, "tags": ["a"]}, place) for n in range(3)])
    status = shop.run().statuses[f"{shop.prefix}.events"]
    assert (status.error, status.rows, status.rejects, status.schema_id is not None) == (None, 3, 0, True)
    assert shop.rows("events", "id", "tags") == [(n, ["a"]) for n in range(3)]


def test_a_table_without_new_rows_is_not_touched(shop: Shop) -> None:
    for name in ("quiet", "busy"):
        shop.create(name)
        shop.send_json(name, [{"n": 1}])
    asked = {"defaults": Table(topic=".*", format="json", schema="n INT")}
    shop.run(**asked)
    before = shop.versions("quiet")
    shop.send_json("busy", [{"n": 2}])
    shop.run(**asked)
    assert (shop.versions("quiet"), shop.rows("busy", "n")) == (before, [(1,), (2,)])


@pytest.mark.long
def test_a_crash_at_every_step_doubles_and_loses_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, properties and rejects by Spark: each run ends before one of them, in each table. `test_files.py` does it for tasks."""
    asked = {"defaults": Table(topic=".*", format="json", schema="n INT", write="spark")}
    for name in ("old", "new"):
        shop.create(name)
    shop.send_json("old", [{"n": 100}])
    shop.run(**asked)  # a micro-batch that is committed, of one of the tables
    for name in ("old", "new"):
        shop.send_json(name, [{"n": n} for n in range(20)])
        shop.send(name, [b"\xff"])

    def step(table: SparkDeltaTable, method: str, given: tuple[Any, ...]) -> tuple[str, ...]:
        # All rejects go into one table: the transaction's id says whose they are.
        return table.identifier, method, given[1]["txnAppId"] if method == "_save" else ""

    methods = [(SparkDeltaTable, "_save"), (SparkDeltaTable, "set_properties")]
    crashed = shop.crash_before_each_step(monkeypatch, methods, step, **asked)
    assert Counter(method for _, method, _ in crashed) == {"_save": 4, "set_properties": 1}
    shop.run(**asked)
    assert shop.rows("new", "n") == [(n,) for n in range(20)]
    assert shop.rows("old", "n") == [(n,) for n in (*range(20), 100)]
    assert shop.rows("_rejects", "table") == [(f"{shop.prefix}_{name}",) for name in ("new", "old")]
    assert all(
        each.is_right for each in verify(shop.spark, shop.ingest(**asked).settings, shop.ingest(**asked).topics())
    )


@pytest.mark.parametrize("write", ["auto", pytest.param("spark", marks=pytest.mark.long)])
def test_a_micro_batch_that_another_driver_has_written_meanwhile_is_in_the_table_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, write: str
) -> None:
    shop.create("a")
    shop.send_json("a", [{"n": n} for n in range(20)])
    asked = {"defaults": Table(topic=".*", format="json", schema="n INT", write=write)}
    save, append_files = SparkDeltaTable._save, DeltaFolder.append_files

    def by_another(metadata: str) -> str:
        landed = Landed.from_json(metadata)
        assert landed is not None
        return replace(landed, attempt="another").to_json()

    def save_twice(self: SparkDeltaTable, writer: Any, options: Any) -> None:
        rows = self._session.range(20).selectExpr(
            "CAST(id AS INT) AS n", "0 AS _kafka_partition", "id AS _kafka_offset"
        )
        save(self, rows.write, {**options, "userMetadata": by_another(options["userMetadata"])})
        save(self, writer, options)

    def append_twice(self: DeltaFolder, written: Written, *given: Any) -> None:
        others = [replace(file, path=f"other-{file.path}") for file in written.files]
        for file, other in zip(written.files, others, strict=True):
            shutil.copy(Path(self.folder.uri, file.path), Path(self.folder.uri, other.path))
        layout, landed = given
        append_files(self, replace(written, files=others), layout, replace(landed, attempt="another"))
        append_files(self, written, layout, landed)

    monkeypatch.setattr(SparkDeltaTable, "_save", save_twice)
    monkeypatch.setattr(DeltaFolder, "append_files", append_twice)
    status = shop.run(**asked).statuses[f"{shop.prefix}.a"]
    assert status.error is None and any("another driver of this query has written" in each for each in caplog.messages)
    assert shop.rows("a", "n") == [(n,) for n in range(20)]


def test_a_conflict_stops_its_table_alone_and_the_table_continues_when_it_is_mended(shop: Shop) -> None:
    for name in ("orders", "other"):
        shop.create(name)
        shop.send_avro(name, FIRST, orders(0, 5))
    shop.run()
    shop.send_avro("orders", CONFLICT, [{"id": "x", "country": "SE"}])
    shop.send_avro("other", FIRST, orders(5, 5))
    ingest = shop.run()
    stopped = ingest.statuses[f"{shop.prefix}.orders"]
    assert stopped.error is not None and "PYKAFKA_WIRE_COLUMN_CONFLICT" in stopped.error
    assert len(shop.rows("other", "id")) == 10
    proved = shop.prove("orders")
    assert proved.exit_code == 0 and "each there once" in proved.stdout and "1 records behind" in proved.stdout, proved
    figures = QueryFigures()
    figures.include(ingest.figures)
    found = {
        name.removeprefix("pykafka_wire_ingest_"): of for name, of in figures.samples().items() if "_ingest_" in name
    }
    first, second = (
        (ingest.query_name, f"{shop.prefix}.{name}", f"{shop.prefix}_{name}") for name in ("orders", "other")
    )
    assert found["lag"] == {first: 1, second: 0}
    assert (found["rows_total"][second], found["rejects_total"][second], found["commits_total"][second]) == (5, 0, 1)
    assert found["schema_id"][second] > 0
    assert found["stopped"] == {(*first, "PYKAFKA_WIRE_COLUMN_CONFLICT"): 1, (*second, ""): 0}
    assert panels_of_tables() == {f"pykafka_wire_ingest_{name}" for name in found} - {
        f"pykafka_wire_ingest_{name}" for name in ("commits_total", "held_rejects", "newest_record_timestamp_seconds")
    }
    assert found["retrying"] == {(*first, ""): 0, (*second, ""): 0}
    assert abs(time.time() - found["newest_record_timestamp_seconds"][second]) < 600
    # Mended: the newest schema fits again. Nothing that was read meanwhile is lost but the value that fits no column.
    shop.send_avro("orders", SECOND, orders(5, 5, amount=0.5))
    mended = shop.run(ingest).statuses[f"{shop.prefix}.orders"]
    assert (mended.error, mended.rejects) == (None, 1)
    assert [id for (id,) in shop.rows("orders", "id")] == list(range(10))


def test_a_conflict_diverts_the_values_where_that_is_asked_for(shop: Shop) -> None:
    shop.create("orders")
    shop.create("parcels")
    registry = SchemaRegistryClient({"url": shop.registry})
    sender, place = f"{shop.prefix}.Sender", f"{shop.prefix}.parcels-value"
    registry.register_schema(
        sender,
        RegisteredSchema('{"type": "record", "name": "Sender", "fields": [{"name": "n", "type": "int"}]}', "AVRO"),
    )

    def send_parcels(kind: str, *values: bytes) -> None:
        """Register a version that refers to another schema, and send values of this version."""
        fields = [{"name": "id", "type": kind}, {"name": "sender", "type": "Sender"}]
        text = json.dumps({"type": "record", "name": "Parcel", "fields": fields})
        parcel = RegisteredSchema(text, "AVRO", references=[SchemaReference("Sender", sender, 1)])
        schema_id = registry.register_schema(place, parcel)
        shop.send("parcels", [encode_frame(schema_id, value) for value in values])

    asked = {"defaults": Table(topic=".*", on_conflict="divert")}
    shop.send_avro("orders", FIRST, orders(0, 5))
    send_parcels("long", b"\x02\x00", b"\x04\x00")
    shop.run(**asked)
    shop.send_avro("orders", CONFLICT, [{"id": "x", "country": "SE"}])
    shop.send_avro("orders", FIRST, orders(5, 5))
    send_parcels("string", b"\x02x\x00")
    send_parcels("long", b"\x06\x00")
    statuses = shop.run(**asked).statuses
    for name, n_rows in (("orders", 5), ("parcels", 1)):
        status = statuses[f"{shop.prefix}.{name}"]
        assert (status.error, status.rows, status.rejects) == (None, n_rows, 1)
    assert len(shop.rows("orders", "id")) == 10
    assert shop.rows("parcels", "id") == [(1,), (2,), (3,)]


def test_a_value_with_a_field_that_a_diverting_table_lacks_is_a_reject_until_the_schema_fits(shop: Shop) -> None:
    shop.create("orders", partitions=1)
    asked = {"defaults": Table(topic=".*", on_conflict="divert")}
    versions = (
        avro_schema("id long", "n long?"),
        avro_schema("id long", "n string?", "more string?"),
        avro_schema("id long", "n long?", "more string?"),
    )
    for number, schema in enumerate(versions):
        row = {"id": number, "n": None, **({"more": "text"} if number else {})}
        shop.send_avro("orders", schema, [row])
        ingest = shop.run(**asked)
    assert shop.rows("orders", "id", "more") == [(0, None), (2, "text")]
    (replay,) = replay_rejects(shop.spark, ingest.settings)
    assert replay.landed == 1
    assert shop.rows("orders", "id", "more") == [(0, None), (1, "text"), (2, "text")]


def test_rejects_have_bytes_headers_and_reason_and_are_landed_once_when_the_cause_is_mended(shop: Shop) -> None:
    shop.create("orders")
    good = shop.avro("orders", FIRST, orders(0, 4))
    unknown = [b"\x00" + (900_000).to_bytes(4, "big") + value[5:] for value in good[:1]]
    shop.send("orders", [*good[1:], b"damaged", *unknown])
    ingest = shop.run()
    rejected = shop.table("_rejects").sort("offset").collect()
    assert {bytes(row.value) for row in rejected} == {b"damaged", unknown[0]}
    assert all(row.headers[0].key == "n" and row.reason for row in rejected)
    assert [
        row.n_expected
        for row in (each.comparison for each in verify(shop.spark, ingest.settings, ingest.topics()))
        if row
    ] == [5]
    (still,) = replay_rejects(shop.spark, ingest.settings)
    assert (still.landed, still.damaged) == (0, 2) and still.reason in {row.reason for row in rejected}
    assert f"2 still damaged ({still.reason})" in str(still) and not still.is_right
    # "Mended": read as bytes, every value is good.
    mended = shop.ingest(defaults=Table(topic=".*", format="binary"))
    for expected in ((2, 0, 0), None):
        found = [(each.landed, each.damaged, each.gone) for each in replay_rejects(shop.spark, mended.settings)]
        assert found == ([expected] if expected else [])
    assert shop.table("orders").count() == 5 and shop.table("_rejects").count() == 0
    shop.spark.sql(
        f"DELETE FROM delta.`{shop.folder}/lake/{shop.prefix}_orders` WHERE _kafka_offset = 0 AND _kafka_partition = 0"
    )
    proved = shop.prove("orders")
    assert "1 lost (partition, offset: (0, 0)); 2 rejects of its newest commit are not in" in proved.stdout, proved


def test_upsert_keeps_the_newest_value_of_each_key_and_tombstones_delete(shop: Shop) -> None:
    shop.create("users")
    asked = {"defaults": Table(topic=".*", format="json", mode="upsert", key_format="json", key_schema="id INT")}
    shop.send_json("users", [{"n": n} for n in range(10)], keys=[{"id": n % 5} for n in range(10)])
    shop.send_json("users", [None], keys=[{"id": 0}])
    shop.send("users", [b'{"n": 1}'])  # no key
    ingest = shop.run(**asked)
    assert shop.rows("users", "_kafka_key.id", "n") == [(1, 6), (2, 7), (3, 8), (4, 9)]
    for with_checkpoint in (True, False):
        refused = shop.prove("users", with_checkpoint=with_checkpoint)
        assert "pykafka-wire ingest FILE.toml --verify" in str(refused.exception), refused
    assert [row.reason for row in shop.table("_rejects").collect()] == [
        "the record has no key, which identifies its row"
    ]
    shop.send_json("users", [{"n": 50, "new": "x"}, None], keys=[{"id": 0}, {"id": 1}])
    shop.run(ingest=shop.ingest(**asked))
    assert shop.rows("users", "_kafka_key.id", "n", "new") == [(0, 50, "x"), (2, 7, None), (3, 8, None), (4, 9, None)]
    assert all(each.is_right for each in verify(shop.spark, ingest.settings, ingest.topics()))


def test_cdc_applies_debeziums_changes(shop: Shop) -> None:
    shop.create("customers")
    asked = {
        "defaults": Table(
            topic=".*",
            format="json",
            mode="cdc",
            schema="id BIGINT, name STRING",
            key_format="json",
            key_schema="id BIGINT",
        )
    }

    def change(op: str, id: int, name: str | None, *, enveloped: bool = False) -> tuple[Any, Any]:
        value: Any = {"op": op, "before": None, "after": None if name is None else {"id": id, "name": name}}
        key: Any = {"id": id}
        return ({"schema": {}, "payload": key}, {"schema": {}, "payload": value}) if enveloped else (key, value)

    events = [
        change("r", 1, "one"),
        change("c", 2, "two", enveloped=True),
        change("u", 1, "ONE"),
        change("c", 3, "three"),
    ]
    events += [change("d", 3, None), ({"id": 3}, None), change("x", 4, "what")]
    shop.send_json("customers", [value for _, value in events], keys=[key for key, _ in events])
    shop.run(**asked)
    assert shop.rows("customers", "id", "name", "_kafka_key.id") == [(1, "ONE", 1), (2, "two", 2)]
    assert [row.reason for row in shop.table("_rejects").collect()] == ["no change of a row: its op is x"]


def test_counts_move_while_a_micro_batch_runs(shop: Shop) -> None:
    """By the records that Spark's tasks have read: before the first commit nothing is in the table."""
    shop.create("orders")
    shop.send_json("orders", [{"n": n} for n in range(3000)])
    ingest = shop.ingest(defaults=Table(topic=".*", format="json"))
    assert ingest.status().tables == []
    query = ingest.start(shop.spark, once=True)
    looks = []
    while query.isActive:
        looks.append(ingest.status())
        time.sleep(0.05)
    running = [look for look in looks if look.running and look.running.number == 0 and look.tables[0].position is None]
    assert {look.running and look.running.n_planned for look in running} == {3000}
    done = [look.running.n_done for look in running if look.running]
    assert any(0 < n_done <= 3000 for n_done in done), done
    assert any(look.tables[0].state is TableState.LANDING and look.tables[0].share for look in running)
    (after,) = ingest.status().tables
    assert (after.state, after.rows, after.lag, after.rejects) == (TableState.UP_TO_DATE, 3000, 0, 0)
    assert after.freshness_s is not None and after.freshness_s < 300


def test_records_that_tasks_read_for_themselves_are_seen_when_a_task_has_ended(spark: Any) -> None:
    records = TaskRecords(spark)

    def slow(batches: Any) -> Any:
        for batch in batches:
            time.sleep(0.3 * batch.column(0)[0].as_py())
            yield batch

    def run() -> None:
        describe_jobs(spark, "orders")
        with records_of_jobs(spark, 4000):
            spark.range(0, 4, 1, 4).mapInArrow(slow, "id long").collect()

    thread = threading.Thread(target=run)
    thread.start()
    looks = []
    while thread.is_alive():
        looks.append(records.look().get("orders", StageProgress()).n_records)
        time.sleep(0.05)
    assert looks == sorted(looks)
    assert set(looks) & {1000, 2000, 3000}, looks


def test_a_plan_of_changes_shows_the_rows_columns_and_not_the_envelopes(shop: Shop) -> None:
    shop.create("customers")
    SchemaRegistryClient({"url": shop.registry}).register_schema(
        f"{shop.prefix}.customers-value", RegisteredSchema(debezium.value_schema(), "AVRO")
    )
    (planned,) = shop.ingest(defaults=Table(topic=".*", mode="cdc")).plan()
    assert planned.mistake is None and planned.columns.startswith("`id` ") and "`name` string" in planned.columns
    assert "`op`" not in planned.columns and "`after`" not in planned.columns
    shop.create("orders")
    shop.avro("orders", FIRST, orders(0, 1))  # registers its schema, which is no envelope
    refused = shop.ingest(defaults=Table(topic=".*", mode="cdc")).plan()[1]
    assert refused.mistake is not None and "no fields op and after" in refused.mistake


@pytest.mark.long
def test_verify_names_what_is_lost_doubled_and_altered(shop: Shop) -> None:
    shop.create("orders")
    shop.send_avro("orders", FIRST, orders(0, 100))
    ingest = shop.run()
    path = shop.folder / "lake" / f"{shop.prefix}_orders"
    change = shop.spark.sql
    change(f"DELETE FROM delta.`{path}` WHERE _kafka_partition = 0 AND _kafka_offset = 7")
    change(f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{path}` WHERE _kafka_partition = 1 AND _kafka_offset = 9")
    change(f"UPDATE delta.`{path}` SET _kafka_offset = 5000 WHERE _kafka_partition = 1 AND _kafka_offset = 11")
    (check,) = verify(shop.spark, ingest.settings, ingest.topics())
    found = check.comparison
    assert found is not None and not check.is_right
    assert (found.n_expected, found.lost, found.doubled, found.unknown) == (
        100,
        ((0, 7), (1, 11)),
        ((1, 9),),
        ((1, 5000),),
    )


def test_a_topic_s_own_mistake_is_planned_and_keeps_no_other_from_being_landed(shop: Shop) -> None:
    names = ("a.b", "a-b", "none", "money", "good")
    topics = {name: shop.create(name) for name in names}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    money = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "amount", "type": decimal}]})
    for name in ("a.b", "a-b", "good"):
        shop.send_avro(name, FIRST, orders(0, 1))
    shop.send("none", [b"{}"])
    SchemaRegistryClient({"url": shop.registry}).register_schema(
        f"{topics['money']}-value", RegisteredSchema(money, "AVRO")
    )
    planned = {each.topic: each.mistake for each in shop.ingest().plan()}
    assert {name for name, topic in topics.items() if planned[topic] is None} in (
        {"a-b", "good"},
        {"a-b", "good", "money"},
    )
    assert re.search(r"no subject \S+none-value", planned[topics["none"]] or "") and "already belongs to topic" in str(
        planned[topics["a.b"]]
    )
    for _ in range(2):  # nor from starting again
        statuses = shop.run().statuses
        errors = {name: statuses[topic].error for name, topic in topics.items() if topic in statuses}
        assert errors["good"] is None
        assert "no subject" in (errors["none"] or "")
        assert sorted(errors[name] is not None for name in ("a.b", "a-b")) == [False, True]
    assert len(shop.rows("good", "id")) == 1 and len(shop.rows("a_b", "id")) == 1


def test_tables_of_others_are_left_alone(shop: Shop) -> None:
    shop.create("orders")
    shop.send_avro("orders", FIRST, orders(0, 1))
    path = shop.folder / "lake" / f"{shop.prefix}_orders"
    shop.spark.range(3).write.format("delta").save(str(path))
    with pytest.raises(IngestError, match="no ingest has created it"):  # before Spark starts
        shop.ingest().checked_plan(on_this_machine=True)
    with pytest.raises(IngestError, match="this checkpoint is new, but these tables exist"):
        shop.ingest().start(shop.spark)
    assert shop.spark.read.format("delta").load(str(path)).count() == 3


@pytest.mark.long
def test_two_ingests_of_one_process_write_no_table_at_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = shop.create("orders")
    shop.send_json("orders", [{"id": n} for n in range(10)])
    asked: dict[str, Any] = {
        "registry": None,
        "defaults": Table(topic=".*", format="json", schema="id INT", write="spark"),
    }
    other = shop.ingest(**asked, checkpoint=str(shop.folder / "other"), rejects="_others")
    append_first, append = SparkDeltaTable.append_first, SparkDeltaTable.append

    with monkeypatch.context() as patched:  # the table is made by the other one while this one reads its rows

        def after_the_other(*given: Any) -> None:
            patched.setattr(SparkDeltaTable, "append_first", append_first)
            shop.run(other)
            append_first(*given)

        patched.setattr(SparkDeltaTable, "append_first", after_the_other)
        patched.setattr("pykafka_wire.ingest.landing.schedule.PATIENCE_S", 5.0)
        failed = shop.run(**asked, name="first").statuses[topic]
    assert "belongs to another ingest, whose query has the id" in (failed.error or ""), failed
    assert other.statuses[topic].error is None and shop.rows("orders", "id") == [(n,) for n in range(10)]
    # The same checkpoint: while the first one runs, and while it still writes.
    has_failed, has_begun, may_end = (threading.Event() for _ in range(3))

    def fail_then_wait(*given: Any) -> None:
        if not has_failed.is_set():
            has_failed.set()
            raise RuntimeError("it is tried again beside the micro-batches")
        has_begun.set()
        assert may_end.wait(120)
        append(*given)

    first, second = (shop.ingest(**asked, checkpoint=str(shop.folder / "other"), rejects="_others") for _ in range(2))
    query = first.start(shop.spark, every="0 seconds")
    with pytest.raises(IngestError, match="is already running in this Spark session: stop it"):
        second.start(shop.spark)
    with pytest.raises(IngestError, match="is running in this process: stop its query"):
        second.start(shop.spark.newSession())
    monkeypatch.setattr(SparkDeltaTable, "append", fail_then_wait)
    shop.send_json("orders", [{"id": n} for n in range(10, 20)])
    assert has_begun.wait(60)
    query.stop()
    starting = threading.Thread(target=shop.run, args=(second,))
    starting.start()
    starting.join(3)
    assert starting.is_alive() and not second.statuses, "it did not wait for the first one"
    may_end.set()
    starting.join(120)
    assert shop.rows("orders", "id") == [(n,) for n in range(20)] and second.statuses[topic].error is None


def test_tables_of_a_schema_are_made_and_found_again(shop: Shop) -> None:
    shop.create("orders")
    shop.send_json("orders", [{"n": 1}])
    asked: Any = {"into": shop.prefix, "defaults": Table(topic=".*", format="json")}
    with pytest.raises(IngestError, match=f"the schema {shop.prefix} does not exist: CREATE SCHEMA {shop.prefix}"):
        shop.ingest(**asked).start(shop.spark)
    shop.spark.sql(f"CREATE SCHEMA {shop.prefix} LOCATION '{shop.folder / 'schema'}'")
    try:
        shop.run(**asked)
        shop.send_json("orders", [{"n": 2, "page": "/"}])
        shop.run(**asked)
        table = f"{shop.prefix}.{shop.prefix}_orders"
        assert sorted(tuple(row) for row in shop.spark.table(table).select("n", "page").collect()) == [
            (1, None),
            (2, "/"),
        ]
        with pytest.raises(
            IngestError, match=f"this checkpoint is new, but these tables exist: .*{shop.prefix}_orders"
        ):
            shop.ingest(**asked, checkpoint=str(shop.folder / "other")).start(shop.spark)
    finally:
        shop.spark.sql(f"DROP SCHEMA {shop.prefix} CASCADE")


@pytest.mark.long
def test_columns_of_catalog_tables_become_wider_and_lose_no_digit(shop: Shop) -> None:
    """Spark would cast 19.99 to the BIGINT 19, as it does for INSERT. A text in a column of numbers stops its table."""
    for name in ("added", "keyed", "typed"):
        shop.create(name)
    keyed, typed = (rf"{shop.prefix}\.{name}" for name in ("keyed", "typed"))
    tables = [
        Table(topic=keyed, format="json", mode="upsert", key_format="string"),
        Table(topic=typed, format="avro"),
    ]
    asked: Any = {"into": shop.prefix, "tables": tables, "defaults": Table(topic=".*", format="json")}
    shop.spark.sql(f"CREATE SCHEMA {shop.prefix} LOCATION '{shop.folder / 'schema'}'")

    def rows(name: str, column: str) -> list[Any]:
        table = shop.spark.table(f"{shop.prefix}.{shop.prefix}_{name}")
        return sorted(row[0] for row in table.select(column).collect())

    try:
        for amount, key in ((10, "a"), (19.99, "b")):
            shop.send_json("added", [{"amount": amount, "at": {"n": [amount]}}])
            shop.send_json("keyed", [{"amount": amount}], keys=[key])
            if key == "a":
                shop.send_avro("typed", SECOND, orders(0, 1))
            else:
                shop.send_avro("typed", CONFLICT, [{"id": "7", "country": "SE"}])
            statuses = shop.run(**asked).statuses
        exact = [Decimal("10"), Decimal("19.99")]
        assert rows("added", "amount") == rows("keyed", "amount") == exact
        assert rows("added", "at.n") == [[number] for number in exact] and rows("typed", "id") == [0]
        codes = {topic.removeprefix(f"{shop.prefix}."): each.trouble for topic, each in statuses.items()}
        stopped = codes.pop("typed")
        assert codes == {"added": None, "keyed": None}
        assert stopped is not None and stopped.code == "PYKAFKA_WIRE_COLUMN_CONFLICT"
        assert "id is bigint in the table and string in the newest rows" in stopped.reason
    finally:
        shop.spark.sql(f"DROP SCHEMA {shop.prefix} CASCADE")


def test_a_deleted_topic_ends_and_one_created_again_stops_its_table(shop: Shop) -> None:
    for name in ("orders", "other"):
        shop.create(name)
        shop.send_json(name, [{"n": 1}])
    asked = {"defaults": Table(topic=".*", format="json", schema="n INT")}
    shop.run(**asked)
    shop.outside.delete(f"{shop.prefix}.orders")
    for each in (shop.folder / "checkpoint" / "commits").iterdir():
        each.unlink()  # killed before Spark's commit: it runs the micro-batch again
    shop.send_json("other", [{"n": 2}])
    assert all(each.error is None for each in shop.run(**asked).statuses.values())
    shop.create("orders")
    shop.send_json("orders", [{"n": 7}])
    status = shop.run(**asked).statuses[f"{shop.prefix}.orders"]
    assert status.error is not None and "deleted and created again" in status.error
    assert shop.rows("orders", "n") == [(1,)]


def test_the_command_plans_lands_and_verifies(shop: Shop) -> None:
    shop.create("orders")
    shop.send_avro("orders", FIRST, orders(0, 5))
    into = str(shop.folder / "lake")
    asked = [
        "ingest",
        "-b",
        shop.outside.servers,
        "--topics",
        rf"{shop.prefix}\..*",
        "--registry",
        shop.registry,
        "--into",
        into,
    ]

    def run(*more: str, code: int = 0) -> Any:
        done = CliRunner().invoke(commands, [*asked, *more])
        assert done.exit_code == code, done.output
        return done

    planned = json.loads(run("--plan", "--json").stdout)["tables"]
    assert [(each["topic"], each["format"], each["columns"]) for each in planned] == [
        (f"{shop.prefix}.orders", "avro", "`id` int, `country` string")
    ]
    shop.create("quiet")
    shop.avro("quiet", FIRST, orders(0, 1))  # makes its subject
    landed, quiet = [json.loads(line) for line in run("--once", "--json").stdout.splitlines()]
    assert (landed["rows"], landed["rejects"], landed["lag"], landed["trouble"]) == (5, 0, 0, None)
    assert (quiet["topic"], quiet["rows"], quiet["lag"], quiet["state"]) == (f"{shop.prefix}.quiet", 0, 0, "waiting")
    assert "--log-file /none/log: No such file" in run("--once", "--log-file", "/none/log", code=2).stderr
    log = shop.folder / "spark.log"
    text = run("--once", "--ui", "0", "--metrics-port", "0", "--log-file", str(log)).stdout
    assert f"settings: {into}/ingest.toml\n" in text
    assert f"log: {log}\n" in text and log.exists()
    assert re.search(r"page: http://127\.0\.0\.1:\d+/$", text, re.MULTILINE)
    assert "PORT or HOST:PORT" in run("--ui", "here", code=2).output
    assert re.search(rf"{shop.prefix}_quiet +{shop.prefix}\.quiet +waiting +- +0 +- +- +0 +- *\n", text)
    assert re.search(rf"{shop.prefix}_orders +{shop.prefix}\.orders +up to date ", text)
    assert re.search(r"^Finished: nothing left to land: 0 rows landed in .*; no rejects\.$", text, re.MULTILINE)
    assert "leave out --every" in run("--once", "--every", "1m", code=2).stderr
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert (
            f"the metrics server cannot listen at 127.0.0.1:{port} "
            in run("--once", "--metrics-port", port, code=2).stderr
        )
    assert "5 records" in run("--verify").stdout
    kept = CliRunner().invoke(commands, ["ingest", into, "--verify"])
    assert kept.exit_code == 0 and "5 records" in kept.stdout, kept.output
    shop.spark.sql(f"DELETE FROM delta.`{into}/{shop.prefix}_orders` WHERE id = 3")
    assert "1 lost" in run("--verify", code=1).stdout


def test_the_program_of_the_guide_runs(shop: Shop) -> None:
    shop.create("orders")
    shop.send_avro("orders", FIRST, orders(0, 5))
    (program,) = [each for each in code("docs/ingest-program.md") if "Ingest(" in each]
    for old, new in (
        ("/lake/_checkpoints", str(shop.folder)),
        ("/lake/shop", str(shop.folder / "lake")), ("broker:9092", shop.outside.servers), ("https://registry:8081", shop.registry),
        (r"shop\.", rf"{shop.prefix}\."),
    ):  # fmt: skip
        program = program.replace(old, new)
    names: dict[str, Any] = {"spark": shop.spark}
    exec(compile(program, "docs/ingest-program.md", "exec"), names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert len(shop.rows("orders", "id")) == 5
