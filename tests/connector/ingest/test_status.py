"""The one model of an ingest's status: what each figure is, at which moment, and that all who show the model show the same."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from pykafka_wire.cli.ingest_screen import IngestScreen, headline, tables_drawn
from pykafka_wire.cli.lag_samples import duration, rate
from pykafka_wire.ingest.landing.micro_batch import MicroBatch
from pykafka_wire.ingest.landing.remedies import Failure, Remedy
from pykafka_wire.ingest.landing.retries import due_now, trouble_after
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.watching.history import Observation, StatusHistory, TopicWaits
from pykafka_wire.ingest.watching.metrics import values
from pykafka_wire.ingest_status import (
    Activity,
    IngestStatus,
    Moment,
    RunningMicroBatch,
    TableState,
    TableStatus,
    Trouble,
)
from pykafka_wire.metrics.definitions import TABLE_LAG, TABLE_RETRYING, TABLE_STOPPED
from pykafka_wire.page.documents import ingest_document, tables_document
from pykafka_wire.page.sampling import Samples
from pykafka_wire.task_metrics import TaskFigures
from tests.connector.page.synthetic import SyntheticSource

pytestmark = pytest.mark.unit

STARTED = 1_700_000_000.0
Offsets = Mapping[int, int]


def failure(remedy: Remedy, code: str = "X") -> Failure:
    return Failure(code=code, sentence=f"[{code}] why", remedy=remedy)


def moment(seconds: float) -> Moment:
    """So many seconds after the start; the monotonic clock has begun 500 s before."""
    return Moment(STARTED + seconds, 500 + seconds)


def progress(
    number: int,
    seconds: float,
    ends: Mapping[str, Offsets] | None,
    planned: Mapping[str, Offsets] | None = None,
    **durations: int,
) -> Any:
    """One trigger's progress as Spark's JSON, which began so many seconds after the start; an idle one has no ``addBatch``."""

    def offsets(of: Mapping[str, Offsets] | None) -> Any:
        return None if of is None else {"offsets": {t: {str(p): o for p, o in each.items()} for t, each in of.items()}}

    source = {"startOffset": None, "latestOffset": offsets(ends), "endOffset": offsets(planned or ends)}
    whole, ms = divmod(round(seconds * 1000), 1000)
    at = f"2023-11-14T22:{13 + (20 + whole) // 60:02}:{(20 + whole) % 60:02}.{ms:03}Z"
    return json.loads(json.dumps({"batchId": number, "timestamp": at, "sources": [source], "durationMs": durations}))


def batch(number: int, end: Offsets, *, topic: str = "t", begun: float = 0.0, **more: Any) -> MicroBatch:
    part = TopicRange(topic=topic, topic_id="", start=dict.fromkeys(end, 0), end=end)
    return MicroBatch(number=number, ranges={topic: part}, **{"positions": {}, "begun_at": 500 + begun, **more})


class Ingest:
    """A history of an ingest with one table of the topic t, unless a look has others."""

    def __init__(self, min_rows: int = 0, max_delay_s: float | None = 60.0) -> None:
        self.history = StatusHistory(lambda _: TopicWaits(min_rows=min_rows, max_delay_s=max_delay_s))

    def plan(self, *given: Any, figures: TaskFigures | None = None, **durations: int) -> None:
        self.history.add_progress(progress(*given, **durations), lambda _: figures)

    def look(self, seconds: float, *tables: TableStatus, **more: Any) -> IngestStatus:
        return self.history.status(
            Observation(moment=moment(seconds), tables=tables or [TableStatus(topic="t", name="t")], **more)
        )

    def table(self, seconds: float, table: TableStatus | None = None, **more: Any) -> TableStatus:
        (found,) = self.look(seconds, *([] if table is None else [table]), **more).tables
        return found


def at(*position: int, **figures: Any) -> TableStatus:
    return TableStatus(topic="t", name="t", position=dict(enumerate(position)), **figures)


def test_pauses_grow_conflicts_are_repeated_at_once_and_a_stopped_table_is_tried_after_a_long_pause() -> None:
    trouble, pauses = None, []
    for _ in range(8):
        trouble = trouble_after(failure(Remedy.RETRY_LATER), trouble, 100.0)
        pauses.append(trouble.next_attempt - 100)
    assert trouble is not None
    assert (trouble.state, trouble.reason, pauses) == (TableState.RETRYING, "[X] why", [1, 2, 4, 8, 16, 32, 60, 60])
    conflicts, trouble = [], None
    for _ in range(7):
        trouble = trouble_after(failure(Remedy.RETRY_NOW), trouble, 100.0)
        conflicts.append(trouble.next_attempt - 100)
    assert conflicts == [0, 0, 0, 0, 0, 1, 2]
    stopped = trouble_after(failure(Remedy.CHANGE, "Y"), trouble, 130.0)
    assert (stopped.state, stopped.code, stopped.next_attempt, stopped.since) == (TableState.STOPPED, "Y", 430.0, 100.0)
    assert due_now(stopped, 7.0).next_attempt == 7.0
    assert trouble_after(failure(Remedy.RETRY_LATER), stopped, 500.0).state is TableState.RETRYING, (
        "the last error decides"
    )


def test_a_first_micro_batch_is_queued_landing_committing_and_then_up_to_date() -> None:
    ingest, running = Ingest(), batch(0, {0: 60, 1: 40})
    assert ingest.table(0, is_started=False).state is TableState.STARTING
    seen = [ingest.table(n, batch=running, n_read={"t": n_read}) for n, n_read in ((1, 0), (2, 50), (3, 30), (4, 250))]
    assert [table.state.value for table in seen] == ["queued", "landing", "landing", "committing"]
    assert [table.share for table in seen] == [0.0, 0.5, 0.5, 1.0], "what was read once does not become less"
    assert [table.lag for table in seen] == [100] * 4 and [table.freshness_s for table in seen] == [None] * 4
    landed = at(60, 40, rows=100, commits=1)
    assert ingest.table(5, landed, batch=running).state is TableState.LANDED, "the end of the log is not known yet"
    ingest.plan(0, 0.5, {"t": {0: 60, 1: 40}}, addBatch=4000)
    table = ingest.table(6, landed)
    assert (table.state, table.lag, table.catch_up_s) == (TableState.UP_TO_DATE, 0, 0.0)
    assert table.freshness_s == pytest.approx(5.5), "it held all that there was when the micro-batch was planned"
    ingest.plan(0, 9.0, {"t": {0: 70, 1: 40}})
    table = ingest.table(10, landed)
    assert (table.state, table.lag, table.freshness_s) == (TableState.BEHIND, 10, pytest.approx(9.5))


def test_after_a_restart_a_table_is_not_empty_and_gets_only_what_it_lacks() -> None:
    """An earlier run has committed the micro-batch: 100,608 records, of which the table has all but 4."""
    ingest, repeated = Ingest(), batch(7, {0: 100_608}, is_repeated=True)
    seen = ingest.look(1, batch=repeated)
    assert seen.activity is Activity.CONTINUING and seen.running is not None
    assert (seen.running.n_planned, seen.running.n_done) == (0, 0), "what it has is not known before it was looked at"
    assert (seen.tables[0].state, seen.tables[0].lag) == (TableState.STARTING, None)
    opened = at(100_604, first_position={0: 100_604}, newest_ms=1_700_000_000_000)
    seen = ingest.look(2, opened, batch=repeated)
    assert seen.running is not None and (seen.running.n_planned, seen.running.n_done) == (4, 0)
    assert (seen.tables[0].lag, seen.tables[0].has_landed, seen.tables[0].rows) == (4, True, 0)
    landed = at(100_608, first_position={0: 100_604}, rows=4)
    running = ingest.look(3, landed, batch=repeated).running
    assert running == RunningMicroBatch(number=7, begun_at=500.0, n_planned=4, n_done=4)
    (partition,) = ingest.table(4, landed).partitions
    assert (partition.landed, partition.position) == (4, 100_608)


def test_an_ingest_waits_for_records_only_after_it_has_asked_for_them() -> None:
    ingest = Ingest()
    assert ingest.look(0, is_started=False).activity is Activity.STARTING
    assert ingest.look(1, is_planning=False).activity is Activity.PLANNING, "no trigger has ended yet"
    assert ingest.look(2, batch=batch(0, {0: 1})).activity is Activity.LANDING
    ingest.plan(0, 1.0, {"t": {0: 1}}, addBatch=100)
    assert ingest.look(3, at(1)).activity is Activity.WAITING
    assert ingest.look(4, at(1), is_planning=True).activity is Activity.PLANNING


def test_a_topic_without_records_waits_for_its_first_ones_and_one_with_too_few_until_they_have_waited() -> None:
    ingest = Ingest(min_rows=10)
    ingest.plan(0, 0.0, {"t": {0: 0}, "few": {0: 7}}, {"t": {0: 0}, "few": {0: 0}})
    few = TableStatus(topic="few", name="few")
    (waiting, empty) = sorted(
        ingest.look(10, TableStatus(topic="t", name="t"), few).tables, key=lambda each: each.topic
    )
    assert (empty.state, empty.lag, empty.waits_until) == (TableState.WAITING, 0, None)
    assert (waiting.state, waiting.lag, waiting.waits_until) == (TableState.WAITING, 7, 560.0)
    assert waiting.document()["waits_until"] == STARTED + 60
    ingest.plan(0, 20.0, {"few": {0: 8}}, {"few": {0: 0}})
    assert ingest.table(21, few).waits_until == 560.0, "since the first of them came"
    assert ingest.table(22, few, batch=batch(1, {0: 8}, topic="few")).state is TableState.QUEUED


def test_a_table_in_trouble_has_the_state_the_reason_and_the_time_of_the_next_attempt() -> None:
    ingest = Ingest()
    ingest.plan(0, 0.0, {"t": {0: 5}}, addBatch=1)
    trouble = trouble_after(failure(Remedy.CHANGE), None, 500.0)
    seen = ingest.look(100, at(3, trouble=trouble), TableStatus(topic="u", name="u"))
    table = seen.tables[0]
    assert (table.state, table.error, table.lag, table.catch_up_s) == (TableState.STOPPED, "[X] why", 2, None)
    assert trouble.seconds_left(seen.moment) == 200
    assert table.document()["trouble"] == {
        "code": "X", "text": "[X] why", "since": STARTED, "attempts": 1, "next_attempt_at": STARTED + 300,
    }  # fmt: skip
    totals = seen.totals()
    assert (totals["lag"], totals["lag_in_trouble"], totals["states"]["stopped"]) == (2, 2, 1)
    assert (totals["tables_of_unknown_freshness"], totals["oldest_s"]) == (2, None)


def test_a_lag_of_which_no_rate_is_known_has_no_time_to_catch_up() -> None:
    """A second table is caught up: its 0 seconds are not those of both."""
    ingest = Ingest()
    ingest.plan(0, 0.0, {"t": {0: 2}, "u": {0: 5}}, addBatch=1)
    well = TableStatus(topic="u", name="u", position={0: 5})
    seen = ingest.look(1, at(0), well)
    assert (seen.lag, seen.catch_up_s, seen.totals()["lag_in_trouble"]) == (2, None, 0)
    assert ingest.look(2, at(2), well).catch_up_s == 0.0


def test_rates_are_of_the_last_half_minute_and_count_what_lands_beside_micro_batches() -> None:
    ingest = Ingest()
    ingest.table(0, at(0))
    assert ingest.table(10, at(100, rows=100)).rows_per_second == pytest.approx(10)
    running = batch(1, {0: 400}, positions={"t": {0: 100}})
    assert ingest.table(20, at(100, rows=100), batch=running, n_read={"t": 300}).rows_per_second == pytest.approx(15)
    for seconds in range(30, 81, 10):
        table = ingest.table(seconds, at(400, rows=400))
    assert table.rows_per_second == 0


def test_the_seconds_of_landing_are_those_of_tasks_as_far_as_tasks_ran() -> None:
    """Two local records: a job of two minutes, most of which Spark's processes need to start."""
    ingest, few = Ingest(), TaskFigures(read_s=0.1, task_s=0.4)
    ingest.plan(0, 0.0, {"t": {0: 2}}, addBatch=120_000, figures=few)
    ingest.plan(1, 30.0, {"t": {0: 9}}, addBatch=10_000, figures=TaskFigures(read_s=10.0, task_s=40.0))
    ingest.plan(2, 50.0, {"t": {0: 9}}, addBatch=1000)
    landing = [each.landing for each in ingest.look(60).micro_batches]
    assert landing[0] == pytest.approx({"fetching": 0.1, "writing": 0.3, "driver": 119.6})
    assert landing[1] == pytest.approx({"fetching": 2.5, "writing": 7.5, "driver": 0.0}), "four tasks side by side"
    assert landing[2] is None


