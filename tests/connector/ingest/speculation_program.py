"""An ingest on a cluster of two hosts whose Spark runs slow tasks twice: ``speculation_program SETTINGS.toml MASTER FOLDER``.

In each job one attempt has written its files, and then ends so late that a speculative copy came before. The folder gets Spark's
log of events, and a file for each attempt that waits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from pykafka_wire.ingest import Ingest
from pykafka_wire.ingest.files.tasks import FileTask, Written, run_tasks
from pykafka_wire.ingest.landing import by_tasks as file_landing
from pykafka_wire.local import delta_jars


class LateTask:
    """A task whose first attempt at the first input partition of a job ends late."""

    def __init__(self, task: FileTask, mark: Path) -> None:
        self._task = task
        self._mark = mark

    def run(self, numbers: Iterable[Any]) -> Iterator[Any]:
        yield from self._task.run(numbers)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and not self._mark.exists():
            self._mark.touch()
            time.sleep(300)  # until Spark kills it


def main(file: str, master: str, folder: str) -> None:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.jars", ",".join(map(str, delta_jars())))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.speculation", "true")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1.5")
        .config("spark.speculation.minTaskRuntime", "500ms")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", Path(folder).as_uri())
        .getOrCreate()
    )

    def run_late(session: SparkSession, task: FileTask, n_partitions: int) -> Written:
        late: Any = LateTask(task, Path(folder, f"late-{len(list(Path(folder).glob('late-*')))}"))
        return run_tasks(session, late, n_partitions)

    file_landing.run_tasks = run_late
    ingest = Ingest.from_file(file)
    ingest.start(spark, once=True).awaitTermination()
    errors = [status.error for status in ingest.statuses.values() if status.error]
    sys.exit("\n".join(errors) or None)


if __name__ == "__main__":
    # By its importable name, so that workers find the class above.
    from tests.connector.ingest import speculation_program

    speculation_program.main(*sys.argv[1:])
