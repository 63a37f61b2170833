"""What an ingest says, or does, before a wrong setting makes a table that nobody can read, or in two places."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from pykafka_wire.ingest import IngestError, Table
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.places import unescaped
from tests.connector.ingest.conftest import Shop

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

_DECLARED = {"format": "json", "schema": "id INT, place STRUCT<city: STRING>"}


def test_an_escaped_place_is_one_folder_to_python_and_to_spark(shop: Shop) -> None:
    """Tasks write the first table, and Spark the second one."""
    for name in ("a", "b"):
        shop.create(name)
        shop.send_json(name, [{"id": 1, "place": None}], keys=[{"id": 1}])
    tables = [Table(topic=r".*\.a", **_DECLARED), Table(topic=r".*\.b", mode="upsert", key_format="json", **_DECLARED)]
    place = f"file://{shop.folder}/my%20lake"
    for _ in range(2):
        statuses = shop.run(into=place, checkpoint=f"{place}/_checkpoint", tables=tables).statuses.values()
        assert [status.error for status in statuses] == [None, None]
    assert not (shop.folder / "my%20lake").exists()
    assert {path.name for path in (shop.folder / "my lake").iterdir()} >= {
        "_checkpoint", f"{shop.prefix}_a", f"{shop.prefix}_b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("file:///x/my%20lake", "file:/x/my lake"),
        ("file:/x/a b", "file:/x/a b"),
        ("/x/my%20lake", "/x/my%20lake"),
        ("s3://x/my%20lake", "s3://x/my%20lake"),
        ("file:///x/100%25", "/x/100%"),
        ("dbfs:/x%20", "dbfs:/x%20"),
        ("schema", "schema"),
    ],
)
def test_places_are_taken_without_escapes_where_hadoop_reads_none(given: str, taken: str) -> None:
    assert unescaped(given) == taken


@pytest.mark.parametrize("asked", [{}, {"write": "spark"}, {"mode": "upsert", "key_format": "json"}], ids=str)
def test_a_partition_by_structs_is_refused_before_there_is_a_table_and_can_be_corrected(
    shop: Shop, asked: dict[str, Any]
) -> None:
    shop.create("orders")
    shop.send_json("orders", [{"id": 1, "place": {"city": "Oslo"}}], keys=[{"id": 1}])
    topic = f"{shop.prefix}.orders"
    status = shop.run(defaults=Table(topic=".*", partition_by=("place",), **_DECLARED, **asked)).statuses[topic]
    assert status.error is not None and "partition_by" in status.error and "place" in status.error
    assert not (shop.folder / "lake" / f"{shop.prefix}_orders" / "_delta_log").exists()
    status = shop.run(defaults=Table(topic=".*", partition_by=("id",), **_DECLARED, **asked)).statuses[topic]
    assert status.error is None
    assert shop.rows("orders", "id", "place.city") == [(1, "Oslo")]


def test_a_pattern_that_no_topic_matches_ends_a_run_that_ends_by_itself(shop: Shop) -> None:
    with pytest.raises(IngestError, match="no topic to land matches"):
        shop.ingest(topics="nothing-has-this-name").start(shop.spark, once=True)


def test_a_catalog_that_is_away_is_named_with_what_to_do(shop: Shop) -> None:
    shop.create("orders")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
    for catalog in ({"type": "rest", "uri": uri}, {"type": "sql", "uri": "sqlite:////nothing/here.db"}):
        ingest = shop.ingest(
            into="lake.shop", table_format="iceberg", catalog=catalog, defaults=Table(topic=".*", format="json")
        )
        with pytest.raises(IngestError, match=r"the Iceberg catalog lake does not respond .*check uri"):
            ingest.start(shop.spark, once=True)


def test_a_proof_tells_rejects_from_rows_and_knows_far_timestamps(shop: Shop) -> None:
    topic = f"{shop.prefix}.orders"
    shop._topic(1, {"message.timestamp.after.max.ms": str(2**63 - 1)}, name=topic)
    record = shop.outside.Record
    far = 1_712_345_678_123_456_789
    shop.outside.produce(topic, [record(value=value, timestamp_ms=far) for value in (b'{"id": 1}', b"{", b'{"id": 2}')])
    asked = {"defaults": Table(topic=".*", **_DECLARED)}
    ingest = shop.run(**asked)
    shop.outside.produce(topic, [record(value=json.dumps({"id": 3}).encode(), timestamp_ms=far)])  # the table is behind
    (proof,) = verify(shop.spark, ingest.settings, [topic])
    assert proof.is_right, str(proof)
    assert f"3 records of {topic}, 1 of them in the table of rejects; each there once" in str(proof)
    assert "1 records behind" in str(proof)
