"""The transactional ids of tasks: ``Q.task.WORKER.N``, under the query's transactional id Q.

No two attempts that are alive may ever use one id: InitProducerId aborts what is open under it. So WORKER is random for each
process, which runs one attempt at a time, and N counts in it. An id is used again only for a later micro-batch of the same query
than all that it was used for: when that one begins, all of them have ended (docs/exactly-once.md). A replay is not later.
"""

from __future__ import annotations

import functools
import os
import re
import uuid
from collections import Counter, defaultdict
from typing import Final

_INFIX: Final = ".task."
#: WORKER.N
_NAME: Final = re.compile(r"[0-9a-f]{12}\.[0-9]+")


def task_prefix(transactional_id: str) -> str:
    """Return what all ids of a query's tasks begin with."""
    return transactional_id + _INFIX


def task_id(transactional_id: str, name: str) -> str:
    """Return the transactional id of a name such as ``3f2a1b9c5d7e.0``."""
    return task_prefix(transactional_id) + name


def task_name(transactional_id: str, suffix: str) -> str:
    """Return the inverse of :func:`task_id`."""
    return suffix.removeprefix(task_prefix(transactional_id))


def is_task_id(transactional_id: str, name: str) -> bool:
    """Return whether an id is of one of a query's tasks. Another query may be named ``Q.task.x``: its ids begin with the same
    prefix."""
    prefix = task_prefix(transactional_id)
    return name.startswith(prefix) and _NAME.fullmatch(name, len(prefix)) is not None


def next_task_id(transactional_id: str, query_id: str, batch_id: int) -> str:
    """Return an id for an attempt of this process at a task of a micro-batch."""
    return _ids_of_process(os.getpid()).next(transactional_id, query_id, batch_id)


@functools.cache  # a forked worker has ids of its own
def _ids_of_process(pid: int) -> TaskIds:
    return TaskIds()


class TaskIds:
    """The ids of one worker process."""

    def __init__(self) -> None:
        self._worker = uuid.uuid4().hex[:12]
        self._n_ids: Counter[str] = Counter()
        #: By transactional id and query: the numbers, and the last micro-batch that each was used for.
        self._last_used: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)

    def next(self, transactional_id: str, query_id: str, batch_id: int) -> str:
        """Return what :func:`next_task_id` does."""
        last_used = self._last_used[transactional_id, query_id]
        number = next((number for number, batch in last_used.items() if batch < batch_id), None)
        if number is None:
            number = self._n_ids[transactional_id]
            self._n_ids[transactional_id] += 1
        last_used[number] = batch_id
        return task_id(transactional_id, f"{self._worker}.{number}")
