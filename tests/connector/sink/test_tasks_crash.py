"""An exactly-once query through tasks dies at every request of its tasks and of its driver, or is outlived by its successor.

An independent read_committed reader looks on all the time: nothing may be missing, nothing twice, and the order of each
topic-partition must hold. With the marker or the replacements switched off the same checks must fail.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psutil
import pytest

from pykafka_wire.sink.exactly_once.decision import Decision
from pykafka_wire.sink.exactly_once.task_ids import task_prefix
from pykafka_wire.sink.exactly_once.task_transactions import TaskTransactions
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.transactions.bulk import list_open
from pykafka_wire.wire.transactions.coordinator import TransactionVersion
from tests.connector.sink.crash_checks import TIMEOUT_S, Reader, check, report_of
from tests.connector.sink.driver_process import AFTER_RESPONSE, AFTER_SEND, BEFORE_SEND, Drive, done
from tests.connector.sink.tasks_process import NumberedStrike, run
from tests.connector.sink.tasks_query import Query

pytestmark = pytest.mark.broker

MOMENTS = [BEFORE_SEND, AFTER_SEND, AFTER_RESPONSE]
#: Of one micro-batch of two tasks that write to one partition, as a driver that has done one before sends them. TV1 adds
#: partitions and groups by request.
N_REQUESTS = {"TV1": 23, "TV2": 19}


def finish(start: Callable[..., Any], drive: Drive) -> None:
    """Runs a query to its end."""
    process = start(drive, run=run)
    process.join(TIMEOUT_S)
    assert process.exitcode == 0, report_of(drive)
    assert done(drive.log) == drive.n_batches


def test_a_micro_batch_takes_at_least_so_many_requests(
    transaction_version_brokers: tuple[str, Any],
    drive_of: Callable[..., Drive],
    start: Callable[..., Any],
    processes: Any,
) -> None:
    version, brokers = transaction_version_brokers
    requests = processes.Queue()
    process = start(drive_of(brokers, 2), None, requests, run=run)
    found = requests.get(timeout=TIMEOUT_S)
    process.join(TIMEOUT_S)
    assert len(found) >= N_REQUESTS[version], found  # one may be repeated while a transaction is being ended


@pytest.mark.parametrize("repeats", [0, pytest.param(5, marks=[pytest.mark.long, pytest.mark.timeout(7200)])])
def test_killed_at_every_request_and_restarted(
    transaction_version_brokers: tuple[str, Any],
    repeats: int,
    drive_of: Callable[..., Drive],
    start: Callable[..., Any],
    read: Callable[[Drive], Reader],
    outside_of: Any,
) -> None:
    version, brokers = transaction_version_brokers
    every = [(number, moment) for number in range(N_REQUESTS[version]) for moment in MOMENTS]
    strikes = every * repeats or [(number, MOMENTS[number % 3]) for number in range(1, N_REQUESTS[version], 2)]
    drive = drive_of(brokers, len(strikes) + 2)
    reader = read(drive)
    for number, moment in strikes:
        # Each process first runs the micro-batch again that its predecessor died in, then dies in the next one.
        batch_id = done(drive.log) + 1
        process = start(drive, NumberedStrike(number=number, moment=moment, batch_id=batch_id), run=run)
        process.join(TIMEOUT_S)
        assert process.exitcode == -signal.SIGKILL, f"{number}, {moment}: {process.exitcode}, {report_of(drive)}"
        assert done(drive.log) == batch_id, f"{number}, {moment}"
    finish(start, drive)
    check(reader, outside_of(drive.servers), drive)


def stopped_before(start: Callable[..., Any], drive: Drive, api: str, number: int) -> Any:
    """A query that has stopped in micro-batch 1 before it sends the n-th request of an API."""
    strike = NumberedStrike(number=number, moment=BEFORE_SEND, batch_id=1, api=api, signal=int(signal.SIGSTOP))
    process = start(drive, strike, run=run)
    deadline = time.monotonic() + TIMEOUT_S
    stopped = False
    while not stopped:
        assert time.monotonic() < deadline and process.exitcode is None, report_of(drive)
        time.sleep(0.01)
        with contextlib.suppress(psutil.NoSuchProcess):
            stopped = psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    assert done(drive.log) == 1
    return process


def go_on(process: Any) -> int | None:
    os.kill(process.pid, signal.SIGCONT)
    process.join(TIMEOUT_S)
    code: int | None = process.exitcode
    return code


FENCED = "has taken over the transactional id"
#: Where the first driver stops, and what it reports when it comes back after its successor has done all.
ZOMBIES = [
    # It fences its successor rightfully, and finds the marker beyond it.
    ("InitProducerId", 0, "its checkpoint was set back, or a second run of the query is active"),
    # Its task begins again what nobody else uses; then it finds the same.
    ("InitProducerId", 1, "its checkpoint was set back, or a second run of the query is active"),
    ("TxnOffsetCommit", 0, FENCED),
    ("EndTxn", 0, FENCED),
    ("EndTxn", 1, "PRODUCER_FENCED"),
    ("TxnOffsetCommit", 1, FENCED),
    ("EndTxn", 3, FENCED),
]


@pytest.mark.parametrize(("api", "number", "why"), ZOMBIES)
def test_a_driver_that_comes_back_after_its_successor_changes_nothing(
    api: str,
    number: int,
    why: str,
    kafka: Any,
    drive_of: Callable[..., Drive],
    start: Callable[..., Any],
    read: Callable[[Drive], Reader],
    outside: Any,
) -> None:
    outlive(drive_of(kafka, 3), api, number, why, start, read, outside)


@pytest.mark.long
@pytest.mark.parametrize("repeat", range(5))
@pytest.mark.parametrize(("api", "number", "why"), ZOMBIES)
def test_a_driver_that_comes_back_after_its_successor_changes_nothing_five_times(
    api: str,
    number: int,
    why: str,
    repeat: int,
    transaction_version_brokers: tuple[str, Any],
    drive_of: Callable[..., Drive],
    start: Callable[..., Any],
    read: Callable[[Drive], Reader],
    outside_of: Any,
) -> None:
    drive = drive_of(transaction_version_brokers[1], 3)
    outlive(drive, api, number, why, start, read, outside_of(drive.servers))


def outlive(
    drive: Drive,
    api: str,
    number: int,
    why: str,
    start: Callable[..., Any],
    read: Callable[[Drive], Reader],
    outside: Any,
) -> None:
    """A driver stops before a request, another one takes the query over and ends it, then the first goes on."""
    reader = read(drive)
    zombie = stopped_before(start, drive, api, number)
    # The successor's log is a copy: the zombie has not written its own since.
    copied = drive.log.with_name("log-of-successor")
    copied.write_text(drive.log.read_text())
    finish(start, replace(drive, log=copied, report=drive.report.with_name("report-of-successor")))
    assert go_on(zombie) == 1, report_of(drive)
    assert why in report_of(drive)
    check(reader, outside, drive)


def timed_out_after_its_decision(start: Callable[..., Any], drive: Drive) -> None:
    """A driver that is paused between its decision and the end of its tasks' transactions, until these have timed out."""
    paused = stopped_before(start, drive, "EndTxn", 1)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": drive.servers})) as cluster:
        deadline = time.monotonic() + TIMEOUT_S
        while list_open(cluster, task_prefix(drive.transactional_id)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert go_on(paused) == 1
    assert "micro-batch 1 is decided, and 2 of its 2 transactions were aborted" in report_of(drive)
    assert "Start the query again: its replay writes the same rows in their place." in report_of(drive)


SHORT = (("transaction.timeout.ms", "6000"),)


def test_paused_past_its_transactions_time_out_between_decision_and_end(
    transaction_version_brokers: tuple[str, Any],
    drive_of: Callable[..., Drive],
    start: Callable[..., Any],
    read: Callable[[Drive], Reader],
    outside_of: Any,
) -> None:
    drive = drive_of(transaction_version_brokers[1], 3, settings=SHORT)
    reader = read(drive)
    timed_out_after_its_decision(start, drive)
    finish(start, replace(drive, settings=()))
    check(reader, outside_of(drive.servers), drive)


def test_without_replacements_a_time_out_after_the_decision_loses_records(
    kafka: Any,
    drive_of: Callable[..., Drive],
    start: Callable[..., Any],
    read: Callable[[Drive], Reader],
    outside: Any,
) -> None:
    drive = drive_of(kafka, 3, settings=SHORT, without="replacements")
    reader = read(drive)
    timed_out_after_its_decision(start, drive)
    finish(start, replace(drive, settings=()))
    with pytest.raises(AssertionError, match="lost, doubled"):
        check(reader, outside, drive)


def test_without_the_marker_the_matrix_finds_duplicates(
    kafka: Any,
    drive_of: Callable[..., Drive],
    start: Callable[..., Any],
    read: Callable[[Drive], Reader],
    outside: Any,
) -> None:
    drive = drive_of(kafka, 3, without="marker")
    reader = read(drive)
    strike = NumberedStrike(number=3, moment=AFTER_RESPONSE, batch_id=1, api="EndTxn")
    process = start(drive, strike, run=run)
    process.join(TIMEOUT_S)
    assert process.exitcode == -signal.SIGKILL, report_of(drive)
    finish(start, drive)
    with pytest.raises(AssertionError, match="lost, doubled"):
        check(reader, outside, drive)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", ["_decide", "_end", "_settle"])
def test_a_broker_that_coordinates_half_of_the_transactions_is_killed_and_comes_back_before_a_step(
    step: str, kafka_cluster: Any, topic: Any, visible: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"transaction.state.log.min.isr": "1", "min.insync.replicas": "1", "broker.session.timeout.ms": "3000"}
    brokers = kafka_cluster(2, properties)
    name = topic(4, cluster=brokers)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers})) as cluster:
        query = Query(cluster, brokers.bootstrap_servers, name)
        token = query.fence()
        tasks = [query.task(token, i, b"%03d" % i) for i in range(30)]
        take_step, killed = getattr(TaskTransactions, step), []

        def kill_first(self: TaskTransactions, *arguments: Any) -> None:
            if not killed:
                killed.append(brokers.nodes[0])
                brokers.nodes[0].kill()
                brokers.nodes[0].start()
            take_step(self, *arguments)

        monkeypatch.setattr(TaskTransactions, step, kill_first)
        assert query.commit(*tasks) is Decision.WRITE
        assert killed
        # A committed transaction is visible once its coordinator, which has just started, has reached the partition's leader.
        deadline = time.monotonic() + TIMEOUT_S
        while len(found := visible(query)) < len(tasks) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert found == [b"%03d" % i for i in range(30)]
        assert query.marker().pending == ()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_brokers_change_to_the_second_protocol_between_a_decision_and_its_replay(
    kafka_cluster: Any, topic: Any, visible: Any
) -> None:
    brokers = kafka_cluster(1, format_arguments=["--feature", "transaction.version=1"])
    settings = ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers})
    name = topic(1, cluster=brokers)
    with Cluster(settings) as before, Cluster(settings) as after:
        query = Query(before, brokers.bootstrap_servers, name)
        assert query.commit(query.task(query.fence(), 0, b"a")) is Decision.WRITE
        token = query.fence()
        tasks = [query.task(token, i, value, batch_id=1) for i, value in enumerate([b"b", b"c"])]
        query.decide_and_crash(*tasks, batch_id=1)
        query.time_out(tasks[1])
        lost = query.task(token, 1, b"c", batch_id=1)
        assert lost.token.handle.version is TransactionVersion.TV1

        brokers.tool("org.apache.kafka.tools.FeatureCommand", "upgrade", "--feature", "transaction.version=2")
        query.cluster = after  # as a new process: it sees the brokers as they are now
        replay_token = query.fence()
        assert replay_token.handle.version is TransactionVersion.TV2
        assert query.open() == 0
        assert visible(query) == [b"a", b"b"]
        replay = [query.task(replay_token, i, value, batch_id=1) for i, value in enumerate([b"b", b"c"])]
        assert query.commit(*replay, batch_id=1) is Decision.SKIP
        assert query.commit(query.task(query.fence(), 0, b"d", batch_id=2), batch_id=2) is Decision.WRITE
        assert visible(query) == [b"a", b"b", b"c", b"d"]
