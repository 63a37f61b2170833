"""What the crash tests share: a reader that looks on all the time, drivers that are run to their end, and the final check."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.connector.sink.driver_process import Drive, done, expected

N_PARTITIONS = 2
#: More than a driver takes to give up by itself and to say why.
TIMEOUT_S = 90.0


class Reader(threading.Thread):
    """Reads what is committed, as it is committed."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": servers, "group.id": "outside", "log_level": 0, "fetch.wait.max.ms": 50}
        self._consumer = Consumer(settings | {"isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(N_PARTITIONS)])
        self._ended = threading.Event()
        self.values: list[list[bytes]] = [[] for _ in range(N_PARTITIONS)]
        self.errors: list[Any] = []

    def run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error():
                self.errors.append(message.error())
            elif message is not None:
                self.values[message.partition()].append(message.value())
        self._consumer.close()

    def end(self) -> None:
        self._ended.set()
        self.join(TIMEOUT_S)


def report_of(drive: Drive) -> str:
    """The error that ended a driver, if one did."""
    return drive.report.read_text() if drive.report.exists() else "no error: it runs, hangs, or has finished"


def finish(start: Callable[[Drive], Any], drive: Drive) -> None:
    """Runs a driver to its end."""
    process = start(drive)
    process.join(TIMEOUT_S)
    assert process.exitcode == 0, report_of(drive)
    assert done(drive.log) == drive.n_batches


def check(reader: Reader, outside: Any, drive: Drive) -> None:
    """What the reader saw all the while, and another one sees now, is what was to be written: once, in order."""
    found: list[list[bytes]] = [[] for _ in range(N_PARTITIONS)]
    for record in outside.consume(drive.topic, isolation_level="read_committed"):
        found[record.partition].append(record.value)
    wanted = expected(drive)
    lost = [value for mine, theirs in zip(wanted, found, strict=True) for value in mine if value not in theirs]
    doubled = [value for theirs in found for value in {v for v in theirs if theirs.count(v) > 1}]
    assert (lost, doubled) == ([], []), "lost, doubled"
    assert found == wanted, "order"
    deadline = time.monotonic() + TIMEOUT_S
    while sum(map(len, reader.values)) < sum(map(len, found)):
        assert time.monotonic() < deadline, "the reader does not get on"
        time.sleep(0.02)
    reader.end()
    assert reader.values == found, reader.errors
