"""A table beside its topic: what is lost, doubled or altered is named, and what is explained is no alarm."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyiceberg.catalog.sql import SqlCatalog

from pykafka_wire import read_topic, table_position
from pykafka_wire.checkpoints.reference import parse_reference
from pykafka_wire.checkpoints.stored_tables import TOPIC_ID_PROPERTY, TOPIC_PROPERTY
from pykafka_wire.checkpoints.tables import KafkaColumns, table_at
from pykafka_wire.cli.app import commands
from pykafka_wire.errors import OffsetsError, OptionError
from pykafka_wire.ingest import Table
from pykafka_wire.ingest.proof.proof import Proof, prove_query
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.records.topic_log import TopicLog
from pykafka_wire.options.source import Subscription
from pykafka_wire.options.starting_offsets import parse_offset_spec
from pykafka_wire.source.planning.checkpoint_reads import find_position
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.connector.ingest.conftest import Shop

pytestmark = pytest.mark.timeout(900)


class Copy:
    """A query of ours that keeps Kafka's columns in a Delta table."""

    def __init__(self, spark: Any, servers: str, folder: Path) -> None:
        self.spark = spark
        self.servers = servers
        self.checkpoint, self.table = str(folder / "checkpoint"), str(folder / "table")

    def run(self, topics: str, **options: str) -> None:
        asked = {"kafka.bootstrap.servers": self.servers, "subscribe": topics, "startingOffsets": "earliest", **options}
        query = (
            self.spark.readStream.format("pykafka-wire")
            .options(**asked)
            .load()
            .select("value", "topic", "partition", "offset", "timestamp")
            .writeStream.format("delta")
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start(self.table)
        )
        assert query.awaitTermination(240)

    def prove(self, **options: Any) -> Proof:
        reference = parse_reference(self.checkpoint, "the checkpoint")
        given = {"kafka.bootstrap.servers": self.servers, "kafka.isolation.level": "read_committed"}
        columns = KafkaColumns.of(table_at(self.spark, self.table), self.table, None)
        (proof,) = prove_query(self.spark, given, reference, columns, **options)
        return proof

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.replace("TABLE", f"delta.`{self.table}`"))


@pytest.fixture
def copy(spark: Any, kafka: Any, tmp_path: Path) -> Copy:
    return Copy(spark, kafka.bootstrap_servers, tmp_path)


def send_and_abort(servers: str, topic: str) -> None:
    """A committed transaction and one that is aborted: its records and two markers are gaps."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, value=b"%d" % number, partition=0)
        producer.flush(30)
        end(30)


def test_a_query_is_proved_and_each_damage_is_named(copy: Copy, topic: Callable[..., str], outside: Any) -> None:
    name = topic(2)
    outside.fill(name, [40, 40])
    send_and_abort(copy.servers, name)
    committed = {"kafka.isolation.level": "read_committed"}
    copy.run(name, maxOffsetsPerTrigger="60", **committed)
    proof = copy.prove()
    assert proof.is_right and proof.comparison is not None and proof.comparison.n_expected == 85, proof
    assert (proof.lag, proof.until) == (0, {0: 52, 1: 40})
    outside.fill(name, [0, 3])
    proof = copy.prove()
    last = copy.spark.sql(f"SELECT max(timestamp) FROM delta.`{copy.table}` WHERE partition = 1").first()[0]
    assert proof.is_right and proof.lag == 3 and proof.complete_until is not None
    assert abs(proof.complete_until.timestamp() - last.timestamp()) < 0.002
    # The topic deletes the first records, whose rows cannot be compared any more.
    outside.age_out(name, 0, 10)
    proof = copy.prove()
    assert proof.is_right and proof.comparison is not None and proof.comparison.n_gone == 10
    copy.sql("DELETE FROM TABLE WHERE partition = 0 AND offset IN (3, 17)")
    copy.sql("INSERT INTO TABLE SELECT * FROM TABLE WHERE partition = 1 AND offset = 9")
    copy.sql("UPDATE TABLE SET offset = 7000 WHERE partition = 1 AND offset = 11")
    for number in range(1):  # as after a hundred micro-batches
        for log in ("offsets", "commits"):
            (Path(copy.checkpoint) / log / str(number)).unlink()
            (Path(copy.checkpoint) / log / f".{number}.crc").unlink(missing_ok=True)
    proof = copy.prove()
    found = proof.comparison
    assert found is not None and not proof.is_right and proof.n_absent == 1
    assert (found.lost, found.doubled, found.unknown) == (((0, 17), (1, 11)), ((1, 9),), ((1, 7000),))
    asked = ["prove", copy.checkpoint, copy.table, "-b", copy.servers, "-X", "kafka.isolation.level=read_committed"]
    done = CliRunner().invoke(commands, asked, standalone_mode=False)
    assert isinstance(done.exception, SystemExit) and done.exit_code == 1, done
    assert "2 lost (partition, offset: (0, 17), (1, 11)); 1 doubled (partition, offset: (1, 9))" in done.stdout
    assert "1 offsets before the topic's first offset that the table lacks" in done.stdout


@pytest.mark.long
def test_a_proof_while_the_query_or_the_ingest_goes_on_raises_no_alarm(
    copy: Copy, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed after the checkpoint and the table were looked at, and before they are compared, is no difference."""
    name = shop.create("users")
    asked = {"defaults": Table(topic=".*", mode="upsert", format="string", key_format="string")}

    def send_and_run() -> None:
        shop.send("users", [b"a", b"b", b"c"], keys=[b"1", b"2", b"3"])
        copy.run(name)
        shop.run(**asked)

    of = TopicLog.of

    def go_on_and_look(*given: Any) -> TopicLog:
        send_and_run()
        return of(*given)

    send_and_run()
    monkeypatch.setattr(TopicLog, "of", go_on_and_look)
    for proof in (copy.prove(), *verify(copy.spark, shop.ingest(**asked).settings, [name])):
        assert proof.is_right, proof


