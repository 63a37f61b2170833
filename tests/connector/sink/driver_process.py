"""The driver's part of an exactly-once query in a process of its own, which dies or stops where a test tells it to.

It commits numbered micro-batches one after the other, each from the messages of two tasks, and keeps a log of those that
are done, as Spark does: a process that is started again goes on behind the last one in it. Its records are always the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pykafka_wire.options.sink import ExactlyOnceOptions
from pykafka_wire.sink.exactly_once import commit
from pykafka_wire.sink.exactly_once.commit import MicroBatchCommit
from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.driver_transaction import DriverTransaction
from pykafka_wire.sink.exactly_once.tasks import EncodedTask
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.connection.connection import ResponseFuture
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction

N_TASKS = 2
#: Of each task, in each topic-partition.
N_RECORDS = 3
BEFORE_SEND, AFTER_SEND, AFTER_RESPONSE = "before send", "after send", "after response"


@dataclass(frozen=True, kw_only=True)
class Strike:
    """Where a signal strikes: at a request of one API, while one micro-batch is being committed."""

    api: str
    moment: str
    batch_id: int
    signal: int = int(signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Drive:
    """What a process is to do: the micro-batches that its log lacks, up to `n_batches`.

    Attributes:
        log: the file that names the micro-batches done; `report` takes the text of the error that ends the process.
        without: "marker" or "fence", to switch that safeguard off; with tasks "marker" or "replacements".
        settings: more client settings of a query through tasks.
    """

    servers: str
    topic: str
    n_partitions: int
    transactional_id: str
    log: Path
    report: Path
    n_batches: int
    strike: Strike | None = None
    without: str = ""
    settings: tuple[tuple[str, str], ...] = ()


def done(log: Path) -> int:
    """How many micro-batches a log names."""
    return len(log.read_text().splitlines()) if log.exists() else 0


def values(batch_id: int, partition: int) -> list[bytes]:
    """What a micro-batch writes to a topic-partition, in order."""
    return [b"%d/%d/%d/%d" % (batch_id, partition, t, i) for t in range(N_TASKS) for i in range(N_RECORDS)]


def messages(drive: Drive, batch_id: int) -> list[EncodedTask]:
    """A micro-batch as its tasks would send it; the last partition gets nothing of every third one."""
    tasks = []
    for task in range(N_TASKS):
        batches = {}
        for partition in range(drive.n_partitions - (batch_id % 3 == 2)):
            own = values(batch_id, partition)[task * N_RECORDS : (task + 1) * N_RECORDS]
            batches[TopicPartition(drive.topic, partition)] = encode_batches(
                key=None,
                value=pa.array(own, pa.binary()),
                headers=None,
                timestamp=np.full(len(own), int(time.time() * 1000), np.int64),
                codec=Codec.NONE,
                max_batch_bytes=16_384,
                max_records=2,
            )
        n_records = N_RECORDS * len(batches)
        tasks.append(
            EncodedTask(
                query_id="query",
                batch_id=batch_id,
                task=task,
                batches=batches,
                n_records=n_records,
                n_bytes=0,
                digest=1,
            )
        )
    return tasks


def expected(drive: Drive) -> list[list[bytes]]:
    """What all micro-batches write, by partition."""
    last = drive.n_partitions - 1
    return [
        [value for b in range(drive.n_batches) if partition < last or b % 3 != 2 for value in values(b, partition)]
        for partition in range(drive.n_partitions)
    ]


def run(drive: Drive) -> None:
    """Commits what is left to do."""
    try:
        _run(drive)
    except Exception as error:
        drive.report.write_text(str(error))
        os._exit(1)


def _run(drive: Drive) -> None:
    _switch_off(drive.without)
    options = ExactlyOnceOptions(transactional_id=drive.transactional_id, marker_topic=drive.topic)
    current = -1
    strike, stack = drive.strike, contextlib.ExitStack()
    if strike is not None:
        stack.enter_context(arm(strike, lambda: current, lambda: os.kill(os.getpid(), strike.signal)))
    given = {"bootstrap.servers": drive.servers, "retry.backoff.ms": "20", "retry.backoff.max.ms": "200"}
    if strike is not None and strike.signal == signal.SIGSTOP:  # the time that it is stopped counts for its deadlines
        given |= dict.fromkeys(["default.api.timeout.ms", "request.timeout.ms", "delivery.timeout.ms"], "300000")
    with stack, Cluster(ClientSettings.from_options(given)) as cluster:
        for batch_id in range(done(drive.log), drive.n_batches):
            current = batch_id
            strategy = DriverTransaction(cluster, options, max_bytes=1 << 20)
            MicroBatchCommit(cluster, options, batch_id, strategy).run(messages(drive, batch_id))
            with drive.log.open("a") as log:
                log.write(f"{batch_id}\n")


@contextlib.contextmanager
def arm(strike: Strike, batch_id: Callable[[], int], act: Callable[[], None]) -> Iterator[None]:
    """Calls `act` where a strike is first due; `batch_id` says which micro-batch is being committed."""
    send, result = Cluster.send, ResponseFuture.result
    struck = False

    def strike_if_due(request: Any, moment: str) -> None:
        nonlocal struck
        due = batch_id() == strike.batch_id and request.name == strike.api and moment == strike.moment
        if due and not struck:
            struck = True  # a request that is repeated, as while the transaction before is being ended, strikes no more
            act()

    def send_and_strike(self: Any, node_id: int, request: Any, **options: Any) -> Any:
        strike_if_due(request, BEFORE_SEND)
        pending = send(self, node_id, request, **options)
        strike_if_due(request, AFTER_SEND)
        return pending

    def response_and_strike(self: Any, *deadlines: Any) -> Any:
        response = result(self, *deadlines)
        strike_if_due(self.sent.request, AFTER_RESPONSE)
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
        commit.decide = lambda *_, **__: Decision.WRITE  # type: ignore[assignment]
    elif safeguard == "fence":
        begin = Transaction.begin

        def unfenced(cluster: Cluster, transactional_id: str) -> Transaction:
            return begin(cluster, f"{transactional_id}-{os.getpid()}")

        Transaction.begin = unfenced  # type: ignore[method-assign,assignment]
