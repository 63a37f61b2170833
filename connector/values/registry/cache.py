"""What a process remembers of schemas: results for good, since a schema's id always means the same; failures for a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

from pykafka_wire.errors import PoisonError
from pykafka_wire.wire import forks

ResultT = TypeVar("ResultT")

_MAX_ENTRIES: Final = 1_000
#: A topic may hold a hundred thousand values under a schema that is unknown, and it may be registered a little later.
_FAILURES_KEPT_S: Final = 60


def cached(function: Callable[..., ResultT]) -> Callable[..., ResultT]:
    """``function``, called once for the same arguments; where it raised :class:`PoisonError`, once a minute.

    Threads that ask for the same at the same time wait for one call. Any other error is not remembered.
    """
    in_progress: dict[tuple[Any, ...], threading.RLock] = {}

    @lru_cache(maxsize=_MAX_ENTRIES)
    def result_or_failure(minute: int, *arguments: Any) -> tuple[ResultT, None] | tuple[None, str]:
        try:
            return function(*arguments), None
        except PoisonError as error:
            return None, str(error)

    @lru_cache(maxsize=_MAX_ENTRIES)
    def result(*arguments: Any) -> Any:
        # With the generation: a child must not wait for a thread that only its parent has.
        key = (forks.generation, *arguments)
        with in_progress.setdefault(key, threading.RLock()):
            try:
                value, failure = result_or_failure(int(time.monotonic() // _FAILURES_KEPT_S), *arguments)
            finally:
                in_progress.pop(key, None)
        if failure is not None:
            raise PoisonError(failure)
        return value

    return wraps(function)(result)
