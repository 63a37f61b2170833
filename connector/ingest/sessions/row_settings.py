"""How a Spark session makes and writes rows of tables: all readers find their times, and conditions are planned soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

#: Spark writes timestamps as INT96 by default, in which most other readers have no year after 2262. A session may have the calendar
#: of old versions, in which other readers see other days before 1582. And Spark's time to plan doubles with each column of a
#: condition, for filters that no table of an ingest needs.
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.constraintPropagation.enabled": "false",
}


def set_row_settings(session: SparkSession) -> dict[str, str | None]:
    """Let a session make and write rows as this module says; return the settings that the session had."""
    before = {name: session.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return before


@contextmanager
def row_settings(session: SparkSession) -> Iterator[None]:
    """Let a user's session do as :func:`set_row_settings` says, for some time."""
    before = set_row_settings(session)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)
