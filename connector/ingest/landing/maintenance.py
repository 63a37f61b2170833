"""Looks after the files of tables beside the landing, one table at a time: small files become large ones, old ones are deleted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

from pykafka_wire.ingest.failures import sentence_of
from pykafka_wire.ingest.landing.session_pool import SessionPool
from pykafka_wire.ingest.sessions.progress import describe_jobs
from pykafka_wire.ingest.tables.upkeep import Upkeep

_log = logging.getLogger(__name__)


class Maintenance:
    """The maintenance of a run's tables."""

    def __init__(self, sessions: SessionPool, changed: threading.Condition, check_running: Callable[[], None]) -> None:
        """Take the run.

        Args:
            changed: the lock of the run, which is notified when a table's maintenance has ended.
            check_running: raises when the query has ended.
        """
        self._sessions = sessions
        self._changed = changed
        self._check_running = check_running
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="pykafka-wire-ingest-upkeep")
        self._is_stopped = False
        #: Of the tables whose files are to be looked after, or are.
        self._waiting: set[Upkeep] = set()
        #: The name of the table whose files are looked after now.
        self.at_work: str | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether the files of a table are to be looked after, or are."""
        return bool(self._waiting)

    def begin(self, name: str, upkeep: Upkeep, n_commits: int, beside: AbstractContextManager[None]) -> None:
        """Let a table's files be looked after, if it is time for it after so many commits; the caller holds the lock.

        Args:
            beside: is entered while it happens.
        """
        if upkeep not in self._waiting and upkeep.is_time(n_commits):
            self._waiting.add(upkeep)
            self._threads.submit(self._run, name, upkeep, beside)

    def stop(self) -> None:
        """Note that the run ends: an error of maintenance is expected from now on, and not logged as one."""
        self._is_stopped = True

    def close(self) -> None:
        """Begin no further maintenance, and return when none is at work."""
        self.stop()
        if (name := self.at_work) is not None:
            _log.warning("The files of table %s are being compacted or vacuumed: the run ends when that is done.", name)
        self._threads.shutdown(cancel_futures=True)

    def _run(self, name: str, upkeep: Upkeep, beside: AbstractContextManager[None]) -> None:
        try:
            with self._sessions.lent() as session:
                describe_jobs(session, f"{name}, upkeep")
                if upkeep.is_needed(session):
                    with beside:
                        with self._changed:
                            self._check_running()
                            self.at_work = name
                        upkeep.run(session, self._check_running)
        except Exception as error:
            _log.log(
                logging.DEBUG if self._is_stopped else logging.WARNING,
                "The files of table %s could not be looked after; it is tried again later. %s",
                name,
                sentence_of(error),
            )
        finally:
            with self._changed:
                self.at_work = None
                self._waiting.discard(upkeep)
                self._changed.notify_all()
