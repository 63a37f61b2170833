"""Writes of typed columns: encoded by the sink itself, against Spark's to_avro before the JVM connector's sink."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors import JVM_TUNED, OURS, Connector, connector_named
from datasets import cached
from processes import CpuTime
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, expr
from reads import cpu_per_record
from rig import Rig
from runs import Contender, Run
from typed_datasets import TypedDataset, framed_avro, orders
from typed_reads import spark_avro

from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.registry.client import RegistryClient

JVM_TO_AVRO = f"{JVM_TUNED}, to_avro"
#: Where this is the largest number that it takes, Spark (4.2) does not add up the bytes of all columns after each row that it hands
#: to Python, and a batch has 10,000 rows, whatever their size.
LIMITED_BY_ROWS: Mapping[str, str] = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}

_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroWrite:
    """The same cached rows, a key and a struct, as Avro of the same schema in the same registry.

    What each has written is read back, outside of the measurement, by the JVM connector and from_avro: all must be equal.
    """

    dataset: TypedDataset

    def datasets(self) -> tuple[TypedDataset, ...]:
        return ()

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        subject = self.dataset.subject
        schema = self.dataset.order.avro
        schema_id = RegistryClient(Registry(rig.registry_url)).register(subject, Schema(kind="AVRO", text=schema))
        ours, tuned = (connector_named(name) for name in (OURS, JVM_TUNED))
        typed = {"valueFormat": "avro", "schema.registry.url": rig.registry_url, "valueSubject": subject}

        def contender(name: str, write: Callable[[str], None]) -> Contender:
            return Contender(name=name, run=lambda: self._run(rig, write))

        rows = orders(rig, self.dataset.order, self.dataset.n_records)
        rows = rows.select(expr("cast(lpad(cast(id AS string), 8, '0') AS binary)").alias("key"), "value")
        with cached(rows) as frame:
            encoded = frame.select("key", framed_avro(schema_id, schema).alias("value"))

            def write(connector: Connector, rows: DataFrame, more: dict[str, str], topic: str) -> None:
                options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "kafka.compression.type": "lz4"}
                connector.writer(rows.write, options | more | {"topic": topic}).mode("append").save()

            yield [
                contender(f"{OURS}, typed", lambda topic: write(ours, frame, typed, topic)),
                contender(JVM_TO_AVRO, lambda topic: write(tuned, encoded, {}, topic)),
                contender(f"to_avro, {OURS}'s bytes", lambda topic: write(ours, encoded, {}, topic)),
            ]

    def _run(self, rig: Rig, write: Callable[[str], None]) -> Run:
        topic = rig.create_topic(f"bench-typed-write-{next(_numbers)}", self.dataset.partitions)
        try:
            with CpuTime(rig.jvm_pid) as cpu:
                started = time.perf_counter()
                write(topic)
                took_s = time.perf_counter() - started
            n_records, written = self.dataset.n_records, self._written(rig, topic)
            return Run(value=n_records / took_s, result=written, beside=cpu_per_record(cpu, n_records))
        finally:
            rig.drop_topic(topic)

    def _written(self, rig: Rig, topic: str) -> tuple[object, ...]:
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": topic}
        read = connector_named(JVM_TUNED).reader(rig.spark.read, options).load()
        decoded = read.select("key", col("value").alias("bytes"), spark_avro(rig, self.dataset).alias("value"))
        sums = ("count(1)", "count(distinct substring(bytes, 1, 5))", "min(hex(substring(bytes, 1, 5)))")
        hashes = "sum(cast(xxhash64(to_json(value), key) AS decimal(38, 0)))"
        return tuple(decoded.selectExpr(*sums, hashes).collect()[0])
