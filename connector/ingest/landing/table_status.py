"""What a user sees of one table of an ingest, and the states that it goes through.

A table is *landing*, until an attempt fails. Then it is *retrying*, with growing pauses, beside the micro-batches of the others; or
*stopped*, where another attempt would fail alike: then it is tried when what stopped it has changed, and after a long pause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from pykafka_wire.ingest.failures import Failure, Remedy
from pykafka_wire.ingest.settings.model import Destination
from pykafka_wire.values.registry.registered_schema import RegistryId


class Stage(Enum):
    """Where a table is on its way."""

    LANDING = "landing"
    RETRYING = "retrying"
    STOPPED = "stopped"


class Outcome(Enum):
    """How an attempt to land a table has ended."""

    LANDED = "the table has all that was planned"
    CONFLICTED = "another program has committed meanwhile"
    FAILED = "another attempt may succeed"
    REFUSED = "another attempt fails alike, until something has changed"


#: The moves. A table that is not landing is tried only when its pause is over, or what stopped it has changed.
_MOVES: Final[Mapping[Stage, Mapping[Outcome, Stage]]] = {
    Stage.LANDING: {
        Outcome.LANDED: Stage.LANDING,
        Outcome.CONFLICTED: Stage.RETRYING,
        Outcome.FAILED: Stage.RETRYING,
        Outcome.REFUSED: Stage.STOPPED,
    },
    Stage.RETRYING: {
        Outcome.LANDED: Stage.LANDING,
        Outcome.CONFLICTED: Stage.RETRYING,
        Outcome.FAILED: Stage.RETRYING,
        Outcome.REFUSED: Stage.STOPPED,
    },
    Stage.STOPPED: {
        Outcome.LANDED: Stage.LANDING,
        Outcome.CONFLICTED: Stage.RETRYING,
        Outcome.FAILED: Stage.RETRYING,
        Outcome.REFUSED: Stage.STOPPED,
    },
}
_OUTCOMES: Final[Mapping[Remedy, Outcome]] = {
    Remedy.REPEAT: Outcome.CONFLICTED,
    Remedy.WAIT: Outcome.FAILED,
    Remedy.CHANGE: Outcome.REFUSED,
}
#: So many conflicts in a row are repeated at once: another program's commits are seldom so close together.
_REPEATS: Final = 5
#: The first pause in seconds; each further one is twice as long, up to the longest.
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
#: A stopped table whose cause nobody has seen change is tried so often, in seconds.
_STOPPED_PAUSE_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of a table.

    Attributes:
        code: of the error, empty while the table is landing.
        reason: the error's sentence, None while the table is landing.
        n_failures: attempts in a row that have failed.
        next_attempt: when the next one is due, by the clock of :func:`time.monotonic`; None while the table is landing.
    """

    stage: Stage = Stage.LANDING
    code: str = ""
    reason: str | None = None
    n_failures: int = 0
    next_attempt: float | None = None

    def landed(self) -> TableState:
        """Return the state after an attempt that has succeeded."""
        return TableState(stage=_MOVES[self.stage][Outcome.LANDED])

    def failed(self, failure: Failure, now: float) -> TableState:
        """Return the state after an attempt that has failed, at the time ``now``."""
        outcome = _OUTCOMES[failure.remedy]
        n_failures = self.n_failures + 1
        return TableState(
            stage=_MOVES[self.stage][outcome],
            code=failure.code,
            reason=failure.sentence,
            n_failures=n_failures,
            next_attempt=now + _pause_s(outcome, n_failures),
        )

    def due(self, now: float) -> TableState:
        """Return the state of a table that is not landing and is tried at once.

        Raises:
            ValueError: the table is landing: nothing has failed.
        """
        if self.stage is Stage.LANDING:
            raise ValueError("a table that is landing waits for no further attempt")
        return replace(self, next_attempt=now)


def _pause_s(outcome: Outcome, n_failures: int) -> float:
    if outcome is Outcome.REFUSED:
        return _STOPPED_PAUSE_S
    if outcome is Outcome.CONFLICTED:
        n_failures -= _REPEATS
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(n_failures - 1, 10)) if n_failures > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """What is known of one table at one time.

    Attributes:
        position: next offset to land, by partition; None until the table was looked at.
        rows, rejects, commits: since the ingest was started.
        stale: rejected changes since the start; their rows may be older than the topic's.
        by_spark: why Spark writes the table's files, None where tasks do.
        held_rejects: what the table of rejects holds of this table, those of earlier runs among them.
        schema_id: the registry's id of the newest schema that was used.
        newest_ms: the timestamp of the newest record that was landed, in ms since the epoch, at first of the last commit before the
            start; None while the table has no rows.
        landed_at: when rows were last landed, by the clock of :func:`time.monotonic`.
        seconds: spent on this table.
        is_part: whether its topic may have other tables.
        untaken: records since the start that none of the topic's tables takes; the first of these tables counts them.
    """

    topic: str
    name: str
    state: TableState = field(default_factory=TableState)
    position: Mapping[int, int] | None = None
    rows: int = 0
    rejects: int = 0
    stale: int = 0
    commits: int = 0
    held_rejects: int = 0
    schema_id: RegistryId | None = None
    newest_ms: int | None = None
    landed_at: float | None = None
    seconds: float = 0.0
    by_spark: str | None = None
    is_part: bool = False
    untaken: int = 0

    @classmethod
    def of(cls, destination: Destination, state: TableState | None = None) -> TableStatus:
        """Return the status of a table that has had nothing to land yet."""
        return cls(
            topic=destination.topic,
            name=destination.name,
            is_part=destination.table.is_part,
            state=state or TableState(),
        )

    @property
    def key(self) -> str:
        """Return the table's :attr:`~pykafka_wire.ingest.settings.model.Destination.key`."""
        return f"{self.topic}:{self.name}" if self.is_part else self.topic

    @property
    def error(self) -> str | None:
        """Return why the table is retrying or stopped, None while it is landing."""
        return self.state.reason
