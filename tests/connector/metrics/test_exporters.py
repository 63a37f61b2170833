"""The figures as Prometheus scrapes them, and as OpenTelemetry collects them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pykafka_wire import metrics
from pykafka_wire.metrics.definitions import METRICS, metrics_table
from pykafka_wire.metrics.opentelemetry import instrument_name
from tests.connector.metrics.progresses import TASKS, of_tables, progress, report
from tests.connector.shown_code import code

DOCS = Path(__file__).resolve().parents[3] / "docs"


class Streams:
    """In place of a session's ``streams``."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []

    def addListener(self, listener: Any) -> None:  # noqa: N802
        self.listeners.append(listener)


@pytest.fixture
def session() -> Any:
    return SimpleNamespace(streams=Streams())


def micro_batch(session: Any, *reports: Any) -> None:
    (listener,) = session.streams.listeners
    listener.onQueryProgress(SimpleNamespace(progress=progress(*reports)))


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
        return response.read().decode()  # type: ignore[no-any-return]


def test_one_line_serves_prometheus(session: Any) -> None:
    server = metrics.serve_prometheus(session, port=0)
    try:
        assert scrape(server.port) == ""
        with pytest.raises(ConnectionRefusedError):  # unless it is asked for, no other machine reaches it
            socket.create_connection(("127.0.0.2", server.port), 5)
        server.listener.figures.include(of_tables)
        micro_batch(session, report(tasks=TASKS))
        micro_batch(session, report(tasks=TASKS))
        text = scrape(server.port)
    finally:
        server.close()
    assert 'kafka_consumergroup_lag{consumergroup="g",partition="0",topic="orders"} 8.0' in text
    assert 'pykafka_wire_commits_total{query="copy",source="0"} 4.0' in text
    assert 'pykafka_wire_micro_batch_duration_seconds_bucket{le="0.5",query="copy"} 2.0' in text
    assert 'pykafka_wire_micro_batch_duration_seconds_bucket{le="0.25",query="copy"} 0.0' in text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(families) == len(METRICS)
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name]
        assert (family.type, family.documentation) == (metric.kind, f"{metric.meaning}.")
        assert all(sample.labels.keys() - {"le"} == set(metric.labels) for sample in family.samples)


def test_names_are_as_prometheus_has_them() -> None:
    """The rules of ``promtool check metrics`` for names and types; ``make dashboard`` has promtool check the text itself."""
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name), metric.name
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert not re.search(r"_(count|sum|bucket|info|ms|milliseconds|kb|gauge|counter|histogram)$", metric.name)
        assert metric.meaning[0].isupper() or metric.meaning[0].isdigit()
        assert not metric.meaning.endswith(".")
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_a_registry_of_the_users_own(session: Any) -> None:
    registry = CollectorRegistry()
    Gauge("theirs", "of the program", registry=registry).set(3)
    server = metrics.serve_prometheus(session, port=0, addr="127.0.0.1", registry=registry, per_partition=False)
    try:
        micro_batch(session, report())
        text = scrape(server.port)
    finally:
        server.close()
    assert "theirs 3.0" in text and "pykafka_wire_query_active" in text and "kafka_consumergroup_lag" not in text


def test_a_port_in_use_is_an_error(session: Any) -> None:
    server = metrics.serve_prometheus(session, port=0, addr="127.0.0.1")
    try:
        registry = CollectorRegistry()
        with pytest.raises(OSError, match=f"Port {server.port} of 127.0.0.1 is in use.*give another port"):
            metrics.serve_prometheus(session, port=server.port, addr="127.0.0.1", registry=registry)
        assert session.streams.listeners == [server.listener]
        metrics.register_prometheus(session, registry)  # which has nothing of the call that failed
    finally:
        server.close()


def test_a_second_session_shares_the_metrics_of_the_first(session: Any) -> None:
    """Else their series would be there twice, and OpenTelemetry would ignore those of the second."""
    other, registry, reader = SimpleNamespace(streams=Streams()), CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    first = metrics.register_prometheus(session, registry)
    with pytest.raises(ValueError, match="addListener"):
        metrics.register_prometheus(other, registry)
    exported = metrics.export_opentelemetry(session, provider)
    with pytest.raises(ValueError, match="addListener"):
        metrics.export_opentelemetry(other, provider)
    assert not other.streams.listeners
    for listener in (first, exported):
        listener.onQueryProgress(SimpleNamespace(progress=progress(report(), name="b", run=2)))
    assert 'pykafka_wire_query_active{query="b"} 1.0' in generate_latest(registry).decode()
    assert "pykafka_wire_query_active" in str(reader.get_metrics_data())
    provider.shutdown()


def test_one_line_exports_to_opentelemetry(session: Any) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics.export_opentelemetry(session, provider).figures.include(of_tables)
    micro_batch(session, report(tasks=TASKS))
    micro_batch(session, report(tasks=TASKS))
    data = reader.get_metrics_data()
    provider.shutdown()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    assert scope.scope.name == "pykafka_wire"
    found = {each.name: each for each in scope.metrics}
    assert set(found) == {instrument_name(metric)[0] for metric in METRICS}
    (lag, _) = found["kafka_consumergroup_lag"].data.data_points
    assert (dict(lag.attributes), lag.value) == ({"consumergroup": "g", "topic": "orders", "partition": "0"}, 8)  # type: ignore[union-attr]
    (rows,) = found["pykafka_wire_input_rows"].data.data_points
    assert rows.value == 200 and found["pykafka_wire_input_rows"].data.is_monotonic  # type: ignore[union-attr]
    duration = found["pykafka_wire_micro_batch_duration"]
    (point,) = duration.data.data_points
    assert duration.unit == "s" and (point.count, point.sum) == (2, pytest.approx(0.6))  # type: ignore[union-attr]
    assert len(point.explicit_bounds) == 12  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("blocked", "call", "extra"),
    [
        ("prometheus_client", "serve_prometheus", "prometheus"),
        ("opentelemetry", "export_opentelemetry", "opentelemetry"),
    ],
)
def test_a_library_that_is_missing_is_an_error_with_what_to_install(blocked: str, call: str, extra: str) -> None:
    code = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == {blocked!r} or name.startswith({blocked!r} + "."):
            raise ImportError(name)
sys.meta_path.insert(0, Blocker())
from pykafka_wire import metrics
try:
    metrics.{call}(None)
except ImportError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.startswith("[PYKAFKA_WIRE_NOT_INSTALLED]") and f"pip install 'pykafka-wire[{extra}]'" in said


def test_nothing_else_loads_the_exporters_libraries() -> None:
    code = """
import sys
import pykafka_wire.metrics, pykafka_wire.datasource, pykafka_wire.source.micro_batch_stream, pykafka_wire.sink.writer
print([name for name in sys.modules if name.startswith(("prometheus_client", "opentelemetry"))])
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.strip() == "[]"


def test_the_pages_code_runs(session: Any) -> None:
    for block in code("docs/metrics.md"):
        named: dict[str, Any] = {"spark": session}
        exec(block.replace("port=9464", "port=0"), named)
        if "server" in named:
            named["server"].close()
    assert len(session.streams.listeners) == 3


def test_the_page_names_only_metrics_that_exist() -> None:
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:pykafka_wire|kafka_consumer\w*|kafka_topic)_\w+", text))
    assert named == {metric.name for metric in METRICS}


def test_the_page_shows_the_table() -> None:
    assert metrics_table() in (DOCS / "metrics.md").read_text(encoding="utf-8"), (
        "paste the output of pykafka_wire.metrics.definitions.metrics_table() into docs/metrics.md"
    )
