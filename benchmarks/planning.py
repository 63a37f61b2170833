"""Time to plan a batch read of very many topic-partitions: metadata, offsets, and their distribution to tasks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from connectors import CONNECTORS, OURS, Connector
from datasets import QUIET, Dataset
from pyspark.sql.types import StructType
from rig import Rig
from runs import Contender, Run

from pykafka_wire.columns.source_columns import source_schema
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.batch_reader import KafkaBatchReader

#: One record of metadata each; a controller takes at most 10,000 in one request.
_PARTITIONS_PER_TOPIC = 1_000
_CREATE_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """Planning through Spark for all connectors, and our planner alone in this process; one record per partition."""

    partitions: int

    def datasets(self) -> tuple[Dataset, ...]:
        return ()

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        prefix = f"bench-plan-{self.partitions}"
        topics = [f"{prefix}-{i}" for i in range(-(-self.partitions // _PARTITIONS_PER_TOPIC))]
        n_partitions = self.partitions // len(topics)
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribePattern": f"^{prefix}-"}

        def through_spark(connector: Connector) -> Contender:
            def run() -> Run:
                started = time.perf_counter()
                frame = connector.reader(rig.spark.read, options).load()
                n_tasks = int(frame._jdf.queryExecution().toRdd().getNumPartitions())
                return Run(value=time.perf_counter() - started, beside={"tasks": n_tasks})

            return Contender(name=connector.name, run=run)

        def alone() -> Run:
            schema: Any = StructType.fromDDL(source_schema(False))
            started = time.perf_counter()
            tasks = KafkaBatchReader(parse_source_options(options, "batch"), schema).partitions()
            return Run(value=time.perf_counter() - started, beside={"tasks": len(tasks)})

        try:
            for topic in topics:
                new = NewTopic(topic, num_partitions=n_partitions, replication_factor=1)
                rig.admin.create_topics([new], request_timeout=_CREATE_S, operation_timeout=_CREATE_S)[topic].result()
            _one_record_each(rig.bootstrap_servers, topics, n_partitions)
            yield [
                Contender(name=f"{OURS}, planner alone", run=alone),
                *(through_spark(connector) for connector in CONNECTORS[:2]),
            ]
        finally:
            for future in rig.admin.delete_topics(topics, request_timeout=_CREATE_S).values():
                future.result()


def _one_record_each(bootstrap_servers: str, topics: Sequence[str], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50, **QUIET})
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, value=b"planned", partition=partition)
            producer.poll(0)
    unsent = producer.flush(_CREATE_S)
    if unsent:
        raise TimeoutError(f"{unsent} records were not acknowledged within {_CREATE_S} s")
