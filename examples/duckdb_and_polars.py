"""A topic in DuckDB and in Polars, without Spark.

    python examples/duckdb_and_polars.py --bootstrap localhost:9092 --topic orders

reads JSON values such as {"country": "NO", "amount": 1.5}, all that the topic has: DuckDB adds up the amounts of each country while
records arrive, and Polars takes the records of the last hour as a DataFrame.
"""

from __future__ import annotations

import argparse

import duckdb
import polars

from pykafka_wire import read_topic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    arguments = parser.parse_args()
    options = {
        "kafka.bootstrap.servers": arguments.bootstrap,
        "subscribe": arguments.topic,
        "valueFormat": "json",
        "valueSchema": "country STRING, amount DOUBLE",
    }

    # DuckDB takes one batch after the other: the topic need not fit into memory.
    with duckdb.connect() as database, read_topic(options, columns=["value"]) as reader:
        database.register("orders", reader)
        amounts = database.sql(
            "SELECT value.country, sum(value.amount) FROM orders GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    for country, amount in amounts:
        print(f"{country}: {amount}")

    since = {"startingTimestamp": "-1h", "startingOffsetsByTimestampStrategy": "latest"}
    frame = polars.from_arrow(read_topic(options | since, columns=["timestamp", "value"])).unnest("value")
    largest = frame.sort("amount", descending=True, nulls_last=True).head(1)
    for row in largest.iter_rows(named=True):
        print(f"{len(frame)} orders within an hour, the largest from {row['country']}: {row['amount']}")


if __name__ == "__main__":
    main()
