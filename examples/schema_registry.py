"""Avro with a schema registry, and a dead-letter topic for values that cannot be read.

    python examples/schema_registry.py --bootstrap localhost:9092 --registry http://localhost:8081 \\
        --topic orders --clean orders-clean --broken orders-broken

copies the orders of a topic into another, under a schema of its own, and what is no order into a third, with the reason as
a header.
Needs pip install 'pykafka-wire[values]'. All three topics must exist.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import struct

from pykafka_wire.functions import decode_avro, encode_avro
from pykafka_wire.values import Registry

CLEAN = """{"type": "record", "name": "CleanOrder", "fields": [
    {"name": "id", "type": "long"}, {"name": "pieces", "type": "int", "default": 1}]}"""


def clean(spark: SparkSession, bootstrap: str, registry: Registry, topic: str, target: str, broken: str) -> None:
    brokers = {"kafka.bootstrap.servers": bootstrap}
    order = decode_avro(registry, "id BIGINT, pieces INT", on_error="divert")
    read = spark.read.format("pykafka-wire").options(**brokers, subscribe=topic).load()
    read = read.select("key", "value", order("value").alias("order"))

    written = encode_avro(registry, f"{target}-value", schema=CLEAN)
    good = read.where("order.error IS NULL").select("key", "order.value.id", "order.value.pieces")
    good = good.select("key", written(struct("id", "pieces")).alias("value"))
    good.write.format("pykafka-wire").mode("append").options(**brokers, topic=target).save()

    bad = read.where("order.error IS NOT NULL").selectExpr(
        "key", "value", "array(struct('error' AS key, CAST(order.error AS BINARY) AS value)) AS headers"
    )
    bad.write.format("pykafka-wire").mode("append").options(**brokers, topic=broken).save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--registry", required=True, help="http://host:port of the schema registry")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--clean", required=True, help="the topic for orders")
    parser.add_argument("--broken", required=True, help="the topic for what is none")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("schema_registry")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    registry = Registry(arguments.registry)  # basic_auth="env:REGISTRY_USER_INFO" where one must log in
    clean(spark, arguments.bootstrap, registry, arguments.topic, arguments.clean, arguments.broken)
    spark.stop()


if __name__ == "__main__":
    main()
