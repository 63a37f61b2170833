"""The progress of the micro-batch that is being landed, from Spark's status store, for the page and the terminal.

A table's own status changes only with its commits. Between commits, Spark's status store knows how many records the running tasks
have read: executors report them with each heartbeat (``spark.executor.heartbeatInterval``). For tasks that read without Spark, the
store only knows how many tasks have ended. The description of a job names the job's table.
https://spark.apache.org/docs/latest/configuration.html#execution-behavior
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykafka_wire.ingest.spark.connect import is_connect
from pykafka_wire.task_metrics import (
    DriverReceiver,
    TaskFigures,
    TaskFiguresReceiver,
    ask_for_figures,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: The start of a job's description, before the table's name. Spark's UI shows the description, too.
_DESCRIPTION: Final = "ingest table "
#: The end of a job's description, before the number of records that the job's tasks read without Spark.
_RECORDS: Final = ", records: "
_JOB_DESCRIPTION: Final = "spark.job.description"
#: The number of micro-batches whose figures are kept.
_KEPT: Final = 60


def describe_jobs(spark: SparkSession, table: str, receiver: DriverReceiver | None = None) -> None:
    """Name the table in the description of this thread's jobs. Has no effect in a session of Spark Connect.

    Args:
        receiver: gets the figures of the jobs' reads.
    """
    if not is_connect(spark):
        spark.sparkContext.setJobDescription(_DESCRIPTION + table)
        ask_for_figures(spark.sparkContext, receiver)


@contextlib.contextmanager
def records_of_jobs(spark: SparkSession, n_records: int) -> Iterator[None]:
    """Add the number of records that tasks read without Spark to the description of this thread's next jobs."""
    if is_connect(spark):
        yield
        return
    before = spark.sparkContext.getLocalProperty(_JOB_DESCRIPTION) or ""
    spark.sparkContext.setJobDescription(f"{before}{_RECORDS}{n_records}")
    try:
        yield
    finally:
        spark.sparkContext.setJobDescription(before)


class StageProgress(NamedTuple):
    """The progress of one stage of a job, or of several stages of one table."""

    n_records: int = 0
    n_done_tasks: int = 0
    n_tasks: int = 0


class ReadFigures:
    """Collects the figures that tasks report about their reads: the total, and the figures of the newest micro-batches. Listens
    until :meth:`close`."""

    def __init__(self) -> None:
        self._tasks = TaskFiguresReceiver()
        self._batches: dict[int, TaskFigures] = {}

    @property
    def receiver(self) -> DriverReceiver:
        """Return the address to which jobs send their figures."""
        return self._tasks.address

    def total(self) -> TaskFigures:
        """Return the figures of all reads so far."""
        return self._tasks.total()

    def of_batch(self, number: int) -> TaskFigures | None:
        """Return the figures of all reads during a micro-batch, including reads of tables that retried meanwhile; None if
        unknown."""
        return self._batches.get(number)

    @contextlib.contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Record the figures of all reads inside the ``with`` block as those of a micro-batch."""
        before = self.total()
        try:
            yield
        finally:
            self._batches = dict([*self._batches.items(), (number, self.total().since(before))][-_KEPT:])

    def close(self) -> None:
        self._tasks.close()


class TaskRecords:
    """The records that each table's jobs have read and the tasks that have ended, as of the executors' last heartbeats."""

    def __init__(self, spark: SparkSession) -> None:
        #: None with Spark Connect, where the status store is not accessible.
        self._store: Any = None if is_connect(spark) else spark.sparkContext._jsc.sc().statusStore()
        #: The progress of each stage, by table and stage id, including finished stages.
        self._stages: dict[str, dict[int, StageProgress]] = {}
        self._active: dict[int, str] = {}

    def clear(self) -> None:
        """Discard the figures: another micro-batch begins."""
        self._stages.clear()
        self._active.clear()

    def look(self) -> dict[str, StageProgress]:
        """Return the sums over each table's stages since :meth:`clear`. Values that are read twice are counted twice."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        if self._store is None:
            return {}
        with contextlib.suppress(Py4JError):  # the status store is not a public API of Spark
            stages = self._store.activeStages()
            running = [self._note(stages.apply(index)) for index in range(stages.size())]
            for ended in self._active.keys() - set(running):
                self._note(self._store.lastStageAttempt(ended))
                del self._active[ended]
        return {
            table: StageProgress(*map(sum, zip(*stages.values(), strict=True)))
            for table, stages in self._stages.items()
        }

    def _note(self, stage: Any) -> int:  # Any: Spark's StageData
        number, description = int(stage.stageId()), stage.description()
        if description.isDefined() and str(description.get()).startswith(_DESCRIPTION):
            table, _, n_records = str(description.get()).removeprefix(_DESCRIPTION).partition(_RECORDS)
            self._active[number] = table
            n_done, n_tasks = int(stage.numCompleteTasks()), int(stage.numTasks())
            n_read = int(n_records) * n_done // max(1, n_tasks) if n_records else int(stage.inputRecords())
            self._stages.setdefault(table, {})[number] = StageProgress(n_read, n_done, n_tasks)
        return number
