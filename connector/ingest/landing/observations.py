"""Counts that Spark makes while it writes rows."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError  # not the built-in one before Python 3.11
from typing import Any, Final

from pyspark.sql import Observation

#: The longest wait for counts. Spark usually delivers them within milliseconds after a write.
_COUNTED_WITHIN_S: Final = 60.0


def counted(seen: Observation) -> dict[str, Any]:
    """Return the counts that Spark made while it wrote rows.

    Raises:
        RuntimeError: Spark has not delivered the counts. The rows are committed, and the table is opened again.
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
        raise RuntimeError("Spark wrote the rows but did not report their number; the table is opened again") from None
