# Databricks notebook source
# MAGIC %md
# MAGIC Each topic that matches a pattern, as a table of Unity Catalog. `databricks.yml` runs it every ten minutes, with the
# MAGIC wheel of pykafka-wire as a library. A table that is stopped fails the run, after the others are landed.

# COMMAND ----------

for name in ("bootstrap", "topics", "schema", "registry", "checkpoint", "user"):
    dbutils.widgets.text(name, "")
bootstrap, topics, schema, registry, checkpoint, user = (
    dbutils.widgets.get(name) for name in ("bootstrap", "topics", "schema", "registry", "checkpoint", "user")
)

# COMMAND ----------

from pykafka_wire.ingest import Ingest

ingest = Ingest(
    checkpoint=checkpoint,
    kafka={
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": "env:KAFKA_PASSWORD",
    },
    topics=topics,
    into=schema,
    registry=registry,
)
ingest.start(spark, once=True).awaitTermination()
stopped = [f"{each.name}: {each.error}" for each in ingest.statuses.values() if each.error]
assert not stopped, "\n".join(stopped)