def test_what_was_lost_before_it_was_read_is_explained_by_the_ledger(
    copy: Copy, topic: Callable[..., str], outside: Any, tmp_path: Path
) -> None:
    name, ledger = topic(1), str(tmp_path / "ledger")
    outside.fill(name, [20])
    outside.age_out(name, 0, 8)
    copy.run(name, startingOffsets=json.dumps({name: {"0": 2}}), failOnDataLoss="false", dataLossLedger=ledger)
    without, with_ledger = copy.prove(), copy.prove(ledger=ledger)
    assert without.is_right and with_ledger.is_right
    assert (without.n_absent, with_ledger.n_absent) == (6, 0)
    assert with_ledger.comparison is not None and with_ledger.comparison.n_in_ledger == 6


def test_a_topic_that_was_deleted_hides_no_other_topic(
    copy: Copy, topic: Callable[..., str], outside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, again, kept = sorted(topic(1) for _ in range(3))
    for name in (gone, again, kept):
        outside.fill(name, [3])
    copy.run(f"{gone},{again},{kept}")
    for name in (gone, again):
        outside.delete(name)
    topic(1, name=again)
    outside.fill(again, [3])
    folder = Path(copy.table).parent
    monkeypatch.chdir(folder)
    relative = [os.path.relpath(copy.checkpoint), f"./{Path(copy.table).name}"]
    done = CliRunner().invoke(commands, ["prove", *relative, "-b", copy.servers])
    lines = done.stdout.splitlines()
    assert done.exit_code == 1 and len(lines) == 3, done
    for name, line in zip((gone, again), lines, strict=False):
        assert f"not compared: [PYKAFKA_WIRE_OFFSETS] topic {name} was deleted" in line
    assert f"3 records of {kept}; each there once" in lines[2]
    # Before Spark starts, of which this is one session.
    monkeypatch.setattr("pykafka_wire.cli.prove.session", lambda _: pytest.fail("Spark was started"))
    for place, table, said in (
        (relative[0], "lake/none", "no folder _delta_log (Delta)"),
        ("none", relative[1], "none"),
    ):
        failed = CliRunner().invoke(commands, ["prove", place, table, "-b", copy.servers])
        assert failed.exit_code != 0 and said in (failed.output + str(failed.exception)), failed


#: What a sink has written of a topic: partition 0 without three offsets of a rebalance, a file twice, an offset that is wrong.
_WRITTEN = [*range(40), *range(43, 80), *range(60, 80), 7000]


def _prove(copy: Copy, *arguments: str) -> Any:
    return CliRunner().invoke(commands, ["prove", *arguments, "-b", copy.servers])


def test_a_delta_table_of_another_program_is_proved_without_a_checkpoint(
    copy: Copy, topic: Callable[..., str], outside: Any, tmp_path: Path
) -> None:
    name = topic(3)
    outside.fill(name, [100, 5, 4])
    rows = pa.table({
        "connect_topic": [name] * (len(_WRITTEN) + 4),
        "connect_partition": pa.array([0] * len(_WRITTEN) + [1] * 4, pa.int32()),
        "connect_offset": [*_WRITTEN, *range(1, 5)],
    })  # fmt: skip
    table = str(tmp_path / "connect")
    deltalake.write_deltalake(table, rows)
    named = "topic=connect_topic, partition=connect_partition, offset=connect_offset"
    done = _prove(copy, table, "--columns", named)
    assert done.exit_code == 1, done
    assert "3 lost (partition, offset: (0, 40), (0, 41), (0, 42))" in done.stdout
    assert "20 doubled (partition, offset: (0, 60), (0, 61)" in done.stdout
    assert "1 not in the topic (partition, offset: (0, 7000))" in done.stdout
    assert "no row of partition 2: 4 records" in done.stdout
    assert "(1, 0)" in _prove(copy, table, "--columns", named, "--whole").stdout, "the first offset is missing, too"
    # What is right is called so.
    deltalake.write_deltalake(table, rows.slice(len(_WRITTEN)), mode="overwrite")
    outside.delete(name)
    topic(2, name=name)
    outside.fill(name, [0, 7])
    done = _prove(copy, table, "--columns", named)
    assert done.exit_code == 0 and "4 records of" in done.stdout and "each there once" in done.stdout, done
    wrong = _prove(copy, table, "--columns", "offset=connect_ofset,partition=connect_partition")
    assert wrong.exit_code != 0 and "has not all of the columns" in str(wrong.exception)
    assert "name the columns that have them" in str(_prove(copy, table).exception)


def test_an_iceberg_table_is_proved_without_a_jar(
    copy: Copy, topic: Callable[..., str], outside: Any, tmp_path: Path
) -> None:
    name = topic(1)
    outside.fill(name, [100])
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("shop")
    meta = pa.array([{"partition": 0, "offset": offset} for offset in _WRITTEN])
    rows = pa.table({"n": pa.array(range(len(_WRITTEN))), "meta": meta})
    table = catalog.create_table("shop.orders", schema=rows.schema)
    table.append(rows)
    catalog.close()
    folder = table.location().removeprefix("file://")
    named = ["--columns", "partition=meta.partition,offset=meta.offset"]
    done = _prove(copy, folder, *named, "--topic", name)
    assert done.exit_code == 1, done
    assert "3 lost (partition, offset: (0, 40), (0, 41), (0, 42))" in done.stdout
    assert "20 doubled (partition, offset: (0, 60), (0, 61)" in done.stdout
    assert "name the topic of its records" in str(_prove(copy, folder, *named).exception)
    assert "cannot be read" in str(_prove(copy, folder, "--columns", "partition=p,offset=o", "--topic", name).exception)


@pytest.mark.long
def test_rows_that_compaction_has_removed_from_the_topic_are_no_alarm(shop: Shop, topic: Callable[..., str]) -> None:
    compacted = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "300",
        "max.compaction.lag.ms": "100",
    }
    for name in ("log", "users"):
        topic(1, compacted, name=f"{shop.prefix}.{name}")
    keyed = {"format": "json", "schema": "n INT", "key_format": "string"}
    asked = {
        "defaults": Table(topic=".*", **keyed),
        "tables": [Table(topic=r".*\.users", mode="upsert", **keyed)],
    }

    def send(first: int) -> None:
        for name in ("log", "users"):
            records = [
                shop.outside.Record(key=b"k%d" % (n % 3), value=b'{"n": %d}' % n) for n in range(first, first + 10)
            ]
            shop.outside.produce(f"{shop.prefix}.{name}", records)

    send(0)
    ingest = shop.run(**asked)
    n_sent, deadline = 10, time.monotonic() + 120
    while any(len(shop.outside.consume(f"{shop.prefix}.{name}")) == n_sent for name in ("log", "users")):
        assert time.monotonic() < deadline, "nothing was compacted"
        send(n_sent)
        n_sent += 10
        time.sleep(0.5)
    for check in verify(shop.spark, ingest.settings, ingest.topics()):
        assert check.is_right and check.comparison is not None and check.comparison.n_compacted > 0, check
        assert check.lag == n_sent - 10


