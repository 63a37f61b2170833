"""Read a range of a Kafka topic once: the last hour, a day, everything, with JSON values as columns.

    python examples/batch_read.py --bootstrap localhost:9092 --topic orders --since=-1h
    python examples/batch_read.py --bootstrap localhost:9092 --topic orders --since 2026-03-01 --until 2026-03-02

The values are orders as examples/write_topic.py writes them. A value that is not such JSON is printed
with its place and the reason; the others are summed up.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from pykafka_wire.functions import decode_json


def orders_between(spark: SparkSession, bootstrap: str, topic: str, since: str | None, until: str | None) -> None:
    source = (
        spark.read.format("pykafka-wire").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    )  # from the earliest record to the latest, unless options name others
    if since is not None:
        source = source.option("startingTimestamp", since).option("startingOffsetsByTimestampStrategy", "latest")
    if until is not None:
        source = source.option("endingTimestamp", until)

    order = decode_json("order BIGINT, pieces INT", on_error="divert")
    read = source.load().select("partition", "offset", "timestamp", order("value").alias("order")).cache()
    good = read.where("order.error IS NULL").select("timestamp", "order.value.*")
    good.selectExpr("count(*) AS orders", "sum(pieces) AS pieces", "min(timestamp)", "max(timestamp)").show(
        truncate=False
    )
    for row in read.where("order.error IS NOT NULL").limit(10).collect():
        print(f"partition {row.partition}, offset {row.offset}: {row.order.error}")
    read.unpersist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--since", help="a date or time (ISO-8601), or --since=-10m, -1h, -7d")
    parser.add_argument("--until", help="as --since")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("batch_read")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    orders_between(spark, arguments.bootstrap, arguments.topic, arguments.since, arguments.until)
    spark.stop()


if __name__ == "__main__":
    main()
