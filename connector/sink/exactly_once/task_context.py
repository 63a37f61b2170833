"""Which micro-batch a task belongs to: Spark's properties of a task, since a streaming writer's ``write`` does not get them."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark import TaskContext

from pykafka_wire.errors import ExactlyOnceError

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class TaskOfMicroBatch(NamedTuple):
    """The running task; ``task`` is its index in its stage."""

    query_id: str
    batch_id: int
    task: int


def running_task() -> TaskOfMicroBatch:
    """The task that this process runs.

    Raises:
        ExactlyOnceError: Spark has not set the properties.
    """
    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_ID) if context else None
    batch_id = context.getLocalProperty(_BATCH_ID) if context else None
    if context is None or query_id is None or batch_id is None:
        raise ExactlyOnceError(
            f"the micro-batch is unknown: Spark has not set the task's properties {_QUERY_ID} and {_BATCH_ID}."
        )
    return TaskOfMicroBatch(query_id, int(batch_id), context.partitionId())
