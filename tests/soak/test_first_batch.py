"""The first batch of a query that starts at latest, killed at each step after its offsets are logged, while records arrive.

Spark logs only the end of that batch: a process that replays it asks for its start again, when latest has moved on. The start
travels in the end, so nothing is lost. `make chaos` runs it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from confluent_kafka import Producer

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(3000)]

QUERY = Path(__file__).with_name("first_batch_query.py")
#: A Spark session alone takes two minutes to start on a machine that does much else.
PATIENCE_S = 600.0


class Arrivals(threading.Thread):
    """Some hundred records a second to both partitions, until told to stop."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})
        self._topic = topic
        self._stop_asked = threading.Event()
        self.ends = [0, 0]

    def run(self) -> None:
        while not self._stop_asked.wait(0.02):
            for partition in (0, 1):
                for _ in range(3):
                    self._producer.produce(
                        self._topic, b"%d" % self.ends[partition], partition=partition, on_delivery=self._delivered
                    )
            self._producer.flush(30)

    def _delivered(self, error: Any, message: Any) -> None:
        assert not error, error
        self.ends[message.partition()] = message.offset() + 1

    def finish(self) -> list[int]:
        """The ends of both logs."""
        self._stop_asked.set()
        self.join(60)
        return list(self.ends)


@pytest.fixture
def start_query(java: None, kafka: Any, tmp_path: Path) -> Iterator[Any]:
    """Starts the query's process: ``start_query(topic, step)``; what is left of it is killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(topic: str, step: str) -> subprocess.Popen[bytes]:
        arguments = [kafka.bootstrap_servers, topic, str(tmp_path), step]
        with (tmp_path / f"{step}.log").open("wb") as log:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}
            environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
            process = subprocess.Popen(
                [sys.executable, str(QUERY), *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the driver, its JVM and its workers at once."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(60)


@pytest.mark.parametrize("step", ["logged", "reading", "written", "committed"])
def test_nothing_is_lost_by_a_kill_in_the_first_batch(
    step: str, kafka: Any, topic: Any, start_query: Any, tmp_path: Path
) -> None:
    name = topic(2)
    arrivals = Arrivals(kafka.bootstrap_servers, name)
    arrivals.start()
    _await(lambda: min(arrivals.ends) > 20, "the first records")
    before = list(arrivals.ends)
    checkpoint = tmp_path / "checkpoint"
    reached = {"logged": checkpoint / "offsets" / "0", "committed": checkpoint / "commits" / "0"}
    process = start_query(name, step)
    _await((reached.get(step) or tmp_path / step).exists, f"step {step}", process=process, log=tmp_path / f"{step}.log")
    kill(process)
    logged = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    starts = [logged["starts"][name][str(p)] for p in (0, 1)]
    assert all(a <= b for a, b in zip(before, starts, strict=True))
    # Far beyond the first batch, so that another look at latest would skip much.
    _await(lambda: all(now > logged["offsets"][name][str(p)] + 100 for p, now in enumerate(arrivals.ends)), "more")
    ends = arrivals.finish()
    again = start_query(name, "on")
    assert again.wait(PATIENCE_S) == 0, (tmp_path / "on.log").read_text()[-3000:]
    rows = [
        (row["partition"], row["offset"])
        for file in (tmp_path / "table").rglob("*.parquet")
        for row in pyarrow.parquet.ParquetFile(file).read().to_pylist()
    ]
    assert sorted(rows) == [(p, offset) for p in (0, 1) for offset in range(starts[p], ends[p])]


def _await(
    condition: Any, what: str, *, process: subprocess.Popen[bytes] | None = None, log: Path | None = None
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process is None or process.poll() is None, log and log.read_text()[-3000:]
        assert time.monotonic() < deadline, f"{what} did not come: {log and log.read_text()[-3000:]}"
        time.sleep(0.01)
