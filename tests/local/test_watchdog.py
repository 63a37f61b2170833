from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pykafka_wire.local.process import Watchdog


@pytest.fixture
def sleeper() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes that would outlive the test, each with a group of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "300"], start_new_session=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_closing_ends_what_is_watched_and_removes_the_folder(
    tmp_path: Path, sleeper: Callable[[], subprocess.Popen[bytes]]
) -> None:
    folder = tmp_path / "cluster"
    (folder / "data").mkdir(parents=True)
    watchdog = Watchdog(folder)
    watched, forgotten = sleeper(), sleeper()
    watchdog.watch(watched.pid)
    watchdog.watch(forgotten.pid)
    watchdog.forget(forgotten.pid)
    watchdog.close()
    assert watched.wait(5) == -signal.SIGKILL
    assert forgotten.poll() is None
    assert not folder.exists()


def test_a_paused_process_is_ended_too(tmp_path: Path, sleeper: Callable[[], subprocess.Popen[bytes]]) -> None:
    watchdog = Watchdog(tmp_path / "cluster")
    paused = sleeper()
    watchdog.watch(paused.pid)
    paused.send_signal(signal.SIGSTOP)
    watchdog.close()
    assert paused.wait(5) == -signal.SIGKILL


OWNER = """
import subprocess, sys, time
from pathlib import Path
from pykafka_wire.local.process import Watchdog
watchdog = Watchdog(Path(sys.argv[1]))
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
watchdog.watch(child.pid)
print(child.pid, watchdog._process.pid, flush=True)
time.sleep(300)
"""


def test_an_owner_killed_by_sigkill_takes_everything_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child, watchdog = (psutil.Process(int(pid)) for pid in owner.stdout.readline().split())
    # What a terminal's Ctrl-C and a service manager send must not end the watchdog before its owner.
    os.killpg(watchdog.pid, signal.SIGINT)
    os.killpg(watchdog.pid, signal.SIGTERM)
    assert child.is_running()
    owner.kill()
    owner.communicate()
    deadline = time.monotonic() + 20
    while any(alive(process) for process in (child, watchdog)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)
    assert not alive(watchdog)
    assert not folder.exists()


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
