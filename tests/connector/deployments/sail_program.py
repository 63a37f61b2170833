"""What works on Sail: see test_sail.py. Prints RESULT and, as JSON, what each step has found, or its error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from pykafka_wire import PykafkaWireDataSource

SERVERS, SOURCE, TARGET, FOLDER = sys.argv[1:]
BROKERS = {"kafka.bootstrap.servers": SERVERS}


def read(spark: Any, topic: str, schema: str = "", **options: str) -> Any:
    reader = spark.read.format("pykafka-wire").options(**BROKERS, subscribe=topic, **options)
    return (reader.schema(schema) if schema else reader).load()


def counts(frame: Any) -> list[list[int]]:
    return sorted(list(row) for row in frame.groupBy("partition").count().collect())


def write(spark: Any) -> int:
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    rows.write.format("pykafka-wire").mode("append").options(**BROKERS, topic=TARGET).save()
    return int(read(spark, TARGET).select("value").distinct().count())


def table(spark: Any) -> int:
    options = f"`kafka.bootstrap.servers` '{SERVERS}', subscribe '{SOURCE}'"
    spark.sql(f"CREATE TABLE orders USING `pykafka-wire` OPTIONS ({options})").collect()
    return int(spark.sql("SELECT count(*) FROM orders").collect()[0][0])


def view(spark: Any) -> int:
    spark.sql(f"CREATE TEMPORARY VIEW v USING `pykafka-wire` OPTIONS (subscribe '{SOURCE}')").collect()
    return int(spark.sql("SELECT count(*) FROM v").collect()[0][0])


def stream(spark: Any) -> int:
    """Rows in a table after two runs of a stream into it."""
    for _ in range(2):
        frame = spark.readStream.format("pykafka-wire").options(**BROKERS, subscribe=SOURCE, startingOffsets="earliest")
        writer = frame.load().select("value").writeStream.format("parquet").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{FOLDER}/checkpoint").start(f"{FOLDER}/table").awaitTermination(30)
    return int(spark.read.parquet(f"{FOLDER}/table").count())


def stream_into_a_topic(spark: Any) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    writer = rows.writeStream.format("pykafka-wire").options(**BROKERS, topic=TARGET)
    writer.option("checkpointLocation", f"{FOLDER}/sink").start().awaitTermination(30)


def steps(spark: Any) -> dict[str, Callable[[], Any]]:
    json_values = {"valueFormat": "json", "valueSchema": "BIGINT"}
    with_headers = "offset bigint, headers array<struct<key: string, value: binary>>"
    recent = "timestamp > timestamp'2020-01-01 00:00:00'"
    filtered = f"partition = 1 AND offset >= 5 AND {recent}"
    return {
        "read": lambda: counts(read(spark, SOURCE)),
        "read by more tasks": lambda: counts(read(spark, SOURCE, minPartitions="8")),
        "type of the timestamp": lambda: read(spark, SOURCE).schema["timestamp"].dataType.simpleString(),
        "timestamp under a schema": lambda: read(spark, SOURCE, "timestamp timestamp").where(recent).count(),
        "filters": lambda: read(spark, SOURCE).where(filtered).count(),
        "filters for the source": lambda: read(spark, SOURCE, filterPushdown="true").where(filtered).count(),
        "write": lambda: write(spark),
        "headers": lambda: read(spark, SOURCE, includeHeaders="true").count(),
        "headers under a schema": lambda: len(read(spark, SOURCE, with_headers, includeHeaders="true").collect()),
        "values": lambda: read(spark, TARGET, **json_values).count(),
        "values under a schema": lambda: read(spark, TARGET, "value bigint", **json_values).groupBy().sum().first()[0],
        "a table in SQL": lambda: table(spark),
        "a view in SQL": lambda: view(spark),
        "a mistyped option": lambda: read(spark, SOURCE, startingOffset="earliest").count(),
        "a stream from a topic": lambda: stream(spark),
        "a stream into a topic": lambda: stream_into_a_topic(spark),
    }


def main() -> None:
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    spark.dataSource.register(PykafkaWireDataSource)
    found: dict[str, Any] = {}
    for name, step in steps(spark).items():
        try:
            found[name] = step()
        except Exception as error:
            found[name] = " ".join(str(error).split())
    spark.stop()
    server.stop()
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
