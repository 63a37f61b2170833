"""Landed means visible, exactly once; and a position is never guessed from rows: whole ingests, with MERGE, on real brokers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import Transaction

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest import Table
from pykafka_wire.ingest.tables.delta import folder as delta_folder
from pykafka_wire.ingest.tables.delta import spark_table as tables
from pykafka_wire.ingest.tables.delta import transactions as delta_transactions
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest_status import TableState
from tests.connector.ingest.conftest import Shop
from tests.connector.ingest.test_page import until
from tests.connector.ingest.test_positions_of_tables import clean_history

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

MODES = ("append", "upsert", "cdc")


def settings_of(shop: Shop, **asked: Any) -> dict[str, Any]:
    """One table in each mode."""
    properties = {"delta.checkpointInterval": "2"}
    made = [
        Table(
            topic=rf"{shop.prefix}\.{mode}",
            format="json",
            key_format="json",
            mode=mode,
            properties=properties,
            **asked.get(mode, {}),
        )
        for mode in MODES
    ]
    return {"tables": made}


def send(shop: Shop, *numbers: int) -> None:
    """Send records of new keys to each topic."""
    keys = [{"id": number} for number in numbers]
    for mode in MODES:
        rows = [{"id": number, "n": number} for number in numbers]
        values = [{"before": None, "after": row, "op": "c"} for row in rows] if mode == "cdc" else rows
        shop.send_json(mode, values, keys=keys)


def numbers_of(shop: Shop) -> dict[str, list[int]]:
    return {mode: [n for (n,) in shop.rows(mode, "n")] for mode in MODES}


def land(shop: Shop, **asked: Any) -> dict[str, Any]:
    ingest = shop.run(**asked)
    ingest.close()
    return ingest.statuses


def errors_of(statuses: dict[str, Any]) -> list[str | None]:
    return [status.error for status in statuses.values()]


@pytest.mark.long
@pytest.mark.parametrize(
    "damage", ["a backup is restored", "its last entry is lost", "a backup is restored, and it is far behind"]
)
def test_a_checkpoint_that_is_older_than_the_tables_loses_and_doubles_nothing(shop: Shop, damage: str) -> None:
    for mode in MODES:
        shop.create(mode)
    asked, checkpoint = settings_of(shop), shop.folder / "checkpoint"
    send(shop, 1, 2)
    land(shop, **asked)
    shutil.copytree(checkpoint, shop.folder / "backup")
    for number in range(3, 6 if "far" in damage else 4):
        send(shop, number)
        land(shop, **asked)
    if "backup" in damage:
        shutil.rmtree(checkpoint)
        shutil.move(shop.folder / "backup", checkpoint)
    else:
        newest = max(int(entry.name) for entry in Path(checkpoint, "offsets").iterdir() if entry.name.isdecimal())
        for log in ("offsets", "commits"):
            for name in (str(newest), f".{newest}.crc"):
                Path(checkpoint, log, name).unlink(missing_ok=True)
    send(shop, 6)
    assert errors_of(land(shop, **asked)) == [None] * 3
    send(shop, 7)
    assert errors_of(land(shop, **asked)) == [None] * 3
    landed = [1, 2, 3, *([4, 5] if "far" in damage else []), 6, 7]
    assert numbers_of(shop) == dict.fromkeys(MODES, landed)


def as_older_version(patched: pytest.MonkeyPatch) -> None:
    """Write commits as versions did that did not number them, and kept the position in the table's history alone."""
    to_json = Landed.to_json

    def unnumbered(self: Landed) -> str:
        text = to_json(self).replace(f', "sequence": {self.sequence}, "attempt": "{self.attempt}"', "")
        assert "attempt" not in text
        return text

    def transaction(self: Landed) -> dict[str, str]:
        return {"txnAppId": self.query + self.application, "txnVersion": str(self.micro_batch)}

    patched.setattr(Landed, "to_json", unnumbered)
    patched.setattr(Landed, "transaction", property(transaction))
    patched.setattr(
        delta_transactions, "transactions_of", lambda landed: [Transaction(landed.query, landed.micro_batch)]
    )
    patched.setattr(SparkDeltaTable, "record", lambda *_: None)
    patched.setattr(SparkDeltaTable, "_check_landed", lambda *_: None)
    for module in (tables, delta_folder):
        patched.setattr(module, "start_position", lambda _: {})


@pytest.mark.long
def test_tables_of_an_older_version_continue_and_keep_their_position_from_then_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mode in MODES:
        shop.create(mode)
    asked = settings_of(shop)
    with monkeypatch.context() as patched:
        as_older_version(patched)
        for number in (1, 2):
            send(shop, number)
            land(shop, **asked)
    send(shop, 3)
    assert errors_of(land(shop, **asked)) == [None] * 3
    assert numbers_of(shop) == {mode: [1, 2, 3] for mode in MODES}
    for mode in MODES:
        shop.spark.sql(f"DELETE FROM delta.`{shop.folder}/lake/{shop.prefix}_{mode}` WHERE n = 3")
        clean_history(shop, mode)
    send(shop, 4)
    assert errors_of(land(shop, **asked)) == [None] * 3
    assert numbers_of(shop) == {mode: [1, 2, 4] for mode in MODES}