def test_progress_that_spark_reports_twice_or_without_a_plan_changes_nothing() -> None:
    ingest = Ingest()
    for _ in range(2):
        ingest.plan(3, 0.0, {"t": {0: 9}}, addBatch=1)
    ingest.plan(4, 1.0, None, addBatch=1)
    seen = ingest.look(2, at(9))
    assert [each.number for each in seen.micro_batches] == [3, 4]
    assert (seen.tables[0].lag, seen.tables[0].freshness_s) == (0, 2.0)


def test_metrics_are_those_of_the_model() -> None:
    ingest = Ingest()
    ingest.plan(0, 0.0, {"t": {0: 5}, "u": {0: 1}}, addBatch=1)
    retrying = Trouble(code="Y", reason="why", is_stopped=False, n_failures=1, since=1.0, next_attempt=2.0)
    tables = ingest.look(1, at(3, trouble=retrying), TableStatus(topic="u", name="u", position={0: 1})).tables
    assert values(TABLE_LAG, "q", tables) == {("q", "t", "t"): 2.0, ("q", "u", "u"): 0.0}
    assert values(TABLE_RETRYING, "q", tables) == {("q", "t", "t", "Y"): 1.0, ("q", "u", "u", ""): 0.0}
    assert values(TABLE_STOPPED, "q", tables) == {("q", "t", "t", ""): 0.0, ("q", "u", "u", ""): 0.0}


