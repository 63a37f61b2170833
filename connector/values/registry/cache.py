"""What a process remembers of schemas: results for good, for a schema's id always means the same; refusals for a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

from pykafka_wire.errors import PoisonError

FoundT = TypeVar("FoundT")

_MOST: Final = 1_000
#: A topic may hold a hundred thousand values under a schema that nobody knows; it may be registered a little later, too.
_REFUSED_S: Final = 60


def cached(function: Callable[..., FoundT]) -> Callable[..., FoundT]:
    """``function``, called once for the same arguments; for those that ended in a :class:`PoisonError` once a minute."""

    @lru_cache(maxsize=_MOST)
    def outcome(minute: int, *arguments: Any) -> tuple[FoundT, None] | tuple[None, str]:
        try:
            return function(*arguments), None
        except PoisonError as error:
            return None, str(error)

    @lru_cache(maxsize=_MOST)
    def found(*arguments: Any) -> Any:
        value, refusal = outcome(int(time.monotonic() // _REFUSED_S), *arguments)
        if refusal is not None:
            raise PoisonError(refusal)
        return value

    return wraps(function)(found)
