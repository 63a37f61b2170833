"""Batch and streaming writes: rate from rows held in memory or files to acknowledged records, and the API's ceiling."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import ceiling
from connectors import CEILING, CONNECTORS, Connector
from datasets import Dataset, cached, rows
from pyspark.sql import DataFrame
from rig import Rig
from runs import Contender, Run

EXACTLY_ONCE = "pykafka-wire, exactly once"
#: Rows of a streaming write come in so many micro-batches, of a file for each of Spark's two cores.
_MICRO_BATCHES = 4
_CORES = 2

_numbers = itertools.count()


def _timed(rig: Rig, dataset: Dataset, write: Callable[[str], None]) -> Run:
    """One run of ``write(topic)``; every one has a new topic, whose committed records must be those of all others."""
    topic = rig.create_topic(f"bench-write-{next(_numbers)}", dataset.partitions)
    try:
        started = time.perf_counter()
        write(topic)
        took_s = time.perf_counter() - started
        return Run(value=dataset.n_records / took_s, result=rig.count(topic))
    finally:
        rig.drop_topic(topic)


def _options(rig: Rig, dataset: Dataset, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": rig.bootstrap_servers,
        "kafka.compression.type": dataset.codec,
        "topic": topic,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWrite:
    """The same cached rows, written by all.

    Attributes:
        batch_bytes: ``kafka.batch.size`` for all but the tuned one, which has its own; each connector's default when None.
        with_ceiling: a sink that drops its rows is a contender, too.
    """

    dataset: Dataset
    batch_bytes: int | None = None
    with_ceiling: bool = False

    def datasets(self) -> tuple[Dataset, ...]:
        return ()

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        sized = {} if self.batch_bytes is None else {"kafka.batch.size": str(self.batch_bytes)}

        def contender(connector: Connector, frame: DataFrame) -> Contender:
            def write(topic: str) -> None:
                connector.writer(frame.write, _options(rig, self.dataset, topic) | sized).mode("append").save()

            return Contender(name=connector.name, run=lambda: _timed(rig, self.dataset, write))

        def drop(frame: DataFrame) -> Contender:
            def run() -> Run:
                started = time.perf_counter()
                frame.write.format("bench-ready-made").mode("append").save()
                return Run(value=self.dataset.n_records / (time.perf_counter() - started))

            return Contender(name=CEILING, run=run)

        # Keys decide the partition: what most applications do.
        with cached(rows(rig.spark, self.dataset).drop("partition")) as frame:
            compared = [contender(connector, frame) for connector in CONNECTORS]
            if self.with_ceiling:
                ceiling.register(rig.spark)
                compared.append(drop(frame))
            yield compared


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWrite:
    """A new query writes the same Parquet files with AvailableNow, in a few micro-batches; its start and end count in.

    Attributes:
        exactly_once: our two guarantees are compared, in place of the connectors: the option ``transactions``, empty for none.
    """

    dataset: Dataset
    exactly_once: str = ""

    def datasets(self) -> tuple[Dataset, ...]:
        return ()

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        files = rig.fresh_dir("rows")

        def contender(connector: Connector, exactly_once: str = "") -> Contender:
            def write(topic: str) -> None:
                options = _options(rig, self.dataset, topic)
                if exactly_once:
                    options |= {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": topic}
                    options |= {"transactions": exactly_once, "kafka.transaction.timeout.ms": "600000"}
                checkpoint = rig.fresh_dir("checkpoint")
                stream = rig.spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", _CORES)
                writer = connector.writer(stream.parquet(str(files)).writeStream, options)
                writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
                try:
                    writer.start().awaitTermination()
                finally:
                    shutil.rmtree(checkpoint, ignore_errors=True)

            name = EXACTLY_ONCE if exactly_once else connector.name
            return Contender(name=name, run=lambda: _timed(rig, self.dataset, write))

        written = rows(rig.spark, self.dataset).drop("partition").repartition(_CORES * _MICRO_BATCHES)
        written.write.option("compression", "none").parquet(str(files))
        try:
            if self.exactly_once:
                yield [contender(CONNECTORS[0], self.exactly_once), contender(CONNECTORS[0])]
            else:
                yield [contender(connector) for connector in CONNECTORS]
        finally:
            shutil.rmtree(files, ignore_errors=True)
