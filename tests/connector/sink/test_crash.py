"""The driver of an exactly-once query dies, or is outlived by its successor, at every request of a commit.

An independent read_committed reader looks on all the time: nothing may be missing, nothing twice, and the order of each
topic-partition must hold. With the marker or the fence switched off the same checks must fail.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.connector.sink import driver_process
from tests.connector.sink.driver_process import AFTER_RESPONSE, AFTER_SEND, BEFORE_SEND, Drive, Strike, done, expected

pytestmark = pytest.mark.broker

APIS = {
    "TV1": ["InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"],
    "TV2": ["InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"],
}
MOMENTS = [BEFORE_SEND, AFTER_SEND, AFTER_RESPONSE]
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


@pytest.fixture(scope="module")
def processes() -> Any:
    """Starts processes by forking one that has everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([driver_process.__name__])
    return context


@pytest.fixture
def start(processes: Any) -> Iterator[Callable[[Drive], Any]]:
    """Starts a driver; it is killed when the test ends."""
    started: list[Any] = []

    def begin(drive: Drive) -> Any:
        process = processes.Process(target=driver_process.run, args=(drive,))
        process.start()
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.join(TIMEOUT_S)


@pytest.fixture
def drive_of(topic: Any, tmp_path: Path) -> Callable[..., Drive]:
    """What a driver of a query of this test's own is to do on some brokers."""

    def make(brokers: Any, n_batches: int, **more: Any) -> Drive:
        return Drive(
            servers=brokers.bootstrap_servers,
            topic=topic(N_PARTITIONS, cluster=brokers),
            n_partitions=N_PARTITIONS,
            transactional_id=f"query-{uuid.uuid4().hex[:8]}",
            log=tmp_path / "log",
            report=tmp_path / "report",
            n_batches=n_batches,
            **more,
        )

    return make


@pytest.fixture
def read() -> Iterator[Callable[[Drive], Reader]]:
    """Begins to read a driver's topic."""
    readers: list[Reader] = []

    def begin(drive: Drive) -> Reader:
        readers.append(Reader(drive.servers, drive.topic))
        readers[-1].start()
        return readers[-1]

    yield begin
    for reader in readers:
        reader.end()


def report_of(drive: Drive) -> str:
    """The error that ended a driver, if one did."""
    return drive.report.read_text() if drive.report.exists() else "no error: it goes on, stands still, or did all"


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


@pytest.mark.parametrize("repeats", [1, pytest.param(5, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_killed_at_every_request_and_restarted(
    transaction_version_brokers: tuple[str, Any],
    repeats: int,
    drive_of: Callable[..., Drive],
    start: Callable[[Drive], Any],
    read: Callable[[Drive], Reader],
    outside_of: Any,
) -> None:
    version, brokers = transaction_version_brokers
    strikes = [(api, moment) for api in APIS[version] for moment in MOMENTS] * repeats
    drive = drive_of(brokers, len(strikes) + 2)
    reader = read(drive)
    for api, moment in strikes:
        # Each process first runs the micro-batch again that its predecessor died in, then dies in the next one.
        batch_id = done(drive.log) + 1
        process = start(replace(drive, strike=Strike(api=api, moment=moment, batch_id=batch_id)))
        process.join(TIMEOUT_S)
        assert process.exitcode == -signal.SIGKILL, f"{api}, {moment}: {process.exitcode}"
        assert done(drive.log) == batch_id, f"{api}, {moment}"
    finish(start, drive)
    check(reader, outside_of(drive.servers), drive)


def outlive(
    drive: Drive, api: str, start: Callable[[Drive], Any], outside: Any, reader: Reader, fenced_by: str
) -> None:
    """A driver stops before it sends a request, another one takes the query over and ends it, then the first goes on."""
    zombie = start(replace(drive, strike=Strike(api=api, moment=BEFORE_SEND, batch_id=1, signal=int(signal.SIGSTOP))))
    deadline = time.monotonic() + TIMEOUT_S
    stopped = False
    while not stopped:
        assert time.monotonic() < deadline and zombie.exitcode is None, report_of(drive)
        time.sleep(0.01)
        with contextlib.suppress(psutil.NoSuchProcess):
            stopped = psutil.Process(zombie.pid).status() == psutil.STATUS_STOPPED
    assert done(drive.log) == 1
    # The successor's log is a copy: the zombie has not written its own since.
    copied = drive.log.with_name("log-of-successor")
    copied.write_text(drive.log.read_text())
    finish(start, replace(drive, log=copied, report=drive.report.with_name("report-of-successor")))
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.join(TIMEOUT_S)
    check(reader, outside, drive)
    assert zombie.exitcode == 1, report_of(drive)
    assert fenced_by in report_of(drive)


@pytest.mark.parametrize("api", ["InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"])
def test_a_driver_that_comes_back_after_its_successor_writes_nothing(
    transaction_version_brokers: tuple[str, Any],
    api: str,
    drive_of: Callable[..., Drive],
    start: Callable[[Drive], Any],
    read: Callable[[Drive], Reader],
    outside_of: Any,
) -> None:
    drive = drive_of(transaction_version_brokers[1], 3)
    # One that has yet to begin takes the id over again, rightfully, and finds the marker beyond it.
    why = (
        "its checkpoint was set back, or a second run of the query is active"
        if api == "InitProducerId"
        else "taken over"
    )
    outlive(drive, api, start, outside_of(drive.servers), read(drive), why)


def test_without_the_marker_the_matrix_finds_duplicates(
    kafka: Any,
    drive_of: Callable[..., Drive],
    start: Callable[[Drive], Any],
    read: Callable[[Drive], Reader],
    outside: Any,
) -> None:
    drive = drive_of(kafka, 3, without="marker")
    reader = read(drive)
    process = start(replace(drive, strike=Strike(api="EndTxn", moment=AFTER_RESPONSE, batch_id=1)))
    process.join(TIMEOUT_S)
    assert process.exitcode == -signal.SIGKILL
    finish(start, drive)
    with pytest.raises(AssertionError, match="lost, doubled"):
        check(reader, outside, drive)


def test_without_the_fence_a_driver_that_comes_back_writes_duplicates(
    kafka: Any,
    drive_of: Callable[..., Drive],
    start: Callable[[Drive], Any],
    read: Callable[[Drive], Reader],
    outside: Any,
) -> None:
    drive = drive_of(kafka, 3, without="fence")
    with pytest.raises(AssertionError, match="lost, doubled"):
        outlive(drive, "TxnOffsetCommit", start, outside, read(drive), "taken over")
