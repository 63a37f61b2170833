"""Figures of queries over their micro-batches, restarts and ends."""

from __future__ import annotations

import uuid

import pytest

from pykafka_wire.metrics.definitions import ACTIVE, GROUP_LAG, GROUP_OFFSET, LOG_END, METRICS, TABLE
from pykafka_wire.metrics.query_figures import QueryFigures, _rate
from tests.connector.metrics.progresses import TASKS, of_tables, progress, report

RUN = {number: str(uuid.UUID(int=number)) for number in (1, 2)}
WHERE = ("copy", "0")


def test_lag_rates_commits_losses_and_durations() -> None:
    figures = QueryFigures()
    assert figures.progress(progress(report(tasks=TASKS, lostRanges=2, lostOffsets=30))) == ("copy", 0.3)
    found = figures.samples()
    assert found[GROUP_LAG] == {("g", "orders", "0"): 8, ("g", "orders", "1"): 0}
    assert found[GROUP_OFFSET] == {("g", "orders", "0"): 42, ("g", "orders", "1"): 20}
    assert found[LOG_END] == {("orders", "0"): 50, ("orders", "1"): 20}
    one_source = {name.removeprefix("pykafka_wire_"): values.get(WHERE) for name, values in found.items()}
    assert one_source["max_offsets_behind_latest"] == 8 and one_source["avg_offsets_behind_latest"] == 4.0
    assert one_source["offsets_behind_latest"] == 8 and one_source["estimated_total_bytes_behind_latest"] == 800
    assert (one_source["input_rows_per_second"], one_source["processed_rows_per_second"]) == (50.0, 0.0)
    assert (one_source["commits_total"], one_source["commit_failures_total"]) == (4, 1)
    assert (one_source["lost_ranges_total"], one_source["lost_offsets_total"]) == (3, 35)
    assert (one_source["planned_tasks_total"], one_source["reported_tasks_total"]) == (4, 3)
    assert one_source["kafka_consumer_fetch_manager_records_consumed_total"] == 700
    assert found["pykafka_wire_client_wait_seconds_total"] == {(*WHERE, "driver"): 1.5, (*WHERE, "tasks"): 1.5}
    assert found["pykafka_wire_client_throttle_seconds_total"][(*WHERE, "driver")] == 0.25
    assert found["pykafka_wire_micro_batch_phase_seconds_total"] == {("copy", "addBatch"): pytest.approx(0.15)}
    ((label, durations),) = figures.durations()
    assert (label, durations.sum_s, sum(durations.counts), durations.counts[3]) == ("copy", 0.3, 1, 1)


def test_every_metric_has_a_value_where_tasks_report() -> None:
    figures = QueryFigures()
    figures.progress(progress(report(tasks=TASKS)))
    without = [name for name, values in figures.samples().items() if not values]
    assert without == [each.name for each in METRICS if each.labels[:3] == TABLE]  # which only an ingest has
    figures.include(of_tables)
    assert all(figures.samples().values())
    assert {each.name for each in METRICS} - set(figures.samples()) == {"pykafka_wire_micro_batch_duration_seconds"}


def test_counters_go_on_over_a_restart_and_gauges_end_with_the_run() -> None:
    figures = QueryFigures()
    figures.progress(progress(report(commitSuccesses=4)))
    figures.progress(progress(report(commitSuccesses=6)))
    figures.end(RUN[1])
    assert figures.values("pykafka_wire_commits_total") == {WHERE: 6}
    assert figures.values(ACTIVE) == {("copy",): 0.0}
    assert figures.values(GROUP_LAG) == {} and figures.values("pykafka_wire_last_batch_id") == {}
    figures.progress(progress(report(commitSuccesses=1), run=2))
    assert figures.values("pykafka_wire_commits_total") == {WHERE: 7}
    assert figures.values("pykafka_wire_input_rows_total") == {WHERE: 300}
    figures.end(RUN[1])  # which comes late
    assert figures.values(ACTIVE) == {("copy",): 1.0}


def test_a_restarted_query_runs_before_it_has_read_anything() -> None:
    figures = QueryFigures()
    figures.begin(RUN[1], "copy")
    assert figures.values(ACTIVE) == {}  # until its progress shows that it is one of ours
    figures.progress(progress(report()))
    figures.end(RUN[1])
    figures.begin(RUN[2], "copy")
    assert figures.values(ACTIVE) == {("copy",): 1.0} and figures.values(GROUP_LAG) == {}
    assert set(figures.values("pykafka_wire_last_progress_timestamp_seconds")) == {("copy",)}
    figures.progress(progress(report(commitSuccesses=1), run=2))
    assert figures.values("pykafka_wire_commits_total") == {WHERE: 5}
    figures.end(RUN[2])
    assert figures.values(ACTIVE) == {("copy",): 0.0}


def test_a_query_that_idles_is_alive() -> None:
    figures = QueryFigures()
    figures.note_idle(RUN[1])
    figures.progress(progress(report()))
    (before,) = figures.values("pykafka_wire_last_progress_timestamp_seconds").values()
    figures.note_idle(RUN[1])
    (after,) = figures.values("pykafka_wire_last_progress_timestamp_seconds").values()
    assert after > before


def test_two_sources_and_a_query_without_a_name() -> None:
    figures = QueryFigures(per_partition=False)
    figures.progress(progress(report(), '{"other":{"0":1}}', report(maxOffsetsBehindLatest=9), name=None))
    label = str(uuid.UUID(int=7))
    assert figures.values("pykafka_wire_max_offsets_behind_latest") == {(label, "0"): 8, (label, "2"): 9}
    assert figures.values(GROUP_LAG) == {}


@pytest.mark.parametrize("none", [float("nan"), float("inf")])
def test_a_rate_that_is_no_number_is_0(none: float) -> None:
    assert _rate(none) == 0.0 and _rate(2.5) == 2.5


def test_queries_of_other_sources_are_passed_over() -> None:
    figures = QueryFigures()
    assert figures.progress(progress("7", "")) is None
    assert figures.values(ACTIVE) == {} and list(figures.durations()) == []


def test_a_log_that_two_queries_read_has_one_end() -> None:
    figures = QueryFigures()
    figures.progress(progress(report(), name="a", run=1))
    figures.progress(progress(report(offsets={"orders": {"0": 60}}, group="h"), name="b", run=2))
    assert figures.values(LOG_END) == {("orders", "0"): 60, ("orders", "1"): 20}


def test_ended_queries_are_kept_up_to_a_limit() -> None:
    figures = QueryFigures()
    figures.progress(progress(report(), name="runs", run=5_000))
    for number in range(1, 300):
        figures.progress(progress(report(), name=None, run=number, query=number))
        figures.end(str(uuid.UUID(int=number)))
    kept = [label for (label,), value in figures.values(ACTIVE).items() if not value]
    assert len(kept) == 100 and kept[-1] == str(uuid.UUID(int=299))
    assert figures.values(ACTIVE)[("runs",)] == 1.0
