"""A Spark standalone cluster on this machine: a master and workers, each a process of its own, as `start-all.sh` has them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from pykafka_wire.local.cluster import free_ports

_START_S = 120.0
_STOP_S = 30.0
#: These processes only wait: Java's optimising compiler costs more than it gives.
_SETTINGS = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
}


@contextmanager
def standalone_cluster(
    folder: Path, home: Path = Path(pyspark.__file__).parent, workers: Sequence[Mapping[str, str]] = ({}, {})
) -> Iterator[str]:
    """The URL of the master, ``spark://…``, while it and workers of one core run: of the Spark in ``home``, with their logs and
    the applications' folders in ``folder``.

    Args:
        workers: what each has in its environment besides this process's own.
    """
    port = free_ports(1)[0]
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Path:
        log = folder / f"{name}.log"
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
        }
        with log.open("wb") as output:
            command = [str(home / "bin" / "spark-class"), *arguments, "--host", "127.0.0.1", "--webui-port", "0"]
            process = subprocess.Popen(
                command, env={**inherited, "SPARK_HOME": str(home), **_SETTINGS, **(environment or {})}, cwd=folder,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        started.append(process)
        return log

    def wait(log: Path, done: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + _START_S
        while not done(log.read_text()):
            assert all(process.poll() is None for process in started), log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    try:
        master = start("master", "org.apache.spark.deploy.master.Master", "--port", str(port))
        for number, environment in enumerate(workers, 1):  # each tries the master again until it is there
            name = f"worker-{number}"
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / name), url]
            start(name, "org.apache.spark.deploy.worker.Worker", *arguments, environment=environment)
        wait(master, lambda text: text.count("Registering worker") == len(workers))
        yield url
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
