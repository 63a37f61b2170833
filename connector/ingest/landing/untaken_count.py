"""The records of a topic that none of its tables takes, counted while the first of these tables is landed.

The read of that table shows them, where all tables read alike; else the range is read once more.
"""

from __future__ import annotations

import logging

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.changes.newest import Untaken
from pykafka_wire.ingest.failures import code_of, sentence_of
from pykafka_wire.ingest.landing.attempt import TableAttempt
from pykafka_wire.ingest.landing.observations import counted
from pykafka_wire.ingest.ranges import TopicRange
from pykafka_wire.ingest.records.contracts import Census
from pykafka_wire.ingest.records.untaken import count_untaken, untaken_places

_log = logging.getLogger(__name__)


class UntakenCount:
    """Counts the records that no table takes, in one attempt."""

    def __init__(self, attempt: TableAttempt) -> None:
        """Take the attempt; only that of a topic's first table counts."""
        self._attempt = attempt
        first, *_ = attempt.settings.destinations(attempt.destination.topic)
        self._is_counted = first.table.is_part and first.name == attempt.name

    def census(self) -> Census | None:
        """Return what shows in the read of the table which records no table takes; None where only other reads do."""
        contracts = self._attempt.reader.census.contracts
        if not contracts:
            return None
        return Census(tables=contracts, seen=None if self._attempt.table.merges else Observation())

    def is_cause(self, error: Exception, census: Census | None) -> bool:
        """Return whether the condition of another table may have raised an error: the table is landed without looking at it."""
        is_of_sql = isinstance(error, PySparkException | Py4JJavaError | IngestError)
        if not is_of_sql or census is None or len(census.tables) == 1 or code_of(error).startswith("DELTA_"):
            return False
        self._attempt.reader.census.fail()
        _log.debug(
            "Table %s is written without looking at other tables' conditions.", self._attempt.name, exc_info=error
        )
        return True

    def add(self, part: TopicRange, untaken: Untaken | None) -> None:
        """Add the records of a range that was landed, and name the first one.

        Args:
            untaken: those that the read has shown; None where it has shown none, taken or not.
        """
        if not self._is_counted:
            return
        if untaken is None:
            try:
                untaken = self._looked_for(part)
            except Exception as error:  # of another table of the topic, as a rule
                _log.warning(
                    "The records of topic %s that none of its tables takes were not counted up to %s; ingest --verify counts "
                    "them. %s",
                    part.topic,
                    dict(part.end),
                    sentence_of(error),
                )
                return
        self._attempt.progress.untaken += untaken.n
        if untaken.n:
            _log.warning(
                "%d records of topic %s are taken by none of its tables; the first is at partition:offset %s. ingest --verify "
                "names them.",
                untaken.n,
                part.topic,
                untaken.first,
            )

    def _looked_for(self, part: TopicRange) -> Untaken:
        session, readers = self._attempt.session, self._attempt.run.readers.of_topic(part.topic)
        by_tasks = count_untaken(session, readers, part) if self._attempt.progress.by_spark is None else None
        if by_tasks is None:
            others = untaken_places(session, readers, part)
            untaken = Untaken.of(others.agg(*Untaken.columns(F.lit(True))).collect()[0].asDict())
        else:
            untaken = Untaken.at(*by_tasks)
        self._attempt.reader.census.recover()
        return untaken


def observed_untaken(census: Census | None) -> Untaken | None:
    """Return the records that no table takes, as they were seen while the table was written; None if they were not."""
    if census is None or census.seen is None:
        return None
    try:
        return Untaken.of(counted(census.seen))
    except RuntimeError:  # Spark has left the count out; the rows are committed by now
        return None
