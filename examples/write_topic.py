"""Write a DataFrame to a Kafka topic: keys, JSON values, headers.

    python examples/write_topic.py --bootstrap localhost:9092 --topic orders --rows 1000

The topic must exist (`make cluster TOPIC=orders:3` makes one): brokers that create topics by themselves are rare, and this
sink never asks them to.
Rows with the same key go to the same partition, by the same hash as Kafka's Java clients use.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("write_topic")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    orders = spark.range(arguments.rows).selectExpr(
        "concat('customer-', id % 100) AS key",
        "to_json(struct(id AS order, id % 7 + 1 AS pieces)) AS value",
        "array(struct('source' AS key, CAST('write_topic' AS BINARY) AS value)) AS headers",
    )
    (
        orders.write.format("pykafka-wire")
        .mode("append")  # the only mode: a topic cannot be overwritten
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("kafka.compression.type", "lz4")
        .option("topic", arguments.topic)
        .save()
    )
    print(f"{arguments.rows} records written to {arguments.topic}")
    spark.stop()


if __name__ == "__main__":
    main()
