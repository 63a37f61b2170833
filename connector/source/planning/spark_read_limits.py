"""Spark's own read limits (Spark 4.2+), and what stands in for them before. :mod:`~pykafka_wire.source.planning.trigger_limits`
applies them."""

from __future__ import annotations

from typing import Any

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
    )
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as AvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ImportError:  # Spark 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False

    class AvailableNow:  # type: ignore[no-redef]
        """Stands in for the mixin that Spark before 4.2 does not have."""


__all__ = ["HAS_ADMISSION_CONTROL", "AvailableNow", "read_limit", "reads_all_available"]


def read_limit(max_rows: int | None, max_bytes: int | None = None) -> Any:
    """Spark's read limit for so many rows or bytes a micro-batch; it has none for both, and rows go first."""
    if max_rows is not None:
        return ReadMaxRows(max_rows)
    return ReadAllAvailable() if max_bytes is None else ReadMaxBytes(max_bytes)


def reads_all_available(limit: Any) -> bool:
    """Whether Spark asks for everything whatever the options are, as Trigger.Once does."""
    return isinstance(limit, ReadAllAvailable)
