"""Looks at a cluster, one after the other, which a broker's restart does not end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TypeVar

from pykafka_wire.wire.errors import BrokerError, TransportError

ResultT = TypeVar("ResultT")


def looks(
    look: Callable[[], ResultT], *, count: int | None = None, every_s: float = 0.0
) -> Iterator[tuple[ResultT, str]]:
    """What each look returns, and an empty text; where it fails, what the last one has returned, and the reason.

    Args:
        count: how many; without it they do not end.
        every_s: the pause between two of them.

    Raises:
        WireError: the first look fails.
    """
    last = look()
    yield last, ""
    n_looks = 1
    while n_looks != count:
        time.sleep(every_s)
        failure = ""
        try:
            last = look()
        except (TransportError, BrokerError) as error:
            failure = f"The update at {datetime.now():%H:%M:%S} failed: {error}"
        yield last, failure
        n_looks += 1
