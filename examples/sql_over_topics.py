"""Query a Kafka topic in SQL directly: no table, no copy.

    python examples/sql_over_topics.py --bootstrap localhost:9092 --topic orders
    python examples/sql_over_topics.py --bootstrap localhost:9092 --topic orders \\
        --query "SELECT CAST(key AS STRING), count(*) FROM topic GROUP BY key"

The query sees the topic as a view named topic, with the columns key, value, topic, partition, offset, timestamp and
timestampType. It reads what is there when it starts.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

PER_PARTITION = """
    SELECT partition, count(*) AS records, min(offset) AS first, max(offset) AS last, max(timestamp) AS newest
    FROM topic GROUP BY partition ORDER BY partition
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True, help="one topic, or several with commas")
    parser.add_argument("--query", default=PER_PARTITION, help="SQL over the view topic")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("sql_over_topics")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    # The dash in the source's name needs backticks, as do the dots in an option's.
    spark.sql(
        f"""CREATE TEMPORARY VIEW topic USING `pykafka-wire`
            OPTIONS (`kafka.bootstrap.servers` '{arguments.bootstrap}', subscribe '{arguments.topic}')"""
    )
    spark.sql(arguments.query).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
