"""Apply a Debezium topic to a Delta table: it gets the rows that the database's table has, each change once, over restarts.

    python examples/cdc_to_delta.py --bootstrap localhost:9092 --topic shop.public.customers --table /tmp/customers \\
        --key "id BIGINT" --columns "id BIGINT, name STRING, email STRING"

reads Debezium's JSON, with or without schemas.enable. With --registry http://localhost:8081 in place of --key and --columns it
reads Avro. It applies what is in the topic, then ends; started again, it continues where it ended.

A row's changes are in one topic-partition, in order, since Debezium's key is the row's primary key. Of a micro-batch the newest
change of each key is applied, if its offset is above the one that the table has beside the row. So a micro-batch that Spark runs
again after a crash changes nothing.

The query fails at a change without a primary key, and at a row whose changes are in two topic-partitions, since nothing shows which
is newer. A row moves to another topic-partition when the topic gets more partitions, or when Debezium writes keys in other bytes
(another converter, schemas.enable, a new schema of the key). Let Debezium write a new topic then, from a snapshot on, and apply it
to a new table; also when the topic was deleted and created again.

PostgreSQL leaves large values that did not change out of an update, and Debezium writes a placeholder for them, which would get
into the table: set REPLICA IDENTITY FULL on the database's table.

A column that is new in the database is new in the table from the query's next start on (for JSON: with its name in --columns).
Rows that were applied before have null there, up to their next change.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pykafka_wire.local import delta_jars


def read_json(spark: SparkSession, bootstrap: str, topic: str, key: str, columns: str) -> DataFrame:
    """Changes as Kafka Connect's JsonConverter writes them: with schemas.enable all of it is under the field payload."""
    names = StructType.fromDDL(key).names
    change = f"op STRING, after STRUCT<{columns}>"
    return (
        spark.readStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("keyFormat", "json")
        .option("keySchema", f"{key}, payload STRUCT<{key}>")
        .option("valueFormat", "json")
        .option("valueSchema", f"{change}, payload STRUCT<{change}>")
        .load()
        .selectExpr(
            f"struct({', '.join(f'coalesce(key.payload.`{name}`, key.`{name}`) AS `{name}`' for name in names)}) AS key",
            "coalesce(value.payload.op, value.op) AS op",
            "coalesce(value.payload.after, value.after) AS after",
            "value IS NULL AS is_tombstone",
            "partition",
            "offset",
        )
    )


def read_avro(spark: SparkSession, bootstrap: str, topic: str, registry: str) -> DataFrame:
    """Changes as Confluent's AvroConverter writes them; their columns are those of the newest schemas at its start."""
    return (
        spark.readStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("keyFormat", "avro")
        .option("valueFormat", "avro")
        .option("schema.registry.url", registry)  # and its credentials, as in docs/registry.md
        .option("readerSchema", "latest")  # after a restart, too: start() adds the columns that it brings
        .load()
        .selectExpr("key", "value.op", "value.after", "value IS NULL AS is_tombstone", "partition", "offset")
    )


def apply(batch: DataFrame, table: str) -> None:
    """One micro-batch into the table. Neither a delete nor the tombstone behind it has a row after it."""
    keys, row = batch.schema["key"].dataType, batch.schema["after"].dataType
    assert isinstance(keys, StructType) and isinstance(row, StructType)
    has_key = " AND ".join(f"key.`{name}` IS NOT NULL" for name in keys.names)
    has_two_partitions = "raise_error(concat('the changes of row ', to_json(new.key), ' are in two topic-partitions'))"
    new_row = {f"`{name}`": f"new.last.after.`{name}`" for name in row.names}
    new_row |= {"_partition": "new.partition", "_offset": "new.last.offset"}
    batch.createOrReplaceTempView("changes")
    batch.sparkSession.sql(
        f"""
        MERGE INTO delta.`{table}` AS old
        USING (
            SELECT key, max_by(struct(after, offset), offset) AS last,
                if(min(partition) = max(partition), min(partition), {has_two_partitions}) AS partition
            FROM (
                SELECT key, partition, offset, CASE
                    WHEN {has_key} AND (is_tombstone OR op = 'd') THEN NULL
                    -- created, updated, read by a snapshot
                    WHEN {has_key} AND op IN ('c', 'u', 'r') AND after IS NOT NULL THEN after
                    ELSE raise_error(concat(
                        'partition ', partition, ', offset ', offset, ' is no change of a row with a primary key: its key is ',
                        coalesce(to_json(key), 'missing'), ', its op ', coalesce(op, 'missing')
                    ))
                END AS after FROM changes
            ) AS new GROUP BY key
        ) AS new ON {" AND ".join(f"old.`{name}` = new.key.`{name}`" for name in keys.names)}
        WHEN MATCHED AND new.partition <> old._partition THEN UPDATE SET _partition = {has_two_partitions}
        WHEN MATCHED AND new.last.offset > old._offset AND new.last.after IS NULL THEN DELETE
        WHEN MATCHED AND new.last.offset > old._offset THEN
            UPDATE SET {", ".join(f"{name} = {value}" for name, value in new_row.items())}
        WHEN NOT MATCHED AND new.last.after IS NOT NULL THEN
            INSERT ({", ".join(new_row)}) VALUES ({", ".join(new_row.values())})
        """
    )


def create_or_widen(spark: SparkSession, table: str, row: StructType) -> None:
    """The table with all columns of a row, and where the row's newest change is from."""
    columns = {field.name: f"`{field.name}` {field.dataType.simpleString()}" for field in row}
    places = "_partition INT, _offset BIGINT"
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({', '.join(columns.values())}, {places}) USING delta")
    known = spark.table(f"delta.`{table}`").columns
    new = [column for name, column in columns.items() if name not in known]
    if new:
        spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS ({', '.join(new)})")


def start(changes: DataFrame, table: str) -> StreamingQuery:
    row = changes.schema["after"].dataType
    assert isinstance(row, StructType)
    create_or_widen(changes.sparkSession, table, row)
    return (
        changes.writeStream.foreachBatch(lambda batch, _: apply(batch, table))
        .option("checkpointLocation", f"{table}_checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="folder of the Delta table; its checkpoint goes beside it")
    parser.add_argument("--registry", help="URL of the schema registry, for Avro; read_avro() takes its credentials")
    parser.add_argument("--key", help="for JSON: the primary key's columns, as DDL")
    parser.add_argument("--columns", help="for JSON: the table's columns, as DDL; those of the key are among them")
    arguments = parser.parse_args()
    if not arguments.registry and not (arguments.key and arguments.columns):
        parser.error("give --registry for Avro, or --key and --columns for JSON")

    spark = (
        SparkSession.builder.appName("cdc_to_delta")
        .config("spark.jars", ",".join(map(str, delta_jars())))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config(
            "spark.databricks.delta.snapshotPartitions", "2"
        )  # 50 else: tasks that read a table's log of a few files
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    if arguments.registry:
        changes = read_avro(spark, arguments.bootstrap, arguments.topic, arguments.registry)
    else:
        changes = read_json(spark, arguments.bootstrap, arguments.topic, arguments.key, arguments.columns)
    start(changes, arguments.table).awaitTermination()
    print(f"{spark.read.format('delta').load(arguments.table).count()} rows in {arguments.table}")
    spark.stop()


if __name__ == "__main__":
    main()
