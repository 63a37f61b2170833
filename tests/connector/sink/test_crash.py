"""The driver of an exactly-once query dies, or is outlived by its successor, at every request of a commit.

An independent read_committed reader looks on all the time: nothing may be missing, nothing twice, and the order of each
topic-partition must hold. With the marker or the fence switched off the same checks must fail.
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

from tests.connector.sink.crash_checks import TIMEOUT_S, Reader, check, finish, report_of
from tests.connector.sink.driver_process import AFTER_RESPONSE, AFTER_SEND, BEFORE_SEND, Drive, Strike, done

pytestmark = pytest.mark.broker

APIS = {
    "TV1": ["InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"],
    "TV2": ["InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"],
}
MOMENTS = [BEFORE_SEND, AFTER_SEND, AFTER_RESPONSE]


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
