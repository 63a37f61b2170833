"""Read from a secured cluster: TLS and SCRAM (SASL_SSL), the password in a file.

    python examples/secured_cluster.py --bootstrap localhost:9093 --topic orders \\
        --ca ca.pem --user alice --password-file /run/secrets/kafka

The password itself is in no option, no plan and no log: "file:…" is looked up wherever a connection is opened, so the file must be
on every executor. `pykafka-wire doctor` takes the same settings and says what is wrong with them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, bootstrap: str, topic: str, *, ca: Path, user: str, password_file: Path) -> DataFrame:
    return (
        spark.read.format("pykafka-wire")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.security.protocol", "SASL_SSL")
        .option(
            "kafka.ssl.truststore.location", str(ca.resolve())
        )  # PEM; not needed where a public authority has signed
        .option("kafka.sasl.mechanism", "SCRAM-SHA-512")
        .option("kafka.sasl.username", user)
        .option("kafka.sasl.password", f"file:{password_file.resolve()}")
        .option("subscribe", topic)
        .load()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of one broker or more, with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--ca", required=True, type=Path, help="the authority that signed the brokers' certificates, PEM"
    )
    parser.add_argument("--user", required=True)
    parser.add_argument("--password-file", required=True, type=Path)
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("secured_cluster")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    login = {"ca": arguments.ca, "user": arguments.user, "password_file": arguments.password_file}
    records = read(spark, arguments.bootstrap, arguments.topic, **login)
    print(f"{records.count()} records in {arguments.topic}")
    spark.stop()


if __name__ == "__main__":
    main()
