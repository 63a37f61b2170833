"""Law: whatever a record's timestamp and the values of its partitions are, the record becomes a row."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from pykafka_wire.ingest import Table
from tests.connector.ingest.conftest import Shop

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

#: No names of folders, or long ones.
KINDS: Final = [
    "\x00", "a\x00b", "x" * 300, "å" * 300, "\U0001f600" * 200, "/", "//", "a/../b", "..", ".", "%", "%2F", "%00", "", " ", "a ",
    "\\", "\n", "\x7f", "\u2028", "a=b", "?", "#", "\U0010ffff", "null", "'", '"', "{}", ":", "*", None,
]  # fmt: skip
#: Milliseconds; of a producer that sends nanoseconds or microseconds, too.
TIMES: Final = [1_712_345_678_123_456_789, 1_712_345_678_123_456, 2**63 - 1, 1_712_345_678_123]
#: 9999-12-31 in UTC, which stands for a time that Spark cannot hold.
LAST_DAY_US = 253_402_214_400_000_000


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_far_timestamps_and_values_that_are_no_names_of_folders_land(shop: Shop, format: str) -> None:
    topic = f"{shop.prefix}.hard"
    shop._topic(1, {"message.timestamp.after.max.ms": str(2**63 - 1)}, name=topic)
    documents = [{"id": number, "kind": kind} for number, kind in enumerate(KINDS)]
    shop.outside.produce(
        topic,
        [
            shop.outside.Record(value=json.dumps(document).encode(), timestamp_ms=TIMES[document["id"] % len(TIMES)])
            for document in documents
        ],
    )
    given: dict[str, Any] = {
        "defaults": Table(topic=".*", format="json", schema="id INT, kind STRING", partition_by=("kind",))
    }
    if format == "iceberg":
        catalog = {"type": "sql", "uri": f"sqlite:///{shop.folder}/c.db", "warehouse": f"file://{shop.folder}/lake"}
        load_catalog("lake", **catalog).create_namespace("laws")
        given |= {"into": "lake.laws", "table_format": "iceberg", "catalog": catalog}
    for _ in range(2):  # the second start has nothing to do, and reads what the table holds
        status = shop.run(**given).statuses[topic]
        assert (status.error, status.by_spark, status.rejects) == (None, None, 0)
    if format == "iceberg":
        read = load_catalog("lake", **given["catalog"]).load_table(f"laws.{shop.prefix}_hard").scan().to_arrow()
    else:
        read = DeltaTable(shop.folder / "lake" / f"{shop.prefix}_hard").to_pyarrow_table()
        by_spark = {row.id: row.kind for row in shop.table("hard").select("id", "kind").collect()}
        assert by_spark == {document["id"]: document["kind"] or None for document in documents}
    # In Delta's log an empty text is null.
    wanted = {doc["id"]: doc["kind"] if format == "iceberg" else doc["kind"] or None for doc in documents}
    assert dict(zip(read["id"].to_pylist(), read["kind"].to_pylist(), strict=True)) == wanted
    times = read["_kafka_timestamp"].cast(pa.int64()).to_pylist()
    assert dict(zip(read["id"].to_pylist(), times, strict=True)) == {
        number: LAST_DAY_US if (time_ms := TIMES[number % len(TIMES)]) > (2**63 - 1) // 1000 else time_ms * 1000
        for number in range(len(KINDS))
    }
