"""Clients alone, without Spark: a topic read whole by one process, into Arrow columns or into Python objects.

The figure is records per CPU second of the process, threads included: clients in C use several cores without saying so.
Records per second of wall clock are recorded beside it. Connecting and looking offsets up count in.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition
from connectors import OURS
from datasets import QUIET, Dataset
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from rig import Rig
from runs import Contender, Run

from pykafka_wire.wire import topic_partitions as wire_topics
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST, list_offsets
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.settings import ClientSettings

CONFLUENT = "confluent-kafka"
KAFKA_PYTHON = "kafka-python"
AIOKAFKA = "aiokafka"
_BATCH = 10_000

#: Keys and values of some records: two lists of bytes.
Rows = tuple[list[bytes | None], list[bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRead:
    """Our client against others; `into_arrow` says what each must end in. All sum up the lengths of the values."""

    dataset: Dataset
    into_arrow: bool

    def datasets(self) -> tuple[Dataset, ...]:
        return (self.dataset,)

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        topic, partitions = rig.topic(self.dataset), self.dataset.partitions

        def contender(name: str, lengths: Callable[[], Iterator[int]]) -> Contender:
            def run() -> Run:
                wall, cpu = time.perf_counter(), time.process_time()
                total = sum(lengths())
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                n = self.dataset.n_records
                return Run(value=n / cpu, result=total, beside={"records_per_s": n / wall})

            return Contender(name=name, run=run)

        def of_ours() -> Iterator[int]:
            for batch in _read_ours(rig.bootstrap_servers, topic, partitions):
                if self.into_arrow:
                    yield _sum_lengths(batch.value)
                else:
                    yield _sum_object_lengths((batch.key.to_pylist(), batch.value.to_pylist()))

        def of(rows: Iterator[Rows]) -> Iterator[int]:
            for keys, values in rows:
                if self.into_arrow:
                    batch = pa.record_batch(
                        [pa.array(keys, pa.binary()), pa.array(values, pa.binary())], ["key", "value"]
                    )
                    yield _sum_lengths(batch.column("value"))
                else:
                    yield _sum_object_lengths((keys, values))

        n = self.dataset.n_records
        yield [
            contender(OURS, of_ours),
            contender(CONFLUENT, lambda: of(_read_confluent(rig.bootstrap_servers, topic, partitions, n))),
            contender(KAFKA_PYTHON, lambda: of(_read_kafka_python(rig.bootstrap_servers, topic, partitions, n))),
            contender(AIOKAFKA, lambda: of(_read_aiokafka(rig.bootstrap_servers, topic, partitions, n))),
        ]


def _sum_lengths(values: Any) -> int:  # Any: pyarrow has no types
    return int(pc.sum(pc.binary_length(values)).as_py() or 0)


def _sum_object_lengths(rows: Rows) -> int:
    return sum(len(value) for value in rows[1] if value is not None)


def _read_ours(bootstrap_servers: str, topic: str, partitions: int) -> Iterator[Any]:
    cluster = Cluster(ClientSettings.from_options({"bootstrap.servers": bootstrap_servers}))
    try:
        asked = [wire_topics.TopicPartition(topic, partition) for partition in range(partitions)]
        first = list_offsets(cluster, dict.fromkeys(asked, EARLIEST))
        last = list_offsets(cluster, dict.fromkeys(asked, LATEST))
        ranges = [
            wire_topics.OffsetRange(
                topic=topic, partition=tp.partition, start_offset=first[tp].offset, end_offset=last[tp].offset
            )
            for tp in asked
        ]
        columns = Columns(key=True, value=True, headers=False, timestamp=False, timestamp_type=False)
        for fetched in fetch_ranges(cluster, ranges, columns=columns):
            yield fetched.records
    finally:
        cluster.close()


def _read_confluent(bootstrap_servers: str, topic: str, partitions: int, n_records: int) -> Iterator[Rows]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": True,
            **QUIET,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        remaining = n_records
        while remaining > 0:
            messages = consumer.consume(_BATCH, timeout=1.0)
            remaining -= len(messages)
            yield [message.key() for message in messages], [message.value() for message in messages]
    finally:
        consumer.close()


def _read_kafka_python(bootstrap_servers: str, topic: str, partitions: int, n_records: int) -> Iterator[Rows]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=None, enable_auto_commit=False, max_poll_records=_BATCH
    )
    try:
        asked = [KafkaPythonPartition(topic, partition) for partition in range(partitions)]
        consumer.assign(asked)
        consumer.seek_to_beginning(*asked)
        remaining = n_records
        while remaining > 0:
            for records in consumer.poll(timeout_ms=1000).values():
                remaining -= len(records)
                yield [record.key for record in records], [record.value for record in records]
    finally:
        consumer.close()


def _read_aiokafka(bootstrap_servers: str, topic: str, partitions: int, n_records: int) -> Iterator[Rows]:
    loop = asyncio.new_event_loop()
    consumer = loop.run_until_complete(_aiokafka_consumer(bootstrap_servers, topic, partitions))
    try:
        remaining = n_records
        while remaining > 0:
            for records in loop.run_until_complete(consumer.getmany(timeout_ms=1000, max_records=_BATCH)).values():
                remaining -= len(records)
                yield [record.key for record in records], [record.value for record in records]
    finally:
        loop.run_until_complete(consumer.stop())
        loop.close()


async def _aiokafka_consumer(bootstrap_servers: str, topic: str, partitions: int) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=None, enable_auto_commit=False)
    asked = [AioPartition(topic, partition) for partition in range(partitions)]
    consumer.assign(asked)
    await consumer.start()
    await consumer.seek_to_beginning(*asked)
    return consumer
