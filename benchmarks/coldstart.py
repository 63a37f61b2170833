"""Small work: how long a new Spark application takes from ``load()`` to its first row, and an AvailableNow query over few records.

Run as a program it is that application: ``coldstart.py FIGURE FORMAT OPTIONS_JSON CONF_JSON`` prints its times as JSON.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from connectors import CONNECTORS, OURS, Connector
from datasets import Dataset
from pyspark.sql import SparkSession
from rig import SPARK_CONF, Rig, start_session
from runs import Contender, Run

import pykafka_wire
import pyspark_pykafka_wire

_TIMEOUT_S = 180


#: A contender of its own: workers run by the command that takes the installed pyspark (docs/operations.md, Start sooner).
LAUNCHED = f"{OURS}, pykafka-wire-python"
#: AvailableNow queries of one application; the first ones warm Spark up and do not count.
_QUERIES = 5
_WARMUPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallWork:
    """Each run is a process of its own; starting Spark itself is not counted, but recorded beside.

    Attributes:
        figure: ``first_row_s``, or ``available_now_s`` of a query after two others.
    """

    dataset: Dataset
    figure: str

    def datasets(self) -> tuple[Dataset, ...]:
        return (self.dataset,)

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": rig.topic(self.dataset)}
        conf = {**SPARK_CONF, "spark.driver.memory": "1g", "spark.local.dir": str(rig.work_dir)}

        def contender(name: str, connector: Connector, python: str = sys.executable) -> Contender:
            def run() -> Run:
                given = [
                    self.figure,
                    connector.format,
                    json.dumps(options | dict(connector.read_options)),
                    json.dumps(conf),
                ]
                ended = subprocess.run(
                    [sys.executable, str(Path(__file__)), *given],
                    capture_output=True,
                    text=True,
                    timeout=_TIMEOUT_S,
                    env={**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
                )
                if ended.returncode:
                    raise RuntimeError(f"{name} ended with {ended.returncode}: {ended.stderr[-1000:]}")
                times = json.loads(ended.stdout.splitlines()[-1])
                return Run(value=times[self.figure], beside={"session_ms": times["session_s"] * 1e3})

            return Contender(name=name, run=run)

        for package in (pykafka_wire, pyspark_pykafka_wire):  # as pip compiles what it installs
            compileall.compile_dir(Path(str(package.__file__)).parent, quiet=1)
        launcher = str(Path(sys.executable).with_name("pykafka-wire-python"))
        yield [
            contender(LAUNCHED, CONNECTORS[0], launcher),
            *(contender(connector.name, connector) for connector in CONNECTORS),
        ]


def main(figure: str, source_format: str, options: str, conf: str) -> None:
    started = time.perf_counter()
    spark = start_session(json.loads(conf))
    times = {"session_s": time.perf_counter() - started}
    times[figure] = _FIGURES[figure](spark, source_format, json.loads(options))
    spark.stop()
    print(json.dumps(times))


def first_row(spark: SparkSession, source_format: str, options: dict[str, str]) -> float:
    started = time.perf_counter()
    rows = spark.read.format(source_format).options(**options).load().take(1)
    if len(rows) != 1:
        raise RuntimeError("no row was read")
    return time.perf_counter() - started


def warm_available_now(spark: SparkSession, source_format: str, options: dict[str, str]) -> float:
    return statistics.median([available_now(spark, source_format, options) for _ in range(_QUERIES)][_WARMUPS:])


def available_now(spark: SparkSession, source_format: str, options: dict[str, str]) -> float:
    """Seconds of a new query over the whole topic."""
    with tempfile.TemporaryDirectory() as checkpoint:
        started = time.perf_counter()
        frame = spark.readStream.format(source_format).options(**options, startingOffsets="earliest").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        took_s = time.perf_counter() - started
        if not sum(progress.numInputRows for progress in query.recentProgress):
            raise RuntimeError("no row was read")
    return took_s


_FIGURES = {"first_row_s": first_row, "available_now_s": warm_available_now}

if __name__ == "__main__":
    main(*sys.argv[1:])
