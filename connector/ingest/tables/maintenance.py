"""The interface of a table's maintenance during the landing: compacts small files, and deletes files that nobody reads any more.

The table's own log decides when maintenance is due, so that short runs maintain a table as well as long runs. Rows are correct
without maintenance, so a failure is only tried again later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark.sql import SparkSession

from pykafka_wire.ingest.tables.compaction import OwnCompaction


class TableMaintenance(Protocol):
    """Maintains one table. Not thread-safe.

    Attributes:
        blocks_landing: whether nothing may be landed in the table during its maintenance.
        spark_commits: whether only Spark may commit during the maintenance.
        compaction: compacts the files that the ingest has added, without Spark; None if that is impossible or not wanted.
    """

    blocks_landing: bool
    spark_commits: bool
    compaction: OwnCompaction | None

    def is_check_due(self, n_commits: int) -> bool:
        """Return whether to check the table after this number of commits of the run."""

    def is_needed(self, session: SparkSession) -> bool:
        """Check the table, while it may be landed; return whether :meth:`run` has anything to do."""

    def run(self, session: SparkSession, check_running: Callable[[], None]) -> None:
        """Run the maintenance that the check found due.

        Args:
            check_running: raises an error if the run has ended; called between steps.
        """
