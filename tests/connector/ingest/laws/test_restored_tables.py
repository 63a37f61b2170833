"""Each record is a row or a reject, once, although a table was restored from a backup: of its own, without the table of rejects.

Steps send random records, land them, make a backup of the table's folder, restore it, and replay the rejects. The oracle is the
topic: every record is a row if its value can be read, and a reject otherwise.
"""

from __future__ import annotations

import json
import random
import shutil
from typing import Any

import pytest

from pykafka_wire.ingest import Table
from pykafka_wire.ingest.proof.replay import replay_rejects
from pykafka_wire.ingest.proof.verification import verify
from tests.connector.ingest.conftest import Shop

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

#: A number that an INT cannot hold.
_LARGE = 5_000_000_000
_SEND, _LAND, _REPLAY, _BACKUP, _RESTORE = "send", "land", "replay", "backup", "restore"


def _steps(*, is_replayed: bool) -> list[str]:
    """Return steps with two restores, after the first of which the rejects are replayed, if ``is_replayed``."""
    replay = [_REPLAY, _BACKUP] if is_replayed else []
    land = [_SEND, _LAND]
    return [*land, _BACKUP, *land, *land, _RESTORE, *replay, *land, *land, _RESTORE, *land]


@pytest.mark.long
@pytest.mark.parametrize("is_replayed", [False, True])
@pytest.mark.parametrize("write", ["auto", "spark"])
def test_a_restored_table_has_each_record_once_or_its_reject(shop: Shop, is_replayed: bool, write: str) -> None:
    topic, choose = shop.create("orders", partitions=1), random.Random(is_replayed)
    folder, backup = shop.folder / "lake" / f"{shop.prefix}_orders", shop.folder / "backup"
    sent: list[int | str] = []
    is_wide = False

    def table() -> Table:
        return Table(topic=".*", format="json", schema=f"v {'BIGINT' if is_wide else 'INT'}", write=write)

    def run() -> Any:
        ingest = shop.run(registry=None, tables=[table()])
        assert {status.error for status in ingest.statuses.values()} == {None}
        return ingest

    for step in _steps(is_replayed=is_replayed):
        if step == _SEND:
            values = [
                choose.choice((len(sent) + n, _LARGE + len(sent) + n, "damaged")) for n in range(choose.randint(1, 3))
            ]
            sent += values
            records = [shop.outside.Record(value=json.dumps({"v": value}).encode(), partition=0) for value in values]
            shop.outside.produce(topic, records)
        elif step == _LAND:
            run()
        elif step == _BACKUP:
            shutil.rmtree(backup, ignore_errors=True)
            shutil.copytree(folder, backup)
        elif step == _RESTORE:
            shutil.rmtree(folder)
            shutil.copytree(backup, folder)
            # The ingest is started anew: its Spark knows nothing of the later state.
            shop.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        else:
            is_wide = True
            mistakes = [
                each.mistake
                for each in replay_rejects(shop.spark, shop.ingest(registry=None, tables=[table()]).settings)
            ]
            assert set(mistakes) <= {None}
    is_wide = True
    ingest = run()
    list(replay_rejects(shop.spark, ingest.settings))
    rows = [(offset, value) for offset, value in enumerate(sent) if value != "damaged"]
    rejects = [offset for offset, value in enumerate(sent) if value == "damaged"]
    assert shop.rows("orders", "_kafka_offset", "v") == rows
    assert sorted(row.offset for row in shop.table("_rejects").select("offset").collect()) == rejects
    (proof,) = verify(shop.spark, ingest.settings, [topic])
    assert proof.is_right, str(proof)
