"""Streaming reads: rate over a backlog, and the latency of micro-batches while a producer writes slowly."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from connectors import CONNECTORS, Connector
from datasets import QUIET, Dataset
from pyspark.sql import DataFrame
from rig import Rig
from runs import Contender, Run, percentile

_STARTED_S = 60.0
#: A query's first micro-batches start workers and load code; they do not represent a running query.
_FIRST_BATCHES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableNow:
    """A new query reads a backlog with AvailableNow, into `sink` (noop or delta); its start and end count in."""

    dataset: Dataset
    sink: str

    def datasets(self) -> tuple[Dataset, ...]:
        return (self.dataset,)

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        options = {
            "kafka.bootstrap.servers": rig.bootstrap_servers,
            "subscribe": rig.topic(self.dataset),
            "startingOffsets": "earliest",
        }

        def contender(connector: Connector) -> Contender:
            def run() -> Run:
                checkpoint, table = rig.fresh_dir("checkpoint"), rig.fresh_dir("delta")
                try:
                    started = time.perf_counter()
                    query = _start(connector.reader(rig.spark.readStream, options).load(), self.sink, checkpoint, table)
                    query.awaitTermination()
                    took_s = time.perf_counter() - started
                    n_rows = sum(progress.numInputRows for progress in query.recentProgress)
                    result: object = n_rows
                    if self.sink == "delta":
                        sums = ("count(1)", "sum(length(value))", "sum(offset)", "count(distinct partition)")
                        read = rig.spark.read.format("delta").load(str(table))
                        result = tuple(read.selectExpr(*sums).collect()[0])
                    return Run(value=self.dataset.n_records / took_s, result=result)
                finally:
                    shutil.rmtree(checkpoint, ignore_errors=True)
                    shutil.rmtree(table, ignore_errors=True)

            return Contender(name=connector.name, run=run)

        yield [contender(connector) for connector in CONNECTORS]


def _start(frame: DataFrame, sink: str, checkpoint: Path, table: Path) -> Any:  # Any: a StreamingQuery
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    return writer.start(str(table)) if sink == "delta" else writer.start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trickle:
    """Time of a micro-batch (``triggerExecution``) while a producer writes `per_second` records a second.

    A run is one query that goes on for `seconds`; its figure is the median over its micro-batches with records.
    """

    partitions: int
    per_second: int = 500
    seconds: float = 8.0

    def datasets(self) -> tuple[Dataset, ...]:
        return ()

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        topic = rig.create_topic(f"bench-trickle-{self.partitions}p", self.partitions)
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": topic, "startingOffsets": "latest"}

        def contender(connector: Connector) -> Contender:
            def run() -> Run:
                with noop_query(rig, connector, options) as query:
                    await_batches(query, _FIRST_BATCHES)
                    n_before = len(_times_ms(query))
                    time.sleep(self.seconds)
                    times_ms = _times_ms(query)[n_before:]
                return Run(
                    value=statistics.median(times_ms),
                    beside={"p99_ms": percentile(times_ms, 0.99), "batches": len(times_ms)},
                )

            return Contender(name=connector.name, run=run)

        try:
            with _trickling(rig.bootstrap_servers, topic, self.partitions, self.per_second):
                yield [contender(connector) for connector in CONNECTORS]
        finally:
            rig.drop_topic(topic)


def _times_ms(query: Any) -> list[float]:
    return [float(p.durationMs["triggerExecution"]) for p in query.recentProgress if p.numInputRows > 0]


@contextlib.contextmanager
def noop_query(
    rig: Rig, connector: Connector, options: Mapping[str, str], trigger: Mapping[str, Any] | None = None
) -> Iterator[Any]:
    """A new query into a sink that drops its rows, stopped when the context is left."""
    checkpoint = rig.fresh_dir("checkpoint")
    writer = connector.reader(rig.spark.readStream, options).load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield query
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def await_batches(query: Any, n: int) -> None:
    """Waits until a query has run `n` micro-batches with records."""
    until = time.monotonic() + _STARTED_S
    while len(_times_ms(query)) < n:
        if query.exception() is not None:
            raise RuntimeError(f"the query failed: {query.exception()}")
        if time.monotonic() > until:
            raise TimeoutError(f"{n} micro-batches did not come within {_STARTED_S:.0f} s")
        time.sleep(0.05)


@contextlib.contextmanager
def _trickling(bootstrap_servers: str, topic: str, partitions: int, per_second: int) -> Iterator[None]:
    """Writes records evenly, in ticks of 10 ms, over all partitions in turn, for as long as the context is open."""
    stop = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, **QUIET})
        started, n_sent = time.monotonic(), 0
        while not stop.wait(0.01):
            due = int((time.monotonic() - started) * per_second)
            while n_sent < due:
                producer.produce(topic, value=b"%092d" % n_sent, key=b"%08d" % n_sent, partition=n_sent % partitions)
                n_sent += 1
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=write, name="trickle", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
