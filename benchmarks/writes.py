"""Batch and streaming writes: rate from rows held in Spark's memory to acknowledged records, and the API's ceiling."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ceiling
from connectors import CEILING, CONNECTORS, Connector
from pyspark.sql import DataFrame
from rig import Dataset, Rig, cached
from runs import Contender, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWrite:
    """Every run writes the same cached rows into a new topic of its own; the offsets there must add up."""

    dataset: Dataset
    with_ceiling: bool = False

    def datasets(self) -> tuple[Dataset, ...]:
        return ()

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        numbers = itertools.count()

        def contender(connector: Connector, frame: DataFrame) -> Contender:
            def run() -> Run:
                name = f"bench-write-{next(numbers)}-{self.dataset.codec}-{self.dataset.record_bytes}"
                topic = rig.create_topic(name, self.dataset.partitions)
                try:
                    options = {
                        "kafka.bootstrap.servers": rig.bootstrap_servers,
                        "kafka.compression.type": self.dataset.codec,
                        "topic": topic,
                    }
                    started = time.perf_counter()
                    connector.writer(frame.write, options).mode("append").save()
                    took_s = time.perf_counter() - started
                    answer = rig.n_offsets(topic, self.dataset.partitions)
                finally:
                    rig.drop_topic(topic)
                return Run(value=self.dataset.n_records / took_s, answer=answer)

            return Contender(name=connector.name, run=run)

        def drop(frame: DataFrame) -> Contender:
            def run() -> Run:
                started = time.perf_counter()
                frame.write.format("bench-ready-made").mode("append").save()
                return Run(value=self.dataset.n_records / (time.perf_counter() - started))

            return Contender(name=CEILING, run=run)

        # Keys decide the partition: what most applications do.
        with cached(rig.rows(self.dataset).drop("partition")) as frame:
            if self.with_ceiling:
                ceiling.register(rig.spark)
                yield [contender(CONNECTORS[0], frame), drop(frame)]
            else:
                yield [contender(connector, frame) for connector in CONNECTORS]