def after_a_restart() -> IngestStatus:
    """A table that an earlier run has landed: of the micro-batch that it committed last, the table lacks 4 records."""
    table = at(100_604, first_position={0: 100_604}, **LANDED_BEFORE)
    return Ingest().look(5, table, batch=batch(7, {0: 100_608}, is_repeated=True))


def while_landing() -> IngestStatus:
    """A first micro-batch, half of which is read; nothing is committed yet."""
    ingest, table, running = Ingest(), TableStatus(topic="t", name="t", format="avro"), batch(0, {0: 4000, 1: 2000})
    ingest.look(0, table, batch=running)
    return ingest.look(5, table, batch=running, n_read={"t": 3000})


def in_trouble() -> IngestStatus:
    """A table that is stopped lacks two records; the other one has all of its topic."""
    ingest = Ingest()
    ingest.plan(0, 1.0, {"t": {0: 5}, "u": {0: 7}}, addBatch=1)
    stopped = at(3, rows=3, trouble=trouble_after(failure(Remedy.CHANGE), None, 502.0), **LANDED_BEFORE)
    return ingest.look(20, stopped, TableStatus(topic="u", name="u", position={0: 7}, rows=7, held_rejects=1))


def behind() -> IngestStatus:
    """Two records have come, which the next micro-batch brings; the two tables before have no records to come."""
    ingest = Ingest()
    ingest.plan(0, 1.0, {"t": {0: 5}, "u": {0: 7}}, addBatch=120_000, figures=TaskFigures(read_s=0.1, task_s=0.4))
    ingest.plan(1, 10.0, {"t": {0: 7}, "u": {0: 7}}, {"t": {0: 5}, "u": {0: 7}})
    return ingest.look(20, at(5, rows=5), TableStatus(topic="u", name="u", position={0: 7}, rows=7))


