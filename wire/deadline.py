"""Time limits: a deadline on the monotonic clock, which no change of the wall clock shortens or lengthens, and a
clock that can be paused. It knows no broker."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykafka_wire.wire.settings import ClientSettings

#: The longest wait at a time, 24 days: what poll() takes, in an int32. A deadline may be later, or infinite.
_LONGEST_MS: Final = 2.0**31 - 1
#: How often a wait looks whether its deadline was cancelled, where nothing wakes it up.
CANCEL_CHECK_MS: Final = 50.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock, in seconds.

    Attributes:
        setting: the name of the setting that it comes from, empty if it comes from none; for errors.
        cancelled: once another thread sets it, the deadline has passed.
    """

    at: float
    setting: str = field(default="", kw_only=True, compare=False)
    cancelled: threading.Event | None = field(default=None, kw_only=True, compare=False)

    @classmethod
    def after_ms(cls, ms: float, *, cancelled: threading.Event | None = None) -> Deadline:
        return cls(time.monotonic() + ms / 1000, cancelled=cancelled)

    @classmethod
    def of_call(cls, settings: ClientSettings) -> Deadline:
        """Return the deadline of a call with all its retries that begins now: ``default.api.timeout.ms``."""
        return cls(time.monotonic() + settings.default_api_timeout_ms / 1000, setting="default.api.timeout.ms")

    def spent(self, started: float) -> str:
        """Return how long was tried since `started`, and what limits it, as errors have it: ``59.9 s
        (default.api.timeout.ms)``.
        """
        return f"{time.monotonic() - started:.1f} s" + (f" ({self.setting})" if self.setting else "")

    def remaining_ms(self) -> float:
        """Return milliseconds that are left, 0 when it has passed; no more than one wait can be for."""
        if self.cancelled is not None and self.cancelled.is_set():
            return 0.0
        return min(_LONGEST_MS, max(0.0, (self.at - time.monotonic()) * 1000))

    @property
    def expired(self) -> bool:
        return self.remaining_ms() <= 0

    def sleep(self, ms: float) -> None:
        """Wait for so long; less where the deadline passes, or is cancelled, before."""
        seconds = min(ms, self.remaining_ms()) / 1000
        if self.cancelled is None:
            time.sleep(seconds)
        else:
            self.cancelled.wait(seconds)

    def acquire(self, lock: threading.Lock | threading.RLock) -> bool:
        """Return whether this thread has the lock now; wait for it until the deadline."""
        longest_ms = math.inf if self.cancelled is None else CANCEL_CHECK_MS
        # At least a try without a wait.
        while not lock.acquire(timeout=min(self.remaining_ms(), longest_ms) / 1000):
            if self.expired:
                return False
        return True

    def at_most_ms(self, ms: float) -> Deadline:
        """Return this deadline, or one in ``ms`` milliseconds, whichever comes first."""
        moment = time.monotonic() + ms / 1000
        return self if self.at <= moment else Deadline(moment, cancelled=self.cancelled)


class WorkingClock:
    """Seconds of work: the monotonic clock without the time between :meth:`pause` and :meth:`resume`."""

    def __init__(self) -> None:
        self._away_s = 0.0
        self._paused_at: float | None = None

    def pause(self) -> None:
        if self._paused_at is None:
            self._paused_at = time.monotonic()

    def resume(self) -> None:
        if self._paused_at is not None:
            self._away_s += time.monotonic() - self._paused_at
            self._paused_at = None

    def now(self) -> float:
        return (time.monotonic() if self._paused_at is None else self._paused_at) - self._away_s

    def deadline(self, moment: float) -> Deadline:
        """Return a moment of this clock as a deadline, if there is no pause until then."""
        return Deadline(moment + self._away_s)