def test_a_query_starts_where_a_table_ends(copy: Copy, topic: Callable[..., str], outside: Any, tmp_path: Path) -> None:
    old, other, new = topic(3), topic(1), topic(1)
    outside.fill(old, [5, 4, 0])
    outside.fill(other, [2])
    copy.run(f"{old},{other}")
    outside.fill(old, [1, 0, 2])
    outside.fill(new, [3])
    position = table_position(copy.spark, copy.table)
    assert position.startswith("table:") and ends_of(f"table:{copy.table}") == ends_of(position)
    assert not ends_of(position).topic_ids
    properties = f"'{TOPIC_PROPERTY}' = '{old}', '{TOPIC_ID_PROPERTY}' = 'u8lFmrR3SRiXzcHcDpYZ2w'"  # as of an ingest
    copy.spark.sql(f"ALTER TABLE delta.`{copy.table}` SET TBLPROPERTIES ({properties})")
    known = ends_of(table_position(copy.spark, copy.table))
    assert known == ends_of(f"table:{copy.table}") and known.topic_ids.keys() == {old}
    copy.spark.sql(f"ALTER TABLE delta.`{copy.table}` UNSET TBLPROPERTIES ('{TOPIC_ID_PROPERTY}')")
    copy.checkpoint = str(tmp_path / "another")
    copy.run(f"{old},{other},{new}", startingOffsets=f"table:{copy.table}")
    held = copy.spark.sql(f"SELECT topic, partition, offset FROM delta.`{copy.table}`").collect()
    counts = {old: (6, 4, 2), other: (2,), new: (3,)}
    wanted = [(t, p, o) for t, ns in counts.items() for p, n in enumerate(ns) for o in range(n)]
    assert sorted(map(tuple, held)) == sorted(wanted)

    with pytest.raises(OffsetsError, match="cannot be read"):
        table_position(copy.spark, str(tmp_path / "nothing"))
    view = f"v{tmp_path.name.replace('-', '_')}"
    copy.spark.sql("SELECT 1 AS a").createOrReplaceTempView(view)
    with pytest.raises(OffsetsError, match="has no columns partition and offset"):
        table_position(copy.spark, view)
    copy.spark.sql("SELECT 1 AS partition, 41L AS offset").createOrReplaceTempView(view)
    with pytest.raises(OffsetsError, match="name the topic whose records it has"):
        table_position(copy.spark, view)
    assert json.loads(table_position(copy.spark, view, topic="t")[6:])["offsets"]["offsets"] == {"t": {"1": 42}}
    copy.checkpoint = str(tmp_path / "third")
    history = read_topic(
        {"kafka.bootstrap.servers": copy.servers, "subscribe": f"{old},{new}", "startingOffsets": f"table:{copy.table}"}
    )
    assert history.read_all().num_rows == 0
    with pytest.raises(Exception, match="has none of the subscribed topics"):
        copy.run(new, startingOffsets=table_position(copy.spark, view, topic="t"))


