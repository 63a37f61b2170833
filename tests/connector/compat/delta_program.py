"""A topic as a stream into a Delta table (into Parquet where there is no Delta). Prints RESULT and its rows: see test_compat.py."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

SERVERS, TOPIC, FOLDER, SETTINGS = sys.argv[1:]

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
settings = json.loads(SETTINGS)
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
table = "delta" if settings else "parquet"
topic = {"kafka.bootstrap.servers": SERVERS, "subscribe": TOPIC, "startingOffsets": "earliest"}
stream = spark.readStream.format("pykafka-wire").options(**topic).load()
writer = (
    stream.writeStream.format(table).option("checkpointLocation", f"{FOLDER}/checkpoint").trigger(availableNow=True)
)
assert writer.start(f"{FOLDER}/table").awaitTermination(200)
print("RESULT", spark.read.format(table).load(f"{FOLDER}/table").count())
spark.stop()
