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
#: A registry numbers its schemas in turn: ids so far above the largest known may be those of new schemas.
_NEW_IDS: Final = 10_000
#: Requests for unknown ids within a minute, before further ids count as unknown without a request.
_MAX_IN_VAIN: Final = 1_000


def cached(function: Callable[..., ResultT], *, max_failures: int = _MAX_ENTRIES) -> Callable[..., ResultT]:
    """``function``, called once for the same arguments; where it raised :class:`DecodeError`, once a minute.

    Threads that ask for the same at the same time wait for one call. Any other error is not remembered.

    Args:
        max_failures: how many are remembered, apart from the results: they displace none of these.
    """
    in_progress: dict[tuple[Any, ...], threading.RLock] = {}
    failures = _Failures(max_failures)

    @lru_cache(maxsize=_MAX_ENTRIES)
    def found(*arguments: Any) -> ResultT:  # for threads that have waited
        return function(*arguments)

    @lru_cache(maxsize=_MAX_ENTRIES)
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


class _Failures:
    """The reasons of this minute, by the arguments of the call that failed.

    Without a lock, which a forked child could find locked: threads that add at the same time may lose a reason.
    """

    __slots__ = ("_max", "_of_minute")

    def __init__(self, max_entries: int) -> None:
        self._max = max_entries
        self._of_minute: tuple[int, dict[tuple[Any, ...], str]] = (0, {})

    def reason(self, arguments: tuple[Any, ...]) -> str | None:
        """Why the same call failed within this minute; None where it did not."""
        minute, reasons = self._of_minute
        return reasons.get(arguments) if minute == _minute() else None

    def add(self, arguments: tuple[Any, ...], reason: str) -> None:
        """Remember a failure. The first of a minute, and one too many, take the place of all before."""
        minute, reasons = self._of_minute
        if minute != _minute() or len(reasons) >= self._max:
            reasons = {}
            self._of_minute = (_minute(), reasons)
        reasons[arguments] = reason


class UnknownIds:
    """Which ids of schemas are worth a request: damaged values may name another unknown id each.

    All are, until a thousand unknown ids were requested within a minute; then only those that a new schema may have, or an older
    one than the newest that was found.
    """

    __slots__ = ("_in_vain", "_largest")

    def __init__(self) -> None:
        self._largest = 0
        self._in_vain = (0, 0)

    def check(self, schema_id: int) -> None:
        """Raises DecodeError for an id that is not worth a request."""
        minute, n_in_vain = self._in_vain
        if n_in_vain >= _MAX_IN_VAIN and minute == _minute() and not self._is_plausible(schema_id):
            raise DecodeError(
                f"its schema id was not looked up: this minute the registry was asked for {n_in_vain} other ids that it does not "
                f"know, and the largest that it is known to have is {self._largest}"
            )

    def found(self, schema_id: int) -> None:
        self._largest = max(self._largest, schema_id)

    def missing(self, schema_id: int) -> None:
        if not self._is_plausible(schema_id):
            minute, n_in_vain = self._in_vain
            self._in_vain = (_minute(), n_in_vain + 1 if minute == _minute() else 1)

    def _is_plausible(self, schema_id: int) -> bool:
        return 0 <= schema_id <= self._largest + _NEW_IDS


def _minute() -> int:
    return int(time.monotonic() // _FAILURES_KEPT_S)
