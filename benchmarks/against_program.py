"""One version of the packages under measurement; see ``against``. Reads names of items, and prints what each run took."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from processes import CpuTime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_TOPIC, LARGE_TOPIC, ZSTD_TOPIC, JSON_TOPIC = "against-small", "against-large", "against-zstd", "against-json"
FEW_TOPIC: Final = "against-few"
WRITTEN_TOPIC: Final = "against-written"
_N_WRITTEN: Final = 500_000
_numbers = itertools.count()


class Measured:
    """What the items are run on: a session of Spark, brokers and a folder."""

    def __init__(self, servers: str) -> None:
        from pyspark.sql import SparkSession

        from pykafka_wire.datasource import PykafkaWireDataSource
        from pykafka_wire.local import delta_jars

        self.folder = tempfile.mkdtemp(prefix="pykafka-wire-against-")
        self.kafka = {"bootstrap.servers": servers}
        settings = {
            "spark.master": "local[2]",
            "spark.jars": ",".join(map(str, delta_jars())),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        self.spark: SparkSession = SparkSession.builder.config(map=settings).getOrCreate()
        self.spark.dataSource.register(PykafkaWireDataSource)
        self._rows: DataFrame | None = None

    def read(self, topic: str) -> DataFrame:
        options = {f"kafka.{name}": value for name, value in self.kafka.items()} | {"subscribe": topic}
        frame: DataFrame = self.spark.read.format("pykafka-wire").options(**options).load()
        return frame

    def rows(self) -> DataFrame:
        """Return rows that are in memory."""
        if self._rows is None:
            text = "cast(repeat(hex(hash(id)), 12) as binary) as value"
            self._rows = self.spark.range(_N_WRITTEN).repartition(2).selectExpr(text).cache()
            self._rows.count()
        return self._rows

    def land(self, **table: Any) -> None:
        from pykafka_wire.ingest import Ingest, Table

        number = next(_numbers)
        ingest = Ingest(
            checkpoint=f"{self.folder}/checkpoint{number}",
            kafka=self.kafka,
            topics=JSON_TOPIC,
            into=f"{self.folder}/tables{number}",
            tables=[Table(topic=JSON_TOPIC, format="json", **table)],
        )
        ingest.start(self.spark, once=True).awaitTermination()
        (status,) = ingest.statuses.values()
        ingest.close()
        if status.error is not None:
            raise RuntimeError(status.error)


def _noop(topic: str) -> Callable[[Measured], None]:
    return lambda measured: measured.read(topic).write.format("noop").mode("overwrite").save()


def _sum(topic: str) -> Callable[[Measured], object]:
    return lambda measured: measured.read(topic).selectExpr("sum(length(value))").collect()


def _write(codec: str) -> Callable[[Measured], None]:
    def write(measured: Measured) -> None:
        options = {f"kafka.{name}": value for name, value in measured.kafka.items()}
        options |= {"topic": WRITTEN_TOPIC, "kafka.compression.type": codec}
        measured.rows().write.format("pykafka-wire").options(**options).mode("append").save()

    return write


ITEMS: Final[dict[str, Callable[[Measured], object]]] = {
    "read few": _sum(FEW_TOPIC),
    "read 100 B": _noop(SMALL_TOPIC),
    "read 100 B into a sum": _sum(SMALL_TOPIC),
    "read 1 KiB": _noop(LARGE_TOPIC),
    "read 1 KiB into a sum": _sum(LARGE_TOPIC),
    "read zstd": _noop(ZSTD_TOPIC),
    "write": _write("none"),
    "write zstd": _write("zstd"),
    "land declared JSON": lambda measured: measured.land(schema="id BIGINT, name STRING, amount DOUBLE, n INT"),
    "land inferred JSON": lambda measured: measured.land(),
}


def main() -> None:
    measured = Measured(sys.argv[1])
    try:
        for line in sys.stdin:
            started = time.perf_counter()
            try:
                with CpuTime(os.getpid()) as cpu:
                    ITEMS[line.strip()](measured)
                found: dict[str, Any] = {"seconds": time.perf_counter() - started, "cpu_seconds": cpu.seconds}
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
            print(json.dumps(found), flush=True)
    finally:
        measured.spark.stop()
        shutil.rmtree(measured.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
