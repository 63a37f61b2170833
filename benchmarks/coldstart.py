"""Cold start: how long a new Spark application takes from ``load()`` to the first row that it has read.

Run as a program it is that application: ``coldstart.py FORMAT OPTIONS_JSON CONF_JSON`` prints its times as JSON.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from connectors import CONNECTORS, Connector
from datasets import Dataset
from rig import SPARK_CONF, Rig, start_session
from runs import Contender, Run

_TIMEOUT_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """Each run is a process of its own; starting Spark itself is not counted, but recorded beside."""

    dataset: Dataset

    def datasets(self) -> tuple[Dataset, ...]:
        return (self.dataset,)

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": rig.topic(self.dataset)}
        conf = {**SPARK_CONF, "spark.driver.memory": "1g", "spark.local.dir": str(rig.work_dir)}

        def contender(connector: Connector) -> Contender:
            def run() -> Run:
                given = [connector.format, json.dumps(options | dict(connector.read_options)), json.dumps(conf)]
                ended = subprocess.run(
                    [sys.executable, str(Path(__file__)), *given], capture_output=True, text=True, timeout=_TIMEOUT_S
                )
                if ended.returncode:
                    raise RuntimeError(f"{connector.name} ended with {ended.returncode}: {ended.stderr[-1000:]}")
                told = json.loads(ended.stdout.splitlines()[-1])
                return Run(value=told["first_row_s"], beside={"session_ms": told["session_s"] * 1e3})

            return Contender(name=connector.name, run=run)

        yield [contender(connector) for connector in CONNECTORS]


def main(source_format: str, options: str, conf: str) -> None:
    started = time.perf_counter()
    spark = start_session(json.loads(conf))
    session_s = time.perf_counter() - started
    started = time.perf_counter()
    rows = spark.read.format(source_format).options(**json.loads(options)).load().take(1)
    first_row_s = time.perf_counter() - started
    if len(rows) != 1:
        raise RuntimeError("no row was read")
    spark.stop()
    print(json.dumps({"session_s": session_s, "first_row_s": first_row_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