def before_the_first_read() -> IngestStatus:
    return Ingest().look(1)


def before_readers_are_lost() -> IngestStatus:
    """The next rows of one table need a feature that excludes readers."""
    ingest = Ingest()
    ingest.plan(0, 1.0, {"t": {0: 5}, "u": {0: 7}}, addBatch=1)
    lost = at(3, lost_readers=(LOST,), **LANDED_BEFORE)
    return ingest.look(20, lost, TableStatus(topic="u", name="u", position={0: 7}, rows=7))


def with_large_figures() -> IngestStatus:
    """Figures that have six digits, which a page shows in full, during a micro-batch."""
    table = TableStatus(
        topic="t", name="t", moment=moment(1000), position={0: 0}, log_ends={0: 999_999}, rows=888_888,
        rejects=777_777, held_rejects=777_777, rows_per_second=99_999.0, complete_at=-40_000.0,
    )  # fmt: skip
    return replace(Ingest().look(1000), tables=[table])


LOST = "The table gets Delta's feature typeWidening: deltalake and Polars refuse the table."
LANDED_BEFORE: dict[str, Any] = {"newest_ms": 1_699_990_000_000, "schema_id": 12, "format": "avro"}
SITUATIONS = (after_a_restart, while_landing, in_trouble, behind, before_the_first_read, before_readers_are_lost)


