# Databricks notebook source
# MAGIC %md
# MAGIC What has come into a Kafka topic since the last run, into a Unity Catalog table. `databricks.yml` runs it every ten
# MAGIC minutes, with the wheel of pykafka-wire as a library.

# COMMAND ----------

for name in ("bootstrap", "topic", "table", "checkpoint", "user"):
    dbutils.widgets.text(name, "")
bootstrap, topic, table, checkpoint, user = (
    dbutils.widgets.get(name) for name in ("bootstrap", "topic", "table", "checkpoint", "user")
)

# COMMAND ----------

# A library that is installed after Spark has looked for data sources is not found by its name alone.
from pykafka_wire import PykafkaWireDataSource

spark.dataSource.register(PykafkaWireDataSource)

# COMMAND ----------

orders = (
    spark.readStream.format("pykafka-wire")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("kafka.security.protocol", "SASL_SSL")
    .option("kafka.sasl.mechanism", "SCRAM-SHA-512")
    .option("kafka.sasl.username", user)
    .option("kafka.sasl.password", "env:KAFKA_PASSWORD")
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    orders.selectExpr(
        "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "partition", "offset", "timestamp"
    )
    .writeStream.option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .toTable(table)
)
query.awaitTermination()
