"""Watch how far a streaming query is behind: a line per micro-batch, from a listener that is added in one line.

    python examples/lag_listener.py --bootstrap localhost:9092 --topic orders

reads the topic from its beginning, 1000 offsets at a time, and throws the records away. Needs Spark 4.2; with SPARK_REMOTE set
(local[2] will do) it runs through Spark Connect.
"""

from __future__ import annotations

import argparse
import tempfile

from pyspark.sql import SparkSession

from pykafka_wire import LagListener
from pykafka_wire.lag_listener import QueryLag


def show(lag: QueryLag) -> None:
    print(
        f"batch {lag.batch_id}: {lag.total_offsets_behind} offsets behind, about {lag.bytes_behind} bytes; "
        f"{lag.commit_successes} commits to {lag.group}, {lag.commit_failures} failed; {lag.lost_offsets} offsets lost",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--offsets-per-batch", default="1000")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("lag_listener").getOrCreate()
    listener = LagListener(show)
    spark.streams.addListener(listener)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("pykafka-wire")
            .option("kafka.bootstrap.servers", arguments.bootstrap)
            .option("subscribe", arguments.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", arguments.offsets_per_batch)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    # Spark Connect's removeListener hangs while an event is on its way.
    if listener.wait_for_end(query):
        spark.streams.removeListener(listener)
    else:
        print("the query's end was not reported within a minute", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
