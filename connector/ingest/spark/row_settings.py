"""Settings of a Spark session that writes tables: every reader gets the same timestamps, and conditions are planned quickly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

#: By default Spark writes timestamps as INT96, which most other readers cannot read after the year 2262. A session may use the old
#: calendar, in which other readers see different days before 1582. And Spark's planning time doubles with each column of a
#: condition, for filters that no table of an ingest needs. Names of columns may come from records: Spark must not replace variables
#: such as ${env:HOME} in statements, and a column whose case differs from the table's is the same column, as for Delta. A
#: file that cannot be read is an error: without its rows, a MERGE or a compaction would drop or double them.
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}


def set_row_settings(session: SparkSession) -> dict[str, str | None]:
    """Set the session's settings for writing tables; return the values that the session had before."""
    before = {name: session.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return before


@contextmanager
def row_settings(session: SparkSession) -> Iterator[None]:
    """Apply :func:`set_row_settings` to a user's session for the duration of the ``with`` block."""
    before = set_row_settings(session)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)
