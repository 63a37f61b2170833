"""For each cloud a stream that copies a topic, and one task that reads another topic slowly.

Run by tests/connector/test_sign_in.py through `run_searched`: `sign_in_program.py FOLDER`, where FOLDER/given.json has for each
cloud the options and topics. The clouds' libraries find their stubs by the environment, in the tasks too. It prints when each
stream and each task began and ended, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

folder = Path(sys.argv[1])
given: dict[str, Any] = json.loads((folder / "given.json").read_text())
spark = SparkSession.builder.getOrCreate()


def copy(cloud: str, each: dict[str, Any]) -> dict[str, Any]:
    """From when to when a stream copied records that the test kept writing: for `stream_s` at least."""
    options = {**each["options"], "kafka.trace": str(folder / f"trace-{cloud}-stream")}
    began = time.time()
    query = (
        spark.readStream.format("pykafka-wire")
        .options(**options, subscribe=each["source"], startingOffsets="earliest")
        .load()
        .select("value")
        .writeStream.format("pykafka-wire")
        .options(**options, topic=each["copy"])
        .option("checkpointLocation", str(folder / f"checkpoint-{cloud}"))
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    # The micro-batch that ends this began after `stream_s`, and has records.
    last_id = -1
    while not query.awaitTermination(1):
        progress = query.lastProgress
        if time.time() < began + given["stream_s"]:
            last_id = progress.batchId if progress else -1
        elif progress and progress.batchId > last_id + 1 and progress.numInputRows:
            break
    query.stop()
    return {"began": began, "ended": time.time()}


def read_slowly(cloud: str, each: dict[str, Any]) -> dict[str, Any]:
    """From when to when one task read a topic under a quota of the broker, and how many records."""
    frame = (
        spark.read.format("pykafka-wire")
        .options(**each["options"], assign=json.dumps({each["slow"]: [0]}))
        .option("kafka.client.id", given["slow_client_id"])
        .option("kafka.fetch.max.bytes", "200000")
        .option("kafka.trace", str(folder / f"trace-{cloud}-task"))
        .load()
        .selectExpr("count(value) AS n_records")
    )
    frame.explain("extended")
    began = time.time()
    (row,) = frame.collect()
    return {"began": began, "ended": time.time(), **row.asDict()}


for cloud, each in given["clouds"].items():
    print(json.dumps({"cloud": cloud, "stream": copy(cloud, each), "task": read_slowly(cloud, each)}), flush=True)
spark.stop()
