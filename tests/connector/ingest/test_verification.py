"""--verify and --replay-rejects where one topic cannot be checked: it is reported, and the other topics are checked."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from pykafka_wire.cli.app import commands
from pykafka_wire.ingest import Table
from pykafka_wire.ingest.landing.rejects_table import RejectsTable
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.source.stream_reader import HAS_ADMISSION_CONTROL
from tests.connector.ingest.conftest import Shop, kill

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

ASKED: Any = {"defaults": Table(topic=".*", format="json", schema="n INT")}


def command(shop: Shop, *more: str, topics: str = "") -> Any:
    place = ["--into", str(shop.folder / "lake"), "--checkpoint", str(shop.folder / "checkpoint"), "--format", "binary"]
    asked = ["ingest", "-b", shop.outside.servers, "--topics", topics or rf"{shop.prefix}\..*", *place, *more]
    return CliRunner().invoke(commands, asked)


def test_topics_that_are_not_landed_are_a_mistake_and_those_without_records_are_none(shop: Shop) -> None:
    for name in ("old", "orders", "quiet"):
        shop.create(name)
    for name in ("old", "orders"):
        shop.send_json(name, [{"n": 1}, {"n": 2}])
    for partition in range(2):
        shop.outside.age_out(f"{shop.prefix}.old", partition, 1)
    done = command(shop, "--verify")
    old, orders, quiet = done.stdout.splitlines()
    assert done.exit_code == 1 and "does not exist" in orders
    assert old.endswith(f"no records of {shop.prefix}.old to land, no table")
    assert quiet.endswith(f"no records of {shop.prefix}.quiet to land, no table")
    assert command(shop, "--verify", topics=rf"{shop.prefix}\.quiet").exit_code == 0
    done = command(shop, "--verify", topics=f"{shop.prefix}.none")
    assert done.exit_code == 1 and "nothing was compared" in done.stderr


@pytest.mark.long
def test_old_records_of_an_ingest_that_began_at_the_latest_ones_need_no_table(shop: Shop) -> None:
    for name in ("busy", "old", "quiet"):
        shop.create(name)
    for name in ("busy", "old"):
        shop.send_json(name, [{"n": 1}, {"n": 2}])
    asked = {**ASKED, "starting_offsets": "latest"}
    shop.run(**asked)
    for _ in range(2):
        shop.send_json("busy", [{"n": 3}])
        shop.run(**asked)
    settings = shop.ingest(**asked).settings

    def mistakes() -> list[str | None]:
        return [each.mistake for each in verify(shop.spark, settings, shop.ingest(**asked).topics())]

    assert mistakes() == [None, None, None]
    shutil.rmtree(shop.folder / "lake" / f"{shop.prefix}_busy")
    busy, *others = mistakes()
    assert busy is not None and "does not exist" in busy and others == [None, None]


@pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="min_rows needs Spark 4.2")
@pytest.mark.long
def test_a_topic_that_waits_for_min_rows_needs_no_table(shop: Shop) -> None:
    waits = replace(ASKED["defaults"], min_rows=100, max_delay="1d")
    asked = {**ASKED, "tables": [replace(waits, topic=rf"{shop.prefix}\.waits")]}
    for name in ("busy", "waits"):
        shop.create(name)
        shop.send_json(name, [{"n": 1}, {"n": 2}])
    query = shop.ingest(**asked).start(shop.spark, every="1 second")
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert shop.rows("busy", "n") == [(1,), (2,)]
    settings = shop.ingest(**asked).settings
    assert [each.mistake for each in verify(shop.spark, settings, shop.ingest(**asked).topics())] == [None, None]


@pytest.mark.long
def test_a_topic_that_cannot_be_checked_hides_no_other(shop: Shop) -> None:
    """One was deleted, one created again, and one table has lost its files."""
    names = ("again", "damaged", "gone", "kept")
    for name in names:
        shop.create(name)
        shop.send(name, [b'{"n": 1}', b'{"n": "x"}'])
    shop.run(**ASKED)
    # Each table is compared with its own topic, up to the offsets of its newest commit; some records are rejects.
    for with_checkpoint in (True, False):
        done = shop.prove("kept", with_checkpoint=with_checkpoint)
        assert done.exit_code == 0 and f"2 records of {shop.prefix}.kept; each there once" in done.stdout, done
        assert "pass it as --rejects" in str(shop.prove("_rejects", with_checkpoint=with_checkpoint).exception)
    # As an Iceberg table in a catalog, of which the session shows no commits.
    named = f"{shop.prefix}_of_catalog"
    shop.spark.sql(
        f"CREATE TABLE {named} (partition INT, offset BIGINT) USING parquet LOCATION '{shop.folder}/{named}' "
        f"TBLPROPERTIES ('pykafka-wire.topic' = '{shop.prefix}.kept', 'pykafka-wire.query' = 'q')"
    )
    refused = CliRunner().invoke(commands, ["prove", named, "-b", shop.outside.servers])
    assert "the path of its newest metadata file" in str(refused.exception), refused
    shop.spark.sql(f"DROP TABLE {named}")
    shop.spark.sql(f"DELETE FROM delta.`{shop.folder}/lake/{shop.prefix}_gone`")
    done = shop.prove("gone", with_checkpoint=False)
    assert done.exit_code == 1 and "1 lost (partition, offset: (0, 0))" in done.stdout, done
    shop.outside.delete(f"{shop.prefix}.gone")
    shop.outside.delete(f"{shop.prefix}.again")
    shop.create("again")
    shop.send_json("again", [{"n": 7}, {"n": 8}])
    for file in (shop.folder / "lake" / f"{shop.prefix}_damaged").glob("*.parquet"):
        file.unlink()
    done = command(shop, "--replay-rejects", "--json")
    replays = {each["topic"].split(".")[1]: each for each in map(json.loads, done.stdout.splitlines())}
    assert done.exit_code == 1 and tuple(replays) == names
    counts = {name: (each["landed"], each["damaged"], each["gone"]) for name, each in replays.items()}
    assert (counts["gone"], counts["again"], counts["kept"]) == ((0, 0, 1), (0, 0, 1), (1, 0, 0))
    mistakes = {name: each["mistake"] for name, each in replays.items() if each["mistake"]}
    assert list(mistakes) == ["damaged"] and mistakes["damaged"].startswith("[FAILED_READ_FILE")
    assert shop.rows("_rejects", "topic") == [(f"{shop.prefix}.{name}",) for name in names[:3]]
    again, damaged, kept = verify(shop.spark, shop.ingest(**ASKED).settings, shop.ingest().topics())
    assert "was deleted" in str(again) and "FAILED_READ_FILE" in str(damaged) and kept.is_right


def test_a_table_of_rejects_that_a_crash_has_left_out_is_an_empty_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create("orders")
    shop.send_json("orders", [{"n": 1}, {"n": 2}])

    monkeypatch.setattr(RejectsTable, "_create", kill)
    with pytest.raises(Exception, match="since the process is ending"):
        shop.run(**ASKED)
    assert shop.rows("orders", "n") == [(1,), (2,)] and not (shop.folder / "lake" / "_rejects").exists()
    (proof,) = verify(shop.spark, shop.ingest(**ASKED).settings, [f"{shop.prefix}.orders"])
    assert proof.is_right, proof
    done = command(shop, "--replay-rejects")
    assert done.exit_code == 0 and f"There are no rejects in {shop.folder}/lake/_rejects." in done.stdout


@pytest.mark.long
def test_a_reject_of_a_type_that_its_column_cannot_take_is_stale_and_no_lost_row(shop: Shop) -> None:
    """The comparison reads by the table's types, as the landing did, and not by those of the whole topic."""
    name = shop.create("orders")
    asked = {"defaults": Table(topic=".*", mode="upsert", format="json", key_format="json")}
    for row in ({"id": 1, "v": 1}, {"id": 2, "v": "two"}):
        shop.send_json("orders", [row], keys=[{"id": row["id"]}])
        ingest = shop.run(**asked)
    (proof,) = verify(shop.spark, ingest.settings, [name])
    assert proof.comparison is not None and (proof.comparison.is_equal, proof.n_stale) == (True, 1), str(proof)
