"""Maintains table files during the landing: compacts small files, and deletes old ones.

One thread runs Spark's maintenance, one table at a time. Another thread compacts the files that the ingest itself has added, also
one table at a time: it does not wait for Spark.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

from pykafka_wire.ingest.landing.session_pool import SessionPool
from pykafka_wire.ingest.spark.errors import sentence_of
from pykafka_wire.ingest.spark.progress import describe_jobs
from pykafka_wire.ingest.tables.compaction import OwnCompaction
from pykafka_wire.ingest.tables.maintenance import TableMaintenance

_log = logging.getLogger(__name__)


class Maintenance:
    """Runs the maintenance of a run's tables."""

    def __init__(self, sessions: SessionPool, changed: threading.Condition, check_running: Callable[[], None]) -> None:
        """Store the run's resources.

        Args:
            changed: the lock of the run; notified when a table's maintenance has ended.
            check_running: raises an error if the query has ended.
        """
        self._sessions = sessions
        self._changed = changed
        self._check_running = check_running
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="pykafka-wire-ingest-maintenance")
        self._compacting = ThreadPoolExecutor(1, thread_name_prefix="pykafka-wire-ingest-compaction")
        self._is_stopped = False
        #: The tables whose maintenance, or whose compaction without Spark, is queued or running.
        self._waiting: set[TableMaintenance | OwnCompaction] = set()
        #: The name of the table in maintenance.
        self.table_in_maintenance: str | None = None
        self._is_compacting = False

    @property
    def is_waiting(self) -> bool:
        """Return whether maintenance is queued or running."""
        return bool(self._waiting)

    @property
    def is_writing(self) -> bool:
        """Return whether maintenance or a compaction may be writing to a table."""
        return self.table_in_maintenance is not None or self._is_compacting

    def begin(
        self, name: str, maintenance: TableMaintenance, n_commits: int, in_maintenance: AbstractContextManager[None]
    ) -> None:
        """Queue the maintenance of a table, if it is due after this number of commits. The caller holds the lock.

        Args:
            in_maintenance: the context in which the maintenance runs.
        """
        if maintenance not in self._waiting and maintenance.is_check_due(n_commits):
            self._waiting.add(maintenance)
            self._threads.submit(self._run, name, maintenance, in_maintenance)

    def begin_compaction(
        self,
        name: str,
        compaction: OwnCompaction,
        n_commits: int,
        committing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Queue the compaction of the files that the ingest has added to a table, if a check is due. The caller holds the lock.

        Args:
            committing: as in :meth:`OwnCompaction.run`.
        """
        if compaction not in self._waiting and self.table_in_maintenance != name and compaction.is_check_due(n_commits):
            self._waiting.add(compaction)
            self._compacting.submit(self._compact, name, compaction, committing)

    def stop(self) -> None:
        """Note that the run is ending: from now on errors of maintenance are expected, and logged at DEBUG."""
        self._is_stopped = True

    def close(self) -> None:
        """Begin no further maintenance, and wait for the running one."""
        self.stop()
        if (name := self.table_in_maintenance) is not None:
            _log.warning("The files of table %s are being compacted or vacuumed: the run ends when this is done.", name)
        self._threads.shutdown(cancel_futures=True)
        self._compacting.shutdown(cancel_futures=True)

    def _run(self, name: str, maintenance: TableMaintenance, in_maintenance: AbstractContextManager[None]) -> None:
        try:
            with self._sessions.borrow() as session:
                describe_jobs(session, f"{name}, maintenance")
                if maintenance.is_needed(session):
                    with in_maintenance:
                        with self._changed:
                            self._check_running()
                            self.table_in_maintenance = name
                        maintenance.run(session, self._check_running)
        except Exception as error:
            self._log_failure(name, error)
        finally:
            with self._changed:
                self.table_in_maintenance = None
                self._end(maintenance)

    def _compact(
        self, name: str, compaction: OwnCompaction, committing: Callable[[], AbstractContextManager[None]]
    ) -> None:
        try:
            with self._changed:
                self._check_running()
                self._is_compacting = True
            with self._sessions.borrow() as session:
                compaction.run(session, committing, self._check_running)
        except Exception as error:
            self._log_failure(name, error)
        finally:
            with self._changed:
                self._is_compacting = False
                self._end(compaction)

    def _end(self, work: TableMaintenance | OwnCompaction) -> None:
        self._waiting.discard(work)
        self._changed.notify_all()

    def _log_failure(self, name: str, error: Exception) -> None:
        _log.log(
            logging.DEBUG if self._is_stopped else logging.WARNING,
            "The maintenance of table %s failed; it is tried again later. %s",
            name,
            sentence_of(error),
        )
