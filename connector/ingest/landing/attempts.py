"""When a table that could not be landed is tried again.

A table is landed with each micro-batch, until an attempt fails. Then the table is *retrying*, with growing pauses, beside the
micro-batches of the others; or *stopped*, where another attempt would fail alike: a stopped table is tried when the cause has
changed, and after a long pause. The error of the last attempt alone decides between the two. An attempt that succeeds ends the
trouble.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pykafka_wire.ingest.failures import Failure, Remedy
from pykafka_wire.ingest_status import Trouble

#: So many conflicts in a row are repeated at once: another program's commits are seldom so close together.
_REPEATS: Final = 5
#: The first pause in seconds; each further one is twice as long, up to the longest.
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
#: A stopped table whose cause nobody has seen change is tried so often, in seconds.
_STOPPED_PAUSE_S: Final = 300.0


def trouble_after(failure: Failure, before: Trouble | None, now: float) -> Trouble:
    """Return the trouble of a table after an attempt that has failed at the time ``now``.

    Args:
        before: the trouble of the table until then, None if the attempt before has succeeded.
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


def due(trouble: Trouble, now: float) -> Trouble:
    """Return the trouble of a table that is tried at once."""
    return replace(trouble, next_attempt=now)


def _pause_s(remedy: Remedy, n_failures: int) -> float:
    if remedy is Remedy.CHANGE:
        return _STOPPED_PAUSE_S
    if remedy is Remedy.REPEAT:
        n_failures -= _REPEATS
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(n_failures - 1, 10)) if n_failures > 0 else 0.0