def screen(status: IngestStatus) -> str:
    """What a terminal of 120 columns shows."""
    printed = io.StringIO()
    to = Console(file=printed, width=120, height=30, force_terminal=True, color_system=None)
    to.print(headline("shop", status), tables_drawn(status, to))
    return printed.getvalue()


def terminal_rows(status: IngestStatus) -> dict[str, list[str]]:
    """Of each table the state, freshness, lag, rows a second, rows, rejects and schema, as a terminal shows them."""
    rows = [re.split(" {2,}", line.strip()) for line in screen(status).splitlines() if re.match(r"[a-z]\w* {2,}", line)]
    return {row[0]: row[2:] for row in rows[2:]}  # behind the headline and the heads


def document(status: IngestStatus) -> Any:
    source = SyntheticSource(0)
    source.status = status
    snapshot = source.snapshot(is_watched=True)
    tables = tables_document(snapshot, Samples())["tables"]
    return ingest_document(snapshot, Samples()), {table["table"]: table for table in tables}


@pytest.mark.parametrize("make", SITUATIONS)
def test_terminal_page_and_json_show_one_status(make: Callable[[], IngestStatus]) -> None:
    status = make()
    _, tables = document(status)
    rows = terminal_rows(status)
    assert rows.keys() == tables.keys() == {table.name for table in status.tables}
    for name, (state, fresh, lag, per_s, n_rows, rejects, schema) in rows.items():
        table = tables[name]
        percent = "" if table["share"] is None or table["state"] != "landing" else f" {table['share']:.0%}"
        assert state == table["state"] + percent
        assert fresh == ("-" if table["freshness_s"] is None else duration(table["freshness_s"]))
        assert lag == ("-" if table["lag"] is None else f"{table['lag']:,}")
        assert rejects == f"{table['held_rejects']:,}" and schema == (table["schema_id"] or "-")
        assert n_rows == f"{table['rows']:,}" or (n_rows == "-" and not table["rows"])
        assert per_s == rate(table["rows_per_second"]) or (per_s == "-" and not table["rows_per_second"])
    assert {
        name: json.loads(json.dumps(table.document()))["lag"] for name, table in zip(rows, status.tables, strict=True)
    } == {name: table["lag"] for name, table in tables.items()}


