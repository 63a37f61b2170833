"""Spark drivers as processes that can be killed with all that belongs to them, and topics full of numbers to copy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Producer

from tests.connector.sink.query_process import Job

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 300.0


@dataclass
class Driver:
    """A driver's process, in a session of its own, with its output in a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> int:
        return self.process.wait(TIMEOUT_S)

    def processes(self) -> Iterator[psutil.Process]:
        """It and all that it started, JVMs and Python workers."""
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.process.pid:
                    yield process
            except ProcessLookupError:
                continue

    def kill(self) -> None:
        """SIGKILL for all of it."""
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.wait()

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Drivers:
    """Starts drivers of one query, one after the other or side by side."""

    folder: Path
    started: list[Driver] = field(default_factory=list)

    def start(self, job: Job) -> Driver:
        number = len(self.started)
        path, log = job.write(self.folder / f"job-{number}.json"), self.folder / f"driver-{number}.log"
        environment = {name: v for name, v in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        environment |= {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "spark"),
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "PYSPARK_SUBMIT_ARGS": "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell",
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.connector.sink.query_process", str(path)],
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.started.append(Driver(process, log))
        return self.started[-1]

    def finish(self, job: Job) -> None:
        """Runs a driver to its end."""
        driver = self.start(job)
        assert driver.wait() == 0, driver.output

    def close(self) -> None:
        for driver in self.started:
            driver.kill()


def fill(servers: str, topic: str, n_records: int, n_partitions: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 0})
    for number in range(n_records):
        producer.produce(topic, b"%d" % number, partition=number % n_partitions)
        if number % 50_000 == 0:  # its queue holds 100,000
            assert producer.flush(TIMEOUT_S) == 0
    assert producer.flush(TIMEOUT_S) == 0