def ends_of(starting_offsets: str) -> Any:
    """What a source that starts there finds, of all topics."""
    reference = parse_offset_spec(starting_offsets, "startingOffsets").checkpoint
    assert reference is not None
    return find_position(reference, Subscription(pattern=".*"), {}, option="startingOffsets").offsets


def test_a_table_is_read_without_spark_as_with_it_or_refused(spark: Any, tmp_path: Path) -> None:
    """What Spark writes into tables that have columns mapped, rows deleted and types widened."""
    rows = "SELECT concat('t', id % 2) AS topic, cast(id % 3 AS int) AS partition, id AS offset FROM range(100)"

    def create(name: str, properties: str, *statements: str) -> str:
        table = f"delta.`{tmp_path / name}`"
        spark.sql(f"CREATE TABLE {table} USING delta TBLPROPERTIES ({properties}) AS {rows}")
        for each in statements:
            spark.sql(each.replace("THIS", table))
        return str(tmp_path / name)

    mapped = create(
        "mapped", "'delta.columnMapping.mode'='name', 'delta.enableDeletionVectors'='true'",
        "ALTER TABLE THIS RENAME COLUMN offset TO former", "ALTER TABLE THIS ADD COLUMN offset BIGINT",
        "UPDATE THIS SET offset = 7000 + former", "DELETE FROM THIS WHERE former > 90",
    )  # fmt: skip
    assert ends_of(f"table:{mapped}") == ends_of(table_position(spark, mapped))
    assert ends_of(f"table:{mapped}").offsets[TopicPartition("t0", 0)] == 7091
    widened = create(
        "widened", "'delta.enableTypeWidening'='true'", "ALTER TABLE THIS ALTER COLUMN partition TYPE BIGINT"
    )
    with pytest.raises(OffsetsError, match=r"deltalake .*TypeWidening.*set startingOffsets to table_position\(spark, "):
        ends_of(f"table:{widened}")


def test_the_name_of_a_table_alone_is_refused_with_what_to_call() -> None:
    with pytest.raises(
        OptionError, match=r"startingOffsets is 'table:shop.orders'.*table_position\(spark, 'shop.orders'\)"
    ):
        parse_offset_spec("table:shop.orders", "startingOffsets")