@pytest.mark.long
def test_a_table_that_has_lost_its_position_stops_until_it_is_stated(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mode in MODES:
        shop.create(mode, 1)
    with monkeypatch.context() as patched:
        as_older_version(patched)
        send_to_one(shop, 1, 2)
        land(shop, **settings_of(shop))
        for mode in MODES:
            clean_history(shop, mode)
            shop.spark.sql(f"DELETE FROM delta.`{shop.folder}/lake/{shop.prefix}_{mode}` WHERE n = 2")
    send_to_one(shop, 3)
    stopped = land(shop, **settings_of(shop))
    assert all("has lost its position" in str(error) for error in errors_of(stopped)), errors_of(stopped)
    assert numbers_of(shop) == {mode: [1] for mode in MODES}
    stated_position = settings_of(shop, **{mode: {"position": {"0": "2"}} for mode in MODES})
    assert errors_of(land(shop, **stated_position)) == [None] * 3
    send_to_one(shop, 4)
    assert errors_of(land(shop, **stated_position)) == [None] * 3, "a position that the table has counts"
    assert numbers_of(shop) == {mode: [1, 3, 4] for mode in MODES}


def send_to_one(shop: Shop, *numbers: int) -> None:
    """Send records of new keys to topics of one partition."""
    for mode in MODES:
        records = []
        for number in numbers:
            row = f'{{"id": {number}, "n": {number}}}'
            value = f'{{"before": null, "after": {row}, "op": "c"}}' if mode == "cdc" else row
            records.append(shop.outside.Record(key=b'{"id": %d}' % number, value=value.encode(), partition=0))
        shop.outside.produce(f"{shop.prefix}.{mode}", records)


@pytest.mark.long
def test_a_table_of_another_program_is_adopted_from_a_position_on(
    shop: Shop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create("orders", 1)
    place = shop.folder / "lake" / f"{shop.prefix}_orders"
    shop.spark.sql(f"CREATE TABLE delta.`{place}` (n INT, note STRING) USING delta")
    shop.spark.sql(f"INSERT INTO delta.`{place}` VALUES (1, 'old'), (2, 'old')")

    def asked(schema: str = "n INT", **position: str) -> dict[str, Any]:
        numbered = {partition.removeprefix("p"): offset for partition, offset in position.items()}
        table = Table(topic=rf"{shop.prefix}\.orders", format="json", schema=schema, position=numbered)
        return {"tables": [table], "topics": rf"{shop.prefix}\.orders"}

    def produce(*values: str) -> None:
        records = [shop.outside.Record(value=value.encode(), partition=0) for value in values]
        shop.outside.produce(f"{shop.prefix}.orders", records)

    produce('{"n": 1}', '{"n": 2}', '{"n": 3}', '{"n": 4}')
    with pytest.raises(IngestError, match="this checkpoint is new, but these tables exist"):
        land(shop, **asked())
    for refused, reason in (
        (asked(p0="2", p1="0"), "has the partitions [0, 1], but the topic has [0]"),
        (asked(p0="40"), "is {0: 40}, but partition 0 ends at 4"),
        (asked("n STRUCT<x: INT>", p0="2"), "PYKAFKA_WIRE_COLUMN_CONFLICT"),
    ):
        (error,) = errors_of(land(shop, **refused))
        assert error is not None and reason in error
    assert shop.rows("orders", "n", "note") == [(1, "old"), (2, "old")]
    for _ in range(2):
        assert errors_of(land(shop, **asked(p0="2"))) == [None]
        produce('{"n": 5}')
    produce("{")
    assert errors_of(land(shop, **asked(p0="2"))) == [None]
    landed = [(3, None), (4, None), (5, None), (5, None)]
    assert sorted(shop.rows("orders", "n", "note"), key=lambda row: row[0]) == [(1, "old"), (2, "old"), *landed]
    with monkeypatch.context() as lost:  # the position, after months in which the setting stayed in the file
        for table in (SparkDeltaTable, DeltaFolder):
            lost.setattr(table, "landed", lambda _: None)
        (error,) = errors_of(land(shop, **asked(p0="2")))
    assert error is not None and "began at the position in the settings, {0: 2}, before" in error
    # What another program undoes, the ingest does not do again.
    shop.spark.sql(f"RESTORE TABLE delta.`{place}` TO VERSION AS OF 1")
    produce('{"n": 6}', "{")
    assert errors_of(land(shop, **asked(p0="2"))) == [None]
    assert [n for (n,) in shop.rows("orders", "n")] == [1, 2, 6]
    assert sorted(row.offset for row in shop.table("_rejects").collect()) == [6, 8]
    assert any("was changed by another program" in each and "(RESTORE)" in each for each in caplog.messages)


@pytest.mark.long
def test_a_table_that_another_program_creates_again_during_the_ingest_is_stopped(shop: Shop) -> None:
    topic = shop.create("upsert")
    place = shop.folder / "lake" / f"{shop.prefix}_upsert"
    shop.send_json("upsert", [{"n": 1}, {"n": 2}], keys=[1, 2])
    ingest = shop.ingest(**settings_of(shop), every="100ms")
    query = ingest.start(shop.spark)
    try:
        until(lambda: topic in ingest.statuses and ingest.statuses[topic].position == {0: 1, 1: 1})
        others = DeltaTable(place).to_pyarrow_table().slice(0, 1)
        shutil.rmtree(place)
        write_deltalake(place, others)
        shop.send_json("upsert", [{"n": 3}], keys=[3])
        until(lambda: ingest.statuses[topic].state is TableState.STOPPED)
    finally:
        query.stop()
        ingest.close()
    assert "exists, but no ingest has created it" in str(ingest.statuses[topic].error)
    assert DeltaTable(place).to_pyarrow_table() == others
