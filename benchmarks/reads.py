"""Batch reads: rate into nothing and into an aggregate, against the API's ceiling, and the memory they take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import ceiling
from connectors import CEILING, CONNECTORS, OURS, Connector
from memory import PeakMemory
from pyspark.sql import DataFrame
from rig import Dataset, Rig
from runs import Contender, Run

#: Equal for all connectors when they have read the same records.
_CHECK = ("count(1)", "sum(length(key))", "sum(length(value))", "sum(offset)", "sum(hash(value, partition, offset))")
_READY_MADE = Connector(name=CEILING, format="bench-ready-made")


def into_noop(frame: DataFrame) -> None:
    """Every row to a sink that drops it: the connector's own speed."""
    frame.write.format("noop").mode("overwrite").save()


def into_sum(frame: DataFrame) -> int:
    """The sum of the values' lengths, which a query must touch every value for."""
    return int(frame.selectExpr("sum(length(value))").collect()[0][0])


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRead:
    """All connectors read the same topic whole, through ``query``; planning counts in.

    Attributes:
        columns: a schema that only we are given: a JVM connector decodes all columns whatever is asked for.
        with_ceiling: a source of ready-made batches takes the place of the JVM connectors.
    """

    dataset: Dataset
    query: Callable[[DataFrame], object]
    columns: str | None = None
    with_ceiling: bool = False

    def datasets(self) -> tuple[Dataset, ...]:
        return (self.dataset,)

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        topic = rig.topic(self.dataset)
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": topic}
        if self.dataset.headers:
            options["includeHeaders"] = "true"

        def contender(connector: Connector) -> Contender:
            def frame(columns: str | None) -> DataFrame:
                reader = connector.reader(rig.spark.read, options)
                return (reader.schema(columns) if columns else reader).load()

            def run() -> Run:
                started = time.perf_counter()
                answer = self.query(frame(self.columns if connector.name == OURS else None))
                return Run(value=self.dataset.n_records / (time.perf_counter() - started), answer=answer)

            def check() -> object:
                expressions = (*_CHECK, "sum(size(headers))") if self.dataset.headers else _CHECK
                return tuple(frame(None).selectExpr(*expressions).collect()[0])

            return Contender(name=connector.name, run=run, check=check)

        if self.with_ceiling:
            ceiling.register(rig.spark)
            ready_made = {
                "rows": str(self.dataset.n_records),
                "partitions": str(self.dataset.partitions),
                "valueBytes": str(self.dataset.value_bytes),
            }

            def run_ceiling() -> Run:
                started = time.perf_counter()
                self.query(_READY_MADE.reader(rig.spark.read, ready_made).load())
                return Run(value=self.dataset.n_records / (time.perf_counter() - started))

            yield [contender(CONNECTORS[0]), Contender(name=CEILING, run=run_ceiling)]
        else:
            yield [contender(connector) for connector in CONNECTORS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMemory:
    """Peak resident memory of one Python worker while we read a backlog, and of Spark's JVM beside it."""

    dataset: Dataset

    def datasets(self) -> tuple[Dataset, ...]:
        return (self.dataset,)

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": rig.topic(self.dataset)}

        def run() -> Run:
            with PeakMemory(rig.jvm_pid) as peak:
                into_noop(CONNECTORS[0].reader(rig.spark.read, options).load())
            return Run(value=peak.worker_bytes, beside={"jvm_mb": peak.jvm_bytes / 1e6, "workers": peak.n_workers})

        yield [Contender(name=OURS, run=run)]
