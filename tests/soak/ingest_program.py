"""An ingest as a program of its own, for a test that kills it: ``tests.soak.ingest_program SETTINGS.toml [once] [few] [jobs]``.

``few`` is for tables of few rows: nothing is compiled for them. With ``jobs`` the driver writes no file itself, though records be
few.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from pykafka_wire.ingest import Ingest
from pykafka_wire.ingest.landing import by_tasks as file_landing
from pykafka_wire.local import delta_jars, ensure_java, export_java_home


def main(file: str, *, once: bool, few: bool, jobs: bool) -> None:
    if jobs:
        file_landing._FEW_RECORDS = -1  # type: ignore[misc]
    export_java_home(ensure_java())
    builder = (
        SparkSession.builder.master("local[2,4]")  # else no task of a worker that was killed runs again
        .config("spark.jars", ",".join(map(str, delta_jars())))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
    )
    if few:
        builder = builder.config("spark.sql.codegen.wholeStage", "false").config(
            "spark.sql.codegen.factoryMode", "NO_CODEGEN"
        )
    spark = builder.getOrCreate()
    ingest = Ingest.from_file(file)
    query = ingest.start(spark, once=once, every="1 second")
    query.awaitTermination()
    for status in ingest.statuses.values():
        print(status.topic, status.rows, status.rejects, status.error, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], once="once" in sys.argv[2:], few="few" in sys.argv[2:], jobs="jobs" in sys.argv[2:])
