"""A Spark Connect server in a process of its own, on a free port, as a user starts one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from pykafka_wire.local.cluster import free_ports
from tests.quick_start import quick_spark_variables

_START_S = 120.0


@contextmanager
def connect_server(
    folder: Path,
    *arguments: str,
    home: Path | None = None,
    python: Path = Path(sys.executable),
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The URL of a server while it runs, with Python workers of ``python``; its log is in ``folder``.

    ``home`` is Spark's, by default PySpark's own.
    """
    port = free_ports(1)[0]
    log = folder / "connect.log"
    quick = quick_spark_variables()
    home = home or Path(quick.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    command = [
        str(home / "bin" / "spark-submit"),
        "--master=local[2]",
        *arguments,
        f"--conf=spark.connect.grpc.binding.port={port}",
        "--conf=spark.ui.enabled=false",
        "--conf=spark.driver.host=127.0.0.1",
        f"--conf=spark.sql.warehouse.dir={folder / 'warehouse'}",
        "--class=org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            env={
                **inherited,
                **quick,
                "SPARK_HOME": str(home),
                "PYSPARK_PYTHON": str(python),
                "PYSPARK_DRIVER_PYTHON": str(python),
                **(environment or {}),
            },
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_S
        while not accepts_connections(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def accepts_connections(port: int) -> bool:
    """Whether something listens on a port of this machine."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
