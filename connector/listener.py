"""How far queries are behind, as a ``StreamingQueryListener`` that is added in one line::

    from pykafka_wire import LagListener

    spark.streams.addListener(LagListener())

It reads what the source puts into each query's progress (Spark 4.2+), so it works in classic and in Spark Connect sessions
alike, and asks no broker. By default it logs; give it a function to send the figures elsewhere.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = ["LagListener", "QueryLag", "lags_of"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLag:
    """One Kafka source of one query, after a micro-batch.

    Attributes:
        source: the source's place among the query's sources.
        min_offsets_behind, max_offsets_behind, avg_offsets_behind, total_offsets_behind: over its topic-partitions, from the
            end of the batch to the end of the logs.
        bytes_behind: an estimate, from record batches that were looked at; None where none was.
        commit_successes, commit_failures: commits to the group since the query's process started.
        lost_ranges, lost_offsets: skipped with ``failOnDataLoss=false`` since then, as found while planning; offsets of
            ranges whose end nobody knows are not counted.
    """

    query_id: str
    run_id: str
    query_name: str | None
    batch_id: int
    source: int
    group: str
    min_offsets_behind: int
    max_offsets_behind: int
    avg_offsets_behind: float
    total_offsets_behind: int
    bytes_behind: int | None
    commit_successes: int
    commit_failures: int
    lost_ranges: int
    lost_offsets: int


class LagListener(StreamingQueryListener):
    """Tells the lag of every query that reads with ``pykafka-wire``, after each micro-batch.

    Args:
        on_lag: is called with each :class:`QueryLag`; by default it is logged, at WARNING where records were lost.

    Attributes:
        latest: the last one of each running query and source.
    """

    def __init__(self, on_lag: Callable[[QueryLag], None] | None = None) -> None:
        self._on_lag = on_lag or _log_lag
        self.latest: dict[tuple[str, int], QueryLag] = {}
        self._ended_runs: set[str] = set()
        self._told = threading.Condition()

    def onQueryStarted(self, event: Any) -> None:  # Any: Spark's events, which differ between classic and Connect
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A micro-batch is done: tell how far behind it leaves the query."""
        for lag in lags_of(event.progress):
            self.latest[lag.query_id, lag.source] = lag
            self._on_lag(lag)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing new: the last figures stand."""

    def onQueryTerminated(self, event: Any) -> None:
        """A query that has ended is behind no more."""
        for key in [key for key in self.latest if key[0] == str(event.id)]:
            del self.latest[key]
        with self._told:
            self._ended_runs.add(str(event.runId))
            self._told.notify_all()

    def wait_for_end(self, query: Any, timeout_s: float = 60.0) -> bool:  # Any: classic's or Connect's StreamingQuery
        """Wait until this listener was told that a run of a query has ended; False where it was not within ``timeout_s``.

        Through Spark Connect remove a listener (``spark.streams.removeListener``) only where this was True of each of the
        session's queries: as of Spark 4.2 the removal never returns while an event of any is on its way, and a query's last
        one comes after its ``awaitTermination()`` has returned.
        """
        run_id = str(query.runId)
        with self._told:
            return self._told.wait_for(lambda: run_id in self._ended_runs, timeout_s)


def lags_of(progress: Any) -> Iterator[QueryLag]:  # Any: a StreamingQueryProgress of either kind of session
    """The lag of each of a progress's sources that is this package's."""
    for place, source in enumerate(progress.sources):
        try:
            report = json.loads(source.latestOffset or "null")
        except ValueError:
            continue
        if not isinstance(report, dict) or "totalOffsetsBehindLatest" not in report or "commitSuccesses" not in report:
            continue  # another source's offset
        yield QueryLag(
            query_id=str(progress.id),
            run_id=str(progress.runId),
            query_name=progress.name,
            batch_id=progress.batchId,
            source=place,
            group=report["group"],
            min_offsets_behind=report["minOffsetsBehindLatest"],
            max_offsets_behind=report["maxOffsetsBehindLatest"],
            avg_offsets_behind=report["avgOffsetsBehindLatest"],
            total_offsets_behind=report["totalOffsetsBehindLatest"],
            bytes_behind=report.get("estimatedBytesBehindLatest"),
            commit_successes=report["commitSuccesses"],
            commit_failures=report["commitFailures"],
            lost_ranges=report["lostRanges"],
            lost_offsets=report["lostOffsets"],
        )


def _log_lag(lag: QueryLag) -> None:
    _log.log(
        logging.WARNING if lag.lost_ranges or lag.commit_failures else logging.INFO,
        "Query %s, batch %d: %d offsets behind (%s bytes, estimated), at most %d in one topic-partition; commits to %s: %d done, "
        "%d failed; lost ranges: %d (%d offsets)",
        lag.query_name or lag.query_id,
        lag.batch_id,
        lag.total_offsets_behind,
        "?" if lag.bytes_behind is None else lag.bytes_behind,
        lag.max_offsets_behind,
        lag.group,
        lag.commit_successes,
        lag.commit_failures,
        lag.lost_ranges,
        lag.lost_offsets,
    )
