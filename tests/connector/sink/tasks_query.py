"""A query whose tasks are run by the test, and whose driver commits, crashes or times out where the test says."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once.commit import MicroBatchCommit
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.driver_transaction import DriverTransaction
from pykafka_wire.sink.exactly_once.fencing import FencingToken, fence_micro_batch
from pykafka_wire.sink.exactly_once.marker import read_markers
from pykafka_wire.sink.exactly_once.task_ids import task_prefix
from pykafka_wire.sink.exactly_once.task_transactions import MarkerWriter, TaskTransactions, list_decided
from pykafka_wire.sink.exactly_once.tasks import EncodedTask, OpenTask
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.bulk import abort_all, list_open
from tests.connector.sink.tasks_process import write_task

LIMIT_S = 60


class Query:
    """A query whose tasks are run here, in any order and as often as a test likes."""

    def __init__(self, cluster: Cluster, servers: str, topic: str) -> None:
        self.cluster = cluster
        self.servers = servers
        self.topic = topic
        self.options = ExactlyOnceOptions(
            transactional_id=f"q-{uuid.uuid4().hex[:8]}", marker_topic=topic, through_tasks=True
        )

    def fence(self) -> FencingToken:
        return fence_micro_batch(self.cluster, self.options)

    def task(
        self, token: FencingToken, number: int, *values: bytes, batch_id: int = 0, digest: int | None = None
    ) -> OpenTask:
        records = [(self.topic, 0, value) for value in values]
        digest = sum(values[0]) * 1000 + len(values) if digest is None and values else digest
        name = self.options.transactional_id
        return write_task(self.cluster, name, token, batch_id, number, records, digest=digest)

    def commit(self, *tasks: OpenTask | None, batch_id: int = 0, **options: bool) -> Decision:
        chosen = replace(self.options, **options)  # type: ignore[arg-type]
        return MicroBatchCommit(self.cluster, chosen, batch_id, TaskTransactions(self.cluster, chosen)).run(tasks)

    def commit_by_driver(self, *tasks: EncodedTask, batch_id: int = 0, **options: Any) -> Decision:
        chosen = replace(self.options, **options)
        strategy = DriverTransaction(self.cluster, chosen, max_bytes=10_000)
        return MicroBatchCommit(self.cluster, chosen, batch_id, strategy).run(tasks)

    def decide_and_crash(self, *tasks: OpenTask, batch_id: int = 0) -> None:
        """What a driver does that dies between its decision and its end."""
        strategy = TaskTransactions(self.cluster, self.options)
        collected, batch = MicroBatchCommit(self.cluster, self.options, batch_id, strategy).collect(tasks)
        decided = replace(batch, pending=list_decided(collected))
        MarkerWriter(self.cluster, self.options, collected[0].token).write(decided)

    def time_out(self, *tasks: OpenTask) -> None:
        """Stands for a time-out, without the wait: the coordinator aborts, here because it is asked to. In the first protocol it
        leaves the epoch as it is, which a time-out raises by one. An administrator's abort in a partition, which the coordinator
        does not get to know, is :func:`abort_in_partition`."""
        abort_all(self.cluster, [task.transaction for task in tasks if task.transaction is not None])

    def marker(self) -> Any:
        return read_markers(self.cluster, self.options.transactional_id, self.topic).get(self.topic)

    def open(self) -> int:
        """How many transactions of tasks are open, once those that are being ended have ended."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            states = [each.state for each in list_open(self.cluster, task_prefix(self.options.transactional_id))]
            if set(states) <= {"Ongoing"}:
                return len(states)
            assert time.monotonic() < deadline
            time.sleep(0.02)


def abort_in_partition(brokers: Any, task: OpenTask, n: int = 0) -> None:
    """What an administrator does with Kafka's own tool: abort a task's transaction in the n-th partition that it wrote to."""
    place = task.ranges[n]
    where = ["--topic", place.topic, "--partition", str(place.partition), "--start-offset", str(place.first_offset)]
    brokers.tool("org.apache.kafka.tools.TransactionsCommand", "abort", *where)


def encoded(number: int, task: OpenTask, topic: str, *values: bytes) -> EncodedTask:
    """The same task as a driver transaction has it."""
    batches = encode_batches(
        key=None,
        value=pa.array(values, pa.binary()),
        headers=None,
        timestamp=np.full(len(values), int(time.time() * 1000), np.int64),
        codec=Codec.NONE,
        max_batch_bytes=16_384,
    )
    return EncodedTask(
        query_id=task.query_id,
        batch_id=task.batch_id,
        task=number,
        batches={TopicPartition(topic, 0): batches},
        n_records=task.n_records,
        n_bytes=0,
        digest=task.digest,
    )
