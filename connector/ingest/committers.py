"""Which library commits to a table now.

Rows of tasks are committed in Python, by the library of the table's format, and all else by Spark. Each is right alone; side by
side they are not on every store. To S3, Spark's Delta writes a version that it has not seen, over the one that another process
has written meanwhile, whose rows are gone then. So they never both commit at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class Committer(Enum):
    """Who commits."""

    SPARK = "Spark"
    PYTHON = "the library of the table's format"


class CommitterBusyError(Exception):
    """Another library commits to the table now; another attempt later succeeds."""


class Committers:
    """Who commits to one table now: one library, perhaps more than once at a time."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._committer: Committer | None = None
        self._n = 0

    @contextmanager
    def alone(self, committer: Committer) -> Iterator[None]:
        """Let no other library commit to the table meanwhile.

        Raises:
            CommitterBusyError: one does now.
        """
        with self._lock:
            if self._n and self._committer is not committer:
                assert self._committer is not None
                raise CommitterBusyError(
                    f"{committer.value} cannot commit to table {self._table} now, since {self._committer.value} is about to."
                )
            self._committer = committer
            self._n += 1
        try:
            yield
        finally:
            with self._lock:
                self._n -= 1
