"""What a program does on any deployment: batch write and read, a stream, the sink by each guarantee. Prints RESULT and JSON.

Arguments: how the package gets there (installed; py-files; addPyFile; artifact), the wheel under the name that this way needs,
servers, a folder, a topic to read, and a topic for each guarantee that is wanted, in the order of GUARANTEES.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

WAY, WHEEL, SERVERS, FOLDER, SOURCE, *TARGETS = sys.argv[1:]
BROKERS = {"kafka.bootstrap.servers": SERVERS}
N_ROWS = 100
#: Of the process that follows the path (Linux).
WORKING_FOLDER = Path("/proc/self/cwd")
GUARANTEES = {
    "at-least-once": {},
    "exactly-once": {"deliveryGuarantee": "exactly-once"},
    "through the tasks": {"deliveryGuarantee": "exactly-once", "transactions": "tasks"},
}


def session() -> Any:
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    if WAY == "py-files" and WORKING_FOLDER.exists():  # a path that leads nowhere in executors, as on other machines
        sys.path[:] = [entry.replace(str(Path.cwd()), str(WORKING_FOLDER)) for entry in sys.path]
    if WAY == "addPyFile":
        spark.sparkContext.addPyFile(WHEEL)
    if WAY == "artifact":  # on the server, and here on the client
        spark.addArtifacts(WHEEL, pyfile=True)
    if WAY != "installed":  # Spark's lookup sees installed packages only
        from pykafka_wire import PykafkaWireDataSource

        spark.dataSource.register(PykafkaWireDataSource)
    if WAY == "artifact":
        importlib.import_module("pykafka_wire.metrics")  # what the client still needs of its file
        Path(WHEEL).unlink()  # a server elsewhere does not see the client's files
    return spark


def count(spark: Any, topic: str) -> int:
    """Committed records: those of exactly-once writes are read as their readers must."""
    options = {**BROKERS, "subscribe": topic, "kafka.isolation.level": "read_committed", "minPartitions": "4"}
    return int(spark.read.format("pykafka-wire").options(**options).load().where("value IS NOT NULL").count())


def copy(spark: Any, topic: str, options: dict[str, str]) -> int:
    """A stream from SOURCE to a topic; returns how many records the topic has afterwards."""
    stream = spark.readStream.format("pykafka-wire").options(**BROKERS, subscribe=SOURCE, startingOffsets="earliest")
    listener = None
    if options:
        options = {**options, "kafka.transactional.id": topic}
    else:  # also what the tasks report, from wherever the executors are
        from pykafka_wire.metrics import MetricsListener, QueryFigures

        stream = stream.options(taskMetrics="driver", maxOffsetsPerTrigger="40")
        listener = MetricsListener(QueryFigures())
        spark.streams.addListener(listener)
    sink = stream.load().select("key", "value").writeStream.format("pykafka-wire").options(**BROKERS, **options)
    query = (
        sink.option("topic", topic).option("checkpointLocation", f"{FOLDER}/{topic}").trigger(availableNow=True).start()
    )
    assert query.awaitTermination(120), "the query did not end"
    if listener is not None:
        assert listener.wait_for_end(query)
        (n_records,) = listener.figures.values("kafka_consumer_fetch_manager_records_consumed_total").values()
        assert 0 < n_records < N_ROWS, n_records  # without the last micro-batch's
    return count(spark, topic)


def main() -> None:
    spark = session()
    rows = spark.range(N_ROWS).selectExpr("CAST(id AS STRING) AS key", "to_json(struct(id)) AS value")
    rows.write.format("pykafka-wire").mode("append").options(**BROKERS, topic=SOURCE).save()
    found = {"batch": count(spark, SOURCE)}
    for (name, options), topic in zip(GUARANTEES.items(), TARGETS, strict=False):
        found[name] = copy(spark, topic, options)
    spark.stop()
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
