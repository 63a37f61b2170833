"""The retries of one range: its failures in a row, the time since which it gives no records, and the time of its next request.

:mod:`~pykafka_wire.wire.fetch.response_handler` decides what a failure means.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pykafka_wire.wire.cluster.retries import GracePeriods
from pykafka_wire.wire.errors import WireError


@dataclass(slots=True, eq=False)
class RangeRetries:
    """The retries of one range. All times are of the read's clock.

    Attributes:
        not_before: time before which the range is not to be asked for again.
        stalled_since: when it began to give nothing, None while it moves.
        end_missing_since: since when its leader serves less than the range's end.
        grace_periods: how long each error code may go on to be met, counted anew when the range moves.
        failures: how many in a row; `last_error` is what the last one was.
    """

    not_before: float = 0.0
    stalled_since: float | None = None
    end_missing_since: float | None = None
    grace_periods: GracePeriods = field(default_factory=GracePeriods)
    failures: int = 0
    last_error: WireError | None = None

    def stalled_s(self, now: float) -> float:
        """Return for how many seconds the range has given nothing."""
        return 0.0 if self.stalled_since is None else now - self.stalled_since

    def end_missing_s(self, now: float) -> float:
        """Return for how many seconds the leader has served less than the range's end."""
        return 0.0 if self.end_missing_since is None else now - self.end_missing_since

    def recover(self) -> None:
        """Forget the failures, since the range has moved."""
        self.stalled_since = self.end_missing_since = None
        self.grace_periods.clear()
        self.failures, self.last_error = 0, None

    def stall(self, now: float) -> None:
        """Remember the time since which the range gives no records."""
        if self.stalled_since is None:
            self.stalled_since = now

    def fail(self, error: WireError | None = None) -> None:
        """Count one more try that gave nothing; `error` is why, None where the broker says nothing is wrong."""
        self.failures += 1
        if error is not None:
            self.last_error = error

    def pause_until(self, not_before: float) -> None:
        """Ask for the range again from this time on."""
        self.not_before = not_before

    def watch_end(self, now: float, *, at_end: bool | None) -> None:
        """Note whether the leader's log ends at the position, below the range's end; None: only a follower has responded."""
        if at_end is False:
            self.end_missing_since = None
        elif at_end and self.end_missing_since is None:
            self.end_missing_since = now

    def await_end_anew(self) -> None:
        """Give another leader the whole wait to come level."""
        self.end_missing_since = None
