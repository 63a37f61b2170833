"""What a process remembers of schemas: results for good, since a schema's id always means the same; failures for a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

from pykafka_wire.errors import DecodeError
from pykafka_wire.wire import forks

ResultT = TypeVar("ResultT")

_MAX_ENTRIES: Final = 1_000
#: A topic may hold a hundred thousand values under a schema that is unknown, and it may be registered a little later.
_FAILURES_KEPT_S: Final = 60


def cached(
    function: Callable[..., ResultT], *, max_results: int = _MAX_ENTRIES, max_failures: int = _MAX_ENTRIES
) -> Callable[..., ResultT]:
    """Return ``function``, called once for the same arguments; where it raised :class:`DecodeError`, once a minute.

    Threads that ask for the same at the same time wait for one call. Any other error is not remembered.

    Args:
        max_results: how many results are remembered.
        max_failures: how many are remembered, apart from the results: they displace none of these.
    """
    in_progress: dict[tuple[Any, ...], threading.RLock] = {}
    failures = _Failures(max_failures)

    @lru_cache(maxsize=max_results)
    def found(*arguments: Any) -> ResultT:  # for threads that have waited
        return function(*arguments)

    @lru_cache(maxsize=max_results)
    def result(*arguments: Any) -> Any:
        # With the generation: a child must not wait for a thread that only its parent has.
        key = (forks.generation, *arguments)
        with in_progress.setdefault(key, threading.RLock()):
            try:
                reason = failures.reason(arguments)
                if reason is None:
                    return found(*arguments)
            except DecodeError as error:
                failures.add(arguments, str(error))
                raise
            finally:
                in_progress.pop(key, None)
        raise DecodeError(reason)

    return wraps(function)(result)


def cached_if_whole(function: Callable[..., tuple[ResultT, bool]], *, max_results: int) -> Callable[..., ResultT]:
    """Return a function of the first result of ``function``. It is remembered for good if the second says that it is whole, else
    for a minute.
    """

    @lru_cache(maxsize=max_results)
    def results(*arguments: Any) -> list[tuple[ResultT, int | None]]:
        return []

    def result(*arguments: Any) -> ResultT:
        known = results(*arguments)
        if known and known[0][1] in (None, this_minute()):
            return known[0][0]
        found, is_whole = function(*arguments)
        known[:] = [(found, None if is_whole else this_minute())]
        return found

    return wraps(function)(result)


class _Failures:
    """The reasons of this minute, by the arguments of the call that failed.

    Without a lock, which a forked child could find locked: threads that add at the same time may lose a reason.
    """

    __slots__ = ("_max", "_of_minute")

    def __init__(self, max_entries: int) -> None:
        self._max = max_entries
        self._of_minute: tuple[int, dict[tuple[Any, ...], str]] = (0, {})

    def reason(self, arguments: tuple[Any, ...]) -> str | None:
        """Return why the same call failed within this minute; None where it did not."""
        minute, reasons = self._of_minute
        return reasons.get(arguments) if minute == this_minute() else None

    def add(self, arguments: tuple[Any, ...], reason: str) -> None:
        """Remember a failure. The first of a minute, and one too many, take the place of all before."""
        minute, reasons = self._of_minute
        if minute != this_minute() or len(reasons) >= self._max:
            reasons = {}
            self._of_minute = (this_minute(), reasons)
        reasons[arguments] = reason


def this_minute() -> int:
    """Return the number of the minute that failures are remembered for."""
    return int(time.monotonic() // _FAILURES_KEPT_S)
