"""Keep a Delta table like a compacted topic: the newest value of each key, by MERGE in foreachBatch.

    python examples/upsert_to_delta.py --bootstrap localhost:9092 --topic customers --table /tmp/customers

A record with a null value deletes its key. It reads what is in the topic, then ends; started again, it goes on where it ended. A
micro-batch that Spark runs again after a crash changes nothing: it merges the same records, and none is older than its row.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pykafka_wire.local import delta_jars


def upsert(batch: DataFrame, table: str) -> None:
    """One micro-batch into the table: the last record of each key, since a key's records are in one topic-partition, in order."""
    batch.createOrReplaceTempView("micro_batch")
    batch.sparkSession.sql(
        f"""
        MERGE INTO delta.`{table}` AS old
        USING (
            SELECT CAST(key AS STRING) AS key, max_by(struct(CAST(value AS STRING) AS value, offset, timestamp), offset) AS last
            FROM micro_batch GROUP BY key
        ) AS new ON old.key = new.key
        WHEN MATCHED AND new.last.offset > old.offset AND new.last.value IS NULL THEN DELETE
        WHEN MATCHED AND new.last.offset > old.offset THEN
            UPDATE SET value = new.last.value, offset = new.last.offset, timestamp = new.last.timestamp
        WHEN NOT MATCHED AND new.last.value IS NOT NULL THEN
            INSERT (key, value, offset, timestamp) VALUES (new.key, new.last.value, new.last.offset, new.last.timestamp)
        """
    )


def start(spark: SparkSession, bootstrap: str, topic: str, table: str) -> StreamingQuery:
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{table}` (key STRING, value STRING, offset BIGINT, timestamp TIMESTAMP) USING delta"
    )
    return (
        spark.readStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(lambda batch, _: upsert(batch, table))
        .option("checkpointLocation", f"{table}_checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="folder of the Delta table; its checkpoint goes beside it")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("upsert_to_delta")
        .config("spark.jars", ",".join(map(str, delta_jars())))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config(
            "spark.databricks.delta.snapshotPartitions", "2"
        )  # 50 else: tasks that read a table's log of a few files
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    start(spark, arguments.bootstrap, arguments.topic, arguments.table).awaitTermination()
    print(f"{spark.read.format('delta').load(arguments.table).count()} keys in {arguments.table}")
    spark.stop()


if __name__ == "__main__":
    main()