@pytest.mark.parametrize("landed_at", [10, 20, 30])
def test_the_plots_of_a_first_micro_batch_show_the_rate_beside_them(landed_at: int) -> None:
    """Records count as soon as they are read, and once: not again when they have landed."""
    ingest, running, source = Ingest(), batch(0, {0: 9000}), SyntheticSource(0)
    seconds = [0.0]
    samples = Samples(lambda: seconds[0])
    for second in range(0, 31, 5):
        seconds[0] = float(second)
        n_read = second * 300
        has_landed = second >= landed_at
        table = at(n_read, rows=n_read - 1, rejects=1) if has_landed and n_read else TableStatus(topic="t", name="t")
        source.status = ingest.look(second, table, batch=running, n_read={} if has_landed else {"t": n_read})
        samples.add(source.snapshot(is_watched=True))
    (table,) = source.status.tables
    assert table.rows_per_second == 300 and table.n_records == 9000
    assert samples.rates("records", "t") == samples.rates("records", "") == [300.0] * 6


def test_a_table_of_which_hardly_anything_was_read_has_no_time_to_catch_up() -> None:
    """A first record that is read while the others wait tells no rate: it would be days."""
    for n_read, expected in ((1, None), (99, None), (100, 990.0), (5000, 10.0)):
        ingest, running, table = Ingest(), batch(0, {0: 10_000}), TableStatus(topic="t", name="t")
        ingest.look(0, table, batch=running)
        found = ingest.table(10, table, batch=running, n_read={"t": n_read})
        assert found.catch_up_s == (None if expected is None else pytest.approx(10_000 / n_read * 10)), n_read


def test_a_terminal_and_a_document_name_the_readers_that_a_table_will_lose() -> None:
    _, tables = document(before_readers_are_lost())
    assert [tables[name]["lost_readers"] for name in ("t", "u")] == [[LOST], []]
    assert f"with the next rows: {LOST}" in screen(before_readers_are_lost())
    assert not any("with the next rows" in screen(make()) for make in SITUATIONS[:-1])


def test_no_terminal_waits_for_records_before_it_has_asked_for_any() -> None:
    assert "waiting for new records" not in screen(before_the_first_read())
    assert "planning a micro-batch" in screen(before_the_first_read())
    assert "continuing where the tables ended, for 5s" in screen(after_a_restart())
    assert "waiting for new records" in screen(behind())
    assert "2 tables, 1 stopped; waiting for new records" in screen(in_trouble())


@pytest.mark.parametrize("make", SITUATIONS)
def test_a_terminal_says_that_brokers_do_not_respond_whatever_the_ingest_does(make: Callable[[], IngestStatus]) -> None:
    """The terminal, like the page, shows the states and figures of the brokers' last response."""
    seen = make()
    assert "responded" not in headline("shop", seen)
    assert headline("shop", replace(seen, brokers_silent_s=45.0)).endswith("; brokers have not responded for 45s")


def test_without_a_terminal_a_line_says_that_the_brokers_are_silent_and_another_that_they_respond_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen, silences = IngestScreen("shop", is_quiet=False), iter((None, 31.0, 32.0, None, None))
    seen = replace(behind(), tables=())
    screen.watch(lambda: replace(seen, brokers_silent_s=next(silences)))
    for _ in range(5):
        screen.tell_troubles()
    told = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert told == ["the brokers have not responded for 31s", "the brokers respond again"]
