"""Stream a Kafka topic into a Delta table, from its first record on.

    python examples/stream_to_delta.py --bootstrap localhost:9092 --topic orders --table /tmp/orders

reads what is in the topic, then ends; started again, it goes on where it ended. With --follow it runs until Ctrl-C.
`make cluster TOPIC=orders:3` gives you a broker and a topic to try it on, examples/write_topic.py something to read.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from pykafka_wire.local import delta_jars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="folder of the Delta table; its checkpoint goes beside it")
    parser.add_argument("--follow", action="store_true", help="do not end at the end of the topic")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("stream_to_delta")
        .config("spark.jars", ",".join(map(str, delta_jars())))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config(
            "spark.databricks.delta.snapshotPartitions", "2"
        )  # 50 else: tasks that read a table's log of a few files
        .config("spark.python.unix.domain.socket.enabled", "true")  # 45 ms less for every micro-batch
        .getOrCreate()
    )
    topic = (
        spark.readStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")  # only for the first start: then the checkpoint says where to go on
        .load()
    )
    writer = topic.writeStream.format("delta").option("checkpointLocation", f"{arguments.table}_checkpoint")
    writer = writer.trigger(processingTime="1 second") if arguments.follow else writer.trigger(availableNow=True)
    query = writer.start(arguments.table)
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()

    written = sum(progress["numInputRows"] for progress in query.recentProgress)
    in_table = spark.read.format("delta").load(arguments.table).count()
    print(f"{written} records written by this run, {in_table} in {arguments.table}")
    spark.stop()


if __name__ == "__main__":
    main()
