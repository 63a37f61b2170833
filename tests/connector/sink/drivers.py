"""Spark drivers as processes that can be killed with all that belongs to them, and topics full of numbers to copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyspark
from confluent_kafka import Producer

from pykafka_wire.local.cluster import free_ports
from tests.connector.sink.query_process import Job
from tests.quick_start import quick_spark_variables

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 300.0
#: Short-lived JVMs: less compiling.
_SUBMIT = "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell"


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
    """Starts drivers, one after the other or side by side."""

    folder: Path
    started: list[Driver] = field(default_factory=list)

    def start(self, *jobs: Job) -> Driver:
        """A driver that runs a query after the other."""
        number = len(self.started)
        paths = [str(job.write(self.folder / f"job-{number}-{each}.json")) for each, job in enumerate(jobs)]
        return self.run("tests.connector.sink.query_process", *paths)

    def run(self, module: str, *arguments: str) -> Driver:
        """A driver that is a program of its own."""
        log = self.folder / f"driver-{len(self.started)}.log"
        self.started.append(_started([sys.executable, "-m", module, *arguments], log, PYSPARK_SUBMIT_ARGS=_SUBMIT))
        return self.started[-1]

    def finish(self, *jobs: Job) -> None:
        """Runs a driver to its end."""
        driver = self.start(*jobs)
        assert driver.wait() == 0, driver.output

    def close(self) -> None:
        for driver in self.started:
            driver.kill()


def _started(command: list[str], log: Path, *, host: str = "127.0.0.1", **environment: str) -> Driver:
    """Runs a command, a driver or a part of a cluster, beside its log."""
    folder = log.parent
    inherited = {name: v for name, v in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={
                **inherited,
                **quick_spark_variables(),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
                "SPARK_LOCAL_IP": host,
                "SPARK_LOCAL_DIRS": str(folder / "spark"),
                "SPARK_WORKER_DIR": str(folder / "work"),
                **environment,
            },
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return Driver(process, log)


class StandaloneCluster:
    """A Spark with an executor on either of two loopback addresses, which are hosts to it.

    Spark runs no speculative copy on the host of what it copies, so in local-cluster mode it runs none at all.
    """

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"spark://127.0.0.1:{port}"
        self._folder = folder
        self._spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        master = f"org.apache.spark.deploy.master.Master --host 127.0.0.1 --port {port} --webui-port 0"
        self._started = [_started([self._spark_class, *master.split()], folder / "master.log")]
        self._workers = {host: self._start_worker(host) for host in ("127.0.0.1", "127.0.0.2")}
        deadline = time.monotonic() + TIMEOUT_S
        while self._started[0].output.count("Registering worker") < 2:
            assert time.monotonic() < deadline, [each.output for each in self._started]
            time.sleep(0.1)

    def _start_worker(self, host: str) -> Driver:
        worker = f"org.apache.spark.deploy.worker.Worker {self.url} --webui-port 0 --cores 1 --memory 1g --host {host}"
        log = self._folder / f"worker-{len(self._started)}-{host}.log"
        self._started.append(_started([self._spark_class, *worker.split()], log, host=host))
        return self._started[-1]

    def restart_worker(self, turn: int) -> None:
        """Kill a worker with its executors, one after the other in turn, and start another one in its place."""
        host = list(self._workers)[turn % 2]
        self._workers[host].kill()
        self._workers[host] = self._start_worker(host)

    def close(self) -> None:
        for each in self._started:
            each.kill()


@contextmanager
def on_two_hosts(folder: Path) -> Iterator[str]:
    """The master's URL of a :class:`StandaloneCluster`."""
    cluster = StandaloneCluster(folder)
    try:
        yield cluster.url
    finally:
        cluster.close()


def task_ends(events: Path) -> list[dict[str, Any]]:
    """Of each attempt at a task that has ended: what Spark noted of it in an event log that is not compressed."""
    lines = [line for file in events.rglob("events_*") for line in file.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event["Event"] == "SparkListenerTaskEnd"]


def fill(servers: str, topic: str, n_records: int, n_partitions: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 0})
    for number in range(n_records):
        producer.produce(topic, b"%d" % number, partition=number % n_partitions)
        if number % 50_000 == 0:  # its queue holds 100,000
            assert producer.flush(TIMEOUT_S) == 0
    assert producer.flush(TIMEOUT_S) == 0
