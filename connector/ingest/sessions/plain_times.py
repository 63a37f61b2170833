"""How a Spark session writes dates and timestamps, so that all readers find them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

#: How Spark writes dates and timestamps. Its default is INT96, in which most other readers have no year after 2262. A session may
#: have the calendar of old versions, in which other readers see other days before 1582.
_TIMES: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def write_plain_times(session: SparkSession) -> dict[str, str | None]:
    """Let a session write dates and timestamps that all readers understand; return the settings that it had."""
    before = {name: session.conf.get(name, None) for name in _TIMES}
    for name, value in _TIMES.items():
        session.conf.set(name, value)
    return before


@contextmanager
def plain_times(session: SparkSession) -> Iterator[None]:
    """Let a user's session write as :func:`write_plain_times` does, for some time."""
    before = write_plain_times(session)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)
