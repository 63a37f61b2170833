"""The lag of streaming queries, reported by a ``StreamingQueryListener`` that is added in one line::

    from pykafka_wire import LagListener

    spark.streams.addListener(LagListener())

It reads what the source puts into each query's progress (Spark 4.2+), so it works in classic and in Spark Connect sessions
and sends no request to a broker. It logs by default; give it a function to send the figures elsewhere.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = ["LagListener", "QueryLag", "lags_of"]

_log = logging.getLogger(__name__)

#: Ended runs that a listener remembers for :meth:`LagListener.wait_for_end`; an id takes some 150 bytes.
_REMEMBERED_RUNS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLag:
    """The lag of one Kafka source of one query, after a micro-batch.

    Attributes:
        source: the source's index among the query's sources.
        min_offsets_behind: of the topic-partition with the smallest lag, from the end of the micro-batch to the end of its log.
        max_offsets_behind: of the topic-partition with the largest lag.
        avg_offsets_behind: over all topic-partitions.
        total_offsets_behind: of all topic-partitions together.
        bytes_behind: an estimate from sampled record batches; None where none was sampled.
        commit_successes: commits to the group since the query started.
        commit_failures: commits that the group's coordinator rejected, or that could not be sent.
        lost_ranges: skipped with ``failOnDataLoss=false`` since the query started, as detected by the planner.
        lost_offsets: offsets in these ranges; those of a range whose end is unknown are not counted.
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
    """Reports the lag of every query that reads with ``pykafka-wire``, after each micro-batch.

    Args:
        on_lag: is called with each :class:`QueryLag`. By default the lag is logged: at WARNING after a micro-batch in which
            a commit failed or records were lost, else at INFO.

    Attributes:
        latest: the last lag of each running query and source.
    """

    def __init__(self, on_lag: Callable[[QueryLag], None] | None = None) -> None:
        self._on_lag = on_lag
        self.latest: dict[tuple[str, int], QueryLag] = {}
        #: Run ids of ended queries, the oldest first.
        self._ended_runs: deque[str] = deque(maxlen=_REMEMBERED_RUNS)
        self._run_ended = threading.Condition()

    def onQueryStarted(self, event: Any) -> None:  # Any: Spark's events, which differ between classic and Connect
        """Do nothing: the first lag comes with the first micro-batch."""

    def onQueryProgress(self, event: Any) -> None:
        """Report the lag that a finished micro-batch leaves."""
        for lag in lags_of(event.progress):
            previous = self.latest.get((lag.query_id, lag.source))
            self.latest[lag.query_id, lag.source] = lag
            if self._on_lag is not None:
                self._on_lag(lag)
            else:
                _log_lag(lag, previous)

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: the last lag is still true."""

    def onQueryTerminated(self, event: Any) -> None:
        """Remove the lag of a query that has ended."""
        for key in [key for key in self.latest if key[0] == str(event.id)]:
            del self.latest[key]
        with self._run_ended:
            self._ended_runs.append(str(event.runId))
            self._run_ended.notify_all()

    def wait_for_end(self, query: Any, timeout_s: float = 60.0) -> bool:  # Any: classic's or Connect's StreamingQuery
        """Wait until this listener has received the end of a query's run; False if it has not within ``timeout_s``.

        Through Spark Connect remove a listener (``spark.streams.removeListener``) only after this returned True for each of
        the session's queries: as of Spark 4.2 the removal hangs if an event of any query is on its way, and a query's last
        event comes after its ``awaitTermination()`` has returned. The last 1,000 ended runs are remembered.
        """
        run_id = str(query.runId)
        with self._run_ended:
            return self._run_ended.wait_for(lambda: run_id in self._ended_runs, timeout_s)


def lags_of(progress: Any) -> Iterator[QueryLag]:  # Any: a StreamingQueryProgress of either kind of session
    """Yield the lag of each source of a progress that is this package's."""
    for index, report in source_reports(progress):
        yield QueryLag(
            query_id=str(progress.id),
            run_id=str(progress.runId),
            query_name=progress.name,
            batch_id=progress.batchId,
            source=index,
            group=report["group"],
            min_offsets_behind=report["minOffsetsBehindLatest"],
            max_offsets_behind=report["maxOffsetsBehindLatest"],
            avg_offsets_behind=report["avgOffsetsBehindLatest"],
            total_offsets_behind=report["totalOffsetsBehindLatest"],
            bytes_behind=report.get("estimatedTotalBytesBehindLatest"),
            commit_successes=report["commitSuccesses"],
            commit_failures=report["commitFailures"],
            lost_ranges=report["lostRanges"],
            lost_offsets=report["lostOffsets"],
        )


def source_reports(progress: Any) -> Iterator[tuple[int, dict[str, Any]]]:  # Any: as above; the report is JSON
    """Index and report of each source of a progress that is this package's."""
    for index, source in enumerate(progress.sources):
        try:
            report = json.loads(source.latestOffset or "null")
        except ValueError:
            continue
        if isinstance(report, dict) and "totalOffsetsBehindLatest" in report and "commitSuccesses" in report:
            yield index, report  # else another source's offset


def _log_lag(lag: QueryLag, previous: QueryLag | None) -> None:
    """Log a lag, at WARNING where its counts of failures have grown since the one before, of the same run."""
    known = (0, 0)
    if previous is not None and previous.run_id == lag.run_id:
        known = previous.commit_failures, previous.lost_ranges
    is_worse = lag.commit_failures > known[0] or lag.lost_ranges > known[1]
    _log.log(
        logging.WARNING if is_worse else logging.INFO,
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
