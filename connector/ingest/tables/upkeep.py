"""What keeps a table's files few and its folder small, beside its landing: small files are made large ones, and what nobody reads
any more is deleted.

When it is time for it, the table's own log says, so that jobs that run for a minute do it like those that run for a year. It is
never needed for right rows: what fails is tried again later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark.sql import SparkSession


class Upkeep(Protocol):
    """Looks after one table; not for several threads at once.

    Attributes:
        is_alone: nothing may be landed into the table meanwhile.
        spark_commits: what is landed meanwhile has to be committed by Spark.
    """

    is_alone: bool
    spark_commits: bool

    def is_time(self, n_commits: int) -> bool:
        """Return whether to look at the table after so many commits of this run."""

    def is_needed(self, session: SparkSession) -> bool:
        """Look at the table, beside its landing; return whether :meth:`run` has anything to do."""

    def run(self, session: SparkSession, check_running: Callable[[], None]) -> None:
        """Do what it was time for when it was looked at.

        Args:
            check_running: raises if the run has ended; asked between steps.
        """
