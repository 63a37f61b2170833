"""Decides when an attempt to land a table begins: with a micro-batch, after a pause, or when the cause of a failure has changed.

Knows neither Spark nor threads nor a clock: the caller passes the time, in seconds of :func:`time.monotonic`, and holds a lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from pykafka_wire.ingest.landing.isolation import SearchPausedError
from pykafka_wire.ingest.landing.remedies import Failure
from pykafka_wire.ingest.landing.retries import due_now, trouble_after
from pykafka_wire.ingest_status import Trouble

#: How long a run that ends by itself waits for retrying tables, in seconds from the first failure.
PATIENCE_S: Final = 30.0
#: The pause between two checks of a stopped table's cause, in seconds. Each further pause is twice as long, up to the longest
#: pause.
FIRST_CHECK_S: Final = 5.0
LONGEST_CHECK_S: Final = 60.0


class Phase(Enum):
    """The phase of a table."""

    IDLE = "nothing happens"
    RUNNING = "an attempt is landing the table"
    IN_MAINTENANCE = "the table's files are compacted or cleaned, and nothing may be landed"


class Event(Enum):
    """An event that changes the phase of a table."""

    BEGIN_ATTEMPT = "an attempt begins"
    END_ATTEMPT = "the attempt ends"
    BEGIN_MAINTENANCE = "maintenance begins"
    END_MAINTENANCE = "maintenance ends"


#: The allowed transitions. So a table never has two attempts at a time, and no attempt during a maintenance that blocks landing.
_MOVES: Final[Mapping[Phase, Mapping[Event, Phase]]] = {
    Phase.IDLE: {Event.BEGIN_ATTEMPT: Phase.RUNNING, Event.BEGIN_MAINTENANCE: Phase.IN_MAINTENANCE},
    Phase.RUNNING: {Event.END_ATTEMPT: Phase.IDLE},
    Phase.IN_MAINTENANCE: {Event.END_MAINTENANCE: Phase.IDLE},
}


class TableSchedule:
    """The schedule of one table.

    Attributes:
        trouble: the trouble of the last attempt; None while the table is landed with the micro-batches.
    """

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.trouble: Trouble | None = None
        #: The cause that a stopped table waits for; None if the table was stopped before its first attempt.
        self._cause: tuple[object, ...] | None = None
        self._next_check = 0.0
        self._check_pause_s = FIRST_CHECK_S

    def move(self, event: Event) -> None:
        """Change the phase. Raises ValueError if the current phase forbids the event."""
        if event not in _MOVES[self.phase]:
            raise ValueError(f"{event.value}, and the table's phase is {self.phase.name}")
        self.phase = _MOVES[self.phase][event]

    @property
    def is_running(self) -> bool:
        return self.phase is Phase.RUNNING

    @property
    def may_join_micro_batch(self) -> bool:
        """Return whether an attempt may begin with a micro-batch: the table is idle and has not failed."""
        return self.phase is Phase.IDLE and self.trouble is None

    def succeed(self) -> None:
        """End the trouble: the table is landed with micro-batches again."""
        self.trouble = None
        self._check_pause_s = FIRST_CHECK_S

    def fail(self, failure: Failure, cause: tuple[object, ...] | None, now: float) -> Trouble:
        """Record that an attempt has failed.

        Args:
            cause: what the table waits for, if it is stopped.
        """
        self._cause, self._next_check = cause, now + self._check_pause_s
        return self.begin_failed(failure, now)

    def begin_failed(self, failure: Failure, now: float) -> Trouble:
        """Record a failure before the first attempt. The cause is checked at once."""
        self.trouble = trouble_after(failure, self.trouble, now)
        return self.trouble

    def is_check_due(self, now: float) -> bool:
        """Return whether it is time to check the cause of a stopped table."""
        is_stopped = self.trouble is not None and self.trouble.is_stopped
        return is_stopped and self.phase is Phase.IDLE and self._next_check <= now

    def note_cause(self, cause: tuple[object, ...], now: float) -> None:
        """Record the current cause. If it has changed, the table is retried at once. The next check is later."""
        if cause != self._cause and self.trouble is not None:
            self.trouble = due_now(self.trouble, now)
        self._cause, self._next_check = cause, now + self._check_pause_s
        self._check_pause_s = min(LONGEST_CHECK_S, self._check_pause_s * 2)

    def is_due(self, now: float) -> bool:
        """Return whether the pause after a failure is over."""
        return self.phase is Phase.IDLE and self.trouble is not None and self.trouble.next_attempt <= now


class Schedule:
    """The schedule of all tables of one run."""

    def __init__(self, *, parallel: int, is_once: bool) -> None:
        """Begin a run without tables.

        Args:
            parallel: the most tables that are retried at the same time.
            is_once: whether the run ends by itself. Then it waits for retrying tables for a limited time.
        """
        self._parallel = parallel
        self._is_once = is_once
        self._tables: list[TableSchedule] = []
        self._patience_ends: float | None = None

    def new_table(self) -> TableSchedule:
        """Return the schedule of a new table, which has not failed."""
        self._tables.append(TableSchedule())
        return self._tables[-1]

    @property
    def is_running(self) -> bool:
        """Return whether an attempt is running."""
        return any(table.is_running for table in self._tables)

    def note_failure(self, trouble: Trouble, now: float) -> None:
        """Record a table's failure: the time limit starts with the first retrying table."""
        if self._patience_ends is None and not trouble.is_stopped:
            self._patience_ends = now + PATIENCE_S

    def has_work(self, now: float) -> bool:
        """Return whether the cause of a table is to be checked, or the pause of a table is over."""
        return any(table.is_check_due(now) or table.is_due(now) for table in self._tables)

    def may_retry(self, table: TableSchedule, now: float) -> bool:
        """Return whether a failed table may be retried now."""
        n_retries = sum(other.is_running and other.trouble is not None for other in self._tables)
        is_late = self._is_once and self._is_out_of_patience(table, now)
        return table.is_due(now) and not is_late and n_retries < self._parallel

    def is_waiting(self, now: float) -> bool:
        """Return whether a run that ends by itself waits for a table that is running or retrying."""
        return any(
            table.is_running
            or (table.trouble is not None and not table.trouble.is_stopped and not self._is_out_of_patience(table, now))
            for table in self._tables
        )

    def _is_out_of_patience(self, table: TableSchedule, now: float) -> bool:
        """Return whether a run that ends by itself no longer waits for a table. It waits for a paused search, which makes
        progress."""
        is_search = table.trouble is not None and table.trouble.code == SearchPausedError.__name__
        return not is_search and now >= (self._patience_ends or 0.0)
