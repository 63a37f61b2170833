"""Copy a topic into another one, each record exactly once, even if processes crash.

    python examples/exactly_once.py --bootstrap localhost:9092 --source orders --target orders-copy --checkpoint /tmp/copy

copies what is in the source, then ends; started again, it continues where it ended. Kill it as often as you like: a reader with
isolation.level=read_committed finds every record once, in the order of its partition. Both topics must exist, with the same
number of partitions.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True, help="folder of the query's checkpoint: keep it with the target")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("exactly_once")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    source = (
        spark.readStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", "100000")  # all of a micro-batch passes through the driver
        .load()
    )
    query = (
        source.select("key", "value", "headers", "partition", "timestamp")  # to the same partition, with the same time
        .writeStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("topic", arguments.target)
        .option("deliveryGuarantee", "exactly-once")
        .option("kafka.transactional.id", f"copy-to-{arguments.target}")  # the same at every start, and nobody else's
        .option("kafka.compression.type", "lz4")
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = sum(progress["numInputRows"] for progress in query.recentProgress)
    print(f"{copied} records copied to {arguments.target} by this run")
    spark.stop()


if __name__ == "__main__":
    main()
