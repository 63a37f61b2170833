"""Batch reads: rate into nothing and into an aggregate, beside the API's ceiling."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import ceiling
from connectors import CEILING, CONNECTORS, OURS, Connector
from datasets import Dataset, Log
from processes import CpuTime
from pyspark.sql import DataFrame
from rig import Rig
from runs import Contender, Run

#: Nanoseconds of CPU time for each record, of Spark and its Python workers.
CPU_PER_RECORD = "cpu_ns_per_record"
#: Equal for all connectors when they have read the same records.
_CHECK = ("count(1)", "sum(length(key))", "sum(length(value))", "sum(offset)", "sum(hash(value, partition, offset))")
_READY_MADE = Connector(name=CEILING, format="bench-ready-made")


def into_noop(frame: DataFrame) -> None:
    """Every row to a sink that drops it: the connector's own speed."""
    frame.write.format("noop").mode("overwrite").save()


def into_sum(frame: DataFrame) -> int:
    """The sum of the values' lengths, for which a query must read every value."""
    return int(frame.selectExpr("sum(length(value))").collect()[0][0])


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRead:
    """All connectors read the same topic whole, through ``query``; planning counts in.

    Attributes:
        columns: a schema that only we are given: a JVM connector decodes all columns whatever is asked for.
        with_ceiling: a source of ready-made batches of the same size is a contender, too.
        tls: through the broker's TLS listener.
    """

    dataset: Dataset
    query: Callable[[DataFrame], object]
    columns: str | None = None
    with_ceiling: bool = False
    tls: bool = False

    def datasets(self) -> tuple[Dataset, ...]:
        return (self.dataset,)

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": rig.topic(self.dataset)}
        if self.dataset.headers:
            options["includeHeaders"] = "true"
        if self.dataset.log is Log.TRANSACTIONAL:
            options["kafka.isolation.level"] = "read_committed"
        if self.tls:
            options |= rig.tls_options

        def contender(connector: Connector) -> Contender:
            def frame(columns: str | None) -> DataFrame:
                reader = connector.reader(rig.spark.read, options)
                loaded: DataFrame = (reader.schema(columns) if columns else reader).load()
                return loaded

            def run() -> Run:
                return self._timed(rig, lambda: self.query(frame(self.columns if connector.name == OURS else None)))

            def check() -> object:
                expressions = (*_CHECK, "sum(size(headers))") if self.dataset.headers else _CHECK
                return tuple(frame(None).selectExpr(*expressions).collect()[0])

            return Contender(name=connector.name, run=run, check=check)

        compared = [contender(connector) for connector in CONNECTORS]
        yield [*compared, self._ceiling(rig)] if self.with_ceiling else compared

    def _ceiling(self, rig: Rig) -> Contender:
        ceiling.register(rig.spark)
        ready_made = {
            "rows": str(self.dataset.n_records),
            "partitions": str(self.dataset.partitions),
            "valueBytes": str(self.dataset.value_bytes),
            "topic": self.dataset.topic,
        }

        def run() -> Run:
            frame = _READY_MADE.reader(rig.spark.read, ready_made).load()
            return replace(self._timed(rig, lambda: self.query(frame)), result=None)

        return Contender(name=CEILING, run=run)

    def _timed(self, rig: Rig, read: Callable[[], object]) -> Run:
        """CPU time stands beside the rate: it hardly changes when something else keeps the machine busy."""
        with CpuTime(rig.jvm_pid) as cpu:
            started = time.perf_counter()
            result = read()
            took_s = time.perf_counter() - started
        n_records = rig.n_records(self.dataset)
        return Run(value=n_records / took_s, result=result, beside=cpu_per_record(cpu, n_records))


def cpu_per_record(cpu: CpuTime, n_records: int) -> dict[str, float]:
    """The CPU time of a run, to stand beside its figure."""
    return {
        CPU_PER_RECORD: cpu.seconds * 1e9 / n_records,
        "of_it_python": cpu.python_seconds * 1e9 / n_records,
    }
