"""What Spark counts while it writes rows."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError  # not the built-in one before Python 3.11
from typing import Any, Final

from pyspark.sql import Observation

#: Spark delivers counts within milliseconds of a write's end.
_COUNTED_WITHIN_S: Final = 60.0


def counted(seen: Observation) -> dict[str, Any]:
    """Return what was counted while rows were written.

    Raises:
        RuntimeError: Spark has not delivered the counts. The rows are committed: the table's next look shows it.
    """
    counts: Future[dict[str, Any]] = Future()

    def wait() -> None:
        try:
            counts.set_result(seen.get)
        except Exception as error:
            counts.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()
    try:
        return counts.result(_COUNTED_WITHIN_S)
    except FutureTimeoutError:
        raise RuntimeError("Spark has written rows, and has not said how many; the table is looked at again") from None
