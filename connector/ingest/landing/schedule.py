"""For which tables an attempt begins now: with a micro-batch, after a pause, or when the cause of a failure has changed.

Knows neither Spark nor threads nor a clock: the caller passes the time, in seconds of :func:`time.monotonic`, and holds a lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from pykafka_wire.ingest.failures import Failure
from pykafka_wire.ingest.landing.attempts import due, trouble_after
from pykafka_wire.ingest.landing.isolation import SearchPausedError
from pykafka_wire.ingest_status import Trouble

#: How long a run that ends by itself waits for tables that are retrying, from the first failure on.
PATIENCE_S: Final = 30.0
#: Between two looks at the cause of a stopped table: the first pause, each further one is twice as long, up to the longest.
FIRST_LOOK_S: Final = 5.0
LONGEST_LOOK_S: Final = 60.0


class Phase(Enum):
    """What happens to a table now."""

    IDLE = "nothing"
    RUNNING = "an attempt lands it"
    WITHHELD = "its files are compacted or cleaned, and nothing may be landed"


class Event(Enum):
    """What moves a table from one phase to another."""

    BEGIN = "an attempt begins"
    END = "the attempt ends"
    WITHHOLD = "maintenance begins"
    RELEASE = "maintenance ends"


#: The moves; every other one is refused. So a table never has two attempts, nor an attempt beside maintenance that must be alone.
_MOVES: Final[Mapping[Phase, Mapping[Event, Phase]]] = {
    Phase.IDLE: {Event.BEGIN: Phase.RUNNING, Event.WITHHOLD: Phase.WITHHELD},
    Phase.RUNNING: {Event.END: Phase.IDLE},
    Phase.WITHHELD: {Event.RELEASE: Phase.IDLE},
}


class TableTurn:
    """When one table is landed.

    Attributes:
        trouble: of the last attempt; None while the table is landed with the micro-batches.
    """

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.trouble: Trouble | None = None
        #: What a stopped table waits for; None if it was stopped before an attempt.
        self._cause: tuple[object, ...] | None = None
        self._next_look = 0.0
        self._look_pause_s = FIRST_LOOK_S

    def move(self, event: Event) -> None:
        """Move to another phase. Raises ValueError for a move that the phase forbids."""
        if event not in _MOVES[self.phase]:
            raise ValueError(f"{event.value}, and the table's phase is {self.phase.name}")
        self.phase = _MOVES[self.phase][event]

    @property
    def is_running(self) -> bool:
        return self.phase is Phase.RUNNING

    @property
    def is_with_micro_batches(self) -> bool:
        """Return whether an attempt may begin, of a table that has not failed."""
        return self.phase is Phase.IDLE and self.trouble is None

    def succeed(self) -> None:
        """End the trouble: the table is landed with the micro-batches again."""
        self.trouble = None
        self._look_pause_s = FIRST_LOOK_S

    def fail(self, failure: Failure, cause: tuple[object, ...] | None, now: float) -> Trouble:
        """Take in that an attempt has failed.

        Args:
            cause: what the table waits for, if it is stopped.
        """
        self._cause, self._next_look = cause, now + self._look_pause_s
        return self.begin_failed(failure, now)

    def begin_failed(self, failure: Failure, now: float) -> Trouble:
        """Take in a failure without an attempt: the cause is looked at at once."""
        self.trouble = trouble_after(failure, self.trouble, now)
        return self.trouble

    def is_to_look_at(self, now: float) -> bool:
        """Return whether the cause of a stopped table is to be looked at."""
        is_stopped = self.trouble is not None and self.trouble.is_stopped
        return is_stopped and self.phase is Phase.IDLE and self._next_look <= now

    def look(self, cause: tuple[object, ...], now: float) -> None:
        """Let the table be tried at once, if its cause has changed; the next look is later."""
        if cause != self._cause and self.trouble is not None:
            self.trouble = due(self.trouble, now)
        self._cause, self._next_look = cause, now + self._look_pause_s
        self._look_pause_s = min(LONGEST_LOOK_S, self._look_pause_s * 2)

    def is_due(self, now: float) -> bool:
        """Return whether the pause after a failure is over."""
        return self.phase is Phase.IDLE and self.trouble is not None and self.trouble.next_attempt <= now


class Schedule:
    """When the tables of one run are landed."""

    def __init__(self, *, parallel: int, is_once: bool) -> None:
        """Begin a run without tables.

        Args:
            parallel: so many tables are retried side by side.
            is_once: the run ends by itself, and waits for tables that are retrying for a limited time.
        """
        self._parallel = parallel
        self._is_once = is_once
        self._turns: list[TableTurn] = []
        self._patience_ends: float | None = None

    def new_turn(self) -> TableTurn:
        """Return that of another table, which has not failed."""
        self._turns.append(TableTurn())
        return self._turns[-1]

    @property
    def is_running(self) -> bool:
        """Return whether an attempt runs."""
        return any(turn.is_running for turn in self._turns)

    def note_failure(self, trouble: Trouble, now: float) -> None:
        """Take in the trouble of a table: with the first table that is retrying the patience begins to end."""
        if self._patience_ends is None and not trouble.is_stopped:
            self._patience_ends = now + PATIENCE_S

    def wakes(self, now: float) -> bool:
        """Return whether a cause is to be looked at, or a pause is over."""
        return any(turn.is_to_look_at(now) or turn.is_due(now) for turn in self._turns)

    def may_retry(self, turn: TableTurn, now: float) -> bool:
        """Return whether another attempt of a table that has failed begins now."""
        n_retries = sum(other.is_running and other.trouble is not None for other in self._turns)
        is_late = self._is_once and self._is_out_of_patience(turn, now)
        return turn.is_due(now) and not is_late and n_retries < self._parallel

    def waits(self, now: float) -> bool:
        """Return whether a run that ends by itself waits for a table that is landed now, or retrying."""
        return any(
            turn.is_running
            or (turn.trouble is not None and not turn.trouble.is_stopped and not self._is_out_of_patience(turn, now))
            for turn in self._turns
        )

    def _is_out_of_patience(self, turn: TableTurn, now: float) -> bool:
        """Return whether a run that ends by itself waits no longer for a table; a search that is paused lands more each time."""
        is_search = turn.trouble is not None and turn.trouble.code == SearchPausedError.__name__
        return not is_search and now >= (self._patience_ends or 0.0)
