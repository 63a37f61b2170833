"""The maintenance of a Delta table through Spark: compacts small files, and deletes old files."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from pyspark.sql import SparkSession

from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.compaction import OwnCompaction
from pykafka_wire.ingest.tables.delta.log import DeltaLog
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from pykafka_wire.ingest.tables.log import COMPACTION, KEPT_COMMITS, LoggedCommit
from pykafka_wire.ingest.tables.topic_table import VACUUM_EVERY_S, VACUUMED_PROPERTY
from pykafka_wire.options.option import duration_ms
from pykafka_wire.places import stored_uri

_log = logging.getLogger(__name__)

#: The number of a run's commits between two checks of a table's log.
_CHECK_EVERY: Final = 20
#: This many small files are compacted even if they do not fill one file of the target size: each file costs every query one or two
#: requests. Fewer than the commits that are read of a log, since most commits of a table with few records add one file.
_MANY_FILES: Final = KEPT_COMMITS // 2
#: A file is small if it is below this fraction of the target size. A compaction rewrites all bytes, so it must save many files.
_SMALL_FRACTION: Final = 1 / 4
#: Delta's name of a compaction in its log.
_COMPACTION: Final = "OPTIMIZE"
#: After a maintenance, a table rests for this many times its duration, since rows become visible later during a maintenance, and
#: the JVM works as hard as for thousands of commits. After a run's first check the table rests as after a maintenance of typical
#: duration.
_REST_FACTOR: Final = 100
_TYPICAL_S: Final = 10.0
#: Stores on which Spark's Delta never overwrites another program's version. In a local folder, and by default in S3, Delta checks
#: whether the version exists, and then writes it.
_SAFE_STORES: Final = ("hdfs", "gs", "abfss")


class DeltaMaintenance:
    """Maintains a Delta table through Spark.

    The library deltalake (1.6.6) is not used, since its compaction writes wrong statistics for decimals and NaN.
    """

    def __init__(self, settings: Settings, table: Table, name: str, compaction: OwnCompaction | None) -> None:
        """Store the settings, and the compaction of the ingest's own files; None if the ingest does not compact them."""
        # OPTIMIZE and MERGE conflict. Commits of one Spark process wait for each other: in local folders through Delta's commit
        # lock.
        self.blocks_landing = table.merges
        self.spark_commits = settings.is_folder and stored_uri(settings.into).partition(":")[0] not in _SAFE_STORES
        self._settings = settings
        self._table = table
        self._name = name
        self._log: DeltaLog | None = None
        self._next_check = 1
        self._rests_until = 0.0
        #: The time when this run last vacuumed the table, or tried to.
        self._vacuumed_at: float | None = None
        # A catalog such as Unity Catalog maintains its tables itself.
        self._is_wanted = settings.is_folder if table.compact == "auto" else table.compact != "false"
        self.compaction = compaction

    def is_check_due(self, n_commits: int) -> bool:
        """Return whether to check the log. True after a run's first commit, since the log may have commits of many earlier runs."""
        if not self._is_wanted or n_commits < self._next_check or time.monotonic() < self._rests_until:
            return False
        self._next_check = n_commits + _CHECK_EVERY
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
        self._rests_until = time.monotonic() + busy_s * _REST_FACTOR

    def _target(self, session: SparkSession) -> SparkDeltaTable:
        return SparkDeltaTable(session, self._settings, self._name)

    def _log_of(self, target: SparkDeltaTable) -> DeltaLog:
        if self._log is None:
            folder = self._settings.place(self._name) if target.is_folder else target.location
            self._log = DeltaLog(folder, self._settings.storage_options)
        return self._log

    def _is_scattered(self, target: SparkDeltaTable) -> bool:
        commits: Iterable[LoggedCommit] = self._log_of(target).commits
        if self.compaction is not None and self.compaction.is_effective:
            commits = [commit for commit in commits if commit.landed is None and commit.operation != COMPACTION]
        return has_many_small_files(commits, self._table.target_bytes)

    def _is_vacuum_due(self, target: SparkDeltaTable) -> bool:
        if self._vacuumed_at is not None and time.monotonic() - self._vacuumed_at < VACUUM_EVERY_S:
            return False
        now = time.time()
        if now - target.created_at < VACUUM_EVERY_S:
            return False
        return now - float(target.properties().get(VACUUMED_PROPERTY, 0)) >= VACUUM_EVERY_S


def has_many_small_files(commits: Iterable[LoggedCommit], target_bytes: int) -> bool:
    """Return whether a compaction of the files since the last compaction is worthwhile: they are small, and fill a file or are
    many."""
    files = n_bytes = 0
    for commit in commits:
        if commit.operation == _COMPACTION:
            files = n_bytes = 0
        else:
            files = max(0, files + commit.files - commit.replaced_files)
            n_bytes = max(0, n_bytes + commit.bytes - commit.replaced_bytes)
    is_small = n_bytes < files * target_bytes * _SMALL_FRACTION
    return is_small and (n_bytes >= target_bytes or files >= _MANY_FILES)
