"""``pushFilters`` of a reader that works with Spark's filter pushdown on and off.

Spark refuses to run a reader that defines ``pushFilters`` while ``spark.sql.python.filterPushdown.enabled`` is false, its
default. It decides by whether the ``__func__`` of the reader's attribute is the base class's (4.1 to 4.3). A method cannot
pass that test, and a reader does not know the session's setting when it is built. So the attribute is a callable that shows
the base class's function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql.datasource import DataSourceReader


class OptionalPushFilters:
    """Calls a function in place of ``pushFilters``, where Spark calls it at all."""

    # Spark 4.0 has no pushFilters and does not look for it.
    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", len))

    def __init__(self, push: Callable[[list[Any]], list[Any]]) -> None:
        self._push = push

    def __call__(self, filters: list[Any]) -> list[Any]:
        return self._push(filters)
