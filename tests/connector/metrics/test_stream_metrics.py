"""A real query's metrics, its tasks' included, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
import sys
import traceback
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from pykafka_wire import metrics
from pykafka_wire.metrics.definitions import METRICS, TABLE

DASHBOARD = Path(__file__).resolve().parents[3] / "conf" / "grafana-dashboard.json"
N_RECORDS = 60


def scrape(port: int) -> dict[str, dict[tuple[str, ...], float]]:
    """Values of each metric by the values of its labels, in the order of the labels' names."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
        text = response.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def expressions() -> list[str]:
    """What the dashboard's panels ask Prometheus for."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


@pytest.mark.broker
@pytest.mark.spark
def test_a_query_with_its_tasks_and_the_dashboard(
    spark: Any, queries: Any, topic: Any, outside: Any, until: Any
) -> None:
    name, query_name = topic(2), f"copy-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [N_RECORDS // 2, N_RECORDS // 2])
    server = metrics.serve_prometheus(spark, port=0, addr="127.0.0.1")
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = metrics.trace_opentelemetry(spark, provider)
    try:
        query = (
            queries.stream(subscribe=name, taskMetrics="driver", groupIdPrefix="metered", maxOffsetsPerTrigger="20")
            .writeStream.queryName(query_name)
            .format("noop")
            .option("checkpointLocation", str(queries.checkpoint))
            .start()
        )
        try:
            consumed = "kafka_consumer_fetch_manager_records_consumed_total"

            def caught_up() -> bool:
                # A micro-batch's tasks are in the progress of the next one: a record now and then makes one.
                if scrape(server.port).get(consumed, {}).get((query_name, "0"), 0) >= N_RECORDS:
                    return True
                outside.fill(name, [1])
                return False

            until(caught_up, what="the figures of all tasks")
            found = scrape(server.port)
        finally:
            query.stop()
        assert server.listener.wait_for_end(query), f"no end of {query.runId} has come:\n{listening_threads(spark)}"
        assert tracer.wait_for_end(query)
        ended = scrape(server.port)
    finally:
        spark.streams.removeListener(server.listener)
        spark.streams.removeListener(tracer)
        server.close()
    source = (query_name, "0")
    of_queries = [each for each in METRICS if each.labels[:3] != TABLE]
    missing = [each.name for each in of_queries if each.name not in found and each.kind != "histogram"]
    assert missing == []
    # A response may hold more than one micro-batch needs: the rest is kept for the next one.
    assert found["kafka_consumer_fetch_manager_fetch_total"][source] >= 1
    assert found["kafka_consumer_fetch_manager_bytes_consumed_total"][source] > N_RECORDS
    assert 3 <= found["pykafka_wire_reported_tasks_total"][source] <= found["pykafka_wire_planned_tasks_total"][source]
    for process in ("driver", "tasks"):
        assert found["kafka_consumer_request_total"][(process, *source)] > 0
        assert found["pykafka_wire_client_wait_seconds_total"][(process, *source)] > 0
    assert found["pykafka_wire_commits_total"][source] >= 2
    (group,) = {key[0] for key in found["kafka_consumergroup_lag"] if key[2] == name}
    assert group.startswith("metered-")
    assert found["kafka_topic_partition_current_offset"]["0", name] >= N_RECORDS // 2
    assert found["pykafka_wire_query_active"][(query_name,)] == 1
    assert found["pykafka_wire_micro_batch_duration_seconds_count"][(query_name,)] >= 3
    assert ended["pykafka_wire_query_active"][(query_name,)] == 0
    assert not any(name in key for key in ended.get("kafka_consumergroup_lag", {}))
    for expression in expressions():
        names = set(re.findall(r"\b(?:pykafka_wire|kafka)_\w+", expression))
        names -= {each.name for each in METRICS if each.labels[:3] == TABLE}  # tests/connector/ingest has those
        assert names <= set(found), f"{names - set(found)} in {expression}"
    require_spans(spans.get_finished_spans(), name, query_name, group)


def listening_threads(spark: Any) -> str:
    """Return where Spark's threads are that tell listeners, and where this process's threads are that Spark calls."""
    shown = []
    for entry in spark._jvm.java.lang.Thread.getAllStackTraces().entrySet():
        if re.match("spark-listener|stream execution", entry.getKey().getName()):
            shown += [entry.getKey().getName(), *(f"  {frame}" for frame in entry.getValue())]
    for number, frame in sys._current_frames().items():
        shown += [f"Python thread {number}", *traceback.format_stack(frame)]
    return "\n".join(shown)


def require_spans(spans: Sequence[ReadableSpan], topic: str, query_name: str, group: str) -> None:
    """A span for each micro-batch, with its phases in it, one after the other."""
    batches = [span for span in spans if span.parent is None]
    assert {span.name for span in batches} == {f"micro-batch {query_name}"}
    numbers = [(span.attributes or {})["pykafka_wire.batch_id"] for span in batches]
    assert numbers == sorted(numbers) and len(set(numbers)) == len(numbers) >= 3
    # Each record is in one of them.
    assert sum((span.attributes or {})["messaging.batch.message_count"] for span in batches) >= N_RECORDS
    for batch in batches:
        attributes = batch.attributes or {}
        assert attributes["messaging.destination.name"] == topic
        assert attributes["messaging.consumer.group.name"] == group
        phases = [span for span in spans if span.parent is not None and span.parent.span_id == batch.context.span_id]
        assert [phase.name for phase in phases] == ["plan", "tasks", "commit"]
        times = [time for phase in phases for time in (phase.start_time, phase.end_time)]
        assert times == sorted(times)
        assert batch.start_time == times[0] and times[-1] <= batch.end_time
        assert phases[1].end_time > phases[1].start_time


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert dashboard["title"] == "pykafka-wire" and dashboard["schemaVersion"] >= 36 and dashboard["uid"]
    assert dashboard["id"] is None  # else an import would replace the dashboard of that number
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        assert panel["title"] and panel["description"] and panel["targets"], panel["id"]
        assert panel["datasource"]["uid"] == "${datasource}"
        at = panel["gridPos"]
        assert at["x"] >= 0 and at["x"] + at["w"] <= 24
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    taken = {
        (x, y)
        for panel in dashboard["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    }
    assert len(taken) == sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in dashboard["panels"])
    assert [each["name"] for each in dashboard["templating"]["list"]] == ["datasource", "query"]
