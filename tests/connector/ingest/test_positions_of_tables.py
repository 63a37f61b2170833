"""Where a table continues, after it was stopped, made late, or robbed of its history: real brokers, Delta."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from pykafka_wire.ingest import Ingest, IngestError, Table
from pykafka_wire.ingest.landing.rejects import TableRejects
from pykafka_wire.ingest.landing.table_writer import TableWriter, commits_of
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from pykafka_wire.ingest.tables.position import AlreadyLandedError, Landed
from pykafka_wire.ingest_status import TableStatus
from tests.connector.ingest.conftest import Shop, avro_schema, kill

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

FIRST = avro_schema("id int")
SECOND = avro_schema("id long", "amount double?")
CONFLICT = avro_schema("id string")
JSON = {"defaults": Table(topic=".*", format="json", schema="n INT")}


def rows(first: int, n: int) -> list[dict[str, Any]]:
    return [{"id": first + number} for number in range(n)]


def all_is_right(shop: Shop, **asked: Any) -> bool:
    ingest = shop.ingest(**asked)
    proofs = list(verify(shop.spark, ingest.settings, ingest.topics()))
    assert all(each.is_right for each in proofs), list(map(str, proofs))
    return bool(proofs)


def clean_history(shop: Shop, name: str) -> None:
    """Delete the commits of an ingest from a table's log, as Delta does in time; the table has delta.checkpointInterval = 2."""
    folder = shop.folder / "lake" / f"{shop.prefix}_{name}"
    for number in range(3):  # another program's commits
        shop.spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('n' = '{number}')")
    log = folder / "_delta_log"
    newest = max(int(each.name[:20]) for each in log.glob("0*.checkpoint*"))
    for each in log.glob("*.json"):
        if each.stem.isdecimal() and int(each.stem) < newest:
            each.unlink()
    shop.spark.sql(f"REFRESH TABLE delta.`{folder}`")
    table = SparkDeltaTable(shop.spark, shop.ingest().settings, f"{shop.prefix}_{name}")
    assert next(table.history(), None) is None


@pytest.mark.parametrize(
    ("position", "max_rows", "expected"),
    [
        ({0: 0, 1: 0}, 100, [({0: 0, 1: 0}, {0: 50, 1: 20})]),
        ({0: 45, 1: 20}, 4, [({0: 45, 1: 20}, {0: 50, 1: 20})]),  # the micro-batch is as large as it is
        ({0: 50, 1: 20}, 4, []),
        ({0: 60, 1: 20}, 4, []),
        (
            {0: 0, 1: 10},
            30,
            [
                ({0: 0, 1: 10}, {0: 20, 1: 15}),
                ({0: 20, 1: 15}, {0: 40, 1: 20}),
                ({0: 40, 1: 20}, {0: 50, 1: 20}),
            ],
        ),
    ],
)
def test_what_a_table_lacks_is_divided_by_the_most_rows_of_a_commit(
    position: dict[int, int], max_rows: int, expected: list[Any]
) -> None:
    topic_range = TopicRange(topic="t", topic_id="", start={0: 40, 1: 20}, end={0: 50, 1: 20})
    assert [(each.start, each.end) for each in commits_of(topic_range, position, max_rows)] == expected


@pytest.mark.long
def test_a_table_that_was_stopped_for_long_catches_up_in_commits_of_max_rows(shop: Shop) -> None:
    topic = shop.create("orders")
    shop.send_avro("orders", FIRST, rows(0, 2))
    shop.run()
    shop.send_avro("orders", CONFLICT, [{"id": "x"}])
    assert shop.run().statuses[topic].error
    for first in (10, 20, 30):
        shop.send_avro("orders", FIRST, rows(first, 10))
        assert shop.run().statuses[topic].error
    shop.send_avro("orders", SECOND, [{"id": 100, "amount": 0.5}])
    before = shop.versions("orders")
    assert shop.run(max_rows=12).statuses[topic].rejects == 1
    commits = shop.history("orders")[: shop.versions("orders") - before]
    written = [int(each.operationMetrics["numOutputRows"]) for each in commits if each.operation == "WRITE"]
    assert sum(written) == 31 and max(written) <= 12
    assert [id for (id,) in shop.rows("orders", "id")] == [0, 1, *range(10, 40), 100]
    assert all_is_right(shop)


