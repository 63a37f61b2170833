"""The listener tells what the source puts into a query's progress. (Through Spark Connect: tests/test_examples.py.)"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pykafka_wire import LagListener
from pykafka_wire.lag_listener import QueryLag, lags_of


@pytest.mark.broker
@pytest.mark.spark
def test_each_micro_batch_tells_the_lag_that_it_leaves(
    spark: Any, queries: Any, topic: Any, outside: Any, until: Any
) -> None:
    name, group, told = topic(2), f"g-{uuid.uuid4().hex[:8]}", []
    outside.fill(name, [30, 10])
    outside.age_out(name, 0, 2)
    listener = LagListener(told.append)
    spark.streams.addListener(listener)
    try:
        options = {"subscribe": name, "maxOffsetsPerTrigger": "8", "failOnDataLoss": "false", "kafka.group.id": group}
        query = queries.run(startingOffsets=f'{{"{name}":{{"0":0,"1":0}}}}', **options)
        batches = len(query.recentProgress)
        until(lambda: len(told) >= batches, what="the progress of every batch")
        assert listener.wait_for_end(query)
        assert not listener.latest
    finally:
        spark.streams.removeListener(listener)
    first, last = told[0], told[-1]
    assert {(lag.query_id, lag.run_id, lag.source) for lag in told} == {(str(query.id), str(query.runId), 0)}
    assert (first.batch_id, first.group) == (0, group)
    behind = [
        first.min_offsets_behind,
        first.max_offsets_behind,
        first.avg_offsets_behind,
        first.total_offsets_behind,
    ]
    assert behind == [8, 24, 16.0, 32]
    assert first.bytes_behind is not None and 32 <= first.bytes_behind < 32 * 200
    assert [lag.total_offsets_behind for lag in told] == sorted(
        (lag.total_offsets_behind for lag in told), reverse=True
    )
    assert (last.total_offsets_behind, last.bytes_behind) == (0, 0)
    # A commit may still be under way while the next micro-batch is planned.
    assert last.commit_successes >= len(told) - 2 and last.commit_failures == 0
    assert (last.lost_ranges, last.lost_offsets) == (1, 2)


def test_an_end_that_does_not_come_is_not_waited_for_long() -> None:
    assert not LagListener().wait_for_end(SimpleNamespace(runId="1"), timeout_s=0.01)


def progress_of(latest_offset: str) -> Any:
    """A progress as Spark makes it, with one source."""
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    source = {"description": "", "startOffset": None, "endOffset": None, "latestOffset": latest_offset}
    source |= {"numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0, "metrics": {}}
    ids = {"id": str(uuid.UUID(int=1)), "runId": str(uuid.UUID(int=2)), "name": "n", "timestamp": "t"}
    sink = {"description": "", "numOutputRows": 0, "metrics": {}}
    return StreamingQueryProgress.fromJson(
        ids
        | {"batchId": 3, "batchDuration": 0, "durationMs": {}, "eventTime": {}, "stateOperators": []}
        | {"sources": [source], "sink": sink, "observedMetrics": {}}
    )


@pytest.mark.parametrize("foreign", ["", "7", "null", '{"orders":{"0":5}}', "no json"])
def test_other_sources_are_passed_over(foreign: str) -> None:
    assert list(lags_of(progress_of(foreign))) == []


def report(commit_failures: int, lost_ranges: int) -> str:
    """What the source puts into a progress."""
    return (
        '{"minOffsetsBehindLatest":1,"maxOffsetsBehindLatest":2,"avgOffsetsBehindLatest":1.5,"totalOffsetsBehindLatest":3,'
        f'"group":"g","commitSuccesses":4,"commitFailures":{commit_failures},"lostRanges":{lost_ranges},"lostOffsets":6}}'
    )


def test_by_default_it_logs_and_warns_of_each_new_failure_once(caplog: Any) -> None:
    (lag,) = lags_of(progress_of(report(0, 0)))
    assert isinstance(lag, QueryLag) and lag.bytes_behind is None
    caplog.set_level(logging.INFO)
    listener = LagListener()
    counts = [(0, 0), (0, 5), (0, 5), (1, 5), (1, 5), (2, 6)]
    for failures, ranges in counts:
        listener.onQueryProgress(SimpleNamespace(progress=progress_of(report(failures, ranges))))
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "WARNING", "INFO", "WARNING", "INFO", "WARNING"]
    assert "Query n, batch 3: 3 offsets behind (? bytes, estimated), at most 2" in caplog.text


def test_a_run_that_starts_with_failures_warns_whatever_the_run_before_had(caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    listener = LagListener()
    first = progress_of(report(5, 0))
    listener.onQueryProgress(SimpleNamespace(progress=first))
    (second,) = lags_of(progress_of(report(2, 0)))
    listener.latest[second.query_id, 0] = replace(second, run_id="an earlier run", commit_failures=5)
    listener.onQueryProgress(SimpleNamespace(progress=progress_of(report(2, 0))))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_it_remembers_ended_runs_up_to_a_limit() -> None:
    listener = LagListener()
    for number in range(1_500):
        listener.onQueryTerminated(SimpleNamespace(id="q", runId=number))
    assert len(listener._ended_runs) == 1_000
    assert listener.wait_for_end(SimpleNamespace(runId=1_499), timeout_s=0.01)
    assert not listener.wait_for_end(SimpleNamespace(runId=0), timeout_s=0.01)
