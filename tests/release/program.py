"""What a new user tries first, in a Python environment of its own: see test_release.py. Prints DONE and what it has read."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

SERVERS, TOPIC, KIND = sys.argv[1:]

spark = SparkSession.builder.getOrCreate()
if KIND == "registered":
    from pykafka_wire import PykafkaWireDataSource

    spark.dataSource.register(PykafkaWireDataSource)

rows = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "to_json(struct(id)) AS value")
brokers = {"kafka.bootstrap.servers": SERVERS}
rows.write.format("pykafka-wire").mode("append").options(**brokers, topic=TOPIC).save()
print("DONE", spark.read.format("pykafka-wire").options(**brokers, subscribe=TOPIC).load().count())
spark.stop()
