"""Apply a Debezium topic to a Delta table: it gets the rows that the database's table has, each change once, over restarts.

    python examples/cdc_to_delta.py --bootstrap localhost:9092 --topic shop.public.customers --table /tmp/customers \\
        --key "id BIGINT" --columns "id BIGINT, name STRING, email STRING"

reads Debezium's JSON, with or without schemas.enable. With --registry http://localhost:8081 in place of --key and --columns it
reads Avro. It applies what is in the topic, then ends; started again, it goes on where it ended.

A row's changes are in one topic-partition, in order, since Debezium's key is the row's primary key. Of a micro-batch the newest
change of each key is applied, if its offset is above the one that the table has beside the row. So a micro-batch that Spark runs
again after a crash changes nothing. Do not add partitions to the topic: a row's older and newer changes would be in two of them.

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
        .option("schema.registry.url", registry)
        .option("readerSchema", "latest")  # after a restart, too: start() adds the columns that it brings
        .load()
        .selectExpr("key", "value.op", "value.after", "value IS NULL AS is_tombstone", "offset")
    )


def apply(batch: DataFrame, table: str) -> None:
    """One micro-batch into the table. Neither a delete nor the tombstone behind it has a row after it."""
    keys, row = batch.schema["key"].dataType, batch.schema["after"].dataType
    assert isinstance(keys, StructType) and isinstance(row, StructType)
    batch.createOrReplaceTempView("changes")
    batch.sparkSession.sql(
        f"""
        MERGE INTO delta.`{table}` AS old
        USING (
            SELECT key, max_by(struct(after, offset), offset) AS last FROM (
                SELECT key, offset, CASE
                    WHEN is_tombstone OR op = 'd' THEN NULL
                    WHEN op IN ('c', 'u', 'r') THEN after  -- created, updated, read by a snapshot
                    ELSE raise_error(concat('offset ', offset, ' is no change of a row: its op is ', coalesce(op, 'missing')))
                END AS after FROM changes
            ) GROUP BY key
        ) AS new ON {" AND ".join(f"old.`{name}` = new.key.`{name}`" for name in keys.names)}
        WHEN MATCHED AND new.last.offset > old._offset AND new.last.after IS NULL THEN DELETE
        WHEN MATCHED AND new.last.offset > old._offset THEN
            UPDATE SET {", ".join(f"`{name}` = new.last.after.`{name}`" for name in row.names)}, _offset = new.last.offset
        WHEN NOT MATCHED AND new.last.after IS NOT NULL THEN
            INSERT ({", ".join(f"`{name}`" for name in row.names)}, _offset)
            VALUES ({", ".join(f"new.last.after.`{name}`" for name in row.names)}, new.last.offset)
        """
    )


def ddl(columns: dict[str, str]) -> str:
    return ", ".join(f"`{name}` {type_}" for name, type_ in columns.items())


def start(changes: DataFrame, table: str) -> StreamingQuery:
    row = changes.schema["after"].dataType
    assert isinstance(row, StructType)
    spark, columns = changes.sparkSession, {field.name: field.dataType.simpleString() for field in row}
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({ddl(columns)}, _offset BIGINT) USING delta")
    new = {name: columns[name] for name in columns if name not in spark.table(f"delta.`{table}`").columns}
    if new:
        spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS ({ddl(new)})")
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
    parser.add_argument("--registry", help="http://host:port of the schema registry, for Avro")
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
