"""An ingest that merges into Iceberg tables, in a session with Iceberg's runtime: see test_iceberg_merges.py.

Reads commands, a line of JSON each, and prints RESULT and JSON for each. A command may end it before it prints anything.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from pykafka_wire.ingest import Ingest, Table
from pykafka_wire.ingest.landing.remedies import Remedy, remedy_of
from pykafka_wire.ingest.proof.replay import replay_rejects
from pykafka_wire.ingest.proof.verification import verify
from pykafka_wire.ingest.tables.iceberg.format import FORMAT
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.merging import DELETE, Merging, merge_rows

SETTINGS = json.loads(sys.argv[1])


def ingest_of(given: dict[str, Any]) -> Ingest:
    return Ingest(**{**given, "tables": [Table(**each) for each in given["tables"]]})


def die_around(method: str, when: str) -> None:
    """End this process before, or after, a step of the first MERGE."""
    real = getattr(IcebergTable, method)

    def step(self: IcebergTable, *given: Any) -> None:
        if when == "after":
            real(self, *given)
        os._exit(9)

    setattr(IcebergTable, method, step)


def land(spark: SparkSession, given: dict[str, Any], die: list[str] | None = None) -> dict[str, Any]:
    if die is not None:
        die_around(*die)
    ingest = ingest_of(given)
    assert ingest.start(spark, once=True).awaitTermination(240)
    errors = {topic: status.error for topic, status in ingest.statuses.items()}
    proofs = list(map(str, verify(spark, ingest.settings, ingest.topics())))
    ways = {topic: status.by_spark for topic, status in ingest.statuses.items()}
    return {"errors": errors, "proofs": proofs, "ways": ways}


def race(spark: SparkSession, given: dict[str, Any], name: str) -> dict[str, Any]:
    """A driver that hangs in its MERGE while another one merges the same micro-batch: what the table has then."""
    older, newer = (IcebergTable(spark.newSession(), ingest_of(given).settings, name) for _ in range(2))
    held = newer.landed()
    assert held is not None
    landed = replace(
        held, start=held.end, end={p: end + 1 for p, end in held.end.items()}, micro_batch=held.micro_batch + 1
    )

    def merge(table: IcebergTable, marker: str) -> None:
        row = table.rows.limit(1)
        changes = row.selectExpr(
            *(f"'{marker}' AS note" if n == "note" else n for n in row.columns), f"false AS {DELETE}"
        )
        merge_rows(table, changes, Merging(same_row="old._kafka_key <=> new._kafka_key", is_newer="true"), landed)

    real = older._publish

    def hang(*given: Any) -> None:
        merge(newer, "newer")
        real(*given)

    older._publish = hang  # type: ignore[method-assign]
    try:
        merge(older, "older")
        refused = None
    except Exception as error:
        refused = [type(error).__name__, remedy_of(error, FORMAT.errors) is Remedy.RETRY_NOW]
    newer.refresh()
    return {"refused": refused, "branches": sorted(newer._table.metadata.refs)}


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config(map={"spark.sql.shuffle.partitions": "2", **SETTINGS}).getOrCreate()
    commands: dict[str, Callable[..., Any]] = {
        "land": land,
        "race": race,
        "replay": lambda spark, given: [str(each) for each in replay_rejects(spark, ingest_of(given).settings)],
    }
    for line in sys.stdin:
        command, *given = json.loads(line)
        print("RESULT " + json.dumps(commands[command](spark, *given)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
