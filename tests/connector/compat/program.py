"""What must work on every Spark version, run by that version's own Python environment: see test_compat.py.

Prints RESULT and a JSON object; a wrong result fails here, with a traceback.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import fetch_offsets
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

SERVERS, SOURCE, TARGET, FOLDER, REMOTE = sys.argv[1:]  # the last one empty in a classic session
VERSION = tuple(int(number) for number in pyspark.__version__.split(".")[:2])
BROKERS = {"kafka.bootstrap.servers": SERVERS}
N_RECORDS = 30
DEADLINE_S = 60.0


def places(frame: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def failure(action: Callable[[], Any]) -> str:
    try:
        action()
    except PySparkException as error:
        return str(error)
    raise AssertionError("nothing was refused")


def n_rows(query: Any) -> list[int]:
    """Rows of each batch that had any; over Connect a progress knows them only by source."""
    found = [progress["sources"][0]["numInputRows"] for progress in query.recentProgress]
    return [n for n in found if n]


def batch(spark: Any) -> None:
    reader = spark.read.format("pykafka-wire").options(**BROKERS, subscribe=SOURCE)
    frame = reader.load()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    expected = [(p, offset) for p in (0, 1) for offset in range(N_RECORDS // 2)]
    assert places(frame) == expected
    assert places(frame.where("partition = 1 AND offset >= 5")) == [place for place in expected if place >= (1, 5)]
    if VERSION >= (4, 1):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        pushed = spark.read.format("pykafka-wire").options(**BROKERS, subscribe=SOURCE, filterPushdown="true").load()
        assert places(pushed.where("partition = 1 AND offset >= 5")) == [place for place in expected if place >= (1, 5)]
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert reader.schema("offset bigint").load().count() == N_RECORDS
    assert "[PYKAFKA_WIRE_OPTION]" in failure(lambda: reader.option("startingOffset", "x").load().collect())


def write(spark: Any) -> None:
    rows = spark.read.format("pykafka-wire").options(**BROKERS, subscribe=SOURCE, includeHeaders="true").load()
    copied = rows.select("key", "value", "headers", "timestamp")
    copied.write.format("pykafka-wire").options(**BROKERS, topic=TARGET).mode("append").save()
    copy = spark.read.format("pykafka-wire").options(**BROKERS, subscribe=TARGET).load()
    assert sorted(row.value for row in copy.collect()) == sorted(row.value for row in rows.collect())


def stream(spark: Any) -> None:
    """From topic to topic, in two runs: each record once."""

    def run() -> Any:
        frame = spark.readStream.format("pykafka-wire").options(**BROKERS, subscribe=SOURCE, startingOffsets="earliest")
        writer = (
            frame.load()
            .select("key", "value", "timestamp")
            .writeStream.format("pykafka-wire")
            .options(**BROKERS, topic=TARGET)
        )
        query = writer.option("checkpointLocation", f"{FOLDER}/copy").trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S), "the query did not end"
        return query

    copy = spark.read.format("pykafka-wire").options(**BROKERS, subscribe=TARGET)
    before = copy.load().count()
    run()
    assert copy.load().count() == before + N_RECORDS
    times = [row.timestamp for row in copy.load().select("timestamp").distinct().collect()]
    read = spark.read.format("pykafka-wire").options(**BROKERS, subscribe=SOURCE).load()
    assert {row.timestamp for row in read.select("timestamp").collect()} >= set(times)
    run()
    assert copy.load().count() == before + N_RECORDS


def typed(spark: Any) -> None:
    """Values of their own type, in a batch and in a stream; JSON needs no library."""
    options = {**BROKERS, "subscribe": SOURCE, "valueFormat": "json", "valueSchema": "BIGINT", "onValueError": "divert"}
    frame = spark.read.format("pykafka-wire").options(**options).load()
    assert frame.schema["value"].dataType.simpleString() == "bigint"
    assert sorted(row.value for row in frame.collect()) == list(range(N_RECORDS))
    stream = spark.readStream.format("pykafka-wire").options(**options, startingOffsets="earliest").load()
    writer = stream.select("value", "valueError").writeStream.format("parquet")
    query = writer.option("checkpointLocation", f"{FOLDER}/typed-checkpoint").trigger(availableNow=True)
    assert query.start(f"{FOLDER}/typed").awaitTermination(DEADLINE_S), "the query did not end"
    rows = spark.read.parquet(f"{FOLDER}/typed").collect()
    assert sorted((row.value, row.valueError) for row in rows) == [(n, None) for n in range(N_RECORDS)]


def typed_writes(spark: Any) -> None:
    """Structs as Avro without a registry, in a batch and in a stream, and read back."""
    record = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    record["fields"] += [{"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}]
    avro = {**BROKERS, "valueFormat": "avro", "valueSchema": json.dumps(record)}
    copy = spark.read.format("pykafka-wire").options(**BROKERS, subscribe=TARGET)
    begin = copy.load().count()
    rows = spark.range(10).selectExpr("struct(id, timestamp_micros(id * 1000001) AS at) AS value")
    rows.write.format("pykafka-wire").options(**avro, topic=TARGET).mode("append").save()
    values = {
        **BROKERS,
        "subscribe": SOURCE,
        "startingOffsets": "earliest",
        "valueFormat": "json",
        "valueSchema": "BIGINT",
    }
    stream = spark.readStream.format("pykafka-wire").options(**values).load()
    structs = stream.selectExpr("struct(value AS id, timestamp_micros(value * 1000001) AS at) AS value")
    writer = structs.writeStream.format("pykafka-wire").options(**avro, topic=TARGET)
    query = writer.option("checkpointLocation", f"{FOLDER}/typed-copy").trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S), "the query did not end"
    starting = json.dumps({TARGET: {"0": begin}})
    read = spark.read.format("pykafka-wire").options(**avro, subscribe=TARGET, startingOffsets=starting).load()
    found = read.selectExpr("value.id", "unix_micros(value.at) AS at").collect()
    expected = [*range(10), *range(N_RECORDS)]
    assert sorted((row.id, row.at) for row in found) == sorted((n, n * 1000001) for n in expected)


def limits(spark: Any) -> str:
    """Refused where Spark has no admission control, kept to where it has."""
    frame = spark.readStream.format("pykafka-wire").options(**BROKERS, subscribe=SOURCE, startingOffsets="earliest")

    def run() -> list[int]:
        frame_limited = frame.option("maxOffsetsPerTrigger", "10").load()
        writer = frame_limited.writeStream.format("noop").option("checkpointLocation", f"{FOLDER}/limited")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(DEADLINE_S)
        return n_rows(query)

    if VERSION >= (4, 2):
        assert run() == [10, 10, 10]
        return "kept"
    assert "need Spark 4.2 or newer" in failure(run)
    return "refused"


def committed(cluster: Cluster, group: str) -> int:
    """How far the group is in the one partition of TARGET."""
    partition = TopicPartition(TARGET, 0)
    found = fetch_offsets(cluster, group, [partition])
    return found[partition].offset if partition in found else 0


def append(spark: Any, n_records: int = 7) -> int:
    """Write to TARGET; returns how many records it has now."""
    rows = spark.createDataFrame([("v",)] * n_records, "value string")
    rows.write.format("pykafka-wire").mode("append").options(**BROKERS, topic=TARGET).save()
    return int(spark.read.format("pykafka-wire").options(**BROKERS, subscribe=TARGET).load().count())


def commits(spark: Any) -> None:
    """The group of an idle query has no lag."""
    group = f"compat-{Path(FOLDER).name}-{'connect' if REMOTE else 'classic'}"
    frame = spark.readStream.format("pykafka-wire").options(
        **BROKERS, subscribe=TARGET, startingOffsets="earliest", **{"kafka.group.id": group}
    )
    query = (
        frame.load()
        .writeStream.format("noop")
        .option("checkpointLocation", f"{FOLDER}/commits")
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    with Cluster(ClientSettings.from_options({"bootstrap.servers": SERVERS})) as cluster:
        try:
            for _ in range(2):
                query.processAllAvailable()
                end = append(spark)
                deadline = time.monotonic() + DEADLINE_S
                while committed(cluster, group) < end:
                    assert query.exception() is None and time.monotonic() < deadline, (committed(cluster, group), end)
                    time.sleep(0.1)
        finally:
            query.stop()


def restarts(spark: Any) -> int:
    """Short runs of one query: each record once, one generated group; how many of their batches that group is behind."""
    checkpoint = Path(FOLDER, "restarts")
    frame = spark.readStream.format("pykafka-wire").options(**BROKERS, subscribe=TARGET, startingOffsets="earliest")
    ends, behind = [0], set()
    with Cluster(ClientSettings.from_options({"bootstrap.servers": SERVERS})) as cluster:
        for _ in range(3):
            ends.append(append(spark))
            for fresh in (ends[-1] - ends[-2], 0):
                writer = frame.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
                query = writer.trigger(availableNow=True).start()
                assert query.awaitTermination(DEADLINE_S), "the query did not end"
                assert sum(n_rows(query)) == fresh
                logged = [json.loads(path.read_text().splitlines()[-1]) for path in checkpoint.glob("offsets/[0-9]*")]
                (group,) = {each["group"] for each in logged}
                if fresh:
                    behind.add(len(ends) - 1 - ends.index(committed(cluster, group)))
                else:  # nothing was new, but the offsets were committed
                    assert committed(cluster, group) == ends[-1]
    (found,) = behind
    assert found <= (0 if VERSION >= (4, 2) else 1)
    return found


def main() -> None:
    builder = SparkSession.builder.remote(REMOTE) if REMOTE else SparkSession.builder.master("local[2]")
    if not REMOTE:
        builder = builder.config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    assert ("connect" in type(spark).__module__) == bool(REMOTE)
    batch(spark)
    write(spark)
    stream(spark)
    typed(spark)
    typed_writes(spark)
    result = {"spark": pyspark.__version__, "limits": limits(spark)}
    commits(spark)
    result["batches behind after a short run"] = restarts(spark)
    spark.stop()
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
