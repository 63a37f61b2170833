"""The bench that everything runs on: a local Kafka, one Spark session with both connectors, topics made on demand.

Owns what is started, and ends it. Knows nothing of what is measured.

Topics are written by the JVM connector, whose producer makes batches as Java applications do: full ones of
``batch.size`` bytes after compression. Values are JSON-like text that lz4 shrinks to about a half.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from pykafka_wire.local import LocalCluster
from pykafka_wire.local.jars import delta_jars, jvm_connector_jars
from pykafka_wire.local.java import ensure_java, export_java_home

KEY_BYTES = 8
# One JSON field, `"f0":"0123ABCD",`.
_FIELD_BYTES = 16
_TIMEOUT_S = 60

#: Unix domain sockets take a delayed TCP acknowledgement of some 40 ms out of every Python task (Spark 4.1+).
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
SPARK_CONF: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.app.name": "pykafka-wire benchmarks",
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "2000",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    UNIX_SOCKETS: "true",
}
#: One node; a benchmark's topics live for minutes.
BROKER_PROPERTIES: Mapping[str, str] = {
    "log.retention.ms": "-1",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "message.max.bytes": "2097152",
}
#: librdkafka reports each connection that ends, those of the cluster's own end included.
QUIET: Mapping[str, int] = {"log_level": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """What a topic holds: `n_records` of `record_bytes` each (8 of them the key), spread evenly."""

    n_records: int
    record_bytes: int = 100
    codec: str = "none"
    batch_bytes: int = 16 * 1024
    partitions: int = 4
    headers: int = 0

    @property
    def value_bytes(self) -> int:
        return self.record_bytes - KEY_BYTES

    @property
    def topic(self) -> str:
        headers = f"-{self.headers}h" if self.headers else ""
        return (
            f"bench-{self.n_records}x{self.record_bytes}-{self.codec}-"
            f"{self.batch_bytes // 1024}k-{self.partitions}p{headers}"
        )


class Rig:
    """A cluster, a session and the topics of one invocation. A context manager: what it starts, it ends."""

    def __init__(self, bootstrap_servers: str | None = None) -> None:
        """With `bootstrap_servers` these brokers are used, and only the topics made on them are removed."""
        self._named = bootstrap_servers
        self._stack = contextlib.ExitStack()
        self._session: SparkSession | None = None
        self._conf: dict[str, str] = {}
        self._topics: set[str] = set()
        self._numbers = itertools.count()
        self.bootstrap_servers = ""
        self.work_dir = Path()

    def __enter__(self) -> Rig:
        with contextlib.ExitStack() as stack:
            self.work_dir = Path(tempfile.mkdtemp(prefix="pykafka-wire-bench-"))
            stack.callback(shutil.rmtree, self.work_dir, ignore_errors=True)
            export_java_home(ensure_java())
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            if self._named:
                self.bootstrap_servers = self._named
            else:
                cluster = stack.enter_context(LocalCluster(nodes=1, properties=dict(BROKER_PROPERTIES)))
                self.bootstrap_servers = cluster.bootstrap_servers
            self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, **QUIET})
            stack.callback(self._drop_topics)
            stack.callback(self._stop_session)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- Spark ------------------------------------------------------------------------------------------------------

    def session(self, conf: Mapping[str, str] | None = None) -> SparkSession:
        """The one session; started anew only when `conf` differs, in the same JVM."""
        wanted = {**SPARK_CONF, "spark.local.dir": str(self.work_dir), **(conf or {})}
        if self._session is not None and wanted == self._conf:
            return self._session
        self._stop_session()
        builder = SparkSession.builder.config("spark.jars", ",".join(map(str, [*jvm_connector_jars(), *delta_jars()])))
        builder = builder.config("spark.sql.warehouse.dir", str(self.work_dir / "warehouse"))
        for name, value in wanted.items():
            builder = builder.config(name, value)
        self._session, self._conf = builder.getOrCreate(), wanted
        # A failure arrives as an exception; a stopped query would log one, too.
        self._session.sparkContext.setLogLevel("FATAL")
        return self._session

    @property
    def spark(self) -> SparkSession:
        return self._session if self._session is not None else self.session()

    @property
    def jvm_pid(self) -> int:
        return int(self._gateway_jvm().java.lang.ProcessHandle.current().pid())

    @property
    def java_version(self) -> str:
        return str(self._gateway_jvm().java.lang.System.getProperty("java.version"))

    def _gateway_jvm(self) -> Any:  # Any: py4j has no types
        return self.spark.sparkContext._jvm

    def _stop_session(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None

    def fresh_dir(self, name: str) -> Path:
        """A path below the work folder that does not exist yet."""
        return self.work_dir / f"{name}-{next(self._numbers)}"

    # --- topics -----------------------------------------------------------------------------------------------------

    def topic(self, dataset: Dataset) -> str:
        """The name of a topic that holds `dataset`; written when first asked for."""
        if dataset.topic not in self._topics:
            self.create_topic(dataset.topic, dataset.partitions)
            self._write(dataset)
            written = self.n_offsets(dataset.topic, dataset.partitions)
            if written != dataset.n_records:
                raise RuntimeError(f"{dataset.topic} holds {written} offsets, not {dataset.n_records}")
        return dataset.topic

    def create_topic(self, name: str, partitions: int) -> str:
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config={"compression.type": "producer"})
        self.admin.create_topics([new], request_timeout=_TIMEOUT_S)[name].result()
        self._topics.add(name)
        return name

    def drop_topic(self, name: str) -> None:
        self._topics.discard(name)
        self.admin.delete_topics([name], request_timeout=_TIMEOUT_S)[name].result()

    def keep_only(self, datasets: set[Dataset]) -> None:
        """Drops every topic that none of the items to come reads."""
        for name in self._topics - {dataset.topic for dataset in datasets}:
            self.drop_topic(name)

    def n_offsets(self, topic: str, partitions: int) -> int:
        """The number of offsets in all partitions."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "unused", **QUIET})
        try:
            marks = [consumer.get_watermark_offsets(TopicPartition(topic, p), _TIMEOUT_S) for p in range(partitions)]
        finally:
            consumer.close()
        return sum(high - low for low, high in marks)

    def rows(self, dataset: Dataset) -> DataFrame:
        """The rows of `dataset`, made by Spark: key, value, partition and headers."""
        columns = [
            f"cast(lpad(cast(id as string), {KEY_BYTES}, '0') as binary) as key",
            f"cast({_value_sql(dataset.value_bytes)} as binary) as value",
            f"cast(id % {dataset.partitions} as int) as partition",
        ]
        if dataset.headers:
            structs = (
                f"struct('header-{i}' as key, cast(hex(hash(id)) as binary) as value)" for i in range(dataset.headers)
            )
            columns.append(f"array({', '.join(structs)}) as headers")
        return self.spark.range(dataset.n_records, numPartitions=2).selectExpr(*columns)

    def _write(self, dataset: Dataset) -> None:
        writer = self.rows(dataset).write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap_servers)
        settings = {
            "kafka.compression.type": dataset.codec,
            "kafka.batch.size": dataset.batch_bytes,
            # Long enough that batches leave because they are full.
            "kafka.linger.ms": 200,
            "kafka.buffer.memory": 64 << 20,
            "includeHeaders": dataset.headers > 0,
        }
        for name, value in settings.items():
            writer = writer.option(name, str(value).lower())
        writer.option("topic", dataset.topic).mode("append").save()

    def _drop_topics(self) -> None:
        if self._named:  # else they go with their cluster
            for name in list(self._topics):
                self.drop_topic(name)


def assignment(topic: str, partitions: int) -> str:
    """The option ``assign`` for every partition of a topic."""
    return json.dumps({topic: list(range(partitions))})


@contextlib.contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """`frame` held in memory, so that only what is done with it is measured."""
    frame = frame.cache()
    frame.count()
    try:
        yield frame
    finally:
        frame.unpersist(blocking=True)


def _value_sql(n_bytes: int) -> str:
    """An SQL expression for `n_bytes` of JSON-like text, different for every id: fixed names, pseudo-random values."""
    fields = (
        f"""'"f{i}":"', hex(hash(id, {i}) & 4294967295), '",'""" for i in range(n_bytes // (_FIELD_BYTES - 1) + 1)
    )
    return f"rpad(concat({', '.join(fields)}), {n_bytes}, '.')"
