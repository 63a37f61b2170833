"""Apply a Debezium topic to a Delta table: it gets the rows that the database's table has, each change once, over restarts.

    python examples/cdc_to_delta.py --bootstrap localhost:9092 --topic shop.public.customers --table /tmp/lake/customers \\
        --key "id BIGINT" --columns "id BIGINT, name STRING, email STRING"

reads Debezium's JSON, with or without schemas.enable. With --registry http://localhost:8081 in place of --key and --columns it
reads Avro. It applies what is in the topic, then ends; started again, it continues where it ended.

This is an ingest of one topic (docs/ingest.md, whose command does the same for any number). What is no change of a row, such as a
record without a primary key, is in the table _rejects beside the table, with the reason. Columns that are new in the database are
new in the table from their first value on (for JSON: with their names in --columns).

PostgreSQL leaves large values that did not change out of an update, and Debezium writes a placeholder for them, which would get
into the table: set REPLICA IDENTITY FULL on the database's table.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from pyspark.sql import SparkSession

from pykafka_wire.ingest import Ingest, Table
from pykafka_wire.local import delta_jars


def changes(
    bootstrap: str, topic: str, table: str, *, registry: str | None, key: str | None, columns: str | None
) -> Ingest:
    """By the registry's schemas of keys and values, or by the columns that are given for JSON."""
    folder, name = Path(table).parent, Path(table).name
    json = {} if registry else {"format": "json", "schema": columns, "key_format": "json", "key_schema": key}
    return Ingest(
        checkpoint=f"{folder}/_checkpoint_{name}",
        kafka={"bootstrap.servers": bootstrap},
        topics=re.escape(topic),
        into=str(folder),
        registry=registry,
        tables=[Table(topic=topic, name=name, mode="cdc", **json)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="folder of the Delta table; checkpoint and rejects go beside it")
    parser.add_argument("--registry", help="URL of the schema registry, for Avro")
    parser.add_argument("--key", help="for JSON: the primary key's columns, as DDL")
    parser.add_argument("--columns", help="for JSON: the table's columns, as DDL; those of the key are among them")
    given = parser.parse_args()
    if not given.registry and not (given.key and given.columns):
        parser.error("give --registry for Avro, or --key and --columns for JSON")

    spark = (
        SparkSession.builder.appName("cdc_to_delta")
        .config("spark.jars", ",".join(map(str, delta_jars())))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        # 50 else: tasks that read a table's log of a few files.
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    ingest = changes(
        given.bootstrap, given.topic, given.table, registry=given.registry, key=given.key, columns=given.columns
    )
    ingest.start(spark, once=True).awaitTermination()
    stopped = ingest.statuses[given.topic].error if given.topic in ingest.statuses else None
    print(stopped or f"{spark.read.format('delta').load(given.table).count()} rows in {given.table}")
    spark.stop()


if __name__ == "__main__":
    main()
