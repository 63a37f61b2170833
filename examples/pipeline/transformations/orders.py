"""A topic as a streaming table, a materialized view over it, and two sinks into topics: at least once and exactly once."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

spark = SparkSession.active()
BROKERS = {"kafka.bootstrap.servers": spark.conf.get("orders.bootstrap.servers")}


@dp.table
def orders() -> DataFrame:
    """The topic orders: JSON values, with where each record stood."""
    return (
        spark.readStream.format("pykafka-wire")
        .options(**BROKERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", "id BIGINT, country STRING, amount DOUBLE")
        .load()
        .select("value.*", "partition", "offset", "timestamp")
    )


@dp.materialized_view
def amount_by_country() -> DataFrame:
    table = spark.read.table("orders")
    return table.groupBy("country").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


def large_orders() -> DataFrame:
    """What the sinks write. A flow cannot read a sink, so both read the table."""
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.selectExpr("country AS key", "to_json(struct(id, amount)) AS value")


dp.create_sink("large_orders_sink", "pykafka-wire", {**BROKERS, "topic": "large-orders"})
dp.create_sink(
    "large_orders_once_sink",
    "pykafka-wire",
    {
        **BROKERS,
        "topic": "large-orders-once",
        "deliveryGuarantee": "exactly-once",
        "kafka.transactional.id": "large-orders-pipeline",
    },
)


@dp.append_flow(target="large_orders_sink")
def large_orders_flow() -> DataFrame:
    return large_orders()


@dp.append_flow(target="large_orders_once_sink")
def large_orders_once_flow() -> DataFrame:
    return large_orders()
