"""An exactly-once query through tasks in a process of its own, its driver and its tasks, which dies or stops at a request.

As :mod:`~tests.connector.sink.driver_process`, whose log, report and values it shares; here a strike is at the n-th request of a
micro-batch, whoever sends it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once import commit
from pykafka_wire.sink.exactly_once.commit import MicroBatchCommit
from pykafka_wire.sink.exactly_once.fencing import FencingToken, fence_micro_batch
from pykafka_wire.sink.exactly_once.task_ids import next_task_id
from pykafka_wire.sink.exactly_once.task_transactions import TaskTransactions
from pykafka_wire.sink.exactly_once.tasks import OpenTask, ranges_of
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.connection.connection import ResponseFuture
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.connector.sink.driver_process import (
    AFTER_RESPONSE,
    AFTER_SEND,
    BEFORE_SEND,
    N_RECORDS,
    N_TASKS,
    Drive,
    done,
    values,
)

QUERY = "query"


@dataclass(frozen=True, kw_only=True)
class NumberedStrike:
    """Where a signal strikes: at the n-th request, from 0, of a micro-batch.

    Attributes:
        api: only requests of this API count, if it is not empty.
    """

    number: int
    moment: str
    batch_id: int
    api: str = ""
    signal: int = int(signal.SIGKILL)


def write_task(
    cluster: Cluster,
    transactional_id: str,
    token: FencingToken,
    batch_id: int,
    task: int,
    records: Sequence[tuple[str, int, bytes]],
    *,
    query_id: str = QUERY,
    digest: int | None = None,
) -> OpenTask:
    """What a task does: records of (topic, partition, value) in a transaction that it leaves open."""
    transaction = Transaction.begin(cluster, next_task_id(transactional_id, query_id, batch_id))
    for (topic, partition), group in itertools.groupby(records, key=lambda record: record[:2]):
        own = [value for _, _, value in group]
        batches = encode_batches(
            key=None,
            value=pa.array(own, pa.binary()),
            headers=None,
            timestamp=np.full(len(own), int(time.time() * 1000), np.int64),
            codec=Codec.NONE,
            max_batch_bytes=16_384,
            max_records=2,
        )
        transaction.append(topic, partition, batches)
    ranges = ranges_of(transaction.flush())
    content = sum(hash(record[2]) & 0xFFFF for record in records)
    return OpenTask(
        query_id=query_id,
        batch_id=batch_id,
        task=task,
        token=token,
        transaction=transaction.leave_open(),
        n_records=len(records),
        n_bytes=0,
        digest=content if digest is None else digest,
        ranges=ranges,
    )


def write_tasks(cluster: Cluster, drive: Drive, token: FencingToken, batch_id: int) -> list[OpenTask]:
    """All tasks of a micro-batch; the last partition gets nothing of every third one."""
    partitions = range(drive.n_partitions - (batch_id % 3 == 2))
    return [
        write_task(
            cluster,
            drive.transactional_id,
            token,
            batch_id,
            task,
            [
                (drive.topic, partition, value)
                for partition in partitions
                for value in values(batch_id, partition)[task * N_RECORDS : (task + 1) * N_RECORDS]
            ],
            digest=batch_id * N_TASKS + task,
        )
        for task in range(N_TASKS)
    ]


def options_of(drive: Drive) -> ExactlyOnceOptions:
    return ExactlyOnceOptions(transactional_id=drive.transactional_id, marker_topic=drive.topic, through_tasks=True)


def run(drive: Drive, strike: NumberedStrike | None = None, requests: Any = None) -> None:
    """Commits what is left to do. `requests` gets the APIs of each request of the last micro-batch."""
    try:
        _run(drive, strike, requests)
    except Exception as error:
        drive.report.write_text(str(error))
        os._exit(1)


def _run(drive: Drive, strike: NumberedStrike | None, requests: Any) -> None:
    _switch_off(drive.without)
    current = -1
    given = {"bootstrap.servers": drive.servers, "retry.backoff.ms": "20", "retry.backoff.max.ms": "200"}
    given |= dict(drive.settings)
    if strike is not None and strike.signal == signal.SIGSTOP:  # the time that it is stopped counts for its deadlines
        given |= dict.fromkeys(["default.api.timeout.ms", "request.timeout.ms", "delivery.timeout.ms"], "300000")
    stack, options = contextlib.ExitStack(), options_of(drive)
    seen: list[str] = []
    act: Callable[[], None] = lambda: None  # noqa: E731
    if strike is not None:
        struck_with = strike.signal
        act = lambda: os.kill(os.getpid(), struck_with)  # noqa: E731
    stack.enter_context(count(strike, lambda: current, act, seen))
    with stack, Cluster(ClientSettings.from_options(given)) as cluster:
        for batch_id in range(done(drive.log), drive.n_batches):
            seen.clear()
            current = batch_id
            token = fence_micro_batch(cluster, options)
            strategy = TaskTransactions(cluster, options)
            MicroBatchCommit(cluster, options, batch_id, strategy).run(write_tasks(cluster, drive, token, batch_id))
            with drive.log.open("a") as log:
                log.write(f"{batch_id}\n")
    if requests is not None:
        requests.put(list(seen))


@contextlib.contextmanager
def count(
    strike: NumberedStrike | None, batch_id: Callable[[], int], act: Callable[[], None], seen: list[str]
) -> Iterator[None]:
    """Keeps the APIs of all requests in `seen`, and calls `act` where a strike is due."""
    send, result = Cluster.send, ResponseFuture.result
    due: list[Any] = []
    counted = itertools.count()

    def is_due(request: Any) -> bool:
        if strike is None or batch_id() != strike.batch_id:
            return False
        if strike.api and request.name != strike.api:
            return False
        return next(counted) == strike.number

    def send_and_strike(self: Any, node_id: int, request: Any, **options: Any) -> Any:
        seen.append(request.name)
        now = is_due(request)
        assert strike is not None or not now
        if now and strike is not None and strike.moment == BEFORE_SEND:
            act()
        pending = send(self, node_id, request, **options)
        if now and strike is not None and strike.moment == AFTER_SEND:
            act()
        if now and strike is not None and strike.moment == AFTER_RESPONSE:
            due.append(pending)
        return pending

    def response_and_strike(self: Any, *deadlines: Any) -> Any:
        response = result(self, *deadlines)
        if self in due:
            due.clear()
            act()
        return response

    Cluster.send = send_and_strike  # type: ignore[method-assign]
    ResponseFuture.result = response_and_strike  # type: ignore[method-assign]
    try:
        yield
    finally:
        Cluster.send = send  # type: ignore[method-assign]
        ResponseFuture.result = result  # type: ignore[method-assign]


def _switch_off(safeguard: str) -> None:
    if safeguard == "marker":
        commit.read_markers = lambda *_: {}  # type: ignore[attr-defined]
        commit.decide = lambda *_, **__: commit.Decision.WRITE  # type: ignore[attr-defined]
    elif safeguard == "replacements":
        commit.replacements = lambda *_, **__: []  # type: ignore[attr-defined]
