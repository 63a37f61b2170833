"""Few large files of many small ones, and no old ones, of a Delta table, by Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from pyspark.sql import SparkSession

from pykafka_wire.checkpoints.files import stored_uri
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.log import TableLog
from pykafka_wire.ingest.tables.delta.spark_table import LandedTable
from pykafka_wire.ingest.tables.log import KEPT_COMMITS, LoggedCommit
from pykafka_wire.ingest.tables.topic_table import VACUUM_EVERY_S, VACUUMED_PROPERTY
from pykafka_wire.options.option import duration_ms

_log = logging.getLogger(__name__)

#: Commits of one run between two looks at a table's log.
_LOOK_EVERY: Final = 20
#: So many small files are compacted though they are not yet one of the wanted size: each costs every query a request or two. Fewer
#: than the commits that are read of a log: most commits of a table with few records add one file.
_MANY_FILES: Final = KEPT_COMMITS // 2
#: A file is small below this part of the wanted size: a compaction writes all bytes again, and has to leave far fewer files for it.
_SMALL_PART: Final = 1 / 4
#: Delta's name of a compaction, in its log.
_COMPACTION: Final = "OPTIMIZE"
#: Rows are visible later while their table's files are looked after, and the JVM works as much as for thousands of commits. So for
#: this many times as long a table is left alone afterwards, and from a run's first look on as if it had taken so long.
_REST: Final = 100
_TYPICAL_S: Final = 10.0
#: Stores in which Spark's Delta never writes a version over another program's. In a local folder, and by default in S3, it looks
#: whether the version is there, and then writes it.
_SAFE_STORES: Final = ("hdfs", "gs", "abfss")


class DeltaUpkeep:
    """Of a Delta table, by Spark.

    deltalake (1.6.6) gives the files of a compaction statistics that are wrong for decimals and for NaN.
    """

    def __init__(self, settings: Settings, table: Table, name: str) -> None:
        # OPTIMIZE and MERGE conflict. Spark's commits of one process wait for each other: in local folders by Delta's commit lock.
        self.is_alone = table.merges
        self.spark_commits = settings.is_folder and stored_uri(settings.into).partition(":")[0] not in _SAFE_STORES
        self._settings = settings
        self._table = table
        self._name = name
        self._log: TableLog | None = None
        self._next_look = 1
        self._rests_until = 0.0
        #: When this run has vacuumed it, or tried to.
        self._vacuumed_at: float | None = None
        # A catalog such as Unity Catalog does it itself.
        self._is_wanted = settings.is_folder if table.compact == "auto" else table.compact == "true"

    def is_time(self, n_commits: int) -> bool:
        """Return whether to look: also after a run's first commit, since the log may have commits of many runs before it."""
        if not self._is_wanted or n_commits < self._next_look or time.monotonic() < self._rests_until:
            return False
        self._next_look = n_commits + _LOOK_EVERY
        return True

    def is_needed(self, session: SparkSession) -> bool:
        target = self._target(session)
        if not self._rests_until:
            self._rest(_TYPICAL_S)
        self._log_of(target).refresh()
        return self._is_scattered(target) or self._is_vacuum_due(target)

    def run(self, session: SparkSession, check_running: Callable[[], None]) -> None:
        """Compact the table, and vacuum it once a day."""
        target, begun = self._target(session), time.monotonic()
        try:
            if self._is_scattered(target):
                _log.info("Table %s is compacted: it has many small files.", self._name)
                target.optimize(self._table.target_bytes)
        finally:
            self._rest(time.monotonic() - begun)
            check_running()
            if self._is_vacuum_due(target):
                self._vacuumed_at = time.monotonic()
                target.vacuum(duration_ms(self._table.keep, "keep"))
                target.alter({VACUUMED_PROPERTY: str(int(time.time()))})

    def _rest(self, busy_s: float) -> None:
        self._rests_until = time.monotonic() + busy_s * _REST

    def _target(self, session: SparkSession) -> LandedTable:
        return LandedTable(session, self._settings, self._name)

    def _log_of(self, target: LandedTable) -> TableLog:
        if self._log is None:
            folder = self._settings.place(self._name) if target.is_folder else target.location
            self._log = TableLog(folder, self._settings.storage_options)
        return self._log

    def _is_scattered(self, target: LandedTable) -> bool:
        return has_many_small_files(self._log_of(target).commits, self._table.target_bytes)

    def _is_vacuum_due(self, target: LandedTable) -> bool:
        if self._vacuumed_at is not None and time.monotonic() - self._vacuumed_at < VACUUM_EVERY_S:
            return False
        now, log = time.time(), self._log_of(target)
        if log.is_whole and log.commits and now - log.commits[0].at < VACUUM_EVERY_S:
            return False  # it is young
        return now - float(target.properties().get(VACUUMED_PROPERTY, 0)) >= VACUUM_EVERY_S


def has_many_small_files(commits: Iterable[LoggedCommit], target_bytes: int) -> bool:
    """Return whether what was added since the last compaction is better one file, or few: the files are small, and enough for
    one."""
    files = n_bytes = 0
    for commit in commits:
        if commit.operation == _COMPACTION:
            files = n_bytes = 0
        else:
            files, n_bytes = files + commit.files, n_bytes + commit.bytes
    is_small = n_bytes < files * target_bytes * _SMALL_PART
    return is_small and (n_bytes >= target_bytes or files >= _MANY_FILES)
