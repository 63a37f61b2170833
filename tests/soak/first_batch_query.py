"""A query into Parquet as a process of its own, which stops in its first batch at a given step; see test_first_batch.py.

    python first_batch_query.py SERVERS TOPIC FOLDER STEP

STEP: ``reading`` stops a task in the middle of its records, ``written`` the driver before the batch is committed; else the query
runs until it is killed, or, for ``on``, to the end of what is there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession


def main() -> None:
    servers, topic, where, step = sys.argv[1:]
    folder = Path(where)
    at_step = folder / step

    def stop_here() -> None:
        at_step.touch()
        time.sleep(3600)  # until the kill

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if step == "reading" and batch.num_rows:
                stop_here()

    def write(batch: Any, batch_id: int) -> None:
        # Named by the batch, so that its replay takes its place.
        batch.write.mode("overwrite").parquet(str(folder / "table" / f"batch={batch_id}"))
        if step == "written" and batch_id == 0:
            stop_here()

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    writer = (
        spark.readStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "latest")
        .load()
        .select("partition", "offset", "value")
        .mapInArrow(pass_on, "partition int, offset long, value binary")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = (writer.trigger(availableNow=True) if step == "on" else writer.trigger(processingTime="0 seconds")).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