@pytest.mark.long
def test_a_table_that_is_made_anew_has_its_rejects_though_its_predecessor_had_some(shop: Shop) -> None:
    asked = {"defaults": Table(topic=".*", format="json", schema="n INT"), "max_rows": 4}
    topic = shop.create("orders")
    for n in range(5):
        shop.send("orders", [b'{"n": %d}' % n, b"\xff"] if n < 2 else [b'{"n": 200}', b'{"n": 300}'])
        assert shop.run(**asked).statuses[topic].error is None
    assert shop.table("_rejects").count() == 2
    shutil.rmtree(shop.folder / "lake" / f"{shop.prefix}_orders")
    narrow = {**asked, "defaults": Table(topic=".*", format="json", schema="n TINYINT")}
    again = shop.run(**narrow).statuses[topic]
    assert (again.error, again.rows, again.rejects) == (None, 2, 8)
    assert shop.table("_rejects").select("partition", "offset").distinct().count() == 8
    assert shop.table("_rejects").count() == 8


@pytest.mark.long
def test_a_table_whose_log_was_cleaned_and_whose_last_offsets_hold_no_record_continues(shop: Shop) -> None:
    asked = {"defaults": replace(JSON["defaults"], properties={"delta.checkpointInterval": "2"})}
    topic = shop.create("orders", 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": shop.outside.servers, "transactional.id": topic})
    producer.init_transactions()
    for n in (1, 2):
        producer.begin_transaction()
        producer.produce(topic, b'{"n": %d}' % n)
        producer.commit_transaction()
        shop.run(**asked)
        if n == 1:
            clean_history(shop, "orders")
            assert shop.run(**asked).statuses[topic].error is None
    assert shop.rows("orders", "n") == [(1,), (2,)]
    assert all_is_right(shop, **asked)


@pytest.mark.long
def test_a_stopped_table_stays_so_without_new_records_and_gets_those_of_partitions_added_meanwhile(shop: Shop) -> None:
    topic = f"{shop.prefix}.orders"
    for name in ("orders", "other"):
        shop.create(name)
        shop.send_avro(name, FIRST, rows(0, 4))
    shop.run()
    shop.send_avro("orders", CONFLICT, [{"id": "x"}])
    assert shop.run().statuses[topic].error
    for _ in range(2):  # the second one finds a newest micro-batch without orders
        shop.send_avro("other", FIRST, rows(10, 2))
        stopped = shop.run().statuses[topic]
        assert stopped.error and stopped.position == {0: 2, 1: 2}
    shop.outside.grow(topic, 3)
    for first in (10, 20):
        values = shop.avro("orders", FIRST, rows(first, 3))
        shop.outside.produce(topic, [shop.outside.Record(value=value, partition=2) for value in values])
        assert shop.run().statuses[topic].error
    shop.send_avro("orders", SECOND, [{"id": 30, "amount": 0.5}])
    mended = shop.run().statuses[topic]
    assert (mended.error, mended.rejects) == (None, 1)
    assert [id for (id,) in shop.rows("orders", "id")] == [0, 1, 2, 3, 10, 11, 12, 20, 21, 22, 30]
    assert all_is_right(shop)


@pytest.mark.long
def test_a_table_that_is_made_late_begins_where_its_topic_began(shop: Shop) -> None:
    for name in ("orders", "other"):
        shop.create(name)
        shop.send_json(name, [{"n": 1}])
    shop.run(**JSON)
    shop.outside.delete(f"{shop.prefix}.orders")
    shop.create("orders")
    for n in (7, 8, 9):
        shop.send_json("orders", [{"n": n}])
        status = shop.run(**JSON).statuses[f"{shop.prefix}.orders"]
    assert status.error is not None and "deleted and created again" in status.error
    shop.send_json("other", [{"n": 2}])
    shop.run(**JSON)
    renamed = Table(topic=rf"{shop.prefix}\.orders", name=f"{shop.prefix}_again", format="json", schema="n INT")
    asked = {**JSON, "tables": [renamed]}
    assert shop.run(**asked).statuses[f"{shop.prefix}.orders"].error is None
    assert shop.rows("again", "n") == [(7,), (8,), (9,)]
    assert all_is_right(shop, **asked)


def test_a_table_of_a_topic_that_was_quiet_for_longer_than_the_log_remembers_begins_at_what_is_new(shop: Shop) -> None:
    for name in ("busy", "quiet"):
        shop.create(name)
        shop.send_json(name, [{"n": n} for n in range(4)])
    asked = {**JSON, "starting_offsets": "latest"}
    shop.run(**asked)
    for n in (10, 11):
        shop.send_json("busy", [{"n": n}])
        shop.run(**asked)
    for log in ("offsets", "commits"):
        (shop.folder / "checkpoint" / log / "0").unlink()  # Spark keeps the newest ones
    shop.send_json("quiet", [{"n": 20}])
    assert shop.run(**asked).statuses[f"{shop.prefix}.quiet"].error is None
    assert (shop.rows("quiet", "n"), shop.rows("busy", "n")) == ([(20,)], [(10,), (11,)])


def test_rows_that_were_deleted_are_no_rejects(shop: Shop) -> None:
    shop.create("orders")
    shop.send("orders", [b'{"n": 1}', b'{"n": 2}', b"\xff"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TableRejects, "write", kill)
        with pytest.raises(Exception, match="since the process is ending"):
            shop.ingest(**JSON).start(shop.spark, once=True).awaitTermination(120)
    shop.spark.sql(f"DELETE FROM delta.`{shop.folder}/lake/{shop.prefix}_orders` WHERE n = 1")
    shop.run(**JSON)
    assert [bytes(value) for (value,) in shop.rows("_rejects", "value")] == [b"\xff"]


def test_an_idle_table_that_cannot_be_looked_at_keeps_no_other_from_starting(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("idle", "orders"):
        shop.create(name)
        shop.send_json(name, [{"n": 1}])
    shop.run(**JSON)
    shop.send_json("orders", [{"n": 2}])
    shop.run(**JSON)
    landed = SparkDeltaTable.landed

    def refused(self: SparkDeltaTable) -> Any:
        if self.identifier.endswith("_idle`"):
            raise RuntimeError("access denied")
        return landed(self)

    shop.send_json("orders", [{"n": 3}])
    with monkeypatch.context() as patched:
        patched.setattr(SparkDeltaTable, "landed", refused)
        patched.setattr("pykafka_wire.ingest.landing.schedule.PATIENCE_S", 0.0)
        shop.run(**JSON)
    assert shop.rows("orders", "n") == [(1,), (2,), (3,)]


def test_a_catalog_s_table_that_is_created_again_is_not_the_ingest_s(spark: Any) -> None:
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into="default")
    table = SparkDeltaTable(spark, settings, f"orders_{uuid.uuid4().hex[:8]}")
    landed = Landed(query="q", micro_batch=1, topic="t", topic_id="", start={0: 0}, end={0: 4}, sequence=1)
    for is_first in (True, False):
        spark.sql(f"CREATE TABLE {table.identifier} (n INT) USING delta")
        if is_first:
            table.set_properties(Table(topic="t"), landed)
            table.check_follows(replace(landed, start={0: 4}, end={0: 5}))
        else:
            with pytest.raises(AlreadyLandedError, match="created again"):
                table.check_follows(replace(landed, start={0: 4}, end={0: 5}))
        spark.sql(f"DROP TABLE {table.identifier}")


def test_a_log_that_was_truncated_below_the_table_s_end_and_has_grown_again_stops_it(shop: Shop) -> None:
    shop.create("orders")
    shop.send_json("orders", [{"n": n} for n in range(4)])
    shop.run(**JSON)
    shop.send_json("orders", [{"n": n} for n in range(4, 8)])
    ingest = shop.run(**JSON)
    target = SparkDeltaTable(shop.spark, ingest.settings, f"{shop.prefix}_orders")
    landed = target.landed()
    assert landed is not None
    beyond = replace(
        landed,
        end={partition: offset + 1 for partition, offset in landed.end.items()},
        application=":as before the truncation",
        micro_batch=0,
    )
    target.append(shop.table("orders").limit(0), beyond)
    shop.send_json("orders", [{"n": n} for n in range(8, 14)])
    status = shop.run(**JSON).statuses[f"{shop.prefix}.orders"]
    assert status.error is not None and "truncated below offsets that table" in status.error


@pytest.mark.long
@pytest.mark.parametrize(
    "more", [{}, {"delta.setTransactionRetentionDuration": "interval 1 second"}], ids=["", "expiring"]
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_whose_log_was_cleaned_continues_after_its_rows_and_rejects(
    shop: Shop, mode: Any, more: dict[str, str]
) -> None:
    properties = {"delta.checkpointInterval": "2", **more}
    table = Table(topic=".*", format="json", schema="n INT", key_format="string", mode=mode, properties=properties)
    asked = {"defaults": table}
    shop.create("orders")
    shop.send("orders", [b'{"n": 1}', b'{"n": 2}', b"\xff"], keys=[b"a", b"b", b"d"])
    shop.run(**asked)
    time.sleep(2 * bool(more))
    clean_history(shop, "orders")
    shop.send("orders", [b'{"n": 3}', b"\xff"], keys=[b"c", b"f"])
    status = shop.run(**asked).statuses[f"{shop.prefix}.orders"]
    assert (status.error, status.rows, status.rejects) == (None, 1, 1)
    assert shop.rows("orders", "n") == [(1,), (2,), (3,)]
    assert shop.table("_rejects").count() == 2
    if table.mode == "append":
        assert all_is_right(shop, **asked)
    else:
        ingest = shop.ingest(**asked)
        (proof,) = verify(shop.spark, ingest.settings, ingest.topics())
        assert proof.comparison is not None and proof.comparison.is_equal and "2 rejected changes" in str(proof)


def test_rejects_of_a_driver_that_was_killed_are_written_though_the_settings_have_changed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = shop.create("orders")
    shop.send("orders", [b'{"n": 1}', b'{"n": "two"}', b"\xff", b'{"n": 4}'])
    with monkeypatch.context() as patched:
        patched.setattr(TableRejects, "write", kill)
        with pytest.raises(Exception, match="since the process is ending"):
            shop.ingest(**JSON).start(shop.spark, once=True).awaitTermination(120)
    status = shop.run(defaults=Table(topic=".*", format="json", schema="n STRING")).statuses[name]
    assert (status.rejects, status.held_rejects) == (0, 2) and status.newest_ms
    assert shop.rows("orders", "n") == [(1,), (4,)]
    assert [bytes(value) for (value,) in shop.rows("_rejects", "value")] == [b'{"n": "two"}', b"\xff"]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["upsert", "cdc"])
def test_changes_that_an_older_version_has_merged_are_no_rejects(
    shop: Shop, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commits do not count their rejects, and a MERGE has fewer rows than records."""
    name, asked = shop.create("orders"), {"defaults": Table(topic=".*", format="json", key_format="json", mode=mode)}

    def change(op: str, number: int, v: str | None) -> Any:
        row = None if v is None else {"id": number, "v": v}
        return {"before": None, "after": row, "op": op} if mode == "cdc" else row

    shop.send_json("orders", [change("c", 0, "z")], keys=[{"id": 0}])
    shop.run(**asked)
    to_json = Landed.to_json
    with monkeypatch.context() as patched:
        patched.setattr(Landed, "to_json", lambda self: to_json(self).replace('"n_rejects": 0, ', ""))
        changes = [
            change("c", 1, "a"),
            change("u", 1, "b"),
            change("u", 1, "c"),
            change("c", 2, "d"),
            change("d", 2, None),
        ]
        shop.send_json("orders", [*changes, None], keys=[{"id": number} for number in (1, 1, 1, 2, 2, 2)])
        shop.run(**asked)
    landed = SparkDeltaTable(shop.spark, shop.ingest().settings, f"{shop.prefix}_orders").landed()
    assert landed is not None and landed.n_rejects is None and landed.n_added == 1, landed
    status = shop.run(**asked).statuses[name]
    assert (status.error, shop.table("_rejects").count()) == (None, 0)
    assert shop.rows("orders", "id", "v") == [(0, "z"), (1, "c")]


def test_a_micro_batch_that_spark_repeats_after_a_kill_has_no_ends_of_logs(shop: Shop) -> None:
    """Spark repeats what is planned and not committed, and reports it without asking for the ends."""
    topic = shop.create("orders")
    shop.send_json("orders", [{"n": 1}])
    shop.run(**JSON)
    for name in ("0", ".0.crc"):
        (shop.folder / "checkpoint" / "commits" / name).unlink()
    ingest = shop.run(**JSON)
    assert (ingest.statuses[topic].lag, ingest.statuses[topic].error) == (None, None)
    assert shop.rows("orders", "n") == [(1,)]


@pytest.mark.long
def test_a_restart_reads_no_record_again_and_commits_no_rejects_where_none_are_missing(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The records of ``users`` are gone by then: whoever reads them again logs it. Offsets of ``orders`` have no record."""
    orders, users = shop.create("orders", 1), shop.create("users", 1)
    keyed = Table(topic=rf"{shop.prefix}\.users", format="json", key_format="string", mode="upsert")
    asked = {"defaults": Table(topic=".*", format="json"), "tables": [keyed]}
    producer = confluent_kafka.Producer({"bootstrap.servers": shop.outside.servers, "transactional.id": orders})
    producer.init_transactions()
    for n, value in enumerate((b'{"n": 1}', b"\xff")):
        producer.begin_transaction()
        producer.produce(orders, b'{"n": %d}' % n)
        producer.produce(users, value, key=b"%d" % n)
        producer.commit_transaction()
        landed = shop.run(**asked).statuses
        before = [shop.versions(name) for name in ("_rejects", "orders", "users")]
        position = landed[users].position
        assert position is not None
        shop.outside.age_out(users, 0, position[0])
        again = shop.run(**asked).statuses
        assert [each.error for each in (*landed.values(), *again.values())] == [None] * 4
        assert [shop.versions(name) for name in ("_rejects", "orders", "users")] == before
    assert not [each for each in caplog.messages if "no longer in topic" in each]
    assert shop.table("_rejects").count() == 1 and shop.rows("users", "n") == [(1,)]


@pytest.mark.long
def test_tables_continue_with_an_empty_checkpoint_that_has_the_id_of_the_lost_one(shop: Shop) -> None:
    asked = {"defaults": Table(topic=".*", format="json", schema="n INT"), "max_rows": 3}
    topic = shop.create("orders")
    for first in (0, 5):
        shop.send("orders", [b'{"n": %d}' % n for n in range(first, first + 5)])
        shop.run(**asked)
    shutil.rmtree(shop.folder / "checkpoint")
    with pytest.raises(IngestError, match="if it is lost"):
        shop.ingest(**asked).start(shop.spark)
    query = DeltaTable(shop.folder / "lake" / topic.replace(".", "_")).metadata().configuration["pykafka-wire.query"]
    (shop.folder / "checkpoint").mkdir(exist_ok=True)
    (shop.folder / "checkpoint/metadata").write_text(json.dumps({"id": query}))
    for first in (10, 15, 20):
        shop.send("orders", [b'{"n": %d}' % n for n in range(first, first + 5)])
        assert shop.run(**asked).statuses[topic].error is None
    assert shop.rows("orders", "n") == [(n,) for n in range(25)]
    assert all_is_right(shop, **asked)


class RestoredLog:
    """A topic whose broker gets an older copy of the log back, and an ingest of it."""

    def __init__(self, spark: Any, cluster: Any, outside: Any, folder: Path) -> None:
        self._spark, self._cluster, self._outside, self._folder = spark, cluster, outside, folder
        outside.create("orders", 1)

    def send(self, *numbers: int) -> None:
        records = [self._outside.Record(value=b'{"n": %d}' % number) for number in numbers]
        self._outside.produce("orders", records)

    @contextmanager
    def _stopped(self) -> Iterator[Path]:
        """Lend the log's folder while the broker is stopped. The start begins another leader epoch."""
        (node,) = self._cluster.nodes
        node.stop()
        (log,) = node.folder.rglob("orders-0")
        yield log
        node.start()

    def copy(self) -> None:
        with self._stopped() as log:
            shutil.copytree(log, self._folder / "copy")

    def restore(self) -> None:
        with self._stopped() as log:
            shutil.rmtree(log)
            shutil.copytree(self._folder / "copy", log)

    def run(self) -> TableStatus:
        ingest = Ingest(
            checkpoint=str(self._folder / "checkpoint"),
            kafka={"bootstrap.servers": self._cluster.bootstrap_servers},
            topics="orders",
            into=str(self._folder / "lake"),
            **JSON,
        )
        assert ingest.start(self._spark, once=True).awaitTermination(240)
        return ingest.statuses["orders"]

    def rows(self) -> list[int]:
        return sorted(row.n for row in self._spark.read.format("delta").load(f"{self._folder}/lake/orders").collect())


@pytest.fixture
def restored_log(spark: Any, kafka_cluster: Any, outside_of: Any, tmp_path: Path) -> RestoredLog:
    cluster = kafka_cluster()
    return RestoredLog(spark, cluster, outside_of(cluster.bootstrap_servers), tmp_path)


@pytest.mark.long
def test_a_table_stays_stopped_although_its_truncated_log_has_grown_again(restored_log: RestoredLog) -> None:
    """The leader epoch of the table's position shows that, also in later micro-batches, which begin after that position, and after
    a restart."""
    restored_log.send(0, 1, 2)
    restored_log.copy()
    restored_log.send(3, 4)
    assert restored_log.run().error is None
    restored_log.restore()
    for number in range(3):  # a start lands the last micro-batch again, before the next one
        restored_log.send(*range(10, 20))
        error = restored_log.run().error
        assert error is not None and "truncated" in error, number
    assert restored_log.rows() == [0, 1, 2, 3, 4]


@pytest.mark.long
def test_a_table_continues_if_its_log_was_truncated_after_its_position(
    restored_log: RestoredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ingest is killed between the plan of a micro-batch and its landing, and the planned records are lost."""
    restored_log.send(0, 1, 2)
    restored_log.copy()
    assert restored_log.run().error is None
    restored_log.send(3, 4)
    with monkeypatch.context() as patched, suppress(IngestError, StreamingQueryException):
        patched.setattr(TableWriter, "_write", kill)
        restored_log.run()
    restored_log.restore()
    restored_log.send(*range(10, 20))
    error = restored_log.run().error
    assert error is not None and "truncated" in error
    restored_log.send(20)
    assert restored_log.run().error is None
    assert restored_log.rows() == [0, 1, 2, *range(10, 21)]
