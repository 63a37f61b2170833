"""Write and read a topic through a Spark Connect server: this program needs only pyspark[connect], the server needs pykafka-wire.

    python examples/spark_connect.py --bootstrap localhost:9092 --topic orders --remote sc://localhost:15002

conf/spark-connect.conf says how to start a server. The brokers' addresses are looked up from there, not from here.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, as the server sees them")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--remote", required=True, help="the server: sc://host:port")
    arguments = parser.parse_args()

    spark = SparkSession.builder.remote(arguments.remote).getOrCreate()
    brokers = {"kafka.bootstrap.servers": arguments.bootstrap}
    rows = spark.range(100).selectExpr("CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value")
    rows.write.format("pykafka-wire").mode("append").options(**brokers, topic=arguments.topic).save()

    records = spark.read.format("pykafka-wire").options(**brokers, subscribe=arguments.topic).load()
    print(f"{records.count()} records with {records.select('key').distinct().count()} keys in {arguments.topic}")
    spark.stop()


if __name__ == "__main__":
    main()
