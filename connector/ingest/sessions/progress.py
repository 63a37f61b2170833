"""What an ingest does at this moment, for those who watch it: the micro-batch that is being landed, and how far it is.

A table's own status changes with its commits. In between the records that Spark's running tasks have read are known to its status
store, which the executors tell with each heartbeat (``spark.executor.heartbeatInterval``). Of tasks that read for themselves it
knows how many have ended. Each table's jobs are found by their description.
https://spark.apache.org/docs/latest/configuration.html#execution-behavior
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykafka_wire.ingest.sessions.spark_connect import is_connect
from pykafka_wire.task_metrics import (
    DriverReceiver,
    TaskFigures,
    TaskFiguresReceiver,
    ask_for_figures,
    receiver_of_thread,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Before a table's name in the description of its jobs, which Spark's own page shows, too.
_DESCRIPTION: Final = "ingest table "
#: Behind the name, where tasks read so many records for themselves.
_RECORDS: Final = ", records: "
_JOB_DESCRIPTION: Final = "spark.job.description"
#: Micro-batches whose figures are kept.
_KEPT: Final = 60


def describe_jobs(spark: SparkSession, table: str, receiver: DriverReceiver | None = None) -> None:
    """Let the jobs of this thread be known as a table's. Without effect in a session of Spark Connect.

    Args:
        receiver: gets the figures of their reads.
    """
    if not is_connect(spark):
        spark.sparkContext.setJobDescription(_DESCRIPTION + table)
        ask_for_figures(spark.sparkContext, receiver)


@contextlib.contextmanager
def records_of_jobs(spark: SparkSession, n_records: int) -> Iterator[None]:
    """Let it be known that the tasks of this thread's next jobs read so many records together, of which Spark sees none."""
    if is_connect(spark):
        yield
        return
    before = spark.sparkContext.getLocalProperty(_JOB_DESCRIPTION) or ""
    spark.sparkContext.setJobDescription(f"{before}{_RECORDS}{n_records}")
    try:
        yield
    finally:
        spark.sparkContext.setJobDescription(before)


def receiver_of_own_reads(spark: SparkSession) -> DriverReceiver | None:
    """Return what gets the figures of what this thread itself reads, without a job; None if nothing does."""
    receiver = None if is_connect(spark) else receiver_of_thread(spark.sparkContext)
    return None if receiver is None else replace(receiver, is_here=True)


class StageProgress(NamedTuple):
    """How far one stage of a job is, or several of a table together."""

    n_records: int = 0
    n_done_tasks: int = 0
    n_tasks: int = 0


class ReadFigures:
    """What the tasks of an ingest report of their reads, in all and for each of the newest micro-batches. It listens until it is
    closed."""

    def __init__(self) -> None:
        self._tasks = TaskFiguresReceiver()
        self._batches: dict[int, TaskFigures] = {}

    @property
    def receiver(self) -> DriverReceiver:
        """Return where jobs send them."""
        return self._tasks.address

    def total(self) -> TaskFigures:
        """Return the figures of all reads so far."""
        return self._tasks.total()

    def of_batch(self, number: int) -> TaskFigures | None:
        """Return the figures of the reads while a micro-batch was landed, those of tables beside it included; None where that
        is not known."""
        return self._batches.get(number)

    @contextlib.contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Count what is read while a micro-batch is landed within."""
        before = self.total()
        try:
            yield
        finally:
            self._batches = dict([*self._batches.items(), (number, self.total().since(before))][-_KEPT:])

    def close(self) -> None:
        self._tasks.close()


class TaskRecords:
    """Records that the jobs of each table have read, and tasks that they have done, as of the executors' last heartbeats."""

    def __init__(self, spark: SparkSession) -> None:
        #: None with Spark Connect, whose tasks are out of sight.
        self._store: Any = None if is_connect(spark) else spark.sparkContext._jsc.sc().statusStore()
        #: By table and stage; what is finished stays.
        self._stages: dict[str, dict[int, StageProgress]] = {}
        self._active: dict[int, str] = {}

    def clear(self) -> None:
        """Forget what was read, since another micro-batch begins."""
        self._stages.clear()
        self._active.clear()

    def look(self) -> dict[str, StageProgress]:
        """Return the sums of each table's stages since :meth:`clear`: a table's values may be read more than once."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        if self._store is None:
            return {}
        with contextlib.suppress(Py4JError):  # the status store is no public API of Spark
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
