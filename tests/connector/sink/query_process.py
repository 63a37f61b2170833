"""A whole Spark driver that copies a topic exactly once, as a process: its tasks fail, are speculated and lose their
executor, and the driver dies, or its commit stops, at a request that a test names.

    python -m tests.connector.sink.query_process JOB.json [JOB.json ...]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pykafka_wire.datasource import PykafkaWireDataSource
from pykafka_wire.sink.writer import Delivery
from tests.connector.sink.driver_process import Strike, arm

STRIKE = "strike.json"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to run.

    Attributes:
        folder: the checkpoint, and a file for each thing that has happened and is to happen once.
        strike: fields of a Strike, or None; its signal is SIGKILL for all of the driver, SIGSTOP for the commit alone.
        trouble: whether tasks fail, are slow, and lose an executor.
        conf: Spark's own settings, before the JVM starts.
        source_options: more options of the source, or other values.
    """

    master: str
    servers: str
    source: str
    columns: list[str]
    options: dict[str, str]
    folder: str
    max_offsets: int
    strike: dict[str, Any] | None = None
    trouble: bool = False
    conf: dict[str, str] = field(default_factory=dict)
    source_options: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)))
        return path


def first(folder: str, what: str) -> bool:
    """Whether `what` happens for the first time; the file that remembers it holds this process's id."""
    try:
        with (Path(folder) / what).open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def kill_driver() -> None:
    """SIGKILL for every process of the driver's session but this one, then for this one."""
    session = os.getsid(0)
    for pid in psutil.pids():
        try:
            if pid != os.getpid() and os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os.kill(os.getpid(), signal.SIGKILL)


class StruckSource(PykafkaWireDataSource):
    """The project's data source, whose commit is struck as a file beside the checkpoint says."""

    @classmethod
    def name(cls) -> str:
        return "struck"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        given = {name.lower(): value for name, value in self.options.items()}
        folder = Path(given["checkpointlocation"]).parent
        strike = Strike(**json.loads((folder / STRIKE).read_text()))
        writer: Any = super().streamWriter(schema, overwrite)
        writer.delivery = StruckDelivery(writer.delivery, strike, str(folder))
        return writer


class StruckDelivery:
    """A delivery whose commit is struck."""

    def __init__(self, delivery: Delivery, strike: Strike, folder: str) -> None:
        self._delivery = delivery
        self._strike = strike
        self._folder = folder

    def write_task(self, rows: Any, batches: Any) -> Any:
        return self._delivery.write_task(rows, batches)

    def commit(self, messages: Any, batch_id: int) -> None:
        def act() -> None:
            if first(self._folder, f"struck-{batch_id}"):
                if self._strike.signal == signal.SIGSTOP:
                    os.kill(os.getpid(), signal.SIGSTOP)
                else:
                    kill_driver()

        with arm(self._strike, lambda: batch_id, act):
            self._delivery.commit(messages, batch_id)

    def abort(self, messages: Any) -> None:
        self._delivery.abort(messages)


def in_trouble(folder: str) -> Any:
    """A pass-through for mapInArrow: once each, a task fails, another is slow, and another's executor is killed."""

    def through(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if context.partitionId() == 0 and first(folder, f"failed-{batch_id}"):
            raise RuntimeError("this attempt is to fail")
        if context.partitionId() == 1 and batch_id == "2" and first(folder, "slow"):
            time.sleep(300)  # until Spark kills it, for its speculative copy was there before
        if context.partitionId() == 1 and batch_id == "3" and first(folder, "executor-killed"):
            daemon = psutil.Process().parent()
            executor = daemon.parent() if daemon is not None else None
            if executor is not None and "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline()):
                executor.kill()
                time.sleep(60)

    return through


def outlive_nobody() -> None:
    """Ends the driver, in a thread, once whoever started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        kill_driver()

    threading.Thread(target=watch, daemon=True).start()


def run(job: Job) -> None:
    outlive_nobody()
    spark = (
        SparkSession.builder.master(job.master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.speculation", str(job.trouble).lower())
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1.5")
        .config("spark.speculation.minTaskRuntime", "500ms")
        .config(map=job.conf)
        .getOrCreate()
    )
    rows = (
        spark.readStream.format("pykafka-wire")
        .option("kafka.bootstrap.servers", job.servers)
        .option("subscribe", job.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.max_offsets))
        .option("maxRecordsPerPartition", str(job.max_offsets // 4))
        .options(**job.source_options)
        .load()
        .selectExpr(*job.columns)
    )
    if job.trouble:
        rows = rows.mapInArrow(in_trouble(job.folder), rows.schema)
    source = "pykafka-wire"
    if job.strike is not None:
        (Path(job.folder) / STRIKE).write_text(json.dumps(job.strike))
        spark.dataSource.register(StruckSource)
        source = StruckSource.name()
    query = (
        rows.writeStream.format(source)
        .options(**job.options)
        .option("kafka.bootstrap.servers", job.servers)
        .option("checkpointLocation", f"{job.folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    # By its importable name, so that workers find the classes above.
    from tests.connector.sink import query_process

    for path in sys.argv[1:]:  # in one session: the settings of its JVM are the first job's
        query_process.run(query_process.Job(**json.loads(Path(path).read_text())))
    query_process.SparkSession.builder.getOrCreate().stop()
