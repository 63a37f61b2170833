"""When a table that could not be landed is retried.

A table is landed with each micro-batch until an attempt fails. Then the table is *retrying*, with growing pauses, independently of
the micro-batches of other tables; or it is *stopped*, if another attempt would fail in the same way. A stopped table is retried
when the cause has changed, and after a long pause. Only the error of the last attempt decides between the two states. A successful
attempt ends both states.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pykafka_wire.ingest.landing.remedies import Failure, Remedy
from pykafka_wire.ingest_status import Trouble

#: The number of successive conflicts that are retried without a pause: other programs seldom commit more often.
_REPEATS: Final = 5
#: The first pause in seconds. Each further pause is twice as long, up to the longest pause.
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
#: The pause in seconds of a stopped table whose cause has not changed.
_STOPPED_PAUSE_S: Final = 300.0


def trouble_after(failure: Failure, before: Trouble | None, now: float) -> Trouble:
    """Return the trouble of a table whose attempt failed at the time ``now``.

    Args:
        before: the table's trouble before the attempt; None if the previous attempt succeeded.
    """
    n_failures = 1 if before is None else before.n_failures + 1
    return Trouble(
        code=failure.code,
        reason=failure.sentence,
        is_stopped=failure.remedy is Remedy.CHANGE,
        n_failures=n_failures,
        since=now if before is None else before.since,
        next_attempt=now + _pause_s(failure.remedy, n_failures),
    )


def due_now(trouble: Trouble, now: float) -> Trouble:
    """Return the trouble of a table that is to be retried at once."""
    return replace(trouble, next_attempt=now)


def _pause_s(remedy: Remedy, n_failures: int) -> float:
    if remedy is Remedy.CHANGE:
        return _STOPPED_PAUSE_S
    if remedy is Remedy.RETRY_NOW:
        n_failures -= _REPEATS
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(n_failures - 1, 10)) if n_failures > 0 else 0.0
